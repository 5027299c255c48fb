r"""Recovery of a known truth: graph accuracy, F1, error of the parameters.

Align first (:func:`inference.alignment.align`); every function here compares entry by entry.

Source of the definitions: S. Lee and Y. Gu (2025), arXiv:2501.01414, section 5 and supplement S.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.surface import promised as _promised

if TYPE_CHECKING:
    from ppl_models.descriptions.layers import GeneralizedLinearLayer

__all__ = ["graph_accuracy", "match_components", "mean_squared_error", "rmse"]
__dir__ = _promised(__name__)

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

    An estimated edge is :math:`|\hat W| \ge` threshold (and not zero), a true one :math:`W \ne 0`.
    A sparse truth gives high values to an empty estimate: see :func:`empty_graph_accuracy`. Pass
    one layer for its accuracy alone.

    Args:
        params: the estimate, aligned, by site name.
        truth: the truth, by site name.
        layers: the layers whose loadings count.
        threshold: smallest absolute loading that is an edge, usually the penalty's.

    Raises:
        ValueError: if loadings are missing or shapes differ (naming the site), or the threshold is
            negative.
    """
    estimated, true = _graphs(params, truth, layers, threshold)
    return float((estimated == true).to(torch.float64).mean())


def empty_graph_accuracy(
    truth: Mapping[str, Tensor], layers: Sequence[GeneralizedLinearLayer]
) -> float:
    """The accuracy of an estimate without any edge: the share of true loadings that are zero.

    Print it beside any other.

    Raises:
        ValueError: if loadings are missing.
    """
    empty = {layer.loadings: torch.zeros_like(_loadings(truth, layer, "truth")) for layer in layers}
    return graph_accuracy(empty, truth, layers)


def mean_squared_error(params: Mapping[str, Tensor], truth: Mapping[str, Tensor]) -> float:
    """Return the mean squared error over every entry of every site.

    Zero loadings, intercepts, proportions and dispersions all count, each entry once.

    Args:
        params: the estimate, aligned, by site name.
        truth: the truth; the same sites.

    Raises:
        ValueError: if the sites differ, or a site's shapes do.
    """
    if set(params) != set(truth) or not truth:
        raise ValueError(
            f"mean_squared_error: params must hold the sites {sorted(truth)} of truth, got"
            f" {sorted(params)}"
        )
    total, number = 0.0, 0
    for site, true in truth.items():
        _check_shape(site, params[site], true)
        total += float((params[site] - true).to(torch.float64).square().sum())
        number += true.numel()
    return total / number


def rmse(params: Mapping[str, Tensor], truth: Mapping[str, Tensor]) -> float:
    """Square root of :func:`mean_squared_error`.

    Args:
        params, truth: as of :func:`mean_squared_error`.
    """
    return math.sqrt(mean_squared_error(params, truth))


def trimmed_rmse(mean_squared_errors: Tensor | Sequence[float]) -> TrimmedRMSE:
    """Root mean squared error over replicates, with and without outliers.

    A replicate is an outlier if its mean squared error lies more than 3 scaled median absolute
    deviations (1.4826 MAD) from the median; the rest are averaged, then the root is taken.

    Args:
        mean_squared_errors: one a replicate.

    Raises:
        ValueError: if there is none, or one is negative or not finite.
    """
    errors = torch.as_tensor(mean_squared_errors, dtype=torch.float64)
    if errors.dim() != 1 or len(errors) == 0:
        raise ValueError(
            f"trimmed_rmse: one number a replicate was expected, got shape {tuple(errors.shape)}"
        )
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
            f"params: {site} must have the truth's shape {tuple(truth.shape)}, got"
            f" {tuple(estimate.shape)}"
        )


@shows_briefly
@dataclass(frozen=True, eq=False)
class Match:
    """Estimates paired with truths; pairs in the order of the truths.

    Args:
        estimated, true: indices of the pairs, (P,).
        cosine_error: 1 - cosine of the signatures of each pair; relative_difference: of the mean
            activities, ``|a - b| / b``.
        unmatched_estimates, unmatched_truths: indices left over.
    """

    estimated: np.ndarray
    true: np.ndarray
    cosine_error: np.ndarray
    relative_difference: np.ndarray
    unmatched_estimates: np.ndarray
    unmatched_truths: np.ndarray


