"""Pictures of graphs of causes."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from inference.plots._common import axes_of, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from inference.causal.graphs import Cpdag


WIDTHS = (1.0, 5.0)  # points, of the weakest and the strongest edge
ROOM = 3  # points that an edge keeps away from the box of a node
LINE, MOST_LINES = 14, 3  # letters of a line, and lines, of a name


def plot_causal_graph(
    graph: Cpdag,
    weights: np.ndarray | None = None,
    open_arrows: np.ndarray | None = None,
    open_edges: np.ndarray | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a causal graph, its attributes on a circle in their order from the top clockwise.

    Args:
        graph: arrows and lines.
        weights: strength of each edge, not negative, (K, K): wider is stronger; all alike if None.
        open_arrows: bool (K, K), edges whose direction is left open: dashed lines without a head.
        open_edges: bool (K, K), edges that may not be there: dotted.
        ax: where to draw; a new figure if None.
    """
    size = len(graph.names)
    given = {"weights": weights, "open_arrows": open_arrows, "open_edges": open_edges}
    for name, matrix in given.items():
        if matrix is not None and np.shape(matrix) != (size, size):
            raise ValueError(
                f"plot_causal_graph: {name} must have shape {(size, size)}, got {np.shape(matrix)}"
            )
    ax = axes_of(ax, 6.2, 5.4)
    angles = np.pi / 2 - 2 * np.pi * np.arange(size) / size
    places = np.stack([np.cos(angles), np.sin(angles)], -1)
    most = 0.0 if weights is None else float(np.max(weights, initial=0.0))
    styles = set()
    boxes = [_node(ax, name, place) for name, place in zip(graph.names, places, strict=True)]
    for i, j in (*graph.arrows, *graph.lines):
        is_open = open_arrows is not None and bool(open_arrows[i, j])
        in_doubt = open_edges is not None and bool(open_edges[i, j])
        points = not graph.matrix[j, i] and not is_open
        share = 0.4 if weights is None or most == 0 else float(weights[i, j]) / most
        style = ":" if in_doubt else "--" if is_open else "-"
        styles.add(style)
        settings: dict[str, Any] = {
            "arrowstyle": "-|>" if points else "-",
            "linestyle": style,
            "linewidth": WIDTHS[0] + share * (WIDTHS[1] - WIDTHS[0]),
            "patchA": boxes[i],
            "patchB": boxes[j],
            "zorder": 2,  # after the boxes, which are placed when they are drawn
        }
        settings |= {"mutation_scale": 16, "color": "tab:blue", "shrinkA": ROOM, "shrinkB": ROOM}
        ax.add_patch(FancyArrowPatch(tuple(places[i]), tuple(places[j]), **settings))
    meaning = {"--": "direction left open", ":": "may not be there"}
    for style in sorted(styles - {"-"}):
        ax.plot([], [], style, color="tab:blue", label=meaning[style])
    if styles - {"-"}:
        below: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, -0.1)}
        ax.legend(ncols=2, fontsize=8, frameon=False, **below)
    ax.set(xlim=(-1.5, 1.5), ylim=(-1.25, 1.25), aspect="equal")
    ax.set_axis_off()
    return ax


def _node(ax: Axes, name: str, place: np.ndarray) -> FancyBboxPatch:
    """A box with a name, on as many lines as it needs."""
    lines = textwrap.wrap(short_name(name, LINE * MOST_LINES), LINE) or [""]
    outline = {"boxstyle": "round,pad=0.45", "facecolor": "white", "edgecolor": "0.3"}
    style: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 1, "bbox": outline}
    words = "\n".join(lines[:MOST_LINES])
    text = ax.text(float(place[0]), float(place[1]), words, fontsize=9, **style)
    box = text.get_bbox_patch()
    if box is None:
        raise RuntimeError("a text with a box was expected")
    return box
