r"""Items that are categories, in order or not, at the bottom of binary latents: the maximiser of their expected log-density.

With :math:`n_{ch}` the expected rows in configuration c that answer h, linear predictors :math:`\eta_c = B h_c` (one of an ordinal item, C - 1 log-odds of
one without an order) and thresholds :math:`\tau`,

.. math:: Q(B, \tau) = \sum_{ch} n_{ch} \log P_h(\eta_c, \tau) - \tfrac{1}{2} \sum_r \beta_r^\top M \beta_r - \sum_{rk} p(W_{rk}), \qquad B = (\beta_1, \beta_2, \dots),

which is concave where the penalty p is convex. A step of Fisher scoring has

.. math:: g = \sum_{ch} n_{ch}\, s_{ch}, \qquad I = \sum_c n_c \sum_h P_{ch}\, s_{ch} s_{ch}^\top, \qquad s_{ch} = \partial \log P_h(\eta_c, \tau),

where :math:`\partial / \partial \beta_{rp} = h_{cp}\, \partial / \partial \eta_{cr}`. Thresholds, and all intercepts but one, bear no penalty: they leave the
quadratic by its Schur complement, what is left is solved as for every other family, and they follow. Each step is halved until Q does not fall.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.layers.maximisers.newton import halve, solve
from ppl_models.descriptions.layers import GeneralizedLinearLayer, LayerPart
from ppl_models.parts.categorical import Categorical, Ordinal
from ppl_models.parts.penalties import Penalty

__all__ = ["Curve", "ItemGroup", "curves_of_categories", "groups_of", "maximise_categories"]

TOLERANCE = 1e-10  # of Q, relatively
CHUNK_ELEMENTS = 2**23
RIDGE = 1e-9


@dataclass(frozen=True, eq=False)
class ItemGroup:
    """Items of one family with the same number of categories, n of them.

    Args:
        family: of one of them; items: their places in the part, n.
        rows: of the loadings and intercepts, (n, r); entries: of the statistics, (n, C); gaps: of the thresholds, (n, g).
    """

    family: Categorical
    items: tuple[int, ...]
    rows: Tensor
    entries: Tensor
    gaps: Tensor

    @property
    def limits(self) -> tuple[float, float]:
        """Of the thresholds."""
        return self.family.threshold_range if isinstance(self.family, Ordinal) else (0.0, 0.0)


def groups_of(part: LayerPart, device: torch.device) -> list[ItemGroup]:
    """The items of a part by their number of categories."""
    family = part.family
    if not isinstance(family, Categorical):
        raise ValueError(f"groups_of: items that are categories were expected, got {family!r}")
    groups: dict[int, tuple[Categorical, list[int], list[tuple[range, range, range]]]] = {}
    row, entry, gap = part.rows.start, part.statistics.start, part.thresholds.start
    for j, size in enumerate(family.sizes(part.num_items)):
        one = family.item(j)
        rows, gaps = one.num_linear(1), one.num_thresholds(1)
        _, items, places = groups.setdefault(size, (one, [], []))
        items.append(j)
        places.append((range(row, row + rows), range(entry, entry + size), range(gap, gap + gaps)))
        row, entry, gap = row + rows, entry + size, gap + gaps
    out = []
    for one, items, own in groups.values():
        rows_of, entries, gaps_of = (torch.tensor([list(each[i]) for each in own], dtype=torch.long, device=device) for i in range(3))
        out.append(ItemGroup(one, tuple(items), rows_of, entries, gaps_of))
    return out


def maximise_categories(
    layer: GeneralizedLinearLayer, part: LayerPart, sums: Tensor, design: Tensor, beta: Tensor, thresholds: Tensor, num_steps: int
) -> tuple[Tensor, Tensor]:
    """Coefficients and thresholds whose Q is not below that of the given ones.

    Args:
        layer: the layer's description; part: the items.
        sums: n, (R, P, C), of all statistics of the layer; design: h, (C, 1 + K), first column ones.
        beta: (R, num_children, 1 + K) and thresholds (R, G) of the whole layer, to begin with.
        num_steps: at most so many.

    Returns:
        The same of the whole layer, with the part's own in their places.
    """
    beta, thresholds = beta.clone(), thresholds.clone()
    free = None if layer.graph is None else layer.graph.to(beta.device)
    for group in groups_of(part, beta.device):
        each = len(beta) * len(design) * group.entries.shape[1] * (group.rows.shape[1] + group.gaps.shape[1])
        step = max(1, CHUNK_ELEMENTS // each)
        for rows, entries, gaps in zip(group.rows.split(step), group.entries.split(step), group.gaps.split(step), strict=True):
            q = _Objective(
                group,
                sums[:, entries],
                design,
                layer.penalty,
                layer.precision(part.rows, beta),
                None if free is None else free[..., rows, :],
                layer.block_bound(part.rows),
            )
            beta[:, rows], thresholds[:, gaps] = q.climbed(beta[:, rows], thresholds[:, gaps], num_steps)
    return beta, thresholds


class Curve(NamedTuple):
    """Q of one item at a point of its D coordinates.

    Args:
        item: its place in the part; loadings: the places of the loadings among the coordinates, (r, K).
        point, gradient: (D,); hessian: minus that of Q, or its expectation, (D, D).
    """

    item: int
    loadings: Tensor
    point: Tensor
    gradient: Tensor
    hessian: Tensor


def curves_of_categories(layer: GeneralizedLinearLayer, part: LayerPart, sums: Tensor | None, design: Tensor, params: Params) -> Iterator[Curve]:
    """Q at an estimate, item by item.

    Args:
        layer, part: as for :func:`maximise_categories`; sums: with R = 1; design: as there.
        params: the estimate, without leading dims.
    """
    if sums is None:
        raise ValueError("curves_of_categories: sums by configuration were expected")
    beta = torch.cat([params[layer.intercepts].unsqueeze(-1), params[layer.loadings]], -1)
    for group in groups_of(part, beta.device):
        q = _Objective(group, sums[:, group.entries], design, None, layer.precision(part.rows, beta), None, layer.block_bound(part.rows))
        gaps = params[layer.thresholds][group.gaps] if layer.thresholds else beta.new_zeros(len(group.items), 0)
        z = torch.cat([beta[group.rows].flatten(-2), gaps], -1)[..., q.order].unsqueeze(0)
        gradient, hessian = q.derivatives(z)
        loadings = torch.arange(1, q.num_main, device=beta.device).reshape(q.num_rows, -1)
        for i, item in enumerate(group.items):
            yield Curve(item, loadings, z[0, i], gradient[0, i], hessian[0, i])


class _Objective:
    """Q of n items of one kind, in the order z of coordinates: the first intercept, all loadings, the other intercepts, the thresholds.

    Args:
        group: the items.
        counts: (R, n, H, C); design: (C, P).
        penalty, precision, bound: of each linear predictor; free: bool ([R], n, r, P - 1), or None.
    """

    def __init__(
        self, group: ItemGroup, counts: Tensor, design: Tensor, penalty: Penalty | None, precision: Tensor | None, free: Tensor | None, bound: float
    ) -> None:
        self.family, self.limits = group.family, group.limits
        self.counts, self.design, self.penalty, self.precision, self.bound = counts.mT, design, penalty, precision, bound  # (R, n, C, H)
        self.num_rows, self.num_gaps, self.size = group.rows.shape[1], group.gaps.shape[1], design.shape[1]
        r, p = self.num_rows, self.size
        place = torch.arange(r * p, device=design.device).reshape(r, p)
        rest = torch.arange(r * p, r * p + self.num_gaps, device=design.device)
        self.order = torch.cat([place[0, :1], place[:, 1:].reshape(-1), place[1:, 0], rest])
        self.back = self.order.argsort()
        self.num_main = 1 + r * (p - 1)
        self.free = None if free is None else free.expand(*counts.shape[:2], *free.shape[-2:])

    def split(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients (R, n, r, P) and thresholds (R, n, g)."""
        plain = z[..., self.back]
        return plain[..., : self.num_rows * self.size].unflatten(-1, (self.num_rows, self.size)), plain[..., self.num_rows * self.size :]

    def value(self, z: Tensor) -> Tensor:
        """(R, n)."""
        beta, gaps = self.split(z)
        out = (self.counts * self.family.law_of_item(self.design @ beta.mT, gaps.unsqueeze(-2))).sum((-2, -1))
        if self.precision is not None:
            out = out - ((beta @ self.precision) * beta).sum((-2, -1)) / 2
        return out if self.penalty is None else out - self.penalty(z[..., 1 : self.num_main]).sum(-1)

    def derivatives(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient (R, n, D) and information (R, n, D, D), the penalty's left out."""
        (beta, gaps), r, h = self.split(z), self.num_rows, self.design
        linear, own = h @ beta.mT, gaps.unsqueeze(-2)  # (R, n, C, r)
        slopes = self.family.slopes_of_law(linear, own)  # (R, n, C, H, r + g)
        chances = self.family.law_of_item(linear, own).exp()
        first = (self.counts.unsqueeze(-2) @ slopes).squeeze(-2)  # (R, n, C, r + g)
        weight = self.counts.sum(-1, keepdim=True) * chances
        second = (slopes * weight.unsqueeze(-1)).mT @ slopes  # (R, n, C, r + g, r + g)
        of_beta = first[..., :r].mT @ h  # (R, n, r, P)
        squares = torch.einsum("...cij,cp,cq->...ipjq", second[..., :r, :r], h, h)
        if self.precision is not None:
            of_beta = of_beta - beta @ self.precision
            squares = squares + torch.einsum("ij,pq->ipjq", torch.eye(r).to(h), self.precision)
        cross = torch.einsum("...cig,cp->...ipg", second[..., :r, r:], h).flatten(-3, -2)
        gradient = torch.cat([of_beta.flatten(-2), first[..., r:].sum(-2)], -1)
        squares = squares.flatten(-4, -3).flatten(-2)
        hessian = torch.cat([torch.cat([squares, cross], -1), torch.cat([cross.mT, second[..., r:, r:].sum(-3)], -1)], -2)
        return gradient[..., self.order], hessian[..., self.order, :][..., self.order]

    def climbed(self, beta: Tensor, gaps: Tensor, num_steps: int) -> tuple[Tensor, Tensor]:
        """Coefficients and thresholds after some steps."""
        fixed = None
        if self.free is not None:
            fixed = torch.nn.functional.pad(~self.free.flatten(-2), (1, 0))
            beta = torch.cat([beta[..., :1], beta[..., 1:] * self.free], -1)
        z = torch.cat([beta.flatten(-2), gaps], -1)[..., self.order]
        value = self.value(z)
        for _ in range(num_steps):
            gradient, hessian = self.derivatives(z)
            new, new_value = halve(self.value, z, value, self._proposal(z, gradient, hessian, fixed))
            for alternative in ("main", "rest"):  # a limit, or the exact prox, may have asked for a jump that Q refuses
                stuck = new_value <= value
                if not stuck.any():
                    break
                second, second_value = halve(self.value, z, value, self._proposal(z, gradient, hessian, fixed, alternative))
                better = stuck & (second_value > new_value)
                new, new_value = torch.where(better.unsqueeze(-1), second, new), torch.where(better, second_value, new_value)
            gain, z, value = new_value - value, new, new_value
            if (gain <= TOLERANCE * (1 + value.abs())).all():
                break
        return self.split(z)

    def _proposal(self, z: Tensor, gradient: Tensor, hessian: Tensor, fixed: Tensor | None, only: str = "") -> Tensor:
        """The maximiser of the penalised quadratic model, inside the limits; of one half of the coordinates alone where ``only`` is "main" or "rest"."""
        m = self.num_main
        main, rest, of_main, of_rest = z[..., :m], z[..., m:], gradient[..., :m], gradient[..., m:]
        system, across, inner = hessian[..., :m, :m], hessian[..., :m, m:], hessian[..., m:, m:]
        if only == "main" or not rest.shape[-1]:
            return torch.cat([solve(main, of_main, system, self.penalty, fixed, self.bound, cautious=only == "main"), rest], -1)
        low, high = self._ends(z)
        still = ((rest <= low) & (of_rest < 0)) | ((rest >= high) & (of_rest > 0))  # on a limit and drawn beyond it
        inner = inner.masked_fill(still.unsqueeze(-1) | still.unsqueeze(-2), 0.0)
        ridge = RIDGE * inner.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True).clamp(min=1e-6)
        inner = inner + torch.diag_embed(torch.where(still, 1.0, ridge))
        of_rest, across = of_rest.masked_fill(still, 0.0), across.masked_fill(still.unsqueeze(-2), 0.0)
        if only == "rest":
            step = torch.linalg.solve_ex(inner, of_rest.unsqueeze(-1))[0].squeeze(-1)
            return torch.cat([main, (rest + step).nan_to_num(0.0).clamp(low, high)], -1)
        pulled = torch.linalg.solve_ex(inner, torch.cat([of_rest.unsqueeze(-1), across.mT], -1))[0]  # (R, n, D - m, 1 + m)
        reduced = of_main - (across @ pulled[..., :1]).squeeze(-1)
        new = solve(main, reduced, system - across @ pulled[..., 1:], self.penalty, fixed, self.bound)
        step = pulled[..., 0] - (pulled[..., 1:] @ (new - main).unsqueeze(-1)).squeeze(-1)
        return torch.cat([new, torch.where(torch.isfinite(step), rest + step, rest).clamp(low, high)], -1)

    def _ends(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Limits of the other intercepts and of the thresholds, (D - m,)."""
        more = self.num_rows - 1
        low = [-self.bound] * more + [self.limits[0]] * self.num_gaps
        high = [self.bound] * more + [self.limits[1]] * self.num_gaps
        return z.new_tensor(low), z.new_tensor(high)
