"""Partially directed graphs on few nodes: Meek's rules, consistent extensions, classes.

A set of attributes is an integer: attribute k is in it when bit k is 1. A graph is two tuples of
sets: the parents of each node, and its neighbours by lines. The functions on boolean matrices stand
in :mod:`inference.causal.graphs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


def members(mask: int) -> list[int]:
    """The attributes of a set, ascending."""
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out


def mask_of(attributes: Iterable[int]) -> int:
    """The set that holds the given attributes."""
    mask = 0
    for k in attributes:
        mask |= 1 << int(k)
    return mask


def subsets(mask: int) -> Iterator[int]:
    """Every subset of a set, the empty one first, ascending as integers."""
    subset = 0
    while True:
        yield subset
        if subset == mask:
            return
        subset = (subset - mask) & mask


def all_adjacent(mask: int, adjacent: list[int]) -> bool:
    """Pairwise adjacency of a set; ``adjacent[k]`` is the set of those next to k."""
    return all(mask & ~adjacent[k] == 1 << k for k in members(mask))


def masks_of_columns(matrix: np.ndarray) -> tuple[int, ...]:
    """Sets of rows that are True in each column of a boolean matrix (K, K).

    The parents, where [i, j] says i -> j.
    """
    return tuple(mask_of(np.flatnonzero(matrix[:, j])) for j in range(len(matrix)))


def matrix_of_columns(masks: Iterable[int]) -> np.ndarray:
    """The boolean matrix (K, K) whose column j is the set ``masks[j]``."""
    masks = tuple(masks)
    matrix = np.zeros((len(masks), len(masks)), dtype=bool)
    for j, mask in enumerate(masks):
        matrix[members(mask), j] = True
    return matrix


@dataclass(frozen=True)
class Pdag:
    """A graph of arrows and lines.

    Args:
        parents: for each node the set of those with an arrow into it.
        neighbours: for each node the set of those joined to it by a line.
    """

    parents: tuple[int, ...]
    neighbours: tuple[int, ...]

    @property
    def children(self) -> list[int]:
        """For each node the set of those that it has an arrow into."""
        return parents_reversed(self.parents)

    @property
    def matrix(self) -> np.ndarray:
        """The boolean matrix (K, K): [i, j] alone is an arrow i -> j, with [j, i] a line."""
        return matrix_of_columns(p | n for p, n in zip(self.parents, self.neighbours, strict=True))

    @property
    def adjacent(self) -> list[int]:
        """For each node the set of those joined to it in any way."""
        return [
            p | c | n for p, c, n in zip(self.parents, self.children, self.neighbours, strict=True)
        ]


def parents_reversed(parents: Sequence[int]) -> list[int]:
    """Children of each node from the parents of each, or the other way round."""
    children = [0] * len(parents)
    for j, mask in enumerate(parents):
        for i in members(mask):
            children[i] |= 1 << j
    return children


def order_of(parents: Sequence[int]) -> list[int] | None:
    """Topological order, the smallest node first; None where arrows run in a circle."""
    import networkx as nx

    try:
        return list(nx.lexicographical_topological_sort(nx.DiGraph(matrix_of_columns(parents))))
    except nx.NetworkXUnfeasible:
        return None


def class_of(parents: Sequence[int]) -> Pdag:
    """CPDAG of a DAG: v-structures and arrows by Meek's rules, else lines.

    Args:
        parents: of each node, without a circle.
    """
    adjacent = [p | c for p, c in zip(parents, parents_reversed(parents), strict=True)]
    kept = [0] * len(parents)
    for j, mask in enumerate(parents):
        for i in members(mask):
            if mask & ~adjacent[i] & ~(1 << i):  # another parent that i is not adjacent to
                kept[j] |= 1 << i
    reverse = parents_reversed(kept)
    lines = tuple(a & ~p & ~c for a, p, c in zip(adjacent, kept, reverse, strict=True))
    return meek_closure(Pdag(tuple(kept), lines))


def meek_closure(
    graph: Pdag,
    doubtful: Mapping[int, Sequence[tuple[int, int]]] | None = None,
    disputed: Sequence[int] | None = None,
) -> Pdag:
    r"""All arrows that Meek's four rules (1995) force, added.

    For a line a - b: (1) c -> a, c and b not adjacent; (2) a -> c -> b; (3) a - c -> b, a - d -> b,
    c and d not adjacent; (4) a - d, d -> c -> b, a and c adjacent, b and d not: each gives a -> b.
    Rule 4 never fires on the v-structures of a DAG; it needs knowledge from elsewhere. All rules
    are applied at once, round by round, and a line that they would turn both ways (no DAG has such
    a graph) stays a line: the numbers of the nodes do not matter.

    Args:
        graph: arrows and lines.
        doubtful: node -> pairs of its neighbours for which it is not known that they do not meet
            head to head there; rules 1 and 3 do not argue from them.
        disputed: node -> those of its neighbours by lines whose line is never turned, and argued
            from by no rule.
    """
    kept = [0] * len(graph.parents) if disputed is None else disputed
    parents, children, adjacent = list(graph.parents), graph.children, graph.adjacent
    lines = [own & ~mask for own, mask in zip(graph.neighbours, kept, strict=True)]
    unsure = {
        (a, *pair)
        for a, pairs in (doubtful or {}).items()
        for c, d in pairs
        for pair in ((c, d), (d, c))
    }

    def apart(candidates: int, other: int, at: int) -> bool:
        """A candidate not adjacent to the other node, and known not to meet it head to head."""
        found = candidates & ~adjacent[other] & ~(1 << other)
        return bool(found) and (
            not unsure or any((at, c, other) not in unsure for c in members(found))
        )

    def forced(a: int, b: int) -> bool:
        if apart(parents[a], b, a) or children[a] & parents[b]:
            return True
        both = lines[a] & parents[b]
        if any(apart(both, c, a) for c in members(both)):
            return True
        return any(lines[a] & parents[c] & ~adjacent[b] for c in members(adjacent[a] & parents[b]))

    while True:
        wanted = {(a, b) for a in range(len(parents)) for b in members(lines[a]) if forced(a, b)}
        wanted -= {(b, a) for a, b in wanted}
        if not wanted:
            break
        for a, b in wanted:
            lines[a] &= ~(1 << b)
            lines[b] &= ~(1 << a)
            parents[b] |= 1 << a
            children[a] |= 1 << b
    return Pdag(tuple(parents), tuple(own | mask for own, mask in zip(lines, kept, strict=True)))


def extension_of(graph: Pdag) -> tuple[int, ...] | None:
    """Parents of a DAG with the same skeleton, arrows and v-structures; None for none.

    The algorithm of Dor and Tarsi (1992).

    Node after node is taken away that has no arrow out of it and whose neighbours by lines are
    adjacent to all that is adjacent to it; its lines become arrows into it. Of several the one with
    the largest number goes first, so that lines point from smaller to larger numbers where they
    may.
    """
    children, adjacent = graph.children, graph.adjacent
    parents = list(graph.parents)
    left = (1 << len(parents)) - 1
    while left:
        for x in reversed(members(left)):
            around, lines = adjacent[x] & left, graph.neighbours[x] & left
            if not children[x] & left and all(
                not around & ~adjacent[y] & ~(1 << y) for y in members(lines)
            ):
                parents[x] |= lines
                left ^= 1 << x
                break
        else:
            return None
    return tuple(parents)


def semi_directed_path(
    children: Sequence[int],
    lines: Sequence[int],
    start: int,
    end: int,
    blocked: int,
    not_first: int = 0,
) -> bool:
    """Path from ``start`` to ``end`` along lines and arrows, past the blocked nodes.

    Args:
        children: of each node.
        lines: neighbours of each node by lines.
        start: first node.
        end: last node.
        blocked: nodes not to be entered.
        not_first: nodes not to be entered straight from the start.
    """
    reached = (children[start] | lines[start]) & ~blocked & ~not_first
    seen = reached | 1 << start
    while reached:
        if reached >> end & 1:
            return True
        further = 0
        for k in members(reached):
            further |= children[k] | lines[k]
        reached = further & ~blocked & ~seen
        seen |= reached
    return False
