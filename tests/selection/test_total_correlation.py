"""Bounds of the total correlation: which side they lie on, their errors, the plug-in, and
independence inside components.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from inference.selection import Discriminator, conditional_independence, total_correlation
from inference.selection.discriminator import (
    COPIES,
    HeldOutScores,
    _area,
    _bounds,
    held_out_scores,
)
from ppl_models.datasets import simulate_checkerboard, simulate_trivariate, simulate_two_gaussians

SMALL = Discriminator(hidden=(32,), num_folds=2, max_epochs=15, patience=3)


def scored_by(sample, score, seed):
    """Held-out scores where the discriminator is a given function of a table."""
    generator = torch.Generator().manual_seed(seed)
    num_rows, num_variates = sample.data.shape
    sources = torch.stack(
        [
            torch.stack(
                [torch.randperm(num_rows, generator=generator) for _ in range(num_variates)]
            )
            for _ in range(COPIES)
        ]
    )
    data = torch.as_tensor(sample.data)
    shuffled = torch.stack(
        [
            torch.as_tensor(
                score(torch.stack([data[rows, v] for v, rows in enumerate(copy)], 1).numpy())
            )
            for copy in sources
        ]
    )
    return HeldOutScores(torch.as_tensor(score(sample.data)), shuffled, sources)


@pytest.mark.parametrize("simulate", [simulate_two_gaussians, simulate_trivariate])
def test_the_exact_log_ratio_meets_both_bounds_with_the_stated_errors(simulate):
    found = np.array(
        [
            _bounds(scored_by(sample, sample.truth.log_ratio, 7))
            for sample in (simulate(1000, seed=s) for s in range(60))
        ]
    )
    exact = simulate(10).truth.total_correlation()
    for mean, error in ((0, 1), (2, 3)):
        assert abs(found[:, mean].mean() - exact) < 4 * found[:, mean].std() / math.sqrt(60)
        assert found[:, error].mean() == pytest.approx(
            found[:, mean].std(), rel=0.35
        )  # of 60 data sets


def test_a_wrong_score_stays_below():
    """Any function bounds C* from below: half of the log-ratio, and one of noise."""
    sample = simulate_two_gaussians(40_000, seed=3)
    exact = sample.truth.total_correlation()
    for score in (
        lambda x: 0.5 * sample.truth.log_ratio(x),
        lambda x: 2 * sample.truth.log_ratio(x),
        lambda x: np.sin(x.sum(1)),
    ):
        dv, dv_error, nwj, nwj_error = _bounds(scored_by(sample, score, 1))
        assert dv < exact - 3 * dv_error
        assert nwj <= dv
        assert nwj < exact - 3 * nwj_error


def test_a_trained_discriminator_bounds_from_below():
    sample = simulate_two_gaussians(4000, seed=1)
    exact = sample.truth.total_correlation()
    found = total_correlation(sample.data, SMALL)
    assert 0.5 * exact < found.donsker_varadhan < exact + 3 * found.donsker_varadhan_error
    assert found.nwj <= found.donsker_varadhan
    assert found.is_bound
    assert found.estimate == found.donsker_varadhan
    assert total_correlation(sample.data, SMALL) == found
    assert "bound it from below" in found.text()
    rng = np.random.default_rng(0)
    nothing = total_correlation([rng.normal(size=2000), rng.normal(size=(2000, 3))], SMALL)
    assert abs(nothing.donsker_varadhan) < 4 * nothing.donsker_varadhan_error + 0.02


def test_plug_in_is_the_sum_over_cells():
    """Against a direct sum; its bias to first order is taken off, so that independent counts give
    zero on the average.
    """
    rng = np.random.default_rng(1)
    x, y, z = rng.integers(0, 3, 400), rng.integers(0, 2, 400), rng.integers(0, 2, 400)
    y = np.where(rng.random(400) < 0.6, x % 2, y)
    data = np.column_stack([x, y, z])
    direct = 0.0
    cells = {tuple(row) for row in data.tolist()}
    for cell in cells:
        share = (data == cell).all(1).mean()
        direct += share * math.log(
            share / math.prod((data[:, v] == cell[v]).mean() for v in range(3))
        )
    degrees = len(cells) - 1 - 2 - 1 - 1
    found = total_correlation(data)
    assert found.plug_in == pytest.approx(direct - degrees / 800, abs=1e-12)
    assert found.donsker_varadhan is None
    assert not found.is_bound
    independent = [
        total_correlation(np.random.default_rng(s).integers(0, 4, (400, 2))).plug_in
        for s in range(200)
    ]
    assert abs(np.mean(independent)) < 4 * np.std(independent) / math.sqrt(200)
    board = simulate_checkerboard(3000, seed=2)
    assert total_correlation(np.floor(board.data)).estimate == pytest.approx(math.log(2), abs=0.01)


def test_scores_are_of_rows_not_seen():
    """With labels that nothing can predict a network that had seen its rows would still know
    them.
    """
    rng = np.random.default_rng(0)
    parts = [torch.as_tensor(rng.normal(size=(200, 5)), dtype=torch.float32) for _ in range(2)]
    scores = held_out_scores(parts, Discriminator(num_folds=2, patience=60), 0)
    area, error = _area(scores)
    assert abs(area - 0.5) < 4 * error
    assert scores.sources.shape == (COPIES, 2, 200)
    assert torch.equal(scores.sources.sort(-1).values, torch.arange(200).expand(COPIES, 2, 200))


def test_area_under_the_curve_by_hand():
    rng = np.random.default_rng(2)
    rows, shuffled = (
        torch.as_tensor(rng.integers(0, 5, 12).astype(float)),
        torch.as_tensor(rng.integers(0, 5, (COPIES, 12)).astype(float)),
    )
    sources = torch.stack(
        [torch.stack([torch.randperm(12) for _ in range(2)]) for _ in range(COPIES)]
    )
    area, _ = _area(HeldOutScores(rows, shuffled, sources))
    pairs = [(r > s) + 0.5 * (r == s) for r in rows.tolist() for s in shuffled.ravel().tolist()]
    assert area == pytest.approx(np.mean(pairs))


def test_variates_of_a_component_are_tested_by_drawn_rows():
    sample = simulate_two_gaussians(3000, seed=1)
    right = conditional_independence(sample.data, sample.truth.aggregate(sample.data), SMALL)
    assert [own.verdict for own in right] == ["no dependence found"] * 2
    one = conditional_independence(sample.data, np.ones((3000, 1)), SMALL)
    assert one[0].verdict == "dependent"
    assert "more components" in one[0].text()
    few = conditional_independence(sample.data[:150], np.ones((150, 1)), SMALL)
    assert few[0].verdict == "too few rows"
    assert "at least 200" in few[0].text()


def test_refusals():
    good = np.zeros((60, 2))
    for variates, message in (
        (good[:, :1], "at least two variates"),
        ([good[:, 0], good[:30, 1]], "60 rows were expected in variate 1"),
        ([good[:, 0], np.full(60, np.nan)], "variate 1 has a missing or infinite entry"),
        ([good[:, 0], 3.0], "variate 1 must hold rows"),
    ):
        with pytest.raises(ValueError, match=message):
            total_correlation(variates)
    with pytest.raises(ValueError, match="at least 50 rows were expected for 5 folds"):
        total_correlation(np.random.default_rng(0).normal(size=(40, 2)))
    with pytest.raises(ValueError, match="discriminator must be"):
        total_correlation(good, "trees")
    with pytest.raises(ValueError, match="responsibilities of shape"):
        conditional_independence(good, np.ones((3, 1)))
    with pytest.raises(ValueError, match="chances that sum to 1"):
        conditional_independence(good, np.ones((60, 2)))
    for settings, message in (
        ({"hidden": ()}, "at least one layer"),
        ({"num_folds": 1}, "2 or more"),
        ({"learning_rate": 0.0}, "be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            Discriminator(**settings)
