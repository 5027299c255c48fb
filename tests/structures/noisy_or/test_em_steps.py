"""Exact EM of noisy-OR networks against brute force, the generic route and precise arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from zoo.rows_noisy_or import noisy_or_cases, noisy_or_log_likelihood

from inference import EM, fit
from inference.base.steps import GenericSteps
from inference.fitting.problem import problem_of
from inference.programs.program import Program
from inference.structures.noisy_or.em_steps import CauseRows, CauseSteps
from ppl_models import NoisyOr
from ppl_models.data.tables import ConstantColumnWarning
from ppl_models.descriptions.noisy_or import PROBABILITY_LIMIT

F64 = torch.float64
NUM_M_STEPS = 600  # the share of blocked zeros that is not known slows them
CASES = [case for case in noisy_or_cases() if hasattr(case["model"], "causes")]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])


def drawn(case: dict, num_rows: int, seed: int, missing: float = 0.0) -> torch.Tensor:
    data = Program(case["model"], None, num_rows).simulate(case["truth"], seed)["items"]
    gone = torch.rand(data.shape, generator=torch.Generator().manual_seed(seed)) < missing
    gone[torch.arange(num_rows), torch.arange(num_rows) % data.shape[1]] = False
    return data.masked_fill(gone, math.nan)


def steps_of(case: dict, data: torch.Tensor, method: EM | None = None) -> CauseSteps:
    steps = (method or EM()).steps(problem_of(case["model"], data, 0))
    assert isinstance(steps, CauseSteps)
    return steps


def starts(case: dict, num: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: 0.05 + 0.9 * torch.rand(num, *value.shape, generator=generator, dtype=F64)
        for name, value in case["truth"].items()
    }


@each_case
def test_statistics_equal_brute_force(case: dict) -> None:
    """With equal rows merged, missing entries, and several chunks."""
    data = drawn(case, 60, seed=1, missing=case["missing"])
    steps = replace(steps_of(case, data), chunk_elements=16)
    assert len(steps.rows.ones) < 60
    params = starts(case, 2, seed=2)
    statistics, log_likelihood, log_prior = steps.e_step(params)
    program = Program(case["model"], data)
    torch.testing.assert_close(log_likelihood, program.log_marginal(params), rtol=1e-12, atol=1e-10)
    torch.testing.assert_close(log_prior, program.log_prior(params), rtol=1e-12, atol=1e-10)
    posterior = program.latent_marginals(params)["causes"]  # (R, N, C)
    ones, seen = data.nan_to_num(nan=0.0), (~data.isnan()).to(F64)
    torch.testing.assert_close(statistics.per_configuration, posterior.sum(1))
    torch.testing.assert_close(statistics.ones, posterior.mT @ ones)
    if statistics.seen is not None:
        torch.testing.assert_close(statistics.seen, posterior.mT @ seen)
    one = {name: value[0].numpy() for name, value in params.items()}
    assert float(log_likelihood[0]) == pytest.approx(
        float(noisy_or_log_likelihood(one, data.numpy()).sum()), abs=1e-9
    )


@each_case
@pytest.mark.parametrize("num_newton", [0, 2])
def test_em_never_loses(case: dict, num_newton: int) -> None:
    data = drawn(case, 80, seed=3, missing=case["missing"])
    steps = replace(steps_of(case, data), num_newton=num_newton)
    params = starts(case, 4, seed=4)
    history = []
    for _ in range(15):
        statistics, log_likelihood, log_prior = steps.e_step(params)
        history.append(log_likelihood + log_prior)
        params = steps.m_step(statistics, params)
    values = torch.stack(history)
    assert bool((values.diff(dim=0) >= -1e-9).all())
    assert bool((values[-1] > values[0] + 1).all())


@pytest.mark.parametrize(
    "case", [case for case in CASES if not case["model"].inhibition], ids=lambda case: case["name"]
)
def test_m_step_reaches_the_optimum_of_the_generic_route(case: dict) -> None:
    """The same expected complete-data log-density, climbed by L-BFGS on unconstrained
    parameters.
    """
    data = drawn(case, 80, seed=5, missing=case["missing"])
    steps = replace(steps_of(case, data), num_newton=50)
    start = starts(case, 1, seed=6)
    program = Program(case["model"], data)
    posteriors = program.factor_posteriors(start)
    fast = steps.m_step(steps.e_step(start)[0], start)
    slow, generic = start, GenericSteps(program, 100)
    for _ in range(4):
        slow = generic.m_step(posteriors, slow)

    def objective(params: dict) -> float:
        return float(
            program.expected_complete_log_density(params, posteriors) + program.log_prior(params)
        )

    assert objective(fast) >= objective(slow) - 1e-5
    assert objective(fast) == pytest.approx(
        objective(slow), abs=1e-2
    )  # L-BFGS creeps towards an edge of probability 0
    interior = (fast["failure"] > 0.01) & (fast["failure"] < 0.99)
    assert bool(interior.any())
    torch.testing.assert_close(
        fast["failure"][interior], slow["failure"][interior], atol=2e-2, rtol=0
    )


def test_m_steps_of_inhibition_climb_to_a_stationary_point() -> None:
    """Blocked items are expected anew in each M-step, so that one need not reach the optimum: none
    lowers Q of the program, and many end where its projected gradient vanishes, from three starts.
    """
    case = next(case for case in CASES if case["model"].inhibition)
    data = drawn(case, 80, seed=5, missing=case["missing"])
    steps, params = steps_of(case, data), starts(case, 3, seed=6)
    program = Program(case["model"], data)
    posteriors, statistics = program.factor_posteriors(params), steps.e_step(params)[0]

    def objective(params: dict) -> torch.Tensor:
        density = program.expected_complete_log_density(params, posteriors)
        return density + program.log_prior(params)

    def projected_slope(params: dict) -> torch.Tensor:
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        slopes = torch.autograd.grad(objective(leaves).sum(), list(leaves.values()))
        low, high = PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT
        moved = [(p + s).clamp(low, high) - p for p, s in zip(params.values(), slopes, strict=True)]
        return torch.cat([move.flatten(1) for move in moved], 1).abs().amax(1)

    assert float(projected_slope(params).min()) > 0.5
    values = [objective(params)]
    for _ in range(NUM_M_STEPS):
        params = steps.m_step(statistics, params)
        values.append(objective(params))
    assert bool((torch.stack(values).diff(dim=0) >= -1e-9).all())
    assert float(projected_slope(params).max()) < 1e-3


def test_the_generic_fit_cannot_improve_on_it() -> None:
    """From the accelerated estimate a generic iteration gains nothing; from nearby it comes back up
    towards it.
    """
    case = CASES[2]  # its priors keep the estimate inside
    data = drawn(case, 150, seed=7)
    start = {name: value[0] for name, value in starts(case, 1, seed=8).items()}
    fast = fit(
        case["model"],
        data,
        EM(tolerance=1e-13, parameter_tolerance=1e-8, max_iterations=5000),
        init=start,
    )
    generic = GenericSteps(Program(case["model"], data), 50)
    params = {name: value[None] for name, value in fast.params.items()}
    statistics, log_likelihood, log_prior = generic.e_step(params)
    assert float(log_likelihood + log_prior) == pytest.approx(fast.objective, abs=1e-9)
    for name, value in generic.m_step(statistics, params).items():
        torch.testing.assert_close(value, params[name], atol=1e-4, rtol=0)


def test_merged_rows_are_the_rows() -> None:
    data = drawn(CASES[1], 300, seed=9, missing=0.2)
    rows = CauseRows.merge(data)
    assert rows.num_rows == 300
    assert len(rows.counts) < 300
    found = sorted(
        (tuple(np.where(seen, one, -1)), int(n))
        for one, seen, n in zip(rows.ones.numpy(), rows.seen.numpy(), rows.counts, strict=True)
    )
    keys, counts = np.unique(data.nan_to_num(nan=-1.0).numpy(), axis=0, return_counts=True)
    assert found == sorted((tuple(key), int(n)) for key, n in zip(keys, counts, strict=True))
    part = rows.sample(100, torch.Generator().manual_seed(0))
    assert part.num_rows == 100


def test_too_many_latents_are_refused_with_the_remedy() -> None:
    data = drawn(CASES[0], 20, 0)
    with pytest.raises(ValueError, match=r"2\^17 configurations.*GiB.*GrowAndPrune"):
        fit(NoisyOr(5, 17), data, EM(), init="random")


@pytest.mark.parametrize(
    ("name", "value"), [("prior", 1.2), ("failure", -0.1), ("leak", 2.0), ("prior", math.nan)]
)
@pytest.mark.parametrize("method", [None, EM()])
def test_probabilities_of_a_start_are_checked(name: str, value: float, method: EM | None) -> None:
    start = {
        "prior": torch.full((2,), 0.3),
        "failure": torch.full((2, 5), 0.5),
        "leak": torch.full((5,), 0.1),
    }
    start[name].view(-1)[0] = value
    data = (torch.rand(40, 5, generator=torch.Generator().manual_seed(0)) < 0.4).double()
    with pytest.raises(
        ValueError,
        match=rf"'{name}' .* support: numbers between 0 and 1 were expected, got {value:.2g} ",
    ):
        fit(NoisyOr(5, 2), data, method, init=start)


def test_an_item_that_is_always_zero_gets_no_edges_and_no_leak() -> None:
    data = (torch.rand(300, 6, generator=torch.Generator().manual_seed(1)) < 0.4).double()
    data[:, 2] = 0
    with pytest.warns(ConstantColumnWarning, match="columns with one value only: 2"):
        result = fit(NoisyOr(6, 2), data, EM(max_iterations=300), init="random")
    assert float(result.params["leak"][2]) < 1e-4
    assert float((1 - (1 - result.params["failure"][:, 2]) * result.params["prior"]).min()) > 0.999


@pytest.mark.parametrize("value", [2.0, 0.5, -1.0])
def test_entries_other_than_zero_and_one_are_refused(value: float) -> None:
    data = drawn(CASES[0], 20, 0)
    data[3, 2] = value
    with pytest.raises(ValueError, match="column '2'"):
        fit(CASES[0]["model"], data, EM())
