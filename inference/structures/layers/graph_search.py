r"""Edges added to a graph of sparse layers and taken away while extended BIC falls.

A penalty decides all edges by one number; its graph has a few edges too many or too few where
effects are small. From that graph single edges are tried. Which ones is told by the expected
complete-data information :math:`H` of a child's coefficients at the estimate, the free ones S among
them: the least :math:`\hat W_k^2 / (H_{SS}^{-1})_{kk}` of the edges there (a Wald statistic), the
largest :math:`g_k^2 / (H_{kk} - H_{kS} H_{SS}^{-1} H_{Sk})` of those that are not (a score
statistic; the gradient g of the expected complete-data log-posterior is that of the log-posterior,
by Fisher's identity). Each is judged by a refit, all of a round in one batch of EM. An edge goes as
soon as EBIC is smaller without it, and comes only if EBIC falls by more than 2: with many absent
edges to choose from, some gain a little by chance.

Source of the scale: R. E. Kass and A. E. Raftery (1995), doi:10.1080/01621459.1995.10476572.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from inference.base.progress import Progress
from inference.base.structure import Problem
from inference.engines.em import EM
from inference.programs.program import Params
from inference.structures.layers.categories import curves_of_categories, plain_part
from inference.structures.layers.em_steps import LayeredSteps
from inference.structures.layers.glm import LayerStatistics, precisions
from inference.structures.layers.penalty_grid import climb_graphs, part_of
from ppl_models.descriptions.layers import FAINT, GeneralizedLinearLayer, LayerPart

Move = tuple[int, int, int]  # layer, child, parent
# of the refits that only judge
LOOSE = {"tolerance": 1e-7, "parameter_tolerance": 1e-2, "max_iterations": 200}
LEAST_GAIN = 1e-2  # of EBIC
# where an edge is added: less is "not worth more than a bare mention" (Kass and Raftery 1995)
ADDED_GAIN = 2.0


@dataclass(frozen=True, eq=False)
class Found:
    """Candidate graph: the restricted model, its estimate, and its EBIC."""

    model: Any
    params: Params
    score: float


def search_graphs(
    plain: Problem,
    start: Found,
    method: EM,
    score: Callable[[Any, Params, Tensor], float],
    progress: Progress,
    num_moves: int,
    max_rounds: int,
) -> Found:
    """Greedy search from a graph by single edges, several in a round where several gain.

    Args:
        plain: the problem of the model without penalty or graph.
        start: where to begin.
        method: the engine of the refits, which run looser than it.
        score: (model, estimate, log-likelihood (1,)) -> EBIC.
        progress: where the refits say how far they are.
        num_moves: edges to take away that are tried in a round, and as many to add.
        max_rounds: at most so many.

    Returns:
        The best graph met, its estimate not yet fully converged unless it is ``start``.
    """
    loose = replace(
        method, **{name: _looser(getattr(method, name), value) for name, value in LOOSE.items()}
    )
    best = start
    tried: set[tuple[Any, ...]] = {
        _key([layer.by_item(layer.graph) for layer in start.model.layers()])
    }
    for _ in range(max_rounds):
        graphs = [layer.by_item(layer.graph) for layer in best.model.layers()]
        singles = [
            m
            for m in _moves(plain, best, graphs, num_moves)
            if _key(_moved(graphs, [m])) not in tried
        ]
        results = _judge(
            plain, best, [_moved(graphs, [m]) for m in singles], loose, score, progress
        )
        tried |= {_key(_moved(graphs, [m])) for m in singles}
        pairs = [
            (m, own)
            for m, own in zip(singles, results, strict=True)
            if own.score < best.score - _least(graphs, m)
        ]
        if not pairs:
            break
        gains = [m for m, _ in pairs]
        top = min((own for _, own in pairs), key=lambda own: own.score)
        if len(gains) > 1:
            both = _moved(graphs, gains)
            if _key(both) not in tried and all(
                _is_whole(x, g) for x, g in zip(best.model.layers(), both, strict=True)
            ):
                tried.add(_key(both))
                top = min(
                    [top, *_judge(plain, top, [both], loose, score, progress)],
                    key=lambda own: own.score,
                )
        best = top
    return best


def _least(graphs: Sequence[Tensor], move: Move) -> float:
    """Least fall of EBIC for which an edge is turned."""
    layer, child, parent = move
    return LEAST_GAIN if bool(graphs[layer][child, parent]) else ADDED_GAIN


def _looser(own: Any, value: Any) -> Any:
    return min(own, value) if isinstance(value, int) else max(own, value)


def _is_whole(layer: GeneralizedLinearLayer, graph: Tensor) -> bool:
    """Tell whether every latent has an edge, and every child where it must."""
    return bool(graph.any(0).all()) and (not layer.every_child or bool(graph.any(1).all()))


def _key(graphs: Sequence[Tensor]) -> tuple[Any, ...]:
    return tuple(tuple(map(tuple, graph.int().tolist())) for graph in graphs)


def _moved(graphs: Sequence[Tensor], moves: Sequence[Move]) -> list[Tensor]:
    """Graphs with some edges turned."""
    out = [graph.clone() for graph in graphs]
    for d, j, k in moves:
        out[d][j, k] = ~out[d][j, k]
    return out


def _moves(plain: Problem, at: Found, graphs: Sequence[Tensor], num_moves: int) -> list[Move]:
    """Weakest edges and strongest absent ones; a latent (and a child) keeps its last edge."""
    steps = plain.structure.steps(plain, 2**18, 1)
    if not isinstance(steps, LayeredSteps):
        return []
    params = {name: value.unsqueeze(0) for name, value in at.params.items()}
    statistics = steps.e_step(params)[0]
    weak: list[tuple[float, Move]] = []
    strong: list[tuple[float, Move]] = []
    for d, (layer, graph) in enumerate(zip(at.model.layers(), graphs, strict=True)):
        values = edge_statistics(layer, statistics.layers[layer.loadings], at.params, graph)
        last = graph & (graph.sum(0) == 1)
        if layer.every_child:
            last = last | (graph & (graph.sum(1, keepdim=True) == 1))
        for j, k in (graph & ~last).nonzero().tolist():
            weak.append((float(values[j, k]), (d, j, k)))
        for j, k in (~graph).nonzero().tolist():
            strong.append((-float(values[j, k]), (d, j, k)))
    return [move for _, move in sorted(weak)[:num_moves] + sorted(strong)[:num_moves]]


def edge_statistics(
    layer: GeneralizedLinearLayer, stats: LayerStatistics, params: Params, graph: Tensor
) -> Tensor:
    """Wald statistics of the edges and score statistics of the others, (items, num_parents).

    An edge of an item that has several predictors is all of its loadings on a latent: of these the
    statistic of all together, less what all but one cost in BIC.

    ``layer``: the layer's description; ``stats``: its expected statistics, R = 1; ``params``: the
    estimate, without leading dims, zero off the graph; ``graph``: bool (items, num_parents).
    """
    out = graph.new_zeros(graph.shape, dtype=stats.cross.dtype)
    for part in layer.parts():
        if part.tabled:
            out[part.items] = _of_categories(layer, part, stats, params, graph[part.items])
    plain = plain_part(layer, graph.device)
    if plain is not None:
        own, rows, entries, items = plain
        counts = stats.counts if stats.counts.dim() == 2 else stats.counts[:, items]
        sums = None if stats.sums is None or own.response.is_canonical else stats.sums[:, entries]
        given = params | {name: params[name][rows] for name in (layer.intercepts, layer.loadings)}
        out[items] = _of_predictors(
            own,
            replace(stats, counts=counts, cross=stats.cross[:, entries], sums=sums),
            given,
            graph[items],
        )
    return out


def _of_predictors(
    layer: GeneralizedLinearLayer, stats: LayerStatistics, params: Params, graph: Tensor
) -> Tensor:
    """Wald and score statistics of items of one predictor each."""
    # (C, P), (C,) or (J, C), (J, P)
    design, counts, cross = (stats.design, stats.counts[0], stats.cross[0])
    beta = torch.cat([params[layer.intercepts].unsqueeze(-1), params[layer.loadings]], -1)
    predictor = beta @ design.mT
    dispersion = params[layer.dispersion] if layer.dispersion else None
    mean, curvature = torch.empty_like(predictor), torch.empty_like(predictor)
    scale = layer.response.scale(dispersion, layer.num_children)
    for family, columns, part in layer.response.blocks(layer.num_children):
        if stats.sums is not None and dispersion is not None and not family.is_canonical:
            size = dispersion[part].unsqueeze(-1)
            counts = counts.expand(predictor.shape).clone()
            counts[columns] = stats.sums[0][columns] + size * counts[columns]
            family = family.given(size)
        mean[columns], curvature[columns] = family.moments(predictor[columns])
    gradient = cross - (counts * mean) @ design
    hessian = torch.einsum("jc,cp,cq->jpq", counts * curvature, design, design)
    if scale is not None:
        gradient, hessian = gradient * scale[:, None], hessian * scale[:, None, None]
    if layer.prior is not None:
        own = precisions(layer, beta)
        gradient = gradient - (own.expand_as(hessian) @ beta.unsqueeze(-1)).squeeze(-1)
        hessian = hessian + own
    free = torch.cat([torch.ones_like(graph[:, :1]), graph], -1).to(beta)  # (J, P)
    ridge = 1e-8 * hessian.diagonal(dim1=-2, dim2=-1).mean(-1).clamp(min=1e-8)
    inner = hessian * free.unsqueeze(-1) * free.unsqueeze(-2) + torch.diag_embed(
        1 - free + ridge[:, None]
    )
    inverse = torch.linalg.inv(inner) * free.unsqueeze(-1) * free.unsqueeze(-2)
    # information about an absent edge
    left = hessian.diagonal(dim1=-2, dim2=-1) - ((hessian @ inverse) * hessian).sum(-1)
    wald = beta.square() / inverse.diagonal(dim1=-2, dim2=-1).clamp(min=1e-300)
    score = gradient.square() / left.clamp(min=ridge[:, None])
    return torch.where(graph, wald[:, 1:], score[:, 1:])


def _of_categories(
    layer: GeneralizedLinearLayer,
    part: LayerPart,
    stats: LayerStatistics,
    params: Params,
    graph: Tensor,
) -> Tensor:
    """Wald and score statistics of items that are categories, (items, num_parents)."""
    out = graph.new_zeros(graph.shape, dtype=stats.cross.dtype)
    rows = max(1.0, float(stats.counts.sum(-1).max()))
    for curve in curves_of_categories(layer, part, stats.sums, stats.design, params):
        absent = curve.loadings[:, ~graph[curve.item]].ravel()
        inside = (
            torch.ones_like(curve.point, dtype=torch.bool)
            .index_fill(0, absent, False)
            .nonzero()
            .ravel()
        )
        inverse = torch.zeros_like(curve.hessian)
        inverse[inside[:, None], inside] = torch.linalg.pinv(
            curve.hessian[inside[:, None], inside], hermitian=True
        )
        # information about what is absent
        left = curve.hessian - curve.hessian @ inverse @ curve.hessian
        for k, at in enumerate(curve.loadings.mT):
            is_edge = bool(graph[curve.item, k])
            value, spread = (curve.point, inverse) if is_edge else (curve.gradient, left)
            statistic = (
                value[at] @ torch.linalg.pinv(spread[at[:, None], at], hermitian=True) @ value[at]
            )
            out[curve.item, k] = statistic - (len(at) - 1) * math.log(rows)
    return out


def _judge(
    plain: Problem,
    at: Found,
    graphs: Sequence[Sequence[Tensor]],
    method: EM,
    score: Callable[[Any, Params, Tensor], float],
    progress: Progress,
) -> list[Found]:
    """Refit several graphs from one estimate."""
    if not graphs:
        return []
    model: Any = plain.model
    models = [model.restricted([graph.int().tolist() for graph in own]) for own in graphs]
    starts = []
    for own in graphs:
        params = dict(at.params)
        for layer, graph in zip(plain.structure.layers, own, strict=True):
            params[layer.loadings] = params[layer.loadings] * layer.by_child(graph).to(
                params[layer.loadings]
            )
        starts.append(params)
    state = climb_graphs(plain, models, starts, method, progress)
    if state is None:
        return []
    out = []
    for i, model in enumerate(models):
        part = part_of(state, i, 1)
        params = {name: value[0] for name, value in part.params.items()}
        out.append(Found(model, params, score(model, params, part.log_likelihood)))
    return out


def estimated_graphs(
    layers: Sequence[GeneralizedLinearLayer],
    params: Mapping[str, Tensor],
    threshold: float | None = None,
) -> tuple[Tensor, ...]:
    r"""Graph of each layer, :math:`1[|\hat W_d| \ge \tau]`, (num_children, num_features).

    The distribution of an item of C categories without an order changes with a latent as soon as
    one of its C - 1 loadings differs from zero: there the edge is that of the item, and all of its
    predictors have it.

    Args:
        layers: bottom-up.
        params: by site name, without leading dims.
        threshold: the least size of a loading that counts; the penalty's own if None, on a graph
            that was found a twentieth of the predictors' unit, else every loading that is not zero.
    """
    out = []
    for layer in layers:
        size, least = params[layer.loadings].abs(), threshold
        if least is None and layer.penalty is not None:
            least = float(layer.penalty.threshold)
        elif least is None:
            least = FAINT * layer.unit(params) if layer.estimated else 0.0
        out.append(layer.by_child(layer.by_item((size >= least) & (size > 0))))
    return tuple(out)


def thresholded(
    model: Any,
    layers: Sequence[GeneralizedLinearLayer],
    params: Mapping[str, Tensor],
    threshold: float | None = None,
) -> tuple[Any, Params]:
    """Model on the graph of an estimate, and the estimate on it.

    A latent that would lose every edge keeps its largest one (and so does a child, where its layer
    says so).

    ``model``: with ``restricted(graphs)``; ``layers``: its own, with the penalty that the estimate
    was made under; ``params``, ``threshold``: see :func:`estimated_graphs`.
    """
    new, graphs = dict(params), []
    for layer, graph in zip(layers, estimated_graphs(layers, params, threshold), strict=True):
        size = new[layer.loadings].abs()
        largest = torch.zeros_like(graph).scatter_(0, size.argmax(0, keepdim=True), True)
        kept = graph | (largest & ~graph.any(0))
        if layer.every_child:
            strongest = torch.zeros_like(graph).scatter_(1, size.argmax(1, keepdim=True), True)
            kept = kept | (strongest & ~kept.any(1, keepdim=True))
        edges = layer.by_item(kept)
        new[layer.loadings] = new[layer.loadings] * layer.by_child(edges)
        graphs.append(edges.int().tolist())
    return model.restricted(graphs), new
