"""Pictures of expected answers by profile, and of mastery by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from inference.fitting.columns import Names, labels_of
from inference.inspection.attributes import attribute_model
from inference.inspection.classification import classify_rows
from inference.inspection.item_curves import ItemCurves, item_curves
from inference.plots._common import axes_of, heat_map, panels_of, short_name
from ppl_models.parts.repr import counted

if TYPE_CHECKING:
    from inference.fitting.result import Fit


MAX_ITEMS = 30  # of one figure
COLUMNS = 5
ALIKE = 1e-9  # expected answers that differ by less are one
BAR = "#4c72b0"


def plot_item_curves(
    fit: Fit, data: Any, items: Sequence[str] | None = None, level: float = 0.95
) -> Figure:
    """Plot expected answers at each profile as bars with intervals, one panel an item.

    Items that ask for all of their attributes, or any, have two bars.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`.
        data: the rows it was fitted to, (N, J).
        items: names of the items; the first thirty if None.
        level: of the intervals.

    Raises:
        ValueError: for another model, an item that there is not, or what
            :func:`inference.inspection.item_curves` refuses.
    """
    curves = item_curves(fit, data, level)
    wanted = list(curves.items[:MAX_ITEMS]) if items is None else [str(name) for name in items]
    unknown = [name for name in wanted if name not in curves.items]
    if unknown or not wanted:
        raise ValueError(
            "plot_item_curves: items must be names of the fit's items,"
            f" {', '.join(curves.items[:8])}, ..., got {unknown or wanted!r}"
        )
    figure, panels = panels_of(len(wanted), COLUMNS, 2.6, 2.2)
    for ax, name in zip(panels, wanted, strict=False):
        own, labels = _bars(curves, np.flatnonzero(curves.item == curves.items.index(name)))
        value = curves.expected[own]
        reach = np.nan_to_num(np.stack([value - curves.low[own], curves.high[own] - value]))
        ax.bar(np.arange(len(own)), value, color=BAR, yerr=reach, ecolor="#222222", capsize=2.5)
        rotation = 60 if max(map(len, labels)) > 4 or len(own) > 4 else 0
        ax.set_xticks(np.arange(len(own)), labels, fontsize=6, rotation=rotation)
        if bool(((curves.expected >= 0) & (curves.expected <= 1)).all()):
            ax.set_ylim(0, 1)
        ax.tick_params("y", labelsize=7)
        ax.set_title(short_name(name), fontsize=8)
    figure.supylabel("expected answer", fontsize=9)
    figure.supxlabel("attributes of the item that a row has", fontsize=9)
    return figure


def _bars(curves: ItemCurves, own: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return an item's entries and their names; two where it asks for all, or for any."""
    sizes, value = np.array([len(curves.profiles[i]) for i in own]), curves.expected[own]
    if len(own) > 2:
        for end, others, texts in (
            (sizes.argmax(), sizes < sizes.max(), ["not all", "all"]),
            (sizes.argmin(), sizes > 0, ["any", "none"]),
        ):
            if np.ptp(value[others]) < ALIKE * max(1.0, float(np.abs(value).max())):
                pair = [int(np.flatnonzero(others)[0]), int(end)]
                return own[pair if texts[0] == "not all" else pair[::-1]], (
                    texts if texts[0] == "not all" else texts[::-1]
                )
    return own, [short_name(" + ".join(curves.profiles[i]) or "none", 16) for i in own]


def plot_mastery(fit: Fit, data: Any, ax: Axes | None = None, names: Names | None = None) -> Axes:
    """Plot the chance that each row has each attribute, rows by their expected number.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`.
        data: rows, (N, J).
        ax: where to draw; a new figure if None.
        names: names of the entries by dim, ``"attribute"``.

    Raises:
        ValueError: for another model, data that do not fit it, or more profiles than can be listed.
    """
    size = attribute_model(fit, "plot_mastery").layers[0].num_parents
    chances = classify_rows(fit, data, num_replicates=0).probabilities
    order = np.lexsort((*chances.T[::-1], chances.sum(1)))[::-1]
    ax = axes_of(ax, min(12.0, 3.0 + 0.5 * size), 5.0)
    attributes = labels_of(fit, "attribute", size, names)
    heat_map(ax, chances[order], (), attributes, "probability given the row's answers")
    rows = f"{counted(len(chances), 'row')}, from the most attributes to the fewest"
    ax.set(xlabel="attribute", ylabel=rows, title="Who has which attribute")
    return ax
