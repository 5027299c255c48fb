"""A larger model contains the smaller one, so that its best log-likelihood is no lower: where it
came out lower, its optimum was missed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from inference.base.optima import rank_restarts
from inference.base.outcome import StartsWarning
from inference.base.structure import split_start
from inference.engines.em import EM
from inference.fitting.fit import fit
from inference.fitting.problem import problem_of
from inference.fitting.result import Fit
from inference.programs.global_state import quiet

SLACK = (0.01, 1e-6)  # nats, and share of the log-likelihood, that say nothing
MORE_STARTS = 20


def below_smaller(fits: Sequence[Fit]) -> list[int]:
    """Positions, in rising order of size, of fits whose log-likelihood is lower than that of a
    smaller one.

    Of fits by EM to models without a penalty alone: others maximise something else, or a bound.
    """
    found, highest = [], -math.inf
    for i, one in enumerate(fits):
        if not _comparable(one):
            continue
        if one.log_likelihood < highest - SLACK[0] - SLACK[1] * abs(highest):
            found.append(i)
        highest = max(highest, one.log_likelihood)
    return found


def grow_again(
    sizes: Sequence[Any], fits: Sequence[Fit], data: Any, seed: int
) -> tuple[list[Fit], list[int]]:
    """The fits, those below a smaller size made again: from the smaller one with its largest latent
    split, and from more starts.

    Args:
        sizes: rising; fits: one a size, of the same data.
        data: the rows.
        seed: of the starts.

    Returns:
        The fits, and the positions of those that stay below.

    Warns:
        StartsWarning: naming sizes that stay below.
    """
    out = list(fits)
    for i in range(1, len(out)):
        if i in below_smaller(out[: i + 1]):
            smaller = max(
                (one for one in out[:i] if _comparable(one)), key=lambda one: one.log_likelihood
            )
            out[i] = _again(smaller, out[i - 1], out[i], data, seed)
    left = below_smaller(out)
    for i in left:
        best = max(
            (j for j in range(i) if _comparable(out[j])), key=lambda j: out[j].log_likelihood
        )
        warnings.warn(
            f"size {sizes[i]} came out at a log-likelihood of {out[i].log_likelihood:.2f}, below"
            f" the {out[best].log_likelihood:.2f} of size {sizes[best]}, although it was fitted"
            " again from the smaller size with a latent split, and from more starts. Its best"
            " optimum was missed, or its priors hold it back: what is said of that size is too"
            " little, so fit it with more starts before you rule it out",
            StartsWarning,
            stacklevel=3,
        )
    return out, left


def _comparable(one: Fit) -> bool:
    plain = isinstance(one.method, EM) and all(
        layer.penalty is None for layer in one.structure.layers
    )
    return plain and one.draws is None and math.isfinite(one.log_likelihood)


def _again(highest: Fit, before: Fit, large: Fit, data: Any, seed: int) -> Fit:
    """The better of a fit, of runs from smaller sizes split, and, where these do not help, of more
    starts.
    """
    tries = [large]
    with quiet():  # what is kept is judged below, with the others
        problem = problem_of(large.model, data, seed)
        for smaller in (highest, before):
            start = split_start(problem.structure, problem, smaller.params)
            if start is not None:
                tries.append(
                    fit(
                        large.model,
                        data,
                        large.method,
                        init={name: value[0] for name, value in start.items()},
                        seed=seed,
                    )
                )
        if max(one.log_likelihood for one in tries) < highest.log_likelihood:
            tries.append(
                fit(large.model, data, large.method, num_restarts=MORE_STARTS, seed=seed + 1)
            )
        best = max(tries, key=lambda one: (not one.restarts.faults, one.objective))
        if best is large:
            return large
        rows = [one.restarts for one in tries]
        params = {name: torch.cat([row.params[name] for row in rows]) for name in rows[0].params}
        objective = torch.cat([row.objective for row in rows])
        ranking = rank_restarts(problem, params, objective)
        restarts = replace(
            best.restarts,
            objective=objective,
            log_likelihood=torch.cat([row.log_likelihood for row in rows]),
            converged=torch.cat([row.converged for row in rows]),
            num_iterations=torch.cat([row.num_iterations for row in rows]),
            params=params,
            best=sum(len(row.objective) for row in rows[: tries.index(best)]) + best.restarts.best,
            num_tried=(
                None
                if rows[0].num_tried is None
                else rows[0].num_tried + len(objective) - len(rows[0].objective)
            ),
            optimum=ranking.optimum,
            degenerate=ranking.degenerate,
        )
    return replace(best, restarts=restarts, seconds=sum(one.seconds for one in tries))
