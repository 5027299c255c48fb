"""PC algorithm on a table of profile probabilities, with several rules of orientation.

Of i - j - k with i and k not adjacent, every set of attributes next to i or k that separates these
two is asked whether it holds j. With :math:`s` the share of those that do,

majority (the default; Colombo and Maathuis 2014, JMLR 15)
    i -> j <- k where s < 1/2, none where s > 1/2, ambiguous where s = 1/2.
conservative (Ramsey, Spirtes and Zhang 2006, UAI 22, arXiv:1206.6843)
    i -> j <- k where s = 0, none where s = 1, else ambiguous.
max (Ramsey 2016, arXiv:1610.00378)
    the set with the largest p-value decides, and nothing is ambiguous.
standard (Spirtes and Glymour 1991)
    the set that took the edge away decides, and nothing is ambiguous.

Two common effects that would turn one edge both ways, at least one of which is an error, are
ambiguous under every rule. An ambiguous triple points at nothing, a disputed edge stays a line, and
Meek's rules argue from neither. Given exact independences all rules give the same graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from inference.base.drawing import draw
from inference.causal.graphs import Cpdag, as_names
from inference.causal.independence import Dependence, dependence
from inference.causal.knowledge import BackgroundKnowledge, Constraints, constraints_of
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

Orientation = Literal["majority", "conservative", "max", "standard"]
ORIENTATIONS = ("majority", "conservative", "max", "standard")


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


@dataclass(frozen=True)
class AmbiguousTriple:
    """Triple i - j - k, i and k not adjacent, of which it is undecided whether i -> j <- k.

    Args:
        triple: (i, j, k), i < k.
        share: of the sets separating i and k that hold j; NaN where no set separates them.
        p_without, p_within: the largest p-value of a test of i and k given a set without j, and
            with it, whether it separates them or not; NaN where none was tested.
    """

    triple: tuple[int, int, int]
    share: float
    p_without: float
    p_within: float


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
        ambiguous: triples of which the rule leaves it undecided whether they are colliders, those
            that dispute an edge, and colliders that background knowledge rules out.
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
    ambiguous: tuple[AmbiguousTriple, ...]

    @property
    def open_lines(self) -> np.ndarray:
        """Lines in an ambiguous triple, bool (K, K), symmetric.

        No rows told their direction, which is not to say that both fit alike.
        """
        matrix = np.zeros(self.graph.matrix.shape, dtype=bool)
        for i, j, k in (found.triple for found in self.ambiguous):
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
        for undecided in self.ambiguous:
            i, j, k = undecided.triple
            if (i, j, k) not in disputing and (self.open_lines[i, j] or self.open_lines[j, k]):
                lines.append(
                    f"Whether {names[i]} and {names[k]} both point at {names[j]} is undecided:"
                    f" {undecided.share:.0%} of the sets that separate them hold {names[j]}"
                    f" (largest p {undecided.p_without:.2g} without it,"
                    f" {undecided.p_within:.2g} with it)."
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
    orientation: Orientation = "majority",
    knowledge: BackgroundKnowledge | None = None,
    names: Sequence[str] | None = None,
) -> PcResult:
    r"""PC algorithm (Spirtes and Glymour 1991) by conditional mutual information.

    Pairs are tested given sets of 0, 1, 2, ... of the attributes next to either of them. They are
    taken to be independent where :math:`2 n I(X; Y \mid Z)` stays below the chi-square quantile of
    the level, with the degrees of freedom of :mod:`inference.causal.independence`. The graph that
    conditioning sets come from changes only between sizes, and of several sets that separate a pair
    the one with the largest p-value is recorded, so that the order of the attributes does not
    matter (Colombo and Maathuis 2014, JMLR 15). Colliders by the rule of orientation that no other
    one disputes are drawn; Meek's rules point at the rest, from what is neither ambiguous nor
    disputed. Required edges are never taken away, pairs whose edge is forbidden both ways never
    joined, and known directions count before any test.

    Args:
        table: profile probabilities, (2^K,) or (2, ..., 2).
        num_rows: n, the effective sample size; see :func:`inference.causal.rows.effective_rows`.
        level: of each test; None with a ``cutoff``.
        cutoff: nats below which a pair counts as independent, whatever n (as in the manuscript,
            which prints :math:`n^{-2.01}`); None for tests.
        max_given: the largest conditioning set; None for any.
        orientation: the rule by which colliders are told; :mod:`inference.causal.pc` has them.
        knowledge: required and forbidden edges, and tiers.
        names: of the attributes.

    Raises:
        ValueError: for what is no table, a number of rows below 1, a level outside (0, 1), a
            negative cutoff, or not exactly one of the two; another rule of orientation; background
            knowledge that contradicts itself.
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
    if orientation not in ORIENTATIONS:
        raise ValueError(
            f"pc: orientation must be one of {', '.join(ORIENTATIONS)}, got {orientation!r}"
        )
    labels = as_names("pc", names, num_attributes)
    known = constraints_of("pc", knowledge, labels)
    tests = _Tests(Marginals(checked), rows, level, cutoff, max_given)
    found, adjacent = _separate(tests, known)
    triples = _triples(tests, found, adjacent, orientation)
    graph, colliders, conflicts, ambiguous = _point(adjacent, triples, known)
    extension = extension_of(graph)
    is_class = extension is not None and not conflicts
    is_class = is_class and known.restrict(class_of(extension or ())) == graph
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
        ambiguous,
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

    def rank(self, test: Dependence) -> float:
        """Evidence for independence: the p-value, or how small the information is."""
        return test.p_value if self.level is not None else -test.information

    def largest(self, tests: list[Dependence]) -> float:
        """The strongest evidence of several tests."""
        return max(map(self.rank, tests))

    def of_size(self, i: int, k: int, num_given: int, adjacent: Sequence[int]) -> list[Dependence]:
        """Tests of a pair given all sets of one size of attributes next to either."""
        sets = {
            mask_of(chosen)
            for own, other in ((i, k), (k, i))
            for chosen in itertools.combinations(members(adjacent[own] & ~(1 << other)), num_given)
        }
        return [self.of(i, k, given) for given in sorted(sets)]


