"""A grid of penalties as one batch equals the fits one by one."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch

from inference import EM, fit
from inference.fitting.problem import problem_of
from inference.programs.program import Program
from inference.selection import penalty_path
from inference.selection.sparsity import fit_penalty_grid, graphs_of, refit_penalty_grid
from inference.structures.layers.penalty_grid import POINT, GridSteps
from ppl_models import (
    SCAD,
    Bernoulli,
    DeepDiscreteEncoder,
    ExpDINA,
    NoisyOr,
    Normal,
    Poisson,
    TruncatedLasso,
)
from ppl_models.datasets import strict_design
from ppl_models.parts.penalties import stacked, taken

F64 = torch.float64
LASSOS = [TruncatedLasso(2.0, 0.5), TruncatedLasso(6.0, 0.3), TruncatedLasso(20.0, 1.0)]
SCADS = [SCAD(0.2, 10.0), SCAD(0.1, 30.0, 3.0)]


@pytest.mark.parametrize("grid", [LASSOS, SCADS], ids=["lasso", "scad"])
def test_constants_along_the_leading_dim_are_each_penalty(grid: list[Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    value = 2 * torch.randn(len(grid), 5, 4, generator=generator, dtype=F64)
    curvature = 0.5 + 50 * torch.rand(len(grid), 5, generator=generator, dtype=F64)
    batch = stacked(grid, value)
    for own in (batch, taken(batch, torch.tensor([1, 0]))):
        order = range(len(grid)) if own is batch else (1, 0)
        part = value[list(order)]
        for i, g in enumerate(order):
            width = curvature[list(order)]
            pairs = [
                (own(part)[i], grid[g](part[i])),
                (own.slope(part)[i], grid[g].slope(part[i])),
                (own.prox(part[..., 0], width)[i], grid[g].prox(part[i, :, 0], width[i])),
                (own.convex()(part)[i], grid[g].convex()(part[i])),
            ]
            for one, other in pairs:
                torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("grid", [LASSOS, SCADS], ids=["lasso", "scad"])
def test_the_objective_is_each_programs_own(grid: list[Any]) -> None:
    _, x = small_case(Bernoulli(), 200)
    model = DeepDiscreteEncoder(18, (6, 2))
    problem = problem_of(model, x, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = fit_penalty_grid(model, x, grid, EM(max_iterations=5), num_restarts=2)
    assert fits is not None
    for penalty, result in zip(grid, fits, strict=True):
        own = Program(DeepDiscreteEncoder(18, (6, 2), penalty=penalty), problem.data)
        expected = own.log_marginal(result.params) + own.log_prior(result.params)
        assert result.objective == pytest.approx(float(expected), rel=1e-9)
        assert result.model.penalty == penalty
        assert len(result.restarts.objective) == 2


def small_case(response: Any, num_rows: int) -> tuple[Any, torch.Tensor]:
    truth = strict_design(2, response)
    return (
        truth,
        Program(DeepDiscreteEncoder(18, (6, 2), response), None, num_rows).simulate(truth, 0)[
            "items"
        ],
    )


@pytest.mark.parametrize(
    "response", [Poisson(), pytest.param(Normal(), marks=pytest.mark.slow)], ids=repr
)
def test_the_batch_chooses_what_the_loop_chooses(response: Any) -> None:
    _, x = small_case(response, 400)
    model = DeepDiscreteEncoder(18, (6, 2), response)
    grid = [
        TruncatedLasso(0.1, 0.05),
        TruncatedLasso.bic(400),
        SCAD.matching(TruncatedLasso(60.0, 2.5)),
    ]
    method = EM(max_iterations=40, num_relaxed=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch, loop = (penalty_path(model, x, grid, method, warm=warm) for warm in (False, True))
        alone = [
            fit(DeepDiscreteEncoder(18, (6, 2), response, penalty=penalty), x, method)
            for penalty in grid[:2]
        ]
    assert batch.penalties == loop.penalties
    assert batch.chosen == loop.chosen
    for one, other in zip(batch.penalised[:2], alone, strict=True):
        assert one.objective == pytest.approx(other.objective, rel=1e-7)
        assert all(torch.equal(a, b) for a, b in zip(graphs_of(one), graphs_of(other), strict=True))
    best = batch.best
    assert best.model.penalty is None
    program = Program(best.model, x)
    assert best.objective == pytest.approx(
        float(program.log_marginal(best.params) + program.log_prior(best.params)), rel=1e-9
    )
    assert best.log_likelihood == pytest.approx(
        loop.best.log_likelihood, rel=2e-3
    )  # warm starts may gain a little


def test_a_restart_that_ends_takes_its_penalty_along() -> None:
    """Steps on some of the restarts are the steps on all of them, restricted."""
    _, x = small_case(Bernoulli(), 100)
    model = DeepDiscreteEncoder(18, (6, 2))
    problem = problem_of(model, x, 0)
    base = problem.structure.steps(problem, 2**18, 1)
    start = problem.structure.start(problem, "random", 3)
    assert start is not None
    assert base is not None
    like = start["loadings_1"]
    steps = GridSteps(base, torch.zeros(3, dtype=F64), stacked(LASSOS, like))  # type: ignore[arg-type]
    params = start | {POINT: torch.tensor([0.0, 1.0, 2.0], dtype=F64)}
    whole = steps.m_step(steps.e_step(params)[0], params)
    some = {name: value[[2, 0]] for name, value in params.items()}
    part = steps.m_step(steps.e_step(some)[0], some)
    for name, value in part.items():
        torch.testing.assert_close(value, whole[name][[2, 0]], rtol=1e-6, atol=1e-7)


def test_what_the_batch_cannot_do_goes_the_old_way() -> None:
    assert (
        fit_penalty_grid(
            DeepDiscreteEncoder(18, (6, 2)),
            small_case(Bernoulli(), 50)[1],
            LASSOS,
            EM(accelerate=False),
        )
        is None
    )
    assert refit_penalty_grid([NoisyOr(3, 2)], torch.zeros(4, 3), [{}], EM()) is None


@pytest.mark.parametrize("bad", [[TruncatedLasso], [1.0], [TruncatedLasso(1.0, 1.0), None]])
def test_an_entry_that_is_no_penalty_is_named(bad: list[Any]) -> None:
    with pytest.raises(ValueError, match=rf"penalties\[{len(bad) - 1}\] must be a penalty"):
        penalty_path(DeepDiscreteEncoder(6, (2,)), torch.zeros(5, 6), bad)


@pytest.mark.parametrize(
    "slope", [-1.0, 0.0, math.nan, torch.tensor([1.0, -2.0]), torch.ones(2, 2)]
)
def test_constants_are_positive(slope: Any) -> None:
    with pytest.raises(ValueError, match="slope_at_zero must be"):
        TruncatedLasso(slope, 1.0)


def test_conjunctions_have_their_graph_and_take_no_penalty() -> None:
    graph = ((1, 0), (0, 1), (1, 1), (1, 0), (0, 1))
    model = DeepDiscreteEncoder(5, (2,), graphs=(graph,), bottom=ExpDINA())
    with pytest.raises(ValueError, match="penalty=None was expected"):
        penalty_path(model, torch.zeros(4, 5), LASSOS)
