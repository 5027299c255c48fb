"""Rows of the zoo's table for mixtures; the likelihood by hand, one component and one item at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import stats
from scipy.optimize import linear_sum_assignment
from scipy.special import expit, logsumexp

from ppl_models import (
    Bernoulli,
    Blocks,
    Categorical,
    Covariates,
    Mixture,
    MultivariateNormal,
    MultivariateT,
    NegativeBinomial,
    Normal,
    Ordinal,
    Poisson,
    SkewNormal,
)

DISTRIBUTIONS = {
    "Bernoulli": lambda x, eta, gamma: stats.bernoulli.logpmf(x, expit(eta)),
    "Poisson": lambda x, eta, gamma: stats.poisson.logpmf(x, np.exp(eta)),
    "NegativeBinomial": lambda x, eta, gamma: stats.nbinom.logpmf(
        x, gamma, gamma / (gamma + np.exp(eta))
    ),
    "Normal": lambda x, eta, gamma: stats.norm.logpdf(x, eta, np.sqrt(gamma)),
}


COUNTS = [[0.0, 3.5, 3.5, 0.5], [3.5, 0.5, 1.0, 3.0], [1.0, 1.0, 0.0, 0.0]]
COUNTED = Blocks((Normal(), 1), (NegativeBinomial(), 1), (Bernoulli(), 1))
DISPERSED = ("Normal", "NegativeBinomial")


def log_likelihood(
    columns: tuple[str, ...], params: Mapping[str, np.ndarray], data: np.ndarray
) -> np.ndarray:
    terms = []
    for k, weight in enumerate(params["weights"]):
        rows, dispersed, numeric, entry, gap = np.full(len(data), np.log(weight)), 0, 0, 0, 0
        for j, family in enumerate(columns):
            gamma = params["dispersion"][k, dispersed] if family in DISPERSED else None
            dispersed += family in DISPERSED
            seen = ~np.isnan(data[:, j])
            if family.startswith("Categorical"):
                size = int(family.removeprefix("Categorical"))
                own, entry = params["probabilities"][k, entry : entry + size], entry + size
                rows[seen] += np.log(own[data[seen, j].astype(int)])
                continue
            if family.startswith(("cumulative", "adjacent")):
                size = int(family[-1])
                own, gap = params["thresholds"][gap : gap + size - 2], gap + size - 2
                rows[seen] += np.log(
                    ordinal_chances(family[:-1], params["predictors"][k, numeric], own)[
                        data[seen, j].astype(int)
                    ]
                )
                numeric += 1
                continue
            rows[seen] += DISTRIBUTIONS[family](
                data[seen, j], params["predictors"][k, numeric], gamma
            )
            numeric += 1
        terms.append(rows)
    return logsumexp(terms, axis=0)


def ordinal_chances(link: str, location: float, own: np.ndarray) -> np.ndarray:
    """Of the categories of one item: differences of logistic curves, or odds of neighbours
    multiplied up.
    """
    if link == "cumulative":
        return np.diff(np.r_[0.0, expit(np.r_[0.0, np.cumsum(own)] - location), 1.0])
    odds = np.cumprod(np.r_[1.0, np.exp(location - np.r_[0.0, own])])
    return odds / odds.sum()


def relabelled(result: Any, truth: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Components in the truth's order, matched by their predictors or probabilities."""
    site = "predictors" if "predictors" in truth else "probabilities"
    distance = torch.cdist(result.params[site], truth[site])
    rows, columns = linear_sum_assignment(distance.numpy())
    order = torch.tensor(rows[np.argsort(columns)])
    return {
        name: value if name == "thresholds" else value[order]
        for name, value in result.params.items()
    }


