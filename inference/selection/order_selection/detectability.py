r"""Detectability: the weakest component counted, and the smallest misfit seen.

In unit noise a component of N rows and J columns whose signal is :math:`d^2 = \sum_{nj} c_n^2
\delta_j^2 / \mu_{nj}` (c its counts in a row, :math:`\delta` its signature less what the others
make of it) raises the deviance by :math:`d^2 + N + J + N J / d^2` if :math:`d^2 > \sqrt{N J}`, and
not over what noise alone gives if it is weaker (Baik, Ben Arous and Peche 2005,
doi:10.1214/009117905000000233; Benaych-Georges and Nadakuditi 2012,
doi:10.1016/j.jmva.2012.04.019).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from inference.acdc.discrepancy import KDE, null_moments

# noise edges that a component costs (Gavish and Donoho 2014, doi:10.1109/TIT.2014.2323359)
LENIENT = 4 / 3
MOST_ROWS, DRAWN_COLUMNS = 1000, 100  # beyond, what is seen falls as one over the root of the rows
WIDEST = 5.0  # standard deviation that is tried
MISFIT = 3.0  # standard deviations of exact noise from which noise contradicts its distribution
CLEAR = 10.0  # a lead in BIC that leaves no doubt (Kass and Raftery 1995: very strong)


def noise_edge(num_rows: int, num_items: int) -> float:
    """Return the largest gain in deviance of a component that is only noise.

    The largest singular value of unit noise, squared.
    """
    return (math.sqrt(num_rows) + math.sqrt(num_items)) ** 2


def weakest_signal(num_rows: int, num_items: int) -> float:
    """The least :math:`d^2` of a component that the lenient penalty counts."""
    cells = num_rows * num_items
    half = (LENIENT * noise_edge(num_rows, num_items) - num_rows - num_items) / 2
    return half + math.sqrt(max(half**2 - cells, 0.0))


def smallest_share(
    num_rows: int,
    num_items: int,
    counts_per_row: float,
    rows_with_it: float,
    difference: float = 1.0,
) -> float:
    """The least share of a row's counts that a component must hold in its rows to be counted.

    Args:
        num_rows: N.
        num_items: J.
        counts_per_row: T.
        rows_with_it: rows that hold the component.
        difference: of its signature from what the others make of it, chi-square against the mean
            row, sum over j of delta_j^2 / mean_j.
    """
    each = max(rows_with_it, 1.0) * counts_per_row * difference
    return min(1.0, math.sqrt(weakest_signal(num_rows, num_items) / each))


def detectable_variance(num_rows: int, num_columns: int) -> float:
    """Return the least variance of a component's noise that would be called a misfit.

    It is 1 where the distribution is right; inf where nothing would be.

    By noise drawn once for each number of rows, the same for every caller.
    """
    rows = min(num_rows, MOST_ROWS)
    sd = null_moments(KDE(), rows, num_columns)[1]
    if not math.isfinite(sd):
        return math.inf
    noise = np.random.default_rng(rows).standard_normal((rows, DRAWN_COLUMNS))
    exact = KDE().columns(noise).mean()

    def misfit(width: float) -> float:
        return float(num_columns * (KDE().columns(width * noise).mean() - exact) - MISFIT * sd)

    if misfit(WIDEST) <= 0:
        return math.inf
    wide = float(brentq(misfit, 1.0, WIDEST, xtol=1e-4)) ** 2
    return 1 + (wide - 1) * math.sqrt(rows / num_rows)
