r"""Maximisers of generalised-linear layers from expected statistics.

The cost does not depend on the number of rows.

For child j with design :math:`h_c = (1, a_c)` (or products of entries of a) over the parent's
configurations c, expected counts :math:`n_c` and expected cross products :math:`R_j = \sum_i \sum_c
r_{ic} T(x_{ij}) h_c`, the expected complete-data log-density is

.. math::

    Q_j(\beta) = s_j \{ \beta \cdot R_j - \sum_c n_c A(\beta \cdot h_c) \} - \tfrac{1}{2} \beta^\top
    M_j \beta - \sum_k p(\beta_k), \quad
    \beta = (b_j, W_j),

with :math:`M_j` the precision of the layer's normal prior, if it has one.

All children (and all restarts) are solved together by proximal Newton steps with step halving, so
no step lowers Q. Where the design holds products, children with the same parents are solved
together on the patterns of these alone, in closed form if they have as many coefficients as
predictors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from inference.structures.layers.categories import maximise_categories
from inference.structures.layers.newton import (
    cone_step,
    curved_by_counts,
    halve,
    inside_cone,
    put_curved,
    solve,
)
from ppl_models.descriptions.layers import GeneralizedLinearLayer, products
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.monotone import rises
from ppl_models.parts.penalties import Penalty, taken
from ppl_models.parts.responses import ResponseFamily
from ppl_models.parts.sizes import MISSING, maximise_sizes, tally

Params = dict[str, Tensor]
DISPERSION_LIMITS = (1e-6, 1e6)
TOLERANCE = 1e-10  # relative gain of a child that another Newton step must exceed
MAX_STEP = 1.0  # of a coefficient, where only an expansion is maximised


@dataclass(frozen=True)
class LayerStatistics:
    """Expected sufficient statistics of one layer, summed over rows.

    Args:
        configurations: (C, K), the parent's configurations (distinct draws, where the latents are
            sampled).
        counts: (R, C), or (R, J, C) where entries are missing: expected number of rows in each
            configuration.
        cross: (R, J, 1 + K), expected sum of T(x_j) h; like all that follows with an entry for each
            category of an item that is one of several.
        squares: (J,) or (R, J), sum of T(x_j)^2; None for families without dispersion.
        row_counts: (R, C), the same as ``counts`` where nothing is missing: what the layers above
            need.
        features: (C, P), what the predictor is linear in, where that is not the configurations
            themselves.
        sums: (R, J, C), expected sum of T(x_j) in each configuration; None where the predictor is
            the natural parameter of all items and none is a category.
        values: (J, N) or (R, J, N), T(x_j) itself, -1 where missing; None as ``sums``.
    """

    configurations: Tensor = field(metadata={"sum": False})
    counts: Tensor
    cross: Tensor
    squares: Tensor | None = None
    row_counts: Tensor | None = None
    features: Tensor | None = field(default=None, metadata={"sum": False})
    sums: Tensor | None = None
    values: Tensor | None = field(default=None, metadata={"join": -1})

    @property
    def design(self) -> Tensor:
        """Design matrix h, (C, 1 + K)."""
        columns = self.configurations if self.features is None else self.features
        return torch.nn.functional.pad(columns, (1, 0), value=1.0)


def with_ones(latents: Tensor) -> Tensor:
    """Design matrix h = (1, a): latents (..., K, N) to (..., 1 + K, N)."""
    return torch.cat([torch.ones_like(latents[..., :1, :]), latents], -2)


def drawn_statistics(
    layer: GeneralizedLinearLayer,
    below: Tensor,
    mask: Tensor | None,
    parents: Tensor,
    scale: float = 1.0,
) -> LayerStatistics:
    """Sufficient statistics of given latents, R = 1, equal configurations merged.

    ``layer``: the layer's description; ``below``: T of the children, (J, N), 0 where missing;
    ``mask``: (J, N) 0/1, None if nothing is missing; ``parents``: (K, N), 0/1; ``scale``: weight of
    a row.
    """
    configurations, index = _distinct(parents)
    ones = parents.new_full((len(index),), scale)
    row_counts = parents.new_zeros(len(configurations)).index_add_(0, index, ones)
    counts = row_counts
    if mask is not None:
        counts = parents.new_zeros(len(mask), len(configurations)).index_add_(
            1, index, mask if scale == 1.0 else mask * scale
        )
    cross = below @ with_ones(layer.features(parents.mT).mT).mT * scale
    squares = below.square().sum(-1) * scale if layer.dispersion else None
    features = None if layer.terms is None else layer.features(configurations)
    sums = values = None
    if layer.tabled or not layer.response.is_canonical:
        sums = parents.new_zeros(1, len(below), len(configurations)).index_add_(
            2, index, below.unsqueeze(0) * scale
        )
    if not layer.response.is_canonical:
        if mask is None:
            values = below
        else:
            values = below.masked_fill(layer.response.spread(mask.mT).mT == 0, MISSING)
    return LayerStatistics(
        configurations,
        counts.unsqueeze(0),
        cross.unsqueeze(0),
        squares,
        row_counts.unsqueeze(0),
        features,
        sums,
        values,
    )


def _distinct(parents: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct columns of a 0/1 matrix (K, N) as rows (C, K), and each column's index, (N,)."""
    if len(parents) > 62:
        rows, index = torch.unique(parents, dim=1, return_inverse=True)
        return rows.mT.contiguous(), index
    powers = 2 ** torch.arange(len(parents), device=parents.device)
    codes, index = torch.unique((parents.long() * powers[:, None]).sum(0), return_inverse=True)
    return ((codes[:, None] // powers) % 2).to(parents.dtype), index


def maximise_layer(
    layer: GeneralizedLinearLayer, stats: LayerStatistics, params: Params, num_steps: int = 3
) -> Params:
    """Maximise the expected complete-data log-posterior of one layer, starting from ``params``.

    Args:
        stats: its expected statistics.
        num_steps: Newton steps; with 1 or more, the objective does not fall.

    Returns:
        New values of the layer's loadings, intercepts, thresholds and dispersion, (R, ...).
    """
    # (R, J, 1 + K)
    beta = torch.cat([params[layer.intercepts].unsqueeze(-1), params[layer.loadings]], -1)
    dispersion = params[layer.dispersion] if layer.dispersion else None
    thresholds = params[layer.thresholds] if layer.thresholds else beta.new_zeros(len(beta), 0)
    # (R, J or 1, C)
    counts = stats.counts if stats.counts.dim() == 3 else stats.counts.unsqueeze(-2)
    new_beta, new_dispersion = [], []
    for own in layer.parts():
        family, columns, entries, part = own.family, own.rows, own.statistics, own.dispersion
        if own.tabled:
            if stats.sums is None:
                raise ValueError(
                    "maximise_layer: sums by configuration were expected for items that are"
                    " categories"
                )
            found, thresholds = maximise_categories(
                layer, own, stats.sums, stats.design, beta, thresholds, num_steps
            )
            new_beta.append(found[..., columns, :])
            continue
        own_counts = counts if counts.shape[-2] == 1 else counts[..., own.items, :]
        gamma = dispersion[..., part] if dispersion is not None and part.stop > part.start else None
        scale = family.scale(gamma, columns.stop - columns.start)
        steps = 1 if family.is_linear else num_steps
        cross, own_beta = stats.cross[..., entries, :], beta[..., columns, :]
        rows = own_counts
        if gamma is not None and stats.sums is not None and not family.is_canonical:
            own_counts = stats.sums[..., entries, :] + gamma.unsqueeze(-1) * rows
            family = family.given(gamma.unsqueeze(-1))
        if layer.terms is not None and layer.graph is not None and layer.penalty is None:
            own_beta = _maximise_products(
                layer, columns, family, cross, own_counts, stats, own_beta, scale, steps
            )
        else:
            own_beta = maximise_rows(
                family,
                cross,
                own_counts,
                stats.design,
                own_beta,
                penalty=layer.penalty,
                precision=layer.precision(columns, own_beta),
                scale=scale,
                free=(
                    None
                    if layer.graph is None
                    else layer.graph[..., columns, :].to(own_beta.device)
                ),
                bound=layer.block_bound(columns),
                num_steps=steps,
            )
        new_beta.append(own_beta)
        if (
            gamma is not None
            and stats.sums is not None
            and stats.values is not None
            and own_counts is not rows
        ):
            eta = own_beta @ stats.design.mT
            x, often = tally(stats.values[..., entries, :])
            # a row may weigh more than one
            often = often * (rows.sum(-1) / often.sum(-1)).unsqueeze(-1)
            new_dispersion.append(
                maximise_sizes(x, often, stats.sums[..., entries, :], rows, eta, gamma)
            )
        elif gamma is not None and stats.squares is not None:
            fitted = own_beta @ stats.design.mT  # (R, J, C)
            residual = stats.squares[..., entries] - 2 * (own_beta * cross).sum(-1)
            residual = residual + (own_counts * fitted.square()).sum(-1)
            new_dispersion.append(_variances(residual, own_counts.sum(-1), gamma))
    updated = put_curved(
        layer,
        torch.cat(new_beta, -2),
        curved_by_counts(layer, stats.cross, counts, stats.configurations, beta, num_steps),
    )
    out = {layer.intercepts: updated[..., 0], layer.loadings: updated[..., 1:]}
    if layer.thresholds is not None:
        out[layer.thresholds] = thresholds
    if layer.dispersion is not None:
        out[layer.dispersion] = torch.cat(new_dispersion, -1)
    return out


@dataclass(frozen=True)
class _LikeChildren:
    """Children whose predictors have one design over the patterns of their own parents.

    Args:
        children: (n,), in the block; places: of their coefficients, (n, P), the intercept first.
        design: distinct rows of features, (D, P); cell: the row of each configuration of the
            layer's parents, (U, C), for each of U sets of parents; owner: the set of a child, (n,).
        cone: steps of the predictor that may not fall, (E, P); None where it is free.
        precision: of a normal prior, (P, P) or (n, P, P); None for a flat one.
    """

    children: Tensor
    places: Tensor
    design: Tensor
    cell: Tensor
    owner: Tensor
    cone: Tensor | None
    precision: Tensor | None

    def counts(self, counts: Tensor) -> Tensor:
        """Rows at each row of the design, (R, n, D), of counts (R, J or 1, C)."""
        num_sets, size = len(self.cell), len(self.design)
        first = size * torch.arange(num_sets, device=counts.device).unsqueeze(-1)
        if counts.shape[-2] == 1:
            rows, index = counts.expand(-1, num_sets, -1), (self.cell + first).flatten()
            out = counts.new_zeros(len(counts), num_sets * size).index_add_(
                -1, index, rows.flatten(1)
            )
            return out.reshape(len(counts), num_sets, size)[:, self.owner]
        num = len(self.children)
        first = size * torch.arange(num, device=counts.device).unsqueeze(-1)
        index = (self.cell[self.owner] + first).flatten()
        rows = counts[:, self.children].flatten(1)
        out = counts.new_zeros(len(counts), num * size).index_add_(-1, index, rows)
        return out.reshape(len(counts), num, size)


def _like_children(
    layer: GeneralizedLinearLayer, columns: slice, configurations: Tensor, like: Tensor
) -> list[_LikeChildren]:
    """Children of a block by their design, made once for a layer and its configurations."""
    key = ("like children", columns.start, columns.stop, like.dtype, like.device)
    before, groups = layer.memory.get(key, (None, None))
    if before is not configurations and not (
        before is not None
        and before.shape == configurations.shape
        and torch.equal(before, configurations)
    ):
        groups = list(_grouped(layer, columns, configurations, like))
        layer.memory[key] = configurations, groups
    return cast("list[_LikeChildren]", groups)


def _grouped(
    layer: GeneralizedLinearLayer, columns: slice, configurations: Tensor, like: Tensor
) -> Iterator[_LikeChildren]:
    if layer.terms is None or layer.graph is None:
        raise ValueError("maximise_layer: a layer with terms and a graph was expected")
    terms, device = layer.terms.to(like.device), like.device
    precision = layer.precision(columns, like)
    uses, group = torch.unique(layer.graph[columns].to(device), dim=0, return_inverse=True)
    alike: dict[Any, list[tuple[Tensor, Tensor, Tensor]]] = {}
    shared: dict[Any, tuple[Tensor, Tensor | None]] = {}
    for g, used in enumerate(uses):
        children, chosen = (group == g).nonzero().ravel(), used.nonzero().ravel()
        parents = terms[chosen].any(0).nonzero().ravel()
        powers = 2 ** torch.arange(len(parents) - 1, -1, -1, device=device)
        # (C,), the parents' own configuration
        pattern = (configurations[:, parents].long() * powers).sum(-1)
        values = binary_configurations(len(parents), like.dtype, device)
        kinds = None if layer.disjunctive is None else layer.disjunctive.to(device)[chosen]
        local = torch.nn.functional.pad(
            products(values, terms[chosen][:, parents], kinds), (1, 0), value=1.0
        )  # (2^q, P)
        design, same = torch.unique(local, dim=0, return_inverse=True)
        cone = rises(local) if layer.rising else None
        key = tuple(
            None if part is None else (tuple(part.shape), tuple(part.flatten().tolist()))
            for part in (design, cone)
        )
        shared[key] = design, cone
        places = torch.cat([chosen.new_zeros(1), chosen + 1])
        alike.setdefault(key, []).append((children, places, same[pattern]))
    for key, sets in alike.items():
        sizes = torch.tensor([len(children) for children, _, _ in sets], device=device)
        owner = torch.arange(len(sets), device=device).repeat_interleave(sizes)
        places = torch.stack([places for _, places, _ in sets])
        own = None
        if precision is not None:
            own = precision[places.unsqueeze(-1), places.unsqueeze(-2)]  # (U, P, P)
            own = own[0] if bool((own == own[0]).all()) else own[owner]
        yield _LikeChildren(
            torch.cat([children for children, _, _ in sets]),
            places[owner],
            shared[key][0],
            torch.stack([cell for _, _, cell in sets]),
            owner,
            shared[key][1],
            own,
        )


def _maximise_products(
    layer: GeneralizedLinearLayer,
    columns: slice,
    family: ResponseFamily,
    cross: Tensor,
    counts: Tensor,
    stats: LayerStatistics,
    beta: Tensor,
    scale: Tensor | None,
    num_steps: int,
) -> Tensor:
    """Maximise children with predictors in products of parents, (R, J, 1 + T).

    Children whose products make the same design over the patterns of their own parents, a few rows
    and columns, are maximised together.
    """
    bound = layer.block_bound(columns)
    new = torch.zeros_like(beta)
    for group in _like_children(layer, columns, stats.configurations, beta):
        children, design, cone = group.children, group.design, group.cone
        seen = group.counts(counts)
        entries = (..., children.unsqueeze(-1), group.places)
        sums, start = cross[entries], beta[entries]
        if cone is not None:  # zero is in it
            start = torch.cat(
                [start[..., :1], start[..., 1:] * inside_cone(start, cone).unsqueeze(-1)], -1
            )
        best, inside = None, torch.zeros((), dtype=torch.bool)
        # a predictor of its own for each row of the design
        if design.shape[0] == design.shape[1] and group.precision is None:
            totals = torch.linalg.solve(design.mT, sums.mT).mT
            means = totals / seen.clamp(min=torch.finfo(beta.dtype).tiny)
            best = torch.linalg.solve(design, family.take(children).linearise(means, 0.0).mT).mT
            inside = (
                (seen > 0).all(-1) & torch.isfinite(best).all(-1) & (best.abs() <= bound).all(-1)
            ).unsqueeze(-1)
            inside = inside if cone is None else inside & inside_cone(best, cone).unsqueeze(-1)
        if best is None or not inside.all():
            newton = maximise_rows(
                family.take(children),
                sums,
                seen,
                design,
                start,
                scale=None if scale is None else scale[..., children],
                bound=bound,
                num_steps=num_steps,
                cone=cone,
                precision=group.precision,
            )
            best = newton if best is None else torch.where(inside, best, newton)
        new[entries] = best
    return new


@dataclass(frozen=True, eq=False)
class OwnPlaces:
    """Places of each child's own coefficients among all, where a given graph leaves it few.

    Args:
        at: (J, F), 0 the intercept, filled up with zeros; used: bool (J, F), False where filled up.
    """

    at: Tensor
    used: Tensor

    def of(self, beta: Tensor) -> Tensor:
        """Own coefficients (..., J, F) among all (..., J, P), zero where filled up."""
        at, used = self.at.to(beta.device), self.used.to(beta)
        return beta.gather(-1, at.expand(*beta.shape[:-2], *at.shape)) * used

    def back(self, own: Tensor, beta: Tensor) -> Tensor:
        """All coefficients, typed like ``beta``, zero but for a child's own."""
        at = self.at.to(own.device).expand(own.shape)
        return torch.zeros_like(beta).scatter_add(-1, at, own * self.used.to(own))

    def precisions(self, layer: GeneralizedLinearLayer, beta: Tensor) -> Tensor:
        """Prior precision of own coefficients, (J, F, F), and one where filled up."""
        size = self.at.shape[1]
        used = self.used.to(beta)
        out = torch.diag_embed(1 - used)
        for _, columns, _ in layer.response.blocks(layer.num_children):
            whole = layer.precision(columns, beta)
            if whole is not None:
                at = self.at[columns].to(beta.device)
                pairs = used[columns].unsqueeze(-1) * used[columns].unsqueeze(-2)
                rows, across = at.unsqueeze(-1).expand(-1, size, size), at.unsqueeze(-2)
                out[columns] += whole[rows, across.expand_as(rows)] * pairs
        return out


def own_places(layer: GeneralizedLinearLayer) -> OwnPlaces | None:
    """Places of each child's own coefficients; None where they are not few, or not free."""
    if layer.graph is None or layer.graph.dim() != 2 or layer.penalty is not None:
        return None
    if layer.curved or layer.rising or layer.tabled:
        return None
    most = int(layer.graph.sum(-1).max())
    if 2 * (most + 1) > layer.num_features:
        return None
    used = torch.arange(most) < layer.graph.cpu().sum(-1, keepdim=True)
    order = (~layer.graph.cpu()).to(torch.uint8).argsort(dim=-1, stable=True)[:, :most] + 1
    return OwnPlaces(
        torch.nn.functional.pad(order * used, (1, 0)),
        torch.nn.functional.pad(used, (1, 0), value=True),
    )


def maximise_quadratic(
    layer: GeneralizedLinearLayer,
    linear: Tensor,
    hessian: Tensor,
    beta: Tensor,
    scale: Tensor | None,
    places: OwnPlaces | None = None,
) -> Tensor:
    r"""Maximise a quadratic less the layer's penalty, in its box.

    The quadratic is :math:`s_j (r_j \cdot \beta_j - \beta_j^\top H_j \beta_j / 2)`.

    ``layer``: the layer's description; ``linear``: r, (R, J, P); ``hessian``: H, (R, J or 1, P, P);
    ``beta``: start, (R, J, P); the result is not below it; ``scale``: s, (R, J), None for 1;
    ``places``: of each child's own coefficients, where the arrays hold only these.
    """
    fixed = None
    if places is not None:
        fixed = (~places.used).to(beta.device).expand(beta.shape)
        beta = beta.masked_fill(fixed, 0.0)
    elif layer.graph is not None:
        free = layer.graph.to(beta.device)
        fixed = torch.cat([torch.zeros_like(free[:, :1]), ~free], -1).expand(beta.shape)
        beta = beta.masked_fill(fixed, 0.0)
    if scale is not None:
        linear, hessian = linear * scale.unsqueeze(-1), hessian * scale[..., None, None]
    hessian = hessian.expand(*beta.shape, beta.shape[-1])
    if places is not None:
        hessian = hessian + places.precisions(layer, beta)
    elif layer.prior is not None:
        hessian = hessian + precisions(layer, beta)

    bound = layer.bounds(beta).unsqueeze(-1)  # (J, 1)

    def pull(b: Tensor) -> Tensor:
        return (hessian @ b.unsqueeze(-1)).squeeze(-1)

    def objective(b: Tensor) -> Tensor:
        smooth = ((linear - pull(b) / 2) * b).sum(-1)
        return smooth if layer.penalty is None else smooth - layer.penalty(b[..., 1:]).sum(-1)

    gradient = linear - pull(beta)
    proposal = solve(beta, gradient, hessian, layer.penalty, fixed, bound)
    proposal = _in_cones(layer, beta, proposal, gradient, hessian)
    if not layer.response.is_linear:  # there the quadratic is an expansion: good near beta
        longest = (proposal - beta).abs().amax(-1, keepdim=True)
        proposal = torch.where(
            longest > MAX_STEP, beta + (proposal - beta) * (MAX_STEP / longest), proposal
        )
    return halve(objective, beta, objective(beta), proposal)[0]


def _in_cones(
    layer: GeneralizedLinearLayer, beta: Tensor, proposal: Tensor, gradient: Tensor, hessian: Tensor
) -> Tensor:
    """Replace proposals (R, J, P) outside their cones by the maximisers inside."""
    proposal = proposal.clone()
    for group in layer.rising:
        places = torch.cat([group.columns.new_zeros(1), group.columns + 1])
        items = group.items.unsqueeze(-1)
        steps = torch.nn.functional.pad(group.steps, (1, 0)).to(beta)
        own = proposal[..., items, places]
        falls = ~inside_cone(own, steps)
        if falls.any():
            h = hessian[..., items.unsqueeze(-1), places.unsqueeze(-1), places]
            bound = layer.bounds(beta)[group.items[0]]
            own[falls] = cone_step(
                beta[..., items, places][falls],
                gradient[..., items, places][falls],
                h[falls],
                steps,
                bound,
            )
            proposal[..., items, places] = own
    return proposal


def _variances(residual: Tensor, weight: Tensor, before: Tensor) -> Tensor:
    """Residual variances; as before where no row was seen."""
    return torch.where(weight > 0, residual / weight, before).clamp(*DISPERSION_LIMITS)


def maximise_dispersion(
    layer: GeneralizedLinearLayer,
    residual: Tensor,
    weight: Tensor,
    before: Tensor,
    sizes: Tensor | None = None,
) -> Tensor:
    """Dispersion: variances from squared residuals and row counts (R, J), sizes given.

    As they were, ``before``, where no row was seen.
    """
    out = []
    for family, columns, part in layer.response.blocks(layer.num_children):
        if part.stop > part.start and family.is_canonical:
            out.append(_variances(residual[..., columns], weight[..., columns], before[..., part]))
        elif part.stop > part.start and sizes is not None:
            out.append(sizes[..., columns])
    return torch.cat(out, -1)


def precisions(layer: GeneralizedLinearLayer, like: Tensor) -> Tensor:
    """Precision matrix of every child's normal prior, (J or 1, P, P), made once for a layer."""
    name = "precisions", like.dtype, like.device
    if name not in layer.memory:
        parts = [part.rows for part in layer.parts()]
        own = [(columns, layer.precision(columns, like)) for columns in parts]
        each = [(c, value) for c, value in own if value is not None]
        layer.memory[name] = (
            each[0][1].unsqueeze(0)
            if len(each) == 1
            else torch.cat([value.expand(c.stop - c.start, -1, -1) for c, value in each])
        )
    return cast("Tensor", layer.memory[name])


def normal_exponent(layer: GeneralizedLinearLayer, params: Params) -> Tensor:
    """Half the quadratic form of the layer's normal prior, (R,); zero without one."""
    beta = torch.cat([params[layer.intercepts].unsqueeze(-1), params[layer.loadings]], -1)
    if layer.prior is None:
        return beta.new_zeros(len(beta))
    each = (beta.unsqueeze(-2) @ precisions(layer, beta) @ beta.unsqueeze(-1)).flatten(-3)
    return each.sum(-1) / 2


def maximise_rows(
    family: ResponseFamily,
    cross: Tensor,
    counts: Tensor,
    design: Tensor,
    beta: Tensor,
    penalty: Penalty | None = None,
    scale: Tensor | None = None,
    free: Tensor | None = None,
    bound: float = torch.inf,
    num_steps: int = 3,
    precision: Tensor | None = None,
    cone: Tensor | None = None,
) -> Tensor:
    """Proximal Newton steps for all children at once.

    ``family``: elementary response family; ``cross``: R, (R, J, P); ``counts``: (R, J or 1, C);
    ``design``: h, (C, P), first column ones; ``beta``: start, (R, J, P); ``penalty``: of every
    entry but the first; ``scale``: s, (R, J), None for 1; ``free``: bool (J, P - 1), or (R, J, P -
    1), loadings that may differ from zero; ``bound``: the box is [-bound, bound]; ``num_steps``: at
    most so many Newton steps; fewer if no child gains more than 1e-10 relatively;
    ``precision``: M, (P, P) or (J, P, P), of a normal prior around zero; None for a flat one;
    ``cone``: A, (E, P), steps of the predictor that may not fall; the start must lie there. None
    for none.

    Returns:
        (R, J, P); no child's objective is below its value at the start.
    """
    size = design.shape[-1]
    i, j = torch.triu_indices(size, size, device=design.device)
    outer = design[:, i] * design[:, j]  # (C, P (P + 1) / 2): the distinct entries of h h'
    fixed = None
    if free is not None:
        fixed = torch.cat([torch.zeros_like(free[..., :1]), ~free], -1).expand(beta.shape)
        beta = beta.masked_fill(fixed, 0.0)
    children = _Children(family, cross, counts, design, penalty, scale, precision)
    value = children.objective(beta)
    for _ in range(num_steps):
        mean, curvature = family.moments(beta @ design.mT)
        gradient = cross - (counts * mean) @ design
        packed = (counts * curvature) @ outer
        hessian = packed.new_empty(*packed.shape[:-1], size, size)
        hessian[..., i, j] = packed
        hessian[..., j, i] = packed
        if scale is not None:
            weight = scale.unsqueeze(-1)
            gradient, hessian = gradient * weight, hessian * weight.unsqueeze(-1)
        if precision is not None:
            gradient, hessian = gradient - children.pull(beta), hessian + precision
        proposal = solve(beta, gradient, hessian, penalty, fixed, bound)
        if cone is not None:
            falls = ~inside_cone(proposal, cone)
            if falls.any():
                proposal[falls] = cone_step(
                    beta[falls], gradient[falls], hessian[falls], cone, bound
                )
        proposal, new_value = halve(children.objective, beta, value, proposal)
        stuck = new_value <= value
        # the box or the exact prox may have asked for a jump that the true objective refuses
        if stuck.any() and cone is None:
            own, start = children.of(stuck), beta[stuck]
            kept = None if fixed is None else fixed[stuck]
            cautious = solve(
                start, gradient[stuck], hessian[stuck], own.penalty, kept, bound, cautious=True
            )
            cautious, cautious_value = halve(own.objective, start, value[stuck], cautious)
            better = cautious_value > new_value[stuck]
            proposal[stuck] = torch.where(better.unsqueeze(-1), cautious, proposal[stuck])
            new_value[stuck] = torch.where(better, cautious_value, new_value[stuck])
        gain = new_value - value
        beta, value = proposal, new_value
        if (gain <= TOLERANCE * (1 + value.abs())).all():
            break
    return beta


@dataclass(frozen=True)
class _Children:
    """Expected complete-data log-posterior of each child, with the arguments of `maximise_rows`."""

    family: ResponseFamily
    cross: Tensor
    counts: Tensor
    design: Tensor
    penalty: Penalty | None
    scale: Tensor | None
    precision: Tensor | None

    def objective(self, beta: Tensor) -> Tensor:
        """Log-posterior (..., J) at coefficients (..., J, P)."""
        partition = (self.counts * self.family.log_partition(beta @ self.design.mT)).sum(-1)
        smooth = (beta * self.cross).sum(-1) - partition
        smooth = smooth if self.scale is None else smooth * self.scale
        if self.precision is not None:
            smooth = smooth - (self.pull(beta) * beta).sum(-1) / 2
        return smooth if self.penalty is None else smooth - self.penalty(beta[..., 1:]).sum(-1)

    def pull(self, beta: Tensor) -> Tensor:
        """Gradient of the normal prior's exponent, (..., J, P)."""
        assert self.precision is not None
        if self.precision.dim() == 2:
            return beta @ self.precision
        return (beta.unsqueeze(-2) @ self.precision).squeeze(-2)

    def of(self, mask: Tensor) -> _Children:
        """Some of the children, by a mask (R, J), with no dim of restarts."""
        counts, precision, penalty = self.counts, self.precision, self.penalty
        if precision is not None and precision.dim() > 2:
            precision = precision.expand(*mask.shape, *precision.shape[-2:])[mask]
        return _Children(
            self.family.take(mask),
            self.cross[mask],
            counts.expand(*mask.shape, counts.shape[-1])[mask],
            self.design,
            None if penalty is None else taken(penalty, mask.nonzero()[:, 0]),
            None if self.scale is None else self.scale.expand(mask.shape)[mask],
            precision,
        )
