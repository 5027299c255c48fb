r"""Items that are categories: the maximiser of their log-density, and Gibbs conditionals.

With :math:`n_{ch}` the expected rows in configuration c that answer h, linear predictors
:math:`\eta_c = B h_c` (one of an ordinal item, C - 1 log-odds of one without an order) and
thresholds :math:`\tau`,

.. math::

    Q(B, \tau) = \sum_{ch} n_{ch} \log P_h(\eta_c, \tau) - \tfrac{1}{2} \sum_r \beta_r^\top M
    \beta_r - \sum_{rk} p(W_{rk}), \qquad B = (\beta_1, \beta_2, \dots),

which is concave where the penalty p is convex. A step of Fisher scoring has

.. math::

    g = \sum_{ch} n_{ch}\, s_{ch}, \qquad I = \sum_c n_c \sum_h P_{ch}\, s_{ch} s_{ch}^\top, \qquad
    s_{ch} = \partial \log P_h(\eta_c, \tau),

where :math:`\partial / \partial \beta_{rp} = h_{cp}\, \partial / \partial \eta_{cr}`. Thresholds,
and all intercepts but one, bear no penalty: they leave the quadratic by its Schur complement, what
is left is solved as for every other family, and they follow. Each step is halved until Q does not
fall.

Gibbs draws: latent k has, beside what other items and the layer above say of it, the log-odds

.. math:: \sum_j \{ \log P(x_j \mid a_k = 1, a_{-k}) - \log P(x_j \mid a_k = 0, a_{-k}) \},

over the items with a loading on it. Under the cumulative link an item's term needs two logistic
functions only, of the thresholds on both sides of its answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.layers.newton import halve, solve
from ppl_models.descriptions.layers import GeneralizedLinearLayer, LayerPart
from ppl_models.parts.categorical import Categorical, Ordinal

TOLERANCE = 1e-10  # of Q, relatively
CHUNK_ELEMENTS = 2**23
RIDGE = 1e-9
MAX_STEP = 1.0  # of a coordinate, where only an expansion is maximised


@dataclass(frozen=True, eq=False)
class ItemGroup:
    """Group of n items of one family with the same number of categories.

    Args:
        family: of one of them; items: their places in the part, n.
        rows: of the loadings and intercepts, (n, r); entries: of the statistics, (n, C); gaps: of
            the thresholds, (n, g).
    """

    family: Categorical
    items: tuple[int, ...]
    rows: Tensor
    entries: Tensor
    gaps: Tensor

    def part(self, start: int, stop: int) -> ItemGroup:
        """Select some of the items."""
        own = slice(start, stop)
        return ItemGroup(
            self.family, self.items[own], self.rows[own], self.entries[own], self.gaps[own]
        )

    @property
    def limits(self) -> tuple[float, float]:
        """Limits of the thresholds."""
        return self.family.threshold_range if isinstance(self.family, Ordinal) else (0.0, 0.0)


def groups_of(part: LayerPart, device: torch.device) -> list[ItemGroup]:
    """Group the items of a part by their number of categories."""
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
        rows_of, entries, gaps_of = (
            torch.tensor([list(each[i]) for each in own], dtype=torch.long, device=device)
            for i in range(3)
        )
        out.append(ItemGroup(one, tuple(items), rows_of, entries, gaps_of))
    return out


def maximise_categories(
    layer: GeneralizedLinearLayer,
    part: LayerPart,
    sums: Tensor,
    design: Tensor,
    beta: Tensor,
    thresholds: Tensor,
    num_steps: int,
) -> tuple[Tensor, Tensor]:
    """Maximise coefficients and thresholds; Q does not fall.

    ``layer``: the layer's description; ``part``: the items; ``sums``: n, (R, P, C), of all
    statistics of the layer; ``design``: h, (C, 1 + K), first column ones; ``beta``: (R,
    num_children, 1 + K) and thresholds (R, G) of the whole layer, to begin with; ``num_steps``: at
    most so many.

    Returns:
        The same of the whole layer, with the part's own in their places.
    """
    beta, thresholds = beta.clone(), thresholds.clone()
    for group in groups_of(part, beta.device):
        each = (
            len(beta)
            * len(design)
            * group.entries.shape[1]
            * (group.rows.shape[1] + group.gaps.shape[1])
        )
        step = max(1, CHUNK_ELEMENTS // each)
        for start in range(0, len(group.items), step):
            own = group.part(start, start + step)
            known = Coordinates(layer, part, own, beta)
            z = _climbed(
                _Objective(known, sums[:, own.entries], design),
                known.of(beta, thresholds),
                num_steps,
            )
            beta[:, own.rows], thresholds[:, own.gaps] = known.split(z)
    return beta, thresholds


def expansions(
    layer: GeneralizedLinearLayer,
    part: LayerPart,
    statistic: Tensor,
    design: Tensor,
    beta: Tensor,
    thresholds: Tensor,
    stride: int,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Expand the log-density of drawn latents: :math:`r = g + I z` (R, n, D) and I.

    Sums over rows, group by group; I (R, n, D, D) over every so many rows, scaled up.

    ``layer``, ``part``: as for :func:`maximise_categories`; ``statistic``: one-hot answers, (P, N),
    0 where missing; ``design``: h of every row, (R, N, 1 + K); ``beta``, ``thresholds``: of the
    whole layer; ``stride``: rows from one that is taken for I to the next.
    """
    num_rows = design.shape[-2]
    for group in groups_of(part, beta.device):
        known = Coordinates(layer, part, group, beta, bare=True)
        z, width = known.of(beta, thresholds), group.rows.shape[1] + group.gaps.shape[1]
        gradient, information = torch.zeros_like(z), z.new_zeros(*z.shape, z.shape[-1])
        rows = max(
            stride, CHUNK_ELEMENTS // (len(z) * group.entries.numel() * width) // stride * stride
        )
        for start in range(0, num_rows, rows):
            h = design[:, None, start : start + rows]
            seen = statistic[group.entries, start : start + rows].unsqueeze(0)
            gradient += _Objective(known, seen, h).gradient(z)
            information += _Objective(known, seen[..., ::stride], h[..., ::stride, :]).information(
                z
            )
        information *= num_rows / len(range(0, num_rows, stride))
        yield gradient + (information @ z.unsqueeze(-1)).squeeze(-1), information


