"""Pictures of layers: loadings, latent graph, reconstructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from inference.fitting.columns import Names, as_matrix, dims_of, labels_of
from inference.plots._common import (
    DIVERGING,
    NEGATIVE,
    POSITIVE,
    axes_of,
    check_image_shape,
    colour_bar,
    effects_of,
    heat_map,
    layers_of,
    present_edges,
    short_name,
    site_matrix,
    symmetric_limit,
)

if TYPE_CHECKING:
    from matplotlib.image import AxesImage

    from inference.fitting.result import Fit


def plot_loadings(
    fit: Fit, site: str | None = None, ax: Axes | None = None, names: Names | None = None
) -> Axes:
    """Plot a matrix of parameters as a heat map, by default the bottom layer's loadings.

    Args:
        fit: the fit.
        site: name of a parameter with two dims.
        ax: where to draw; a new figure if None.
        names: names of the entries by dim, for example ``{"latent_1": ["stroke", "loop"]}``.

    Raises:
        ValueError: if the site is unknown or has not two dims, or none is named and the model
            describes no layers.
    """
    site, values = site_matrix(fit, site, "plot_loadings")
    rows, columns = dims_of(fit, site, values.shape)
    num_rows, num_columns = values.shape
    ax = axes_of(ax, min(14.0, 3.5 + 0.35 * num_columns), min(12.0, 2.0 + 0.2 * num_rows))
    row_names = labels_of(fit, rows, num_rows, names)
    own = [layer for layer in fit.structure.layers or () if layer.loadings == site]
    least = own[0].unit(fit.params) / 2 if own else 0.0
    labels = labels_of(fit, columns, num_columns, names)
    heat_map(ax, values, row_names, labels, site, None, least=least)
    title = f"{site}: {rows} by {columns}"
    ax.set(xlabel=columns, ylabel=rows, title=title if values.any() else f"{title} (all zero)")
    return ax


def _tile(
    ax: Axes, image: np.ndarray, row: int, column: int, cmap: Any, limits: tuple[float, float]
) -> AxesImage:
    """Draw an image of one pixel unit a pixel at a place of a grid inside one axes."""
    height, width = image.shape
    left, top = column * (width * 1.12), row * (height * 1.3)
    extent = (left, left + width, top + height, top)
    tile = ax.imshow(image, cmap, extent=extent, interpolation="nearest", clim=limits)
    right, bottom = left + width, top + height
    corners = [left, right, right, left, left], [top, top, bottom, bottom, top]
    ax.plot(*corners, color="#999999", linewidth=0.6)
    return tile


def _frame_grid(ax: Axes, num_rows: int, num_columns: int, shape: tuple[int, int]) -> None:
    height, width = shape
    ax.set_xlim(-0.03 * width, num_columns * 1.12 * width - 0.09 * width)
    ax.set_ylim(num_rows * 1.3 * height - 0.27 * height, -0.24 * height)
    ax.set_aspect("equal")
    ax.set_axis_off()


def plot_loading_images(
    fit: Fit,
    image_shape: tuple[int, int],
    ax: Axes | None = None,
    names: Names | None = None,
    num_columns: int = 8,
) -> Axes:
    """Plot the bottom layer's intercepts and loadings as images of one colour range.

    The range is that of the loadings; intercepts beyond it are drawn in its darkest colours.

    Args:
        fit: the fit; its items are pixels, row by row.
        image_shape: (height, width).
        ax: where to draw; a new figure if None.
        names: names of the entries by dim.
        num_columns: most pictures in one line.

    Raises:
        ValueError: if ``image_shape`` does not hold the items, or the model describes no layers.
    """
    layer = layers_of(fit, "plot_loading_images")[0]
    shape = check_image_shape(image_shape, layer.num_children, "plot_loading_images")
    site, loadings = site_matrix(fit, None, "plot_loading_images")
    intercepts = fit.params[layer.intercepts].detach().cpu().numpy()
    latent = dims_of(fit, site, loadings.shape)[1]
    labels = labels_of(fit, latent, layer.num_features, names)
    titles = ["intercept", *(short_name(str(name), 14) for name in labels)]
    pictures = np.concatenate([intercepts[None], loadings.T]).reshape(-1, *shape)
    lines = -(-len(pictures) // num_columns)
    columns = -(-len(pictures) // lines)  # lines of equal length
    ax = axes_of(ax, 1.35 * columns + 1.2, 1.6 * lines * shape[0] / shape[1] + 0.6)
    limit, clipped = symmetric_limit(loadings, layer.unit(fit.params) / 2)
    clipped = clipped or bool(np.abs(intercepts).max() > limit)
    for i, picture in enumerate(pictures):
        row, column = divmod(i, columns)
        tile = _tile(ax, picture, row, column, DIVERGING, (-limit, limit))
        place = (column * 1.12 + 0.5) * shape[1], row * 1.3 * shape[0] - 0.03 * shape[0]
        ax.text(*place, titles[i], ha="center", va="bottom", fontsize=9)
    _frame_grid(ax, lines, columns, shape)
    ax.set_title(f"{layer.intercepts} and {site}, one picture a {latent}")
    colour_bar(ax, tile, f"value (darkest beyond ±{limit:.3g})" if clipped else "value", clipped)
    return ax


def plot_latent_graph(
    fit: Fit,
    ax: Axes | None = None,
    threshold: float | None = None,
    names: Names | None = None,
    max_items: int = 40,
) -> Axes:
    """Plot layers as rows of nodes, deepest on top, with an edge for each loading.

    Where items depend on products of latents, an edge is the mean effect of a latent.

    Args:
        fit: the fit.
        ax: where to draw; a new figure if None.
        threshold: loadings up to this size are left out; by default the penalty's own threshold, a
            twentieth of the predictors' unit in a graph that was estimated, or else a tenth of the
            layer's largest.
        names: names of the entries by dim.
        max_items: with more items, the bottom row is one box, and each latent shows how many items
            it is tied to.

    Raises:
        ValueError: if the model describes no layers.
    """
    layers = layers_of(fit, "plot_latent_graph")
    counted = layers[0].num_children > max_items
    widest = max(layers[0].num_parents, 12 if counted else layers[0].num_children)
    ax = axes_of(ax, min(16.0, 3.0 + 0.5 * widest), 1.3 + 1.7 * len(layers))
    shown = []
    for depth, layer in enumerate(layers):
        weights = effects_of(fit, layer)
        present, cut = present_edges(fit, layer, threshold)
        shown.append(f"|{layer.loadings}| > {cut:.3g}")
        upper = _places(layer.num_parents)
        if depth == 0 and counted:
            _draw_counts(ax, upper, weights, present)
        else:
            _draw_edges(ax, _places(layer.num_children), upper, depth, weights, present)
        _draw_nodes(ax, depth + 1, layer.parent, layer.num_parents, fit, names)
    if counted:
        ax.barh(0, 1, 0.26, color="#eeeeee", edgecolor="#333333")
        ax.text(0.5, 0, f"{layers[0].num_items} items", ha="center", va="center", fontsize=10)
    else:
        site = (
            layers[0].child
            if layers[0].items is None and not fit.structure.num_given
            else layers[0].intercepts
        )  # beside covariates columns are more than items
        _draw_nodes(ax, 0, site, layers[0].num_children, fit, names)
    for colour, style, label in ((POSITIVE, "-", "positive"), (NEGATIVE, "--", "negative")):
        ax.plot([], [], style, color=colour, linewidth=2.5, label=label)
    corner: dict[str, Any] = {"loc": "upper right", "bbox_to_anchor": (1.0, 1.0)}
    ax.legend(frameon=False, fontsize=8, ncols=2, **corner)
    ax.set(xlim=(-0.16, 1.02), ylim=(-0.25 if counted else -0.55, len(layers) + 0.55))
    ax.set_title(f"Latent graph (edges: {', '.join(shown)})", loc="left")
    ax.set_axis_off()
    return ax


def _places(size: int) -> np.ndarray:
    """Middles of ``size`` equal parts of [0, 1]."""
    return (np.arange(size) + 0.5) / size


def _draw_nodes(ax: Axes, depth: int, site: str, size: int, fit: Fit, names: Names | None) -> None:
    """One row of nodes with their names, inside the nodes where they fit."""
    dim = dims_of(fit, site, (size,))[0]
    labels = [short_name(str(name), 16) for name in labels_of(fit, dim, size, names)]
    outside = size > 16 or max(len(text) for text in labels) > 3
    face, marker, side = ("#eeeeee", "s", -1) if depth == 0 else ("white", "o", 1)
    style: dict[str, Any] = {"facecolor": face, "edgecolor": "#333333", "zorder": 3}
    ax.scatter(_places(size), np.full(size, depth), 90 if outside else 420, marker=marker, **style)
    align = ("top" if side < 0 else "bottom") if outside else "center"
    for x, text in zip(_places(size), labels, strict=True):
        y = depth + (0.12 * side if outside else 0.0)
        turned = 90 if outside and size > 8 else 0
        ax.text(x, y, text, ha="center", va=align, fontsize=8, rotation=turned, zorder=4)
    ax.text(-0.03, depth, dim, ha="right", va="center", fontsize=9, color="#444444")


def _draw_edges(
    ax: Axes,
    lower: np.ndarray,
    upper: np.ndarray,
    depth: int,
    weights: np.ndarray,
    present: np.ndarray,
) -> None:
    largest = float(np.abs(weights).max(initial=0.0)) or 1.0
    for chosen, colour, style in ((weights > 0, POSITIVE, "-"), (weights < 0, NEGATIVE, "--")):
        pairs = np.argwhere(present & chosen)
        segments = [[(lower[j], depth), (upper[k], depth + 1)] for j, k in pairs]
        settings: dict[str, Any] = {"colors": colour, "linestyles": style, "alpha": 0.75}
        settings["linewidths"] = [0.4 + 4.0 * abs(weights[j, k]) / largest for j, k in pairs]
        ax.add_collection(LineCollection(segments, **settings))


def _draw_counts(ax: Axes, upper: np.ndarray, weights: np.ndarray, present: np.ndarray) -> None:
    """Draw two strokes a latent to the box of items, as wide as its items of that sign."""
    step = 0.12 / len(upper)
    sides = (
        (weights > 0, POSITIVE, "-", -step, "+", 0.35),
        (weights < 0, NEGATIVE, "--", step, "−", 0.22),
    )
    for chosen, colour, style, shift, sign, height in sides:
        counts = (chosen & present).sum(0)
        pairs = [(x + shift, n) for x, n in zip(upper, counts, strict=True) if n]
        settings: dict[str, Any] = {"colors": colour, "linestyles": style}
        settings["linewidths"] = [0.6 + 5.0 * n / len(weights) for _, n in pairs]
        segments = [[(x, 0.45), (x, 1.0)] for x, _ in pairs]
        ax.add_collection(LineCollection(segments, **settings))
        for x, n in zip(upper, counts, strict=True):
            ax.text(x, height, f"{sign}{n}", color=colour, fontsize=8, va="center", ha="center")


def plot_reconstructions(
    fit: Fit,
    data: Any,
    image_shape: tuple[int, int],
    rows: Sequence[int] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot rows of the data as images above their expected items; missing entries amber.

    Args:
        fit: the fit; its items are pixels, row by row.
        data: (N, J), NaN where missing.
        image_shape: (height, width).
        rows: which rows; ten spread over the data if None.
        ax: where to draw; a new figure if None.

    Raises:
        ValueError: if ``image_shape`` does not hold the items, or a row is not in the data.
    """
    values = as_matrix(fit, data)
    num_items = values.shape[1] - fit.structure.num_given
    shape = check_image_shape(image_shape, num_items, "plot_reconstructions")
    if rows is None:
        rows = np.unique(np.linspace(0, len(values) - 1, 10).astype(int)).tolist()
    if not len(rows) or min(rows) < 0 or max(rows) >= len(values):
        raise ValueError(
            f"plot_reconstructions: rows must lie in 0..{len(values) - 1}, got {list(rows)}"
        )
    ax = axes_of(ax, 1.1 * len(rows) + 1.2, 2.9 * shape[0] / shape[1] + 0.5)
    picked = torch.as_tensor(values[list(rows)])
    rebuilt = fit.reconstruct(picked).detach().cpu().numpy()[:, :num_items]
    values = values[:, :num_items]
    seen = values[np.isfinite(values)]
    cmap = colormaps["gray_r"].with_extremes(bad="#f1b24a")
    limits = float(min(seen.min(), rebuilt.min())), float(max(seen.max(), rebuilt.max()))
    for column, pair in enumerate(zip(values[list(rows)], rebuilt, strict=True)):
        for row, picture in enumerate(pair):
            _tile(ax, picture.reshape(shape), row, column, cmap, limits)
        place = (column * 1.12 + 0.5) * shape[1], -0.03 * shape[0]
        ax.text(*place, f"row {rows[column]}", ha="center", fontsize=8)
    for row, name in enumerate(("data", "recon-\nstructed")):
        place = -0.1 * shape[1], (row * 1.3 + 0.5) * shape[0]
        ax.text(*place, name, ha="right", va="center", fontsize=9)
    _frame_grid(ax, 2, len(rows), shape)
    ax.set_title("Data (amber: missing), and the expected items given each row")
    return ax
