"""Fits of a model under a grid of penalties, or on several graphs, as one batch
(:mod:`inference.structures.layers.penalty_grid`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from inference.base.outcome import ConvergenceWarning
from inference.base.progress import NoProgress
from inference.engines.em import EM, EMState
from inference.fitting.fit import assemble
from inference.fitting.problem import problem_of
from inference.fitting.result import Fit
from inference.programs.global_state import listening
from inference.programs.program import Params
from inference.structures.layers.penalty_grid import (
    climb_graphs,
    climb_penalties,
    part_of,
    unfinished_text,
)
from inference.structures.layers.structure import LayeredStructure
from ppl_models.parts.penalties import Penalty


def fit_penalty_grid(
    model: Any,
    data: Any,
    penalties: Sequence[Penalty],
    method: EM,
    num_restarts: int = 1,
    seed: int = 0,
) -> list[Fit] | None:
    """Fits of a model under each penalty, all from the same starts; None for a model this does not
    apply to.

    Args:
        model: with layers and a field ``penalty``.
        data: its rows.
        penalties: of one kind.
        method: the engine.
        num_restarts: starts of each.
        seed: of the starts.
    """
    models = [replace(model, penalty=penalty) for penalty in penalties]
    problem = problem_of(replace(model, penalty=None), data, seed)
    start = problem.structure.start(problem, "spectral", num_restarts)
    if start is None or not isinstance(problem.structure, LayeredStructure):
        return None
    began = time.monotonic()
    state = climb_penalties(problem, models, start, method, NoProgress())
    return (
        None
        if state is None
        else _fits_of(state, models, data, method, seed, time.monotonic() - began)
    )


def refit_penalty_grid(
    models: Sequence[Any], data: Any, starts: Sequence[Params], method: EM, seed: int = 0
) -> list[Fit] | None:
    """Fits of one model restricted to several graphs, each from its own start; None where this does
    not apply.

    Args:
        models: without penalties, of equal sizes, each with a graph in every layer.
        data: their rows.
        starts: parameters of each, zero off its graph.
        method: the engine.
        seed: recorded in the fits.
    """
    if not hasattr(models[0], "graphs"):
        return None
    problem = problem_of(replace(models[0], graphs=None), data, seed)
    began = time.monotonic()
    state = climb_graphs(problem, models, starts, method, NoProgress())
    return (
        None
        if state is None
        else _fits_of(state, models, data, method, seed, time.monotonic() - began)
    )


def _fits_of(
    state: EMState, models: Sequence[Any], data: Any, method: EM, seed: int, seconds: float
) -> list[Fit]:
    each = len(state.objective) // len(models)
    return [
        _fit_of(part_of(state, g, each), own, data, method, seed, seconds / len(models))
        for g, own in enumerate(models)
    ]


def _fit_of(state: EMState, model: Any, data: Any, method: EM, seed: int, seconds: float) -> Fit:
    with listening() as caught:
        problem = problem_of(model, data, seed, start_given=True)
        text = unfinished_text(state, method)
        if text is not None:
            warnings.warn(f"{model.penalty!r}: {text}", ConvergenceWarning, stacklevel=2)
        result = assemble(problem, method, state.outcome(), seconds)
    for warning in caught:
        warnings.warn(warning.message, warning.category, stacklevel=5)
    return replace(
        result, warnings=tuple(dict.fromkeys(str(warning.message) for warning in caught))
    )
