"""Rows of the zoo's table for independent classifiers; the likelihood relative to independence by
hand, one row and one component at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import log_softmax, logsumexp

from inference import TrainClassifiers
from ppl_models import Dense, InClassNet, Lookup

F64 = torch.float64


def dense_scores(
    params: Mapping[str, np.ndarray], x: np.ndarray, network: int, num_layers: int
) -> np.ndarray:
    hidden = x
    for layer in range(1, num_layers + 1):
        weights, intercepts = (
            params[f"layer_{layer}_{kind}"][network] for kind in ("weights", "intercepts")
        )
        hidden = weights[:, : len(hidden)] @ hidden + intercepts
        hidden = hidden if layer == num_layers else np.maximum(hidden, 0)
    return log_softmax(hidden)


def log_ratio(
    widths: tuple[int, ...],
    scores: Callable[..., np.ndarray],
    params: Mapping[str, np.ndarray],
    data: np.ndarray,
) -> np.ndarray:
    out, edges = [], np.cumsum((0, *widths))
    for row in data:
        terms = np.log(params["weights"])
        for v, (begin, end) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
            x = row[begin:end]
            if not np.isnan(x).any():
                scaled = (
                    (x - params["input_centres"][begin:end]) / params["input_scales"][begin:end]
                    if "input_centres" in params
                    else x
                )
                terms = terms + scores(params, scaled, v) - np.log(params["pseudo_weights"][v])
        out.append(logsumexp(terms))
    return np.array(out)


def normals(width: int, num_rows: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    component = torch.randint(2, (num_rows, 1), generator=generator)
    return torch.randn(num_rows, width, generator=generator, dtype=F64) + 2.0 * component - 1


def with_gaps(num_rows: int, seed: int) -> torch.Tensor:
    table = normals(4, num_rows, seed)
    table[1, 0], table[2, 1:3] = torch.nan, torch.nan
    return table


def codes(num_rows: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, (num_rows, 3), generator=generator).to(F64)


def truth_of(model: InClassNet, weights: list[float], columns: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    about = model.classifiers()
    truth = {
        "pseudo_weights": (
            0.5
            * torch.randn(about.num_variates, about.num_components, generator=generator, dtype=F64)
        ).softmax(-1),
        "input_centres": torch.linspace(-0.4, 0.3, columns, dtype=F64),
        "input_scales": torch.linspace(0.8, 1.2, columns, dtype=F64),
        "weights": torch.tensor(weights, dtype=F64),
    }
    for group in about.groups:
        truth |= {
            site: torch.randn(shape, generator=generator, dtype=F64)
            for site, shape in group.shapes.items()
        }
    return truth


def classifier_rows(make: Callable[..., Any]) -> list[Any]:
    """Rows, made by the table's own record type."""
    dense = partial(dense_scores, num_layers=2)

    def tables(params: Mapping[str, np.ndarray], x: np.ndarray, v: int) -> np.ndarray:
        return log_softmax(params["table"][v, int(x[0])])

    designs: list[tuple[str, InClassNet, list[float], Any, tuple[int, ...], Any]] = [
        (
            "classifiers",
            InClassNet((1, 1), 2, networks=Dense((3,))),
            [0.6, 0.4],
            dense,
            (1, 1),
            partial(normals, 2),
        ),
        (
            "classifiers-free-missing",
            InClassNet((1, 2, 1), 3, networks=Dense((3,)), weights="free"),
            [0.5, 0.3, 0.2],
            dense,
            (1, 2, 1),
            with_gaps,
        ),
        (
            "classifiers-shared",
            InClassNet((2, 2), 2, networks=Dense((3,)), shared=True),
            [0.6, 0.4],
            lambda params, x, v: dense(params, x, 0),
            (2, 2),
            partial(normals, 4),
        ),
        (
            "classifiers-tables",
            InClassNet((1, 1, 1), 2, networks=Lookup(3)),
            [0.6, 0.4],
            tables,
            (1, 1, 1),
            codes,
        ),
    ]
    rows = []
    for name, model, weights, scores, widths, data in designs:
        truth = truth_of(model, weights, sum(widths))
        if name == "classifiers-tables":
            del truth["input_centres"], truth["input_scales"]  # codes are looked up as they are
        shapes: dict[str, tuple[int, ...]] = {
            site: tuple(value.shape) for site, value in truth.items()
        } | {"components": ()}
        shapes |= {f"variate_{v}": (width,) for v, width in enumerate(widths)}
        rows.append(
            make(
                name,
                model,
                truth,
                shapes,
                partial(log_ratio, widths, scores),
                data=data,
                statistics=(
                    "pseudo_weights",
                    "input_centres",
                    "input_scales",
                    *(() if model.weights == "free" else ("weights",)),
                ),
                method=TrainClassifiers(max_epochs=2, batch_size=4, patience=None),
            )
        )
    return rows
