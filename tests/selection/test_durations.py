"""Test of geometric durations: of geometric and of regular visits, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from inference import EM, fit
from inference.base.outcome import ConvergenceWarning
from inference.bootstrap import simulated_table
from inference.fitting.problem import problem_of
from inference.selection import durations_test
from inference.selection.durations import _both, _ratio, _ratios
from inference.selection.order_selection.counting import candidate_of
from ppl_models import (
    HiddenMarkov,
    Mixture,
    NegativeBinomialDurations,
    Normal,
    PoissonDurations,
)


def drawn(seed: int, size: float, steps: int = 300) -> np.ndarray:
    """Two states whose visits are negative binomial of mean 10, shifted by one."""
    rng, states = np.random.default_rng(seed), list[int]()
    while len(states) < steps:
        states += [1 - states[-1] if states else 0] * int(
            1 + rng.negative_binomial(size, size / (size + 9))
        )
    return rng.normal(3.0 * np.array(states[:steps]))[:, None]


@pytest.mark.parametrize("size", [1.0, 12.0])
def test_regular_visits_are_seen_and_geometric_ones_are_not(size: float) -> None:
    data = drawn(1, size)
    plain = fit(HiddenMarkov(2, Normal(), 1, "uniform"), data, EM(), num_restarts=2)
    answer = durations_test(plain, data)
    assert (answer.p_value < 0.01) == (size > 1)
    assert answer.statistic >= 0
    assert answer.p_value == pytest.approx(chi2.sf(answer.statistic, 2))
    first, second = answer.geometric, answer.negative_binomial
    assert first.log_likelihood == pytest.approx(plain.log_likelihood, abs=1e-2)
    assert second.num_parameters == first.num_parameters + 2
    gain = 2 * (second.log_likelihood - first.log_likelihood)
    assert answer.statistic == pytest.approx(gain, abs=1e-9)
    words = "do not last" if size > 1 else "may last"
    assert f"Visits {words} geometrically" in answer.text()
    assert list(answer.table.index) == ["geometric", "negative binomial"]
    again = durations_test(second, data)  # from the wider fit the same
    assert again.statistic == pytest.approx(answer.statistic, abs=1e-3)


def test_a_state_left_after_every_step_is_no_degree_of_freedom() -> None:
    rng, values = np.random.default_rng(5), list[float]()
    while len(values) < 400:
        values += [*rng.normal(0.0, 1.0, 1 + rng.poisson(3)), rng.normal(10.0)]
    data = np.array(values[:400])[:, None]
    plain = fit(HiddenMarkov(2, Normal(), 1, "uniform"), data, EM(), num_restarts=2)
    answer = durations_test(plain, data)
    assert answer.num_states == 1
    assert answer.p_value == pytest.approx(chi2.sf(answer.statistic, 1))
    assert "for 1 parameter;" in answer.text()


def test_p_value_of_drawn_sets_is_a_share() -> None:
    data = drawn(3, 12.0, 150)
    plain = fit(HiddenMarkov(2, Normal(), 1, "uniform"), data, EM(), num_restarts=2)
    by_sets = durations_test(plain, data, num_sets=5, seed=1)
    assert by_sets.p_value * 6 == pytest.approx(round(by_sets.p_value * 6))
    assert by_sets.statistic == durations_test(plain, data).statistic
    assert by_sets.p_value == durations_test(plain, data, num_sets=5, seed=1).p_value
    assert "share of 5 data sets" in by_sets.text()
    with pytest.raises(ValueError, match="durations_test: num_sets"):
        durations_test(plain, data, num_sets=-1)


def test_data_sets_fitted_together_have_the_ratios_of_each_alone() -> None:
    data = drawn(4, 1.0, 200)
    plain = fit(HiddenMarkov(2, Normal(), 1, "uniform"), data, EM(), num_restarts=2)
    first = durations_test(plain, data).geometric
    wide = replace(first.model, durations=NegativeBinomialDurations())
    problem = problem_of(first.model, data, 0)
    sets = torch.stack([simulated_table(problem, first.params, seed) for seed in range(3)])
    together = _ratios(first.model, wide, sets, first.params)
    for ratio, own in zip(together.tolist(), sets, strict=True):
        alone = _ratio(*_both(first.model, wide, own, first.params))
        assert ratio == pytest.approx(alone, abs=1e-3)


def test_other_fits_are_refused() -> None:
    data = drawn(2, 4.0, 60)
    one = fit(HiddenMarkov(1, Normal(), 1), data)
    with pytest.raises(ValueError, match="durations_test: a fit of at least two states"):
        durations_test(one, data)
    states = np.full((1, 60), -1)
    states[0, 0] = 0
    labelled = fit(HiddenMarkov(2, Normal(), 1), data, labels=states)
    with pytest.raises(ValueError, match="durations_test: not worked out for a fit with labels"):
        durations_test(labelled, data)
    mixture = fit(Mixture(1, Normal(), 1), data)
    with pytest.raises(ValueError, match="durations_test: a fit of a hidden Markov model was exp"):
        durations_test(mixture, data)
    with pytest.warns(ConvergenceWarning):
        poisson = fit(
            HiddenMarkov(2, Normal(), 1, durations=PoissonDurations()),
            data,
            EM(max_iterations=1, num_relaxed=0),
            num_restarts=1,
        )
    with pytest.raises(ValueError, match="durations_test: a plain chain, or geometric or negative"):
        durations_test(poisson, data)


def test_candidates_are_named_by_their_durations() -> None:
    model = HiddenMarkov(2, Normal(), 1, durations=NegativeBinomialDurations())
    assert candidate_of(model).name == "normal with negative binomial durations"
    assert candidate_of(candidate_of(model).at(1)).name == candidate_of(model).name
