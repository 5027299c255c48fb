r"""Children whose log-odds are a curve in few parameters: the maximiser of their expected
log-density.

With expected rows :math:`n_l` of each profile l of the child's parents and :math:`s_l` of them with
a 1, and log-odds :math:`\eta_l(x)` with derivatives J, Fisher scoring climbs

.. math:: \sum_l \{ s_l \eta_l - n_l \log(1 + e^{\eta_l}) \}, \qquad
    g = J^\top (s - n \sigma(\eta)), \quad I = J^\top \mathrm{diag}(n \sigma (1 - \sigma)) J,

or, where draws are averaged, the quadratic :math:`r \cdot \beta - \beta^\top H \beta / 2` in the
coefficients :math:`\beta = D^{-1} \eta(x)` of the products, with gradient :math:`(D^{-1} J)^\top (r
- H \beta)` and information :math:`(D^{-1} J)^\top H (D^{-1} J)`. A weak prior of (b, W) adds its
log-density and derivatives to either.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ppl_models.descriptions.layers import GeneralizedLinearLayer
from ppl_models.parts.ascent import ascend
from ppl_models.parts.distributions import softplus
from ppl_models.parts.item_curves import CurvedItems

MIN_STEPS = 5


def curved_by_counts(
    layer: GeneralizedLinearLayer,
    cross: Tensor,
    counts: Tensor,
    configurations: Tensor,
    beta: Tensor,
    num_steps: int,
) -> list[Tensor]:
    """(b, W) of each group of curved children, (R, n, 1 + q) each.

    Args:
        layer: the layer's description.
        cross: (R, J, 1 + T); counts: (R, J or 1, C); configurations: (C, K).
        beta: start, the sites' values, (R, J, 1 + T).
        num_steps: of the ascent, at most; at least five.
    """
    out = []
    for group in layer.curved:
        x = group.own(beta[..., 0], beta[..., 1:])
        powers = 2 ** torch.arange(len(group.singles) - 1, -1, -1, device=beta.device)
        parents = (
            layer.terms[group.singles].to(torch.long).argmax(-1)
            if layer.terms is not None
            else group.singles
        )
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
    """The same from averaged expansions: r (R, J, 1 + T) and H (R, J or 1, 1 + T, 1 + T)."""
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
    """The sites' values (R, J, 1 + T) with those of the curved children in their places."""
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
