"""The PC algorithm on a table of profile probabilities: independences tested one by one, edges taken away, colliders pointed at."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inference.causal.bits import mask_of, members
from inference.causal.graphs import Cpdag, as_names
from inference.causal.independence import Dependence, dependence
from inference.causal.pdags import Pdag, class_of, extension_of, meek_closure, parents_reversed
from inference.causal.tables import Marginals, as_table, check_rows
from ppl_models.parts.showing import shows_briefly
from ppl_models.parts.validation import check_size, is_number

__all__ = ["Conflict", "PcResult", "pc"]


@dataclass(frozen=True)
class Conflict:
    """Two colliders that dispute the direction of one edge.

    Args:
        edge: (smaller, larger).
        first, second: the colliders (i, j, k) with i -> j <- k, one pointing each way along the edge.
    """

    edge: tuple[int, int]
    first: tuple[int, int, int]
    second: tuple[int, int, int]


@shows_briefly
@dataclass(frozen=True)
class PcResult:
    """What PC made of a table.

    Args:
        graph: arrows and lines; an edge whose direction is disputed is a line.
        independences: for each pair without an edge the test that took it away.
        colliders: (i, j, k) with i -> j <- k, as the separating sets say.
        conflicts: colliders that dispute an edge.
        is_class: whether the graph is the CPDAG of a DAG. If not, the tests contradict each other, and no DAG has all of these independences.
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

    def text(self) -> str:
        """The graph, what was found independent, and where the tests contradict each other."""
        names = self.graph.names
        rule = "a fixed cutoff" if self.level is None else f"tests at level {self.level:g}"
        lines = [f"PC with {rule}, a table worth {self.num_rows:,.0f} rows, {self.num_tests} independences tested.", "", self.graph.text()]
        if self.independences:
            lines += ["", "Pairs without an edge:"]
        for found in self.independences:
            given = " given " + ", ".join(names[k] for k in found.given) if found.given else ""
            lines.append(f"  {names[found.first]} and {names[found.second]}{given}: information {found.information:.2g} nats, p = {found.p_value:.2g}.")
        for conflict in self.conflicts:
            (a, b), shown = conflict.edge, []
            for i, j, k in (conflict.first, conflict.second):
                shown.append(f"{names[i]} → {names[j]} ← {names[k]}")
            lines.append(f"The direction of {names[a]} — {names[b]} is disputed: {shown[0]} against {shown[1]}. It is left open.")
        if not self.is_class:
            lines.append("No graph of causes has exactly these independences: some tests err, for want of rows or of faithfulness. Trust a search by score more.")
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """The graph as a picture; see :func:`inference.plots.plot_causal_graph`."""
        return self.graph.plot(ax=ax)


