"""Metrics of recovery, on values computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from support.encoder_names import describe

from inference.base.align import match_columns
from inference.metrics import (
    empty_graph_accuracy,
    f_measure,
    graph_accuracy,
    match_components,
    mean_squared_error,
    rmse,
    soft_adjusted_rand_index,
    trimmed_rmse,
)

# ---------------------------------------------------------------- metrics


def test_metrics_on_hand_computed_values() -> None:
    layers, _ = describe((3, 2, 1))
    truth = {
        "loadings_1": torch.tensor([[1.0, 0], [0, 2], [0, -3]], dtype=torch.float64),
        "loadings_2": torch.tensor([[4.0], [0]], dtype=torch.float64),
    }
    estimate = {
        "loadings_1": torch.tensor([[0.5, 0], [0.2, 2], [0, 0.1]], dtype=torch.float64),
        "loadings_2": torch.tensor([[3.0], [0.3]], dtype=torch.float64),
    }
    # edges at threshold 0.2: (0,0) (1,0) (1,1) | (0,0) (1,0); true: (0,0) (1,1) (2,1) | (0,0):
    # three wrong of eight
    assert graph_accuracy(estimate, truth, layers, threshold=0.2) == pytest.approx(5 / 8)
    assert graph_accuracy(estimate, truth, layers[1:], threshold=0.2) == pytest.approx(1 / 2)
    assert graph_accuracy(estimate, truth, layers) == pytest.approx(
        6 / 8
    )  # threshold 0: every nonzero is an edge
    assert empty_graph_accuracy(truth, layers) == pytest.approx(4 / 8)
    # squares: .25 + .04 + 3.1^2 + 1 + .09
    assert mean_squared_error(estimate, truth) == pytest.approx((0.25 + 0.04 + 9.61 + 1 + 0.09) / 8)
    assert rmse(estimate, truth) == pytest.approx(math.sqrt(10.99 / 8))
    assert graph_accuracy(truth, truth, layers) == 1


def test_trimmed_rmse_by_hand() -> None:
    # median 3, absolute deviations 2 1 0 1 97, MAD 1, cut 4.4478: only 100 is dropped
    result = trimmed_rmse([1.0, 2.0, 3.0, 4.0, 100.0])
    assert result.trimmed == pytest.approx(math.sqrt(2.5))
    assert result.untrimmed == pytest.approx(math.sqrt(22))
    assert result.num_dropped == 1
    one = trimmed_rmse(torch.tensor([4.0]))
    assert (one.trimmed, one.untrimmed, one.num_dropped) == (2.0, 2.0, 0)


# ---------------------------------------------------------------- bad input


def test_bad_input_of_matching_and_metrics() -> None:
    matrix = torch.ones(4, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="at least 2 columns"):
        match_columns(matrix[:, :1], matrix)
    with pytest.raises(ValueError, match="must have 4 rows"):
        match_columns(matrix[:3], matrix)
    with pytest.raises(ValueError, match="estimate must be finite"):
        match_columns(matrix * math.nan, matrix)
    with pytest.raises(ValueError, match="reference must be a matrix"):
        match_columns(matrix, matrix[0])
    layers, _ = describe((4, 2))
    with pytest.raises(ValueError, match="threshold must not be negative"):
        graph_accuracy({"loadings_1": matrix}, {"loadings_1": matrix}, layers, -1.0)
    with pytest.raises(ValueError, match="loadings_1 must have the truth's shape"):
        graph_accuracy({"loadings_1": matrix.mT}, {"loadings_1": matrix}, layers)
    with pytest.raises(ValueError, match="truth must hold the site 'loadings_1'"):
        empty_graph_accuracy({}, layers)
    with pytest.raises(ValueError, match="must hold the sites"):
        mean_squared_error({"loadings_1": matrix}, {"loadings_2": matrix})
    for errors in ([], [-1.0], [math.nan], [[1.0]]):
        with pytest.raises(ValueError, match="trimmed_rmse"):
            trimmed_rmse(errors)


# ---------------------------------------------------------------- components and labels


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_soft_rand_index_is_the_ordinary_one_on_labels(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 4, 60), rng.integers(0, 3, 60)
    b[:30] = a[:30] % 3
    assert soft_adjusted_rand_index(np.eye(4)[a], np.eye(3)[b]) == pytest.approx(
        adjusted_rand_score(a, b), abs=1e-12
    )
    soft = rng.dirichlet(np.ones(3), 60)
    assert soft_adjusted_rand_index(soft, soft) < 1


@pytest.mark.parametrize("num", [2, 3, 5])
def test_matching_fewer_as_many_and_more(num):
    truth = np.eye(3) + 0.01
    estimate = np.concatenate([truth[[2, 0, 1]], np.full((2, 3), 1.0)])[:num]
    match = match_components(estimate, truth)
    assert match.cosine_error.max() < 1e-12
    assert match.true.tolist() == ([0, 2] if num == 2 else [0, 1, 2])
    assert match.estimated.tolist() == ([1, 0] if num == 2 else [1, 2, 0])
    assert len(match.unmatched_estimates) == max(0, num - 3)
    assert len(match.unmatched_truths) == max(0, 3 - num)


def test_f_measure_by_hand():
    assert f_measure([0, 0, 1, 1], [5, 5, 7, 7]) == 1.0
    assert f_measure([0, 0, 0, 1], [5, 5, 7, 7]) == pytest.approx((0.8 * 2 + 2 / 3 * 2) / 4)
    assert f_measure([0, 0, 1, 9], [5, 5, 7, 0], unlabelled=0) == 1.0
