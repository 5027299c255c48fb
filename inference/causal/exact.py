r"""The DAG with the largest score of all, by dynamic programming over sets of attributes.

A DAG on a set C has a last attribute i, whose parents lie in the rest (Silander and Myllymaki 2006,
UAI 22):

.. math:: R(C) = \max_{i \in C} \Big[ R(C \setminus i) + b_i(C \setminus i) \Big], \quad
          b_i(C) = \max\Big(s(i, C), \max_{j \in C} b_i(C \setminus j)\Big) .

Both run over all sets as arrays, and over a batch of tables at once: :math:`K 2^K` numbers a table,
3^K cells to score. Fifteen attributes take seconds, twenty a gigabyte and minutes unless the number
of parents is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inference.causal.knowledge import Constraints
from inference.causal.pdags import Pdag, members
from inference.causal.scores import Found, Score, all_set_scores, tie_tolerance
from ppl_models.parts.validation import check_size, plain_fields

MOST_FOR_TIES = 10  # attributes; beyond, the sets that ties must be traced through are too many
MOST_TIES = 64
CELLS = 2**24  # numbers in one batch


@dataclass(frozen=True)
class ExactSearch:
    """Class with the largest score of all DAGs; up to ten attributes, all that share it.

    Of parent sets that score the same up to rounding the smaller is taken, of last attributes the
    one with the smallest number.

    Args:
        max_parents: the most parents of an attribute; None for any number. With more than about 15
            attributes give one.

    Raises:
        ValueError: unless ``max_parents`` is a non-negative integer or None.
    """

    max_parents: int | None = None

    def __post_init__(self) -> None:
        plain_fields(self)
        if self.max_parents is not None:
            check_size("ExactSearch", "max_parents", self.max_parents, least=0)

    def best(
        self, table: np.ndarray, num_rows: float, score: Score, known: Constraints | None = None
    ) -> Found:
        """Best class for one table (2^K,) that sums to one, within what is known.

        Raises:
            ValueError: for an attribute with more required parents than ``max_parents``.
        """
        programme = _Programme(table[None], num_rows, score, self.max_parents, known)
        graph = programme.known.graph_of(programme.parents()[0])
        total = float(programme.reached[0, -1])
        optimal = self.max_parents is None or self.max_parents >= programme.num_attributes - 1
        if programme.num_attributes > MOST_FOR_TIES:
            return Found(graph, total, (), False, optimal)
        classes, complete = programme.optimal_classes()
        return Found(
            graph, total, tuple(other for other in classes if other != graph), complete, optimal
        )

    def best_of_each(
        self, tables: np.ndarray, num_rows: float, score: Score, known: Constraints | None = None
    ) -> list[Pdag]:
        """Best class for each of several tables (B, 2^K)."""
        num_attributes = tables.shape[1].bit_length() - 1
        size = max(1, CELLS // (num_attributes * tables.shape[1]))
        graphs: dict[tuple[int, ...], Pdag] = {}
        found = []
        for start in range(0, len(tables), size):
            part = tables[start : start + size]
            programme = _Programme(part, num_rows, score, self.max_parents, known)
            for parents in programme.parents():
                if parents not in graphs:
                    graphs[parents] = programme.known.graph_of(parents)
                found.append(graphs[parents])
        return found


class _Programme:
    """The two recursions for a batch of tables (B, 2^K)."""

    def __init__(
        self,
        tables: np.ndarray,
        num_rows: float,
        score: Score,
        max_parents: int | None,
        known: Constraints | None,
    ) -> None:
        self.num_attributes = k = tables.shape[1].bit_length() - 1
        self.known = Constraints.none(k) if known is None else known
        needed = max(mask.bit_count() for mask in self.known.required)
        if max_parents is not None and needed > max_parents:
            raise ValueError(
                f"ExactSearch: max_parents = {max_parents}, and the background knowledge requires"
                f" {needed} parents of one attribute"
            )
        self.tolerance = tie_tolerance(num_rows)
        most = k if max_parents is None else min(max_parents + 1, k)
        sets = all_set_scores(tables, num_rows, score, most)
        places = np.arange(2**k)
        sizes = _bit_counts(k)
        self.local: list[np.ndarray] = []
        self.value: list[np.ndarray] = []
        self.choice: list[np.ndarray] = []
        for i in range(k):
            allowed = (places >> i & 1 == 0) & (sizes < most) & self.known.parent_sets(i, places)
            local = np.full(sets.shape, -np.inf)
            local[:, allowed] = sets[:, places[allowed] | 1 << i] - sets[:, allowed]
            value, choice = self._best_subsets(local, i)
            self.local.append(local)
            self.value.append(value)
            self.choice.append(choice)
        self._run(sizes)

    def _best_subsets(self, local: np.ndarray, i: int) -> tuple[np.ndarray, np.ndarray]:
        """b_i over all sets, and the set of parents that attains it."""
        value = local.copy()
        choice = np.broadcast_to(np.arange(local.shape[1], dtype=np.int32), local.shape).copy()
        for j in range(self.num_attributes):
            if j == i:
                continue
            values = value.reshape(len(value), -1, 2, 2**j)  # [..., 1, :] has attribute j
            choices = choice.reshape(values.shape)
            better = values[:, :, 0] >= values[:, :, 1] - self.tolerance
            np.copyto(values[:, :, 1], values[:, :, 0], where=better)
            np.copyto(choices[:, :, 1], choices[:, :, 0], where=better)
        return value, choice

    def _run(self, sizes: np.ndarray) -> None:
        """R over all sets, by size, and the last attribute of each."""
        shape = self.value[0].shape
        self.reached = np.zeros(shape)
        self.last = np.zeros(shape, dtype=np.int8)
        for size in range(1, self.num_attributes + 1):
            layer = np.flatnonzero(sizes == size)
            best = np.full((shape[0], len(layer)), -np.inf)
            last = np.zeros(best.shape, dtype=np.int8)
            for i in range(self.num_attributes):
                inside = np.flatnonzero(layer >> i & 1)
                before = layer[inside] ^ 1 << i
                found = self.reached[:, before] + self.value[i][:, before]
                better = found > best[:, inside] + self.tolerance
                best[:, inside] = np.where(better, found, best[:, inside])
                last[:, inside] = np.where(better, i, last[:, inside])
            self.reached[:, layer], self.last[:, layer] = best, last

    def parents(self) -> list[tuple[int, ...]]:
        """Parents of each attribute in the best DAG of each table."""
        batch = np.arange(len(self.reached))
        left = np.full(len(batch), 2**self.num_attributes - 1)
        found = np.zeros((len(batch), self.num_attributes), dtype=np.int64)
        for _ in range(self.num_attributes):
            i = self.last[batch, left].astype(np.int64)
            left = left ^ 1 << i
            found[batch, i] = np.stack(self.choice)[i, batch, left]
        return [tuple(int(mask) for mask in row) for row in found]

    def optimal_classes(self) -> tuple[list[Pdag], bool]:
        """Classes with the largest score, for a batch of one, and completeness of the list.

        Two DAGs of one class on C stay in one class when the same attribute with the same parents
        is put last. So classes on C need one DAG each, and those on a larger set follow from them.
        """
        known: dict[int, dict[tuple, tuple[int, ...]]] = {0: {((), ()): (0,) * self.num_attributes}}
        complete = True
        for whole in self._sets_on_the_way():
            own: dict[tuple, tuple[int, ...]] = {}
            for i in members(whole):
                rest = whole ^ 1 << i
                value = float(self.value[i][0, rest])
                if self.reached[0, rest] + value < self.reached[0, whole] - self.tolerance:
                    continue
                inside = np.flatnonzero(self.local[i][0] >= value - self.tolerance)
                for mask in inside[inside & ~rest == 0]:
                    for (joined, heads), parents in known[rest].items():
                        key = _extended(joined, heads, i, int(mask))
                        if len(own) < MOST_TIES:
                            own.setdefault(key, (*parents[:i], int(mask), *parents[i + 1 :]))
                        elif key not in own:
                            complete = False
            known[whole] = own
        return [
            self.known.graph_of(parents) for parents in known[2**self.num_attributes - 1].values()
        ], complete

    def _sets_on_the_way(self) -> list[int]:
        """Sets that an optimal DAG builds up through, the smaller first."""
        whole = 2**self.num_attributes - 1
        seen, new = {whole}, [whole]
        while new:
            current = new.pop()
            for i in members(current):
                rest = current ^ 1 << i
                reached = self.reached[0, rest] + self.value[i][0, rest]
                if rest not in seen and reached >= self.reached[0, current] - self.tolerance:
                    seen.add(rest)
                    new.append(rest)
        return sorted(seen - {0}, key=lambda mask: (mask.bit_count(), mask))


def _extended(joined: tuple, heads: tuple, i: int, parents: int) -> tuple:
    """Skeleton and v-structures once attribute i with its parents is put last."""
    pairs = set(joined)
    into = members(parents)
    new = {(a, i, b) for a in into for b in into if a < b and (a, b) not in pairs}
    return tuple(sorted(pairs | {(min(a, i), max(a, i)) for a in into})), tuple(
        sorted({*heads, *new})
    )


def _bit_counts(num_bits: int) -> np.ndarray:
    """Numbers of bits that are 1 in 0, 1, ..., 2^num_bits - 1."""
    counts = np.zeros(1, dtype=np.int64)
    for _ in range(num_bits):
        counts = np.concatenate([counts, counts + 1])
    return counts
