"""Counts and residuals split among components; scores are normal under the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from inference.base.component_noise import (
    gaussian_split,
    negative_binomial_scores,
    poisson_scores,
    poisson_split,
)


def test_splits_sum_to_the_counts_and_follow_the_rates():
    rng = np.random.default_rng(0)
    counts, rates = (
        np.full((20_000, 1), 12.0),
        np.array([[[1.0], [0.0], [3.0], [2.0]]]).repeat(20_000, 0),
    )
    y = poisson_split(counts, rates, rng)
    assert (y.sum(1) == counts).all()
    assert (y[:, 1] == 0).all()
    for k, p in ((0, 1 / 6), (2, 1 / 2), (3, 1 / 3)):
        observed = np.bincount(y[:, k, 0].astype(int), minlength=13)
        expected = 20_000 * stats.binom.pmf(np.arange(13), 12, p)
        kept = expected > 5
        assert (((observed - expected) ** 2 / expected)[kept]).sum() < stats.chi2.isf(
            1e-6, kept.sum()
        )


@pytest.mark.parametrize("rate", [1e-3, 0.7, 5.0, 1e4])
def test_poisson_scores_are_normal_under_the_model(rate):
    rng = np.random.default_rng(1)
    scores = poisson_scores(rng.poisson(rate, 10_000).astype(float), np.full(10_000, rate), rng)
    assert stats.kstest(scores, "norm").pvalue > 1e-5


def test_far_tails_have_no_atoms():
    rng = np.random.default_rng(2)
    far = poisson_scores(np.full(100, 200.0), np.ones(100), rng)
    assert np.isfinite(far).all()
    assert far.min() > 8.2  # beyond what a double can say as a probability
    assert len(np.unique(far)) == 100
    assert np.isfinite(poisson_scores(np.zeros(10), np.full(10, 1e4), rng)).all()
    assert (
        stats.kstest(poisson_scores(np.zeros(5000), np.zeros(5000), rng), "norm").pvalue > 1e-5
    )  # no rate, no information


def test_gaussian_split_equals_the_sequential_one():
    """Mean and covariance of the components given their sum, from the joint normal."""
    scales, residual = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64), 1.7
    draws = gaussian_split(
        torch.tensor([[residual]], dtype=torch.float64),
        scales,
        torch.Generator().manual_seed(0),
        200_000,
    )
    y = (draws[:, 0, :, 0] * scales[:, 0]).numpy()
    assert np.allclose(y.sum(1), residual)
    variances = np.array([0.25, 1.0, 4.0])
    share = variances / variances.sum()
    covariance = np.diag(variances) - np.outer(variances, variances) / variances.sum()
    # the sequential recipe of the first component, then of the second given the first
    first = (residual / variances[1:].sum()) / (1 / variances[0] + 1 / variances[1:].sum())
    assert first == pytest.approx(share[0] * residual)
    assert np.allclose(y.mean(0), share * residual, atol=0.02)
    assert np.allclose(np.cov(y.T), covariance, atol=0.02)


# ---------------------------------------------------------------- negative binomial counts


@pytest.mark.parametrize(("mean", "size"), [(1e-3, 2.0), (0.7, 0.3), (5.0, 4.0), (1e4, 5.0)])
def test_scores_are_normal_under_the_model(mean, size):
    rng = np.random.default_rng(1)
    y = rng.poisson(rng.gamma(size, mean / size, 10_000)).astype(float)
    scores = negative_binomial_scores(y, np.full(10_000, mean), size, rng)
    assert stats.kstest(scores, "norm").pvalue > 1e-5
    far = negative_binomial_scores(np.full(50, 4000.0), np.ones(50), 5.0, rng)
    assert np.isfinite(far).all()
    assert len(np.unique(far)) == 50
