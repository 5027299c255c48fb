"""The two halves of EM for a model: a generic pair for any program, and an accelerated one for generalised-linear layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from inference.programs.elimination import FactorPosteriors
from inference.programs.program import Params, Program

__all__ = ["GenericSteps", "Steps", "maximise_free"]


class Steps(Protocol):
    """What the EM loop asks of a model. Parameters carry a leading dim of R restarts."""

    def e_step(self, params: Params) -> tuple[Any, Tensor, Tensor]:
        """Expected statistics, log-likelihood (R,) and log-prior (R,) at ``params``."""
        ...

    def m_step(self, statistics: Any, params: Params) -> Params:
        """Parameters whose expected complete-data log-posterior is not below that of ``params``."""
        ...

    def relax(self) -> Steps | None:
        """The same steps under an easier objective, from which a start of our own is improved first; None for none."""
        ...


@dataclass(frozen=True)
class GenericSteps:
    """EM for any program: posteriors by differentiation, M-step by L-BFGS on unconstrained parameters.

    Its cost grows with the rows in both halves, for it knows nothing of the program but its log-density. Where the prior
    has kinks (the penalties), the gradient method comes near a kink and not onto it.

    Args:
        program: the program with its data.
        num_steps: L-BFGS iterations of one M-step.
    """

    program: Program
    num_steps: int = 30

    def e_step(self, params: Params) -> tuple[FactorPosteriors, Tensor, Tensor]:
        posteriors = self.program.factor_posteriors(params)
        return posteriors, posteriors.log_marginal, posteriors.log_prior

    def m_step(self, statistics: FactorPosteriors, params: Params) -> Params:
        def bound(values: Params) -> Tensor:
            return self.program.expected_complete_log_density(values, statistics) + self.program.log_prior(values)

        return maximise_free(self.program, bound, params, self.num_steps)

    def relax(self) -> None:
        return None


def maximise_free(program: Program, bound: Callable[[Params], Tensor], params: Params, num_steps: int) -> Params:
    """L-BFGS on the unconstrained parameters; a restart that does not gain keeps its parameters.

    Args:
        program: whose parameters they are.
        bound: what is maximised, (R,), as a function of the parameters.
        params: the start, (R, ...).
        num_steps: iterations.
    """
    free = {name: value.detach() for name, value in program.unconstrained(params).items()}
    unit = _units(program, free)
    steps = {name: torch.zeros_like(value).requires_grad_() for name, value in free.items()}
    optimizer = torch.optim.LBFGS(
        list(steps.values()),
        max_iter=num_steps,
        tolerance_grad=1e-9,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def moved() -> Params:
        return program.constrained({name: free[name] + unit[name] * step for name, step in steps.items()})

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = -bound(moved()).sum()
        loss.backward()
        return loss

    with torch.no_grad():
        before = bound(params)
    optimizer.step(closure)
    with torch.no_grad():
        new = moved()
        better = bound(new) >= before
        return {
            name: torch.where(better.reshape((-1,) + (1,) * (value.dim() - 1)), value, params[name]).detach()
            for name, value in new.items()
        }


def _units(program: Program, free: Params) -> Params:
    """Steps that move a parameter by at most about one: on a wide interval the free scale is hundreds of units long."""
    leaves = {name: value.clone().requires_grad_() for name, value in free.items()}
    total = sum((value.sum() for value in program.constrained(leaves).values()), torch.zeros(()))
    grads = torch.autograd.grad(total, list(leaves.values()))
    return {name: grad.abs().clamp(min=1.0).reciprocal() for name, grad in zip(leaves, grads, strict=True)}


