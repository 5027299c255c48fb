"""Designs for deep discrete encoders: generically identifiable ones, and any depth.

They continue :mod:`ppl_models.datasets.deep_discrete_encoder`, whose source they share.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from inference.structures.layers.spectral import CUTS, EPSILONS, layer_factors
from ppl_models.datasets.deep_discrete_encoder import (
    CROSS,
    MAIN,
    RATIO,
    layer_of,
    parameters_of,
)
from ppl_models.parts.responses import Bernoulli, Normal, Poisson, ResponseFamily
from ppl_models.parts.validation import check_size

EXTRA = 4.0 / 3.0
# top size -> (number of extra loadings from which the first value holds, that intercept, intercept
# of all other rows)
POISSON_INTERCEPTS = {2: (1, -4.0, -2.0), 6: (3, -10.0, -5.0)}


def generic_design(top_size: int, response: ResponseFamily = Bernoulli()) -> dict[str, Tensor]:
    """The generically identifiable two-layer design B_g, sizes (J, K_1, K_2) = (9 K_2, 3 K_2, K_2).

    Poisson items have other intercepts, low where many loadings could make the mean explode: -4 for
    rows with an extra loading and -2 otherwise (K_2 = 2); -10 for rows with three or more and -5
    otherwise (K_2 = 6).

    Args:
        top_size: K_2, the number of deepest latents; 2 and 6 in the paper.
        response: family of the items.

    Returns:
        Parameters by site name, as :func:`strict_design`.

    Raises:
        ValueError: if top_size is not a positive integer, or is neither 2 nor 6 where there are
            Poisson items.
    """
    check_size("generic_design", "top_size", top_size)
    layers = []
    for k in (RATIO * top_size, top_size):
        band = (
            torch.ones(k, k, dtype=torch.float64).triu(1).tril(-(-k // 3))
        )  # 1 for k < l <= k + ceil(K / 3)
        layers.append(layer_of(MAIN * torch.eye(k, dtype=torch.float64) + EXTRA * band, CROSS))
    loadings, intercepts = layers[0]
    for family, columns, _ in response.blocks(len(intercepts)):
        if isinstance(family, Poisson):
            if top_size not in POISSON_INTERCEPTS:
                raise ValueError(
                    "generic_design: Poisson items are defined for top_size 2 and 6 only, where"
                    f" the published design gives their intercepts; got {top_size}"
                )
            smallest, many, few = POISSON_INTERCEPTS[top_size]
            num_extra = ((loadings > 0) & (loadings < MAIN)).sum(1)
            changed = torch.where(num_extra >= smallest, many, few).to(intercepts.dtype)
            intercepts[columns] = changed[columns]
    return parameters_of(layers, response)


def deep_design(
    num_layers: int, top_size: int = 2, value: float = 4.0, response: ResponseFamily = Normal()
) -> dict[str, Tensor]:
    """A design of any depth: every layer is B_s with loadings v and -v/2, intercepts -v/2, -v and
    -v/2.

    Args:
        num_layers: D; the sizes are top_size times 1, 3, ..., 3^D, so D = 3 gives (54, 18, 6, 2).
        top_size: K_D.
        value: v; 4 in the paper's deeper simulations, 5 in its study of the choice of sizes.
        response: family of the items.

    Returns:
        Parameters by site name, as :func:`strict_design`, with ``loadings_d`` and ``intercepts_d``
        for d = 1, ..., D.

    Raises:
        ValueError: if num_layers or top_size is not a positive integer, or value is not positive.
    """
    check_size("deep_design", "num_layers", num_layers)
    check_size("deep_design", "top_size", top_size)
    if not value > 0:
        raise ValueError(f"deep_design: value must be positive, got {value!r}")
    sizes = [top_size * RATIO**d for d in range(num_layers - 1, -1, -1)]
    intercepts = (-value / 2, -value, -value / 2)
    layers = [
        layer_of(value * torch.eye(k, dtype=torch.float64), -value / 2, intercepts) for k in sizes
    ]
    return parameters_of(layers, response)


def empty_graph_accuracy(params: dict[str, Tensor]) -> float:
    """Share of loadings that are zero, all layers pooled: the graph accuracy of an estimate without
    any edge.

    Print it beside every graph accuracy; for a sparse truth it is high. A single layer's is had by
    passing that layer's loadings alone.

    Args:
        params: parameters by site name; every ``loadings_d`` counts.

    Raises:
        ValueError: if there is no such parameter.
    """
    loadings = [tensor for name, tensor in params.items() if name.startswith("loadings_")]
    if not loadings:
        raise ValueError(
            "empty_graph_accuracy: params holds no loadings_1, loadings_2, ..., got"
            f" {sorted(params)}"
        )
    return sum(int((tensor == 0).sum()) for tensor in loadings) / sum(
        tensor.numel() for tensor in loadings
    )


RAISED = 2.5  # least size of main loadings in the authors' starts


def truth_assisted(
    start: dict[str, Tensor], truth: dict[str, Tensor], num_layers: int = 2
) -> dict[str, Tensor]:
    """A start that has been told the truth, as in the authors' simulations; for replication only.

    Layer by layer from the bottom, latents are put in the order of the true ones (most loadings on
    the rows whose true loadings are positive), and main loadings, those that are largest in the
    truth, are raised to at least 2.5.

    Args:
        start: parameters by site name, without a dimension of restarts; truth: likewise.
        num_layers: D.
    """
    out, last = dict(start), torch.arange(len(start["loadings_1"]))
    for depth in range(1, num_layers + 1):
        site = f"loadings_{depth}"
        own, true = start[site][last], truth[site]
        order = torch.as_tensor(
            linear_sum_assignment(-((true > 0).to(own).mT @ own).numpy())[1]
        )  # of each true latent, ours
        raised = torch.where(true == true.max(), own[:, order].clamp(min=RAISED), own[:, order])
        out[site], out[f"intercepts_{depth}"] = raised, start[f"intercepts_{depth}"][last]
        last = order
    return out | {"proportions": start["proportions"][last]}


FEWEST = 0.1  # counts below it are taken as it, before their logarithms


def published_ratio(items: Tensor, response: ResponseFamily, grid: Sequence[int]) -> int:
    """The number of latents by the spectral ratio, as the published percentages come out.

    The published text denoises, links, and takes singular values. The numbers of its supplement are
    had otherwise: of bits, the singular values of their signs, neither denoised nor centred, read
    one place later for their mean takes up one; of counts, those of the centred logarithms of the
    counts, at least .1, not denoised.

    Args:
        items: (N, J), complete.
        response: Bernoulli or Poisson; grid: numbers compared.
    """
    if isinstance(response, Poisson):
        logs = items.clamp(min=FEWEST).log()
        table, shift = logs - logs.mean(0), 0
    else:
        table, shift = 2 * items - 1, 1
    values = torch.linalg.svdvals(table)
    return max(grid, key=lambda k: float(values[k - 1 + shift] / values[k + shift]))


def published_ratio_above(
    items: Tensor, num_latents: int, response: ResponseFamily, grid: Sequence[int]
) -> int:
    """The number of latents of layer 2 by the spectral ratio of the published method.

    Its bits are the signs of the factor scores of layer 1, and their singular values those of the
    linearised bits.

    Args:
        items: (N, J), complete.
        num_latents: of layer 1.
        response: family of the items; grid: numbers compared.
    """
    below = layer_factors(items, num_latents, response, CUTS[0], epsilon=EPSILONS[0]).latents
    most = max(grid)
    values = layer_factors(
        below, most, Bernoulli(), CUTS[1], rank=most + 1, epsilon=EPSILONS[1]
    ).singular_values
    return max(grid, key=lambda k: float(values[k - 1] / values[k]))
