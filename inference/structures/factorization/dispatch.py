"""Updates for a model's kind of entries, and for the form in which its table is held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from inference.base.structure import Problem
from inference.programs.program import Params
from inference.structures.factorization.sparse_counts import SparseCounts, solved
from inference.structures.factorization.updates import (
    POLISH_STEPS,
    POLISHED,
    Counts,
    DispersedCounts,
    LeastSquares,
    LinearlyDispersedCounts,
    polished,
)
from ppl_models.data.sparse import SparseTable, worth_sparse
from ppl_models.descriptions.components import FactorizationDescription

DISTRIBUTIONS = {"quadratic": DispersedCounts, "linear": LinearlyDispersedCounts}


def updates_of(data: Any, about: FactorizationDescription, params: Params) -> Counts | LeastSquares:
    """Updates for a model's kind of entries, at the dispersion of ``params`` if it has one."""
    if isinstance(data, SparseTable):
        return SparseCounts.of(data, about)
    if not about.counts:
        return LeastSquares(data)
    if about.variance is None:
        return Counts.of(data, about)
    return DISTRIBUTIONS[about.variance].of_params(data, params)


def solved_rows(updates: Counts | LeastSquares, phi: Tensor) -> Tensor:
    """Activities (N, K) of every row for given signatures (K, J), to convergence."""
    if isinstance(updates, SparseCounts) and updates.takes_newton(len(phi)):
        return solved(updates, phi, POLISH_STEPS, POLISHED)
    return polished(updates, phi)


def in_cells(problem: Problem) -> Problem:
    """The problem with its counts by their non-zero cells, where a large table is mostly zero."""
    about = problem.structure.about
    if problem.rows is not None or not about.counts or about.dispersed:
        return problem
    found = problem.once("non-zero cells", lambda: worth_sparse(problem.data))
    return problem if found is None else replace(problem, data=found)
