"""Noisy-OR networks of several sizes, many starts of each, fitted by exact EM as one tensor
program.

The smaller networks are padded to the largest size with latents that are absent: prior 1e-6 and
failures of exactly one, which exact EM leaves as they are. Every start then costs what the largest
size costs, 2^m configurations: worth it where there are many starts of sizes near each other, or on
an accelerator; else fit one size after another.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from inference.base.outcome import ConvergenceWarning, Outcome
from inference.base.progress import NoProgress
from inference.engines.em import EM
from inference.fitting.fit import assemble
from inference.fitting.problem import problem_of
from inference.fitting.result import Fit
from inference.programs.global_state import quiet
from inference.programs.program import Params
from inference.structures.noisy_or.grow_and_prune import padded
from inference.structures.registry import structure_of
from ppl_models.descriptions.noisy_or import IndependentCauses
from ppl_models.parts.validation import check_size, is_integer


def fit_sizes(
    family: Callable[[int], Any],
    data: Any,
    sizes: Sequence[int],
    method: EM | None = None,
    num_restarts: int = 1,
    seed: int = 0,
) -> list[Fit]:
    """A fit of every size, each the best of its own starts, as ``fit(family(m), data, method,
    "random", num_restarts, seed)``.

    Args:
        family: number of latents -> a model that offers ``causes()``, such as ``lambda m:
            NoisyOr(64, m)``.
        data: (N, J).
        sizes: numbers of latents, distinct; the largest at most 16.
        method: exact EM with its settings.
        num_restarts: starts of each size; seed: as in ``fit``.

    Returns:
        The fits in the order of ``sizes``; of the seconds of the whole, each has an equal share.

    Raises:
        ValueError: for sizes that are not distinct positive integers, a model of another kind, or
            another engine.
    """
    method = EM() if method is None else method
    if not isinstance(method, EM) or not method.accelerate:
        raise ValueError(f"fit_sizes: method must be EM(), accelerated, got {method!r}")
    check_size("fit_sizes", "num_restarts", num_restarts)
    sizes = tuple(sizes)
    if not sizes or not all(map(is_integer, sizes)) or len(set(sizes)) < len(sizes):
        raise ValueError(
            f"fit_sizes: sizes must be distinct positive integers, got {list(sizes)!r}"
        )
    problems = [problem_of(family(size), data, seed) for size in sizes]
    described = [
        _described(problem.model, size) for problem, size in zip(problems, sizes, strict=True)
    ]
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    began = time.monotonic()
    steps = method.steps(problems[largest])
    starts = [
        problem.structure.start(problem, "random", num_restarts) or {} for problem in problems
    ]
    wide = [padded(described[largest], start) for start in starts]
    together = {name: torch.cat([start[name] for start in wide]) for name in wide[0]}
    with quiet(ConvergenceWarning):  # told of each size below
        outcome = method.climb(
            steps, together, False, NoProgress(), supports=problems[largest].supports
        ).outcome()
    seconds = (time.monotonic() - began) / len(sizes)
    fits = []
    for i, (problem, causes) in enumerate(zip(problems, described, strict=True)):
        own = _part(outcome, slice(i * num_restarts, (i + 1) * num_restarts), causes)
        fits.append(assemble(problem, method, own, seconds))
        if not fits[-1].converged:
            warnings.warn(
                f"{sizes[i]} latents: the best start did not converge",
                ConvergenceWarning,
                stacklevel=2,
            )
    return fits


def _described(model: Any, size: int) -> IndependentCauses:
    causes = structure_of(model).about
    if not isinstance(causes, IndependentCauses):
        raise ValueError(
            f"fit_sizes: family must return models that offer causes() (NoisyOr), got {model!r}"
        )
    if causes.num_causes != size:
        raise ValueError(
            f"fit_sizes: family({size}) must return a model of {size} latents, got"
            f" {causes.num_causes}"
        )
    return causes


def _part(outcome: Outcome, picked: slice, causes: IndependentCauses) -> Outcome:
    """The starts of one size, without the absent latents, which come last."""
    params: Params = {name: value[picked] for name, value in outcome.params.items()}
    params |= {
        name: params[name][:, : causes.num_causes] for name in (causes.prior, causes.failure)
    }
    iterations = int(outcome.num_iterations[picked].max())
    return dataclasses.replace(
        outcome,
        params=params,
        objective=outcome.objective[picked],
        log_likelihood=outcome.log_likelihood[picked],
        history=outcome.history[:iterations, picked],
        history_log_likelihood=outcome.history_log_likelihood[:iterations, picked],
        converged=outcome.converged[picked],
        num_iterations=outcome.num_iterations[picked],
    )
