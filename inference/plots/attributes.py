"""Pictures of attribute models: Q-matrix, profiles, items, and groups of rows."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from inference.fitting.columns import Names, labels_of
from inference.inspection.attributes import attribute_model, rises
from inference.inspection.classification import classify_rows
from inference.inspection.item_curves import ItemCurves, item_curves, profile_shares
from inference.plots._common import axes_of, heat_map, panels_of, short_name
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.repr import counted, profile_name

if TYPE_CHECKING:
    from inference.fitting.result import Fit
    from inference.inspection.q_validation import QValidation
    from inference.selection.attribute_groups import GroupComparison, ItemScores


MAX_LISTED = 14  # attributes whose profiles are listed
WIDTH = 44  # characters of a line of names


def plot_q_matrix(fit: Fit, ax: Axes | None = None, names: Names | None = None) -> Axes:
    """Plot the Q-matrix, its ones coloured by the mean rise of the expected response.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`.
        ax: where to draw; a new figure if None.
        names: names of the entries by dim, ``"item"`` and ``"attribute"``.

    Raises:
        ValueError: for another model, or an item with more than ten attributes.
    """
    layer = attribute_model(fit, "plot_q_matrix").layers[0]
    mean = np.full((layer.num_items, layer.num_parents), np.nan)
    for one in rises(fit, "plot_q_matrix"):
        mean[one.items, one.attribute] = one.rise.mean(0).numpy()
    size = min(14.0, 3.5 + 0.45 * layer.num_parents), min(12.0, 2.0 + 0.2 * layer.num_items)
    ax, items = axes_of(ax, *size), labels_of(fit, "item", layer.num_items, names)
    attributes = labels_of(fit, "attribute", layer.num_parents, names)
    heat_map(
        ax,
        mean,
        items,
        attributes,
        "rise of the expected response,\nmean over the other attributes",
        None,
    )
    ax.set(xlabel="attribute", ylabel="item", title="What items ask for, and gain by it")
    return ax


def plot_profiles(
    fit: Fit,
    ax: Axes | None = None,
    names: Names | None = None,
    max_profiles: int = 16,
    data: Any = None,
) -> Axes:
    """The most common profiles of attributes in the population, as bars.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`.
        ax: where to draw; a new figure if None.
        names: names of the entries by dim, ``"attribute"``.
        max_profiles: bars, at most.
        data: the rows that the model was fitted to; where they are given the bars have 95 %
            intervals.

    Raises:
        ValueError: for another model, or more profiles than can be listed; with ``data``, what
            :func:`inference.inspection.profile_shares` refuses.
    """
    structure = attribute_model(fit, "plot_profiles")
    size, root, params = structure.layers[0].num_parents, structure.root, fit.params
    if root.profiles is None and size > MAX_LISTED:
        raise ValueError(
            f"plot_profiles: at most {MAX_LISTED} attributes were expected, got {size}"
        )
    like, profiles = next(iter(params.values())), root.profiles
    if profiles is None:
        profiles = binary_configurations(size, like.dtype, like.device)
    chances = root.distribution(params).log_prob(profiles.to(like)).exp().detach()
    order = chances.argsort(descending=True)[:max_profiles].tolist()
    attributes = [str(name) for name in labels_of(fit, "attribute", size, names)]
    texts = [_wrapped(profile_name(attributes, profiles[c].tolist())) for c in order]
    lines = sum(text.count("\n") + 1 for text in texts)
    ax = axes_of(ax, 7.0, 1.2 + 0.15 * (len(order) + lines))
    reach = None
    if data is not None:
        found = profile_shares(fit, data)
        ends = np.stack([found.shares - found.low, found.high - found.shares])
        reach = np.nan_to_num(ends)[:, order]
    places, lengths = np.arange(len(order)), chances[order].cpu().numpy()
    ax.barh(places, lengths, color="#4c72b0", xerr=reach, ecolor="#222222", capsize=2.5)
    ax.set_yticks(places, texts, fontsize=8)
    ax.invert_yaxis()
    rest = float(1 - chances[order].sum())
    others = len(chances) - len(order)
    more = f" (the other {others:,} hold {rest:.2f})" if others > 0 else ""
    ax.set(xlabel="share of the population", title=f"Attributes that a row has{more}")
    return ax


def _wrapped(profile: str) -> str:
    """Names on one line or two, each cut short rather than one of them left out."""
    names = profile.split(" + ")
    most = max(6, 2 * WIDTH // len(names) - 3)
    text = " + ".join(short_name(name, most) for name in names)
    lines = textwrap.wrap(text, WIDTH, break_long_words=False)
    return "\n".join([*lines[:1], " ".join(lines[1:])]) if len(lines) > 1 else lines[0]


ERRORS = 1.96  # standard errors of an interval
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
        reach, shares = np.nan_to_num(ERRORS * comparison.errors[g]), comparison.mastery[g]
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
