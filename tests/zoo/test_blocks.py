"""Laws of models whose rows may come block by block."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
from zoo.row import Row
from zoo.table import NUM_RESTARTS, WITH_LOCAL, close, data_of, near

from inference import EM, OnlineEM, RowBlocks
from inference.base.progress import NoProgress
from inference.base.steps import summed_statistics
from inference.fitting.problem import problem_of, problem_of_blocks
from inference.structures.registry import structure_of

IN_BLOCKS = [row for row in WITH_LOCAL if structure_of(row.model).takes_blocks]


@pytest.mark.parametrize("row", IN_BLOCKS, ids=lambda row: row.name)
def test_sums_over_rows_are_all_that_em_wants(row: Row) -> None:
    """Steps that were made of other rows take the same M-step from the sums, and a problem of blocks has the objective and the M-step of all rows."""
    data, params = data_of(row), near(row, NUM_RESTARTS, seed=6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a constant column
        problem = problem_of(row.model, data, 0, start_given=True)
        blocked = problem_of_blocks(row.model, RowBlocks.of(data, block_rows=3), 0, start_given=True)
    steps = EM().steps(problem)
    whole, log_likelihood, log_prior = steps.e_step(params)
    moved = steps.m_step(whole, params)
    others = EM().steps(replace(problem, data=data[[3, 1, 1, 7, 5, 2, 0]]))
    if hasattr(steps, "floor"):
        others = replace(others, given_floor=steps.floor)  # a share of the columns' variances, which are the sample's where rows come in blocks
    added, _ = summed_statistics(others, params, data.tensor_split([4, 5]))
    for name, value in others.m_step(added, params).items():
        close(value, moved[name], 1e-8)
    assert problem.num_rows == blocked.num_rows
    assert problem.structure.num_observations(problem) == blocked.structure.num_observations(blocked)
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
        blocked = problem_of_blocks(row.model, RowBlocks.of(data, block_rows=3), 0, start_given=True)
    steps = EM().steps(problem)
    wanted = steps.m_step(steps.e_step(params)[0], params)
    for own in (problem, blocked):
        found = OnlineEM(batch_rows=len(data)).improved(own, EM().steps(own), params, NoProgress(), None)
        for name, value in found.items():
            close(value, wanted[name], 1e-8)
