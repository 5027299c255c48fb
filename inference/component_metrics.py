"""How near estimated components, activities and memberships come to a truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Match", "f_measure", "match_components", "soft_adjusted_rand_index"]


@dataclass(frozen=True, eq=False)
class Match:
    """Estimates paired with truths; pairs in the order of the truths.

    Args:
        estimated, true: indices of the pairs, (P,).
        cosine_error: 1 - cosine of the signatures of each pair; relative_difference: of the mean activities, |a - b| / b.
        unmatched_estimates, unmatched_truths: indices left over.
    """

    estimated: np.ndarray
    true: np.ndarray
    cosine_error: np.ndarray
    relative_difference: np.ndarray
    unmatched_estimates: np.ndarray
    unmatched_truths: np.ndarray


def match_components(
    signatures: object, truth: object, activities: object = None, true_activities: object = None, weight: float = 0.1
) -> Match:
    r"""One-to-one matching that minimises the sum of cosine error + weight tanh(relative average difference).

    Args:
        signatures: (K, J); truth: (L, J); no zero rows.
        activities: (N, K), true_activities: (N, L), or None to match by signatures alone.
        weight: of the second term.

    Raises:
        ValueError: for other shapes, zero rows, activities given for one side only, or true activities with mean zero.
    """
    a, b = np.asarray(signatures, float), np.asarray(truth, float)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(f"match_components: signatures (K, J) and truth (L, J) were expected, got shapes {a.shape} and {b.shape}")
    lengths = np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)
    for name, length in zip(("signatures", "truth"), lengths, strict=True):
        if not (length > 0).all():
            raise ValueError(f"match_components: row {int(np.argmin(length > 0))} of {name} is zero")
    if (activities is None) != (true_activities is None):
        raise ValueError("match_components: give activities and true_activities, or neither")
    error = np.maximum(0.0, 1 - (a @ b.T) / np.outer(*lengths))  # (K, L)
    difference = np.full(error.shape, np.nan)
    cost = error
    if activities is not None:
        z, z_true = np.asarray(activities, float), np.asarray(true_activities, float)
        if z.ndim != 2 or z_true.ndim != 2 or z.shape[1] != len(a) or z_true.shape[1] != len(b):
            raise ValueError(
                f"match_components: activities (N, {len(a)}) and true_activities (N, {len(b)}) were expected, got {z.shape} and "
                f"{z_true.shape}"
            )
        own, other = z.mean(0), z_true.mean(0)
        if not (other != 0).all():
            raise ValueError("match_components: a component of true_activities has mean zero")
        difference = np.abs(own[:, None] - other) / np.abs(other)
        cost = error + weight * np.tanh(difference)
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(cost)
    order = np.argsort(columns)
    rows, columns = rows[order], columns[order]
    rest = np.setdiff1d(np.arange(len(a)), rows), np.setdiff1d(np.arange(len(b)), columns)
    return Match(rows, columns, error[rows, columns], difference[rows, columns], *rest)


def soft_adjusted_rand_index(memberships: object, truth: object) -> float:
    """Agreement of two soft partitions (Flynt, Dean and Nugent 2019); the ordinary adjusted Rand index on one-hot rows.

    A soft partition does not reach 1 with itself: report ``soft_adjusted_rand_index(truth, truth)`` as the ceiling.

    Args:
        memberships: (N, K); truth: (N, L); not negative, rows are normalised.

    Raises:
        ValueError: for other shapes, negative entries, or a zero row.
    """
    parts = []
    for name, value in (("memberships", memberships), ("truth", truth)):
        u = np.asarray(value, float)
        if u.ndim != 2 or not (u >= 0).all() or not (u.sum(1) > 0).all():
            raise ValueError(f"soft_adjusted_rand_index: {name} must be (N, K), not negative, without zero rows")
        parts.append(u / u.sum(1, keepdims=True))
    u, v = parts
    if len(u) != len(v):
        raise ValueError(f"soft_adjusted_rand_index: the same rows were expected, got {len(u)} and {len(v)}")
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
    """For each true class the best F over clusters, averaged with the classes' sizes as weights.

    Args:
        labels, truth: (N,) integers; unlabelled: a value of ``truth`` whose rows are dropped.

    Raises:
        ValueError: for unequal lengths, or no labelled row.
    """
    own, real = np.asarray(labels), np.asarray(truth)
    if own.shape != real.shape or own.ndim != 1:
        raise ValueError(f"f_measure: two vectors of one length were expected, got shapes {own.shape} and {real.shape}")
    if unlabelled is not None:
        own, real = own[real != unlabelled], real[real != unlabelled]
    if not len(real):
        raise ValueError("f_measure: no labelled row")
    clusters, classes = np.unique(own), np.unique(real)
    both = np.array([[((own == k) & (real == c)).sum() for k in clusters] for c in classes])
    sizes = both.sum(1)
    score = 2 * both / (sizes[:, None] + both.sum(0))
    return float((score.max(1) * sizes).sum() / sizes.sum())
