r"""How dependent two attributes are given others, as a test and as an interval, on a table worth n
rows.

The statistic is :math:`G = 2 n I(X; Y \mid Z)`. Where X and Y are independent given Z it is about
chi-square, one degree of freedom for each state of Z in which both X and Y have rows of either
value: at least half a row is expected there, which for observed rows means one was seen.

Where they are dependent, :math:`G / c` is about noncentral chi-square with noncentrality :math:`2 n
I_0 / c`, where :math:`I_0` is the true information, :math:`c = \mathrm{Var}(i) / (2 I)` and
:math:`i = \log \frac{p(x, y \mid z)}{p(x \mid z) p(y \mid z)}` the information of one row. Near
independence c tends to 1, and far from it the law tends to the normal one with variance
:math:`\mathrm{Var}(i) / n`, that of the delta method. An interval for :math:`I_0` is that law
inverted; its upper end is never taken below that of a sample with the mean statistic of
independence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc, chndtr, ndtri

from inference.causal.bits import members
from inference.causal.tables import Marginals

LEAST_ROWS = 0.5  # expected in a margin for it to count
LARGE = 1000.0  # statistics beyond this are normal on the scale of roots, to four digits
# of the law: where one attribute copies another the information of a row is constant, and has no
# spread of the first order
LEAST_SCALE = 0.01
STEPS = 60  # of bisection


@dataclass(frozen=True)
class Dependence:
    """Conditional mutual information of two attributes, and how sure it is.

    Args:
        first, second: the attributes; given: those that are held fixed.
        information: nats.
        low, high: ends of the interval for the true information, nats.
        statistic: 2 n times the information.
        degrees: of freedom under independence; 0 where nothing can be tested.
        p_value: the chance of as large a statistic under independence.
    """

    first: int
    second: int
    given: tuple[int, ...]
    information: float
    low: float
    high: float
    statistic: float
    degrees: int
    p_value: float


def log_ratios(cells: np.ndarray) -> np.ndarray:
    """log p(x, y | z) / (p(x | z) p(y | z)) of p(z, x, y), shape (Z, 2, 2); 0 where a cell is
    empty.
    """
    joint = cells.sum((1, 2), keepdims=True)
    expected = cells.sum(2, keepdims=True) * cells.sum(1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(cells * joint / expected)
    found: np.ndarray = np.where(cells > 0, ratios, 0.0)
    return np.nan_to_num(found, posinf=0.0, neginf=0.0)


def dependence(
    marginals: Marginals,
    num_rows: float,
    first: int,
    second: int,
    given: int = 0,
    confidence: float = 0.95,
) -> Dependence:
    """The dependence of two attributes given a set.

    Args:
        marginals: of a table that sums to one.
        num_rows: n.
        first, second: attributes; given: a set of others.
        confidence: of the interval.
    """
    cells = marginals.crossed(first, second, given)
    ratios = log_ratios(cells)
    information = max(0.0, float((cells * ratios).sum()))
    rows = num_rows * np.minimum(cells.sum(1).min(-1), cells.sum(2).min(-1))
    degrees = int((rows >= LEAST_ROWS).sum())
    statistic = 2 * num_rows * information
    p_value = float(chdtrc(degrees, statistic)) if degrees else 1.0
    spread = float((cells * ratios**2).sum()) - information**2
    scale = max(spread / (2 * information), LEAST_SCALE) if information > 1e-12 else 1.0
    low, high = _noncentralities(statistic / scale, degrees, (1 - confidence) / 2)
    unit = scale / (2 * num_rows)
    return Dependence(
        first,
        second,
        tuple(members(given)),
        information,
        low * unit,
        max(high * unit, information),
        statistic,
        degrees,
        p_value,
    )


def _noncentralities(statistic: float, degrees: int, tail: float) -> tuple[float, float]:
    """The noncentralities under which a statistic lies as far up, and as far down, as the tail."""
    degrees = max(degrees, 1)
    typical = max(statistic, float(degrees))
    if typical > LARGE:
        reach = float(ndtri(1 - tail))
        low, high = (
            (math.sqrt(typical) - reach) ** 2 - (degrees - 1),
            (math.sqrt(typical) + reach) ** 2 - (degrees - 1),
        )
        return max(0.0, low), max(0.0, high)
    return _solve(statistic, degrees, 1 - tail), _solve(typical, degrees, tail)


def _solve(statistic: float, degrees: int, share: float) -> float:
    """The noncentrality at which a share of all statistics lies below this one, 0 where that share
    is not reached.
    """
    if float(chndtr(statistic, degrees, 0.0)) <= share:
        return 0.0
    below, above = 0.0, 4 * (statistic + degrees) + 40
    for _ in range(STEPS):
        middle = (below + above) / 2
        if float(chndtr(statistic, degrees, middle)) > share:
            below = middle
        else:
            above = middle
    return below
