"""Loss curves against a fine grid, and choices from discrepancies written by hand."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest

from inference import fit
from inference.acdc import AcdcResult, Bootstrap, acdc
from inference.acdc.choice import (
    best_segments,
    clear_step,
    discrepancy_left,
    loss,
    shares_taken,
    taken_beyond,
)
from inference.report import write_selection_report
from inference.report.components import why
from ppl_models import PoissonFactorization

# ---------------------------------------------------------------- loss curves


@pytest.mark.parametrize("seed", range(5))
def test_segments_equal_a_fine_grid(seed):
    rng = np.random.default_rng(seed)
    d = {k: rng.gamma(1.0, 2.0 / k, size=k) * (rng.random(k) < 0.8) for k in (1, 2, 3, 5, 8)}
    w = {k: rng.dirichlet(np.ones(k)) if seed % 2 else np.ones(k) for k in d}
    segments = best_segments(d, w, 0.01)
    assert segments[0].start == 0.0
    assert segments[-1].end == pytest.approx(max(v.max() for v in d.values()) + 1)
    assert all(
        a.end == b.start and a.num_components != b.num_components
        for a, b in itertools.pairwise(segments)
    )
    grid = np.linspace(0, segments[-1].end, 10_000, endpoint=False)
    curves = np.array([loss(d[k], w[k], 0.01, grid) for k in d])
    place = np.array(
        [next(s for s in segments if s.start <= r < s.end).num_components for r in grid]
    )
    own = np.array([curves[list(d).index(k), i] for i, k in enumerate(place)])
    assert np.abs(own - curves.min(0)).max() < 1e-9


def test_ties_take_the_smaller_number():
    d = {2: np.zeros(2), 3: np.zeros(3), 4: np.zeros(4)}
    w = {k: np.ones(k) for k in d}
    assert [s.num_components for s in best_segments(d, w, 0.0)] == [2]


# ---------------------------------------------------------------- choices


def result_of(d: dict[int, np.ndarray], sd: float = 0.01) -> AcdcResult:
    nothing, spread = {k: np.zeros(k) for k in d}, {k: np.full(k, sd) for k in d}
    ones = {k: np.ones(k) for k in d}
    segments = best_segments(d, ones, 0.01)
    return AcdcResult(
        d, nothing, spread, d, ones, ones, dict.fromkeys(d), 0.01, 0.5, segments, "by hand", {}
    )


def test_choices_by_width_and_by_cutoff():
    result = result_of({1: np.array([3.0]), 2: np.array([0.3, 0.2]), 3: np.array([0.04, 0.0, 0.0])})
    assert result.left == pytest.approx({1: 3.0, 2: 0.5, 3: 0.04 + 2 * 0.01645})
    assert result.shares == pytest.approx({2: 5 / 6, 3: 1 - (0.04 + 2 * 0.01645) / 0.5})
    assert result.select(rho=0.0).num_components == 3
    assert result.select(rho=0.5).num_components == 2
    assert result.select(rho=50.0).num_components == 1
    assert (result.chosen, result.select().finished) == (3, False)  # the largest compared
    assert result.select(0.835).num_components == 3
    assert result.select(0.9).num_components == 1
    assert result.select(min_width=0.1).num_components == 3
    assert result.select(min_width=1.0).num_components == 2
    assert result.select(rho=0.6).finished
    assert "by the cutoff of 0.6 nats" in str(result.select(rho=0.6))
    assert "by the last clear step" in str(result.select())
    assert "stable" not in str(result.select())
    assert not result.select(rho=0.29).finished  # half of it chooses three
    loose = result.select(min_width=100.0)  # none so wide: the widest bounded one, flagged
    assert (loose.num_components, loose.finished) == (2, False)
    assert result.sensitivity() == dict.fromkeys((0.4, 0.45, 0.5, 0.55, 0.6), 3)
    assert list(result.table.index) == [1, 2, 3]
    assert result.table.chosen.tolist() == [False, False, True]
    assert len(result.to_frame()) == 6


def test_a_slow_descent_beyond_the_choice_is_told():
    d = {2: np.array([9.0, 9.0]), 3: np.array([2.0, 2.0, 2.0]), 4: np.array([2.0, 2.0, 0.1, 0.1])}
    d |= {5: np.array([2.0, 0.3, 0.3, 0.1, 0.1]), 6: np.full(6, 0.3)}
    slow = result_of(d)
    assert slow.chosen == 3
    assert taken_beyond(slow.left, 3) == (6, pytest.approx(1 - 1.8 / 6))
    assert taken_beyond(slow.left, 6) == (6, 0.0)
    words = " ".join(why(slow, 3))
    assert "up to K = 6, take away 70% of it" in words
    assert "K = 6 from 0.00 to 1.99" in words
    plain = result_of(
        {2: np.array([9.0, 9.0]), 3: np.array([2.0, 2.0, 2.0]), 4: np.array([2.0, 2.0, 1.5, 0.1])}
    )
    assert "until then nothing is said of the distribution" in " ".join(why(plain, 3))
    assert "it contradicts this distribution with this number" in " ".join(
        why(dataclasses.replace(plain, refitted=True), 3)
    )


@pytest.mark.parametrize(
    ("left", "chosen", "finished"),
    [
        (
            {1: 9.5, 2: 3.5, 3: 0.75, 4: 0.36, 5: 0.17},
            3,
            True,
        ),  # one run of clear steps: its steepest
        (
            {1: 48.0, 2: 13.0, 3: 3.0, 4: 1.9, 5: 1.1, 6: 0.25, 7: 0.22},
            6,
            True,
        ),  # two runs: the last
        ({1: 48.0, 2: 13.0, 3: 3.0, 4: 1.9, 5: 1.1, 6: 0.25}, 3, False),  # the last is not finished
        ({1: 4.0, 2: 1.5, 3: 0.1}, 3, False),
        ({1: 1.0, 2: 0.9, 3: 0.7}, None, True),
        ({1: 1.0, 2: 3.0, 3: 0.9, 4: 0.8}, None, True),  # a poor fit on the way makes no step
        ({1: 1.0, 2: 3.0, 3: 0.1, 4: 0.1}, 3, True),
        (
            {2: 1.0, 4: 0.3, 6: 0.3},
            None,
            True,
        ),  # two components between them: each takes less than half
        ({2: 1.0, 4: 0.2, 6: 0.2}, 4, True),
        ({4: 0.3}, None, True),
    ],
)
def test_the_last_clear_step(left, chosen, finished):
    assert clear_step(shares_taken(left)) == (chosen, finished)


def test_what_cannot_be_told_from_noise_makes_no_step():
    d = {k: np.full(k, value) for k, value in ((1, 1.0), (2, 0.3), (3, 0.01), (4, 0.0))}
    assert result_of(d, sd=0.0025).chosen == 3
    assert result_of(d, sd=0.2).chosen == 1
    many = result_of({k: np.zeros(k) for k in (1, 2, 3)}, sd=0.05)
    assert (many.chosen, many.select().finished) == (1, True)
    stuck = result_of({1: np.ones(1), 2: np.full(2, 0.4)})
    assert (stuck.chosen, stuck.select().finished) == (1, False)
    nan = {
        1: np.array([0.01]),
        2: np.array([0.015, np.nan]),
    }  # too few rows to judge: as uncertain as the others
    left = discrepancy_left(
        {1: np.ones(1), 2: np.array([0.5, 0.0])}, nan, {1: np.ones(1), 2: np.ones(2)}
    )
    assert left == pytest.approx({1: 1.0, 2: 0.5 + 1.645 * 0.015})


@pytest.mark.parametrize("truth", [1, 2, 4])
def test_exact_noise_beyond_the_truth_makes_no_clear_step(truth):
    """Large values below the truth, normal errors of the size of the null beyond it: the truth, in
    every one of many draws.
    """
    rng = np.random.default_rng(truth)
    for _ in range(200):
        d = {
            k: np.full(k, 5.0 / k) if k < truth else np.maximum(0.0, rng.normal(0, 0.05, k))
            for k in range(1, 8)
        }
        assert result_of(d, sd=0.05).chosen == truth


# ---------------------------------------------------------------- words on a right distribution


def test_words_claim_nothing_of_the_distribution_on_an_exactly_poisson_table():
    """Three activities for the twelve cells of a row: fitted noise is too regular, and looks
    contradicted although the distribution is exact.
    """
    rng = np.random.default_rng(3)
    signatures = rng.dirichlet(np.full(12, 0.5), size=3)
    counts = rng.poisson(rng.gamma(1.0, 60.0, size=(300, 3)) @ signatures).astype(float)
    counts = counts[counts.sum(1) > 0]
    fits = {k: fit(PoissonFactorization(12, k), counts, num_restarts=3) for k in (2, 3, 4)}
    table = acdc(fits, counts, num_draws=2, max_draws=2)
    misfits = (table.raw[3] - table.null_mean[3]) > 3 * table.null_sd[3]
    assert misfits.any()  # at the true number, by the null that holds estimates as known
    for k in (2, 3, 4):
        words = " ".join(why(table, k))
        assert "not quite right" not in words
        assert "would only mend it" not in words
    assert "a right distribution can look like this" in " ".join(why(table, 3))
    again = acdc({3: fits[3]}, counts, num_draws=2, max_draws=2, calibrate=Bootstrap(6, refit=True))
    assert again.refitted
    assert not ((again.raw[3] - again.null_mean[3]) > 3 * again.null_sd[3]).any()
    assert "That is no test of whether a component is missing" in " ".join(why(again, 3))


def test_the_page_says_where_criteria_disagree(tmp_path):
    counts = np.random.default_rng(0).poisson(5.0, size=(20, 4)).astype(float)
    fits = {k: fit(PoissonFactorization(4, k), counts, num_restarts=1) for k in (1, 2)}
    result = acdc(fits, counts, num_draws=1, max_draws=1)
    pages = []
    for other in (1, 2):
        table = pd.DataFrame(
            {"chosen": [1, other], "1": [0.0, 0.0], "2": [1.0, 1.0]}, index=["BIC, log N", "AIC"]
        )
        pages.append(
            write_selection_report(
                fits, result, table, tmp_path / f"{other}.html", chosen=1
            ).read_text(encoding="utf-8")
        )
    assert "one answer and not several" in pages[0]
    assert "The criteria disagree (K = 1: BIC, log N; K = 2: AIC)" in pages[1]
