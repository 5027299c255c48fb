"""Rows of the zoo's table for deep discrete encoders of categories, in order or not."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats
from scipy.special import expit, logsumexp
from zoo.row import F64, Params, Row
from zoo.rows_encoder_covariates import KNOWN

from ppl_models import (
    Bernoulli,
    Blocks,
    Categorical,
    DeepDiscreteEncoder,
    Normal,
    Ordinal,
    Poisson,
    TruncatedLasso,
)


class Item(NamedTuple):
    """One column: "cumulative", "adjacent", "nominal", "Bernoulli", "Poisson" or "Normal", and its
    number of categories.
    """

    kind: str
    size: int = 1

    @property
    def num_linear(self) -> int:
        return self.size - 1 if self.kind == "nominal" else 1

    @property
    def num_gaps(self) -> int:
        return self.size - 2 if self.kind in ("cumulative", "adjacent") else 0


def log_mass(
    item: Item, x: np.ndarray, eta: np.ndarray, gaps: np.ndarray, gamma: float | None
) -> np.ndarray:
    """log p(x) of one item, category by category."""
    if item.kind == "Bernoulli":
        return stats.bernoulli.logpmf(x, expit(eta[0]))
    if item.kind == "Poisson":
        return stats.poisson.logpmf(x, np.exp(eta[0]))
    if item.kind == "Normal":
        return stats.norm.logpdf(x, eta[0], np.sqrt(gamma))
    if item.kind == "nominal":
        chances = np.exp([0.0, *eta]) / np.exp([0.0, *eta]).sum()
    elif item.kind == "adjacent":
        odds = [0.0, *(eta[0] - np.array([0.0, *gaps]))]  # of each category against the one below
        chances = np.exp(np.cumsum(odds)) / np.exp(np.cumsum(odds)).sum()
    else:
        above = [1.0, *expit(eta[0] - np.cumsum([0.0, *gaps])), 0.0]  # P(x >= h)
        chances = np.array(above[:-1]) - np.array(above[1:])
    return np.log(chances)[x.astype(int)]


def log_likelihood(
    items: Sequence[Item],
    sizes: tuple[int, ...],
    params: Mapping[str, np.ndarray],
    data: np.ndarray,
) -> np.ndarray:
    """The sum over all configurations of all layers, one bit and one item at a time."""
    terms = []
    for bits in itertools.product(*(itertools.product((0, 1), repeat=size) for size in sizes)):
        value = stats.bernoulli.logpmf(bits[-1], params["proportions"]).sum()
        for d in range(len(sizes) - 1, 0, -1):  # layer d given layer d + 1
            eta = params[f"intercepts_{d + 1}"] + params[f"loadings_{d + 1}"] @ np.array(bits[d])
            value += stats.bernoulli.logpmf(bits[d - 1], expit(eta)).sum()
        eta = params["intercepts_1"] + params["loadings_1"] @ np.array(bits[0])
        rows, row, gap, dispersed = np.full(len(data), value), 0, 0, 0
        for j, item in enumerate(items):
            gamma = params["dispersion"][dispersed] if item.kind == "Normal" else None
            dispersed += item.kind == "Normal"
            seen = ~np.isnan(data[:, j])
            gaps = params["thresholds"][gap : gap + item.num_gaps] if item.num_gaps else np.zeros(0)
            rows[seen] += log_mass(
                item, data[seen, j], eta[row : row + item.num_linear], gaps, gamma
            )
            row, gap = row + item.num_linear, gap + item.num_gaps
        terms.append(rows)
    return logsumexp(terms, axis=0)


def row_of(
    name: str,
    items: Sequence[Item],
    sizes: tuple[int, ...],
    response: Any,
    seed: int,
    missing: float = 0.0,
    loading: float | None = None,
    recovery_rows: int | None = None,
    **settings: Any,
) -> Row:
    """A row; loadings of random sign, or ``loading`` where items take turns in the latents."""
    generator = torch.Generator().manual_seed(seed)
    model = DeepDiscreteEncoder(len(items), sizes, response=response, **settings)
    rows, gaps = sum(item.num_linear for item in items), sum(item.num_gaps for item in items)
    truth: Params = {
        "proportions": 0.3 + 0.4 * torch.rand(sizes[-1], generator=generator, dtype=F64)
    }
    shapes: dict[str, tuple[int, ...]] = {"proportions": (sizes[-1],), "items": (len(items),)}
    for d, (children, parents) in enumerate(zip((rows, *sizes), sizes, strict=False)):
        uniform, sign = (
            torch.rand(children, parents, generator=generator, dtype=F64) for _ in range(2)
        )
        loadings = (sign - 0.3).sign() * (0.4 + 0.8 * uniform)
        if loading is not None:
            owner = (
                torch.arange(children)
                if d
                else torch.tensor(
                    [j for j, item in enumerate(items) for _ in range(item.num_linear)]
                )
            )
            loadings = loading * torch.nn.functional.one_hot(owner % parents, parents).to(F64)
        if settings.get("graphs") is not None:
            loadings = loadings * model.layers()[d].graph
        noise = 0.2 * torch.randn(children, generator=generator, dtype=F64)
        truth |= {
            f"loadings_{d + 1}": loadings,
            f"intercepts_{d + 1}": noise - loadings.sum(-1) / 2,
        }
        shapes |= {
            f"loadings_{d + 1}": (children, parents),
            f"intercepts_{d + 1}": (children,),
            f"latents_{d + 1}": (parents,),
        }
    if gaps:
        truth["thresholds"], shapes["thresholds"] = (
            0.5 + torch.rand(gaps, generator=generator, dtype=F64),
            (gaps,),
        )
    dispersed = sum(item.kind == "Normal" for item in items)
    if dispersed:
        truth["dispersion"], shapes["dispersion"] = (
            0.5 + torch.rand(dispersed, generator=generator, dtype=F64),
            (dispersed,),
        )
    return Row(
        name,
        model,
        truth,
        shapes,
        functools.partial(log_likelihood, tuple(items), sizes),
        missing,
        recovery_rows,
    )


def log_likelihood_given(
    items: Sequence[Item],
    sizes: tuple[int, ...],
    params: Mapping[str, np.ndarray],
    data: np.ndarray,
) -> np.ndarray:
    """One row at a time, the chances of its deepest latents by its covariates, which stand behind
    the items.
    """
    out = []
    for row in data:
        chances = expit(
            params["coefficients"] @ np.array([1.0, row[len(items)], row[len(items) + 1] == 1])
        )
        out.append(
            log_likelihood(
                items, sizes, {**params, "proportions": chances}, row[None, : len(items)]
            )[0]
        )
    return np.array(out)


def row_given(base: Row, name: str, items: Sequence[Item], missing: float) -> Row:
    """The same items below latents that depend on a number and a category."""
    assert isinstance(base.model, DeepDiscreteEncoder)
    sizes = base.model.latent_sizes
    truth = {site: value for site, value in base.truth.items() if site != "proportions"}
    truth["coefficients"] = torch.tensor([[-0.9, 0.8, 1.0], [0.7, -0.6, 0.4]], dtype=F64)[
        : sizes[-1]
    ]
    shapes = {site: shape for site, shape in base.event_shapes.items() if site != "proportions"}
    shapes |= {"coefficients": (sizes[-1], 3), "items": (len(items) + len(KNOWN.names),)}

    def rows(num_rows: int, seed: int) -> torch.Tensor:
        rng = np.random.default_rng(seed)
        given = np.stack([rng.normal(1.0, 1.5, num_rows).round(1), rng.integers(0, 2, num_rows)], 1)
        columns = [
            (
                rng.normal(size=num_rows)
                if item.kind == "Normal"
                else rng.integers(0, max(2, item.size), num_rows)
            )
            for item in items
        ]
        table = np.stack(columns, 1).astype(float)
        gone = rng.random(table.shape) < missing
        gone[np.arange(num_rows), np.arange(num_rows) % len(items)] = False
        return torch.from_numpy(np.concatenate([np.where(gone, np.nan, table), given], 1))

    model = replace(base.model, penalty=None, covariates=KNOWN)
    return Row(
        name,
        model,
        truth,
        shapes,
        functools.partial(log_likelihood_given, tuple(items), sizes),
        missing,
        data=rows,
    )


def encoders_of_categories() -> list[Row]:
    likert = [Item("cumulative", size) for size in (4, 3, 3, 2, 3)]
    steps = [Item("adjacent", size) for size in (3, 4, 2, 3, 3)]
    names = [Item("nominal", size) for size in (3, 2, 4, 3)]
    mixed = [
        Item("cumulative", 3),
        Item("cumulative", 3),
        Item("Bernoulli"),
        Item("nominal", 3),
        Item("Poisson"),
        Item("Normal"),
        Item("adjacent", 4),
    ]
    beside = Blocks(
        (Ordinal(3), 2),
        (Bernoulli(), 1),
        (Categorical(3), 1),
        (Poisson(), 1),
        (Normal(), 1),
        (Ordinal(4, link="adjacent"), 1),
    )
    graphs = (((1, 0), (0, 1), (1, 0), (1, 1), (0, 1), (1, 0), (1, 1)), ((1,), (1,)))
    sizes = tuple(item.size for item in likert)
    above = row_of("", mixed, (2, 1), beside, 91)
    return [
        row_given(above, "encoder-categories-covariates", mixed, 0.2),
        row_of("encoder-Ordinal", likert, (3,), Ordinal(sizes), 82, missing=0.2),
        row_of(
            "encoder-adjacent",
            steps,
            (2,),
            Ordinal(tuple(item.size for item in steps), link="adjacent"),
            83,
            missing=0.15,
        ),
        row_of(
            "encoder-Categorical",
            names,
            (2, 1),
            Categorical(tuple(item.size for item in names)),
            84,
            missing=0.15,
        ),
        row_of("encoder-categories-beside", mixed, (2, 1), beside, 86, missing=0.2),
        row_of("encoder-categories-confirmatory", mixed, (2, 1), beside, 87, graphs=graphs),
        row_of(
            "encoder-categories-lasso",
            mixed,
            (2, 1),
            beside,
            88,
            missing=0.2,
            penalty=TruncatedLasso(1.5, 0.4),
        ),
        row_of(
            "encoder-recovers-Ordinal",
            [Item("cumulative", 4)] * 7,
            (2,),
            Ordinal(4),
            89,
            missing=0.1,
            loading=2.5,
            recovery_rows=1500,
        ),
        row_of("encoder-recovers-beside", mixed, (2,), beside, 90, loading=2.0, recovery_rows=2500),
    ]
