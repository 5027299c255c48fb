r"""Graphs read off loadings, :math:`\hat G_d = 1[|\hat W_d| \ge \tau]`, and models on them.

The law of an item of C categories without an order changes with a latent as soon as one of its C -
1 loadings differs from zero: there the edge is that of the item, and all of its predictors have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from inference.programs.program import Params
from ppl_models.descriptions.layers import GeneralizedLinearLayer


def estimated_graphs(
    layers: Sequence[GeneralizedLinearLayer],
    params: Mapping[str, Tensor],
    threshold: float | None = None,
) -> tuple[Tensor, ...]:
    """Graph of each layer, bool (num_children, num_features), bottom-up.

    All predictors of an item have the same.

    Args:
        layers: bottom-up.
        params: by site name, without leading dims.
        threshold: the least size of a loading that counts; the penalty's own if None, and without a
            penalty every loading that is not zero.
    """
    out = []
    for layer in layers:
        size = params[layer.loadings].abs()
        least = (
            threshold
            if threshold is not None
            else 0.0
            if layer.penalty is None
            else float(layer.penalty.threshold)
        )
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