def maximise_expansions(
    layer: GeneralizedLinearLayer,
    part: LayerPart,
    averages: Sequence[tuple[Tensor, Tensor]],
    beta: Tensor,
    thresholds: Tensor,
) -> tuple[Tensor, Tensor]:
    """Maximise averaged :func:`expansions` with prior and penalty, in bounded steps."""
    beta, thresholds = beta.clone(), thresholds.clone()
    for group, (linear, hessian) in zip(groups_of(part, beta.device), averages, strict=True):
        known = Coordinates(layer, part, group, beta)
        z = known.of(beta, thresholds)

        def value(
            z: Tensor,
            known: Coordinates = known,
            linear: Tensor = linear,
            hessian: Tensor = hessian,
        ) -> Tensor:
            return ((linear - (hessian @ z.unsqueeze(-1)).squeeze(-1) / 2) * z).sum(
                -1
            ) + known.log_prior(z)

        gradient = linear - (hessian @ z.unsqueeze(-1)).squeeze(-1)
        proposal = known.proposal(z, *known.with_prior(z, gradient, hessian))
        longest = (proposal - z).abs().amax(-1, keepdim=True)
        proposal = torch.where(
            longest > MAX_STEP, z + (proposal - z) * (MAX_STEP / longest), proposal
        )
        z, _ = halve(value, z, value(z), proposal)
        beta[:, group.rows], thresholds[:, group.gaps] = known.split(z)
    return beta, thresholds


class Curve(NamedTuple):
    """Curvature of one item's Q at a point of its D coordinates.

    Args:
        item: its place in the part; loadings: the places of the loadings among the coordinates, (r,
            K).
        point, gradient: (D,); hessian: minus that of Q, or its expectation, (D, D).
    """

    item: int
    loadings: Tensor
    point: Tensor
    gradient: Tensor
    hessian: Tensor


def curves_of_categories(
    layer: GeneralizedLinearLayer,
    part: LayerPart,
    sums: Tensor | None,
    design: Tensor,
    params: Params,
) -> Iterator[Curve]:
    """Iterate over the Q of each item at an estimate, without penalty.

    ``layer``, ``part``: as for :func:`maximise_categories`; ``sums``: with R = 1; ``design``: as
    there; ``params``: the estimate, without leading dims.
    """
    if sums is None:
        raise ValueError("curves_of_categories: sums by configuration were expected")
    beta = torch.cat(
        [params[layer.intercepts].unsqueeze(-1), params[layer.loadings]], -1
    ).unsqueeze(0)
    thresholds = params[layer.thresholds].unsqueeze(0) if layer.thresholds else beta.new_zeros(1, 0)
    for group in groups_of(part, beta.device):
        known = Coordinates(layer, part, group, beta)
        q, z = _Objective(known, sums[:, group.entries], design), known.of(beta, thresholds)
        gradient, hessian = known.with_prior(z, q.gradient(z), q.information(z))
        loadings = torch.arange(1, known.num_main, device=beta.device).reshape(known.num_rows, -1)
        for i, item in enumerate(group.items):
            yield Curve(item, loadings, z[0, i], gradient[0, i], hessian[0, i])