def mixture_rows(make: Callable[..., Any]) -> list[Any]:
    """Rows, made by the table's own record type."""
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    designs = [
        (
            "mixture-Normal",
            ("Normal", "Normal"),
            Normal(),
            [[-2.0, 1.0], [2.0, 0.0], [0.0, -3.0]],
            0.0,
            1500,
        ),
        (
            "mixture-Poisson-missing",
            ("Poisson",) * 3,
            Poisson(),
            [[0.0, 1.5, 2.5], [2.0, 0.5, 1.0], [1.0, 2.5, 0.0]],
            0.2,
            1500,
        ),
        (
            "mixture-NegativeBinomial-missing",
            ("NegativeBinomial",) * 4,
            NegativeBinomial(),
            COUNTS,
            0.1,
            2000,
        ),
        (
            "mixture-NegativeBinomial-Blocks",
            ("Normal", "NegativeBinomial", "Bernoulli"),
            COUNTED,
            [row[:3] for row in COUNTS],
            0.1,
            None,
        ),
        (
            "mixture-Blocks",
            ("Bernoulli", "Bernoulli", "Normal"),
            Blocks((Bernoulli(), 2), (Normal(), 1)),
            [[1.0, -1.0, -3.0], [-1.0, 1.0, 0.0], [1.5, 1.0, 3.0]],
            0.1,
            None,
        ),
    ]
    rows = []
    for name, columns, family, predictors, missing, recovery in designs:
        truth = {"weights": weights, "predictors": torch.tensor(predictors, dtype=torch.float64)}
        shapes: dict[str, tuple[int, ...]] = {
            "weights": (3,),
            "predictors": (3, len(columns)),
            "assignments": (),
        }
        dispersed = sum(column in DISPERSED for column in columns)
        if dispersed:
            truth["dispersion"] = (
                2.0 if "NegativeBinomial" in columns else 0.4
            ) + 0.1 * torch.arange(3 * dispersed, dtype=torch.float64).reshape(3, dispersed)
            shapes["dispersion"] = (3, dispersed)
        shapes["items"] = (len(columns),)
        model = Mixture(3, component=family, num_items=len(columns))
        rows.append(
            make(
                name, model, truth, shapes, partial(log_likelihood, columns),
                missing=missing, recovery_rows=recovery, relabel=relabelled,
            )
        )  # fmt: skip
    return [*rows, *whole_row_rows(make, weights), *categorical_rows(make), *covariate_rows(make)]


COEFFICIENTS = torch.tensor([[-0.4, 1.2, 0.8], [0.3, -0.9, -1.1]], dtype=torch.float64)


def log_likelihood_given(
    columns: tuple[str, ...], params: Mapping[str, np.ndarray], data: np.ndarray
) -> np.ndarray:
    """One row at a time: the chances of its components by its number and its category, then the
    likelihood by weights.
    """
    num_items, out = len(columns), []
    for row in data:
        terms = np.array([1.0, row[num_items], row[num_items + 1] == 1])
        odds = np.exp([0.0, *(own @ terms for own in params["coefficients"])])
        out.append(
            log_likelihood(
                columns, {**params, "weights": odds / odds.sum()}, row[None, :num_items]
            )[0]
        )
    return np.array(out)


def rows_given(truth: Mapping[str, torch.Tensor], num_rows: int, seed: int) -> torch.Tensor:
    """A count, two measurements, a category of three, with gaps; a number and one of two categories
    behind them.
    """
    rng = np.random.default_rng(seed)
    given = np.stack([rng.normal(1.0, 1.5, num_rows), rng.integers(0, 2, num_rows)], 1)
    odds = np.exp(
        np.concatenate(
            [
                np.zeros((num_rows, 1)),
                np.c_[np.ones(num_rows), given] @ truth["coefficients"].numpy().T,
            ],
            1,
        )
    )
    chosen = (rng.random(num_rows)[:, None] > np.cumsum(odds / odds.sum(1, keepdims=True), 1)).sum(
        1
    )
    eta, tables = truth["predictors"].numpy()[chosen], truth["probabilities"].numpy()[chosen]
    answers = [
        rng.poisson(np.exp(eta[:, 0])),
        *(
            rng.normal(eta[:, j], np.sqrt(truth["dispersion"].numpy()[chosen, j - 1]))
            for j in (1, 2)
        ),
    ]
    answers.append((rng.random(num_rows)[:, None] > np.cumsum(tables, 1)).sum(1))
    items = np.stack(answers, 1).astype(float)
    gone = rng.random(items.shape) < 0.1
    gone[np.arange(num_rows), np.arange(num_rows) % 4] = False
    return torch.from_numpy(np.concatenate([np.where(gone, np.nan, items), given], 1))


