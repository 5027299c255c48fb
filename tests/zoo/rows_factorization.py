"""Rows of the zoo's table for factorizations, whose rows hold continuous latents; the densities by
hand, cell by cell.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from scipy import optimize, stats
from scipy.special import logsumexp

from inference import EM, SAEM
from inference.structures.factorization.factorize import Factorize
from ppl_models import (
    FactorAnalysis,
    GaussianFactorization,
    NegativeBinomialFactorization,
    PoissonFactorization,
    Unmixing,
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


def mixed(params: Arrays, data: np.ndarray) -> np.ndarray:
    mean, size = params["abundances"] @ params["endmembers"], params["abundances"].shape[1]
    even = stats.dirichlet.logpdf(np.full(size, 1 / size), np.ones(size))  # the same everywhere
    return seen_sum(data, stats.norm.logpdf(data, mean, params["scales"])) + even


def factors_integrated(params: Arrays, data: np.ndarray) -> np.ndarray:
    loadings, noise = params["signatures"], np.diag(params["scales"] ** 2)
    covariance, out = loadings.T @ loadings + noise, []
    for x in data:
        seen = ~np.isnan(x)
        normal = stats.multivariate_normal(
            params["intercepts"][seen], covariance[np.ix_(seen, seen)]
        )
        out.append(normal.logpdf(x[seen]))
    return np.array(out)


def mixed_integrated(params: Arrays, data: np.ndarray) -> np.ndarray:
    """Abundances of three components integrated over a grid of the triangle."""
    middle = (np.arange(1500) + 0.5) / 1500
    first, second = (part.ravel() for part in np.meshgrid(middle, middle))
    inside = first + second < 1
    shares = np.stack([first, second, 1 - first - second], -1)[inside]
    means, scale = shares @ params["endmembers"], float(params["scales"][0])
    terms = [stats.norm.logpdf(x, means, scale).sum(-1) for x in data]
    return logsumexp(terms, axis=1) - np.log(len(shares))


def mixed_at_the_mode(params: Arrays, data: np.ndarray) -> np.ndarray:
    """Laplace's approximation at the best shares on the triangle, which another solver finds."""
    phi, sigma = params["endmembers"], float(params["scales"][0])
    edges = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])  # orthonormal
    curvature = edges @ phi @ phi.T @ edges.T / sigma**2 + 12 * np.eye(2)
    volume = np.log(2 / np.sqrt(3)) + np.log(2 * np.pi) - np.linalg.slogdet(curvature)[1] / 2
    out = []
    for x in data:
        weight = 1e5 * np.abs(phi).max()  # of the sum of the shares
        shares, _ = optimize.nnls(np.vstack([phi.T, weight * np.ones(3)]), np.append(x, weight))
        out.append(stats.norm.logpdf(x, shares / shares.sum() @ phi, sigma).sum() + volume)
    return np.array(out)


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
        integrated: Any = None,
        **more: Any,
    ) -> Any:
        own = shapes | {site: tuple(value.shape) for site, value in truth.items()} | more
        return make(
            name,
            model,
            truth,
            own,
            by_hand,
            missing=missing,
            local=("activities",),
            method=method,
            integrated=integrated,
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
            factors_integrated,
        ),
        *(
            make(
                f"factorization-unmixing-{noise}",
                Unmixing(5, 3, noise),
                {"endmembers": 4 * third, "scales": scale / 10},
                {"endmembers": (3, 5), "scales": (1,), "abundances": (3,), "items": (5,)},
                mixed,
                local=("abundances",),
                method=EM(max_iterations=2),
                **more,
            )
            for noise, more in (
                ("independent", {"integrated": mixed_integrated, "tolerance": 0.5}),
                (
                    "correlated",
                    {
                        "integrated": mixed_at_the_mode,
                        "tolerance": 1e-4,
                        "statistics": ("scales",),
                    },
                ),
            )
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