class Coordinates:
    """Coordinates z of n items, with prior, penalty and limits.

    In order: the first intercept, all loadings, the other intercepts, the thresholds; D in all.

    Args:
        layer: the layer's description; part, group: the items.
        beta: of the whole layer, (R, num_children, P), for sizes and the device.
        bare: whether nothing but the places matters.
    """

    def __init__(
        self,
        layer: GeneralizedLinearLayer,
        part: LayerPart,
        group: ItemGroup,
        beta: Tensor,
        bare: bool = False,
    ) -> None:
        self.group, self.num_rows, self.size = group, group.rows.shape[1], beta.shape[-1]
        r, p, num_gaps = self.num_rows, self.size, group.gaps.shape[1]
        place = torch.arange(r * p, device=beta.device).reshape(r, p)
        rest = torch.arange(r * p, r * p + num_gaps, device=beta.device)
        self.order = torch.cat([place[0, :1], place[:, 1:].reshape(-1), place[1:, 0], rest])
        self.back = self.order.argsort()
        self.num_main = 1 + r * (p - 1)
        self.penalty, self.bound = layer.penalty, layer.block_bound(part.rows)
        ends = [(-self.bound, self.bound)] * (r - 1) + [group.limits] * num_gaps
        self.low, self.high = beta.new_tensor(ends).reshape(-1, 2).unbind(-1)
        precision = None if bare else layer.precision(part.rows, beta)
        self.precision = None
        if precision is not None:
            whole = torch.block_diag(
                *[precision] * r, torch.zeros(num_gaps, num_gaps).to(precision)
            )
            self.precision = whole[self.order][:, self.order]
        self.fixed: Tensor | None = None
        if layer.graph is not None and not bare:
            # ([R], n, r (P - 1))
            absent = ~layer.graph.to(beta.device)[..., group.rows, :].flatten(-2)
            self.fixed = torch.nn.functional.pad(absent, (1, 0)).expand(
                len(beta), len(group.items), -1
            )

    def of(self, beta: Tensor, thresholds: Tensor) -> Tensor:
        """Coordinates z (R, n, D) of the whole layer's values; zero where not free."""
        z = torch.cat([beta[:, self.group.rows].flatten(-2), thresholds[:, self.group.gaps]], -1)[
            ..., self.order
        ]
        if self.fixed is None:
            return z
        return torch.cat(
            [z[..., : self.num_main].masked_fill(self.fixed, 0.0), z[..., self.num_main :]], -1
        )

    def split(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Split z into coefficients (R, n, r, P) and thresholds (R, n, g)."""
        plain = z[..., self.back]
        return (
            plain[..., : self.num_rows * self.size].unflatten(-1, (self.num_rows, self.size)),
            plain[..., self.num_rows * self.size :],
        )

    def log_prior(self, z: Tensor) -> Tensor:
        """Normal log-prior less the penalty, up to a constant, (R, n)."""
        if self.precision is None:
            out = z.new_zeros(z.shape[:-1])
        else:
            out = -((z @ self.precision) * z).sum(-1) / 2
        return (
            out if self.penalty is None else out - self.penalty(z[..., 1 : self.num_main]).sum(-1)
        )

    def with_prior(self, z: Tensor, gradient: Tensor, hessian: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient and Hessian with those of the normal prior added."""
        if self.precision is None:
            return (gradient, hessian)
        return (gradient - z @ self.precision, hessian + self.precision)

    def proposal(self, z: Tensor, gradient: Tensor, hessian: Tensor, only: str = "") -> Tensor:
        """Maximiser of the penalised quadratic inside the limits; of ``only`` "main" or "rest"."""
        m = self.num_main
        main, rest, of_main, of_rest = z[..., :m], z[..., m:], gradient[..., :m], gradient[..., m:]
        system, across, inner = hessian[..., :m, :m], hessian[..., :m, m:], hessian[..., m:, m:]
        if only == "main" or not rest.shape[-1]:
            return torch.cat(
                [
                    solve(
                        main,
                        of_main,
                        system,
                        self.penalty,
                        self.fixed,
                        self.bound,
                        cautious=only == "main",
                    ),
                    rest,
                ],
                -1,
            )
        # on a limit and drawn beyond it
        still = ((rest <= self.low) & (of_rest < 0)) | ((rest >= self.high) & (of_rest > 0))
        inner = inner.masked_fill(still.unsqueeze(-1) | still.unsqueeze(-2), 0.0)
        ridge = RIDGE * inner.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True).clamp(min=1e-6)
        inner = inner + torch.diag_embed(torch.where(still, 1.0, ridge))
        of_rest = of_rest.masked_fill(still, 0.0)
        across = across.masked_fill(still.unsqueeze(-2), 0.0)
        if only == "rest":
            new, step = main, torch.linalg.solve_ex(inner, of_rest.unsqueeze(-1))[0].squeeze(-1)
        else:
            pulled = torch.linalg.solve_ex(
                inner, torch.cat([of_rest.unsqueeze(-1), across.mT], -1)
            )[0]  # (R, n, D - m, 1 + m)
            reduced = of_main - (across @ pulled[..., :1]).squeeze(-1)
            new = solve(
                main,
                reduced,
                system - across @ pulled[..., 1:],
                self.penalty,
                self.fixed,
                self.bound,
            )
            step = pulled[..., 0] - (pulled[..., 1:] @ (new - main).unsqueeze(-1)).squeeze(-1)
        return torch.cat(
            [new, torch.where(torch.isfinite(step), rest + step, rest).clamp(self.low, self.high)],
            -1,
        )


