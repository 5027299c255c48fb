"""Starts of EM by moments."""

from __future__ import annotations

import warnings

import pytest
import torch
from papers.options import random_options
from support.option_moments import error

from inference import EM, fit
from inference.fitting.problem import problem_of
from inference.structures.options.moments import MomentEstimate, MomentWarning
from inference.structures.options.structure import moment_start
from ppl_models import OptionsHMM
from ppl_models.datasets import options_chain, simulate_options


def test_the_spectral_start_is_one_of_the_batch() -> None:
    data = simulate_options(options_chain(), 20, 500, 6).packed
    problem = problem_of(OptionsHMM(4, 2, 2), data, 0)
    start = problem.structure.start(problem, "spectral", 3)
    found = moment_start(data, 4, 2, 2)
    assert found is not None
    assert torch.equal(start["low"][0], found[0])
    assert torch.equal(start["high"][0], found[1])
    steps, random = EM().steps(problem), problem.structure.start(problem, "random", 6)
    objective = [sum(steps.e_step(params)[1:]) for params in (start, random)]
    assert float(objective[0][1:].min()) > float(objective[1].max())  # short runs, the best of six
    assert objective[0][1] >= objective[0][2]
    for name in ("low", "high", "environment"):
        torch.testing.assert_close(start[name].sum(-1), torch.ones_like(start[name][..., 0]))
        assert float(start[name].min()) > 0


def test_a_fit_without_a_method_takes_both_kinds_of_start_and_finds_the_truth() -> None:
    truth = options_chain()
    data = simulate_options(truth, 1, 20_000, 7)
    result = fit(OptionsHMM(4, 2, 2), data.data)
    assert len(result.restarts.objective) >= 3
    best, _ = result.restarts.objective.max(0)
    assert (
        float(best - result.restarts.objective[0]) < 1.0
    )  # the start by moments is among the best
    found = MomentEstimate(result.params["low"].numpy(), result.params["high"].numpy(), None)  # type: ignore[arg-type]
    assert error(found, truth) < 0.25


def test_a_start_by_moments_that_fails_says_why() -> None:
    truth = random_options(3, 2, 3, seed=0)
    data = simulate_options(truth, 5, 40, 8).packed
    with pytest.warns(MomentWarning, match="num_options = 3 exceeds num_actions = 2"):
        result = fit(OptionsHMM(3, 2, 3), data, EM(tolerance=1e-4, parameter_tolerance=1e-2))
    assert any("all starts are random" in text for text in result.warnings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(OptionsHMM(3, 2, 3), data, EM(tolerance=1e-4, parameter_tolerance=1e-2), init="random")
