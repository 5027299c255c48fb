"""Picture of categorical items: probabilities of answers in every class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from inference.base.structure import category_chances
from inference.fitting.columns import Names, labels_of
from inference.plots._common import panels_of, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from inference.fitting.result import Fit


MOST_ITEMS = 24
MOST_COLUMNS = 3
MOST_IN_LEGEND = 12
LEGIBLE = 0.12  # the least width of a bar that holds its number


def plot_categories(fit: Fit, names: Names | None = None) -> Figure:
    """Plot class probabilities of every categorical item, one panel an item, one bar a class.

    Args:
        fit: of a mixture with categorical items; the first 24 of them are drawn.
        names: names of the entries by dim, for example ``{"component": ["low", "high"]}``.

    Raises:
        ValueError: if the model has no categorical items, or ``names`` do not fit its sizes.
    """
    categories = fit.category_names
    if not categories:
        raise ValueError(
            "plot_categories: a fit with categorical items was expected, got one of"
            f" {fit.model_name}"
        )
    tables = category_chances(fit.structure, fit.params).detach().cpu().numpy()  # (K, P)
    classes = [str(label) for label in labels_of(fit, "component", len(tables), names)]
    rows, weights = [short_name(name) for name in classes], fit.params.get("weights")
    if weights is not None:  # none where classes depend on covariates
        pairs = zip(rows, weights.tolist(), strict=True)
        rows = [f"{name} ({share:.0%})" for name, share in pairs]
    first = np.cumsum([0, *(len(own) for own in categories.values())])
    items = list(categories.items())[:MOST_ITEMS]
    most = max(min(len(own), MOST_IN_LEGEND) for _, own in items)
    deep = max(1.6, 0.32 * len(classes) + 1.3 + 0.16 * most / 3)
    figure, panels = panels_of(len(items), MOST_COLUMNS, 3.7, deep + 0.1, sharey=True)
    for axes, (item, own), begin in zip(panels, items, first, strict=False):
        _draw_item(axes, tables[:, begin : begin + len(own)], own)
        axes.set_title(short_name(item, 36), fontsize=9, loc="left")
    for axes in panels[::MOST_COLUMNS]:
        axes.set_yticks(range(len(classes)), rows, fontsize=8)
        axes.set_ylabel("class" if weights is None else "class (share of rows)", fontsize=8)
    if len(categories) > len(items):
        title = f"the first {len(items)} of {len(categories)} categorical items"
        figure.suptitle(title, fontsize=9)
    return figure


def _draw_item(axes: Axes, table: np.ndarray, names: tuple[str, ...]) -> None:
    """Bars of one item: (K, C) probabilities."""
    left = np.zeros(len(table))
    for h, (name, colour) in enumerate(zip(names, _colours(len(names)), strict=True)):
        label = short_name(name) if h < MOST_IN_LEGEND else "_hidden"
        axes.barh(range(len(table)), table[:, h], left=left, color=colour, height=0.75, label=label)
        text_colour = "white" if np.dot(colour[:3], (0.3, 0.6, 0.1)) < 0.5 else "black"
        style: dict[str, Any] = {"ha": "center", "va": "center", "color": text_colour}
        for k in np.flatnonzero(table[:, h] >= LEGIBLE):
            middle = left[k] + table[k, h] / 2
            axes.text(middle, float(k), f"{table[k, h]:.2f}", fontsize=7, **style)
        left = left + table[:, h]
    axes.set_xlim(0, 1)
    axes.set_ylim(len(table) - 0.5, -0.5)  # the largest class on top
    axes.tick_params(labelsize=8)
    axes.set_xlabel("probability of each answer", fontsize=8)
    # under the label of the axis, whatever the height of the panel
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
    below |= {"borderaxespad": 4.6, "handlelength": 1, "columnspacing": 1}
    axes.legend(fontsize=7, ncols=3, frameon=False, **below)


def _colours(number: int) -> list[tuple[float, ...]]:
    """Colours of the categories, neighbours distinct and legible in grey."""
    from matplotlib import colormaps

    places = np.linspace(0.05, 0.95, number) if number > 1 else [0.3]
    return [tuple(colormaps["viridis"](place)) for place in places]