class _Objective:
    """Expected log-density of n items in their coordinates.

    Args:
        known: the coordinates.
        counts: (R or 1, n, H, C); design: (C, P), or (R, 1, C, P) of drawn latents.
    """

    def __init__(self, known: Coordinates, counts: Tensor, design: Tensor) -> None:
        self.known, self.counts, self.design = known, counts.mT, design  # (R, n, C, H)

    def _predictors(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Linear (R, n, C, r) and thresholds (R, n, 1, g)."""
        beta, gaps = self.known.split(z)
        return self.design @ beta.mT, gaps.unsqueeze(-2)

    def value(self, z: Tensor) -> Tensor:
        """Expected log-density with prior and penalty, (R, n)."""
        own = (
            self.counts * self.known.group.family.log_probabilities_of_item(*self._predictors(z))
        ).sum((-2, -1))
        return own + self.known.log_prior(z)

    def gradient(self, z: Tensor) -> Tensor:
        """Gradient without the prior, (R, n, D)."""
        r, slopes = (
            self.known.num_rows,
            self.known.group.family.slopes_of_log_probabilities(*self._predictors(z)),
        )  # (R, n, C, H, r + g)
        first = (self.counts.unsqueeze(-2) @ slopes).squeeze(-2)  # (R, n, C, r + g)
        return torch.cat(
            [(first[..., :r].mT @ self.design).flatten(-2), first[..., r:].sum(-2)], -1
        )[..., self.known.order]

    def information(self, z: Tensor) -> Tensor:
        """Information without the prior, (R, n, D, D)."""
        predictors = self._predictors(z)
        family = self.known.group.family
        r = self.known.num_rows
        h = self.design
        slopes = family.slopes_of_log_probabilities(*predictors)
        weight = (
            self.counts.sum(-1, keepdim=True) * family.log_probabilities_of_item(*predictors).exp()
        )
        second = (slopes * weight.unsqueeze(-1)).mT @ slopes  # (R, n, C, r + g, r + g)
        squares = (
            torch.einsum("...cij,...cp,...cq->...ipjq", second[..., :r, :r], h, h)
            .flatten(-4, -3)
            .flatten(-2)
        )
        cross = torch.einsum("...cig,...cp->...ipg", second[..., :r, r:], h).flatten(-3, -2)
        whole = torch.cat(
            [
                torch.cat([squares, cross], -1),
                torch.cat([cross.mT, second[..., r:, r:].sum(-3)], -1),
            ],
            -2,
        )
        return whole[..., self.known.order, :][..., self.known.order]


def _climbed(q: _Objective, z: Tensor, num_steps: int) -> Tensor:
    """Ascend from z by some Newton steps."""
    value, known = q.value(z), q.known
    for _ in range(num_steps):
        curve = known.with_prior(z, q.gradient(z), q.information(z))
        new, new_value = halve(q.value, z, value, known.proposal(z, *curve))
        # a limit, or the exact prox, may have asked for a jump that Q refuses
        for alternative in ("main", "rest"):
            stuck = new_value <= value
            if not stuck.any():
                break
            second, second_value = halve(q.value, z, value, known.proposal(z, *curve, alternative))
            better = stuck & (second_value > new_value)
            new = torch.where(better.unsqueeze(-1), second, new)
            new_value = torch.where(better, second_value, new_value)
        gain, z, value = new_value - value, new, new_value
        if (gain <= TOLERANCE * (1 + value.abs())).all():
            break
    return z


class PlainPart(NamedTuple):
    """Layer of the items that are no categories, and their places.

    Args:
        layer: of these items.
        rows: of loadings and intercepts; entries: of statistics; items: of the columns.
    """

    layer: GeneralizedLinearLayer
    rows: Tensor
    entries: Tensor
    items: Tensor


def plain_part(layer: GeneralizedLinearLayer, device: torch.device) -> PlainPart | None:
    """Part of a layer without categories; None where all items are categories."""
    found = layer.without_categories()
    if found is None:
        return None
    own, rows, entries, items = found
    return PlainPart(
        own,
        *(torch.tensor(index, dtype=torch.long, device=device) for index in (rows, entries, items)),
    )


@dataclass(frozen=True, eq=False)
class _Moved:
    """Items of one group that a latent moves: group, places in it, columns of the answers."""

    group: int
    places: Tensor
    columns: Tensor


class CategoryConditionals:
    """Log-odds of a layer's parents from its categories, for a few rows at a time.

    Args:
        layer: the layer's description.
        loadings: (R, children, P); intercepts: (R, children); thresholds: (R, G).
    """

    def __init__(
        self,
        layer: GeneralizedLinearLayer,
        loadings: Tensor,
        intercepts: Tensor,
        thresholds: Tensor,
    ) -> None:
        self.layer, device = layer, loadings.device
        self.groups: list[ItemGroup] = []
        self.columns: list[Tensor] = []
        for part in layer.parts():
            if part.tabled:
                for group in groups_of(part, device):
                    self.groups.append(group)
                    self.columns.append(
                        part.items.start
                        + torch.tensor(group.items, dtype=torch.long, device=device)
                    )
        self.loadings = [loadings[:, group.rows] for group in self.groups]  # (R, n, r, P)
        self.intercepts = [intercepts[:, group.rows].unsqueeze(-1) for group in self.groups]
        self.thresholds = [thresholds[:, group.gaps] for group in self.groups]
        self.moves = [self._moves(k) for k in range(layer.num_parents)]
        self.num_moved = max(
            [
                1,
                *(
                    sum(
                        len(move.places) * self.groups[move.group].entries.shape[1]
                        for move in moves
                    )
                    for moves in self.moves
                ),
            ]
        )

    def _moves(self, k: int) -> list[_Moved]:
        if self.layer.terms is None:
            features = torch.tensor([k])
        else:
            features = self.layer.terms[:, k].nonzero().ravel()
        out = []
        for g, own in enumerate(self.loadings):
            places = (
                (own[..., features.to(own.device)] != 0).any(-1).any(-1).any(0).nonzero().ravel()
            )
            if len(places):
                out.append(_Moved(g, places, self.columns[g][places]))
        return out

    def begin(self, parents: Tensor, codes: Tensor, mask: Tensor | None) -> None:
        """Set the rows: parents (R, K, n), answers (J, n), mask (J, n) or None."""
        self.parents, self.codes, self.mask = parents.clone(), codes, mask

    def put(self, k: int, value: Tensor) -> None:
        """Set parent k to (R, n)."""
        self.parents[:, k] = value

    def logit(self, k: int, prior: Tensor) -> Tensor:
        """Log-odds of parent k, (R, n), from those (R, n or 1) without these items."""
        off, on = self.parents.clone(), self.parents.clone()
        off[:, k], on[:, k] = 0.0, 1.0
        # (R, 1, P, n)
        designs = [self.layer.features(bits.mT).mT.unsqueeze(1) for bits in (off, on)]
        total = prior
        for move in self.moves[k]:
            family, codes = self.groups[move.group].family, self.codes[move.columns]
            own, level, gaps = (
                each[move.group][:, move.places]
                for each in (self.loadings, self.intercepts, self.thresholds)
            )
            less, more = (
                family.log_chance_of(codes, own @ design + level, gaps) for design in designs
            )
            change = more - less
            total = total + (change if self.mask is None else change * self.mask[move.columns]).sum(
                1
            )
        return total
