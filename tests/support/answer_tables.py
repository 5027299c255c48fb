"""Tables of answers, short settings, and programs of users on them."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.ops.indexing import Vindex

from inference import EM
from ppl_models import Bernoulli, Blocks, LogNormal, Normal, Poisson

ANSWERS = (np.random.default_rng(0).random((60, 6)) < 0.5).astype(float)
SHORT = EM(max_iterations=4)
MIXED = Blocks((Bernoulli(), 2), (Normal(), 2), (LogNormal(), 1), (Poisson(), 1))
RESPONSES = [Bernoulli(), Poisson(), Normal(), LogNormal(), MIXED]


def name_of(response):
    return type(response).__name__


def table(response, num_rows=40, seed=0):
    """Rows of six items that the family allows."""
    rng = np.random.default_rng(seed)
    columns = []
    for family, part, _ in response.blocks(6):
        shape = (num_rows, part.stop - part.start)
        noise = rng.normal(size=shape)
        kinds = {
            "Normal": noise,
            "LogNormal": np.exp(noise),
            "Poisson": rng.poisson(2.0, shape),
            "Bernoulli": noise > 0,
        }
        columns.append(kinds[name_of(family)].astype(float))
    return np.concatenate(columns, 1)


def mixture(data, num_rows=None):
    """Two classes of rows with six independent answers."""
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2, dtype=torch.float64)))
    chance = pyro.sample(
        "chance", dist.Beta(torch.ones(2, 6, dtype=torch.float64), 1.0).to_event(2)
    )
    with pyro.plate("rows", num_rows or len(data)):
        group = pyro.sample("group", dist.Categorical(weights))
        pyro.sample("answers", dist.Bernoulli(Vindex(chance)[..., group, :]).to_event(1), obs=data)
