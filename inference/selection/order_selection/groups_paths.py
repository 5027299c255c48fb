"""Every law at every number of components of a mixture, or states of a hidden Markov model: starts
by k-means++, from the number below with each of its components split, from the first law's groups,
and from more components of the first law merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from inference.base.progress import NoProgress, Progress
from inference.base.structure import more_starts
from inference.engines.em import EM
from inference.fitting.columns import checked_as_fitted
from inference.fitting.fit import fit_from
from inference.fitting.result import Fit
from inference.selection.order_selection.candidates import Law
from inference.selection.order_selection.grid_fits import MORE_STARTS, Paths, too_low
from inference.selection.order_selection.groups import merged_by_entropy
from inference.structures.hidden_markov.structure import HiddenMarkovStructure
from inference.structures.mixture.structure import MixtureStructure

SHORT = 25  # iterations, after which starts are compared
FINALISTS = 3  # that go on to the end
CONTAINED = (
    2.0  # nats that a law may stay below one that it contains, whose limit lies beyond its interval
)
MOST_MERGED = 3  # components beyond the number, that are merged


def fit_groups(
    laws: Sequence[Law],
    sizes: Sequence[int],
    data: Any,
    num_restarts: int,
    seed: int,
    method: EM,
    progress: Progress,
) -> Paths:
    """One fit for each law and number; a log-likelihood that falls with the number, or below the
    first law's, is fitted again from more starts.

    Args:
        laws: those of more parameters after those of fewer.
        sizes: numbers, rising.
        data: the rows.
        num_restarts: starts by k-means++ and at random; twice as many for skewed laws, half for
            other laws after the first.
        seed: of the starts.
        method: settings of every fit.
        progress: told of every fit.
    """
    fits: Paths = {}
    groups: dict[int, Tensor] = {}  # of the first law
    for law in laws:
        is_first = law is laws[0]
        num = (
            num_restarts
            if is_first
            else 2 * num_restarts
            if law.is_skewed
            else max(2, num_restarts // 2)
        )
        for k in sizes:
            shares = (
                []
                if is_first
                else [
                    groups[k],
                    *(merged_by_entropy(groups[n], k) for n in groups if k < n <= k + MOST_MERGED),
                ]
            )
            smaller = fits.get((law.name, k - 1))
            best = _best(law, k, data, shares, smaller, num, seed, method)
            known = [] if smaller is None else [smaller.log_likelihood]
            known += [] if is_first else [fits[laws[0].name, k].log_likelihood - CONTAINED]
            if known and too_low(best.log_likelihood, max(known)):
                again = _best(law, k, data, shares, smaller, MORE_STARTS, seed + 1, method)
                best = max((best, again), key=lambda one: (not one.restarts.faults, one.objective))
            fits[law.name, k] = best
            if is_first:
                groups[k] = shares_of(best, data)
            progress.update(
                len(fits), objective=best.objective, active=len(laws) * len(sizes) - len(fits)
            )
    return fits


def shares_of(one: Fit, data: Any) -> Tensor:
    """Responsibilities of rows, or of the states for steps that have entries, (N, K)."""
    (shares,) = one.posterior_latents(data).values()
    if shares.dim() == 2:
        return shares
    packed, _ = checked_as_fitted(one, data)
    return shares[packed.isfinite().any(-1).to(shares.device)]  # (B, T, K) before


def _best(
    law: Law,
    k: int,
    data: Any,
    shares: Sequence[Tensor],
    smaller: Fit | None,
    num_random: int,
    seed: int,
    method: EM,
) -> Fit:
    def starts(problem: Any) -> dict[str, Tensor]:
        structure: MixtureStructure | HiddenMarkovStructure = problem.structure
        first = more_starts(structure, problem, "spectral", num_random, 0)
        assert first is not None  # both structures have starts
        found = [first]
        if shares:
            found.append(structure.start_from(problem, torch.stack(list(shares))))
        if smaller is not None:
            found.append(structure.split_starts(problem, smaller.params))
        every = {name: torch.cat([start[name] for start in found]) for name in found[0]}
        return finalists(problem, every, method)

    return fit_from(law.at(k), data, method, starts, seed)


def finalists(problem: Any, every: dict[str, Tensor], method: EM) -> dict[str, Tensor]:
    """The best of many starts (R, ...) after a few iterations, where these have brought them."""
    short = replace(method, max_iterations=min(SHORT, method.max_iterations)).run(
        problem, every, NoProgress(), None
    )
    order = short.objective.nan_to_num(nan=-torch.inf).argsort(descending=True, stable=True)[
        :FINALISTS
    ]
    return {name: value[order] for name, value in short.params.items()}
