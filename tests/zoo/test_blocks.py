"""Laws of models whose rows may come block by block."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
from zoo.row import Row
from zoo.table import NUM_RESTARTS, WITH_LOCAL, close, data_of, near, simulated

from inference import EM, OnlineEM, RowBlocks, fit
from inference.base.progress import NoProgress
from inference.base.steps import summed_statistics
from inference.base.structure import Capability
from inference.fitting.problem import problem_of, problem_of_blocks
from inference.structures.factorization.factorize import Factorize
from inference.structures.registry import structure_of

IN_BLOCKS = [row for row in WITH_LOCAL if Capability.BLOCKS in structure_of(row.model).capabilities]
SOLVED = [
    row for row in WITH_LOCAL if Capability.LOCAL_BLOCKS in structure_of(row.model).capabilities
]


@pytest.mark.parametrize("row", IN_BLOCKS, ids=lambda row: row.name)
def test_sums_over_rows_are_all_that_em_wants(row: Row) -> None:
    """Steps that were made of other rows take the same M-step from the sums, and a problem of
    blocks has the objective and the M-step of all rows.
    """
    data, params = data_of(row), near(row, NUM_RESTARTS, seed=6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a constant column
        problem = problem_of(row.model, data, 0, start_given=True)
        blocked = problem_of_blocks(
            row.model, RowBlocks.of(data, block_rows=3), 0, start_given=True
        )
    steps = EM().steps(problem)
    whole, log_likelihood, log_prior = steps.e_step(params)
    moved = steps.m_step(whole, params)
    others = EM().steps(replace(problem, data=data[[3, 1, 1, 7, 5, 2, 0]]))
    if hasattr(steps, "floor"):
        others = replace(
            others, given_floor=steps.floor
        )  # a share of the columns' variances, which are the sample's where rows come in blocks
    added, _ = summed_statistics(others, params, data.tensor_split([4, 5]))
    for name, value in others.m_step(added, params).items():
        close(value, moved[name], 1e-8)
    assert problem.num_rows == blocked.num_rows
    assert problem.structure.num_observations(problem) == blocked.structure.num_observations(
        blocked
    )
    in_blocks = EM().steps(blocked)
    found, value, prior = in_blocks.e_step(params)
    close(value, log_likelihood.double(), 1e-9)
    close(prior, log_prior.double(), 1e-9)
    for name, value in in_blocks.m_step(found, params).items():
        close(value, moved[name], 1e-8)


@pytest.mark.parametrize("row", IN_BLOCKS, ids=lambda row: row.name)
def test_one_batch_of_all_rows_is_one_iteration(row: Row) -> None:
    """Stepwise EM whose only batch has all rows, in memory and in blocks."""
    data, params = data_of(row), near(row, NUM_RESTARTS, seed=6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a constant column
        problem = problem_of(row.model, data, 0, start_given=True)
        blocked = problem_of_blocks(
            row.model, RowBlocks.of(data, block_rows=3), 0, start_given=True
        )
    steps = EM().steps(problem)
    wanted = steps.m_step(steps.e_step(params)[0], params)
    for own in (problem, blocked):
        found = OnlineEM(batch_rows=len(data)).improved(
            own, EM().steps(own), params, NoProgress(), None
        )
        for name, value in found.items():
            close(value, wanted[name], 1e-8)


@pytest.mark.filterwarnings("ignore:the best restart did not converge")
@pytest.mark.parametrize("row", SOLVED, ids=lambda row: row.name)
def test_rows_are_solved_where_they_lie(row: Row) -> None:
    """Engines with local sites: the fit of blocks is that of rows in memory from the same start,
    their local sites too, and so is what is asked of it afterwards.

    Entry by entry after one iteration: small differences grow in later ones, in activities up
    to 1e-4, and restarts that have met are told apart by rounding alone.
    """
    data = simulated(row, 40, seed=1)  # missing entries lie where they lie, in some of the blocks
    method = Factorize(max_sweeps=15)
    start = {name: value for name, value in row.truth.items() if name not in row.local}
    whole, blocks = (
        fit(row.model, data, method, init=start, num_restarts=2),
        RowBlocks.of(data, block_rows=7),
    )
    found = fit(row.model, blocks, method, init=start, num_restarts=2)
    close(found.objective, whole.objective, 1e-9)
    close(found.log_likelihood, whole.log_likelihood, 1e-9)
    for name, value in (whole.params | whole.local).items():
        close((found.params | found.local)[name], value, 1e-6 if name in row.local else 1e-8)
    close(found.restarts.objective, whole.restarts.objective, 1e-9)
    assert found.num_parameters == whole.num_parameters
    close(found.log_likelihood_rows(blocks), found.log_likelihood_rows(data), 1e-8)
    close(found.reconstruct(blocks), found.reconstruct(data), 1e-6)
    both = [
        fit(row.model, form, Factorize(max_sweeps=90), init=start, num_restarts=2)
        for form in (data, blocks)
    ]
    close(both[1].restarts.objective, both[0].restarts.objective, 1e-9)
    with pytest.raises(ValueError, match=r"RowBlocks: .* by Factorize\(\), and EM"):
        fit(row.model, blocks, EM())
