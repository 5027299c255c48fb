"""Extrapolated steps of EM: the same optima, sooner; never a fall, never a zero of their own."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from zoo.table import ZOO, simulated

from inference import EM, fit
from inference.base.checkpoint import Checkpoint
from inference.base.progress import NoProgress
from inference.engines.em import EMState
from inference.engines.extrapolation import MIXED, PLAIN, SQUARED, Extrapolation
from inference.engines.natural_scale import NaturalScale
from inference.fitting.problem import problem_of
from inference.programs.program import Program
from ppl_models import (
    Bernoulli,
    DeepDiscreteEncoder,
    LatentAttributeModel,
    Mixture,
    NoisyOr,
    Normal,
    TruncatedLasso,
)
from ppl_models.datasets import strict_design

PENALISED = DeepDiscreteEncoder(9, (3, 1), Normal(), penalty=TruncatedLasso(3.0, 0.4), bound=8.0)
Q_MATRIX = np.array([[1, 0], [0, 1], [1, 1]] * 4)


def overlapping(seed: int, num_rows: int = 150) -> np.ndarray:
    """Answers of two classes that EM separates slowly."""
    generator = np.random.default_rng(seed)
    chance = np.where(generator.random((num_rows, 1)) < 0.4, 0.65, 0.35) + generator.uniform(
        -0.1, 0.1, 6
    )
    return (generator.random((num_rows, 6)) < chance).astype(float)


def causes(seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    on = generator.random((200, 3)) < 0.3
    weight = np.where(generator.random((3, 8)) < 0.5, 2.0, 0.0)
    return (generator.random((200, 8)) < 1 - np.exp(-(on @ weight) - 0.05)).astype(float)


CASES = {
    "classes": lambda seed: (Mixture(2, Bernoulli(), 6), overlapping(seed)),
    "normals": lambda seed: (
        Mixture(3, Normal(), 6),
        overlapping(seed) + 0.5 * np.random.default_rng(seed).standard_normal((150, 6)),
    ),
    "attributes": lambda seed: (LatentAttributeModel(Q_MATRIX[:6], items="gdm"), overlapping(seed)),
    "penalised": lambda seed: (
        PENALISED,
        Program(PENALISED, None, 300).simulate(strict_design(1, Normal()), seed)["items"].numpy(),
    ),
    "causes": lambda seed: (NoisyOr(8, 3), causes(seed)),
}


def outcome_of(model, data, method, num_restarts=2, seed=0, start=None):
    problem = problem_of(model, data, seed)
    if start is None:
        start = problem.structure.start(
            problem, "spectral" if model is PENALISED else "random", num_restarts
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return method.run(problem, start, NoProgress(), None)


@pytest.mark.parametrize("acceleration", ["auto", pytest.param("squarem", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_it_never_falls_ends_no_lower_and_takes_fewer_steps(case, acceleration):
    model, data = CASES[case](0)
    method = EM(acceleration="auto", tolerance=1e-8, parameter_tolerance=1e-3, max_iterations=20000)
    plain = outcome_of(model, data, replace(method, acceleration=None))
    ahead = outcome_of(model, data, replace(method, acceleration=acceleration))
    falls = (ahead.history[1:] - ahead.history[:-1]).nan_to_num(nan=0.0)
    assert falls.min() >= -1e-9 * ahead.objective.abs().max()
    assert ahead.converged.all()
    assert ahead.objective.max() >= plain.objective.max() - 1e-3
    as_high = ahead.objective >= plain.objective - 1e-3  # the others climbed another hill
    assert as_high.any()
    steps = [
        (run.history >= plain.objective - 1e-3).int().argmax(0)[as_high].sum()
        for run in (ahead, plain)
    ]
    assert steps[0] < 0.6 * steps[1]


@pytest.mark.parametrize("case", ["classes", "penalised", "causes"])
def test_a_restart_in_a_batch_equals_the_restart_alone(case):
    model, data = CASES[case](1)
    problem = problem_of(model, data, 0)
    start = problem.structure.start(problem, "random", 3)
    method = EM(acceleration="auto", max_iterations=120, tolerance=1e-12)
    together = outcome_of(model, data, method, start=start)
    for r in range(3):
        alone = outcome_of(
            model, data, method, start={name: value[r : r + 1] for name, value in start.items()}
        )
        torch.testing.assert_close(
            together.history[: len(alone.history), r], alone.history[:, 0], rtol=1e-9, atol=0
        )


@pytest.mark.parametrize(
    "stop_at",
    [
        14,
        pytest.param(16, marks=pytest.mark.slow),
        17,
        pytest.param(60, marks=pytest.mark.slow),
        75,
    ],
)
def test_a_run_that_is_cut_goes_on_bit_for_bit(tmp_path, stop_at):
    model, data = CASES["classes"](0)
    problem = problem_of(model, data, 0)
    start = problem.structure.start(problem, "random", 3)
    method = EM(acceleration="auto", tolerance=1e-11, parameter_tolerance=1e-7)
    whole = method.run(problem, start, NoProgress(), None)

    class Cut(NoProgress):
        def update(self, iteration, *arguments, **named):
            if iteration == stop_at:
                raise KeyboardInterrupt

    file = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        method.run(problem, start, Cut(), file)
    state = Checkpoint(file, problem.fingerprint(method, start)).load(EMState)
    assert state.iteration == stop_at
    assert "kind" in state.course
    resumed = method.run(problem, start, NoProgress(), file)
    assert torch.equal(whole.history.nan_to_num(), resumed.history.nan_to_num())
    assert all(torch.equal(whole.params[name], resumed.params[name]) for name in whole.params)


def test_both_ways_of_looking_ahead_are_used(monkeypatch):
    kinds = []
    advance = Extrapolation.advance

    def noted(self, course, *args):
        kinds.append(torch.as_tensor(course.kind.copy()))
        return advance(self, course, *args)

    monkeypatch.setattr(Extrapolation, "advance", noted)
    outcome_of(
        *CASES["classes"](0), EM(acceleration="auto", tolerance=1e-12, parameter_tolerance=1e-8)
    )
    found = torch.cat(kinds)
    assert {PLAIN, SQUARED, MIXED} == set(found.tolist())
    kinds.clear()
    outcome_of(
        *CASES["classes"](0), EM(tolerance=1e-12, parameter_tolerance=1e-8, acceleration="squarem")
    )
    assert {PLAIN, SQUARED} == set(torch.cat(kinds).tolist())


@pytest.mark.parametrize("acceleration", ["auto", None])
def test_what_is_left_to_gain_is_about_what_a_longer_run_gains(acceleration):
    """Near the end to an order of magnitude (two or three where steps are extrapolated), for most
    starts; before there is anything to tell by, nothing is said.
    """
    ratios = []
    for case in ("classes", "normals", "attributes"):
        model, data = CASES[case](0)
        stopped = outcome_of(
            model, data, EM(acceleration=acceleration, tolerance=1e-7), num_restarts=4
        )
        ended = outcome_of(
            model,
            data,
            EM(tolerance=1e-13, parameter_tolerance=1e-9, max_iterations=5000),
            start=stopped.params,
        )
        gained = ended.objective - stopped.objective
        ratios.append((stopped.objective_left / gained)[(gained > 1e-9) & (gained < 0.1)])
    ratio = torch.cat(ratios)
    assert len(ratio) >= 6
    most = 1e3 if acceleration else 10.0
    assert ((ratio > 1 / most) & (ratio < most)).double().mean() >= 0.9
    model, data = CASES["classes"](0)
    assert (
        outcome_of(model, data, EM(acceleration=acceleration, max_iterations=5))
        .objective_left.isnan()
        .all()
    )


def test_zeros_are_made_and_unmade_by_m_steps_alone():
    model, data = CASES["penalised"](2)
    result = outcome_of(
        model, data, EM(acceleration="auto", tolerance=1e-10, parameter_tolerance=1e-6)
    )
    problem = replace(problem_of(model, data, 0), start_given=True)
    again = EM(tolerance=1.0, parameter_tolerance=10.0).run(
        problem, result.params, NoProgress(), None
    )
    zero = result.params["loadings_1"] == 0
    assert zero.any()
    assert not zero.all()
    assert torch.equal(zero, again.params["loadings_1"] == 0)


def test_a_variance_that_comes_to_its_floor_lets_nothing_fall():
    """Six rows of one value: a component shrinks onto them until the M-step holds its variance."""
    generator = np.random.default_rng(2)
    data = np.concatenate(
        [generator.normal(0, 1, (60, 1)), generator.normal(1.5, 1, (60, 1)), np.full((6, 1), 2.0)]
    )
    method = EM(max_iterations=200)
    found = outcome_of(Mixture(3, Normal(), 1), data, method, num_restarts=6, seed=2)
    assert found.params["dispersion"].min() < 0.01  # the floor was come to
    assert (found.history[1:] - found.history[:-1]).nan_to_num(nan=0.0).min() > -1e-7


def test_twice_the_rows_are_the_same_path():
    data = overlapping(3)
    model = Mixture(2, Bernoulli(), 6, concentration=1.0)
    problem = problem_of(model, data, 0)
    start = problem.structure.start(problem, "random", 2)
    method = EM(acceleration="auto", max_iterations=40, tolerance=1e-13, parameter_tolerance=1e-9)
    once = outcome_of(model, data, method, start=start)
    twice = outcome_of(model, np.concatenate([data, data]), method, start=start)
    torch.testing.assert_close(
        2 * once.history_log_likelihood, twice.history_log_likelihood, rtol=1e-7, atol=0
    )


@pytest.mark.parametrize(
    "row", [row for row in ZOO if row.method is None], ids=lambda row: row.name
)
def test_the_scale_brings_every_estimate_back(row):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = problem_of(row.model, simulated(row, 10, 0), 0)
    params = {name: value.unsqueeze(0) for name, value in row.truth.items()}
    scale = NaturalScale(problem.supports(), params)
    z = scale.of(params)
    same = scale.back(z, params, z)
    assert all(torch.equal(same[name], value) for name, value in params.items())
    moved = scale.back(z, params, z + 1e-9)  # no coordinate is the image's
    for name, value in params.items():
        torch.testing.assert_close(moved[name], value, rtol=1e-6, atol=1e-8)
        support = problem.program_of_one_row().site(name).support
        assert support.check(scale.back(z + 0.3, params, z)[name]).all()


def test_a_point_at_which_nothing_can_be_computed_is_no_point(monkeypatch):
    """The plain steps go on from the last accepted point."""
    model, data = CASES["classes"](0)
    whole = outcome_of(model, data, EM())
    steps = type(EM().steps(problem_of(model, data, 0)))
    e_step, advance, tried, failed = steps.e_step, Extrapolation.advance, [], []

    def noted(self, *args):
        found = advance(self, *args)
        tried[:] = [bool((found[0].kind != PLAIN).any())]
        return found

    def fails_at_trials(self, params):
        if tried == [True] and len(failed) < 10:
            tried.clear()
            failed.append(1)
            raise torch.linalg.LinAlgError("no factor")
        return e_step(self, params)

    monkeypatch.setattr(Extrapolation, "advance", noted)
    monkeypatch.setattr(steps, "e_step", fails_at_trials)
    result = outcome_of(model, data, EM(acceleration="auto"))
    assert len(failed) == 10
    torch.testing.assert_close(result.objective, whole.objective, rtol=0, atol=1e-3)


@pytest.mark.parametrize("value", ["anderson", True, 1, ["auto"]])
def test_other_words_are_refused(value):
    with pytest.raises(ValueError, match="acceleration must be 'auto', 'squarem' or None"):
        EM(acceleration=value)


def test_a_plain_fit_does_not_look_ahead(monkeypatch):
    monkeypatch.setattr(Extrapolation, "advance", None)
    assert (
        fit(
            Mixture(2, Bernoulli(), 6),
            overlapping(0),
            EM(acceleration=None, max_iterations=30, tolerance=1e-3, parameter_tolerance=1.0),
        ).num_iterations
        > 1
    )
