"""Forest picture: estimates as points with intervals, one panel a site."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from inference.estimates import Estimate, EstimateTable
from inference.plots._common import NEGATIVE, OBSERVED, short_name

MOST_LETTERS = 36  # of the name of an entry, such as latents_1[2], latents_2[0]
MOST_ENTRIES = 32  # of one site
MOST_SITES = 9


def plot_estimates(table: EstimateTable) -> Figure:
    """Plot estimates with intervals: the first 32 of a site, the first nine sites.

    Args:
        table: from :func:`inference.estimates.estimates_of`.

    Raises:
        ValueError: if the table is empty.
    """
    sites = table.sites[:MOST_SITES]
    if not sites:
        raise ValueError("plot_estimates: a table with at least one estimate was expected")
    free = [_free(table, site) for site in sites]
    shown = [entries[:MOST_ENTRIES] for entries in free]
    columns = min(3, len(sites))
    bands = [shown[i : i + columns] for i in range(0, len(shown), columns)]
    heights = [0.9 + 0.22 * max(len(entries) for entries in band) for band in bands]
    figure = Figure(figsize=(4.1 * columns, sum(heights)), layout="constrained")
    grid = figure.subplots(len(bands), columns, squeeze=False, height_ratios=heights)
    for ax in grid.ravel()[len(sites) :]:
        ax.set_axis_off()
    slots = [max(map(len, band)) for band in bands for _ in band]  # of all panels of a band
    totals = map(len, free)
    for ax, site, entries, most, total in zip(
        grid.ravel(), sites, shown, slots, totals, strict=False
    ):
        places = np.arange(len(entries))
        numbers = [(entry.value, entry.low, entry.high) for entry in entries]
        values, low, high = np.array(numbers).T
        known = np.isfinite(low) & np.isfinite(high)
        ax.hlines(places[known], low[known], high[known], color=NEGATIVE, linewidth=2.2, alpha=0.6)
        ax.plot(values, places, "o", color=OBSERVED, markersize=4)
        names = [short_name(", ".join(entry.entry) or site, MOST_LETTERS) for entry in entries]
        ax.set_yticks(places, names, fontsize=8)
        ax.set_ylim(most - 0.5, -0.5)
        more = "" if total == len(entries) else f" (the first {len(entries)} of {total})"
        ax.set_title(short_name(site) + more, fontsize=10, y=1.0)
        ax.grid(axis="x", alpha=0.3)
        if np.nanmin(np.append(values, low)) < 0 < np.nanmax(np.append(values, high)):
            ax.axvline(0.0, color=OBSERVED, linewidth=0.8)
    return figure


def _free(table: EstimateTable, site: str) -> tuple[Estimate, ...]:
    """Return the entries of a site that are not held at zero; all where none is left."""
    entries, has_errors = table.of(site), bool(table.source)
    free = tuple(e for e in entries if not (has_errors and e.is_held))
    return free or entries
