"""Mixtures of correlated columns that ACDC is tried on."""

from __future__ import annotations

import math

import numpy as np

from ppl_models.datasets.mixtures import component_labels


def skew_normal_mixture_50d(num_rows: int = 10_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    r"""Three skew normals in 50 dimensions, weights .7, .2, .1: data (N, 50) and labels.

    :math:`(u_0, u) \sim N(0, \Sigma^*)`, x = mean + sign(u_0) u: the sign is taken before the mean
    is added (the published script adds it first, which leaves two of the components Normal).
    Correlations :math:`e^{-(i-j)^2 / 0.36}`.
    """
    rng = np.random.default_rng(seed)
    c = component_labels(num_rows, (0.7, 0.2, 0.1), rng)
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
    c = component_labels(num_rows, (0.3, 0.3, 0.2, 0.2), rng)
    pattern = np.array([[(k >> (j % 2)) & 1 for j in range(10)] for k in range(4)])
    common = rng.standard_normal((num_rows, 1))
    noise = math.sqrt(0.3) * common + math.sqrt(0.7) * rng.standard_normal((num_rows, 10))
    return ((3.0 * pattern[c] - 1.5 + noise) > 0).astype(float), c
