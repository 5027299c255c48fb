"""Helpers of pictures: figures, panels, heat maps, cut names, ticks, colour ranges, edges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppl_models.descriptions.layers import FAINT

if TYPE_CHECKING:
    from matplotlib.image import AxesImage

    from inference.fitting.result import Fit
    from ppl_models.descriptions.layers import GeneralizedLinearLayer

POSITIVE, NEGATIVE, OBSERVED, SIMULATED = "#b2182b", "#2166ac", "#222222", "#e08214"
DIVERGING = "RdBu_r"
OKABE_ITO = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000"]
MOST_TICKS = (50, 30)  # rows and columns of a heat map that are named


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure."""
    return Figure(figsize=(width, height), layout="constrained")


def axes_of(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the axes given, or those of a figure of their own."""
    return new_figure(width, height).subplots() if ax is None else ax


def panels_of(
    num: int, across: int, width: float, height: float, **settings: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of panels of one size, at most ``across`` beside each other."""
    across = min(across, num)
    down = -(-num // across)
    figure = new_figure(width * across, height * down)
    axes = figure.subplots(down, across, squeeze=False, **settings).ravel().tolist()
    for ax in axes[num:]:
        ax.set_visible(False)
    return figure, axes[:num]


def colour_of(place: int) -> str:
    """Return the colour of a state or option, safe for colour-blind readers."""
    return OKABE_ITO[place % len(OKABE_ITO)]


def draw_shares(ax: Axes, edges: np.ndarray, shares: np.ndarray, labels: Sequence[str]) -> None:
    """Draw shares that add up to one, (T, K), stacked between T + 1 edges."""
    colours = [colour_of(k) for k in range(len(labels))]
    heights = np.concatenate([shares, shares[-1:]]).T
    ax.stackplot(edges, heights, colors=colours, step="post", labels=labels)


def legend_outside(figure: Figure, axes: Sequence[Axes], ncols: int, side: str = "lower") -> None:
    """Draw one legend of all axes, on no point of them, each name once."""
    names: dict[str, Any] = {}
    for ax in axes:
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
            names.setdefault(name, handle)
    place: Any = f"outside {side} center"
    figure.legend(list(names.values()), list(names), fontsize="small", loc=place, ncols=ncols)


def heat_map(
    ax: Axes,
    values: np.ndarray,
    rows: Sequence[str | int] = (),
    columns: Sequence[str | int] = (),
    bar: str = "",
    limits: tuple[float, float] | None = (0.0, 1.0),
    colours: str = "viridis",
    texts: np.ndarray | None = None,
    most: tuple[int, int] = MOST_TICKS,
    length: int = 24,
    least: float = 0.0,
) -> AxesImage:
    """Draw a matrix as coloured cells.

    Args:
        ax: where to draw.
        values: the matrix, NaN for a blank cell.
        rows: names of its rows; () for none.
        columns: names of its columns.
        bar: label of the bar of colours; "" for no bar.
        limits: of the colours; None for red above zero, blue below, as :func:`symmetric_limit`.
        colours: of the cells between ``limits``.
        texts: of the cells.
        most: rows and columns that are named at most.
        length: letters beyond which a name is cut.
        least: half-width of the colours where all values are smaller, with ``limits`` None.
    """
    clipped = False
    if limits is None:
        limit, clipped = symmetric_limit(values, least)
        limits, colours = (-limit, limit), DIVERGING
        bar += f" (darkest beyond ±{limit:.3g})" if bar and clipped else ""
    image = ax.imshow(values, colours, aspect="auto", interpolation="nearest", clim=limits)
    if len(rows):
        ax.set_yticks(*tick_labels(rows, most[0], length), fontsize=8)
    if len(columns):
        ax.set_xticks(*tick_labels(columns, most[1], length), fontsize=8)
        ax.tick_params("x", rotation=60 if max(len(str(name)) for name in columns) > 3 else 0)
    for (i, j), text in np.ndenumerate([] if texts is None else texts):
        dark = np.dot(image.cmap(image.norm(values[i, j]))[:3], (0.3, 0.6, 0.1)) < 0.5
        colour = "white" if dark else "black"
        ax.text(j, i, text, ha="center", va="center", fontsize=7, color=colour)
    if bar:
        colour_bar(ax, image, bar, clipped)
    return image


def colour_bar(
    axes: Axes | Sequence[Axes], image: AxesImage, label: str, clipped: bool = False
) -> None:
    """Draw the bar of colours of an image, pointed where values lie beyond it."""
    extend = "both" if clipped else "neither"
    image.get_figure().colorbar(image, ax=axes, extend=extend, shrink=0.8).set_label(label)  # type: ignore[union-attr]


def short_name(name: str, most: int = 24) -> str:
    """Cut a name in its middle, and make it safe to draw."""
    head = (most - 1) * 2 // 3
    text = name if len(name) <= most else name[:head] + "…" + name[len(name) - (most - 1 - head) :]
    return re.sub(r"(?<!\\)\$", r"\\$", text)  # a dollar in a name is not mathematics


def tick_labels(
    labels: Sequence[str | int], most: int, length: int = 24
) -> tuple[list[int], list[str]]:
    """Positions and texts of at most ``most`` tick labels, evenly spaced, long names cut."""
    step = max(1, -(-len(labels) // most))
    places = list(range(0, len(labels), step))
    return places, [short_name(str(labels[i]), length) for i in places]


def check_image_shape(image_shape: tuple[int, int], num_items: int, caller: str) -> tuple[int, int]:
    """``image_shape`` as two integers that hold ``num_items`` pixels, else a ValueError."""
    if len(image_shape) != 2 or image_shape[0] * image_shape[1] != num_items:
        raise ValueError(
            f"{caller}: image_shape must be (height, width) of {num_items} items, got {image_shape}"
        )
    return int(image_shape[0]), int(image_shape[1])


def symmetric_limit(values: np.ndarray, least: float = 0.0) -> tuple[float, bool]:
    """Half-width of a symmetric colour range, and whether some values lie beyond it.

    The largest size; but where that is more than twice the 90 % quantile of the sizes that differ
    from zero (a few entries at their bound, say), that quantile, so that the others keep their
    colours. No range is narrower than ``least``, so that what is next to nothing is pale.
    """
    found = np.abs(values[np.isfinite(values)])
    largest = float(found.max(initial=0.0))
    if largest == 0.0:
        return 1.0, False
    usual = float(np.quantile(found[found > 0.02 * largest], 0.9))
    is_wide = largest > 2 * max(usual, least)
    return max(usual if is_wide else largest, least), is_wide


def present_edges(
    fit: Fit, layer: GeneralizedLinearLayer, threshold: float | None = None
) -> tuple[np.ndarray, float]:
    """Return which loadings or mean effects (J, K) count as edges, and the cut for their size.

    By default that is the penalty's own threshold, for a graph that was estimated a twentieth of
    the predictors' unit, which no data of usual size see, and else a tenth of the largest loading.
    """
    weights = effects_of(fit, layer)
    if threshold is None and layer.penalty is not None:
        threshold = float(layer.penalty.threshold)
    elif threshold is None and layer.estimated:
        threshold = FAINT * layer.unit(fit.params)
    elif threshold is None:
        threshold = 0.1 * float(np.abs(weights).max(initial=0.0))
    present = np.abs(weights) > threshold
    return (present if layer.edges is None else present & layer.edges.cpu().numpy()), threshold


def effects_of(fit: Fit, layer: GeneralizedLinearLayer) -> np.ndarray:
    """Return the mean effect of each latent on each item, (J, K)."""
    params = fit.params[layer.intercepts], fit.params[layer.loadings]
    effects: np.ndarray = layer.effects(layer.coefficients(*params)[1]).detach().cpu().numpy()
    return effects


def layers_of(fit: Fit, caller: str) -> tuple[GeneralizedLinearLayer, ...]:
    """The layers a model describes, bottom-up, else a ValueError that names the caller."""
    if not fit.structure.layers:
        raise ValueError(
            f"{caller}: a model that describes its layers was expected, got"
            f" {type(fit.model).__name__}"
        )
    return fit.structure.layers


def site_matrix(fit: Fit, site: str | None, caller: str) -> tuple[str, np.ndarray]:
    """A parameter with two dims; the bottom layer's loadings unless named."""
    name = layers_of(fit, caller)[0].loadings if site is None else site
    if name not in fit.params:
        raise ValueError(f"{caller}: site must be one of {sorted(fit.params)}, got {name!r}")
    values = fit.params[name].detach().cpu().numpy()
    if values.ndim != 2:
        raise ValueError(
            f"{caller}: a site with two dims was expected, got {name!r} with shape {values.shape}"
        )
    return name, values
