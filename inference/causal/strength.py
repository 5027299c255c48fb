r"""How far each claim of a graph stands from its opposite.

A graph claims that adjacent attributes are dependent given any others, that attributes which are
not adjacent are independent given some, and at each triple i - j - k with i, k not adjacent whether
the middle is a common effect. All three are read from the table as conditional mutual information,
with intervals at the rows that the table is worth (:mod:`inference.causal.independence`). A claim
near zero is one that a little more or other data may turn over: the distribution is nearly
unfaithful to the graph (Uhler et al. 2013, Annals of Statistics 41), or rows are too few.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from inference.causal.bits import mask_of, members
from inference.causal.independence import Dependence, dependence, log_ratios
from inference.causal.pdags import Pdag, extension_of, order_of
from inference.causal.tables import Marginals

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
    """Three attributes i - j - k with i and k not adjacent, and how clear it is whether i -> j <-
    k.

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
        level: of the tests; confidence: of the intervals.

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
    edges, triples, missing = [], [], []
    for i, k in itertools.combinations(range(len(parents)), 2):
        late = max(i, k, key=lambda node: place[node])
        if adjacent[i] >> k & 1:
            others = parents[late] & ~(1 << i) & ~(1 << k)
            direct = dependence(marginals, num_rows, i, k, others, confidence)
            weakest = _weakest(marginals, num_rows, i, k, adjacent, confidence, direct)
            edges.append(EdgeStrength((i, k), direct, weakest, weakest.p_value > level))
            continue
        # late is independent of what is not below it
        apart = dependence(marginals, num_rows, i, k, parents[late], confidence)
        missing.append(IndependenceClaim(apart, apart.p_value < level))
        for j in members(adjacent[i] & adjacent[k]):
            triples.append(
                _triple(
                    marginals,
                    num_rows,
                    (i, j, k),
                    parents[late] & ~(1 << j),
                    parents,
                    level,
                    confidence,
                )
            )
    return tuple(edges), tuple(triples), tuple(missing)


def _weakest(
    marginals: Marginals,
    num_rows: float,
    i: int,
    k: int,
    adjacent: list[int],
    confidence: float,
    direct: Dependence,
) -> Dependence:
    """The dependence with the largest p-value over sets next to either, the smaller sets first."""
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
                found = dependence(marginals, num_rows, i, k, given, confidence)
                if found.degrees and (found.p_value, -found.statistic) > (
                    weakest.p_value,
                    -weakest.statistic,
                ):
                    weakest = found
    return weakest


def _triple(
    marginals: Marginals,
    num_rows: float,
    triple: tuple[int, int, int],
    given: int,
    parents: tuple[int, ...],
    level: float,
    confidence: float,
) -> TripleStrength:
    i, j, k = triple
    is_collider = bool(parents[j] >> i & parents[j] >> k & 1)
    without = dependence(marginals, num_rows, i, k, given, confidence)
    within = dependence(marginals, num_rows, i, k, given | 1 << j, confidence)
    sign = 1 if is_collider else -1
    margin = sign * (within.information - without.information)
    reach = float(ndtri(0.5 + confidence / 2)) * math.sqrt(
        _difference_variance(marginals, i, j, k, given) / num_rows
    )
    there = within if is_collider else without
    near_zero = margin - reach <= 0 or there.p_value > level
    return TripleStrength(
        triple, is_collider, without, within, margin, margin - reach, margin + reach, near_zero
    )


def _difference_variance(marginals: Marginals, i: int, j: int, k: int, given: int) -> float:
    """Variance over rows of log-ratio(i, k | given, j) - log-ratio(i, k | given): that of the
    difference of informations, times n.
    """
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