def pc(
    table: Any,
    num_rows: float,
    *,
    level: float | None = 0.05,
    cutoff: float | None = None,
    max_given: int | None = None,
    names: Sequence[str] | None = None,
) -> PcResult:
    r"""The PC algorithm (Spirtes and Glymour 1991) with conditional mutual information from a table.

    Pairs are tested given sets of 0, 1, 2, ... of the attributes next to either of them. They are taken to be independent where
    :math:`2 n I(X; Y \mid Z)` stays below the chi-square quantile of the level, with the degrees of freedom of
    :mod:`inference.causal.independence`. The graph that conditioning sets come from changes only between sizes, and of several sets that separate a pair
    the one with the largest p-value counts, so that the order of the attributes does not matter (Colombo and Maathuis 2014, JMLR 15). A collider
    that another one disputes is not drawn along the disputed edge; Meek's rules point at the rest.

    Args:
        table: profile probabilities, (2^K,) or (2, ..., 2).
        num_rows: n, the effective sample size; see :func:`inference.causal.effective_rows`.
        level: of each test; None with a ``cutoff``.
        cutoff: nats below which a pair counts as independent, whatever n (as in the manuscript, which prints :math:`n^{-2.01}`); None for tests.
        max_given: the largest conditioning set; None for any.
        names: of the attributes.

    Raises:
        ValueError: for what is no table, a number of rows below 1, a level outside (0, 1), a negative cutoff, or not exactly one of the two.
    """
    checked, rows = as_table("pc", table), check_rows("pc", num_rows)
    num_attributes = len(checked).bit_length() - 1
    if (level is None) == (cutoff is None):
        raise ValueError(f"pc: give a level or a cutoff (level=None), got level={level!r} and cutoff={cutoff!r}")
    if level is not None and not (is_number(level) and 0 < level < 1):
        raise ValueError(f"pc: level must lie in (0, 1), got {level!r}")
    if cutoff is not None and not (is_number(cutoff) and cutoff >= 0):
        raise ValueError(f"pc: cutoff must be a number that is not negative, got {cutoff!r}")
    if max_given is not None:
        check_size("pc", "max_given", max_given, least=0)
    labels = as_names("pc", names, num_attributes)
    found, adjacent, num_tests = _separate(Marginals(checked), rows, level, cutoff, max_given)
    colliders = [
        (i, j, k)
        for (i, k), test in sorted(found.items())
        for j in members(adjacent[i] & adjacent[k])
        if j not in test.given
    ]
    graph, conflicts = _point(adjacent, colliders)
    extension = extension_of(graph)
    is_class = extension is not None and not conflicts and class_of(extension) == graph
    tests = tuple(found[pair] for pair in sorted(found))
    return PcResult(Cpdag(graph.matrix, labels), tests, tuple(sorted(colliders)), conflicts, is_class, rows, level, num_tests)


def _separate(
    marginals: Marginals, num_rows: float, level: float | None, cutoff: float | None, max_given: int | None
) -> tuple[dict[tuple[int, int], Dependence], list[int], int]:
    """The pairs found independent, with the test that says so, and what is adjacent in the end."""
    size = marginals.num_attributes
    adjacent = [2**size - 1 & ~(1 << k) for k in range(size)]
    found: dict[tuple[int, int], Dependence] = {}
    num_tests, num_given = 0, 0
    while max_given is None or num_given <= max_given:
        before, tried = list(adjacent), False
        for i, k in itertools.combinations(range(size), 2):
            if not before[i] >> k & 1:
                continue
            sets = {
                mask_of(chosen)
                for own, other in ((i, k), (k, i))
                for chosen in itertools.combinations(members(before[own] & ~(1 << other)), num_given)
            }
            tried = tried or bool(sets)
            tests = [dependence(marginals, num_rows, i, k, given) for given in sorted(sets)]
            num_tests += len(tests)
            apart = [t for t in tests if (t.p_value > level if level is not None else t.information < (cutoff or 0.0))]
            if apart:
                best = max(t.p_value for t in apart) if level is not None else -min(t.information for t in apart)
                found[i, k] = next(t for t in apart if (t.p_value if level is not None else -t.information) >= best - 1e-12)
                adjacent[i] &= ~(1 << k)
                adjacent[k] &= ~(1 << i)
        if not tried:
            break
        num_given += 1
    return found, adjacent, num_tests


def _point(adjacent: list[int], colliders: list[tuple[int, int, int]]) -> tuple[Pdag, tuple[Conflict, ...]]:
    """Arrows of undisputed colliders, then Meek's rules."""
    says: dict[tuple[int, int], tuple[int, int, int]] = {}
    for i, j, k in sorted(colliders):
        says.setdefault((i, j), (i, j, k))
        says.setdefault((k, j), (i, j, k))
    disputed = sorted(pair for pair in says if pair[0] < pair[1] and pair[::-1] in says)
    conflicts = tuple(Conflict(pair, says[pair], says[pair[::-1]]) for pair in disputed)
    parents = [0] * len(adjacent)
    for a, b in says:
        if (b, a) not in says:
            parents[b] |= 1 << a
    children = parents_reversed(parents)
    lines = tuple(around & ~p & ~c for around, p, c in zip(adjacent, parents, children, strict=True))
    return meek_closure(Pdag(tuple(parents), lines)), conflicts
