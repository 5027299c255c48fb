"""Outcome of an engine, and the warnings that come with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from inference.programs.program import Params
from ppl_models.parts.repr import shows_briefly


@shows_briefly
@dataclass(frozen=True, eq=False)
class PenaltyChoice:
    """Grid of C penalties, each graph refitted without shrinkage, and the choice.

    Args:
        penalties: the candidates.
        penalty: (C,), the index of the penalty of each refit; several starts under one penalty are
            several refits.
        num_edges: (C,), loadings on its graph.
        log_likelihood: (C,), an estimate where latents are too many to sum over.
        ebic: (C,), smaller is better.
        best: index of the refit that the fit is of.
        final_ebic: of the fit, after edges were added and taken away.
    """

    penalties: tuple[Any, ...]
    penalty: Tensor
    num_edges: Tensor
    log_likelihood: Tensor
    ebic: Tensor
    best: int
    final_ebic: float | None = field(default=None, metadata={"since": "0.2"})

    def shifted(self, nats: float) -> PenaltyChoice:
        """The same choice with log-likelihoods that are larger by ``nats``."""
        final = None if self.final_ebic is None else self.final_ebic - 2 * nats
        return replace(
            self,
            log_likelihood=self.log_likelihood + nats,
            ebic=self.ebic - 2 * nats,
            final_ebic=final,
        )

    @property
    def chosen(self) -> Any:
        """Penalty of the graph that was kept."""
        return self.penalties[int(self.penalty[self.best])]

    @property
    def table(self) -> Any:
        """Data frame with one line a refit."""
        import pandas as pd

        return pd.DataFrame(
            {
                "penalty": [repr(self.penalties[i]) for i in self.penalty.tolist()],
                "num_edges": self.num_edges.tolist(),
                "log_likelihood": self.log_likelihood.tolist(),
                "ebic": self.ebic.tolist(),
                "chosen": [i == self.best for i in range(len(self.ebic))],
            }
        )


@shows_briefly
@dataclass(frozen=True, eq=False)
class Outcome:
    """Outcome of an engine for R restarts.

    Args:
        params: estimates by site name, (R, ...).
        objective: what was maximised, (R,); objective_name: what that is.
        log_likelihood: latents summed out, (R,), NaN where that is out of reach.
        history, history_log_likelihood: the same along the run, (iterations, R), NaN after a
            restart stopped.
        converged: (R,) bool; num_iterations: (R,).
        draws: posterior draws by site name, (chains, draws, ...), None for a point estimate.
        elbo: a lower bound of ``log_likelihood``, (R,), where the engine has one.
        log_likelihood_error: standard error by the draws that ``log_likelihood`` was estimated
            with, (R,); None where it is exact.
        trace_name: what ``history`` holds; ``objective_name`` if None.
        sample_stats: what the engine says of each draw, (chains, draws), by name.
        num_tried: starts of which these R were run to the end, where more were tried.
        model: the program that the estimates are of, where the engine fitted another one than it
            was given (one on the graph that it found).
        method: the engine that made these estimates, where that is another one that this one
            called.
        choice: what that graph was chosen among.
        objective_left: what the engine thinks its steps would still gain, an order of magnitude,
            (R,), NaN where they do not tell.
        replicates: starts that each of these R stands for, (R,) long: itself and those of a search
            that met it on the way; None for one each.
        renamed: which values of a program's latents its draws were renamed in, in words.
        fate: of the restarts of a run that a search watched, (R,) long; None for other runs.
        is_named: whether the latents have their names already, from labels of rows or from the
            start that was given, and keep them.
    """

    params: Params
    objective: Tensor
    objective_name: str
    log_likelihood: Tensor
    history: Tensor
    history_log_likelihood: Tensor
    converged: Tensor
    num_iterations: Tensor
    draws: Params | None = None
    elbo: Tensor | None = None
    log_likelihood_error: Tensor | None = None
    trace_name: str | None = None
    sample_stats: Params | None = None
    num_tried: int | None = None
    model: Callable[..., Any] | None = None
    method: Any = None
    choice: PenaltyChoice | None = None
    is_named: bool = False
    objective_left: Tensor | None = None
    replicates: Tensor | None = None
    fate: Tensor | None = None
    renamed: str | None = None

    def left_in_words(self) -> str:
        """Remaining gain of the best restart in words, where it did not converge."""
        best = int(self.objective.nan_to_num(-math.inf).argmax())
        left = math.nan if self.objective_left is None else float(self.objective_left[best])
        if bool(self.converged[best]) or not math.isfinite(left):
            return ""
        return (
            f" (by its last steps, the best of them has about {left:.1g} nats left to gain, if no"
            " plateau lies behind it)"
        )


class ConvergenceWarning(UserWarning):
    """Warning: a fit stopped before it converged."""


class BoundWarning(UserWarning):
    """Warning: estimates lie on the bound of their interval."""


class DegenerateWarning(UserWarning):
    """Warning: every start ended in a degenerate solution."""


class RowsWarning(UserWarning):
    """Warning: rows left out of a fit, or sizes out of a comparison for too few rows.

    Or all rows taken, where a plate would draw some of them.
    """


class StartsWarning(UserWarning):
    """Warning: starts do not confirm the optimum, or show no gap to go by.

    A better optimum may exist.
    """


class EstimateWarning(UserWarning):
    """Warning: estimates contradict their names; the text names items or latents."""
