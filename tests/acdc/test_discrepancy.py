"""Estimators of discrepancy against known divergences, published nulls, and their own null
tables.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from inference.acdc import KDE, KNN, Histogram
from inference.acdc.discrepancy import null_moments


@pytest.mark.parametrize(("n", "mean"), [(214, 0.4427), (1000, 0.1494), (5000, 0.0471)])
def test_kde_null_equals_the_published_one(n, mean):
    """tests/references: sum over 96 columns of exactly uniform noise, by an independent
    implementation.
    """
    rng = np.random.default_rng(n)
    values = [KDE(periodic=True).columns(rng.standard_normal((n, 96))).sum() for _ in range(4)]
    sd = {214: 0.037, 1000: 0.012, 5000: 0.002}[n]
    assert abs(np.mean(values) - mean) < 3 * sd / 2 + 0.01 * mean


def test_knn_is_near_zero_on_exact_noise_and_near_truth_off_it():
    rng = np.random.default_rng(0)
    assert abs(KNN().columns(rng.standard_normal((5000, 1)))[0]) < 0.02
    shifted = rng.standard_normal((5000, 1)) + 0.7
    assert KNN().columns(shifted)[0] == pytest.approx(0.245, abs=0.06)
    both = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 5000)
    assert KNN(jointly=True).columns(both)[0] == pytest.approx(
        -0.5 * np.log(1 - 0.64), abs=0.08
    )  # what marginals miss
    assert abs(KNN().columns(both).sum()) < 0.06
    column = both[:500, :1]  # sorting and trees find the same neighbours
    assert KNN().columns(column)[0] == pytest.approx(
        KNN(jointly=True).columns(column)[0], abs=1e-10
    )


@pytest.mark.parametrize("estimator", [KDE(), Histogram()])
def test_a_known_divergence_on_the_unit_interval(estimator):
    """Density 2u: the divergence from uniform is log 2 - 1/2."""
    u = np.sqrt(np.random.default_rng(1).random((20_000, 1)))
    assert estimator.columns(stats.norm.ppf(u))[0] == pytest.approx(np.log(2) - 0.5, abs=0.01)


@pytest.mark.parametrize("estimator", [KDE(), Histogram(10), KNN(), KDE(mean=True)])
@pytest.mark.parametrize("n", [20, 147, 2000])
def test_the_null_table_is_the_estimators_own_mean(estimator, n):
    mean, sd = null_moments(estimator, n, 12)
    rng = np.random.default_rng(n)
    reduce = np.mean if estimator.mean else np.sum
    values = [reduce(estimator.columns(rng.standard_normal((n, 12)))) for _ in range(60)]
    assert abs(np.mean(values) - mean) < 5 * sd / 60**0.5 + 0.02 * abs(mean)
    assert np.std(values) == pytest.approx(sd, rel=0.5)
