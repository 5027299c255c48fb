"""Pictures of fits side by side, and of calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from inference.labels import short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from inference.calibration import Calibration
    from inference.comparison import Comparison

__all__ = ["plot_comparison", "plot_ranks"]


def plot_comparison(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """Predictive density of unseen rows, fit by fit, as the difference to the best with two standard errors.

    Fits whose prediction stands on untrustworthy weights or on another method than the best one's are drawn hollow.

    Args:
        comparison: what :func:`inference.comparison.compare` returned.
        ax: where to draw; a new figure if None.
    """
    shown = [(name, record) for name, record in zip(comparison.names, comparison.records, strict=True) if record["how"] != "none"]
    if ax is None:
        ax = Figure(figsize=(7.0, 1.2 + 0.45 * len(comparison.names)), layout="constrained").subplots()
    for place, (_, record) in enumerate(shown):
        doubtful = record["bad_rows"] > 0 or record["how"] != shown[0][1]["how"]
        colour = "tab:orange" if doubtful else "tab:blue"
        face = "white" if doubtful else colour
        ax.errorbar(-record["elpd_diff"], place, xerr=2 * record["diff_se"], fmt="o", capsize=3, color=colour, markerfacecolor=face)
    ax.axvline(0.0, color="#222222", linewidth=0.8, linestyle="--")
    labels = [f"{short_name(name)}\n{record['engine']}, {record['how']}" for name, record in shown]
    ax.set_yticks(np.arange(len(shown)), labels)
    ax.invert_yaxis()
    ax.set_xlabel("log predictive density of unseen rows, difference to the best (two standard errors)")
    return ax


def plot_ranks(calibration: Calibration, max_panels: int = 12) -> Figure:
    """Histograms of the ranks of the truth among the draws, one panel a parameter group, with the band of a uniform law.

    Args:
        calibration: what :func:`inference.calibration.simulation_based_calibration` returned.
        max_panels: groups shown.
    """
    groups = list(calibration.ranks)[:max_panels]
    columns = min(3, len(groups))
    lines = -(-len(groups) // columns)
    figure = Figure(figsize=(3.2 * columns, 2.4 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for ax, group in zip(panels, groups, strict=False):
        counts = calibration.histogram(group)
        expected = counts.sum() / len(counts)
        low, high = calibration.band(group)
        ax.bar(np.arange(len(counts)), counts, width=1.0, color="tab:blue", edgecolor="white")
        ax.axhspan(low, high, color="#bbbbbb", alpha=0.5)
        ax.axhline(expected, color="#222222", linewidth=0.8)
        ax.set_title(f"{short_name(group)}, p = {calibration.p_values[group]:.2g}", fontsize=9)
        ax.set_xticks([])
    for ax in panels[len(groups) :]:
        ax.set_axis_off()
    figure.supxlabel("rank of the truth among the draws")
    return figure
