"""Rows in two groups, by kind of item, for fits with known or tied parameters."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

RNG = np.random.default_rng(0)
GROUP = RNG.choice(2, 200, p=[0.6, 0.4])
NUMBERS = RNG.normal(size=(200, 2)) + 2.5 * GROUP[:, None]
ANSWERS = (RNG.random((200, 4)) < np.where(GROUP, 0.75, 0.3)[:, None]).astype(float)
CODES = RNG.integers(0, 3, (200, 3)).astype(float)
CODES[GROUP == 1] = np.minimum(CODES[GROUP == 1], RNG.integers(0, 3, (int(GROUP.sum()), 3)))
COUNTS = RNG.poisson(np.where(GROUP, 6.0, 1.5)[:, None], (200, 3)).astype(float)
STATES = (RNG.random((10, 20)) < 0.25).cumsum(1) % 2
CHAINS = RNG.normal(size=(10, 20, 1)) + 2.0 * STATES[..., None]


def program(data: Tensor) -> None:
    weights = pyro.sample("weights", dist.Dirichlet(torch.full((2,), 1.5)))
    chances = pyro.sample("chances", dist.Beta(1.2, 1.2).expand([2, 4]).to_event(2))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("x", dist.Bernoulli(chances[z]).to_event(1), obs=data)
