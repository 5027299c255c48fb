"""Programs as a user would write them, that describe nothing of themselves, with data of a known
truth.
"""

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
        pyro.sample(
            "y", dist.Normal(Vindex(intercept)[..., z] + Vindex(slope)[..., z] * x, 0.5), obs=y
        )


def lines(num_rows: int = 120) -> dict[str, Tensor]:
    rng = np.random.default_rng(0)
    x, first = np.linspace(-2, 2, num_rows), rng.random(num_rows) < 0.4
    y = np.where(first, 1 + 2 * x, -1 - x) + 0.5 * rng.normal(size=num_rows)
    return {"x": torch.as_tensor(x), "y": torch.as_tensor(y)}


def chain(data: Tensor) -> None:
    """Two hidden states with normal emissions, one step after the other; a step that is NaN is
    missing.
    """
    start = pyro.sample("start", dist.Dirichlet(torch.ones(2, dtype=F64)))
    move = pyro.sample("move", dist.Dirichlet(torch.ones(2, 2, dtype=F64)).to_event(1))
    mean = pyro.sample("mean", dist.Normal(torch.zeros(2, dtype=F64), 10.0).to_event(1))
    with pyro.plate("sequences", len(data)):
        z = None
        for t in pyro.markov(range(data.shape[1])):
            z = pyro.sample(
                f"z_{t}", dist.Categorical(start if z is None else Vindex(move)[..., z, :])
            )
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
        pyro.sample(
            "count",
            dist.Poisson(torch.where(never > 0.5, torch.full_like(rate, 1e-8), rate)),
            obs=data,
        )


def zeros_and_counts(num_rows: int = 200) -> Tensor:
    rng = np.random.default_rng(2)
    return torch.as_tensor(
        np.where(rng.random(num_rows) < 0.3, 0, rng.poisson(4, num_rows))
    ).double()


def three_coins(data: Tensor) -> None:
    """Three latents whose names end in numbers, and are not steps of anything."""
    chance = pyro.sample("chance", dist.Beta(torch.ones(3, dtype=F64), 1.0).to_event(1))
    rate = pyro.sample("rate", dist.Gamma(torch.ones(3, dtype=F64), 0.1).to_event(1))
    with pyro.plate("rows", len(data)):
        b = [pyro.sample(f"b{i}", dist.Bernoulli(chance[..., i])) for i in range(3)]
        pyro.factor("nothing", torch.zeros(len(data), dtype=F64))
        for i in range(3):
            pyro.sample(f"x{i}", dist.Poisson(0.5 + b[i] * rate[..., i]), obs=data[:, i])


def coins(num_rows: int = 150) -> Tensor:
    rng = np.random.default_rng(3)
    on = rng.random((num_rows, 3)) < [0.1, 0.5, 0.9]
    return torch.as_tensor(rng.poisson(0.5 + 9.0 * on)).double()


def short_walks(data: dict[str, Tensor]) -> None:
    """Two hidden states along sequences of different lengths: steps after the end are masked,
    latents and data.
    """
    x, length = data["x"], data["length"]
    mean = pyro.sample("mean", dist.Normal(torch.zeros(2, dtype=F64), 10.0).to_event(1))
    move = torch.tensor([[0.9, 0.1], [0.1, 0.9]], dtype=F64)
    with pyro.plate("sequences", len(x)):
        z = None
        for t in pyro.markov(range(x.shape[1])):
            with pyro.poutine.mask(mask=t < length):
                z = pyro.sample(
                    f"z_{t}", dist.Categorical(move[0] if z is None else Vindex(move)[..., z, :])
                )
                pyro.sample(f"x_{t}", dist.Normal(Vindex(mean)[..., z], 0.5), obs=x[:, t])


def line(data: Tensor, degree: int = 1) -> None:
    """The last column on the first, with an option of its own and nothing hidden."""
    slope = pyro.sample("slope", dist.Normal(torch.tensor(0.0, dtype=F64), 10.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("y", dist.Normal(slope * data[:, 0] ** degree, 0.5), obs=data[:, 1])


def tight(data: Tensor) -> None:
    """A mean that its prior holds near zero."""
    mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=F64), 0.01))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(mean, 1.0), obs=data)


def gate(data: Tensor) -> None:
    """A chance that the data drive to its bound."""
    chance = pyro.sample("gate", dist.Beta(torch.tensor(1.0, dtype=F64), 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Bernoulli(chance), obs=data)


def blanked(data: Tensor) -> None:
    """Rows and steps as two plates; the last step is masked for all rows, by a mask with one
    dim.
    """
    mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=F64), 10.0))
    kept = torch.arange(data.shape[1]) < data.shape[1] - 1
    with (
        pyro.plate("rows", len(data), dim=-2),
        pyro.plate("steps", data.shape[1], dim=-1),
        pyro.poutine.mask(mask=kept),
    ):
        pyro.sample("x", dist.Normal(mean, 1.0), obs=data)