def _separate(
    tests: _Tests, known: Constraints
) -> tuple[dict[tuple[int, int], Dependence], list[int]]:
    """Independent pairs with the test that says so, and the adjacencies in the end."""
    size = tests.marginals.num_attributes
    never = parents_reversed(known.excluded)
    always = parents_reversed(known.required)
    adjacent = [
        2**size - 1 & ~(1 << k) & ~(out & back)
        for k, (out, back) in enumerate(zip(known.excluded, never, strict=True))
    ]
    found: dict[tuple[int, int], Dependence] = {}
    num_given = 0
    while tests.max_given is None or num_given <= tests.max_given:
        before, tried = list(adjacent), False
        for i, k in itertools.combinations(range(size), 2):
            if not before[i] >> k & 1 or (known.required[i] | always[i]) >> k & 1:
                continue
            every = tests.of_size(i, k, num_given, before)
            tried = tried or bool(every)
            apart = [test for test in every if tests.separates(test)]
            if apart:
                first = next(
                    test for test in apart if tests.rank(test) >= tests.largest(apart) - 1e-12
                )
                found[i, k] = first
                adjacent[i] &= ~(1 << k)
                adjacent[k] &= ~(1 << i)
        if not tried:
            break
        num_given += 1
    return found, adjacent


@dataclass(frozen=True)
class _Triple:
    """Triple i - j - k and whether it is a collider: True, False, or None where undecided."""

    record: AmbiguousTriple
    is_collider: bool | None


