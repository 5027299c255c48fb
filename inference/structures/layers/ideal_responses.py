r"""Starting latents where the items' attributes are known: each row takes the configuration whose
ideal answers are nearest.

The ideal answer of item j at configuration a is :math:`I_{ja} = \prod_{k \in \mathrm{pa}(j)} a_k`
for conjunctive items, :math:`1 - \prod_k (1 - a_k)` for disjunctive ones and the share of its
attributes that are present for the others; answers are put on [0, 1] and compared by squared
distance, which for 0/1 answers is the number of items that disagree.

Source: C.-Y. Chiu and J. A. Douglas (2013), doi:10.1007/s00357-013-9132-9. Answers other than 0/1,
missing ones and random ties are ours.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ppl_models.descriptions.layers import GeneralizedLinearLayer, LayerPart
from ppl_models.parts.categorical import Ordinal
from ppl_models.parts.distributions import binary_configurations

MAX_LATENTS = 14
EDGES = (0.05, 0.95)  # quantiles of an item that count as none and all of its attributes
CHUNK_ELEMENTS = 2**22


def ideal_latents(
    layer: GeneralizedLinearLayer,
    data: Tensor,
    generator: torch.Generator,
    profiles: Tensor | None = None,
) -> Tensor | None:
    """0/1 latents (N, K) of the rows; None for a layer without a graph, with too many latents to
    list, or whose answers are all categories without an order.

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
    ideal = (
        configurations @ (edges.to(data) / edges.sum(-1, keepdim=True).clamp(min=1).to(data)).mT
    )  # (C, J)
    if (
        layer.terms is not None and layer.graph is not None
    ):  # items with one product have it as their answer
        single = (layer.graph.sum(-1) == 1).to(data.device)
        ideal = torch.where(single, layer.features(configurations) @ layer.graph.to(data).mT, ideal)
    statistic = torch.cat(
        [_in_order(part, data[:, part.items]) for part in layer.parts()], 1
    )  # (N, children)
    observed = ~torch.isnan(statistic)
    if not bool(observed.any()):
        return None
    seen = observed.to(data.dtype)
    low, high = (torch.nanquantile(statistic, q, dim=0) for q in EDGES)
    least, most = (
        statistic.nan_to_num(nan=torch.inf).amin(0),
        statistic.nan_to_num(nan=-torch.inf).amax(0),
    )
    low, high = (torch.where(high > low, edge, end) for edge, end in ((low, least), (high, most)))
    answers = (
        ((statistic - low) / (high - low).clamp(min=1e-12)).clamp(0, 1).masked_fill(~observed, 0.0)
    )
    latents = data.new_empty(len(data), layer.num_parents)
    rows = max(1, CHUNK_ELEMENTS // len(configurations))
    for start in range(0, len(data), rows):
        part = slice(start, start + rows)
        distance = (
            seen[part] @ ideal.square().mT - 2 * answers[part] @ ideal.mT
        )  # up to the row's own square
        ties = torch.rand(
            distance.shape, generator=generator, dtype=torch.float64, device=generator.device
        ).to(distance)
        latents[part] = configurations[(distance + 1e-6 * ties).argmin(-1)]
    return latents


def _in_order(part: LayerPart, x: Tensor) -> Tensor:
    """Numbers that go up with the answers, (N, children), NaN where missing and for categories
    without an order.
    """
    if not part.tabled:
        return part.family.statistic(x)
    size = part.rows.stop - part.rows.start
    return x if isinstance(part.family, Ordinal) else x.new_full((len(x), size), torch.nan)
