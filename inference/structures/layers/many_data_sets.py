"""Many data sets of one model as one batched EM: restart r climbs on rows of its own.

Refits on simulated data differ in their rows alone. As restarts of one program they share the trace, the Newton steps and the
matrix products; which rows belong to a restart travels among the parameters as an entry that no step changes, so that finished
restarts drop out with their rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.base.outcome import Outcome
from inference.base.progress import NoProgress
from inference.base.steps import Steps
from inference.engines.em import EM
from inference.programs.program import Params
from inference.structures.layers.em_steps import LayeredSteps, TowerStatistics

if TYPE_CHECKING:
    from inference.base.structure import Problem

__all__ = ["SetSteps", "fit_sets", "fits_sets"]

SET = "data set"  # entry beside the parameters


@dataclass(frozen=True)
class SetSteps(Steps):
    """The two halves of EM where restarts differ in their data.

    Args:
        base: steps whose data are (S, N, J).
    """

    base: LayeredSteps

    def e_step(self, params: Params) -> tuple[TowerStatistics, Tensor, Tensor]:
        index = params[SET].long()
        mask = None if self.base.mask is None else self.base.mask[index]
        return replace(self.base, data=self.base.data[index], mask=mask).e_step(_own(params))

    def m_step(self, statistics: TowerStatistics, params: Params) -> Params:
        return self.base.m_step(statistics, _own(params)) | {SET: params[SET]}

    def on(self, data: Tensor) -> SetSteps:
        """Other rows of every data set, (S, N, J)."""
        return SetSteps(self.base.on(data))


def fits_sets(problem: Problem, method: object) -> bool:
    """Whether :func:`fit_sets` applies: EM on layers of a table."""
    if not isinstance(method, EM) or not method.accelerate:
        return False
    return isinstance(problem.structure.steps(problem, method.chunk_elements, method.num_inner), LayeredSteps)


def fit_sets(problem: Problem, method: EM, sets: Tensor, start: Params) -> Outcome:
    """EM on each data set from the same start, as one batch.

    Args:
        problem: of one data set of the same shape.
        method: the engine.
        sets: (S, N, J), NaN where missing.
        start: parameters, (1, ...).

    Returns:
        What the engine hands back, restart s that of data set s.

    Raises:
        ValueError: where :func:`fits_sets` says no.
    """
    base = LayeredSteps.build(problem.model, sets, method.chunk_elements, method.num_inner)
    if base is None:
        raise ValueError("fit_sets: a model of layers was expected")
    every = {name: value.expand(len(sets), *value.shape[1:]).clone() for name, value in start.items()}
    entry = {SET: torch.arange(len(sets), device=sets.device, dtype=sets.dtype)}
    outcome = method.climb(SetSteps(base), every | entry, True, NoProgress()).outcome()
    return replace(outcome, params=_own(outcome.params))


def _own(params: Params) -> Params:
    return {name: value for name, value in params.items() if name != SET}
