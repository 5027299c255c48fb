"""The study of overparameterization: numbers by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from inference import EM, fit
from inference.inspection import recovery
from inference.selection import overparameterization
from inference.selection.overparameterization import study_frame, wilson_interval
from ppl_models import NoisyOr
from ppl_models.datasets import sample_noisy_or
from ppl_models.datasets.noisy_or import random_design


@pytest.mark.parametrize(("count", "total"), [(0, 20), (7, 20), (20, 20)])
def test_wilson(count: int, total: int) -> None:
    expected = stats.binomtest(count, total).proportion_ci(method="wilson")
    assert wilson_interval(count, total) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_numbers_of_a_study() -> None:
    """Every start matched by itself, the best by its objective; the search beside them."""
    truth = random_design(5, seed=1, num_latents=3, num_items=12)
    rows, _ = sample_noisy_or(truth, 1400, seed=1)
    data, held_out = rows[:1000], rows[1000:]
    method = EM(max_iterations=150, tolerance=1e-5)
    small, large = overparameterization(
        lambda m: NoisyOr(12, m), data, truth, (3, 4), method, 8, held_out, seed=2
    )
    result = fit(NoisyOr(12, 3), data, method, init="random", num_restarts=8, seed=2)
    found = [
        recovery(
            {name: value[r] for name, value in result.restarts.params.items()}, truth
        ).num_recovered
        for r in range(8)
    ]
    assert small.recovered == pytest.approx(np.mean(found))
    assert small.full_share == pytest.approx(np.mean(np.array(found) == 3))
    low, high = (
        stats.t.interval(0.95, 7, loc=np.mean(found), scale=stats.sem(found))
        if np.std(found)
        else (small.recovered,) * 2
    )
    assert small.recovered_ci95 == pytest.approx((high - low) / 2)
    assert small.objective == pytest.approx(result.objective)
    assert small.held_out == pytest.approx(float(result.log_likelihood_rows(held_out).mean()))
    assert small.best_recovered == recovery(result.params, truth).num_recovered
    assert small.best_lost == pytest.approx(recovery(result.params, truth).lost_share)
    assert list(study_frame([small, large])["num_latents"]) == [3, 4]
    (search,) = overparameterization(lambda m: NoisyOr(12, m), data, truth, (5,), None, 2, seed=2)
    assert search.recovered == 3
    assert search.full_share == 1
    assert math.isnan(search.held_out)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wilson_interval(3, 2), "0 <= count <= total"),
        (
            lambda: overparameterization(lambda m: NoisyOr(2, m), None, {}, ()),
            "at least one number of latents",
        ),
        (
            lambda: overparameterization(lambda m: NoisyOr(2, m), None, {}, (2,), num_restarts=1),
            "at least 2",
        ),
    ],
)
def test_bad_input(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
