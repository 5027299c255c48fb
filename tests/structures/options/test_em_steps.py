"""EM for hidden options: counts against every path, M-steps, restarts, priors."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from support.option_sequences import SIZES, arrays, case, close, simulate
from torch import Tensor
from zoo.rows_options import all_paths, options_truth

from inference import EM, fit
from inference.base.steps import summed_statistics
from inference.fitting.problem import problem_of
from inference.structures.options.em_steps import OptionSteps
from inference.structures.options.structure import random_policies
from ppl_models import OptionsHMM
from ppl_models.data.sequences import UnvisitedWarning
from ppl_models.descriptions.options import high_of_termination
from ppl_models.sequences.chain_plan import plan_of

F64 = torch.float64


# ---------------------------------------------------------------- expected counts and EM


@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_expected_counts(seed: int) -> None:
    """Against every path, every missing action filled in in every way."""
    model, truth, data = case(seed, 0.2)
    counts, _, _ = OptionSteps(model.chain(), plan_of(data, 3, 3)).e_step(
        {name: v[None] for name, v in truth.items()}
    )
    by_hand = {name: np.zeros(value.shape) for name, value in truth.items()}
    params = arrays(truth)
    for row in data.numpy():
        row = row[row[:, 0] >= 0]
        gaps = np.flatnonzero(row[:, 1] < 0)
        filled_rows, weights = [], []
        for filled in itertools.product(range(3), repeat=len(gaps)):
            full = row.copy()
            full[gaps, 1] = filled
            paths, weight = all_paths(params, full)
            filled_rows += [(full, path) for path in paths]
            weights += weight.tolist()
        for (full, path), weight in zip(filled_rows, np.array(weights) / sum(weights), strict=True):
            by_hand["initial"][full[0, 0], path[0]] += weight
            for t, (state, action) in enumerate(full):
                if (
                    t != len(full) - 1 or row[t, 1] >= 0
                ):  # a missing last action is not counted: it is summed to one
                    by_hand["low"][state, path[t], action] += weight
                if t + 1 < len(full):
                    by_hand["environment"][action, state, full[t + 1, 0]] += weight
                    by_hand["high"][full[t + 1, 0], path[t], path[t + 1]] += weight
    for name, value in by_hand.items():
        close(counts[name][0], value, 1e-10)


@pytest.mark.parametrize(
    "missing", [0.2, 0.0]
)  # with every action seen the environment is worked out once
@pytest.mark.parametrize(
    "settings", [{}, {"concentration": 1.0}, {"concentration": 2.0, "stickiness": 3.0}]
)
def test_em_never_falls_and_its_m_step_is_the_optimum(
    settings: dict[str, float], missing: float
) -> None:
    _, _, data = case(2, missing)
    model = OptionsHMM(*SIZES, **settings)
    problem = problem_of(model, data, 0)
    program, steps = problem.program(), EM().steps(problem)
    assert isinstance(steps, OptionSteps)
    params = problem.structure.start(problem, "random", 3)
    last = torch.full((3,), -math.inf, dtype=F64)
    for _ in range(30):
        statistics, log_likelihood, log_prior = steps.e_step(params)
        close(log_likelihood, program.log_marginal(params))
        close(log_prior, program.log_prior(params))
        assert bool((log_likelihood + log_prior >= last - 1e-10).all())
        last, old, params = log_likelihood + log_prior, params, steps.m_step(statistics, params)
    generic = {
        name: value.clone().requires_grad_()
        for name, value in program.unconstrained(params).items()
    }

    def bound(free: dict[str, Tensor]) -> Tensor:
        values = program.constrained(free)
        expected = sum(
            (statistics[name] * values[name].log()).sum() for name in values if name in statistics
        )
        return expected + program.log_prior(values).sum()

    grads = torch.autograd.grad(bound(generic), list(generic.values()))
    assert old is not params
    assert max(float(g.abs().max()) for g in grads) < 1e-6


def test_restarts_taken_in_turn_are_those_of_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, data = case(3)
    problem = problem_of(model, data, 0)
    steps, params = EM().steps(problem), problem.structure.start(problem, "random", 5)
    together = steps.e_step(params)
    monkeypatch.setattr("inference.structures.options.em_steps.MAX_ELEMENTS", 1)
    apart = steps.e_step(params)
    for name, value in together[0].items():
        close(apart[0][name], value, 1e-12)
    close(apart[1], together[1], 1e-12)


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
@pytest.mark.slow
def test_generic_em_and_accelerated_em_meet() -> None:
    model, truth, _ = case(4, 0.0)
    data = simulate(replace(model, num_steps=15), truth, 20, 4)
    fast = fit(model, data, EM(tolerance=1e-12, parameter_tolerance=1e-6), init=truth)
    slow = fit(
        model,
        data,
        EM(tolerance=1e-12, parameter_tolerance=1e-6, accelerate=False, max_iterations=20),
        init=truth,
    )
    assert abs(fast.objective - slow.objective) < 1e-4
    for name, value in fast.params.items():
        torch.testing.assert_close(slow.params[name], value, rtol=0, atol=5e-3)


def test_an_environment_that_is_known_adds_to_the_counts_of_other_rows() -> None:
    model, _, data = case(3, 0.0)
    problem = problem_of(model, data, 0)
    steps, params = EM().steps(problem), problem.structure.start(problem, "random", 2)
    params = steps.m_step(steps.e_step(params)[0], params)
    whole, of_all = steps.e_step(params)[:2]
    parts, of_parts = summed_statistics(steps, params, data.split(2))
    close(of_parts, of_all)
    for name, value in steps.m_step(whole, params).items():
        close(parts[name], whole[name])
        close(steps.m_step(parts, params)[name], value)


def test_one_option_takes_one_start_and_no_search() -> None:
    _, _, data = case(2, 0.0)
    model = OptionsHMM(SIZES[0], SIZES[1], 1, concentration=1.0)
    result = fit(model, data)
    state, action = data[data[..., 0] >= 0].unbind(-1)
    counts = torch.zeros(SIZES[:2], dtype=F64).index_put(
        (state, action), torch.ones(len(state), dtype=F64), accumulate=True
    )
    close(result.params["low"][:, 0], counts / counts.sum(-1, keepdim=True))
    assert len(result.restarts.objective) == 1
    assert result.num_iterations <= 5


@pytest.mark.slow
def test_stickiness_keeps_options() -> None:
    model, truth, _ = case(5, 0.0)
    data = simulate(replace(model, num_steps=60), truth, 10, 5)
    stay = []
    for stickiness in (0.0, 50.0):
        result = fit(
            OptionsHMM(*SIZES, stickiness=stickiness),
            data,
            EM(tolerance=1e-6),
            init="random",
            seed=1,
        )
        stay.append(float(result.params["high"].diagonal(dim1=1, dim2=2).mean()))
    assert stay[1] > stay[0] + 0.1


def test_an_unvisited_state_keeps_the_prior_mean() -> None:
    model = OptionsHMM(4, 2, 2, concentration=1.0)
    data = case(0, 0.0, (3, 2, 2))[2]
    with pytest.warns(UnvisitedWarning, match="states that never occur: 3"):
        result = fit(
            model, data, EM(max_iterations=5, tolerance=1.0, parameter_tolerance=1.0), init="random"
        )
    close(result.params["low"][3], torch.full((2, 2), 0.5))
    close(result.params["high"][3], torch.full((2, 2), 0.5))
    assert any("never occur" in text for text in result.warnings)


@pytest.mark.parametrize("init", ["random", "spectral"])
def test_one_step_sequences_are_fitted_at_once(init: str) -> None:
    """They say nothing of the high-level policy, which keeps its prior mean, nor of what tells
    options apart: all are alike, and no parameters that tell them apart have a larger posterior.
    """
    model, truth = OptionsHMM(3, 3, 2), options_truth(*SIZES, seed=0)
    data = simulate(replace(model, num_steps=1), truth, 200, 1)
    with pytest.warns(UnvisitedWarning, match="all sequences have one step"):
        result = fit(model, data, init=init)
    close(result.params["high"], torch.full((3, 2, 2), 0.5))
    close(result.params["low"][:, 0], result.params["low"][:, 1])
    assert result.converged
    assert result.num_iterations <= 5
    plan = plan_of(data, 3, 3)
    steps, params = OptionSteps(model.chain(), plan), random_policies(model.chain(), plan, 5, 0)
    for _ in range(200):
        params = steps.m_step(steps.e_step(params)[0], params)
    assert (
        float(sum(steps.e_step(params)[1:]).max()) < float(result.restarts.objective.max()) + 1e-6
    )


# ---------------------------------------------------------------- termination


def test_the_m_step_of_endings_climbs_to_the_optimum_of_its_bound() -> None:
    """Repeated on fixed counts, the split of the counts of staying reaches what scipy finds."""
    model = OptionsHMM(1, 2, 3, concentration=1.5, stickiness=1.0, termination=True)
    steps = OptionSteps(model.chain(), plan_of(torch.zeros(1, 2, 2, dtype=torch.long), 1, 2))
    counts = torch.tensor([[[[20.0, 3.0, 1.0], [2.0, 30.0, 4.0], [5.0, 1.0, 9.0]]]], dtype=F64)
    other = {
        "initial": torch.ones(1, 1, 3),
        "low": torch.ones(1, 1, 3, 2),
        "environment": torch.ones(1, 2, 1, 1),
    }
    params = {name: value.to(F64) / value.sum(-1, keepdim=True) for name, value in other.items()}
    params |= {
        "termination": torch.full((1, 1, 3), 0.5, dtype=F64),
        "choice": torch.full((1, 1, 3), 1 / 3, dtype=F64),
    }

    def bound(end: Tensor, choice: Tensor) -> float:
        high = high_of_termination(end, choice)
        prior = 0.5 * end.log().sum() + 1.5 * (1 - end).log().sum() + 0.5 * choice.log().sum()
        return float((counts[0, 0] * high.log()).sum() + prior)

    last = -math.inf
    for _ in range(200):
        params = steps.m_step(
            {**{name: value.to(F64) for name, value in other.items()}, "high": counts}, params
        )
        value = bound(params["termination"][0, 0], params["choice"][0, 0])
        assert value >= last - 1e-9
        last = value

    def loss(x: np.ndarray) -> float:
        free = torch.from_numpy(x)
        return -bound(free[:3].sigmoid(), free[3:].softmax(-1))

    assert -minimize(loss, np.zeros(6), tol=1e-10).fun == pytest.approx(last, abs=1e-6)
