"""Mixtures whose components are not what a model would take them for, with known labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ppl_models.parts.validation import is_integer


def _labels(num_rows: int, weights: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    if not is_integer(num_rows):
        raise ValueError(f"num_rows must be a positive integer, got {num_rows!r}")
    if not (min(weights) > 0 and math.isclose(sum(weights), 1.0, abs_tol=1e-9)):
        raise ValueError(f"weights must be positive and sum to 1, got {tuple(weights)}")
    return rng.choice(len(weights), size=num_rows, p=np.asarray(weights))


def skew_normal_mixture(
    locations: Sequence[float] = (-3.0, 3.0),
    skewness: Sequence[float] = (-10.0, -1.0),
    weights: Sequence[float] = (0.95, 0.05),
    num_rows: int = 10_000,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Skew-normal components of scale 1 (Azzalini 1985): data (N, 1) and labels (N,).

    Raises:
        ValueError: for settings of unequal lengths, weights that do not sum to 1, or no rows.
    """
    if not len(locations) == len(skewness) == len(weights):
        raise ValueError(
            f"locations, skewness and weights must have one length, got {len(locations)},"
            f" {len(skewness)}, {len(weights)}"
        )
    rng = np.random.default_rng(seed)
    c = _labels(num_rows, weights, rng)
    shape = np.asarray(skewness, float)[c]
    delta = shape / np.sqrt(1 + shape**2)
    x = delta * np.abs(rng.standard_normal(num_rows)) + np.sqrt(1 - delta**2) * rng.standard_normal(
        num_rows
    )
    return (np.asarray(locations, float)[c] + x)[:, None], c


def negative_binomial_mixture(
    num_rows: int = 20_000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Three negative binomials: sizes 55, 75, 100, success chances .5, .3, .5, weights .3, .3, .4;
    data (N, 1) and labels.
    """
    rng = np.random.default_rng(seed)
    c = _labels(num_rows, (0.3, 0.3, 0.4), rng)
    sizes, chances = np.array([55, 75, 100]), np.array([0.5, 0.3, 0.5])
    return rng.negative_binomial(sizes[c], chances[c]).astype(float)[:, None], c


def skew_normal_mixture_50d(num_rows: int = 10_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    r"""Three skew normals in 50 dimensions, weights .7, .2, .1: data (N, 50) and labels.

    :math:`(u_0, u) \sim N(0, \Sigma^*)`, x = mean + sign(u_0) u: the sign is taken before the mean
    is added (the published script adds it first, which leaves two of the components Normal).
    Correlations :math:`e^{-(i-j)^2 / 0.36}`.
    """
    rng = np.random.default_rng(seed)
    c = _labels(num_rows, (0.7, 0.2, 0.1), rng)
    place = np.arange(50)
    correlation = np.exp(-((place[:, None] - place) ** 2) / 0.6**2)
    x = np.empty((num_rows, 50))
    for k, (mean, skew) in enumerate(
        [((1, 0.5), (2, 1)), ((6, 0.5), (4, 1)), ((10, 0.5), (10, 1))]
    ):
        centre, alpha = rng.normal(*mean, size=50), rng.normal(*skew, size=50)
        delta = correlation @ alpha / math.sqrt(1 + alpha @ correlation @ alpha)
        joint = np.block([[np.ones((1, 1)), delta[None]], [delta[:, None], correlation]])
        draws = rng.multivariate_normal(np.zeros(51), joint, size=int((c == k).sum()))
        x[c == k] = centre + np.sign(draws[:, :1]) * draws[:, 1:]
    return x, c


def thresholded_normals(num_rows: int = 10_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Four classes (.3, .3, .2, .2) of 10 binary columns, correlated inside a class: data (N, 10)
    and labels.

    Column j of class k is 1 where a Normal with mean 1.5 or -1.5 (a pattern of the class) and
    correlation 0.3 is positive. Our own settings: the published ones are not stated.
    """
    rng = np.random.default_rng(seed)
    c = _labels(num_rows, (0.3, 0.3, 0.2, 0.2), rng)
    pattern = np.array([[(k >> (j % 2)) & 1 for j in range(10)] for k in range(4)])
    common = rng.standard_normal((num_rows, 1))
    noise = math.sqrt(0.3) * common + math.sqrt(0.7) * rng.standard_normal((num_rows, 10))
    return ((3.0 * pattern[c] - 1.5 + noise) > 0).astype(float), c
