"""Programs as people write them, in plain Pyro: indexed by latents, in torch's default dtype, their items in a plate."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor


def mixture_of_lines(data: dict[str, Tensor]) -> None:
    """Two groups of rows, each with its own line and its own noise."""
    x, y = data["x"], data["y"]
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2)))
    with pyro.plate("groups", 2):
        a = pyro.sample("a", dist.Normal(0.0, 10.0))
        b = pyro.sample("b", dist.Normal(0.0, 10.0))
        s = pyro.sample("s", dist.Gamma(2.0, 2.0))
    with pyro.plate("rows", len(y)):
        z = pyro.sample("group", dist.Categorical(weights))
        pyro.sample("y", dist.Normal(a[z] + b[z] * x, s[z]), obs=y)


def lines_of_two(num_rows: int = 60) -> dict[str, Tensor]:
    rng = np.random.default_rng(0)
    x, first = np.linspace(-2, 2, num_rows), rng.random(num_rows) < 0.4
    y = np.where(first, 1 + 2 * x, -1 - x) + np.where(first, 0.3, 0.6) * rng.normal(size=num_rows)
    return {"x": torch.as_tensor(x), "y": torch.as_tensor(y)}


def rasch(data: Tensor) -> None:
    """Persons with an ability, items with a difficulty, each in a plate of its own."""
    persons, items = pyro.plate("persons", data.shape[0], dim=-2), pyro.plate("items", data.shape[1], dim=-1)
    with items:
        difficulty = pyro.sample("difficulty", dist.Normal(0.0, 2.0))
    with persons:
        ability = pyro.sample("ability", dist.Normal(0.0, 1.0))
        with items:
            pyro.sample("answer", dist.Bernoulli(logits=ability - difficulty), obs=data)


def ratings(num_persons: int = 40, num_items: int = 4) -> Tensor:
    rng = np.random.default_rng(1)
    chance = 1 / (1 + np.exp(np.linspace(-1, 1, num_items) - rng.normal(size=(num_persons, 1))))
    return torch.as_tensor(rng.random(chance.shape) < chance).double()
