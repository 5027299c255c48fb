"""Climbing a smooth function of a few parameters in a box, many of them at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

LEAST_DAMPING = 1e-9
MAX_MOVE = 3.0  # of a parameter in one step
# of a step, where the ascent stops; and in roundings of the dtype, where these are more
TOLERANCE, STEP_ROUNDINGS = (1e-11, 64)
ROUNDING = 1e-14  # relative, below which a fall of the objective is none
MAX_LOG_STEP = 1.5
HALVINGS = 12
LOG_ROUNDING = 1e-13
ROUNDINGS = 16  # of the dtype, below which a fall is none either


def ascend(
    x: Tensor,
    objective: Callable[[Tensor], Tensor],
    step: Callable[[Tensor], tuple[Tensor, Tensor]],
    bound: float,
    max_steps: int = 60,
) -> Tensor:
    """Levenberg-Marquardt steps inside the box; no objective falls.

    Args:
        x: starts, (M, P).
        objective: of (M, P), to (M,).
        step: of (M, P), to the gradient (M, P) and a positive semidefinite information (M, P, P).
        bound: the box is [-bound, bound].
        max_steps: at most so many; fewer once no step is longer than 1e-11, or than the dtype can
            tell.
    """
    value, damping = objective(x), x.new_full((len(x),), LEAST_DAMPING)
    rounding, shortest = _told(x, ROUNDING)
    for _ in range(max_steps):
        gradient, information = step(x)
        stuck = (x.abs() >= bound) & (x * gradient > 0)
        diagonal = information.diagonal(dim1=-2, dim2=-1)
        floor = 1e-3 * diagonal.mean(-1, keepdim=True).clamp(min=1e-8)
        system = information.masked_fill(stuck.unsqueeze(-1) | stuck.unsqueeze(-2), 0.0)
        extra = damping.unsqueeze(-1) * diagonal.clamp(min=0.0).maximum(floor)
        system = system + torch.diag_embed(torch.where(stuck, floor, extra))
        move = torch.linalg.solve_ex(system, gradient.masked_fill(stuck, 0.0).unsqueeze(-1))[
            0
        ].squeeze(-1)
        longest = move.abs().amax(-1, keepdim=True)
        move = torch.where(
            torch.isfinite(longest),
            move * (MAX_MOVE / longest.clamp(min=MAX_MOVE)),
            torch.zeros_like(move),
        )
        proposal = (x + move).clamp(-bound, bound)
        new = objective(proposal)
        taken = new >= value - rounding * value.abs()
        x, value = torch.where(taken.unsqueeze(-1), proposal, x), torch.where(taken, new, value)
        damping = torch.where(taken, (damping / 10).clamp(min=LEAST_DAMPING), damping * 10)
        if (longest <= shortest).all():
            break
    return x


def climb_logarithms(
    start: Tensor,
    objective: Callable[[Tensor], Tensor],
    derivatives: Callable[[Tensor], tuple[Tensor, Tensor]],
    limits: tuple[float, float],
    num_steps: int,
) -> Tensor:
    """Maximise over positive numbers by safeguarded Newton steps in their logarithms.

    Each step is halved until its objective does not fall.

    Args:
        start: numbers inside the limits, of any shape.
        objective: of the logarithms, of their shape; derivatives: the first and the second by the
            logarithm.
        limits: of the numbers, which rounding on the way to a logarithm and back does not leave.
        num_steps: at most so many; fewer once no step is longer than 1e-11, or than the dtype can
            tell.
    """
    t = start.log()
    value, (rounding, shortest) = objective(t), _told(t, LOG_ROUNDING)
    for _ in range(num_steps):
        gradient, curvature = derivatives(t)
        step = torch.where(curvature < 0, -gradient / curvature.clamp(max=-1e-12), gradient.sign())
        proposal = (t + step.clamp(-MAX_LOG_STEP, MAX_LOG_STEP)).exp().clamp(*limits).log()
        new, least = objective(proposal), value - rounding * value.abs()
        for _ in range(HALVINGS):
            worse = ~(new >= least)
            if not worse.any():
                break
            proposal = torch.where(worse, (t + proposal) / 2, proposal)
            new = torch.where(worse, objective(proposal), new)
        better = new >= least
        t, value = torch.where(better, proposal, t), torch.where(better, new, value)
        if float(step.abs().max()) < shortest:
            break
    return t.exp().clamp(*limits)


def _told(like: Tensor, rounding: float) -> tuple[float, float]:
    """Relative fall of an objective, and step, that rounding in a dtype may make."""
    grain = torch.finfo(like.dtype).eps
    return max(rounding, ROUNDINGS * grain), max(TOLERANCE, STEP_ROUNDINGS * grain)
