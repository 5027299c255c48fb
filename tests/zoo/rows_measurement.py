"""Rows of the zoo's table for encoders whose items depend on products of attributes; the likelihood
one configuration at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import stats
from scipy.special import expit, logsumexp

from ppl_models import Bernoulli, Blocks, DeepDiscreteEncoder, ExpDINA, ExpGDM, Normal, Poisson

DISTRIBUTIONS = {
    "Bernoulli": lambda x, eta, gamma: stats.bernoulli.logpmf(x, expit(eta)),
    "Poisson": lambda x, eta, gamma: stats.poisson.logpmf(x, np.exp(eta)),
    "NegativeBinomial": lambda x, eta, gamma: stats.nbinom.logpmf(
        x, gamma, gamma / (gamma + np.exp(eta))
    ),
    "Normal": lambda x, eta, gamma: stats.norm.logpdf(x, eta, np.sqrt(gamma)),
}
Q = ((1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 1, 1), (1, 0, 1))
PURE = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
FOUR = ((1, 1, 1, 0), *((0, 1, 1, 1),) * 4)
LONG = (*PURE, *PURE, *PURE, (1, 1, 0), (0, 1, 1), (1, 0, 1))
PAIRS = ((1, 0), (0, 1), (1, 0), (0, 1), (1, 0), (0, 1), (1, 1), (1, 1))


def subsets_by_hand(
    form: str, graph: tuple[tuple[int, ...], ...], order: int
) -> list[tuple[int, ...]]:
    """The columns of the loadings: products that some item uses, by size and then by their
    members.
    """
    found = set()
    for row in graph:
        own = tuple(k for k, edge in enumerate(row) if edge)
        sizes = [len(own)] if form == "dina" else range(1, min(order, len(own)) + 1)
        found |= {s for size in sizes for s in itertools.combinations(own, size)}
    return sorted(found, key=lambda s: (len(s), s))


def uses_by_hand(form: str, graph: tuple[tuple[int, ...], ...], order: int) -> np.ndarray:
    """0/1, (J, T)."""
    subsets = subsets_by_hand(form, graph, order)
    own = [{k for k, edge in enumerate(row) if edge} for row in graph]
    if form == "dina":
        return np.array([[set(s) == o for s in subsets] for o in own], dtype=float)
    return np.array([[set(s) <= o for s in subsets] for o in own], dtype=float)


def log_likelihood(
    columns: tuple[str, ...],
    sizes: tuple[int, ...],
    subsets: list[tuple[int, ...]],
    params: Mapping[str, np.ndarray],
    data: np.ndarray,
) -> np.ndarray:
    terms = []
    for bits in itertools.product(*(itertools.product((0, 1), repeat=size) for size in sizes)):
        value = stats.bernoulli.logpmf(bits[-1], params["proportions"]).sum()
        for d in range(len(sizes) - 1, 0, -1):
            eta = params[f"intercepts_{d + 1}"] + params[f"loadings_{d + 1}"] @ np.array(bits[d])
            value += stats.bernoulli.logpmf(bits[d - 1], expit(eta)).sum()
        rows, dispersed = np.full(len(data), value), 0
        for j, family in enumerate(columns):
            eta = params["intercepts_1"][j]
            for s, subset in enumerate(subsets):
                eta += params["loadings_1"][j, s] * all(bits[0][k] for k in subset)
            gamma = params["dispersion"][dispersed] if family == "Normal" else None
            dispersed += family == "Normal"
            seen = ~np.isnan(data[:, j])
            rows[seen] += DISTRIBUTIONS[family](data[seen, j], eta, gamma)
        terms.append(rows)
    return logsumexp(terms, axis=0)


def bottom_rows(make: Callable[..., Any]) -> list[Any]:
    """Rows, made by the table's own record type."""
    mixed = ("Bernoulli", "Bernoulli", "Normal", "Poisson", "Normal")
    blocks = Blocks((Bernoulli(), 2), (Normal(), 1), (Poisson(), 1), (Normal(), 1))
    designs = [
        # name, columns, sizes, family, bottom, graph, missing, recovery rows, size of an effect
        ("dina-Bernoulli", ("Bernoulli",) * 5, (3,), Bernoulli(), ExpDINA(), Q, 0.0, None, 1.0),
        (
            "dina-Poisson-2-missing",
            ("Poisson",) * 5,
            (3, 1),
            Poisson(),
            ExpDINA(),
            Q,
            0.25,
            None,
            1.0,
        ),
        ("gdm-Bernoulli-2", ("Bernoulli",) * 5, (3, 2), Bernoulli(), ExpGDM(), Q, 0.0, None, 1.0),
        ("gdm-Normal-missing", ("Normal",) * 5, (3,), Normal(), ExpGDM(), Q, 0.25, None, 1.0),
        ("gdm-Blocks-missing", mixed, (3,), blocks, ExpGDM(), Q, 0.2, None, 1.0),
        ("gdm-pairs", ("Bernoulli",) * 5, (4,), Bernoulli(), ExpGDM(order=2), FOUR, 0.0, None, 1.0),
        (
            "dina-recovers-Bernoulli",
            ("Bernoulli",) * 12,
            (3,),
            Bernoulli(),
            ExpDINA(),
            LONG,
            0.0,
            2000,
            3.5,
        ),
        (
            "dina-recovers-Normal-missing",
            ("Normal",) * 12,
            (3,),
            Normal(),
            ExpDINA(),
            LONG,
            0.1,
            800,
            3.0,
        ),
        (
            "gdm-recovers-Bernoulli",
            ("Bernoulli",) * 8,
            (2,),
            Bernoulli(),
            ExpGDM(),
            PAIRS,
            0.0,
            3000,
            4.0,
        ),
        ("gdm-recovers-Normal", ("Normal",) * 8, (2,), Normal(), ExpGDM(), PAIRS, 0.0, 800, 3.0),
    ]
    rows = []
    for seed, (name, columns, sizes, family, bottom, graph, missing, recovery, effect) in enumerate(
        designs
    ):
        generator = torch.Generator().manual_seed(seed)
        form, order = ("dina", 0) if isinstance(bottom, ExpDINA) else ("gdm", bottom.order or 99)
        subsets, uses = subsets_by_hand(form, graph, order), uses_by_hand(form, graph, order)
        share = 1 if form == "dina" else 1 / np.array([len(row) for row in subsets])
        uniform = 0.8 + 0.4 * torch.rand(*uses.shape, generator=generator, dtype=torch.float64)
        weights = torch.tensor(uses * share)
        loadings = (
            effect * uniform * weights / weights.sum(-1, keepdim=True)
        )  # no attribute to all of them: one effect
        own = loadings.sum(-1) / 2
        truth = {
            "loadings_1": loadings,
            "intercepts_1": (
                0.2 * torch.randn(len(columns), generator=generator, dtype=torch.float64) - own
            ),
            "proportions": (
                0.35 + 0.3 * torch.rand(sizes[-1], generator=generator, dtype=torch.float64)
            ),
        }
        shapes: dict[str, tuple[int, ...]] = {
            "loadings_1": tuple(loadings.shape),
            "intercepts_1": (len(columns),),
        }
        shapes |= {"proportions": (sizes[-1],), "items": (len(columns),), "latents_1": (sizes[0],)}
        if len(sizes) == 2:
            upper = 0.5 + torch.rand(sizes[0], sizes[1], generator=generator, dtype=torch.float64)
            truth |= {"loadings_2": upper, "intercepts_2": -upper.sum(-1) / 2}
            shapes |= {"loadings_2": sizes, "intercepts_2": sizes[:1], "latents_2": sizes[1:]}
        if columns.count("Normal"):
            truth["dispersion"] = 0.5 + torch.rand(
                columns.count("Normal"), generator=generator, dtype=torch.float64
            )
            shapes["dispersion"] = (columns.count("Normal"),)
        graphs = (graph, *(None,) * (len(sizes) - 1))
        model = DeepDiscreteEncoder(
            len(columns), sizes, response=family, graphs=graphs, bottom=bottom
        )
        by_hand = partial(log_likelihood, columns, sizes, subsets)
        rows.append(
            make(name, model, truth, shapes, by_hand, missing=missing, recovery_rows=recovery)
        )
    return rows
