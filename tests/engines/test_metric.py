"""The mass matrix that points and slopes give."""

from __future__ import annotations

import numpy as np
import pytest

from inference.engines.metric import adapted


def normal_window(covariance: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Draws of a normal distribution and the slopes of its density there, (count, 2, P)."""
    draws = (
        np.random.default_rng(seed).standard_normal((count, len(covariance)))
        @ np.linalg.cholesky(covariance).T
    )
    return np.stack([draws, -draws @ np.linalg.inv(covariance)], 1)


def a_covariance(size: int, seed: int) -> np.ndarray:
    root = np.random.default_rng(seed).standard_normal((size, size))
    return root @ root.T / size + 0.1 * np.eye(size)


@pytest.mark.parametrize("count", [3, 20, 400])
def test_a_metric_that_is_right_stays_whatever_the_draws(count):
    """Chance in the points is chance in the slopes; the spread of the points alone would be off by
    a factor of ten.
    """
    truth = a_covariance(12, 0)
    got = adapted(truth, [normal_window(truth, count, seed) for seed in (1, 2)])
    np.testing.assert_allclose(got, truth, rtol=1e-8, atol=1e-10)
    diagonal = np.array([0.01, 1.0, 50.0])
    got = adapted(diagonal, [normal_window(np.diag(diagonal), count, 3)])
    np.testing.assert_allclose(got, diagonal, rtol=1e-9)


def test_a_wrong_metric_comes_near_the_truth_in_a_few_windows():
    truth = a_covariance(12, 4)
    metric = np.eye(12)
    for seed in range(4):
        metric = adapted(metric, [normal_window(truth, 30, 10 * seed + c) for c in range(4)])
    ratio = np.linalg.eigvalsh(np.linalg.solve(truth, metric))
    assert ratio.min() > 0.9
    assert ratio.max() < 1.1
    spread = np.linalg.eigvalsh(
        np.linalg.solve(truth, np.cov(normal_window(truth, 120, 0)[:, 0].T))
    )
    assert spread.max() / spread.min() > 2  # of as many points alone


def test_it_is_the_same_in_other_units():
    truth, units = a_covariance(6, 5), np.diag(10.0 ** np.arange(-3, 3))
    window = normal_window(truth, 8, 6)
    other = np.stack([window[:, 0] @ units, window[:, 1] @ np.linalg.inv(units)], 1)
    np.testing.assert_allclose(
        adapted(units @ units, [other]), units @ adapted(np.eye(6), [window]) @ units, rtol=1e-6
    )


def test_nothing_to_learn_from_leaves_it():
    metric = a_covariance(4, 7)
    assert adapted(metric, []) is metric
    assert adapted(metric, [normal_window(metric, 1, 0)]) is metric
