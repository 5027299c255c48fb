"""What every engine hands back, and the warnings that come with it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from inference.programs.program import Params

__all__ = ["Outcome", "ConvergenceWarning", "BoundWarning", "DegenerateWarning", "EstimateWarning", "StartsWarning"]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an engine hands back, for R restarts.

    Args:
        params: estimates by site name, (R, ...).
        objective: what was maximised, (R,); objective_name: what that is.
        log_likelihood: latents summed out, (R,), NaN where that is out of reach.
        history, history_log_likelihood: the same along the run, (iterations, R), NaN after a restart stopped.
        converged: (R,) bool; num_iterations: (R,).
        draws: posterior draws by site name, (chains, draws, ...), None for a point estimate.
        elbo: a lower bound of ``log_likelihood``, (R,), where the engine has one.
        trace_name: what ``history`` holds; ``objective_name`` if None.
        sample_stats: what the engine says of each draw, (chains, draws), by name.
        num_tried: starts of which these R were run to the end, where more were tried.
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
    trace_name: str | None = None
    sample_stats: Params | None = None
    num_tried: int | None = None


class ConvergenceWarning(UserWarning):
    """A fit stopped before it converged."""


class BoundWarning(UserWarning):
    """Estimates lie on the bound of their interval: the likelihood may have no maximum inside it."""


class DegenerateWarning(UserWarning):
    """Every start ended in a solution that is no proper optimum: a spike, an empty component, or copies of one component."""


class StartsWarning(UserWarning):
    """Only one of several starts reached the best optimum, so that a better one may exist."""


class EstimateWarning(UserWarning):
    """Estimates mean something else than their names say; the text names items or latents, and what to do."""
