r"""Starts of binary layers: double SVD and varimax, ideal responses, random, split latents.

The method of Lee and Gu (2025, arXiv:2501.01414, Algorithms 2 and 4): denoise the data by a
low-rank approximation, map it through the inverse link, take the leading right singular vectors,
rotate them to simple structure, threshold them to a graph, and read each latent off the sign of its
factor score. No true parameter enters anywhere. Two departures: intercepts keep the base rate, and
the layer's coefficients are the maximum-likelihood regression of the children on the estimated
latents instead of a least-squares fit divided by a constant.

Where the items' attributes are known, each row takes the configuration whose ideal answers are
nearest. The ideal answer of item j at configuration a is :math:`I_{ja} = \prod_{k \in
\mathrm{pa}(j)} a_k` for conjunctive items, :math:`1 - \prod_k (1 - a_k)` for disjunctive ones and
the share of its attributes that are present for the others; answers are put on [0, 1] and compared
by squared distance, which for 0/1 answers is the number of items that disagree.

Source: C.-Y. Chiu and J. A. Douglas (2013), doi:10.1007/s00357-013-9132-9. Answers other than 0/1,
missing ones and random ties are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inference.programs.global_state import isolated
from inference.structures.layers.glm import Params, drawn_statistics, maximise_layer
from ppl_models.descriptions.layers import GeneralizedLinearLayer, LayerPart, Root, RootLayer
from ppl_models.parts.categorical import Categorical, Ordinal
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.responses import Bernoulli, ResponseFamily, filled

MAX_LATENTS = 14
EDGES = (0.05, 0.95)  # quantiles of an item that count as none and all of its attributes
CHUNK_ELEMENTS = 2**22


def ideal_latents(
    layer: GeneralizedLinearLayer,
    data: Tensor,
    generator: torch.Generator,
    profiles: Tensor | None = None,
) -> Tensor | None:
    """Binary latents (N, K) of the rows by the nearest ideal answers, or None.

    None for a layer without a graph, with too many latents to list, or whose answers are all
    categories without an order.

    Args:
        layer: the bottom layer's description.
        data: (N, J), NaN where missing.
        generator: decides between configurations that are equally near.
        profiles: the configurations to choose from, (C, K); all if None.
    """
    edges = layer.edges
    if edges is None or (profiles is None and layer.num_parents > MAX_LATENTS):
        return None
    if profiles is None:
        configurations = binary_configurations(layer.num_parents, data.dtype, data.device)
    else:
        configurations = profiles.to(data)
    # (C, J)
    ideal = configurations @ (edges.to(data) / edges.sum(-1, keepdim=True).clamp(min=1).to(data)).mT
    # items with one product have it as their answer
    if layer.terms is not None and layer.graph is not None:
        single = (layer.graph.sum(-1) == 1).to(data.device)
        ideal = torch.where(single, layer.features(configurations) @ layer.graph.to(data).mT, ideal)
    # (N, children)
    statistic = torch.cat([_in_order(part, data[:, part.items]) for part in layer.parts()], 1)
    observed = ~torch.isnan(statistic)
    if not bool(observed.any()):
        return None
    seen = observed.to(data.dtype)
    least = statistic.nan_to_num(nan=torch.inf).amin(0)
    most = statistic.nan_to_num(nan=-torch.inf).amax(0)
    low, high = least, most
    if bool(((statistic > least) & (statistic < most)).any()):  # else there are two answers
        low, high = (torch.nanquantile(statistic, q, dim=0) for q in EDGES)
        low, high = (
            torch.where(high > low, edge, end) for edge, end in ((low, least), (high, most))
        )
    answers = (
        ((statistic - low) / (high - low).clamp(min=1e-12)).clamp(0, 1).masked_fill(~observed, 0.0)
    )
    latents = data.new_empty(len(data), layer.num_parents)
    rows = max(1, CHUNK_ELEMENTS // len(configurations))
    for start in range(0, len(data), rows):
        part = slice(start, start + rows)
        # up to the row's own square
        distance = seen[part] @ ideal.square().mT - 2 * answers[part] @ ideal.mT
        ties = torch.rand(
            distance.shape, generator=generator, dtype=torch.float64, device=generator.device
        ).to(distance)
        latents[part] = configurations[(distance + 1e-6 * ties).argmin(-1)]
    return latents


def _in_order(part: LayerPart, x: Tensor) -> Tensor:
    """Scores that rise with the answers, (N, children), NaN where missing or unordered."""
    if not part.tabled:
        return part.family.statistic(x)
    size = part.rows.stop - part.rows.start
    return x if isinstance(part.family, Ordinal) else x.new_full((len(x), size), torch.nan)


# clip of fitted means before the inverse link: a smaller one turns noise near 0 into outliers
EPSILON = 1e-2
# of the bottom layer and of those above, whose children are estimated bits
EPSILONS = (EPSILON, 1e-3)
START_BOUND = 5.0  # coefficients of a start stay this small: a separated regression would run away
CUTS = (2.5, 3.5)  # of the bottom layer and of those above; see layer_factors
FLIP_SHARE = 0.1
VARIMAX_SWEEPS, VARIMAX_GAIN = 1000, 1.5e-8  # at most, and relative gain of the last
CLEAR_STEP = 0.1  # of a singular value above the next: a gap whatever follows
CHUNK_ROWS = 2**14  # of a table, where it is gone through without a copy
NUM_BEHIND = 5  # ratios of singular values behind the latents that a gap is compared with


def varimax(loadings: Tensor) -> Tensor:
    """Varimax rotation, Kaiser normalised (1958, doi:10.1007/BF02289233), (J, K) to (J, K)."""
    if loadings.shape[1] < 2:
        return loadings
    length = loadings.norm(dim=1, keepdim=True).clamp(min=1e-12)
    rows = loadings / length
    rotation = torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
    total = 0.0
    for _ in range(VARIMAX_SWEEPS):
        rotated = rows @ rotation
        target = rotated**3 - rotated * rotated.square().mean(0)
        u, s, vh = torch.linalg.svd(rows.mT @ target)
        rotation = u @ vh
        if float(s.sum()) < total * (1 + VARIMAX_GAIN):
            break
        total = float(s.sum())
    return rows @ rotation * length


@dataclass(frozen=True)
class LayerFactors:
    """Factor estimates of one layer from its children.

    Args:
        latents: estimated 0/1 latents, (N, K).
        loadings: rotated and thresholded directions, (J, K).
        singular_values: of the centred, linearised data, descending; their ratios tell the number
            of latents.
    """

    latents: Tensor
    loadings: Tensor
    singular_values: Tensor


def _leading_svd(x: Tensor, rank: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Leading ``rank`` singular triplets; randomised for much larger matrices."""
    rank = min(rank, *x.shape)
    if min(x.shape) <= max(200, 4 * rank):
        if x.shape[0] > 4 * x.shape[1]:  # the small Gram matrix holds all that is asked
            values, vectors = torch.linalg.eigh(x.mT @ x)
            s = values.flip(0)[:rank].clamp(min=0).sqrt()
            v = vectors.flip(1)[:, :rank]
            return (x @ v).div_(s.clamp(min=1e-12)), s, v
        u, s, vh = torch.linalg.svd(x, full_matrices=False)
        return u[:, :rank], s[:rank], vh[:rank].mT
    with isolated(seed):
        u, s, v = torch.svd_lowrank(x, q=min(rank + 10, *x.shape), niter=4)
    return u[:, :rank], s[:rank], v[:, :rank]