def covariate_rows(make: Callable[..., Any]) -> list[Any]:
    """Components that depend on a number and on a category."""
    truth = {
        "coefficients": COEFFICIENTS,
        "predictors": torch.tensor(
            [[0.0, -2.0, 1.0], [1.5, 1.0, 0.0], [0.5, 2.0, -3.0]], dtype=torch.float64
        ),
        "probabilities": torch.tensor(
            [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]], dtype=torch.float64
        ),
        "dispersion": torch.tensor([[1.4, 1.6], [1.5, 1.7], [1.6, 1.8]], dtype=torch.float64),
    }
    shapes = {name: tuple(value.shape) for name, value in truth.items()} | {
        "assignments": (),
        "items": (6,),
    }  # drawn beside the covariates
    family = Blocks((Poisson(), 1), (Normal(), 2), (Categorical(3), 1))
    model = Mixture(
        3,
        family,
        covariates=Covariates(
            ("age", "sex"), ((), ("female", "male")), units=((1.0, 1.5), (0.5, 0.5))
        ),
    )
    columns = ("Poisson", "Normal", "Normal", "Categorical3")
    return [
        make(
            "mixture-covariates-missing",
            model,
            truth,
            shapes,
            partial(log_likelihood_given, columns),
            recovery_rows=1500,
            relabel=relabelled_given,
            data=partial(rows_given, truth),
        )
    ]


