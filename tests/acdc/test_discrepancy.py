"""Estimators of discrepancy against known divergences, published nulls, and their own null
tables.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import xlogy

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


@pytest.mark.parametrize("periodic", [False, True])
def test_kde_is_the_divergence_of_sums_of_kernels(periodic):
    """Epanechnikov kernels at the cells of the grid, summed one by one, both ends joined or
    reflected.
    """
    scores = np.random.default_rng(3).normal(0.3, 1.2, (40, 2))
    u, grid = stats.norm.cdf(scores), 2048
    expected = []
    for column in u.T:
        quarter, three = np.quantile(column, (0.25, 0.75))
        spread = min(column.std(ddof=1), (three - quarter) / 1.34)
        width = np.sqrt(5) * 0.9 * spread * 40**-0.2 * grid
        cells = np.floor(column * grid)
        places = cells[:, None] + grid * np.arange(-1, 2)
        if not periodic:
            places = np.concatenate([cells, -1 - cells, 2 * grid - 1 - cells])[:, None]
        gaps = (np.arange(grid) - places.reshape(-1, 1)) / width
        density = np.maximum(1 - gaps**2, 0).sum(0)
        density /= density.mean()
        expected.append(xlogy(density, density).mean())
    assert KDE(periodic=periodic).columns(scores) == pytest.approx(expected, abs=1e-12)


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
