"""Pictures of attributes in several groups: mastery, and items that function differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from inference.plots._common import axes_of, short_name
from ppl_models.parts.repr import counted

if TYPE_CHECKING:
    from inference.selection.attribute_groups import GroupComparison, ItemScores


WIDTH = 1.96  # standard errors of an interval
LEVEL = 0.05
MOST_ITEMS = 60
LEAST_P = 1e-12  # where bars end


def plot_group_mastery(comparison: GroupComparison, ax: Axes | None = None) -> Axes:
    """The share of each group that has each attribute, with 95 % intervals.

    Args:
        comparison: from :func:`inference.selection.compare_groups`.
        ax: where to draw; a new figure if None.
    """
    size, count = len(comparison.attributes), len(comparison.groups)
    ax = axes_of(ax, min(14.0, 3.0 + 0.9 * size), 4.0)
    places = np.arange(size)
    for g, group in enumerate(comparison.groups):
        shift = 0.5 * ((g + 0.5) / count - 0.5)
        reach, shares = np.nan_to_num(WIDTH * comparison.errors[g]), comparison.mastery[g]
        ends = np.stack([np.minimum(reach, shares), np.minimum(reach, 1 - shares)])
        label = f"{short_name(group, 24)} ({counted(int(comparison.sizes[g]), 'row')})"
        ax.errorbar(places + shift, shares, ends, fmt="o", capsize=3, label=label)
    names = [short_name(name, 18) for name in comparison.attributes]
    rotation, align = (30, "right") if size > 4 else (0, "center")
    ax.set_xticks(places, names, rotation=rotation, ha=align)
    title = "Attributes by group, with 95 % intervals"
    ax.set(ylim=(0, 1), ylabel="share that has the attribute", title=title)
    ax.grid(axis="y", alpha=0.3)
    ax.legend(fontsize=8)
    return ax


def plot_item_scores(scores: ItemScores, ax: Axes | None = None) -> Axes:
    """Plot p-values of differential item functioning as bars, red where clear by Holm.

    Args:
        scores: from :func:`inference.selection.item_scores`.
        ax: where to draw; a new figure if None.
    """
    order = np.argsort(np.nan_to_num(scores.p_value, nan=1.0), kind="stable")[:MOST_ITEMS][::-1]
    ax = axes_of(ax, 7.0, min(12.0, 1.4 + 0.24 * len(order)))
    lengths = -np.log10(np.clip(np.nan_to_num(scores.p_value[order], nan=1.0), LEAST_P, 1.0))
    colours = ["#c44e52" if scores.p_adjusted[i] < LEVEL else "#9aa7b8" for i in order]
    ax.barh(np.arange(len(order)), lengths, color=colours)
    ax.axvline(-np.log10(LEVEL / len(scores.items)), color="#555555", linestyle="--", linewidth=1)
    names = [short_name(scores.items[i], 24) for i in order]
    ax.set_yticks(np.arange(len(order)), names, fontsize=8)
    title = "Do items function differently? Red: yes, at 5 % for all items together"
    ax.set(xlabel="evidence: -log10 of p", title=title)
    return ax
