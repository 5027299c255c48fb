"""Pictures of components: their choice, discrepancies, signatures, categories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from inference.base.structure import category_chances
from inference.fitting.columns import Names, labels_of
from inference.plots._common import (
    DIVERGING,
    colour_bar,
    heat_map,
    legend_outside,
    new_figure,
    panels_of,
    short_name,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from inference.acdc.criterion import AcdcResult
    from inference.fitting.result import Fit
    from inference.selection.factorization_criteria import ParallelAnalysis
    from inference.selection.reproducibility import Reproducibility


MAX_TICKS, MOST_LETTERS = 12, 100  # names of columns, and letters of them, that fit side by side
CLASSES = ("C>A", "C>G", "C>T", "T>A", "T>C", "T>G")
CLASS_COLOURS = ("#1ebff0", "#050708", "#e62725", "#cbcacb", "#a1cf64", "#edc8c5")
MOST_GROUP_ITEMS = 60
MOST_NUMBERED, MOST_NUMBERED_ITEMS = 200, 20  # cells, and columns, that have room for a number
CLEAR = 2.0  # standard deviations at which a colour is full


def plot_choice(result: AcdcResult) -> Figure:
    """Plot the discrepancy that every K leaves, and its loss against the cutoff."""
    figure = new_figure(11, 4.3)
    steps, curves = figure.subplots(1, 2, width_ratios=(2, 3))
    _draw_steps(steps, result)
    _draw_loss(curves, result)
    return figure


def _draw_steps(axes: Axes, result: AcdcResult) -> None:
    from inference.acdc.choice import discrepancy_left

    left, shares, choice = result.left, result.shares, result.select()
    sizes = np.array(sorted(left))
    axes.plot(sizes, list(left.values()), "o-", color="0.5", label="left by K components")
    floor = discrepancy_left({k: np.zeros(k) for k in left}, result.null_sd, result.weights)
    if max(floor.values()) > 1e-6:  # not without calibration
        axes.plot(sizes, list(floor.values()), ":", color="0.5", label="exact noise alone")
    k = choice.num_components
    axes.plot(k, left[k], "o", ms=11, color="C3", zorder=3, label="chosen")
    for k, share in shares.items():
        if share > result.min_share:
            beside: dict[str, Any] = {
                "xytext": (-8, -10),
                "textcoords": "offset points",
                "ha": "right",
            }
            axes.annotate(f"-{100 * share:.0f} %", (k, left[k]), fontsize=8, **beside)
    axes.set_yscale("log")
    axes.set_xticks(sizes)
    axes.set(xlabel="number of components", ylabel="discrepancy left (nats)")
    doubt = "" if choice.finished else ", not a clear one"
    axes.set_title(f"last clear step: K = {choice.num_components}{doubt}", fontsize=10)
    axes.legend(fontsize=8)


def _draw_loss(axes: Axes, result: AcdcResult) -> None:
    from matplotlib import colormaps

    sizes, choice = sorted(result.raw), result.select()
    widest = choice.segment or result.segments[0]
    ends = [s.start for s in result.segments[1:]]
    end = max([widest.end * 1.5, *(e for e in ends if e <= 3 * max(widest.end, 1e-3))], default=1.0)
    knots = np.concatenate([result.component_discrepancy[k] for k in sizes])
    rho = np.unique(np.concatenate([np.linspace(0, end, 200), knots[knots <= end]]))
    colours = colormaps["viridis"](np.linspace(0, 0.95, len(sizes)))
    for k, colour in zip(sizes, colours, strict=True):
        value = np.maximum(result.loss(k, rho), 1e-4)
        width, words = (2.5, " (chosen)") if k == choice.num_components else (1.0, "")
        axes.plot(rho, value, color=colour, lw=width, label=f"K = {k}{words}")
    if choice.segment is not None:
        axes.axvspan(choice.segment.start, min(choice.segment.end, end), color="0.9", zorder=0)
    for segment in result.segments:
        if segment.start < end and segment.width > end / 40:
            middle = (segment.start + min(segment.end, end)) / 2
            above: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "ha": "center"}
            axes.annotate(str(segment.num_components), (middle, 1.01), fontsize=8, **above)
    axes.set_yscale("log")
    axes.set_xlim(0, end)
    words = "accumulated excess discrepancy + penalty"
    axes.set(xlabel="cutoff (divergence, nats)", ylabel=words)
    axes.set_title("best K along the cutoff", pad=18, fontsize=10)
    axes.legend(fontsize=7, ncols=2)


def plot_discrepancies(
    result: AcdcResult,
    num_components: int | None = None,
    noun: str = "component",
    unit: str = "row",
) -> Figure:
    """Plot each component's discrepancy beside the band of exact noise (mean, two sd).

    Args:
        result: of :func:`inference.acdc.acdc`.
        num_components: K; the chosen one if None.
        noun, unit: words for a component and a row.

    Raises:
        ValueError: for a number of components that was not compared.
    """
    k = result.chosen if num_components is None else num_components
    if k not in result.raw:
        raise ValueError(
            f"plot_discrepancies: num_components must be one of {sorted(result.raw)}, got {k!r}"
        )
    figure = new_figure(max(4.0, 0.6 * k + 2), 3.5)
    axes, place, band = figure.subplots(), np.arange(k), 2 * np.nan_to_num(result.null_sd[k])
    style: dict[str, Any] = {"fmt": "_", "color": "0.5", "lw": 6, "alpha": 0.5}
    axes.errorbar(place, result.null_mean[k], yerr=band, label="exact noise, two sd", **style)
    axes.plot(place, result.raw[k], "o", color="C3", label=noun)
    used = [f"{i}\nn={n:.0f}" for i, n in enumerate(result.num_used[k])]
    axes.set_xticks(place, used, fontsize=7)
    axes.set(xlabel=f"{noun}, {unit}s that use it", ylabel="divergence (nats)")
    legend_outside(figure, [axes], 2, "upper")
    return figure


def plot_return(halves: Reproducibility, threshold: float | None = None) -> Figure:
    """Cosine error of every component fitted to halves of the rows, by number of components.

    Args:
        halves: of :func:`inference.selection.reproducibility.reproducibility`.
        threshold: error from which a component does not return; that of the record if None.
    """
    from inference.selection.reproducibility import RETURNS

    threshold = RETURNS if threshold is None else threshold
    figure = new_figure(6.5, 3.8)
    axes = figure.subplots()
    for k, errors in sorted(halves.by_component.items()):
        back, lost = errors[errors < threshold], errors[errors >= threshold]
        style: dict[str, Any] = {"color": "C0", "ms": 5, "alpha": 0.7}
        axes.plot([k] * len(back), back, "o", label="a component that returns", **style)
        axes.plot([k] * len(lost), lost, "x", color="C3", ms=6, label="one that does not")
    axes.axhline(threshold, color="0.6", lw=1, ls="--", label=f"limit, {threshold:g}")
    axes.set_xticks(sorted(halves.by_component))
    axes.set(xlabel="number of components", ylabel="cosine error, worse half of a pair")
    numbers = ", ".join(map(str, halves.numbers(threshold)))
    axes.set_title(f"all components return: K = {numbers}", fontsize=10)
    legend_outside(figure, [axes], 3)
    return figure


def plot_signatures(
    signatures: object, channels: Sequence[str], names: Sequence[str] | None = None
) -> Figure:
    """Plot signatures as bars over channels; the 96 substitutions (A[C>A]A) are grouped.

    Raises:
        ValueError: if the number of channels or names does not match.
    """
    values = np.asarray(signatures, float)
    if values.ndim != 2 or values.shape[1] != len(channels):
        raise ValueError(
            f"plot_signatures: signatures (K, {len(channels)}) were expected, got shape"
            f" {values.shape}"
        )
    labels = [f"component {k}" for k in range(len(values))] if names is None else list(names)
    if len(labels) != len(values):
        raise ValueError(f"plot_signatures: {len(values)} names were expected, got {len(labels)}")
    kinds = [name[2:5] if len(name) == 7 and name[2:5] in CLASSES else "" for name in channels]
    order, place = list(range(len(channels))), {kind: i for i, kind in enumerate(CLASSES)}
    if any(kinds):
        order.sort(key=lambda j: (place.get(kinds[j], -1), channels[j]))
    colours = [dict(zip(CLASSES, CLASS_COLOURS, strict=True)).get(kinds[j], "C0") for j in order]
    figure = new_figure(9, 1.1 * len(values) + 0.8)
    panels = figure.subplots(len(values), 1, sharex=True, squeeze=False)[:, 0]
    for axes, row, label in zip(panels, values, labels, strict=True):
        axes.bar(np.arange(len(order)), row[order], color=colours, width=0.8)
        axes.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
        axes.margins(x=0.005)
    if any(kinds):
        starts = [i for i, j in enumerate(order) if i == 0 or kinds[j] != kinds[order[i - 1]]]
        names_of_starts = [kinds[order[i]] or channels[order[i]] for i in starts]
        panels[-1].set_xticks(starts, names_of_starts, fontsize=8, ha="left")
    else:
        shown = range(0, len(order), -(-len(order) // MAX_TICKS))
        panels[-1].set_xticks(list(shown), [short_name(channels[i]) for i in shown], fontsize=8)
        letters = sum(len(channels[i]) for i in shown)
        panels[-1].tick_params("x", rotation=60 if letters > MOST_LETTERS else 0)
    return figure


def plot_scree(analysis: ParallelAnalysis, num_shown: int = 20) -> Figure:
    """Eigenvalues with the permuted data's mean and quantile.

    Args:
        analysis: of :func:`inference.selection.parallel_analysis`.
        num_shown: eigenvalues at most.
    """
    figure = new_figure(5, 3.5)
    axes, shown = figure.subplots(), slice(0, min(num_shown, len(analysis.eigenvalues)))
    place = np.arange(1, shown.stop + 1)
    axes.plot(place, analysis.eigenvalues[shown], "o-", label="data")
    band = analysis.null_mean[shown], analysis.null_quantile[shown]
    axes.fill_between(place, *band, color="0.7", label="permuted: mean to quantile")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="factor", ylabel=f"eigenvalue ({analysis.matrix})")
    axes.set_title(f"parallel analysis: {analysis.chosen}", fontsize=10)
    axes.legend(fontsize=8)
    return figure


def plot_groups(
    means: np.ndarray,
    overall: np.ndarray,
    spread: np.ndarray,
    items: Sequence[str],
    groups: Sequence[str],
) -> Figure:
    """Plot group means as a heat map, in standard deviations from the mean of all rows.

    Args:
        means: (K, J).
        overall: (J,).
        spread: (J,), 0 for a constant column.
        items: J names, of which the first 60 are drawn.
        groups: K names.
    """
    if means.shape != (len(groups), len(items)) or overall.shape != spread.shape != (len(items),):
        raise ValueError(
            f"plot_groups: means ({len(groups)}, {len(items)}) of the groups and items were"
            f" expected, got {means.shape}"
        )
    off = ((means - overall) / np.where(spread > 0, spread, 1.0))[:, :MOST_GROUP_ITEMS]
    figure = new_figure(min(9.0, 2.6 + 0.62 * off.shape[1]), 1.3 + 0.34 * len(off))
    rows = [f"group {short_name(name)}" for name in groups]
    ax, limits, shown = figure.subplots(), (-CLEAR, CLEAR), off.size <= MOST_NUMBERED
    shown = shown and off.shape[1] <= MOST_NUMBERED_ITEMS
    numbers = np.array([[f"{round(value, 1) + 0.0:+.1f}" for value in line] for line in off])
    image = heat_map(
        ax,
        off,
        rows,
        items[:MOST_GROUP_ITEMS],
        limits=limits,
        colours=DIVERGING,
        texts=numbers if shown else None,
        most=off.shape,
    )
    is_beyond = bool(np.abs(off).max(initial=0.0) > CLEAR)
    colour_bar(ax, image, "standard\ndeviations", is_beyond)
    return figure


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
        axes.set_ylabel("group" if weights is None else "group (share of rows)", fontsize=8)
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