def _complete(x: Tensor, rank: int, seed: int) -> Tensor:
    """Impute missing entries by iterated low-rank approximation from column means."""
    missing = torch.isnan(x)
    if not missing.any():
        return x
    filled = torch.where(missing, torch.nanmean(x, 0, keepdim=True), x)
    for _ in range(20):
        u, s, v = _leading_svd(filled, rank, seed)
        changes = []
        for rows, own, gaps in zip(
            filled.split(CHUNK_ROWS), u.split(CHUNK_ROWS), missing.split(CHUNK_ROWS), strict=True
        ):  # in place, for the table may be large
            update = torch.where(gaps, (own * s) @ v.mT, rows)
            changes.append((update - rows).abs().max())
            rows.copy_(update)
        del u
        if torch.stack(changes).max() < 1e-4:
            break
    return filled


def linearised(
    x: Tensor, family: ResponseFamily, rank: int, seed: int, epsilon: float = EPSILON
) -> Tensor:
    """Linearised data: low-rank approximation, then the inverse link."""
    blocks = [
        (part, _scores(part, x[:, columns])) for part, columns, _ in family.blocks(x.shape[1])
    ]
    widths = [own.shape[1] for _, own in blocks]
    statistic = _complete(_beside([own for _, own in blocks]), rank, seed)
    pieces = []
    for (part, _), block in zip(blocks, statistic.split(widths, 1), strict=True):
        if not (part.is_linear or isinstance(part, Categorical)):
            s, v = _leading_svd(
                block, max(rank, 50 if min(block.shape) > 50 else min(block.shape)), seed
            )[1:]
            kept = v[:, : max(rank, int((s > 1.01 * math.sqrt(len(block))).sum()))]
            linear = torch.empty_like(block)
            # few at a time, for the table may be large
            for rows, own in zip(block.split(CHUNK_ROWS), linear.split(CHUNK_ROWS), strict=True):
                own.copy_(part.linearise(rows @ kept @ kept.mT, epsilon))
            block = linear
        pieces.append(block)
    if len(pieces) > 1:  # one residual scale for all blocks
        pieces = [piece / _residual_scale(piece, rank, seed) for piece in pieces]
    return _beside(pieces)


