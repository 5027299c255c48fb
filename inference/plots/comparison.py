"""Pictures of fits side by side, and of calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from inference.plots._common import legend_outside, new_figure, panels_of, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from inference.calibration import Calibration
    from inference.comparison import Comparison


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
