"""A model and data, checked and brought together: what engines are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inference.base.structure import Problem
from inference.fitting.weights import row_weights
from inference.programs.data import checked, checks_data
from inference.programs.program import Program
from inference.programs.soundness import check_program
from inference.structures.registry import structure_of
from ppl_models.parts.frames import as_frame
from ppl_models.parts.validation import is_integer

__all__ = ["problem_of"]


def problem_of(model: Callable[..., Any], data: Any, seed: int, start_given: bool = False, weights: Any = None) -> Problem:
    """The problem of a model, its data checked by the model's own rules where it has them.

    Args:
        model: the program; data: what it takes.
        seed: of everything random.
        start_given: whether the user gave the parameters to start from.
        weights: how often each row counts; None for once.

    Raises:
        ValueError: for a model that is a class, a seed out of range, data that the model refuses, weights that are none
            (:func:`inference.fitting.weights.row_weights`), or a program that no engine can fit.
    """
    if not callable(model) or isinstance(model, type):
        raise ValueError(f"model: a Pyro program (a callable, not a class) was expected, got {model!r}")
    if not is_integer(seed, least=0):
        raise ValueError(f"seed: a non-negative integer below 2**63 was expected, got {seed!r}")
    tensors, names = checked(model, data, for_fit=True)
    own_program = None if checks_data(model) else Program(model, tensors)
    if own_program is not None:
        check_program(own_program)
    structure = structure_of(model)
    own = None if weights is None else row_weights(weights, as_frame(data), tensors, structure)
    known = structure.measured(tensors, own)
    problem = Problem(known, tensors, names, int(seed), start_given, structure if known is model else structure_of(known), weights=own)
    if own_program is not None:
        own_program.share_trial(problem.trial)
        problem.looked_at.append(own_program)
    return problem
