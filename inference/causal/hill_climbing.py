r"""Scores of families from rows of drawn attributes, and hill climbing over DAGs with a tabu list.

With :math:`a^{(1)}, \dots, a^{(M)}` draws of the attributes of N rows, the expected counts of a
small set S are :math:`m_S(c) = \frac{n}{MN} \sum_{m, i} 1[a^{(m)}_{iS} = c]`, n being what the rows
are worth: no table of 2^K profiles is made. A family score is :math:`F(Pa \cup j) - F(Pa)`
(:mod:`inference.causal.scores`). For a family all sets with one parent more are counted together,
as one product of matrices.

The search adds, takes away or turns the arrow that gains most, also where the gain is negative, but
no arrow of the last pairs it changed; it ends where so many steps in a row brought nothing better
than the best DAG so far (Glover 1989, doi:10.1287/ijoc.1.3.190).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from inference.causal.knowledge import Constraints
from inference.causal.pdags import matrix_of_columns, members
from inference.causal.scores import Score, tie_tolerance

NUM_TABU = 20  # pairs
PATIENCE = 15  # steps without a better DAG
MOST_PARENTS = 4


class RowScores:
    """Family scores from rows of bits.

    Args:
        bits: 0/1, (D, K): the draws of all rows, one after another.
        num_rows: n that they are worth together.
        score: what to compute.
    """

    def __init__(self, bits: np.ndarray, num_rows: float, score: Score) -> None:
        self.bits, self.num_rows, self.score = bits, num_rows, score
        self.num_attributes = bits.shape[1]
        self.tolerance = tie_tolerance(num_rows)
        self._dense = bits.astype(np.float32)
        self._weight = num_rows / len(bits)
        self._local: dict[tuple[int, int], float] = {}
        self._gains: dict[tuple[int, int], np.ndarray] = {}

    def _codes(self, places: Sequence[int]) -> np.ndarray:
        codes = np.zeros(len(self.bits), dtype=np.int64)
        for k in places:
            codes = 2 * codes + self.bits[:, k]
        return codes

    def counts(self, mask: int) -> np.ndarray:
        """Expected counts of a set, (2^|S|,); its smallest attribute is the most significant."""
        places = members(mask)
        return np.bincount(self._codes(places), minlength=2 ** len(places)) * self._weight

    def local(self, attribute: int, parents: int) -> float:
        """The score of one attribute under a set of parents."""
        key = attribute, parents
        if key not in self._local:
            whole, size = parents | 1 << attribute, parents.bit_count()
            self._local[key] = float(
                self.score.of_set(self.counts(whole), size + 1, self.num_rows)
                - self.score.of_set(self.counts(parents), size, self.num_rows)
            )
        return self._local[key]

    def total(self, parents: Sequence[int]) -> float:
        """The score of a DAG given by the parents of each attribute."""
        return sum(self.local(k, mask) for k, mask in enumerate(parents))

    def gains(self, attribute: int, parents: int) -> np.ndarray:
        """Gain in the score of one attribute by each further parent, (K,).

        Minus infinity for the attribute and for its parents.
        """
        key = attribute, parents
        if key not in self._gains:
            places, size = members(parents), parents.bit_count()
            states = 2 ** (size + 1)
            codes = self._codes([*places, attribute])  # the attribute is the last bit
            order = np.argsort(codes, kind="stable")
            edges = np.searchsorted(codes[order], np.arange(states + 1))
            on = np.stack(
                [
                    self._dense[order[first:last]].sum(0, dtype=np.float64)
                    for first, last in zip(edges[:-1], edges[1:], strict=True)
                ]
            )
            off = np.diff(edges)[:, None] - on
            cells = np.stack([off, on], -1).transpose(1, 0, 2) * self._weight  # (K, states, 2)
            without = cells.reshape(len(cells), -1, 2, 2).sum(2)
            wide = self.score.of_set(cells.reshape(len(cells), -1), size + 2, self.num_rows)
            wide = wide - self.score.of_set(
                without.reshape(len(cells), -1), size + 1, self.num_rows
            )
            gains = wide - self.local(attribute, parents)
            gains[[attribute, *places]] = -np.inf
            self._gains[key] = gains
        return self._gains[key]


def hill_climb(
    scores: RowScores,
    known: Constraints,
    start: Sequence[int] | None = None,
    max_parents: int = MOST_PARENTS,
) -> tuple[tuple[int, ...], float]:
    """The best DAG that the search meets, as parents of each attribute, and its score.

    Args:
        scores: of families.
        known: what every DAG agrees with.
        start: parents of each attribute in a DAG that agrees; None for the required edges alone.
        max_parents: of one attribute.
    """
    size = scores.num_attributes
    parents = list(known.required if start is None else start)
    excluded = matrix_of_columns(known.excluded)
    adding, taking = np.empty((size, size)), np.full((size, size), -np.inf)

    def renew(j: int) -> None:
        mask = parents[j]
        adding[:, j] = scores.gains(j, mask) if mask.bit_count() < max_parents else -np.inf
        taking[:, j] = -np.inf
        for i in members(mask & ~known.required[j]):
            taking[i, j] = scores.local(j, mask & ~(1 << i)) - scores.local(j, mask)

    for j in range(size):
        renew(j)
    total = scores.total(parents)
    best, reached = tuple(parents), total
    recent: deque[tuple[int, int]] = deque(maxlen=NUM_TABU)
    idle = 0
    while idle < PATIENCE:
        adjacent = matrix_of_columns(parents)
        below = reachable(adjacent)
        tabu = np.zeros((size, size), dtype=bool)
        for i, j in recent:
            tabu[i, j] = tabu[j, i] = True
        add = np.where(below.T | excluded | tabu, -np.inf, adding)
        take = np.where(tabu, -np.inf, taking)
        further = below & ~np.eye(size, dtype=bool)
        around = adjacent.astype(np.float32) @ further.astype(np.float32) > 0  # a longer path
        turn = np.where(
            around | excluded.T | ~adjacent | tabu,
            -np.inf,
            taking + _turned(adding, parents, max_parents),
        )
        moves = np.stack([add, take, turn])
        kind, i, j = (int(k) for k in np.unravel_index(int(moves.argmax()), moves.shape))
        gain = moves[kind, i, j]
        if not np.isfinite(gain):
            break
        if kind != 0:
            parents[j] &= ~(1 << i)
        if kind == 0:
            parents[j] |= 1 << i
        elif kind == 2:
            parents[i] |= 1 << j
            renew(i)
        renew(j)
        recent.append((i, j))
        total += gain
        idle += 1
        if total > reached + scores.tolerance:
            best, reached, idle = tuple(parents), total, 0
    return best, scores.total(best)


def _turned(adding: np.ndarray, parents: Sequence[int], max_parents: int) -> np.ndarray:
    """Gain of j -> i beside what i has, at [i, j]."""
    full = np.array([mask.bit_count() >= max_parents for mask in parents])
    return np.where(full[:, None], -np.inf, adding.T)


def reachable(adjacent: np.ndarray) -> np.ndarray:
    """[i, j]: j is i, or below it."""
    reach = adjacent | np.eye(len(adjacent), dtype=bool)
    while True:
        further = reach.astype(np.float32) @ reach.astype(np.float32) > 0
        if np.array_equal(further, reach):
            return reach
        reach = further
