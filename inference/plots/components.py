"""Pictures of component selection: steps, discrepancies, signatures, eigenvalues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from inference.plots._common import short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from inference.acdc.criterion import AcdcResult
    from inference.selection.factorization_criteria import ParallelAnalysis
    from inference.selection.reproducibility import Reproducibility


MAX_TICKS = 12  # names of columns that fit below each other
CLASSES = ("C>A", "C>G", "C>T", "T>A", "T>C", "T>G")
CLASS_COLOURS = ("#1ebff0", "#050708", "#e62725", "#cbcacb", "#a1cf64", "#edc8c5")
MOST_GROUP_ITEMS = 60
MOST_NUMBERED = 200  # cells that have room for a number
CLEAR = 2.0  # standard deviations at which a colour is full


def plot_choice(result: AcdcResult) -> Figure:
    """Plot the discrepancy that every K leaves, and its loss against the cutoff."""
    figure = Figure(figsize=(11, 4.3), layout="constrained")
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
    axes.plot(
        choice.num_components,
        left[choice.num_components],
        "o",
        ms=11,
        color="C3",
        zorder=3,
        label="chosen",
    )
    for k, share in shares.items():
        if share > result.min_share:
            axes.annotate(
                f"-{100 * share:.0f} %",
                (k, left[k]),
                xytext=(-8, -10),
                textcoords="offset points",
                ha="right",
                fontsize=8,
            )
    axes.set_yscale("log")
    axes.set_xticks(sizes)
    axes.set_xlabel("number of components")
    axes.set_ylabel("discrepancy left (nats)")
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
        chosen = k == choice.num_components
        axes.plot(
            rho,
            value,
            color=colour,
            lw=2.5 if chosen else 1.0,
            label=f"K = {k}" + (" (chosen)" if chosen else ""),
        )
    if choice.segment is not None:
        axes.axvspan(choice.segment.start, min(choice.segment.end, end), color="0.9", zorder=0)
    for segment in result.segments:
        if segment.start < end and segment.width > end / 40:
            middle = (segment.start + min(segment.end, end)) / 2
            axes.annotate(
                str(segment.num_components),
                (middle, 1.01),
                xycoords=("data", "axes fraction"),
                ha="center",
                fontsize=8,
            )
    axes.set_yscale("log")
    axes.set_xlim(0, end)
    axes.set_xlabel("cutoff (divergence, nats)")
    axes.set_ylabel("accumulated excess discrepancy + penalty")
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
    figure = Figure(figsize=(max(4.0, 0.6 * k + 2), 3.5), layout="constrained")
    axes = figure.subplots()
    place = np.arange(k)
    axes.errorbar(
        place,
        result.null_mean[k],
        yerr=2 * np.nan_to_num(result.null_sd[k]),
        fmt="_",
        color="0.5",
        lw=6,
        alpha=0.5,
        label="exact noise, two sd",
    )
    axes.plot(place, result.raw[k], "o", color="C3", label=noun)
    axes.set_xticks(
        place, [f"{i}\nn={n:.0f}" for i, n in enumerate(result.num_used[k])], fontsize=7
    )
    axes.set_xlabel(f"{noun}, {unit}s that use it")
    axes.set_ylabel("divergence (nats)")
    figure.legend(fontsize=8, loc="outside upper center", ncols=2)
    return figure


def plot_return(halves: Reproducibility, threshold: float | None = None) -> Figure:
    """Cosine error of every component fitted to halves of the rows, by number of components.

    Args:
        halves: of :func:`inference.selection.reproducibility.reproducibility`.
        threshold: error from which a component does not return; that of the record if None.
    """
    from inference.selection.reproducibility import RETURNS

    threshold = RETURNS if threshold is None else threshold

    figure = Figure(figsize=(6.5, 3.8), layout="constrained")
    axes = figure.subplots()
    for k, errors in sorted(halves.by_component.items()):
        lost = errors >= threshold
        axes.plot(
            np.full((~lost).sum(), k),
            errors[~lost],
            "o",
            color="C0",
            ms=5,
            alpha=0.7,
            label="a component that returns",
        )
        axes.plot(
            np.full(lost.sum(), k), errors[lost], "x", color="C3", ms=6, label="one that does not"
        )
    axes.axhline(threshold, color="0.6", lw=1, ls="--", label=f"limit, {threshold:g}")
    axes.set_xticks(sorted(halves.by_component))
    axes.set_xlabel("number of components")
    axes.set_ylabel("cosine error, worse half of a pair")
    axes.set_title(
        f"all components return: K = {', '.join(map(str, halves.numbers(threshold)))}", fontsize=10
    )
    words = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))  # once each
    figure.legend(words.values(), words.keys(), fontsize=8, loc="outside lower center", ncols=3)
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
    kinds = [name[2:5] if len(name) == 7 else "" for name in channels]
    order = list(range(len(channels)))
    if any(kind in CLASSES for kind in kinds):
        order.sort(
            key=lambda j: (CLASSES.index(kinds[j]) if kinds[j] in CLASSES else -1, channels[j])
        )
    colours = [
        CLASS_COLOURS[CLASSES.index(kinds[j])] if kinds[j] in CLASSES else "C0" for j in order
    ]
    figure = Figure(figsize=(9, 1.1 * len(values) + 0.8), layout="constrained")
    panels = figure.subplots(len(values), 1, sharex=True, squeeze=False)[:, 0]
    for axes, row, label in zip(panels, values, labels, strict=True):
        axes.bar(np.arange(len(order)), row[order], color=colours, width=0.8)
        axes.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
        axes.margins(x=0.005)
    if any(kinds):
        starts = [i for i, j in enumerate(order) if i == 0 or kinds[j] != kinds[order[i - 1]]]
        panels[-1].set_xticks(
            starts, [kinds[order[i]] or channels[order[i]] for i in starts], fontsize=8, ha="left"
        )
    else:
        shown = range(0, len(order), -(-len(order) // MAX_TICKS))
        panels[-1].set_xticks(list(shown), [channels[i] for i in shown], fontsize=8)
    return figure


def plot_abundances(
    activities: object, shape: tuple[int, int], names: Sequence[str] | None = None
) -> Figure:
    """One map a component of its share of every pixel; pixels row by row.

    Args:
        activities: (height width, K), not negative.
        shape: (height, width).
        names: of the
            components.

    Raises:
        ValueError: for other shapes, or negative activities.
    """
    values = np.asarray(activities, float)
    if values.ndim != 2 or len(values) != shape[0] * shape[1] or not (values >= 0).all():
        raise ValueError(
            f"plot_abundances: activities ({shape[0] * shape[1]}, K), not negative, were expected,"
            f" got {values.shape}"
        )
    labels = [f"component {k}" for k in range(values.shape[1])] if names is None else list(names)
    if len(labels) != values.shape[1]:
        raise ValueError(
            f"plot_abundances: {values.shape[1]} names were expected, got {len(labels)}"
        )
    share = values / np.maximum(values.sum(1, keepdims=True), 1e-300)
    num = len(labels)
    figure = Figure(
        figsize=(2.4 * num + 0.8, 2.4 * shape[0] / shape[1] + 0.6), layout="constrained"
    )
    panels = figure.subplots(1, num, squeeze=False)[0]
    for k, axes in enumerate(panels):
        image = axes.imshow(
            share[:, k].reshape(shape), vmin=0, vmax=1, cmap="viridis", interpolation="nearest"
        )
        axes.set_title(labels[k], fontsize=9)
        axes.set_axis_off()
    figure.colorbar(image, ax=panels, label="share of the pixel", shrink=0.8)
    return figure


def plot_scree(analysis: ParallelAnalysis, num_shown: int = 20) -> Figure:
    """Eigenvalues with the permuted data's mean and quantile.

    Args:
        analysis: of :func:`inference.selection.parallel_analysis`.
        num_shown: eigenvalues at most.
    """
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    shown = slice(0, min(num_shown, len(analysis.eigenvalues)))
    place = np.arange(1, shown.stop + 1)
    axes.plot(place, analysis.eigenvalues[shown], "o-", label="data")
    axes.fill_between(
        place,
        analysis.null_mean[shown],
        analysis.null_quantile[shown],
        color="0.7",
        label="permuted: mean to quantile",
    )
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("factor")
    axes.set_ylabel(f"eigenvalue ({analysis.matrix})")
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

    Raises:
        ValueError: for sizes that do not agree.
    """
    if means.shape != (len(groups), len(items)) or overall.shape != spread.shape != (len(items),):
        raise ValueError(
            f"plot_groups: means ({len(groups)}, {len(items)}) of the groups and items were"
            f" expected, got {means.shape}"
        )
    off = ((means - overall) / np.where(spread > 0, spread, 1.0))[:, :MOST_GROUP_ITEMS]
    figure = Figure(
        figsize=(min(9.0, 2.6 + 0.62 * off.shape[1]), 1.3 + 0.34 * len(off)), layout="constrained"
    )
    axes = figure.subplots()
    image = axes.imshow(off, cmap="RdBu_r", vmin=-CLEAR, vmax=CLEAR, aspect="auto")
    bar = figure.colorbar(
        image, ax=axes, extend="both" if np.abs(off).max(initial=0.0) > CLEAR else "neither"
    )
    bar.set_label("standard deviations", fontsize=8)
    axes.set_xticks(
        range(off.shape[1]),
        [short_name(name) for name in items[:MOST_GROUP_ITEMS]],
        rotation=45,
        ha="right",
        fontsize=8,
    )
    axes.set_yticks(range(len(off)), [f"group {short_name(name)}" for name in groups], fontsize=8)
    if off.size <= MOST_NUMBERED:
        for (k, j), value in np.ndenumerate(off):
            axes.text(
                j,
                k,
                f"{round(value, 1) + 0.0:+.1f}",
                ha="center",
                va="center",
                fontsize=7,
                color="white" if abs(value) > 0.7 * CLEAR else "black",
            )
    return figure
