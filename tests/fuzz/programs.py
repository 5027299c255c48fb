"""Programs as users write them, some with a mistake in them."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import torch
from fuzz.draw import Draw
from torch import Tensor

F64 = torch.float64


def counts(data: Tensor) -> None:
    """Two kinds of rows."""
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2, dtype=F64)))
    rate = pyro.sample("rate", dist.Gamma(torch.ones(2, dtype=F64), 0.1).to_event(1))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(weights))
        mean = (
            torch.where(z == 0, rate[..., 0].unsqueeze(-1), rate[..., 1].unsqueeze(-1))
            if rate.dim() > 1
            else rate[z]
        )
        pyro.sample("x", dist.Poisson(mean), obs=data)


def indexed(data: Tensor) -> None:
    """As Pyro's tutorials write it."""
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2, dtype=F64)))
    mean = pyro.sample("mean", dist.Normal(torch.zeros(2, dtype=F64), 5.0).to_event(1))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("x", dist.Normal(mean[z], 1.0), obs=data)


def continuous(data: Tensor) -> None:
    """Nothing hidden."""
    mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=F64), 5.0))
    scale = pyro.sample("scale", dist.Gamma(torch.tensor(2.0, dtype=F64), 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(mean, scale), obs=data)


def effects(data: Tensor) -> None:
    """A continuous latent a row."""
    scale = pyro.sample("scale", dist.Gamma(torch.tensor(2.0, dtype=F64), 1.0))
    with pyro.plate("rows", len(data)):
        own = pyro.sample("own", dist.Normal(torch.tensor(0.0, dtype=F64), scale))
        pyro.sample("x", dist.Normal(own, 1.0), obs=data)


def nothing_observed(data: Tensor) -> None:
    pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=F64), 1.0))


def nothing(data: Tensor) -> None:
    return None


def wrong_plate(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=F64), 1.0))
    with pyro.plate("rows", len(data) + 1):
        pyro.sample("x", dist.Normal(mean, 1.0), obs=data)


def twice(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=F64), 1.0))
    pyro.sample("mean", dist.Normal(mean, 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(mean, 1.0), obs=data)


def impossible(data: Tensor) -> None:
    """Data outside the support, whatever the parameters."""
    rate = pyro.sample("rate", dist.Beta(torch.tensor(1.0, dtype=F64), 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Bernoulli(rate), obs=data + 5)


def broken_scale(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=F64), 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(mean, -1.0 - mean.abs()), obs=data)


def undefined(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=F64), 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(mean + data.log(), 1.0), obs=data)


def learnt(data: Tensor) -> None:
    """A ``pyro.param`` in the program."""
    scale = pyro.param("scale", torch.tensor(1.0, dtype=F64))
    mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=F64), 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(mean, scale.abs() + 0.1), obs=data)


def raising(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=F64), 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(mean, 1.0).mask(data > 0), obs=data)


PROGRAMS = (
    counts,
    counts,
    indexed,
    indexed,
    continuous,
    effects,
    nothing_observed,
    nothing,
    wrong_plate,
    twice,
    impossible,
    broken_scale,
    undefined,
    learnt,
    raising,
)


def any_program(draw: Draw) -> tuple[Any, Tensor]:
    rows = draw.choice((1, 2, 8, 12))
    return draw.choice(PROGRAMS), torch.from_numpy(draw.rng.poisson(3.0, rows).astype(float))
