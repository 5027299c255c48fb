"""Random options HMMs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ppl_models.datasets.options import with_stationary_start


def random_options(
    num_states: int,
    num_actions: int,
    num_options: int,
    seed: int,
    stay: float = 0.8,
    sharpness: float = 0.5,
) -> dict[str, Tensor]:
    """A random options HMM: low-level rows Dirichlet(sharpness), options kept with probability
    ``stay`` and else redrawn by a uniform row, environment rows uniform; ``initial`` is the
    stationary distribution.
    """
    generator = np.random.default_rng(seed)
    high = stay * np.eye(num_options) + (1 - stay) * generator.dirichlet(
        np.ones(num_options), size=(num_states, num_options)
    )
    parts = {
        "low": generator.dirichlet(np.full(num_actions, sharpness), size=(num_states, num_options)),
        "high": high,
        "environment": generator.dirichlet(np.ones(num_states), size=(num_actions, num_states)),
    }
    return with_stationary_start({name: torch.from_numpy(value) for name, value in parts.items()})
