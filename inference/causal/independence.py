r"""Conditional mutual information of attributes: tests, intervals, strength of edges.

The statistic on a table worth n rows is :math:`G = 2 n I(X; Y \mid Z)`. Where X and Y are
independent given Z it is about chi-square, one degree of freedom for each state of Z in which both
X and Y have rows of either value: at least half a row is expected there, which for observed rows
means one was seen.

Where they are dependent, :math:`G / c` is about noncentral chi-square with noncentrality :math:`2 n
I_0 / c`, where :math:`I_0` is the true information, :math:`c = \mathrm{Var}(i) / (2 I)` and
:math:`i = \log \frac{p(x, y \mid z)}{p(x \mid z) p(y \mid z)}` the information of one row. Near
independence c tends to 1, and far from it the distribution tends to the normal one with variance
:math:`\mathrm{Var}(i) / n`, that of the delta method. An interval for :math:`I_0` is that
distribution inverted; its upper end is never taken below that of a sample with the mean statistic
of independence.

A graph claims that adjacent attributes are dependent given any others, that attributes which are
not adjacent are independent given some, and at each triple i - j - k with i, k not adjacent whether
the middle is a common effect. A claim near zero is one that a little more or other data may turn
over: the distribution is nearly unfaithful to the graph (Uhler et al. 2013, Annals of Statistics
41), or rows are too few.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc, chndtr, ndtri

from inference.causal.pdags import Pdag, extension_of, mask_of, members, order_of
from inference.causal.tables import Marginals

LEAST_ROWS = 0.5  # expected in a margin for it to count
LARGE = 1000.0  # statistics beyond this are normal on the scale of roots, to four digits
# where one attribute copies another the information of a row is constant, and has no spread of the
# first order
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
    """Log-ratios log p(x, y | z) / (p(x | z) p(y | z)) of cells (Z, 2, 2); 0 where one is empty."""
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
        first: an attribute.
        second: another one.
        given: a set of others.
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
    """Noncentralities under which a statistic is the upper, and the lower, tail."""
    degrees = max(degrees, 1)
    typical = max(statistic, float(degrees))
    if typical > LARGE:
        reach, root = float(ndtri(1 - tail)), math.sqrt(typical)
        low, high = ((root + sign * reach) ** 2 - (degrees - 1) for sign in (-1, 1))
        return max(0.0, low), max(0.0, high)
    return _solve(statistic, degrees, 1 - tail), _solve(typical, degrees, tail)


def _solve(statistic: float, degrees: int, share: float) -> float:
    """Noncentrality with a share of all statistics below this one; 0 if it is not reached."""
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


MOST_SETS = 2000  # conditioning sets looked at for one edge


@dataclass(frozen=True)
class EdgeStrength:
    """An edge, and what it would take to lose it.

    Args:
        pair: (smaller, larger).
        direct: the dependence that is lost when it is taken out of a DAG of the class, given the
            other causes of the attribute it points at.
        weakest: the smallest dependence of the two (the largest p-value), over sets of the
            attributes next to either.
        near_zero: whether the weakest one cannot be told from none at the level of the tests.
    """

    pair: tuple[int, int]
    direct: Dependence
    weakest: Dependence
    near_zero: bool


@dataclass(frozen=True)
class TripleStrength:
    """Triple i - j - k, i and k not adjacent, and the strength of i -> j <- k.

    Args:
        triple: (i, j, k), i < k.
        is_collider: whether the graph has i -> j <- k.
        without, within: the dependence of i and k given a set without j, and given the same set
            with j. At a collider the former should be zero and the latter not, elsewhere the other
            way round.
        margin: the one that should not be zero less the other, nats.
        low, high: ends of the interval for the margin.
        near_zero: whether the interval reaches zero, or the dependence that should be there cannot
            be told from none.
    """

    triple: tuple[int, int, int]
    is_collider: bool
    without: Dependence
    within: Dependence
    margin: float
    low: float
    high: float
    near_zero: bool


@dataclass(frozen=True)
class IndependenceClaim:
    """A pair without an edge.

    Args:
        dependence: of the two given a set that separates them in the graph.
        strained: whether the table contradicts the claim at the level of the tests.
    """

    dependence: Dependence
    strained: bool


def strengths(
    graph: Pdag, marginals: Marginals, num_rows: float, level: float, confidence: float
) -> tuple[tuple[EdgeStrength, ...], tuple[TripleStrength, ...], tuple[IndependenceClaim, ...]]:
    """Every edge, every open triple and every missing edge of the graph of a class.

    Args:
        graph: the CPDAG.
        marginals: of a table that sums to one.
        num_rows: that the table is worth.
        level: of the tests.
        confidence: of the intervals.

    Raises:
        ValueError: for a graph that is not that of a class.
    """
    parents = extension_of(graph)
    order = None if parents is None else order_of(parents)
    if parents is None or order is None:
        raise ValueError(
            "strengths: the graph of a class was expected; this one has no consistent extension"
        )
    place = {k: at for at, k in enumerate(order)}
    adjacent = graph.adjacent
    table = _Table(marginals, num_rows, level, confidence)
    edges, triples, missing = [], [], []
    for i, k in itertools.combinations(range(len(parents)), 2):
        late = max(i, k, key=lambda node: place[node])
        if adjacent[i] >> k & 1:
            others = parents[late] & ~(1 << i) & ~(1 << k)
            direct = table.of(i, k, others)
            weakest = table.weakest(i, k, adjacent, direct)
            edges.append(EdgeStrength((i, k), direct, weakest, weakest.p_value > level))
            continue
        # late is independent of what is not below it
        apart = table.of(i, k, parents[late])
        missing.append(IndependenceClaim(apart, apart.p_value < level))
        for j in members(adjacent[i] & adjacent[k]):
            triples.append(table.triple((i, j, k), parents[late] & ~(1 << j), parents[j]))
    return tuple(edges), tuple(triples), tuple(missing)


@dataclass(frozen=True)
class _Table:
    """A table, what it is worth in rows, and the tests that are made of it."""

    marginals: Marginals
    num_rows: float
    level: float
    confidence: float

    def of(self, i: int, k: int, given: int) -> Dependence:
        return dependence(self.marginals, self.num_rows, i, k, given, self.confidence)

    def weakest(self, i: int, k: int, adjacent: list[int], direct: Dependence) -> Dependence:
        """Dependence with the largest p-value given sets next to either, smaller sets first."""
        near = [members(adjacent[own] & ~(1 << other)) for own, other in ((i, k), (k, i))]
        looked: set[int] = set()
        weakest = direct
        for size in range(max(len(own) for own in near) + 1):
            for own in near:
                for chosen in itertools.combinations(own, size):
                    given = mask_of(chosen)
                    if given in looked or len(looked) >= MOST_SETS:
                        continue
                    looked.add(given)
                    found = self.of(i, k, given)
                    key = (found.p_value, -found.statistic)
                    if found.degrees and key > (weakest.p_value, -weakest.statistic):
                        weakest = found
        return weakest

    def triple(self, triple: tuple[int, int, int], given: int, parents: int) -> TripleStrength:
        """Strength of a triple; ``parents`` of the middle one."""
        i, j, k = triple
        is_collider = bool(parents >> i & parents >> k & 1)
        without, within = self.of(i, k, given), self.of(i, k, given | 1 << j)
        sign = 1 if is_collider else -1
        margin = sign * (within.information - without.information)
        variance = _difference_variance(self.marginals, i, j, k, given) / self.num_rows
        reach = float(ndtri(0.5 + self.confidence / 2)) * math.sqrt(variance)
        there = within if is_collider else without
        near_zero = margin - reach <= 0 or there.p_value > self.level
        ends = (margin, margin - reach, margin + reach)
        return TripleStrength(triple, is_collider, without, within, *ends, near_zero)


def _difference_variance(marginals: Marginals, i: int, j: int, k: int, given: int) -> float:
    """Variance of log-ratio(i, k | given, j) - log-ratio(i, k | given) over rows."""
    nodes = [*members(given | 1 << j), i, k]
    cube = marginals.of(mask_of(nodes)).reshape((2,) * len(nodes))
    # given and j ascending, then i, k
    cube = cube.transpose([sorted(nodes).index(node) for node in nodes])
    at = sorted(members(given | 1 << j)).index(j)
    fine = log_ratios(cube.reshape(-1, 2, 2)).reshape(cube.shape)
    coarse = log_ratios(cube.sum(at).reshape(-1, 2, 2)).reshape(cube.sum(at).shape)
    difference = fine - np.expand_dims(coarse, at)
    mean = float((cube * difference).sum())
    return max(0.0, float((cube * difference**2).sum()) - mean**2)