def _triples(
    tests: _Tests,
    found: dict[tuple[int, int], Dependence],
    adjacent: list[int],
    orientation: Orientation,
) -> list[_Triple]:
    """Triples (i, j, k), i < k not adjacent, judged by one rule, ascending."""
    out = []
    for i, k in itertools.combinations(range(len(adjacent)), 2):
        middles = members(adjacent[i] & adjacent[k])
        if adjacent[i] >> k & 1 or not middles:
            continue
        most = max(adjacent[i].bit_count(), adjacent[k].bit_count())
        sizes = range((most if tests.max_given is None else min(most, tests.max_given)) + 1)
        every = [test for size in sizes for test in tests.of_size(i, k, size, adjacent)]
        first = found.get((i, k))
        if first is not None and first not in every:
            every.append(first)
        apart = [test for test in every if tests.separates(test)]
        for j in middles:
            holds = [j in test.given for test in apart]
            share = sum(holds) / len(holds) if holds else float("nan")
            p_values = [
                max((t.p_value for t in every if (j in t.given) == inside), default=float("nan"))
                for inside in (False, True)
            ]
            is_collider: bool | None = None
            if not apart:
                pass
            elif orientation == "majority":
                is_collider = None if share == 0.5 else share < 0.5
            elif orientation == "conservative":
                is_collider = None if 0 < share < 1 else share == 0
            elif orientation == "max" or first is None:
                is_collider = j not in max(apart, key=tests.rank).given
            else:
                is_collider = j not in first.given
            out.append(_Triple(AmbiguousTriple((i, j, k), share, *p_values), is_collider))
    return sorted(out, key=lambda triple: triple.record.triple)


def _point(
    adjacent: list[int], triples: list[_Triple], known: Constraints
) -> tuple[
    Pdag,
    list[tuple[int, int, int]],
    tuple[Conflict, ...],
    tuple[AmbiguousTriple, ...],
]:
    """Arrows of what is known, undisputed colliders and Meek's rules; what stays undecided."""
    lines = Pdag((0,) * len(adjacent), tuple(adjacent))
    pointed = known.pointed(lines)
    parents = list((lines if pointed is None else pointed).parents)
    colliders = [each.record.triple for each in triples if each.is_collider]
    says: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    refused = set()
    for i, j, k in colliders:
        if known.excluded[j] & (1 << i | 1 << k):
            refused.add((i, j, k))
            continue
        for end in (i, k):
            says.setdefault((end, j), []).append((i, j, k))
    disputed = sorted(pair for pair in says if pair[0] < pair[1] and pair[::-1] in says)
    conflicts = tuple(Conflict(pair, says[pair][0], says[pair[::-1]][0]) for pair in disputed)
    disputing = {t for pair in disputed for t in (*says[pair], *says[pair[::-1]])}
    given = {  # head to head by what is known, whatever the tests say
        (i, j, k)
        for i, j, k in (each.record.triple for each in triples)
        if parents[j] >> i & parents[j] >> k & 1
    }
    ambiguous = tuple(
        each.record
        for each in triples
        if each.record.triple not in given
        and (each.is_collider is None or each.record.triple in disputing | refused)
    )
    undecided = {found.triple for found in ambiguous}
    doubtful: dict[int, list[tuple[int, int]]] = {}
    for i, j, k in undecided:
        doubtful.setdefault(j, []).append((i, k))
    for i, j, k in set(colliders) - undecided - refused:
        parents[j] |= 1 << i | 1 << k
    kept = [0] * len(adjacent)
    for a, b in disputed:
        if not (parents[a] >> b | parents[b] >> a) & 1:
            kept[a] |= 1 << b
            kept[b] |= 1 << a
    children = parents_reversed(parents)
    rest = tuple(around & ~p & ~c for around, p, c in zip(adjacent, parents, children, strict=True))
    return (
        meek_closure(Pdag(tuple(parents), rest), doubtful, kept),
        colliders,
        conflicts,
        ambiguous,
    )
