r"""How well a known truth was recovered: graph accuracy, F1, error of the parameters.

Align first (:func:`inference.alignment.align`); every function here compares entry by entry.

Source of the definitions: S. Lee and Y. Gu (2025), arXiv:2501.01414, section 5 and supplement S.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ppl_models.descriptions.layers import GeneralizedLinearLayer

__all__ = [
    "TrimmedRMSE",
    "empty_graph_accuracy",
    "graph_accuracy",
    "graph_f1",
    "mean_squared_error",
    "rmse",
    "support_bias",
    "trimmed_rmse",
]

MAD_SCALE = 1.4826  # makes the median absolute deviation a standard deviation under normality
MAD_CUT = 3.0


@dataclass(frozen=True)
class TrimmedRMSE:
    """Root mean squared error over replicates.

    Args:
        trimmed: without outlying replicates.
        untrimmed: over all of them.
        num_dropped: how many replicates were outliers.
    """

    trimmed: float
    untrimmed: float
    num_dropped: int


def graph_accuracy(
    params: Mapping[str, Tensor],
    truth: Mapping[str, Tensor],
    layers: Sequence[GeneralizedLinearLayer],
    threshold: float = 0.0,
) -> float:
    r"""Share of entries of the graphs that are right, all layers pooled.

    An estimated edge is :math:`|\hat W| \ge` threshold (and not zero), a true one :math:`W \ne 0`. A sparse truth gives
    high values to an empty estimate: see :func:`empty_graph_accuracy`. Pass one layer for its accuracy alone.

    Args:
        params: the estimate, aligned, by site name.
        truth: the truth, by site name.
        layers: the layers whose loadings count.
        threshold: smallest absolute loading that is an edge, usually the penalty's.

    Raises:
        ValueError: if loadings are missing or shapes differ (naming the site), or the threshold is negative.
    """
    estimated, true = _graphs(params, truth, layers, threshold)
    return float((estimated == true).to(torch.float64).mean())


def graph_f1(
    params: Mapping[str, Tensor],
    truth: Mapping[str, Tensor],
    layers: Sequence[GeneralizedLinearLayer],
    threshold: float = 0.0,
) -> float:
    """Harmonic mean of precision and recall of the edges, all layers pooled; 1 if neither graph has an edge.

    Arguments and errors as :func:`graph_accuracy`.
    """
    estimated, true = _graphs(params, truth, layers, threshold)
    both = int(estimated.sum()) + int(true.sum())
    return 2 * int((estimated & true).sum()) / both if both else 1.0


def empty_graph_accuracy(truth: Mapping[str, Tensor], layers: Sequence[GeneralizedLinearLayer]) -> float:
    """The accuracy of an estimate without any edge: the share of true loadings that are zero. Print it beside any other.

    Raises:
        ValueError: if loadings are missing.
    """
    empty = {layer.loadings: torch.zeros_like(_loadings(truth, layer, "truth")) for layer in layers}
    return graph_accuracy(empty, truth, layers)


def support_bias(
    params: Mapping[str, Tensor], truth: Mapping[str, Tensor], layers: Sequence[GeneralizedLinearLayer]
) -> float:
    r"""Mean of :math:`\mathrm{sign}(W)(\hat W - W)` over the true edges; negative where a penalty shrinks.

    Raises:
        ValueError: if loadings are missing, shapes differ, or the truth has no edge.
    """
    _, edges = _graphs(params, truth, layers, 0.0)
    if not edges.any():
        raise ValueError("support_bias: truth must have an edge, got only zero loadings")
    estimate = torch.cat([params[layer.loadings].reshape(-1) for layer in layers])[edges]
    true = torch.cat([truth[layer.loadings].reshape(-1) for layer in layers])[edges]
    return float((true.sign() * (estimate - true)).mean())


def mean_squared_error(params: Mapping[str, Tensor], truth: Mapping[str, Tensor]) -> float:
    """Mean squared error over every entry of every site: the sum of squares over the number of parameters.

    Zero loadings, intercepts, proportions and dispersions all count, each entry once.

    Args:
        params: the estimate, aligned, by site name.
        truth: the truth; the same sites.

    Raises:
        ValueError: if the sites differ, or a site's shapes do.
    """
    if set(params) != set(truth) or not truth:
        raise ValueError(
            f"mean_squared_error: params must hold the sites {sorted(truth)} of truth, got {sorted(params)}"
        )
    total, number = 0.0, 0
    for site, true in truth.items():
        _check_shape(site, params[site], true)
        total += float((params[site] - true).to(torch.float64).square().sum())
        number += true.numel()
    return total / number


def rmse(params: Mapping[str, Tensor], truth: Mapping[str, Tensor]) -> float:
    """Square root of :func:`mean_squared_error`."""
    return math.sqrt(mean_squared_error(params, truth))


def trimmed_rmse(mean_squared_errors: Tensor | Sequence[float]) -> TrimmedRMSE:
    """Root mean squared error over replicates, with and without outliers.

    A replicate is an outlier if its mean squared error lies more than 3 scaled median absolute deviations
    (1.4826 MAD) from the median; the rest are averaged, then the root is taken.

    Args:
        mean_squared_errors: one a replicate.

    Raises:
        ValueError: if there is none, or one is negative or not finite.
    """
    errors = torch.as_tensor(mean_squared_errors, dtype=torch.float64)
    if errors.dim() != 1 or len(errors) == 0:
        raise ValueError(f"trimmed_rmse: one number a replicate was expected, got shape {tuple(errors.shape)}")
    if not (torch.isfinite(errors) & (errors >= 0)).all():
        raise ValueError("trimmed_rmse: mean_squared_errors must be finite and not negative")
    center = errors.quantile(0.5)
    distance = (errors - center).abs()
    kept = errors[distance <= MAD_CUT * MAD_SCALE * distance.quantile(0.5)]
    return TrimmedRMSE(math.sqrt(kept.mean()), math.sqrt(errors.mean()), len(errors) - len(kept))


def _graphs(
    params: Mapping[str, Tensor],
    truth: Mapping[str, Tensor],
    layers: Sequence[GeneralizedLinearLayer],
    threshold: float,
) -> tuple[Tensor, Tensor]:
    """Estimated and true edges of all layers, each a flat bool vector."""
    if not threshold >= 0:
        raise ValueError(f"threshold must not be negative, got {threshold!r}")
    if not layers:
        raise ValueError("layers must hold at least one layer, got none")
    estimated, true = [], []
    for layer in layers:
        left, right = _loadings(params, layer, "params"), _loadings(truth, layer, "truth")
        _check_shape(layer.loadings, left, right)
        estimated.append(((left.abs() >= threshold) & (left != 0)).reshape(-1))
        true.append((right != 0).reshape(-1))
    return torch.cat(estimated), torch.cat(true)


def _loadings(params: Mapping[str, Tensor], layer: GeneralizedLinearLayer, argument: str) -> Tensor:
    if layer.loadings not in params:
        raise ValueError(f"{argument} must hold the site {layer.loadings!r}, got {sorted(params)}")
    return params[layer.loadings]


def _check_shape(site: str, estimate: Tensor, truth: Tensor) -> None:
    if estimate.shape != truth.shape:
        raise ValueError(
            f"params: {site} must have the truth's shape {tuple(truth.shape)}, got {tuple(estimate.shape)}"
        )
