"""Rows of the zoo's table for programs of users: a mixture and a chain that describe nothing of
themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.ops.indexing import Vindex
from scipy import stats
from scipy.special import expit, logsumexp
from torch import Tensor
from zoo.row import F64, Params, Row

from inference import Fit
from inference.base.align import match_columns
from inference.programs.global_state import in_dtype
from inference.programs.quadrature import NodeSites, Quadrature


def bernoulli_mixture(data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
    """Two classes of six binary items."""
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2, dtype=F64)))
    chance = pyro.sample("chance", dist.Beta(torch.ones(2, 6, dtype=F64), 1.0).to_event(2))
    with pyro.plate("rows", num_rows if data is None else len(data)):
        group = pyro.sample("group", dist.Categorical(weights))
        return pyro.sample(
            "answers", dist.Bernoulli(Vindex(chance)[..., group, :]).to_event(1), obs=data
        )


def mixture_log_likelihood(params: Mapping[str, np.ndarray], data: np.ndarray) -> np.ndarray:
    each = stats.bernoulli.logpmf(data[:, None], params["chance"]).sum(-1)
    return logsumexp(each + np.log(params["weights"]), axis=1)


def relabelled_mixture(result: Fit, truth: Params) -> Params:
    order = match_columns(result.params["chance"].mT, truth["chance"].mT).permutation
    return {"weights": result.params["weights"][order], "chance": result.params["chance"][order]}


NODES = Quadrature({"own": 1}, 5)


def random_intercept(data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
    """Two classes of five binary items, and an intercept of the row on the nodes of a normal
    distribution.
    """
    with in_dtype(F64), NodeSites(NODES):
        return intercept_of_rows(data, num_rows)


def intercept_of_rows(data: Tensor | None, num_rows: int | None) -> Tensor:
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2, dtype=F64)))
    odds = pyro.sample("odds", dist.Normal(torch.zeros(2, 5, dtype=F64), 2.0).to_event(2))
    spread = pyro.sample("spread", dist.HalfNormal(torch.tensor(1.0, dtype=F64)))
    with pyro.plate("rows", num_rows if data is None else len(data)):
        group = pyro.sample("group", dist.Categorical(weights))
        own = pyro.sample("own", dist.Normal(0.0, spread)).unsqueeze(-1)
        return pyro.sample(
            "answers",
            dist.Bernoulli(logits=Vindex(odds)[..., group, :] + own).to_event(1),
            obs=data,
        )


def intercept_log_likelihood(params: Mapping[str, np.ndarray], data: np.ndarray) -> np.ndarray:
    nodes, weights = np.polynomial.hermite.hermgauss(NODES.num_nodes)
    logits = params["odds"][:, None] + params["spread"] * np.sqrt(2) * nodes[:, None]  # (2, Q, J)
    each = stats.bernoulli.logpmf(data[:, None, None], expit(logits)).sum(-1)
    prior = np.log(params["weights"])[:, None] + np.log(weights / np.sqrt(np.pi))
    return logsumexp(each + prior, axis=(1, 2))


def relabelled_intercept(result: Fit, truth: Params) -> Params:
    order = match_columns(result.params["odds"].mT, truth["odds"].mT).permutation
    same = {name: result.params[name][order] for name in ("weights", "odds")}
    return same | {"spread": result.params["spread"]}


LENGTH = 4


def hidden_markov(data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
    """A chain of three states with counts; Pyro reuses the enumerated dims of a pyro.markov
    loop.
    """
    initial = pyro.sample("initial", dist.Dirichlet(torch.ones(3, dtype=F64)))
    transition = pyro.sample("transition", dist.Dirichlet(torch.ones(3, 3, dtype=F64)).to_event(1))
    rates = pyro.sample(
        "rates", dist.Gamma(torch.tensor(2.0, dtype=F64), 1.0).expand([3]).to_event(1)
    )
    drawn = []
    with pyro.plate("rows", num_rows if data is None else len(data)):
        state = None
        for t in pyro.markov(range(LENGTH)):
            chance = initial if state is None else Vindex(transition)[..., state, :]
            state = pyro.sample(f"state_{t}", dist.Categorical(chance))
            rate = Vindex(rates)[..., state]
            drawn.append(
                pyro.sample(
                    f"count_{t}", dist.Poisson(rate), obs=None if data is None else data[:, t]
                )
            )
    return torch.stack(drawn, -1)


def chain_log_likelihood(params: Mapping[str, np.ndarray], data: np.ndarray) -> np.ndarray:
    """The forward algorithm."""
    emission = stats.poisson.logpmf(data[:, :, None], params["rates"])  # (N, T, S)
    forward = np.log(params["initial"]) + emission[:, 0]
    for t in range(1, LENGTH):
        forward = (
            logsumexp(forward[:, :, None] + np.log(params["transition"]), axis=1) + emission[:, t]
        )
    return logsumexp(forward, axis=1)


PAIRS = tuple(itertools.combinations(range(5), 2))


def seen_in_pairs(data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
    """Five binary latents of which every two share an item: a clique, of tree width four."""
    share = pyro.sample("share", dist.Beta(torch.tensor(2.0, dtype=F64), 2.0))
    chance = pyro.sample("chance", dist.Beta(torch.ones(3, dtype=F64), 1.0).to_event(1))
    with pyro.plate("rows", num_rows if data is None else len(data)):
        z = [pyro.sample(f"z_{i}", dist.Bernoulli(share)).long() for i in range(5)]
        drawn = [
            pyro.sample(
                f"item_{k}",
                dist.Bernoulli(Vindex(chance)[..., z[i] + z[j]]),
                obs=None if data is None else data[:, k],
            )
            for k, (i, j) in enumerate(PAIRS)
        ]
    return torch.stack(drawn, -1)


def pairs_log_likelihood(params: Mapping[str, np.ndarray], data: np.ndarray) -> np.ndarray:
    totals = []
    for z in itertools.product(range(2), repeat=5):
        chance = params["chance"][[z[i] + z[j] for i, j in PAIRS]]
        prior = stats.bernoulli.logpmf(z, params["share"]).sum()
        totals.append(prior + stats.bernoulli.logpmf(data, chance).sum(-1))
    return logsumexp(totals, axis=0)


def plain_programs() -> list[Row]:
    low, high = [0.15, 0.2, 0.25, 0.1, 0.7, 0.8], [0.8, 0.75, 0.9, 0.7, 0.3, 0.2]
    mixture = {
        "weights": torch.tensor([0.35, 0.65], dtype=F64),
        "chance": torch.tensor([low, high], dtype=F64),
    }
    sides = torch.tensor([1.5, 1.0, -1.0, 1.5, -0.5], dtype=F64)
    intercept = {
        "weights": torch.tensor([0.4, 0.6], dtype=F64),
        "odds": torch.stack([sides, -sides]),
        "spread": torch.tensor(0.8, dtype=F64),
    }
    chain = {
        "initial": torch.tensor([0.5, 0.3, 0.2], dtype=F64),
        "transition": torch.tensor([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.3, 0.3, 0.4]], dtype=F64),
        "rates": torch.tensor([0.5, 2.0, 6.0], dtype=F64),
    }
    counts = {f"state_{t}": () for t in range(LENGTH)} | {f"count_{t}": () for t in range(LENGTH)}
    return [
        Row(
            "bernoulli-mixture",
            bernoulli_mixture,
            mixture,
            {"weights": (2,), "chance": (2, 6), "group": (), "answers": (6,)},
            mixture_log_likelihood,
            recovery_rows=1000,
            relabel=relabelled_mixture,
        ),
        Row(
            "random-intercept",
            random_intercept,
            intercept,
            {
                "weights": (2,),
                "odds": (2, 5),
                "spread": (),
                "group": (),
                "own": (),
                "answers": (5,),
            },
            intercept_log_likelihood,
            recovery_rows=2000,
            relabel=relabelled_intercept,
        ),
        Row(
            "hidden-markov",
            hidden_markov,
            chain,
            {"initial": (3,), "transition": (3, 3), "rates": (3,), **counts},
            chain_log_likelihood,
        ),
        Row(
            "latents-seen-in-pairs",
            seen_in_pairs,
            {
                "share": torch.tensor(0.3, dtype=F64),
                "chance": torch.tensor([0.9, 0.2, 0.6], dtype=F64),
            },
            {"share": (), "chance": (3,)}
            | {f"z_{i}": () for i in range(5)}
            | {f"item_{k}": () for k in range(len(PAIRS))},
            pairs_log_likelihood,
        ),
    ]
