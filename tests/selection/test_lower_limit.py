"""Lower confidence limits for a number of components: the sequence of tests by hand, its level on
exchangeable evidence, and limits of known truths.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inference import Fit
from inference.acdc import acdc
from inference.base.structure import shrunken_estimates
from inference.report.answers import answer_of
from inference.selection import at_least, fit_grid, lower_limit as module, repeat_choice
from inference.selection.lower_limit import _Shown
from inference.structures.registry import structure_of
from ppl_models import Bernoulli, Mixture, NegativeBinomialFactorization, PoissonFactorization

pytestmark = [
    pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::inference.BoundWarning"),
    pytest.mark.filterwarnings("ignore::inference.DegenerateWarning"),
]


def classes(k: int) -> Mixture:
    return Mixture(k, Bernoulli(), 5)


def bits(seed: int, groups: int = 2, rows: int = 150) -> np.ndarray:
    rng = np.random.default_rng(seed)
    chances = np.array([[0.85], [0.15]])[rng.integers(groups, size=rows)]
    return (rng.random((rows, 5)) < chances).astype(float)


@pytest.fixture(scope="module")
def fits() -> dict[int, Fit]:
    return fit_grid(classes, bits(0), (1, 2, 3), 2)


def stub(monkeypatch: pytest.MonkeyPatch, values: dict[int, list[float]]) -> list[float]:
    """Evidence by number tested: of the data, then of the tables; returns what is drawn."""
    drawn: list[float] = []

    class Tables:
        def __init__(self, small: Fit, large: Fit, data: Any, seed: int) -> None:
            self.own = values[small.model.num_components]  # type: ignore[attr-defined]

        def observed(self) -> _Shown:
            return _Shown(self.own[0], 0.0, 0.0, 0.0)

        def drawn(self, num: int, *_: Any, **__: Any) -> Iterator[_Shown]:
            for value in self.own[1 : num + 1]:
                drawn.append(value)
                yield _Shown(value, 1.0, 0.0, -1.0)

    monkeypatch.setattr(module, "_Tables", Tables)
    return drawn


def test_the_sequence_by_hand(monkeypatch: pytest.MonkeyPatch, fits: dict[int, Fit]) -> None:
    low = [float(i) for i in range(39)]
    drawn = stub(monkeypatch, {1: [37.5, *low], 2: [10.0, *([9.0] * 5), 10.0, 11.0, *low]})
    limit = at_least(fits, bits(0), num_sets=39)
    one, two = limit.tests
    assert (one.num_exceeding, one.p_value, one.is_rejected) == (1, 2 / 40, True)
    # the second table at or above it settles that p cannot be 1/40 or 2/40
    assert (two.num_exceeding, two.p_value, two.is_rejected) == (2, 2 / 7, False)
    assert len(drawn) == 39 + 7
    assert limit.number == 2
    assert one.null_chosen == 1.0  # a fall of e in what is left is a clear step
    assert one.p_misfit == pytest.approx(1 / 40)
    assert "At least 2 components, at 95% confidence." in repr(limit)
    assert "This holds if" in limit.text()
    assert not limit.is_at_end
    stub(monkeypatch, {1: [99.0, *low], 2: [99.0, *low]})
    ended = at_least(fits, bits(0), num_sets=39)
    assert (ended.number, ended.is_at_end) == (3, True)
    assert "3 is the largest number fitted" in ended.text()
    assert "contradicts the model at 2 (p = 0.025)" in ended.text()
    # the first number that is not rejected ends the sequence, whatever the others would say
    stub(monkeypatch, {1: [0.5, *low], 2: [99.0, *low]})
    assert at_least(fits, bits(0), num_sets=39).number == 1


def test_power_by_hand(monkeypatch: pytest.MonkeyPatch, fits: dict[int, Fit]) -> None:
    null = [float(i) for i in range(19)]
    stub(monkeypatch, {1: [3.5, *null], 2: [0.0]})
    limit = at_least(fits, bits(0), num_sets=19, num_power=19)
    assert limit.tests[0].p_value == (1 + 15) / 20
    assert limit.power == 0.0  # none of the same values lies beyond the largest
    assert "would show it in 0% of cases" in limit.text()


@pytest.mark.parametrize("num_sets", [19, 59])
def test_exchangeable_evidence_is_rejected_at_the_level(
    monkeypatch: pytest.MonkeyPatch, fits: dict[int, Fit], num_sets: int
) -> None:
    rng, two = np.random.default_rng(num_sets), {k: fits[k] for k in (1, 2)}
    rejected = 0
    for _ in range(600):
        stub(monkeypatch, {1: list(rng.normal(size=num_sets + 1))})
        rejected += at_least(two, bits(0), num_sets=num_sets).number > 1
    assert abs(rejected / 600 - 0.05) < 3 * math.sqrt(0.05 * 0.95 / 600)


def test_two_classes_are_seen_and_no_third(fits: dict[int, Fit]) -> None:
    limit = at_least(fits, bits(0), num_sets=19)
    assert limit.number == 2
    assert limit.tests[0].is_rejected
    again = at_least(fits, bits(0), num_sets=19)
    np.testing.assert_array_equal(limit.tests[1].null, again.tests[1].null)


def test_one_class_is_left_alone_and_power_is_said(tmp_path: Path) -> None:
    rows = bits(1, groups=1)
    limit = at_least(fit_grid(classes, rows, (1, 2), 2), rows, num_sets=19, num_power=5, seed=1)
    assert limit.number == 1
    assert 0 <= limit.power <= 1
    page = limit.report(tmp_path / "limit.html").read_text(encoding="utf-8")
    assert "At least 1 component, at 95% confidence." in page
    assert "If there were 2, as fitted" in page
    axes = limit.plot()
    assert len(axes.lines) >= 3


def test_small_counts_make_discrepancies_unsure_and_the_limit_two() -> None:
    rng = np.random.default_rng(0)
    signatures, activities = rng.dirichlet(np.full(20, 0.5), 2), rng.gamma(1, 20, (100, 2))
    rows = rng.poisson(activities @ signatures).astype(float)
    fits = fit_grid(lambda k: PoissonFactorization(20, k), rows, (1, 2), 2)
    result = acdc(fits, rows)
    choice = result.select()
    assert (choice.num_components, choice.rival, choice.finished) == (1, 2, False)
    assert "unsure" in str(choice)
    assert result.among([1]).select().rival is None
    # as sure as before where the fits have no BIC
    assert dataclasses.replace(result, bic={}).select().finished
    for evidence in ("likelihood", "discrepancy"):
        assert at_least(fits, rows, num_sets=19, evidence=evidence).number == 2  # type: ignore[arg-type]


@pytest.mark.slow
def test_repetitions_of_an_unsure_choice_say_so() -> None:
    rng = np.random.default_rng(1)
    signatures, activities = rng.dirichlet(np.full(20, 0.5), 2), rng.gamma(1, 20, (100, 2))
    rows = rng.poisson(activities @ signatures).astype(float)
    rows = rows[rows.sum(1) > 0]
    spread = repeat_choice(lambda k: PoissonFactorization(20, k), rows, (1, 2), 2, num_restarts=2)
    assert (spread.chosen, spread.table["finished"].any()) == (1, False)
    assert spread.verdict.startswith("1 in 2 of 2 repetitions.")
    assert "unsure" in spread.verdict or "with care" in spread.verdict


def test_bad_input(fits: dict[int, Fit]) -> None:
    rows = bits(0)
    cases: list[tuple[Any, str]] = [
        (lambda: at_least({1: fits[1]}, rows), "at least two numbers"),
        (lambda: at_least({1: fits[1], 3: fits[3]}, rows), "successive numbers"),
        (lambda: at_least({2: fits[1], 3: fits[3]}, rows), "num_components = 1"),
        (lambda: at_least(fits, rows, level=1.0), "level must lie in"),
        (lambda: at_least(fits, rows, num_sets=18), "at least 19 were expected"),
        (lambda: at_least(fits, rows, num_power=-1), "num_power must be"),
        (lambda: at_least(fits, rows, evidence="bic"), "evidence must be"),  # type: ignore[arg-type]
        (lambda: at_least({1: 0, 2: 1}, rows), "must be a Fit"),  # type: ignore[dict-item]
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("variance", [None, "quadratic", "linear"])
def test_activities_of_drawn_tables_scatter_as_true_ones(variance: str | None) -> None:
    """Given the signatures, the covariance of the truth comes out where estimates exceed it."""
    rng = np.random.default_rng(0)
    phi = rng.dirichlet(np.full(20, 0.5), 2)
    truth = rng.gamma(4.0, 5.0, (4000, 2))
    mean, delta = truth @ phi, {None: 0.0, "quadratic": 0.3, "linear": 1.5}[variance]
    if variance == "quadratic":
        mean = rng.gamma(1 / delta, mean * delta)
    elif variance == "linear":
        mean = rng.gamma(np.maximum(mean, 1e-300) / delta, delta)
    counts = torch.tensor(rng.poisson(mean), dtype=torch.float64)
    counts[::3, ::4] = torch.nan
    model = PoissonFactorization(20, 2)
    if variance is not None:
        model = NegativeBinomialFactorization(20, 2, variance=variance)
    params = {"signatures": torch.tensor(phi), "dispersion": torch.tensor(max(delta, 1e-3))}
    structure = structure_of(model)
    found = structure.solve_local(params, counts)
    spread = np.cov(truth.T)
    excess = np.cov(found["activities"].mT) - spread
    kept = shrunken_estimates(structure, params, found, counts)["activities"]
    kept = np.cov(kept.mT) - spread
    assert np.diag(excess).min() > 0.15 * np.diag(spread).min()
    assert abs(kept).max() < 0.35 * abs(excess).max()


def test_numbers_that_begin_above_one_claim_nothing_below(
    monkeypatch: pytest.MonkeyPatch, fits: dict[int, Fit]
) -> None:
    stub(monkeypatch, {2: [10.0, *([11.0] * 39)]})
    limit = at_least({k: fits[k] for k in (2, 3)}, bits(0), num_sets=39)
    assert not limit.tests[0].is_rejected
    assert limit.number == 1
    assert "nothing below 2 was tried" in limit.headline
    assert "2 is the smallest number fitted: fit fewer." in limit.sentences
    page = answer_of(limit)
    assert "At least" not in page.title
    stub(monkeypatch, {2: [50.0, *([11.0] * 39)]})
    assert at_least({k: fits[k] for k in (2, 3)}, bits(0), num_sets=39).number == 3
