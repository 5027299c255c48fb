"""Programs as a user would write them, that describe nothing of themselves, with data of a known truth."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.ops.indexing import Vindex
from torch import Tensor

F64 = torch.float64


def regression_mixture(data: dict[str, Tensor]) -> None:
    """Two groups of rows, each with its own line of y on x."""
    x, y = data["x"], data["y"]
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2, dtype=F64)))
    intercept = pyro.sample("intercept", dist.Normal(torch.zeros(2, dtype=F64), 10.0).to_event(1))
    slope = pyro.sample("slope", dist.Normal(torch.zeros(2, dtype=F64), 10.0).to_event(1))
    with pyro.plate("rows", len(y)):
        z = pyro.sample("group", dist.Categorical(weights))
        pyro.sample("y", dist.Normal(Vindex(intercept)[..., z] + Vindex(slope)[..., z] * x, 0.5), obs=y)


def lines(num_rows: int = 120) -> dict[str, Tensor]:
    rng = np.random.default_rng(0)
    x, first = np.linspace(-2, 2, num_rows), rng.random(num_rows) < 0.4
    y = np.where(first, 1 + 2 * x, -1 - x) + 0.5 * rng.normal(size=num_rows)
    return {"x": torch.as_tensor(x), "y": torch.as_tensor(y)}


def chain(data: Tensor) -> None:
    """Two hidden states with normal emissions, one step after the other; a step that is NaN is missing."""
    start = pyro.sample("start", dist.Dirichlet(torch.ones(2, dtype=F64)))
    move = pyro.sample("move", dist.Dirichlet(torch.ones(2, 2, dtype=F64)).to_event(1))
    mean = pyro.sample("mean", dist.Normal(torch.zeros(2, dtype=F64), 10.0).to_event(1))
    with pyro.plate("sequences", len(data)):
        z = None
        for t in pyro.markov(range(data.shape[1])):
            z = pyro.sample(f"z_{t}", dist.Categorical(start if z is None else Vindex(move)[..., z, :]))
            seen = ~data[:, t].isnan()
            emission = dist.Normal(Vindex(mean)[..., z], 0.5).mask(seen)
            pyro.sample(f"x_{t}", emission, obs=data[:, t].nan_to_num())


def walks(num_rows: int = 40, length: int = 5) -> Tensor:
    rng = np.random.default_rng(1)
    state = np.zeros((num_rows, length), int)
    state[:, 0] = rng.random(num_rows) < 0.5
    for t in range(1, length):
        state[:, t] = np.where(rng.random(num_rows) < 0.85, state[:, t - 1], 1 - state[:, t - 1])
    values = 2.0 * state + 0.5 * rng.normal(size=state.shape)
    values[0, -1] = np.nan
    return torch.as_tensor(values)


def inflated(data: Tensor) -> None:
    """Zero-inflated Poisson counts."""
    zero = pyro.sample("zero", dist.Beta(torch.tensor(1.0, dtype=F64), 1.0))
    rate = pyro.sample("rate", dist.Gamma(torch.tensor(1.0, dtype=F64), 0.1))
    with pyro.plate("rows", len(data)):
        never = pyro.sample("never", dist.Bernoulli(zero))
        pyro.sample("count", dist.Poisson(torch.where(never > 0.5, torch.full_like(rate, 1e-8), rate)), obs=data)


def zeros_and_counts(num_rows: int = 200) -> Tensor:
    rng = np.random.default_rng(2)
    return torch.as_tensor(np.where(rng.random(num_rows) < 0.3, 0, rng.poisson(4, num_rows))).double()
