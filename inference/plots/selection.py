"""Pictures of fits side by side, of choices among sizes, and of calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from inference.plots._common import (
    axes_of,
    heat_map,
    legend_outside,
    new_figure,
    panels_of,
    short_name,
)
from inference.selection.order_selection.detectability import noise_edge
from inference.selection.order_selection.result import (
    STEEPER,
    HowMany,
    HowManyGroups,
    HowManyOptions,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from inference.calibration import Calibration
    from inference.comparison import Comparison
    from inference.selection.dimension import Selection
    from inference.selection.lower_limit import LowerLimit


def plot_selection(selection: Selection, ax: Axes | None = None) -> Axes:
    """The deciding figure of every size, the chosen one marked.

    Args:
        selection: what :func:`inference.selection.dimension.select_dimension` returned.
        ax: where to draw; a new figure if None.
    """
    ax = axes_of(ax, 6.0, 3.6)
    values, places = selection.columns[selection.score], range(len(selection.sizes))
    ax.plot(places, values, "o-", color="tab:blue")
    chosen = selection.sizes.index(selection.chosen)
    ax.axvline(chosen, color="tab:orange", linestyle="--", label=f"chosen: {selection.chosen}")
    ax.set_xticks(list(places), [str(size) for size in selection.sizes])
    ends = {True: " (larger is better)", False: " (smaller is better)", None: ""}
    score, is_short = selection.score, selection.score in ("aic", "bic", "ebic")
    name = score.upper() if is_short else score.replace("_", " ")
    ax.set(xlabel="size", ylabel=name + ends[selection.larger])
    ax.legend()
    return ax


def plot_lower_limit(limit: LowerLimit, ax: Axes | None = None) -> Axes:
    """Evidence for one component more, beside that in tables drawn without it.

    Args:
        limit: what :func:`inference.selection.at_least` returned.
        ax: where to draw; a new figure if None.
    """
    ax = axes_of(ax, 6.0, 3.6)
    numbers = [test.at_most for test in limit.tests]
    for test in limit.tests:
        label = "tables drawn from the fit" if test is limit.tests[0] else None
        ax.plot([test.at_most] * len(test.null), test.null, "_", color="0.5", ms=14, label=label)
    ax.plot(numbers, [test.statistic for test in limit.tests], "o", color="tab:red", label="data")
    if not limit.is_at_start:
        ax.axvline(limit.number - 0.5, color="tab:orange", linestyle="--", label="limit")
    ax.set_xticks(numbers)
    ax.set_xlim(min(numbers) - 0.7, max(numbers) + 0.7)
    unit = "gain in deviance" if limit.evidence == "likelihood" else "fall in log discrepancy"
    ax.set(xlabel=f"at most so many {limit.noun}s", ylabel=f"evidence for one more ({unit})")
    ax.legend(fontsize=8)
    return ax


def plot_how_many(answer: HowMany) -> Figure:
    """Plot penalised likelihoods and gains of every distribution and number.

    Args:
        answer: of :func:`inference.selection.select_components`.
    """
    if isinstance(answer, HowManyOptions):
        return _of_options(answer)
    figure = new_figure(10.0, 4.3)
    left, right = figure.subplots(1, 2)
    table = answer.table
    lowest = table["strict"].min()
    for distribution in dict.fromkeys(name for name, _ in answer.fits):
        own = table.loc[distribution]
        left.plot(own.index, own["strict"] - lowest, "o-", label=distribution)
        right.plot(own.index, own["gain_in_edges"], "o-", label=distribution)
    for axes in (left, right):
        axes.axvline(answer.num_components, color="0.6", linestyle=":")
    _numbers((left, right), "number of components")
    left.set_ylim(bottom=-1)
    _above(left, "strict penalised deviance, above the best")
    right.axhspan(0, 1, color="0.9", label="noise alone")
    right.axhline(4 / 3, color="0.4", linestyle="--", label="counted from here")
    if answer.climb is not None:
        edge = noise_edge(answer.fit.num_rows, answer.climb.tables[0].shape[1])
        words = "climbed from here, by tables drawn from the strict choice"
        steep = STEEPER * answer.climb.null_gain / edge
        right.axhline(steep, color="tab:red", linestyle=":", label=words)
    right.set_yscale("symlog", linthresh=2)
    right.set_ylabel("gain of the component, in noise edges")
    legend_outside(figure, [right], 3)
    return figure


def _numbers(panels: Sequence[Axes], label: str) -> None:
    for axes in panels:
        axes.set_xlabel(label)
        axes.locator_params("x", integer=True)


def _above(axes: Axes, label: str) -> None:
    """Scale of figures above the best, in which small differences are seen."""
    axes.set_yscale("symlog", linthresh=10)
    axes.set_ylabel(label)


def plot_how_many_groups(answer: HowManyGroups) -> Figure:
    """Plot BIC, entropy of merged components, and chances of misclassification.

    Args:
        answer: of :func:`inference.selection.select_components` for a mixture.
    """
    figure = new_figure(10.0, 3.9)
    left, middle, right = figure.subplots(1, 3)
    table, groups = answer.table, answer.groups
    for distribution in dict.fromkeys(name for name, _ in answer.fits):
        own = table.loc[distribution]
        left.plot(own.index, own["bic"] - table["bic"].min(), "o-", label=distribution)
    left.axvline(groups.num_fitted, color="0.6", linestyle=":")
    left.set_ylim(bottom=-1)
    _above(left, "BIC, above the best")
    numbers = sorted(groups.entropies)
    middle.plot(numbers, [groups.entropies[k] for k in numbers], "o-", color="0.3")
    middle.axvline(groups.num_separated, color="0.6", linestyle=":", label="separated groups")
    middle.set_ylabel("entropy of the assignments, nats")
    legend_outside(figure, (left, middle), 4)
    _numbers([left], f"number of {answer.noun}s")
    _numbers([middle], f"groups, as {answer.noun}s are merged")
    names = [str(k) for k in range(groups.num_fitted)]
    bar, size = "estimated chance", (len(names), len(names))
    heat_map(right, groups.misclassified.numpy(), names, names, bar, colours="Greys", most=size)
    right.set(xlabel=f"assigned to {answer.noun}", ylabel=f"{answer.unit} of {answer.noun}")
    return figure


def _of_options(answer: HowManyOptions) -> Figure:
    figure = new_figure(10.0, 3.9)
    left, right = figure.subplots(1, 2)
    own = answer.table.loc[answer.distribution]
    left.plot(own.index, own["bic"] - own["bic"].min(), "o-", label="BIC")
    left.plot(own.index, own["lenient"] - own["lenient"].min(), "o--", label="lenient penalty")
    for name, more in answer.memory.items():
        colour, style = "tab:red" if more < 0 else "0.6", ":" if name == "action" else "-."
        words = f"one policy that looks at the last {name}, BIC"
        left.axhline(more, color=colour, linestyle=style, label=words)
    _above(left, "above the best")
    words = "log-likelihood of held-out actions, a sequence"
    right.plot(own.index, own["held_out"], "o-", color="tab:green", label=words)
    right.set_ylabel("nats")
    if own["held_out"].isna().all():
        words = "too few sequences to leave some out"
        right.text(0.5, 0.5, words, ha="center", transform=right.transAxes)
    for axes in (left, right):
        for end in answer.interval[:2]:
            axes.axvline(end, color="0.6", linestyle=":")
    _numbers((left, right), "number of options")
    legend_outside(figure, (left, right), 2)
    return figure


def plot_comparison(comparison: Comparison, ax: Axes | None = None) -> Axes | Figure:
    """Plot fits side by side: predictive density, BIC, test rows, misfit and seconds.

    Fits whose prediction stands on untrustworthy weights or on another method than the best one's
    are drawn hollow.

    Args:
        comparison: what :func:`inference.comparison.compare` returned.
        ax: where to draw the predictive density alone; a new figure of all panels if None.
    """
    records = comparison.records
    if ax is not None:
        _predictive(comparison, ax)
        _name_lines(comparison, ax)
        return ax
    panels = [(key, label, _column(records, key)) for key, label in PANELS]
    panels = [panel for panel in panels if np.isfinite(panel[2]).any()]
    figure = new_figure(5.4 + 1.9 * len(panels), 1.4 + 0.5 * len(records))
    widths = [2.4] + [1.0] * len(panels)
    axes = figure.subplots(1, len(widths), sharey=True, squeeze=False, width_ratios=widths)[0]
    _predictive(comparison, axes[0])
    places = np.arange(len(records))
    for panel, (key, label, values) in zip(axes[1:], panels, strict=True):
        panel.plot(values, places, "o", color="tab:blue")
        if key == "seconds":
            is_wide = values.max() > WIDE * values.min() > 0
            panel.set_xscale("log" if is_wide else "linear")
            panel.set_xlim(*((None, None) if is_wide else (0, 1.2 * values.max() or 1.0)))
        else:
            panel.axvline(0.0, color="#222222", linewidth=0.8, linestyle="--")
        panel.set_xlabel(label)
        panel.tick_params(axis="y", left=False)
    for panel in axes:
        panel.set_axisbelow(True)
        panel.grid(axis="y", color="#eeeeee")
    _name_lines(comparison, axes[0])
    return figure


PANELS = (
    ("bic", "BIC, above\nthe least"),
    ("test_log_likelihood", "log-likelihood of\ntest rows, to the best"),
    ("discrepancy", "largest misfit of\na component (nats)"),
    ("seconds", "seconds"),
)


WIDE = 30  # times, from which on seconds need a scale of powers


def _column(records: tuple[dict[str, Any], ...], key: str) -> np.ndarray:
    values = np.array([float(record[key]) for record in records])
    if key in ("bic", "test_log_likelihood"):
        values[[record["likelihood"] != "marginal" for record in records]] = np.nan
        if np.isfinite(values).any():
            values = values - (np.nanmin(values) if key == "bic" else np.nanmax(values))
    return values


def _predictive(comparison: Comparison, ax: Axes) -> None:
    first = comparison.records[0]
    for place, record in enumerate(comparison.records):
        if record["how"] == "none":
            words, across = "no prediction of unseen rows", ax.get_yaxis_transform()
            ax.text(0.02, place, words, transform=across, va="center", color="#888888")
            continue
        doubtful = record["bad_rows"] > 0 or record["how"] != first["how"]
        colour = "tab:orange" if doubtful else "tab:blue"
        face = "white" if doubtful else colour
        style: dict[str, Any] = {"color": colour, "markerfacecolor": face, "capsize": 3}
        ax.errorbar(-record["elpd_diff"], place, xerr=2 * record["diff_se"], fmt="o", **style)
    ax.axvline(0.0, color="#222222", linewidth=0.8, linestyle="--")
    ax.set_xlabel(
        "log predictive density of unseen rows,\ndifference to the best (two standard errors)"
    )


def _name_lines(comparison: Comparison, ax: Axes) -> None:
    lines = [
        f"{short_name(name)}\n{record['engine']}"
        + ("" if record["how"] == "none" else f", {record['how']}")
        for name, record in zip(comparison.names, comparison.records, strict=True)
    ]
    ax.set_yticks(np.arange(len(lines)), lines)
    ax.set_ylim(len(lines) - 0.5, -0.5)


def plot_ranks(calibration: Calibration, max_panels: int = 12) -> Figure:
    """Plot histograms of ranks of the truth, with the band of a uniform distribution.

    Args:
        calibration: what :func:`inference.calibration.simulation_based_calibration` returned.
        max_panels: groups shown.
    """
    groups = list(calibration.ranks)[:max_panels]
    figure, panels = panels_of(len(groups), 3, 3.2, 2.4)
    for ax, group in zip(panels, groups, strict=False):
        counts = calibration.histogram(group)
        expected = counts.sum() / len(counts)
        low, high = calibration.band(group)
        style: dict[str, Any] = {"color": "tab:blue", "edgecolor": "white"}
        ax.bar(np.arange(len(counts)), counts, width=1.0, label="counts", **style)
        words = "where counts of a right sampler mostly lie"
        ax.axhspan(low, high, color="#dddddd", zorder=0, label=words)
        ax.axhline(expected, color="#222222", linewidth=0.8, label="their mean")
        ax.set_title(f"{short_name(group)}, p = {calibration.p_values[group]:.2g}", fontsize=9)
        ax.set_xticks([])
    figure.supxlabel("rank of the truth among the draws")
    legend_outside(figure, panels[:1], 3, "upper")
    return figure
