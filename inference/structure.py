"""What inference can do with a model's description of itself; one subclass a kind of description.

A family describes itself in small frozen records (its layers, its chain, its components). A structure is what engines
make of such a description: starts, accelerated steps, a convention for labels. Everything here has a generic answer, so
a family without a description still gets everything generic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from inference.program import Params

if TYPE_CHECKING:
    from inference.em import EM
    from inference.fit import Method, Problem
    from inference.steps import Steps

__all__ = ["Outcome", "Recommendation", "Structure"]


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


@dataclass(frozen=True)
class Recommendation:
    """What ``fit`` does where the user leaves it open: the engine, where it starts, and how often."""

    method: Method
    init: str = "spectral"
    num_restarts: int = 1


class Structure:
    """A model of which nothing is known but its program. Subclasses override what their description allows.

    Args:
        model: the program.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    @classmethod
    def of(cls, model: Callable[..., Any]) -> Structure | None:
        """The structure of a model that offers this kind of description, else None."""
        return cls(model)

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params | None:
        """Parameters to start from, (R, ...); None for values drawn near zero on the unconstrained scale.

        Args:
            problem: model and data.
            init: "spectral" or "random".
            num_restarts: R.
        """
        return None

    def steps(self, problem: Problem, method: EM) -> Steps | None:
        """Accelerated halves of EM, or None."""
        return None

    def canonical(self, params: Params) -> Params:
        """The same law under the library's convention for labels and signs."""
        return params

    def at_bound(self, params: Params) -> list[str]:
        """Entries that lie on the bound of their interval, such as ``loadings_1[0, 2]``."""
        return []

    def num_free(self, params: Params) -> int:
        """Free parameters at the estimate."""
        return sum(value.numel() for value in params.values())

    def recommended(self, problem: Problem) -> Recommendation:
        """Engine, start and restarts where the user names none."""
        from inference.em import EM

        return Recommendation(EM())
