"""Pictures of a choice among sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from inference.selection.dimension import Selection

__all__ = ["plot_selection"]


def plot_selection(selection: Selection, ax: Axes | None = None) -> Axes:
    """The deciding figure of every size, the chosen one marked.

    Args:
        selection: what :func:`inference.selection.dimension.select_dimension` returned.
        ax: where to draw; a new figure if None.
    """
    if ax is None:
        ax = Figure(figsize=(6.0, 3.6), layout="constrained").subplots()
    values, places = selection.columns[selection.score], range(len(selection.sizes))
    ax.plot(places, values, "o-", color="tab:blue")
    chosen = selection.sizes.index(selection.chosen)
    ax.axvline(chosen, color="tab:orange", linestyle="--", label=f"chosen: {selection.chosen}")
    ax.set_xticks(list(places), [str(size) for size in selection.sizes])
    ax.set_xlabel("size")
    meaning = {True: " (larger is better)", False: " (smaller is better)", None: ""}[selection.larger]
    ax.set_ylabel(selection.score.replace("_", " ") + meaning)
    ax.legend()
    return ax
