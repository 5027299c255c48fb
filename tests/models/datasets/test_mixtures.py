"""Generators of mixtures against their distributions."""

from __future__ import annotations

import numpy as np
import pytest
from papers.mixtures import skew_normal_mixture_50d, thresholded_normals
from scipy import stats

from ppl_models.datasets import negative_binomial_mixture, skew_normal_mixture


def test_mixture_generators():
    x, labels = skew_normal_mixture((0.0,), (-10.0,), (1.0,), 40_000, 1)
    distribution = stats.skewnorm(-10)
    assert x.mean() == pytest.approx(distribution.mean(), abs=0.02)
    assert stats.skew(x[:, 0]) == pytest.approx(float(distribution.stats("s")), abs=0.1)
    counts, labels = negative_binomial_mixture(30_000, 0)
    for k, (size, chance) in enumerate([(55, 0.5), (75, 0.3), (100, 0.5)]):
        assert counts[labels == k].mean() == pytest.approx(
            stats.nbinom.mean(size, chance), rel=0.02
        )
    wide, labels = skew_normal_mixture_50d(2000, 0)
    assert wide.shape == (2000, 50)
    assert (
        abs(stats.skew((wide[labels == 2])[:, :]).mean()) > 0.02
    )  # not Normal, as in the published script
    bits, labels = thresholded_normals(5000, 0)
    assert set(np.unique(bits)) == {0.0, 1.0}
    assert len(np.unique(labels)) == 4