def relabelled_given(result: Any, truth: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As :func:`relabelled`, log-odds against the truth's first component."""
    rows, columns = linear_sum_assignment(
        torch.cdist(result.params["predictors"], truth["predictors"]).numpy()
    )
    order = torch.tensor(rows[np.argsort(columns)])
    every = torch.cat([torch.zeros_like(COEFFICIENTS[:1]), result.params["coefficients"]])[order]
    return {
        name: every[1:] - every[:1] if name == "coefficients" else value[order]
        for name, value in result.params.items()
    }


ANGLES = [[[1.0, 0.4], [0.4, 2.0]], [[2.0, -0.9], [-0.9, 1.0]], [[1.5, 0.0], [0.0, 0.7]]]


def log_normal_rows(params: Mapping[str, np.ndarray], data: np.ndarray) -> np.ndarray:
    return of_components(
        params,
        lambda k: stats.multivariate_normal(
            params["means"][k], np.linalg.inv(params["precisions"][k])
        ).logpdf(data),
    )


def log_normal_gaps(params: Mapping[str, np.ndarray], data: np.ndarray) -> np.ndarray:
    """The distribution of the entries that are there, row by row."""

    def one(k: int) -> np.ndarray:
        covariance, out = np.linalg.inv(params["precisions"][k]), np.empty(len(data))
        for i, row in enumerate(data):
            seen = ~np.isnan(row)
            out[i] = stats.multivariate_normal(
                params["means"][k][seen], covariance[np.ix_(seen, seen)]
            ).logpdf(row[seen])
        return out

    return of_components(params, one)


def log_t_rows(params: Mapping[str, np.ndarray], data: np.ndarray) -> np.ndarray:
    return of_components(
        params,
        lambda k: stats.multivariate_t(
            params["means"][k], np.linalg.inv(params["precisions"][k]), params["freedom"][k]
        ).logpdf(data),
    )


def log_skew_rows(params: Mapping[str, np.ndarray], data: np.ndarray) -> np.ndarray:
    """The half-normal part summed over by quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    u, weights = 5 * (nodes + 1), 5 * weights  # on [0, 10]

    def one(k: int) -> np.ndarray:
        normal = stats.multivariate_normal(
            np.zeros(data.shape[1]), np.linalg.inv(params["precisions"][k])
        )
        left = data[:, None] - params["locations"][k] - u[:, None] * params["skews"][k]
        return logsumexp(np.log(2 * weights) + stats.norm.logpdf(u) + normal.logpdf(left), axis=1)

    return of_components(params, one)


def of_components(
    params: Mapping[str, np.ndarray], log_probabilities: Callable[[int], np.ndarray]
) -> np.ndarray:
    return logsumexp(
        [np.log(weight) + log_probabilities(k) for k, weight in enumerate(params["weights"])],
        axis=0,
    )


def relabelled_rows(site: str) -> Callable[..., Any]:
    def relabel(result: Any, truth: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        rows, columns = linear_sum_assignment(torch.cdist(result.params[site], truth[site]).numpy())
        order = torch.tensor(rows[np.argsort(columns)])
        return {name: value[order] for name, value in result.params.items()}

    return relabel


def whole_row_rows(make: Callable[..., Any], weights: torch.Tensor) -> list[Any]:
    centres, precisions = (
        torch.tensor([[-4.0, 1.0], [4.0, 0.0], [0.0, -6.0]], dtype=torch.float64),
        torch.tensor(ANGLES, dtype=torch.float64),
    )
    extra = {
        "freedom": torch.tensor([3.5, 6.0, 5.0], dtype=torch.float64),
        "skews": torch.tensor([[1.5, -1.0], [2.0, 1.0], [1.0, 2.0]], dtype=torch.float64),
    }
    designs = [
        ("mixture-MultivariateNormal", MultivariateNormal(0.1), "means", (), log_normal_rows, None),
        ("mixture-MultivariateT", MultivariateT(0.1), "means", ("freedom",), log_t_rows, 600),
        ("mixture-SkewNormal", SkewNormal(0.1), "locations", ("skews",), log_skew_rows, None),
    ]
    rows = []
    for name, distribution, site, others, by_hand, recovery in designs:
        truth = {"weights": weights, site: centres, "precisions": precisions} | {
            other: extra[other] for other in others
        }
        shapes = {other: tuple(value.shape) for other, value in truth.items()} | {
            "assignments": (),
            "items": (2,),
        }
        rows.append(
            make(
                name,
                Mixture(3, distribution, 2),
                truth,
                shapes,
                by_hand,
                recovery_rows=recovery,
                relabel=relabelled_rows(site),
            )
        )
    gaps = "mixture-MultivariateNormal-missing", Mixture(3, MultivariateNormal(0.1), 3)
    wide = {
        "weights": weights,
        "means": torch.cat([centres, torch.tensor([[1.0], [-2.0], [3.0]], dtype=torch.float64)], 1),
        "precisions": torch.eye(3, dtype=torch.float64)
        + torch.tensor(
            [[[1.0], [0.5], [-0.4]], [[0.3], [-1.0], [0.8]], [[0.0], [0.6], [0.7]]],
            dtype=torch.float64,
        )
        * torch.tensor(
            [[[1.0, 0.5, -0.4]], [[0.3, -1.0, 0.8]], [[0.0, 0.6, 0.7]]], dtype=torch.float64
        ),
    }
    shapes = {site: tuple(value.shape) for site, value in wide.items()} | {
        "assignments": (),
        "items": (3,),
    }
    return [
        *rows,
        make(
            *gaps,
            wide,
            shapes,
            log_normal_gaps,
            missing=0.2,
            recovery_rows=1500,
            relabel=relabelled_rows("means"),
        ),
    ]


def categorical_rows(make: Callable[..., Any]) -> list[Any]:
    """Latent classes of categorical items of several sizes, and of these beside items with
    predictors.
    """
    tables = torch.tensor(
        [
            [0.8, 0.15, 0.05, 0.9, 0.1, 0.1, 0.2, 0.3, 0.4, 0.7, 0.2, 0.1],
            [0.1, 0.8, 0.1, 0.2, 0.8, 0.7, 0.1, 0.1, 0.1, 0.1, 0.2, 0.7],
            [0.1, 0.2, 0.7, 0.4, 0.6, 0.1, 0.6, 0.2, 0.1, 0.15, 0.75, 0.1],
        ],
        dtype=torch.float64,
    )
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    plain = Mixture(3, component=Categorical((3, 2, 4, 3)))
    columns = ("Categorical3", "Categorical2", "Categorical4", "Categorical3")
    shapes: dict[str, tuple[int, ...]] = {
        "weights": (3,),
        "probabilities": (3, 12),
        "assignments": (),
        "items": (4,),
    }
    truth = {"weights": weights, "probabilities": tables}
    mixed = Mixture(
        3,
        component=Blocks(
            (Categorical((3, 2)), 2),
            (Normal(), 1),
            (Categorical(3, concentration=1.5), 1),
            (Poisson(), 1),
        ),
    )
    mixed_truth = {
        "weights": weights,
        "predictors": torch.tensor([[-2.0, 0.5], [0.0, 2.0], [2.0, 1.0]], dtype=torch.float64),
        "probabilities": tables[:, [0, 1, 2, 3, 4, 9, 10, 11]],
        "dispersion": torch.tensor([[0.4], [0.5], [0.6]], dtype=torch.float64),
    }
    mixed_shapes = {
        "weights": (3,),
        "predictors": (3, 2),
        "probabilities": (3, 8),
        "dispersion": (3, 1),
        "assignments": (),
        "items": (5,),
    }
    of_links = ("cumulative4", "cumulative3", "cumulative4", "cumulative2")
    locations = torch.tensor(
        [[-1.5, 1.0, 2.0, 0.5], [1.0, -1.0, 0.0, -1.0], [3.0, 2.5, 1.0, 2.0]], dtype=torch.float64
    )
    linked = Mixture(3, Ordinal((4, 3, 4, 2), link="cumulative"))
    linked_truth = {
        "weights": weights,
        "predictors": locations,
        "thresholds": torch.tensor([1.0, 1.5, 1.2, 0.7, 0.9], dtype=torch.float64),
    }
    linked_shapes = {
        "weights": (3,),
        "predictors": (3, 4),
        "thresholds": (5,),
        "assignments": (),
        "items": (4,),
    }
    beside = Mixture(
        3,
        Blocks(
            (Categorical(3), 1),
            (Ordinal(3, link="adjacent"), 2),
            (Normal(), 1),
            (Ordinal(4, link="adjacent"), 1),
        ),
    )
    beside_truth = {
        "weights": weights,
        "predictors": 0.5 * locations,
        "probabilities": tables[:, :3],
        "thresholds": torch.tensor([0.5, -0.4, 0.3, 0.8], dtype=torch.float64),
        "dispersion": torch.tensor([[0.4], [0.5], [0.6]], dtype=torch.float64),
    }
    beside_shapes = linked_shapes | {
        "thresholds": (4,),
        "probabilities": (3, 3),
        "dispersion": (3, 1),
        "items": (5,),
    }
    of_beside = ("Categorical3", "adjacent3", "adjacent3", "Normal", "adjacent4")
    of_mixed = ("Categorical3", "Categorical2", "Normal", "Categorical3", "Poisson")
    return [
        make(
            "mixture-Categorical-missing",
            plain,
            truth,
            shapes,
            partial(log_likelihood, columns),
            missing=0.15,
            recovery_rows=3000,
            relabel=relabelled,
        ),
        make(
            "mixture-Ordinal-missing",
            linked,
            linked_truth,
            linked_shapes,
            partial(log_likelihood, of_links),
            missing=0.1,
            recovery_rows=2000,
            relabel=relabelled,
        ),
        make(
            "mixture-Ordinal-Blocks",
            beside,
            beside_truth,
            beside_shapes,
            partial(log_likelihood, of_beside),
            missing=0.1,
            relabel=relabelled,
        ),
        make(
            "mixture-Categorical-Blocks",
            mixed,
            mixed_truth,
            mixed_shapes,
            partial(log_likelihood, of_mixed),
            missing=0.1,
            relabel=relabelled,
        ),
    ]
