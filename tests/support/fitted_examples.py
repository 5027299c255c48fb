"""Small fits that the tests of export, plots and report share; each is made once a process."""

from __future__ import annotations

import dataclasses
import functools
import warnings

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from pyro.ops.indexing import Vindex

from inference import EM, Fit, fit
from ppl_models import Bernoulli, Blocks, DeepDiscreteEncoder, Normal, TruncatedLasso

NAMES = ("reads", "writes", "cost in $ and $", "<script>alert(1)</script>", "e & f", "g", "h", "i")
HOSTILE = NAMES[3]


def quick(model: object, data: object, num_restarts: int = 1, max_iterations: int = 8) -> Fit:
    """A fit that need not converge; what it warns of is kept in the fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(
            model,
            data,
            method=EM(max_iterations=max_iterations),
            init="random",
            num_restarts=num_restarts,
        )


@functools.cache
def bernoulli_table() -> pd.DataFrame:
    """60 rows of 8 named binary items; a few entries missing, one column constant."""
    rng = np.random.default_rng(0)
    latent = rng.random((60, 2)) < 0.5
    chance = 0.15 + 0.6 * latent[:, [0, 0, 0, 0, 1, 1, 1, 1]]
    values = (rng.random((60, 8)) < chance).astype(float)
    values[:, 3] = 0.0
    values[[1, 5, 9], [0, 4, 7]] = np.nan
    return pd.DataFrame(values, columns=list(NAMES), index=np.arange(100, 160))


@functools.cache
def encoder_fit() -> Fit:
    """Two layers, penalised, four starts."""
    return quick(
        DeepDiscreteEncoder(8, (3, 2), penalty=TruncatedLasso(2.0, 0.3)),
        bernoulli_table(),
        num_restarts=4,
    )


@functools.cache
def blocks_fit() -> tuple[Fit, pd.DataFrame]:
    """One layer, four binary and three real items with a given graph."""
    rng = np.random.default_rng(1)
    values = np.concatenate(
        [(rng.random((50, 4)) < 0.5).astype(float), rng.normal(size=(50, 3))], 1
    )
    table = pd.DataFrame(values, columns=["a", "b", "c", "d", "x", "y", "z"])
    graph = ((1, 0), (1, 0), (0, 1), (0, 1), (1, 1), (1, 0), (0, 1))
    model = DeepDiscreteEncoder(
        7, (2,), response=Blocks((Bernoulli(), 4), (Normal(), 3)), graphs=(graph,)
    )
    return quick(model, table), table


def bernoulli_mixture(data: torch.Tensor) -> None:
    """A user's program: no described layers, no named dims, no way to draw rows."""
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(3, dtype=torch.float64)))
    chance = pyro.sample(
        "chance", dist.Beta(torch.ones(3, 4, dtype=torch.float64), 1.0).to_event(2)
    )
    with pyro.plate("rows", len(data)):
        group = pyro.sample("group", dist.Categorical(weights))
        pyro.sample("answers", dist.Bernoulli(Vindex(chance)[..., group, :]).to_event(1), obs=data)


@functools.cache
def mixture_fit() -> tuple[Fit, torch.Tensor]:
    """The user's program, fitted by the generic route."""
    data = torch.bernoulli(
        torch.full((30, 4), 0.5, dtype=torch.float64), generator=torch.Generator().manual_seed(2)
    )
    return quick(bernoulli_mixture, data, max_iterations=3), data


def with_draws(point: Fit, num_chains: int = 2, num_draws: int = 6) -> Fit:
    """The fit with draws scattered about its estimate, as an engine that samples would return."""
    generator = torch.Generator().manual_seed(3)
    draws = {}
    for name, value in point.params.items():
        noise = torch.randn(
            (num_chains, num_draws, *value.shape), generator=generator, dtype=torch.float64
        )
        draws[name] = value + 0.05 * noise
        if name == "proportions":
            draws[name] = draws[name].clamp(0.05, 0.95)
    return dataclasses.replace(point, draws=draws)
