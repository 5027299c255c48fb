"""Classes drawn together, over the zoo: at no distance from one another nothing in the data tells
them, and likelihoods are those of one class.
"""

from __future__ import annotations

import pytest
import torch
from zoo.row import Row
from zoo.table import ZOO, simulated

from inference.base.structure import drawn_together
from inference.fitting.problem import problem_of
from inference.programs.global_state import quiet
from inference.structures.registry import structure_of

CONCERNED = [
    row
    for row in ZOO
    if drawn_together.dispatch(type(structure_of(row.model))) is not drawn_together.dispatch(object)
]


@pytest.mark.parametrize("row", CONCERNED, ids=lambda row: row.name)
def test_rows_do_not_tell_classes_that_are_alike(row: Row) -> None:
    first, second = (simulated(row, 12, seed) for seed in (1, 2))
    if first.is_floating_point():
        first, second = (
            data.masked_fill(first.isnan() | second.isnan(), torch.nan) for data in (first, second)
        )  # the same gaps
    with quiet():  # of columns with one value, and sequences of one step
        problem, other = (problem_of(row.model, data, 0, True) for data in (first, second))
    alike = drawn_together(problem.structure, problem, row.truth, 0.0)
    assert alike is not None
    assert {name: value.shape for name, value in alike.items()} == {
        name: value.shape for name, value in row.truth.items()
    }
    means = [own.structure.latent_means(own.program(), alike) for own in (problem, other)]
    if problem.structure.covariates is not None:  # given in the rows, and different in both
        return
    for one, two in zip(means[0].values(), means[1].values(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=0)
