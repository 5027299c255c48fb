"""Rows of the zoo's table for deep discrete encoders."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy import stats
from scipy.special import expit, logsumexp
from zoo.row import F64, Params, Row

from ppl_models import (
    SCAD,
    Bernoulli,
    Blocks,
    DeepDiscreteEncoder,
    LogNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    Ridge,
    TruncatedLasso,
)

FAMILIES = {
    "Bernoulli": lambda x, eta, gamma: stats.bernoulli.logpmf(x, expit(eta)),
    "Poisson": lambda x, eta, gamma: stats.poisson.logpmf(x, np.exp(eta)),
    "NegativeBinomial": lambda x, eta, gamma: stats.nbinom.logpmf(
        x, gamma, gamma / (gamma + np.exp(eta))
    ),
    "Normal": lambda x, eta, gamma: stats.norm.logpdf(x, eta, np.sqrt(gamma)),
    "LogNormal": lambda x, eta, gamma: stats.lognorm.logpdf(x, np.sqrt(gamma), scale=np.exp(eta)),
}
DISPERSED = ("Normal", "LogNormal", "NegativeBinomial")


def encoder_log_likelihood(
    columns: tuple[str, ...],
    sizes: tuple[int, ...],
    params: Mapping[str, np.ndarray],
    data: np.ndarray,
) -> np.ndarray:
    """The sum over all configurations of all layers, one bit and one item at a time."""
    depth = len(sizes)
    terms = []
    for bits in itertools.product(*(itertools.product((0, 1), repeat=size) for size in sizes)):
        value = stats.bernoulli.logpmf(bits[-1], params["proportions"]).sum()
        for d in range(depth - 1, 0, -1):  # layer d given layer d + 1
            eta = params[f"intercepts_{d + 1}"] + params[f"loadings_{d + 1}"] @ np.array(bits[d])
            value += stats.bernoulli.logpmf(bits[d - 1], expit(eta)).sum()
        eta = params["intercepts_1"] + params["loadings_1"] @ np.array(bits[0])
        rows, dispersed = np.full(len(data), value), 0
        for j, family in enumerate(columns):
            gamma = params["dispersion"][dispersed] if family in DISPERSED else None
            dispersed += family in DISPERSED
            seen = ~np.isnan(data[:, j])
            rows[seen] += FAMILIES[family](data[seen, j], eta[j], gamma)
        terms.append(rows)
    return logsumexp(terms, axis=0)


def encoder(
    name: str,
    columns: tuple[str, ...],
    sizes: tuple[int, ...],
    response: Any,
    loading: float | None = None,
    seed: int = 0,
    missing: float = 0.0,
    recovery_rows: int | None = None,
    **settings: Any,
) -> Row:
    """A row for a deep discrete encoder; loadings of random sign, or ``loading`` on a graph of pure
    and crossed items.
    """
    generator = torch.Generator().manual_seed(seed)
    model = DeepDiscreteEncoder(len(columns), sizes, response=response, **settings)
    num_dispersed = sum(family in DISPERSED for family in columns)
    all_sizes = (len(columns), *sizes)
    truth: Params = {
        "proportions": 0.3 + 0.4 * torch.rand(sizes[-1], generator=generator, dtype=F64)
    }
    shapes: dict[str, tuple[int, ...]] = {"proportions": (sizes[-1],), "items": (len(columns),)}
    for d, (children, parents) in enumerate(zip(all_sizes, sizes, strict=False)):
        if loading is None:
            uniform = torch.rand(children, parents, generator=generator, dtype=F64)
            sign = torch.rand(children, parents, generator=generator, dtype=F64).sub(0.3).sign()
            loadings = sign * (0.4 + 0.8 * uniform)
        else:
            loadings = (
                loading
                * torch.eye(parents, dtype=F64).repeat(-(-children // parents), 1)[:children]
            )
        graph = None if settings.get("graphs") is None else settings["graphs"][d]
        truth[f"loadings_{d + 1}"] = loadings if graph is None else loadings * torch.tensor(graph)
        noise = 0.2 * torch.randn(children, generator=generator, dtype=F64)
        truth[f"intercepts_{d + 1}"] = noise - truth[f"loadings_{d + 1}"].sum(-1) / 2
        shapes |= {f"loadings_{d + 1}": (children, parents), f"intercepts_{d + 1}": (children,)}
        shapes[f"latents_{d + 1}"] = (parents,)
    if num_dispersed:
        truth["dispersion"] = 0.5 + torch.rand(num_dispersed, generator=generator, dtype=F64)
        shapes["dispersion"] = (num_dispersed,)
    by_hand = functools.partial(encoder_log_likelihood, columns, sizes)
    return Row(name, model, truth, shapes, by_hand, missing, recovery_rows)


def encoders() -> list[Row]:
    mixed = ("Bernoulli", "Bernoulli", "LogNormal", "Poisson", "Normal")
    blocks = Blocks((Bernoulli(), 2), (LogNormal(), 1), (Poisson(), 1), (Normal(), 1))
    responses = {
        "Bernoulli": (("Bernoulli",) * 5, Bernoulli()),
        "Poisson": (("Poisson",) * 5, Poisson()),
        "Normal": (("Normal",) * 5, Normal()),
        "LogNormal": (("LogNormal",) * 5, LogNormal()),
        "Blocks": (mixed, blocks),
    }
    rows = []
    for i, (family, (columns, response)) in enumerate(responses.items()):
        for depth, sizes in enumerate(((3,), (3, 2), (3, 2, 1)), start=1):
            missing = (
                0.25 if (i + depth) % 3 == 0 else 0.0
            )  # every depth has missing entries in some family
            name = f"encoder-{family}-{depth}" + ("-missing" if missing else "")
            rows.append(
                encoder(name, columns, sizes, response, seed=10 * i + depth, missing=missing)
            )
    counts = ("Bernoulli", "NegativeBinomial", "NegativeBinomial", "Normal", "NegativeBinomial")
    with_counts = Blocks(
        (Bernoulli(), 1), (NegativeBinomial(), 2), (Normal(), 1), (NegativeBinomial(), 1)
    )
    graphs = (((1, 0), (1, 0), (0, 1), (1, 1), (0, 1)), ((1,), (1,)))
    tlp = TruncatedLasso(1.5, 0.4)
    columns, response = responses["Blocks"]
    return [
        *rows,
        encoder(
            "encoder-confirmatory", ("Bernoulli",) * 5, (2, 1), Bernoulli(), seed=62, graphs=graphs
        ),
        encoder(
            "encoder-confirmatory-Blocks",
            columns,
            (2, 1),
            response,
            seed=63,
            missing=0.2,
            graphs=graphs,
        ),
        encoder(
            "encoder-truncated-lasso", ("Bernoulli",) * 5, (3, 2), Bernoulli(), seed=64, penalty=tlp
        ),
        encoder(
            "encoder-scad",
            columns,
            (3, 2),
            response,
            seed=65,
            missing=0.2,
            penalty=SCAD.matching(tlp),
        ),
        encoder(
            "encoder-ridge", columns, (3, 2), response, seed=69, missing=0.2, penalty=Ridge(2.0)
        ),
        encoder("encoder-flat", columns, (3, 2), response, seed=70, bound=15.0),
        encoder(
            "encoder-flat-truncated-lasso",
            ("Bernoulli",) * 5,
            (3,),
            Bernoulli(),
            seed=71,
            penalty=tlp,
            bound=15.0,
        ),
        encoder(
            "encoder-NegativeBinomial-missing", counts, (3, 2), with_counts, seed=72, missing=0.2
        ),
        encoder("encoder-NegativeBinomial-lasso", counts, (3,), with_counts, seed=73, penalty=tlp),
        encoder(
            "encoder-recovers-NegativeBinomial",
            ("NegativeBinomial",) * 6,
            (2,),
            NegativeBinomial(),
            2.0,
            74,
            0.1,
            recovery_rows=1500,
        ),
        encoder(
            "encoder-recovers-Bernoulli",
            ("Bernoulli",) * 9,
            (3,),
            Bernoulli(),
            4.0,
            66,
            recovery_rows=3000,
        ),
        encoder(
            "encoder-recovers-Normal",
            ("Normal",) * 7,
            (3, 1),
            Normal(),
            3.0,
            67,
            recovery_rows=2000,
        ),
        encoder(
            "encoder-recovers-missing",
            ("Poisson",) * 6,
            (2,),
            Poisson(),
            2.0,
            68,
            0.2,
            recovery_rows=1500,
        ),
    ]
