r"""Growing sizes: each fitted from the one before, as long as a criterion has not risen.

The first batch of the search for K components holds starts that split each component of the fit of
K - 1 in turn, and ten of the family; replicates are not asked for
(:class:`inference.fitting.fit.SharedSearch`). Let C be a criterion that falls with the
log-likelihood of a fit, :math:`C = -2 L` and a price of the size, and s the largest gain in L of
the family's starts over the splits, or of a full search over the first batch, at any size so far. A
size is ruled out where

.. math:: C(K) > \min_{K'} C(K') + 2 \max(10, 2 s),

for a better optimum would have to gain twice as much as any has. The climb ends with two sizes in a
row that are ruled out, each with sound solutions from its splits; sizes that are not ruled out are
searched fully, by the family's own rule. A gap in the grid has no splits: sizes beyond are
searched fully, and the climb goes on.

After it, missed optima: a larger model whose log-likelihood is below that of one it contains.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from inference.base.optima import rank_restarts
from inference.base.outcome import StartsWarning
from inference.base.structure import split_start
from inference.engines.em import EM
from inference.fitting.fit import SharedSearch, fit
from inference.fitting.problem import problem_of
from inference.fitting.result import Fit
from inference.programs.global_state import quiet

SLACK = (0.01, 1e-6)  # nats, and share of the log-likelihood, that say nothing
MORE_STARTS = 20
CLEAR = 10.0  # a difference of a criterion that leaves no doubt (Kass and Raftery 1995)


@dataclass(eq=False)
class Climb:
    """Fits of a grid from its smallest size up, and the searches that led to them.

    Args:
        fits: of the first sizes of the grid; searches: one a fit.
    """

    fits: list[Fit] = field(default_factory=list)
    searches: list[SharedSearch] = field(default_factory=list)

    @property
    def margin(self) -> float:
        """Rise of a criterion above its lowest value that no search is seen to make up for."""
        gains = [shared.gain for shared in self.searches if math.isfinite(shared.gain)]
        return 2 * max(CLEAR, 2 * max(gains, default=0.0))

    def place(self, total: int, score: Callable[[Sequence[Fit]], list[float]] | None) -> int | None:
        """Return the place of the grid to fit next, or to search fully; None at the end.

        Args:
            total: sizes of the grid.
            score: a criterion of every fit, as above; None to search all sizes fully.
        """
        scores = [-math.inf] * len(self.fits) if score is None else score(self.fits)
        limit = min(scores, default=0.0) + self.margin
        last = list(zip(scores, self.searches, strict=True))[-2:]
        has_risen = len(last) == 2 and all(
            value > limit and not math.isnan(shared.gain) for value, shared in last
        )
        if len(self.fits) < total and not has_risen:
            return len(self.fits)
        left = [
            i
            for i, (value, shared) in enumerate(zip(scores, self.searches, strict=True))
            if not shared.is_full and shared.state is not None and value <= limit
        ]
        return min(left, key=scores.__getitem__, default=None)

    def search(self, place: int, is_full: bool) -> SharedSearch:
        """Return the search for a size: a new one beyond the fits, else the old one, now full."""
        if place < len(self.fits):
            self.searches[place].is_full = True
        else:
            smaller = self.fits[place - 1].params if place else None
            self.searches.append(SharedSearch(smaller, is_full))
        return self.searches[place]

    def take_in(self, place: int, fit_k: Fit) -> None:
        """Take in the fit of a size, or one whose search went on."""
        if place == len(self.fits):
            self.fits.append(fit_k)
            return
        before, shared = self.fits[place], self.searches[place]
        shared.gain = max(shared.gain, fit_k.objective - before.objective)
        self.fits[place] = replace(fit_k, seconds=before.seconds + fit_k.seconds)


def too_low(value: float, bound: float) -> bool:
    """Tell whether a log-likelihood stays below that of a model it contains."""
    return value < bound - SLACK[0] - SLACK[1] * abs(bound)


def below_smaller(fits: Sequence[Fit]) -> list[int]:
    """Return positions of fits whose log-likelihood is below that of a smaller size.

    Fits are in rising order of size.

    Of fits by EM to models without a penalty alone: others maximise something else, or a bound.
    """
    positions, highest = [], -math.inf
    for i, fit_k in enumerate(fits):
        if not _comparable(fit_k):
            continue
        if too_low(fit_k.log_likelihood, highest):
            positions.append(i)
        highest = max(highest, fit_k.log_likelihood)
    return positions


def grow_again(
    sizes: Sequence[Any], fits: Sequence[Fit], data: Any, seed: int
) -> tuple[list[Fit], list[int]]:
    """Refit sizes whose log-likelihood is below that of a smaller size.

    From the smaller one with its largest latent split, and from more starts.

    Args:
        sizes: rising.
        fits: one a size, of the same data.
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
                (fit_k for fit_k in out[:i] if _comparable(fit_k)),
                key=lambda fit_k: fit_k.log_likelihood,
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


def _comparable(fit_k: Fit) -> bool:
    plain = isinstance(fit_k.method, EM) and all(
        layer.penalty is None for layer in fit_k.structure.layers
    )
    return plain and fit_k.draws is None and math.isfinite(fit_k.log_likelihood)


def _again(highest: Fit, before: Fit, large: Fit, data: Any, seed: int) -> Fit:
    """Return the better of a fit, runs from smaller sizes split, and more starts if needed."""
    tries = [large]
    with quiet():  # what is kept is judged below, with the others
        problem = problem_of(large.model, data, seed)
        for smaller in (highest, before):
            start = split_start(problem.structure, problem, smaller.params)
            if start is not None:
                init = {name: value[0] for name, value in start.items()}
                tries.append(fit(large.model, data, large.method, init=init, seed=seed))
        if max(fit_k.log_likelihood for fit_k in tries) < highest.log_likelihood:
            tries.append(
                fit(large.model, data, large.method, num_restarts=MORE_STARTS, seed=seed + 1)
            )
        best = max(tries, key=lambda fit_k: (not fit_k.restarts.faults, fit_k.objective))
        if best is large:
            return large
        rows = [fit_k.restarts for fit_k in tries]
        params = {name: torch.cat([row.params[name] for row in rows]) for name in rows[0].params}
        objective = torch.cat([row.objective for row in rows])
        ranking = rank_restarts(problem, params, objective)
        is_search = any(row.num_tried is not None for row in rows)
        num_tried = sum(row.num_tried or row.num_ended for row in rows) if is_search else None
        restarts = replace(
            best.restarts,
            objective=objective,
            log_likelihood=torch.cat([row.log_likelihood for row in rows]),
            converged=torch.cat([row.converged for row in rows]),
            num_iterations=torch.cat([row.num_iterations for row in rows]),
            params=params,
            best=sum(len(row.objective) for row in rows[: tries.index(best)]) + best.restarts.best,
            num_tried=num_tried,
            optimum=ranking.optimum,
            degenerate=ranking.degenerate,
            replicates=torch.cat(
                [
                    torch.ones(len(row.objective), dtype=torch.long)
                    if row.replicates is None
                    else row.replicates
                    for row in rows
                ]
            ),
        )
    return replace(best, restarts=restarts, seconds=sum(fit_k.seconds for fit_k in tries))
