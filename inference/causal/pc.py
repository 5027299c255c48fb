"""PC algorithm on a table of profile probabilities, with conservative orientation.

Arrows are drawn conservatively (Ramsey, Spirtes and Zhang 2006, UAI 22, arXiv:1206.6843). Of i - j
- k with i and k not adjacent, every set of attributes next to i or k that separates these two is
asked whether it holds j. Where none does, j is a common effect, where all do it is none, and where
they disagree the triple is *ambiguous*; so are two common effects that would turn one edge both
ways, at least one of which is an error. An ambiguous triple points at nothing, a disputed edge
stays a line, and Meek's rules argue from neither. Given exact independences no triple is ambiguous,
and the graph is that of the plain algorithm.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inference.base.drawing import draw
from inference.causal.graphs import Cpdag, as_names
from inference.causal.independence import Dependence, dependence
from inference.causal.pdags import (
    Pdag,
    class_of,
    extension_of,
    mask_of,
    meek_closure,
    members,
    parents_reversed,
)
from inference.causal.tables import Marginals, as_table, check_rows
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import check_number, check_size


@dataclass(frozen=True)
class Conflict:
    """Two colliders that dispute the direction of one edge.

    Args:
        edge: (smaller, larger).
        first, second: the colliders (i, j, k) with i -> j <- k, one pointing each way along the
            edge.
    """

    edge: tuple[int, int]
    first: tuple[int, int, int]
    second: tuple[int, int, int]


@shows_briefly
@dataclass(frozen=True)
class PcResult:
    """Result of the PC algorithm.

    Args:
        graph: arrows and lines; an edge whose direction is disputed is a line. Picture and text are
            made from it and ``open_lines``.
        independences: for each pair without an edge the test that took it away.
        colliders: (i, j, k) with i -> j <- k, as the separating sets say.
        conflicts: colliders that dispute an edge.
        ambiguous: (i, j, k), i < k, of which the tests do not agree whether i -> j <- k: sets that
            separate i and k with j and without it, or a collider that another one disputes.
        is_class: whether the graph is the CPDAG of a DAG. If not, the tests contradict each other,
            and no DAG has all of these independences.
        num_rows: that the table was taken to be worth.
        level: of each test; None where a cutoff decided.
        num_tests: independences tested.
    """

    graph: Cpdag
    independences: tuple[Dependence, ...]
    colliders: tuple[tuple[int, int, int], ...]
    conflicts: tuple[Conflict, ...]
    is_class: bool
    num_rows: float
    level: float | None
    num_tests: int
    ambiguous: tuple[tuple[int, int, int], ...]

    @property
    def open_lines(self) -> np.ndarray:
        """Lines in an ambiguous triple, bool (K, K), symmetric.

        No rows told their direction, which is not to say that both fit alike.
        """
        matrix = np.zeros(self.graph.matrix.shape, dtype=bool)
        for i, j, k in self.ambiguous:
            matrix[[i, j, k, j], [j, i, j, k]] = True
        return matrix & self.graph.matrix & self.graph.matrix.T

    def text(self) -> str:
        """The graph, what was found independent, and where the tests contradict each other."""
        names = self.graph.names
        rule = "a fixed cutoff" if self.level is None else f"tests at level {self.level:g}"
        lines = [
            f"PC with {rule}, a table worth {self.num_rows:,.0f} rows, {self.num_tests}"
            " independences tested.",
            "",
            self.graph.text(self.open_lines),
        ]
        if self.independences:
            lines += ["", "Pairs without an edge:"]
        for found in self.independences:
            given = " given " + ", ".join(names[k] for k in found.given) if found.given else ""
            lines.append(
                f"  {names[found.first]} and {names[found.second]}{given}: information"
                f" {found.information:.2g} nats, p = {found.p_value:.2g}."
            )
        for conflict in self.conflicts:
            (a, b), shown = conflict.edge, []
            for i, j, k in (conflict.first, conflict.second):
                shown.append(f"{names[i]} → {names[j]} ← {names[k]}")
            lines.append(
                f"The direction of {names[a]} — {names[b]} is disputed: {shown[0]} against"
                f" {shown[1]}. It is left open."
            )
        disputing = {
            triple for conflict in self.conflicts for triple in (conflict.first, conflict.second)
        }
        for i, j, k in self.ambiguous:
            if (i, j, k) not in disputing and (self.open_lines[i, j] or self.open_lines[j, k]):
                lines.append(
                    f"Whether {names[i]} and {names[k]} both point at {names[j]} is ambiguous: they"
                    " are independent given some sets with it, and given some without it."
                )
        if not self.is_class:
            lines.append(
                "No graph of causes has exactly these independences: some tests err, for want of"
                " rows or of faithfulness. Trust a search by score more."
            )
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """The graph as a picture; see :func:`inference.plots.causal.plot_causal_graph`."""
        return draw("plot_causal_graph", self.graph, open_arrows=self.open_lines, ax=ax)


def pc(
    table: Any,
    num_rows: float,
    *,
    level: float | None = 0.05,
    cutoff: float | None = None,
    max_given: int | None = None,
    names: Sequence[str] | None = None,
) -> PcResult:
    r"""PC algorithm (Spirtes and Glymour 1991) by conditional mutual information.

    Pairs are tested given sets of 0, 1, 2, ... of the attributes next to either of them. They are
    taken to be independent where :math:`2 n I(X; Y \mid Z)` stays below the chi-square quantile of
    the level, with the degrees of freedom of :mod:`inference.causal.independence`. The graph that
    conditioning sets come from changes only between sizes, and of several sets that separate a pair
    the one with the largest p-value is recorded, so that the order of the attributes does not
    matter (Colombo and Maathuis 2014, JMLR 15). Colliders of which all separating sets agree, and
    that no other one disputes, are drawn; Meek's rules point at the rest, from what is neither
    ambiguous nor disputed.

    Args:
        table: profile probabilities, (2^K,) or (2, ..., 2).
        num_rows: n, the effective sample size; see :func:`inference.causal.rows.effective_rows`.
        level: of each test; None with a ``cutoff``.
        cutoff: nats below which a pair counts as independent, whatever n (as in the manuscript,
            which prints :math:`n^{-2.01}`); None for tests.
        max_given: the largest conditioning set; None for any.
        names: of the attributes.

    Raises:
        ValueError: for what is no table, a number of rows below 1, a level outside (0, 1), a
            negative cutoff, or not exactly one of the two.
    """
    checked, rows = as_table("pc", table), check_rows("pc", num_rows)
    num_attributes = len(checked).bit_length() - 1
    if (level is None) == (cutoff is None):
        raise ValueError(
            f"pc: give a level or a cutoff (level=None), got level={level!r} and cutoff={cutoff!r}"
        )
    if level is not None:
        check_number("pc", "level", level, "lie in (0, 1)", above=0, below=1)
    if cutoff is not None:
        check_number("pc", "cutoff", cutoff, "be a number that is not negative", least=0)
    if max_given is not None:
        check_size("pc", "max_given", max_given, least=0)
    labels = as_names("pc", names, num_attributes)
    tests = _Tests(Marginals(checked), rows, level, cutoff, max_given)
    found, adjacent = _separate(tests)
    colliders, mixed = _colliders(tests, found, adjacent)
    graph, conflicts, ambiguous = _point(adjacent, colliders, mixed)
    extension = extension_of(graph)
    is_class = extension is not None and not conflicts and class_of(extension) == graph
    apart = tuple(found[pair] for pair in sorted(found))
    return PcResult(
        Cpdag(graph.matrix, labels),
        apart,
        tuple(colliders),
        conflicts,
        is_class,
        rows,
        level,
        len(tests.done),
        tuple(ambiguous),
    )


@dataclass
class _Tests:
    """Independences of one table, each tested once."""

    marginals: Marginals
    num_rows: float
    level: float | None
    cutoff: float | None
    max_given: int | None
    done: dict[tuple[int, int, int], Dependence] = field(default_factory=dict)

    def of(self, i: int, k: int, given: int) -> Dependence:
        if (i, k, given) not in self.done:
            self.done[i, k, given] = dependence(self.marginals, self.num_rows, i, k, given)
        return self.done[i, k, given]

    def separates(self, test: Dependence) -> bool:
        return (
            test.p_value > self.level
            if self.level is not None
            else test.information < (self.cutoff or 0.0)
        )

    def of_size(self, i: int, k: int, num_given: int, adjacent: Sequence[int]) -> list[Dependence]:
        """Tests of a pair given all sets of one size of attributes next to either."""
        sets = {
            mask_of(chosen)
            for own, other in ((i, k), (k, i))
            for chosen in itertools.combinations(members(adjacent[own] & ~(1 << other)), num_given)
        }
        return [self.of(i, k, given) for given in sorted(sets)]


def _separate(tests: _Tests) -> tuple[dict[tuple[int, int], Dependence], list[int]]:
    """Independent pairs with the test that says so, and the adjacencies in the end."""
    size = tests.marginals.num_attributes
    adjacent = [2**size - 1 & ~(1 << k) for k in range(size)]
    found: dict[tuple[int, int], Dependence] = {}
    num_given = 0
    while tests.max_given is None or num_given <= tests.max_given:
        before, tried = list(adjacent), False
        for i, k in itertools.combinations(range(size), 2):
            if not before[i] >> k & 1:
                continue
            every = tests.of_size(i, k, num_given, before)
            tried = tried or bool(every)
            apart = [test for test in every if tests.separates(test)]
            if apart:
                rank = [
                    test.p_value if tests.level is not None else -test.information for test in apart
                ]
                first = next(n for n, value in enumerate(rank) if value >= max(rank) - 1e-12)
                found[i, k] = apart[first]
                adjacent[i] &= ~(1 << k)
                adjacent[k] &= ~(1 << i)
        if not tried:
            break
        num_given += 1
    return found, adjacent


Triples = list[tuple[int, int, int]]


def _colliders(
    tests: _Tests, found: dict[tuple[int, int], Dependence], adjacent: list[int]
) -> tuple[Triples, Triples]:
    """Triples (i, j, k), i < k not adjacent: colliders by all separating sets, and mixed."""
    colliders, mixed = [], []
    for (i, k), first in sorted(found.items()):
        middles = members(adjacent[i] & adjacent[k])
        if not middles:
            continue
        most = max(adjacent[i].bit_count(), adjacent[k].bit_count())
        sizes = range((most if tests.max_given is None else min(most, tests.max_given)) + 1)
        apart = [
            test
            for size in sizes
            for test in tests.of_size(i, k, size, adjacent)
            if tests.separates(test)
        ]
        for j in middles:
            holds = {j in test.given for test in (first, *apart)}
            if holds == {False}:
                colliders.append((i, j, k))
            elif len(holds) > 1:
                mixed.append((i, j, k))
    return sorted(colliders), sorted(mixed)


def _point(
    adjacent: list[int], colliders: Triples, mixed: Triples
) -> tuple[Pdag, tuple[Conflict, ...], Triples]:
    """Arrows of undisputed colliders and of Meek's rules; conflicts; ambiguous triples."""
    says: dict[tuple[int, int], Triples] = {}
    for i, j, k in colliders:
        for end in (i, k):
            says.setdefault((end, j), []).append((i, j, k))
    disputed = sorted(pair for pair in says if pair[0] < pair[1] and pair[::-1] in says)
    conflicts = tuple(Conflict(pair, says[pair][0], says[pair[::-1]][0]) for pair in disputed)
    ambiguous = sorted(
        {*mixed, *(triple for pair in disputed for triple in (*says[pair], *says[pair[::-1]]))}
    )
    parents, kept = [0] * len(adjacent), [0] * len(adjacent)
    doubtful: dict[int, list[tuple[int, int]]] = {}
    for i, j, k in ambiguous:
        doubtful.setdefault(j, []).append((i, k))
    for i, j, k in set(colliders).difference(ambiguous):
        parents[j] |= 1 << i | 1 << k
    for a, b in disputed:
        kept[a] |= 1 << b
        kept[b] |= 1 << a
    children = parents_reversed(parents)
    lines = tuple(
        around & ~p & ~c for around, p, c in zip(adjacent, parents, children, strict=True)
    )
    return meek_closure(Pdag(tuple(parents), lines), doubtful, kept), conflicts, ambiguous