def _scores(family: ResponseFamily, x: Tensor) -> Tensor:
    """Statistics of the items; of categories normal scores or indicators."""
    return family.scores(x) if isinstance(family, Categorical) else family.statistic(x)


def _beside(pieces: list[Tensor]) -> Tensor:
    """Concatenate columns of several blocks; a single one as it is."""
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)


def _residual_scale(block: Tensor, rank: int, seed: int) -> Tensor:
    centred = block - block.mean(0)
    u, s, v = _leading_svd(centred, min(rank, max(1, min(block.shape) - 1)), seed)
    return (centred - (u * s) @ v.mT).square().mean().sqrt().clamp(min=1e-6)


def layer_factors(
    x: Tensor,
    num_latents: int,
    family: ResponseFamily,
    cut: float,
    seed: int = 0,
    rank: int | None = None,
    epsilon: float = EPSILON,
) -> LayerFactors:
    """Estimate one binary layer from the data below it.

    Args:
        x: (N, J), NaN where missing.
        num_latents: K.
        family: response family of the columns.
        cut: rotated directions below ``1 / (cut * sqrt(J))`` in size count as zero.
        seed: for the randomised decomposition of large matrices.
        rank: of the first approximation at least this; K + 1 if None.
        epsilon: clip of fitted means before the inverse link.
    """
    predictor = linearised(x, family, rank or num_latents + 1, seed, epsilon)
    centred = predictor - predictor.mean(0)
    del predictor
    _, singular_values, v = _leading_svd(centred, max(num_latents, rank or 0), seed)
    directions = varimax(v[:, :num_latents])
    if directions.shape[1] < num_latents:
        padding = directions.new_zeros(len(directions), num_latents - directions.shape[1])
        directions = torch.cat([directions, padding], 1)
    directions = directions.masked_fill(
        directions.abs() < 1 / (cut * math.sqrt(len(directions))), 0.0
    )
    directions = directions * torch.where(directions.sum(0) < 0, -1.0, 1.0).to(directions.dtype)
    scores = centred @ directions @ torch.linalg.pinv(directions.mT @ directions)
    return LayerFactors((scores > 0).to(x.dtype), directions, singular_values)


def centred_values(x: Tensor, num_values: int, seed: int = 0) -> Tensor:
    """Leading singular values of centred bits (N, J), NaN where missing.

    Not linearised: the clipped log-odds of a low-rank approximation of bits hold factors of their
    own, and with an infinity of rows they stay. The bits' own covariance has the latents' factors,
    others from the curvature of the link far below.
    """
    complete = _complete(x, num_values, seed)
    return _leading_svd(complete - complete.mean(0), num_values, seed)[1]


