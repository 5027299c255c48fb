"""A start for one latent more in one layer: the latent with the strongest loadings split in two."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from inference.programs.program import Params
from ppl_models.descriptions.layers import GeneralizedLinearLayer, Root, RootLayer


def split_latent(
    layers: Sequence[GeneralizedLinearLayer], root: Root, smaller: Params, seed: int
) -> Params | None:
    r"""Parameters with one latent more than ``smaller`` in one layer, (1, ...).

    Latent k with the largest sum of squared loadings becomes two, with the same law given the layer
    above. Of each child's loading they take the shares u and 1 - u, u uniform in [0, 1]: with equal
    shares they would stay equal for ever.

    Args:
        layers, root: of the larger model.
        smaller: by site name, without leading dims; seed: of the shares.

    Returns:
        None where the graph is given, items depend on products, the deepest latents are not
        independent, or not one latent is added.
    """
    if not isinstance(root, RootLayer) or any(
        layer.graph is not None or layer.terms is not None for layer in layers
    ):
        return None
    grown = [
        d
        for d, layer in enumerate(layers)
        if smaller[layer.loadings].shape[-1] + 1 == layer.num_parents
    ]
    kept = [
        d
        for d, layer in enumerate(layers)
        if smaller[layer.loadings].shape[-1] == layer.num_parents
    ]
    if len(grown) != 1 or len(grown) + len(kept) != len(layers):
        return None
    d = grown[0]
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
