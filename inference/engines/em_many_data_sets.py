"""EM on many data sets of one model as one batch; see :mod:`inference.base.many_data_sets`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.base.many_data_sets import SET, without_set
from inference.base.outcome import Outcome
from inference.base.progress import NoProgress
from inference.base.structure import set_steps
from inference.engines.em import EM
from inference.programs.program import Params

if TYPE_CHECKING:
    from inference.base.structure import Problem


def fits_sets(problem: Problem, method: object) -> bool:
    """Whether :func:`fit_sets` applies: EM without a start by stepwise EM, on a table, for a model
    that has the steps for it.
    """
    if (
        not isinstance(method, EM)
        or not method.accelerate
        or method.start is not None
        or not isinstance(problem.data, Tensor)
    ):
        return False
    return (
        set_steps(
            problem.structure,
            problem,
            problem.data.unsqueeze(0),
            method.elements_at_once(problem.data),
            method.num_inner,
        )
        is not None
    )


def fit_sets(problem: Problem, method: EM, sets: Tensor, start: Params) -> Outcome:
    """EM on each data set, as one batch.

    Args:
        problem: of one data set of the same shape.
        method: the engine.
        sets: (S, N, J), NaN where missing.
        start: parameters, (1, ...) for all of them, or (S R, ...), R starts a data set, those of
            the first one first.

    Returns:
        What the engine hands back, restart s R + r that of start r of data set s.

    Raises:
        ValueError: where :func:`fits_sets` says no.
    """
    steps = set_steps(
        problem.structure, problem, sets, method.elements_at_once(problem.data), method.num_inner
    )
    if steps is None:
        raise ValueError(
            "fit_sets: a model with steps for many data sets was expected, got"
            f" {type(problem.model).__name__}"
        )
    num = max(len(sets), len(next(iter(start.values()))))
    every = {
        name: (
            value.expand(num, *value.shape[1:]).to(
                sets if value.is_floating_point() else sets.device, copy=True
            )
        )
        for name, value in start.items()
    }
    owner = torch.arange(len(sets), device=sets.device, dtype=sets.dtype)
    outcome = method.climb(
        steps,
        every | {SET: owner.repeat_interleave(num // len(sets))},
        True,
        NoProgress(),
        supports=problem.supports,
    ).outcome()
    return replace(outcome, params=without_set(outcome.params))
