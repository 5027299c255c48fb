"""Latents by group: does a latent that was fitted without the groups differ between them?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ppl_models.parts.showing import shows_briefly

__all__ = ["GroupMeans", "group_means"]


@shows_briefly
@dataclass(frozen=True, eq=False)
class GroupMeans:
    """Means of latents within groups of rows.

    Args:
        groups: (G,), values of the grouping variable, rising.
        means: (G, K).
        standard_errors: (G, K), standard deviation of the values within the group over the root of its size; the
            latents are taken as known, so error of their estimation is not in it. NaN for a group of one row.
        sizes: (G,), rows in each group.
        num_missing: rows without a group, which are left out.
    """

    groups: np.ndarray
    means: np.ndarray
    standard_errors: np.ndarray
    sizes: np.ndarray
    num_missing: int


def group_means(latents: Any, groups: Any) -> GroupMeans:
    """Mean of each latent among the rows of each group, with standard errors.

    Args:
        latents: (N, K), decoded latents or their posterior probabilities.
        groups: (N,), numbers; NaN where missing.

    Raises:
        ValueError: if the sizes differ, a latent is not finite, or no row has a group.
    """
    values = np.asarray(latents, dtype=np.float64)
    labels = np.asarray(groups, dtype=np.float64)
    if values.ndim != 2 or labels.shape != values.shape[:1]:
        raise ValueError(f"group_means: latents (N, K) and groups (N,) were expected, got {values.shape} and {labels.shape}")
    if not np.isfinite(values).all():
        raise ValueError("group_means: latents must be finite")
    present = np.unique(labels[~np.isnan(labels)])
    if not len(present):
        raise ValueError("group_means: no row has a group")
    means, errors, sizes = [], [], []
    for label in present:
        own = values[labels == label]
        means.append(own.mean(0))
        spread = own.std(0, ddof=1) if len(own) > 1 else np.full(values.shape[1], np.nan)
        errors.append(spread / np.sqrt(len(own)))
        sizes.append(len(own))
    return GroupMeans(present, np.array(means), np.array(errors), np.array(sizes), int(np.isnan(labels).sum()))
