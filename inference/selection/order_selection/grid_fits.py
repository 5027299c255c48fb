"""Every law at every number of components, from starts that no number is ahead by: random ones, the
smaller fit grown, the first law's fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from inference.base.progress import Progress
from inference.fitting.fit import fit_from
from inference.fitting.result import Fit
from inference.selection.order_selection.candidates import Law
from inference.structures.factorization.factorize import Factorize
from inference.structures.factorization.starts import nndsvd

SLACK = (0.01, 1e-6)  # nats, and share of the log-likelihood, that say nothing
MORE_STARTS = 20

Paths = dict[tuple[str, int], Fit]


def fit_paths(
    laws: Sequence[Law],
    grid: Sequence[int],
    data: Tensor,
    num_restarts: int,
    seed: int,
    method: Factorize,
    progress: Progress,
    source: Any = None,
) -> Paths:
    """One fit for each law and number; a log-likelihood that falls with the number is fitted again
    from more starts.

    Args:
        laws: the first is contained in the others.
        grid: numbers, rising.
        data: (N, J).
        num_restarts: random starts of the first law; a later law has a third of them, for it starts
            at the first's fit too.
        seed: of the starts.
        method: settings of every fit.
        progress: told of every fit.
        source: the data as the user gave them, with names of the columns; ``data`` if None.
    """
    fits: Paths = {}
    named = data if source is None else source
    for law in laws:
        starts = num_restarts if law is laws[0] else later_starts(num_restarts)
        for k in grid:
            given = [_factors(fits[laws[0].name, k])] if law is not laws[0] else []
            smaller = fits.get((law.name, k - 1))
            if smaller is not None:
                given.append(grown(smaller, data))
            best = _best(law, k, named, given, starts, seed, method)
            lower = _bounds(fits, laws, law, k)
            if lower is not None and too_low(best.log_likelihood, lower):
                again = _best(law, k, named, given, MORE_STARTS, seed + 1, method)
                best = max((best, again), key=lambda one: one.log_likelihood)
            fits[law.name, k] = best
            progress.update(
                len(fits), objective=best.objective, active=len(laws) * len(grid) - len(fits)
            )
    return fits


def fit_next(
    law: Law, near: Fit, data: Tensor, num_random: int, seed: int, method: Factorize
) -> tuple[Fit, Fit]:
    """Fits of as many components as a fit has that is close to the data, and of one more; the
    larger does not end below the smaller.

    Args:
        law: of both; near: a fit of this law, from whose factors the smaller starts beside random
            ones.
        data: (N, J); num_random: random starts of each; seed: of them; method: settings.
    """
    k = near.model.num_components  # type: ignore[attr-defined]
    small = _best(law, k, data, [_factors(near)], num_random, seed, method)
    large = _best(law, k + 1, data, [grown(small, data)], num_random, seed, method)
    if too_low(large.log_likelihood, small.log_likelihood):
        again = _best(law, k + 1, data, [grown(small, data)], MORE_STARTS, seed + 1, method)
        large = max((large, again), key=lambda one: one.log_likelihood)
    return small, large


def later_starts(num_restarts: int) -> int:
    """Random starts of a law that starts at the first law's fit too."""
    return max(1, num_restarts // 3)


def too_low(value: float, bound: float) -> bool:
    """Whether a log-likelihood stays below one that it contains by more than says nothing."""
    return value < bound - SLACK[0] - SLACK[1] * abs(bound)


def grown(smaller: Fit, data: Tensor) -> dict[str, Tensor]:
    """Factors with one component more: the leading positive part of what the smaller fit leaves,
    (1, ...).
    """
    assert smaller.local is not None
    z, phi = smaller.local["activities"], smaller.params["signatures"]
    left = data - z @ phi
    own, signature = nndsvd(torch.where(left.isnan(), 0.0, left).clamp(min=0), 1, 0)
    return {
        "activities": torch.cat([z, own], 1)[None],
        "signatures": torch.cat([phi, signature])[None],
    }


def _factors(fit: Fit) -> dict[str, Tensor]:
    assert fit.local is not None
    return {
        "activities": fit.local["activities"][None],
        "signatures": fit.params["signatures"][None],
    }


def _best(
    law: Law,
    k: int,
    data: Any,
    given: Sequence[Mapping[str, Tensor]],
    num_random: int,
    seed: int,
    method: Factorize,
) -> Fit:
    def starts(problem: Any) -> dict[str, Tensor]:
        drawn = problem.structure.start(problem, "spectral", num_random)
        return {
            name: torch.cat(
                [*(start[name] if name in start else value[:1] for start in given), value]
            )
            for name, value in drawn.items()
        }

    return fit_from(law.at(k), data, method, starts, seed)


def _bounds(fits: Paths, laws: Sequence[Law], law: Law, k: int) -> float | None:
    """The log-likelihood that this fit must reach: that of the number below, and of the first law,
    which it contains.
    """
    known = [
        fits[name, n].log_likelihood
        for name, n in ((law.name, k - 1), (laws[0].name, k))
        if (name, n) in fits
    ]
    return max(known, default=None)
