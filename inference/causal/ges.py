r"""Greedy equivalence search: steps that insert, delete or turn one edge of a class.

With Pa, Ne, Ad the parents, neighbours by lines and adjacent nodes of a node in the CPDAG, and
:math:`NA = Ne(y) \cap Ad(x)`:

insert, of x, y that are apart and T in Ne(y) \\ Ad(x)
    valid when NA + T is a clique and blocks each semi-directed path y~>x;
    gain s(y, NA+T+Pa(y)+x) - s(y, NA+T+Pa(y)).
delete, of x -> y or x - y and H in NA
    valid when NA \\ H is a clique; gain s(y, NA\\H+Pa(y)\\x) - s(y, NA\\H+Pa(y)+x).
turn, of y -> x, which becomes x -> y, and NA in C in Ne(y)
    valid when C is a clique and, with Ne(x), blocks each other path y~>x;
    gain s(y, C+Pa(y)+x) - s(y, C+Pa(y)) + s(x, Pa(x)\\y) - s(x, Pa(x)).
turn, of y - x, which becomes x -> y, and C in Ne(y) \\ x
    valid when C is a clique, not within Ad(x), and C * Ad(x) blocks all paths among Ne(y) from
    C \\ Ad(x) to NA \\ C; gain s(y, C+Pa(y)+x) - s(y, C+Pa(y)) + s(x, Pa(x)+D) - s(x, Pa(x)+D+y)
    with D = C * NA.

Sources: Chickering (2002), JMLR 3, 507-554 (insert, delete); Hauser and Buehlmann (2012), JMLR 13,
2409-2464 (turn). The graph after a step is made anew: a DAG that extends it (Dor and Tarsi 1992),
and the CPDAG of that. Where edges are known the search starts at the required ones, and takes only
steps to classes some of whose DAGs agree; in the end it draws what those have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from inference.causal.knowledge import Constraints
from inference.causal.pdags import (
    Pdag,
    all_adjacent,
    class_of,
    extension_of,
    members,
    semi_directed_path,
    subsets,
)
from inference.causal.scores import Found, LocalScores, Score, SetScores
from ppl_models.parts.validation import check_flag


@dataclass(frozen=True)
class Step:
    """A valid change of a class.

    Args:
        gain: what the score grows by.
        parents, neighbours: the changed graph, not yet completed.
    """

    gain: float
    parents: tuple[int, ...]
    neighbours: tuple[int, ...]

    def graph(self) -> Pdag:
        """The class that it leads to."""
        extension = extension_of(Pdag(self.parents, self.neighbours))
        if extension is None:
            raise RuntimeError("a valid step led to a graph without a consistent extension")
        return class_of(extension)


def insertions(graph: Pdag, scores: LocalScores, least: float) -> Iterator[Step]:
    """Valid insertions that gain at least so much."""
    children, adjacent, lines = graph.children, graph.adjacent, graph.neighbours
    nodes = range(len(lines))
    for y in nodes:
        for x in nodes:
            if x == y or adjacent[y] >> x & 1:
                continue
            shared = lines[y] & adjacent[x]
            if not all_adjacent(shared, adjacent):
                continue
            for turned in subsets(lines[y] & ~adjacent[x]):
                clique = shared | turned
                without = clique | graph.parents[y]
                gain = scores.local(y, without | 1 << x) - scores.local(y, without)
                if (
                    gain < least
                    or not all_adjacent(clique, adjacent)
                    or semi_directed_path(children, lines, y, x, clique)
                ):
                    continue
                yield _directed(gain, graph, y, turned, {y: 1 << x})


def deletions(graph: Pdag, scores: LocalScores, least: float) -> Iterator[Step]:
    """Valid deletions that gain at least so much (a loss is a negative gain)."""
    adjacent, lines = graph.adjacent, graph.neighbours
    for y in range(len(lines)):
        for x in members(graph.parents[y] | lines[y]):
            shared = lines[y] & adjacent[x]
            for turned in subsets(shared):
                clique = shared & ~turned
                without = (clique | graph.parents[y]) & ~(1 << x)
                gain = scores.local(y, without) - scores.local(y, without | 1 << x)
                if gain < least or not all_adjacent(clique, adjacent):
                    continue
                parents, neighbours = list(graph.parents), list(lines)
                parents[y] &= ~(1 << x)
                neighbours[y] &= ~(1 << x)
                neighbours[x] &= ~(1 << y)
                for h in members(turned):  # y -> h, and x -> h where that was a line
                    _point(parents, neighbours, y, h)
                    if neighbours[x] >> h & 1:
                        _point(parents, neighbours, x, h)
                yield Step(gain, tuple(parents), tuple(neighbours))


def turnings(graph: Pdag, scores: LocalScores, least: float) -> Iterator[Step]:
    """Valid turnings that gain at least so much."""
    children, adjacent, lines = graph.children, graph.adjacent, graph.neighbours
    for y in range(len(lines)):
        for x in members(children[y]):
            yield from _turned_arrows(graph, scores, least, x, y, children, adjacent)
        for x in members(lines[y]):
            yield from _turned_lines(graph, scores, least, x, y, adjacent)


def _turned_arrows(
    graph: Pdag,
    scores: LocalScores,
    least: float,
    x: int,
    y: int,
    children: Sequence[int],
    adjacent: list[int],
) -> Iterator[Step]:
    lines, parents = graph.neighbours, graph.parents
    shared = lines[y] & adjacent[x]
    lost = scores.local(x, parents[x] & ~(1 << y)) - scores.local(x, parents[x])
    for turned in subsets(lines[y] & ~adjacent[x]):
        clique = shared | turned
        without = clique | parents[y]
        gain = scores.local(y, without | 1 << x) - scores.local(y, without) + lost
        if gain < least or not all_adjacent(clique, adjacent):
            continue
        blocked = (clique | lines[x]) & ~(1 << x)
        if semi_directed_path(children, lines, y, x, blocked, not_first=1 << x):
            continue
        own = list(parents)
        own[x] &= ~(1 << y)
        yield _directed(gain, Pdag(tuple(own), lines), y, clique, {y: 1 << x})


def _turned_lines(
    graph: Pdag, scores: LocalScores, least: float, x: int, y: int, adjacent: list[int]
) -> Iterator[Step]:
    lines, parents = graph.neighbours, graph.parents
    shared = lines[y] & adjacent[x]
    for clique in subsets(lines[y] & ~(1 << x)):
        beyond, both = clique & ~adjacent[x], clique & shared
        if not beyond or not all_adjacent(clique, adjacent):
            continue
        without, own = clique | parents[y], both | parents[x]
        gain = (
            scores.local(y, without | 1 << x)
            - scores.local(y, without)
            + scores.local(x, own)
            - scores.local(x, own | 1 << y)
        )
        if gain < least or _joined(lines, beyond, shared & ~clique, lines[y] & ~both & ~(1 << x)):
            continue
        yield _directed(gain, graph, y, clique | 1 << x, {})


def _joined(lines: Sequence[int], start: int, goal: int, inside: int) -> bool:
    """Lines that lead from one set to another within a third."""
    seen = new = start
    while new:
        if new & goal:
            return True
        further = 0
        for k in members(new):
            further |= lines[k]
        new = further & inside & ~seen
        seen |= new
    return False


def _directed(gain: float, graph: Pdag, y: int, turned: int, added: dict[int, int]) -> Step:
    """Lines of y to a set become arrows into y, and arrows are added."""
    parents, neighbours = list(graph.parents), list(graph.neighbours)
    for t in members(turned):
        _point(parents, neighbours, t, y)
    for node, mask in added.items():
        parents[node] |= mask
    return Step(gain, tuple(parents), tuple(neighbours))


def _point(parents: list[int], neighbours: list[int], a: int, b: int) -> None:
    """The line a - b becomes a -> b."""
    neighbours[a] &= ~(1 << b)
    neighbours[b] &= ~(1 << a)
    parents[b] |= 1 << a


@dataclass(frozen=True)
class GES:
    """Greedy search over classes: insertions, deletions, turnings until nothing gains.

    Given the exact table of a distribution that is faithful to a DAG, and rows enough, it ends in
    the class of that DAG (Chickering 2002). On an estimated table it may end in a local optimum;
    :class:`~inference.causal.exact.ExactSearch` does not.

    Of steps that gain the same up to rounding the first counts, ordered by the node pointed at,
    then the other node, then the set of turned lines as an integer; the record says how often that
    decided, and which classes of the same score lie next to the result.

    Args:
        turning: whether to turn edges; without, one round of insertions and one of deletions.

    Raises:
        ValueError: unless ``turning`` is True or False.
    """

    turning: bool = True

    def __post_init__(self) -> None:
        check_flag("GES", "turning", self.turning)

    def best(
        self, table: np.ndarray, num_rows: float, score: Score, known: Constraints | None = None
    ) -> Found:
        """Best class for one table (2^K,) that sums to one, within what is known."""
        scores = SetScores(table, num_rows, score)
        known = Constraints.none(scores.num_attributes) if known is None else known
        graph, tied = self.climb(scores, known)
        total, slack = scores.total(extension_of(graph) or ()), scores.tolerance
        near = (
            step.graph()
            for phase in (insertions, deletions, turnings)
            for step in phase(graph, scores, -slack)
            if step.gain <= slack
        )
        equal = {other: None for found in near if (other := known.restrict(found)) is not None}
        drawn = known.restrict(graph) or graph
        equal.pop(drawn, None)
        return Found(drawn, total, tuple(equal), False, False, tied)

    def best_of_each(
        self, tables: np.ndarray, num_rows: float, score: Score, known: Constraints | None = None
    ) -> list[Pdag]:
        """Best class for each of several tables (B, 2^K)."""
        out = []
        for table in tables:
            scores = SetScores(table, num_rows, score)
            own = Constraints.none(scores.num_attributes) if known is None else known
            graph = self.climb(scores, own)[0]
            out.append(own.restrict(graph) or graph)
        return out

    def climb(
        self, scores: LocalScores, known: Constraints, start: Pdag | None = None
    ) -> tuple[Pdag, int]:
        """CPDAG that the search ends in, and the steps at which another promised as much.

        Args:
            scores: of families.
            known: what the graph must agree with.
            start: the CPDAG that it begins at; None for that of the required edges alone.
        """
        graph = class_of(known.required) if start is None else start
        phases = [insertions, deletions, *([turnings] if self.turning else [])]
        tied, moved = 0, True
        while moved:
            moved = False
            for phase in phases:
                while (step := _best_step(graph, scores, phase, known)) is not None:
                    graph, was_tied = step
                    tied, moved = tied + was_tied, self.turning
        return graph, tied


def _best_step(
    graph: Pdag,
    scores: LocalScores,
    phase: Callable[[Pdag, LocalScores, float], Iterator[Step]],
    known: Constraints,
) -> tuple[Pdag, bool] | None:
    """Class after the best step of a phase, and a tie with another; None if none gains."""
    steps = list(phase(graph, scores, scores.tolerance))
    while steps:
        least = max(step.gain for step in steps) - scores.tolerance
        best = [step.graph() for step in steps if step.gain >= least]
        agree = [found for found in best if known.restrict(found) is not None]
        if agree:
            return agree[0], any(other != agree[0] for other in agree[1:])
        steps = [step for step in steps if step.gain < least]
    return None
