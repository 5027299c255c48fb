r"""Newton steps of many children at once: penalties in a box, cones, curved log-odds.

Children that no parent lowers: with gradient g and information H at :math:`\beta`, steps A of the
predictor along the lattice of profiles, and an interval, the step d solves

.. math::

    \max_d \; g \cdot d - \tfrac{1}{2} d^\top H d \quad \text{with } A(\beta + d) \ge 0, \; |\beta +
    d| \le B,

exactly: with :math:`H = L L^\top` and :math:`z = L^\top d - L^{-1} g` it is the problem of least
distance :math:`\min \lVert z \rVert` with :math:`G L^{-\top} z \ge r`, which a nonnegative
least-squares problem solves (C. L. Lawson and R. J. Hanson 1974, chapter 23,
doi:10.1137/1.9781611971217).

Children whose log-odds are a curve in few parameters: with expected rows :math:`n_l` of each
profile l of the child's parents and :math:`s_l` of them with a 1, and log-odds :math:`\eta_l(x)`
with derivatives J, Fisher scoring climbs

.. math:: \sum_l \{ s_l \eta_l - n_l \log(1 + e^{\eta_l}) \}, \qquad
    g = J^\top (s - n \sigma(\eta)), \quad I = J^\top \mathrm{diag}(n \sigma (1 - \sigma)) J,

or, where draws are averaged, the quadratic :math:`r \cdot \beta - \beta^\top H \beta / 2` in the
coefficients :math:`\beta = D^{-1} \eta(x)` of the products, with gradient :math:`(D^{-1} J)^\top (r
- H \beta)` and information :math:`(D^{-1} J)^\top H (D^{-1} J)`. A weak prior of (b, W) adds its
log-density and derivatives to either.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ppl_models.descriptions.layers import GeneralizedLinearLayer
from ppl_models.parts.ascent import ascend
from ppl_models.parts.distributions import softplus
from ppl_models.parts.item_curves import CurvedItems
from ppl_models.parts.penalties import Penalty

NUM_HALVINGS = 12  # of a step


def halve(
    objective: Callable[[Tensor], Tensor],
    beta: Tensor,
    value: Tensor,
    proposal: Tensor,
) -> tuple[Tensor, Tensor]:
    """Halve the step of each child until its objective does not fall, or keep the old value."""
    best, best_value = proposal, objective(proposal)
    for _ in range(NUM_HALVINGS):
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
    """Coordinate descent on the quadratic about ``beta``, a weighted Lasso by ``slope``."""
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
                target = target - target.clamp(-slopes[k], slopes[k])
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


SLACK = 1e-10
ZERO = 1e-9  # a coefficient below it is zero: the active ones come out as rounding


def inside_cone(beta: Tensor, steps: Tensor) -> Tensor:
    """Tell whether no step falls, bool (...,) of (..., P)."""
    return (beta @ steps.mT >= -SLACK).all(-1)


def cone_step(
    beta: Tensor, gradient: Tensor, hessian: Tensor, steps: Tensor, bound: float | Tensor
) -> Tensor:
    """Maximisers of the quadratics about ``beta``, which lies in the cone, (M, P).

    ``beta``, ``gradient``: (M, P); ``hessian``: (M, P, P), positive semidefinite; ``steps``: A, (E,
    P); ``bound``: B, inf for none.
    """
    from scipy.optimize import nnls

    width = float(torch.as_tensor(bound).max())
    size = beta.shape[-1]
    limits = steps.double().cpu().numpy()
    low = np.zeros(len(limits))
    if np.isfinite(width):
        limits = np.concatenate([limits, np.eye(size), -np.eye(size)])
        low = np.concatenate([low, np.full(2 * size, -width)])
    out = []
    for b, g, h in zip(
        *(value.double().cpu().numpy() for value in (beta, gradient, hessian)), strict=True
    ):
        ridge = 1e-8 * max(1e-8, float(np.trace(h)) / size)
        factor = np.linalg.cholesky(h + ridge * np.eye(size))
        newton = np.linalg.solve(factor, g)
        across = np.linalg.solve(factor, limits.T)  # L^-1 G^T, (P, E)
        needed = low - limits @ b - across.T @ newton
        system = np.vstack([across, needed])
        target = np.zeros(size + 1)
        target[-1] = 1.0
        weights, _ = nnls(system, target)
        rest = system @ weights - target
        z = -rest[:-1] / rest[-1]
        found = b + np.linalg.solve(factor.T, z + newton)
        found[1:][np.abs(found[1:]) < ZERO] = 0.0
        out.append(torch.from_numpy(found))
    return torch.stack(out).to(beta)


MIN_STEPS = 5


def curved_by_counts(
    layer: GeneralizedLinearLayer,
    cross: Tensor,
    counts: Tensor,
    configurations: Tensor,
    beta: Tensor,
    num_steps: int,
) -> list[Tensor]:
    """Maximise (b, W) of each group of curved children, (R, n, 1 + q) each.

    ``layer``: the layer's description; ``cross``: (R, J, 1 + T); ``counts``: (R, J or 1, C);
    ``configurations``: (C, K); ``beta``: start, the sites' values, (R, J, 1 + T); ``num_steps``: of
    the ascent, at most; at least five.
    """
    out = []
    for group in layer.curved:
        x = group.own(beta[..., 0], beta[..., 1:])
        powers = 2 ** torch.arange(len(group.singles) - 1, -1, -1, device=beta.device)
        if layer.terms is not None:
            parents = layer.terms[group.singles].to(torch.long).argmax(-1)
        else:
            parents = group.singles
        places = (configurations[:, parents].long() * powers).sum(-1)
        own = counts if counts.shape[-2] == 1 else counts[..., group.items, :]
        seen = own.new_zeros(*own.shape[:-1], 2 ** len(powers)).index_add_(-1, places, own)
        seen = seen.expand(*x.shape[:-1], seen.shape[-1]).reshape(-1, seen.shape[-1])
        columns = torch.cat([group.columns.new_zeros(1), group.columns + 1])
        sums = torch.linalg.solve(
            group.design.to(beta).mT, cross[..., group.items.unsqueeze(-1), columns].mT
        ).mT.reshape(-1, seen.shape[-1])

        def objective(
            x: Tensor, group: CurvedItems = group, sums: Tensor = sums, seen: Tensor = seen
        ) -> Tensor:
            eta = group.log_odds(x)
            return (sums * eta - seen * softplus(eta)).sum(-1) + _log_prior(layer, group, x)

        def step(
            x: Tensor, group: CurvedItems = group, sums: Tensor = sums, seen: Tensor = seen
        ) -> tuple[Tensor, Tensor]:
            chance, slopes = torch.sigmoid(group.log_odds(x)), group.slopes(x)
            weight = (seen * chance * (1 - chance)).unsqueeze(-1)
            gradient = ((sums - seen * chance).unsqueeze(-2) @ slopes).squeeze(-2)
            return _with_prior(layer, group, x, gradient, slopes.mT @ (weight * slopes))

        out.append(_climbed(layer, group, x, objective, step, max(MIN_STEPS, num_steps)))
    return out


def curved_by_quadratic(
    layer: GeneralizedLinearLayer, linear: Tensor, hessian: Tensor, beta: Tensor
) -> list[Tensor]:
    """Maximise curved children on averaged expansions r (R, J, P), H (R, J or 1, P, P)."""
    out = []
    for group in layer.curved:
        x = group.own(beta[..., 0], beta[..., 1:])
        columns = torch.cat([group.columns.new_zeros(1), group.columns + 1])
        wide = hessian.expand(*beta.shape, beta.shape[-1])[..., group.items, :, :]
        h = wide[..., columns.unsqueeze(-1), columns].reshape(-1, len(columns), len(columns))
        r = linear[..., group.items.unsqueeze(-1), columns].reshape(-1, len(columns))
        inverse = torch.linalg.inv(group.design).to(beta)

        def objective(
            x: Tensor, group: CurvedItems = group, r: Tensor = r, h: Tensor = h
        ) -> Tensor:
            own = group.coefficients(x)
            return ((r - (h @ own.unsqueeze(-1)).squeeze(-1) / 2) * own).sum(-1) + _log_prior(
                layer, group, x
            )

        def step(
            x: Tensor,
            group: CurvedItems = group,
            r: Tensor = r,
            h: Tensor = h,
            inverse: Tensor = inverse,
        ) -> tuple[Tensor, Tensor]:
            own, slopes = group.coefficients(x), inverse @ group.slopes(x)
            residual = r - (h @ own.unsqueeze(-1)).squeeze(-1)
            return _with_prior(
                layer,
                group,
                x,
                (residual.unsqueeze(-2) @ slopes).squeeze(-2),
                slopes.mT @ h @ slopes,
            )

        out.append(_climbed(layer, group, x, objective, step, MIN_STEPS))
    return out


def put_curved(layer: GeneralizedLinearLayer, beta: Tensor, found: list[Tensor]) -> Tensor:
    """Put the curved children's values into the sites' values (R, J, 1 + T)."""
    for group, x in zip(layer.curved, found, strict=True):
        beta = beta.clone()
        beta[..., group.items, :] = 0.0
        beta[..., group.items, 0] = x[..., 0]
        beta[..., group.items.unsqueeze(-1), group.singles + 1] = x[..., 1:]
    return beta


def _log_prior(layer: GeneralizedLinearLayer, group: CurvedItems, x: Tensor) -> Tensor:
    return x.new_zeros(()) if layer.prior is None else group.log_prior(x)


def _with_prior(
    layer: GeneralizedLinearLayer,
    group: CurvedItems,
    x: Tensor,
    gradient: Tensor,
    information: Tensor,
) -> tuple[Tensor, Tensor]:
    if layer.prior is None:
        return gradient, information
    more, curvature = group.prior_step(x)
    return gradient + more, information + curvature


def _climbed(
    layer: GeneralizedLinearLayer,
    group: CurvedItems,
    x: Tensor,
    objective: Callable[[Tensor], Tensor],
    step: Callable[[Tensor], tuple[Tensor, Tensor]],
    num_steps: int,
) -> Tensor:
    bound = float(layer.bounds(x)[group.items].min())
    return ascend(
        x.reshape(-1, x.shape[-1]).clamp(-bound, bound), objective, step, bound, num_steps
    ).reshape(x.shape)