def missing_gap(values: Tensor, num_latents: int) -> str | None:
    """Reason why singular values show no gap after ``num_latents``, or None.

    A gap after K stands out from the steps behind it, which are noise: there is none where
    :math:`s_K / s_{K+1} - 1` is below .1 and at most three times the median of the same figure for
    the next five.

    Args:
        values: falling, (V,).
        num_latents: K.
    """
    ratios = (values[:-1] / values[1:].clamp(min=1e-12 * float(values[0]) + 1e-300)).tolist()
    behind = sorted(ratios[num_latents : num_latents + NUM_BEHIND])
    if len(behind) < NUM_BEHIND:
        return None
    step = ratios[num_latents - 1] - 1
    if step >= CLEAR_STEP or step > 3 * (behind[len(behind) // 2] - 1):
        return None
    largest = max(range(len(ratios)), key=ratios.__getitem__)
    shown = ", ".join(
        f"{value:.3g}" for value in values[max(0, num_latents - 2) : num_latents + 3].tolist()
    )
    return (
        f"the singular values of the data show no gap after {num_latents} latents (numbers"
        f" {max(1, num_latents - 1)} to {num_latents + 3}: {shown}); the largest step is after"
        f" {largest + 1}"
    )


def leading_values(
    layer: GeneralizedLinearLayer, data: Tensor, num_values: int, rank: int, seed: int
) -> Tensor:
    """Leading singular values of a layer's children: of bits, or of linearised items.

    ``rank``: of the approximation that is linearised, at least.
    """
    if isinstance(layer.response, Bernoulli):
        return centred_values(data, num_values, seed)
    predictor = linearised(data, layer.response, rank, seed)
    return _leading_svd(predictor - predictor.mean(0), num_values, seed)[1]


def regression(layer: GeneralizedLinearLayer, x: Tensor, latents: Tensor) -> Params:
    """Maximum-likelihood coefficients of the children on given 0/1 latents, with R = 1."""
    family, parts = layer.response, layer.parts()
    complete, mask = filled(family, x)
    statistic = family.statistic(complete)
    if mask is not None:
        statistic = statistic.mul_(family.spread(mask))
    stats = drawn_statistics(layer, statistic.mT, None if mask is None else mask.mT, latents.mT)
    if "without penalty" not in layer.memory:
        layer.memory["without penalty"] = _without_penalty(layer)
    plain = layer.memory["without penalty"]
    start: Params = {layer.loadings: x.new_zeros(1, layer.num_children, layer.num_features)}
    if mask is None:
        seen = statistic.new_full(statistic.shape[1:], len(x), dtype=torch.long)
    else:
        seen = family.spread(mask).sum(0)
    intercepts, thresholds = _levels(parts, statistic, seen)
    limit = plain.bounds(intercepts)  # no step leads back into the interval
    start[layer.intercepts] = intercepts.clamp(-limit, limit).unsqueeze(0)
    if layer.thresholds:
        start[layer.thresholds] = thresholds.unsqueeze(0)
    if layer.dispersion:
        start[layer.dispersion] = x.new_ones(1, family.num_dispersed(layer.num_items))
    return maximise_layer(plain, stats, start, num_steps=5)


def _levels(parts: list[LayerPart], statistic: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Intercepts and thresholds of items that depend on nothing, with half a row more.

    ``parts``: of the layer; ``statistic``: (N, P), 0 where missing; ``weight``: rows seen, (P,).
    """
    other = statistic.sum() / weight.sum()
    intercepts, thresholds = [], []
    for part in parts:
        own, family, rows = part.statistics, part.family, weight[part.statistics]
        if isinstance(family, Categorical):
            segments = family.segments(part.num_items, statistic.device)
            even = segments.spread(
                1.0 / segments.total(torch.ones_like(other).expand(segments.num_entries))
            )
            level, gaps = family.of_chances((statistic[:, own].sum(0) + 0.5 * even) / (rows + 0.5))
            thresholds.append(gaps)
        else:
            level = family.linearise((statistic[:, own].sum(0) + 0.5 * other) / (rows + 0.5), 1e-3)
        intercepts.append(level)
    return torch.cat(intercepts), torch.cat([*thresholds, statistic.new_zeros(0)])


def _without_penalty(layer: GeneralizedLinearLayer) -> GeneralizedLinearLayer:
    bounds: list[float] = []
    for part in layer.parts():
        own = layer.block_bound(part.rows)
        bounds += [
            own if part.dispersion.stop > part.dispersion.start else min(own, START_BOUND)
        ] * (part.rows.stop - part.rows.start)
    return replace(layer, penalty=None, prior=None, bound=max(bounds), item_bounds=tuple(bounds))


def spectral_start(
    layers: tuple[GeneralizedLinearLayer, ...],
    root: Root,
    data: Tensor,
    num_starts: int = 1,
    seed: int = 0,
) -> Params:
    """Starts for every layer: the spectral one, then copies with a tenth of latents flipped.

    Where children depend on products of known parents, every other start, the first too, takes the
    latents with the nearest ideal answers instead
    (:mod:`inference.structures.layers.spectral`).

    ``layers``, ``root``: the model's description of itself, bottom-up; ``data``: (N, J), NaN where
    missing; ``num_starts``: R; ``seed``: of the flips.

    Returns:
        Parameters (R, ...), by site name.
    """
    generator = torch.Generator().manual_seed(seed)
    starts: list[Params] = []
    bottom: LayerFactors | None = None
    for start in range(num_starts):
        below = data
        params: Params = {}
        for depth, layer in enumerate(layers):
            if depth == 0 and bottom is not None:
                factors = bottom
            else:
                factors = layer_factors(
                    below,
                    layer.num_parents,
                    layer.response,
                    CUTS[depth > 0],
                    seed,
                    epsilon=EPSILONS[depth > 0],
                )
            bottom = bottom or factors
            latents = factors.latents
            if layer.edges is not None:
                latents = _matched_to_graph(factors, layer.edges)
            # half of the starts from the ideal answers
            if layer.terms is not None and start % 2 == 0:
                ideal = ideal_latents(
                    layer, below, generator, root.profiles if layer.parent == root.latent else None
                )
                latents = latents if ideal is None else ideal
            if start:
                flip = (
                    torch.rand(latents.shape, generator=generator, dtype=torch.float64) < FLIP_SHARE
                )
                latents = torch.where(flip.to(latents.device), 1 - latents, latents)
            params |= regression(layer, below, latents)
            below = latents
        starts.append(params | root.start(below))
    return {name: torch.cat([params[name] for params in starts]) for name in starts[0]}


def _matched_to_graph(factors: LayerFactors, graph: Tensor) -> Tensor:
    """Order the estimated latents so that their directions fit the given graph best."""
    from scipy.optimize import linear_sum_assignment

    weights = factors.loadings.abs()
    pattern = graph.to(weights)
    gain = weights.mT @ pattern / pattern.sum(0).sqrt()  # (estimated, given)
    rows, columns = linear_sum_assignment(-gain.cpu().numpy())
    order = torch.empty(len(columns), dtype=torch.long)
    order[torch.as_tensor(columns)] = torch.as_tensor(rows)
    return factors.latents[:, order]


def random_start(
    layers: tuple[GeneralizedLinearLayer, ...],
    root: Root,
    data: Tensor,
    num_starts: int = 1,
    seed: int = 0,
) -> Params:
    """Starts from fair random latents and regressions on them plus noise."""
    generator = torch.Generator().manual_seed(seed)
    starts: list[Params] = []
    for _ in range(num_starts):
        params: Params = {}
        for depth, layer in enumerate(layers):
            if depth == 0:
                base = regression(layer, data, data.new_zeros(len(data), layer.num_parents))
            else:
                base = {layer.intercepts: data.new_zeros(1, layer.num_children)}
            shape = (1, layer.num_children, layer.num_features)
            loadings = 2 * torch.rand(shape, generator=generator, dtype=torch.float64).to(data)
            if layer.graph is not None:
                loadings = loadings * layer.graph.to(data)
            if layer.dispersion:
                for part in layer.parts():
                    if part.dispersion.stop > part.dispersion.start:
                        loadings[:, part.rows] *= (
                            base[layer.dispersion][:, part.dispersion].sqrt().unsqueeze(-1)
                        )
            elif depth == 0:
                loadings = loadings / 2
            limit = layer.bounds(loadings)
            params[layer.loadings] = loadings.clamp(-limit[:, None], limit[:, None])
            params[layer.intercepts] = (base[layer.intercepts] - loadings.sum(-1) / 2).clamp(
                -limit, limit
            )
            params |= {name: base[name] for name in (layer.dispersion, layer.thresholds) if name}
        starts.append(params | root.uniform(data))
    return {name: torch.cat([params[name] for params in starts]) for name in starts[0]}


def split_latent(
    layers: Sequence[GeneralizedLinearLayer], root: Root, smaller: Params, seed: int
) -> Params | None:
    """Parameters with one latent more than ``smaller`` in one layer, (1, ...).

    Latent k with the largest sum of squared loadings becomes two, with the same distribution given
    the layer above. Of each child's loading they take the shares u and 1 - u, u uniform in [0, 1]:
    with equal shares they would stay equal for ever.

    ``layers``, ``root``: of the larger model; ``smaller``: by site name, without leading dims;
    ``seed``: of the shares.

    Returns:
        None where the graph is given, items depend on products, the deepest latents are not
        independent, or not one latent is added.
    """
    if not isinstance(root, RootLayer) or any(
        layer.graph is not None or layer.terms is not None for layer in layers
    ):
        return None
    growth = [layer.num_parents - smaller[layer.loadings].shape[-1] for layer in layers]
    if sorted(growth) != [0] * (len(layers) - 1) + [1]:
        return None
    d = growth.index(1)
    layer, params = layers[d], dict(smaller)
    own = smaller[layer.loadings]  # (children, parents)
    k = int(own.square().sum(0).argmax())
    share = torch.rand(
        len(own), generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(own)
    loadings = torch.cat([own, ((1 - share) * own[:, k]).unsqueeze(-1)], -1)
    loadings[:, k] = share * own[:, k]
    params[layer.loadings] = loadings
    if d + 1 < len(layers):
        above = layers[d + 1]
        for name in (above.loadings, above.intercepts):
            params[name] = torch.cat([smaller[name], smaller[name][k : k + 1]])
    else:
        own_share = smaller[root.proportions]
        params[root.proportions] = torch.cat([own_share, own_share[k : k + 1]])
    return {name: value.unsqueeze(0) for name, value in params.items()}
