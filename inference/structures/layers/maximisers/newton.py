"""Newton steps of many children at once: a penalised quadratic in a box, and steps that are halved
until no objective falls.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ppl_models.parts.penalties import Penalty


def halve(
    objective: Callable[[Tensor], Tensor],
    beta: Tensor,
    value: Tensor,
    proposal: Tensor,
    num_halvings: int = 12,
) -> tuple[Tensor, Tensor]:
    """Halve the step of each child until its objective does not fall; keep the old value where none
    is found.
    """
    best, best_value = proposal, objective(proposal)
    for _ in range(num_halvings):
        worse = ~(best_value >= value)  # also true for NaN
        if not worse.any():
            return best, best_value
        best = torch.where(worse.unsqueeze(-1), (beta + best) / 2, best)
        best_value = torch.where(worse, objective(best), best_value)
    worse = ~(best_value >= value)
    return torch.where(worse.unsqueeze(-1), beta, best), torch.where(worse, value, best_value)


def solve(
    beta: Tensor,
    gradient: Tensor,
    hessian: Tensor,
    penalty: Penalty | None,
    fixed: Tensor | None,
    bound: float | Tensor,
    cautious: bool = False,
) -> Tensor:
    """Minimise the penalised quadratic model in the box.

    A Newton step on the entries that are away from zero, then coordinate descent on all. The
    ``cautious`` way, coordinate descent from ``beta`` itself with the penalty's tangent, is slower
    but always a direction of ascent.
    """
    ridge = 1e-8 * hessian.diagonal(dim1=-2, dim2=-1).mean(-1).clamp(min=1e-8)
    hessian = hessian + torch.diag_embed(ridge.unsqueeze(-1).expand_as(beta))
    slope = (
        None if penalty is None else torch.nn.functional.pad(penalty.slope(beta[..., 1:]), (1, 0))
    )
    if cautious:
        return _coordinate_descent(
            beta, beta, gradient, hessian, penalty, slope, fixed, bound, num_sweeps=6
        )
    still, right = fixed, gradient
    if slope is not None:
        zero = beta == 0
        zero[..., 0] = False
        still = zero if fixed is None else zero | fixed
        right = gradient - slope * torch.sign(beta)
    pushed = (beta.abs() >= bound) & (right * beta > 0)  # on the bound and drawn beyond it
    if pushed.any():
        still = pushed if still is None else still | pushed
    system = hessian
    if still is not None:
        system = system.masked_fill(still.unsqueeze(-1) | still.unsqueeze(-2), 0.0)
        system = system + torch.diag_embed(still.to(beta.dtype))
        right = right.masked_fill(still, 0.0)
    newton = beta + torch.linalg.solve_ex(system, right.unsqueeze(-1))[0].squeeze(-1)
    inside = torch.isfinite(newton).all() and bool((newton.abs() <= bound).all())
    if penalty is None and inside:
        return newton
    edge = bound if isinstance(bound, Tensor) else beta.new_tensor(bound)
    start = torch.where(torch.isfinite(newton), newton, beta).clamp(-edge, edge)
    return _coordinate_descent(start, beta, gradient, hessian, penalty, None, fixed, bound)


def _coordinate_descent(
    start: Tensor,
    beta: Tensor,
    gradient: Tensor,
    hessian: Tensor,
    penalty: Penalty | None,
    slope: Tensor | None,
    fixed: Tensor | None,
    bound: float | Tensor,
    num_sweeps: int = 2,
) -> Tensor:
    """A few sweeps on the quadratic model around ``beta``, from ``start``; ``slope`` makes the
    penalty a weighted Lasso.
    """
    curvatures = hessian.diagonal(dim1=-2, dim2=-1).unbind(-1)
    columns = hessian.unbind(-1)
    slopes = None if slope is None else (slope / hessian.diagonal(dim1=-2, dim2=-1)).unbind(-1)
    limit = bound.squeeze(-1) if isinstance(bound, Tensor) else beta.new_tensor(bound)
    new = start.clone()
    residual = gradient - (hessian @ (start - beta).unsqueeze(-1)).squeeze(-1)
    for _ in range(num_sweeps):
        before = new.clone()
        for k, curvature in enumerate(curvatures):
            target = torch.addcdiv(new[..., k], residual[..., k], curvature)
            if slopes is not None and k > 0:
                target = torch.nn.functional.relu(target - slopes[k]) - torch.nn.functional.relu(
                    -target - slopes[k]
                )
            elif penalty is not None and k > 0:
                target = penalty.prox(target, curvature)
            target = target.clamp(-limit, limit)
            if fixed is not None:
                target = target.masked_fill(fixed[..., k], 0.0)
            residual = torch.addcmul(residual, (new[..., k] - target).unsqueeze(-1), columns[k])
            new[..., k] = target
        if float((new - before).abs().max()) < 1e-8:
            break
    return new