def match_components(
    signatures: object,
    truth: object,
    activities: object = None,
    true_activities: object = None,
    weight: float = 0.1,
) -> Match:
    r"""Match components one-to-one by signatures, and by activities where given.

    Minimised is the sum of cosine error + weight tanh(relative average difference).

    Args:
        signatures: (K, J); no zero rows.
        truth: (L, J); no zero rows.
        activities: (N, K), or None to match by signatures alone.
        true_activities: (N, L), likewise.
        weight: of the second term.

    Raises:
        ValueError: for other shapes, zero rows, activities given for one side only, or true
            activities with mean zero.
    """
    a, b = np.asarray(signatures, float), np.asarray(truth, float)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(
            "match_components: signatures (K, J) and truth (L, J) were expected, got shapes"
            f" {a.shape} and {b.shape}"
        )
    lengths = np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)
    for name, length in zip(("signatures", "truth"), lengths, strict=True):
        if not (length > 0).all():
            raise ValueError(
                f"match_components: row {int(np.argmin(length > 0))} of {name} is zero"
            )
    if (activities is None) != (true_activities is None):
        raise ValueError("match_components: give activities and true_activities, or neither")
    error = np.maximum(0.0, 1 - (a @ b.T) / np.outer(*lengths))  # (K, L)
    difference = np.full(error.shape, np.nan)
    cost = error
    if activities is not None:
        z, z_true = np.asarray(activities, float), np.asarray(true_activities, float)
        if z.ndim != 2 or z_true.ndim != 2 or z.shape[1] != len(a) or z_true.shape[1] != len(b):
            raise ValueError(
                f"match_components: activities (N, {len(a)}) and true_activities (N, {len(b)}) were"
                f" expected, got {z.shape} and {z_true.shape}"
            )
        means, true_means = z.mean(0), z_true.mean(0)
        if not (true_means != 0).all():
            raise ValueError("match_components: a component of true_activities has mean zero")
        difference = np.abs(means[:, None] - true_means) / np.abs(true_means)
        cost = error + weight * np.tanh(difference)
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(cost)
    order = np.argsort(columns)
    rows, columns = rows[order], columns[order]
    rest = np.setdiff1d(np.arange(len(a)), rows), np.setdiff1d(np.arange(len(b)), columns)
    return Match(rows, columns, error[rows, columns], difference[rows, columns], *rest)


def soft_adjusted_rand_index(memberships: object, truth: object) -> float:
    """Return the adjusted Rand index of two soft partitions (Flynt, Dean and Nugent 2019).

    The ordinary index on one-hot rows.

    A soft partition does not reach 1 with itself: report ``soft_adjusted_rand_index(truth, truth)``
    as the ceiling.

    Args:
        memberships: (N, K), not negative; rows are normalised.
        truth: (N, L), likewise.

    Raises:
        ValueError: for other shapes, negative entries, or a zero row.
    """
    parts = []
    for name, value in (("memberships", memberships), ("truth", truth)):
        u = np.asarray(value, float)
        if u.ndim != 2 or not (u >= 0).all() or not (u.sum(1) > 0).all():
            raise ValueError(
                f"soft_adjusted_rand_index: {name} must be (N, K), not negative, without zero rows"
            )
        parts.append(u / u.sum(1, keepdims=True))
    u, v = parts
    if len(u) != len(v):
        raise ValueError(
            f"soft_adjusted_rand_index: the same rows were expected, got {len(u)} and {len(v)}"
        )
    table = u.T @ v
    n, squares = len(u), (table**2).sum()
    rows, columns = (table.sum(1) ** 2).sum(), (table.sum(0) ** 2).sum()
    a, b, c = (squares - n) / 2, (rows - squares) / 2, (columns - squares) / 2
    d = (squares + n**2 - rows - columns) / 2
    total = a + b + c + d
    expected = (a + b) * (a + c) + (c + d) * (b + d)
    if total**2 == expected:
        return 1.0
    return float((total * (a + d) - expected) / (total**2 - expected))


def f_measure(labels: object, truth: object, unlabelled: int | None = None) -> float:
    """Return the F-measure: the best over clusters, averaged over true classes by size.

    Args:
        labels: cluster of each row, (N,) integers.
        truth: class of each row, (N,) integers.
        unlabelled: a value of ``truth`` whose rows are dropped.

    Raises:
        ValueError: for unequal lengths, or no labelled row.
    """
    assigned, true = np.asarray(labels), np.asarray(truth)
    if assigned.shape != true.shape or assigned.ndim != 1:
        raise ValueError(
            f"f_measure: two vectors of one length were expected, got shapes {assigned.shape} and"
            f" {true.shape}"
        )
    if unlabelled is not None:
        assigned, true = (
            assigned[true != unlabelled],
            true[true != unlabelled],
        )
    if not len(true):
        raise ValueError("f_measure: no labelled row")
    clusters, classes = np.unique(assigned), np.unique(true)
    both = np.array([[((assigned == k) & (true == c)).sum() for k in clusters] for c in classes])
    sizes = both.sum(1)
    score = 2 * both / (sizes[:, None] + both.sum(0))
    return float((score.max(1) * sizes).sum() / sizes.sum())
