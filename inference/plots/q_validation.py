"""Mesa picture of an item: variance explained by its sets of attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from inference.plots._common import axes_of, short_name

if TYPE_CHECKING:
    from inference.inspection.q_validation import QValidation


CUTOFF = 0.95


def plot_mesa(validation: QValidation, item: Any = None, ax: Axes | None = None) -> Axes:
    """Plot shares of variance of an item's sets of attributes by size; the edge is to take.

    Args:
        validation: from :func:`inference.inspection.validate_q`.
        item: name or number; None for the item with the largest gain of BIC by a change, the first
            if none changes.
        ax: where to draw; a new figure if None.

    Raises:
        ValueError: for an item that there is none of.
    """
    if item is None:
        changed = (validation.given != validation.suggested).any(1)
        j = int(np.where(changed, validation.gain, -np.inf).argmax()) if changed.any() else 0
    elif isinstance(item, str) and item in validation.items:
        j = validation.items.index(item)
    elif (
        isinstance(item, int | np.integer)
        and not isinstance(item, bool)
        and 0 <= item < len(validation.items)
    ):
        j = int(item)
    else:
        raise ValueError(
            f"plot_mesa: item must be the name or number of one of {len(validation.items)} items,"
            f" got {item!r}"
        )
    candidates, share = validation.candidates[j], validation.pvaf[j]
    sizes = candidates.sum(1)
    best = [int(np.where(sizes == size, share, -np.inf).argmax()) for size in np.unique(sizes)]
    ax = axes_of(ax, 7.0, 4.0)
    ax.plot(sizes, share, ".", color="#bbbbbb", label="every set of attributes")
    ax.plot(sizes[best], share[best], "-", color="#4c72b0", label="best of its size")
    marks: dict[str, Any] = {"fillstyle": "none", "markersize": 12, "markeredgewidth": 2}
    for row, marker, colour, label in (
        (validation.given[j], "s", "#c44e52", "given"),
        (validation.suggested[j], "o", "#55a868", "suggested"),
    ):
        m = int(np.flatnonzero((candidates == row).all(1))[0])
        ax.plot(sizes[m], share[m], marker, color=colour, label=label, **marks)
    ax.axhline(CUTOFF, color="#777777", linestyle="--", linewidth=1, label=f"cutoff, {CUTOFF:g}")
    for m in best:
        pairs = zip(validation.attributes, candidates[m], strict=True)
        text = short_name(", ".join(name for name, asked in pairs if asked), 28)
        above: dict[str, Any] = {"textcoords": "offset points", "xytext": (0, 12), "ha": "center"}
        ax.annotate(text, (sizes[m], share[m]), fontsize=7, **above)
    ax.set_xticks(np.unique(sizes))
    ax.margins(x=0.12)
    ax.set(xlabel="attributes", ylabel="share of the variance (PVAF)", ylim=(0, 1.15))
    ax.set_title(f"Item {validation.items[j]}")
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14)}
    ax.legend(fontsize=8, ncols=5, frameon=False, columnspacing=1, **below)  # on no name of a set
    return ax
