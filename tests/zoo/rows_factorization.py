"""Rows of the zoo's table for factorizations, whose rows hold continuous latents; the densities by
hand, cell by cell.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from scipy import stats
from scipy.special import logsumexp

from inference import EM, SAEM
from inference.structures.factorization.factorize import Factorize
from ppl_models import (
    FactorAnalysis,
    GaussianFactorization,
    NegativeBinomialFactorization,
    PoissonFactorization,
    UsageFactorization,
)

Arrays = Mapping[str, np.ndarray]


def seen_sum(data: np.ndarray, terms: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(data), 0.0, terms).sum(-1)


def flat(params: Arrays, width: float) -> np.ndarray:
    return np.full(len(params["activities"]), -params["activities"].shape[1] * np.log(width))


def counts(params: Arrays, data: np.ndarray) -> np.ndarray:
    terms = stats.poisson.logpmf(np.nan_to_num(data), params["activities"] @ params["signatures"])
    return seen_sum(data, terms) + flat(params, 1e9)


def counts_with_prior(params: Arrays, data: np.ndarray) -> np.ndarray:
    prior = stats.gamma.logpdf(params["activities"], 2.0, scale=10.0).sum(-1)
    return counts(params, data) - flat(params, 1e9) + prior


def dispersed(params: Arrays, data: np.ndarray) -> np.ndarray:
    mean, size = params["activities"] @ params["signatures"], 1 / params["dispersion"]
    return seen_sum(
        data, stats.nbinom.logpmf(np.nan_to_num(data), size, size / (size + mean))
    ) + flat(params, 1e9)


def linearly_dispersed(params: Arrays, data: np.ndarray) -> np.ndarray:
    mean, delta = params["activities"] @ params["signatures"], params["dispersion"]
    return seen_sum(
        data, stats.nbinom.logpmf(np.nan_to_num(data), mean / delta, 1 / (1 + delta))
    ) + flat(params, 1e9)


def normal(width: float) -> Callable[[Arrays, np.ndarray], np.ndarray]:
    def by_hand(params: Arrays, data: np.ndarray) -> np.ndarray:
        mean = params["activities"] @ params["signatures"]
        return seen_sum(data, stats.norm.logpdf(data, mean, params["scales"])) + flat(params, width)

    return by_hand


def factors(params: Arrays, data: np.ndarray) -> np.ndarray:
    mean = params["activities"] @ params["signatures"] + params["intercepts"]
    return seen_sum(data, stats.norm.logpdf(data, mean, params["scales"])) + stats.norm.logpdf(
        params["activities"]
    ).sum(-1)


def used(shape: float) -> Callable[[Arrays, np.ndarray], np.ndarray]:
    """The sum over usage, given the activities."""

    def by_hand(params: Arrays, data: np.ndarray) -> np.ndarray:
        terms = []
        for bits in itertools.product((0, 1), repeat=len(params["proportions"])):
            rates = np.maximum(
                (np.array(bits) * params["activities"]) @ params["signatures"], 1e-12
            )
            items = seen_sum(data, stats.poisson.logpmf(np.nan_to_num(data), rates))
            terms.append(items + stats.bernoulli.logpmf(bits, params["proportions"]).sum())
        prior = stats.gamma.logpdf(
            params["activities"], shape, scale=params["amounts"] / shape
        ).sum(-1)
        return logsumexp(terms, axis=0) + prior

    return by_hand


def factorization_rows(make: Callable[..., Any]) -> list[Any]:
    """Rows, made by the table's own record type."""
    signatures = torch.tensor(
        [[0.5, 0.2, 0.1, 0.1, 0.1], [0.05, 0.1, 0.15, 0.3, 0.4]], dtype=torch.float64
    )
    real = torch.tensor(
        [[1.0, -0.5, 0.3, 0.8, -1.2], [0.4, 0.9, -0.7, 0.2, 0.5]], dtype=torch.float64
    )
    shapes: dict[str, tuple[int, ...]] = {"signatures": (2, 5), "activities": (2,), "items": (5,)}
    bound = {"bound": 1e9}
    engine = Factorize(max_sweeps=60)

    def one(
        name: str,
        model: Any,
        truth: Any,
        by_hand: Any,
        missing: float = 0.0,
        method: Any = engine,
        **more: Any,
    ) -> Any:
        own = shapes | {site: tuple(value.shape) for site, value in truth.items()} | more
        return make(
            name, model, truth, own, by_hand, missing=missing, local=("activities",), method=method
        )

    third = torch.cat([signatures, torch.tensor([[0.1, 0.4, 0.3, 0.1, 0.1]], dtype=torch.float64)])
    usage = {
        "signatures": third,
        "proportions": torch.tensor([0.7, 0.4, 0.5], dtype=torch.float64),
        "amounts": torch.tensor([12.0, 20.0, 8.0], dtype=torch.float64),
    }
    three: dict[str, Any] = {"activities": (3,), "usage": (3,)}
    sampler = SAEM(max_iterations=2, num_burn_in=1)
    scale = torch.tensor([0.6], dtype=torch.float64)
    analysis = {
        "signatures": real,
        "intercepts": torch.tensor([0.5, -1.0, 2.0, 0.1, 1.0], dtype=torch.float64),
        "scales": torch.tensor([0.4, 0.9, 0.5, 1.2, 0.7], dtype=torch.float64),
    }
    return [
        one(
            "factorization-counts",
            PoissonFactorization(5, 2, **bound),
            {"signatures": signatures},
            counts,
            0.15,
        ),
        one(
            "factorization-counts-prior",
            PoissonFactorization(5, 2, 1.5, activity_prior=(2.0, 0.1)),
            {"signatures": signatures},
            counts_with_prior,
        ),
        one(
            "factorization-dispersed",
            NegativeBinomialFactorization(5, 2, **bound),
            {"signatures": signatures, "dispersion": torch.tensor([0.3], dtype=torch.float64)},
            dispersed,
            0.15,
        ),
        one(
            "factorization-linearly-dispersed",
            NegativeBinomialFactorization(5, 2, variance="linear", **bound),
            {"signatures": signatures, "dispersion": torch.tensor([0.8], dtype=torch.float64)},
            linearly_dispersed,
            0.15,
        ),
        one(
            "factorization-Normal",
            GaussianFactorization(5, 2),
            {"signatures": real, "scales": scale},
            normal(2e9),
        ),
        one(
            "factorization-nonnegative",
            GaussianFactorization(5, 2, nonnegative=True),
            {"signatures": real.abs(), "scales": scale},
            normal(1e9),
        ),
        one(
            "factorization-factors",
            FactorAnalysis(5, 2),
            analysis,
            factors,
            0.15,
            EM(max_iterations=2),
        ),
        one(
            "factorization-usage",
            UsageFactorization(5, 3),
            usage,
            used(1.0),
            0.15,
            sampler,
            **three,
        ),
        one(
            "factorization-usage-shape",
            UsageFactorization(5, 3, shape=2.5),
            usage,
            used(2.5),
            0.0,
            sampler,
            **three,
        ),
    ]
