"""Mixtures whose components are not what a model would take them for, with known labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ppl_models.parts.validation import Seed, as_seed, is_integer


def component_labels(
    num_rows: int, weights: Sequence[float], rng: np.random.Generator
) -> np.ndarray:
    """Draw component labels, (N,)."""
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
    seed: Seed = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Simulate a skew-normal mixture of scale 1 (Azzalini 1985): data (N, 1), labels (N,).

    Args:
        locations, skewness, weights: of the components, (K,) each.
        num_rows: N.
        seed: of the draws.

    Raises:
        ValueError: for settings of unequal lengths, weights that do not sum to 1, or no rows.
    """
    seed = as_seed("skew_normal_mixture", seed)
    if not len(locations) == len(skewness) == len(weights):
        raise ValueError(
            f"locations, skewness and weights must have one length, got {len(locations)},"
            f" {len(skewness)}, {len(weights)}"
        )
    rng = np.random.default_rng(seed)
    c = component_labels(num_rows, weights, rng)
    shape = np.asarray(skewness, float)[c]
    delta = shape / np.sqrt(1 + shape**2)
    x = delta * np.abs(rng.standard_normal(num_rows)) + np.sqrt(1 - delta**2) * rng.standard_normal(
        num_rows
    )
    return (np.asarray(locations, float)[c] + x)[:, None], c


def negative_binomial_mixture(
    num_rows: int = 20_000, seed: Seed = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Simulate a mixture of three negative binomials: data (N, 1) and labels.

    Sizes 55, 75, 100, success chances .5, .3, .5, weights .3, .3, .4.

    Args:
        num_rows: N.
        seed: of the draws.
    """
    seed = as_seed("negative_binomial_mixture", seed)
    rng = np.random.default_rng(seed)
    c = component_labels(num_rows, (0.3, 0.3, 0.4), rng)
    sizes, chances = np.array([55, 75, 100]), np.array([0.5, 0.3, 0.5])
    return rng.negative_binomial(sizes[c], chances[c]).astype(float)[:, None], c
