r"""Scores of families from rows of drawn attributes, and local search over DAGs.

With :math:`a^{(1)}, \dots, a^{(M)}` draws of the attributes of N rows, the expected counts of a
small set S are :math:`m_S(c) = w\, T_S(c)`, T being the share of the draws that are in cell c and w
what the rows are worth: no table of 2^K profiles is made. The scores of families are those of
:mod:`inference.causal.scores`. Rows are held as bits of words, and a cell is counted by the ones in
the conjunction of its columns.

Draws come from the posterior under some model, whose own share of cell c is :math:`P_S(c)`. They
show only a share :math:`\rho` of what the truth p differs from it by, :math:`T_S = P_S + \rho\,
(p_S - P_S)` (:mod:`inference.causal.structural_em`), so that the corrected counts are

.. math:: m_S(c) = w\, \max\{0,\; P_S(c) + (T_S(c) - P_S(c)) / \rho\} ,

with P from rows that the model draws without data. Without the correction a wrong arrow of the
model is found again in its own draws.

The climb adds, takes away or turns the arrow that gains most, also where the gain is negative, but
no arrow of the last pairs it changed; it ends where so many steps in a row brought nothing better
than the best DAG so far (Glover 1989, doi:10.1287/ijoc.1.3.190). The search climbs from several
graphs, and again from the best with a few arrows turned at random (iterated local search: Lourenço,
Martin and Stützle 2003, doi:10.1007/0-306-48056-5_11).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from inference.causal.knowledge import Constraints
from inference.causal.pdags import matrix_of_columns, members
from inference.causal.scores import FamilyScore, Score, tie_tolerance

NUM_TABU = 20  # pairs
PATIENCE = 15  # steps without a better DAG
MOST_PARENTS = 8
NUM_TURNS = 50  # climbs from the best DAG with some arrows turned
TURNED = 0.15  # share of the arrows


class _Packed:
    """Rows of bits as words, for counts of their cells.

    Args:
        bits: 0/1, (D, K).
    """

    def __init__(self, bits: np.ndarray) -> None:
        num_rows = len(bits)
        packed = np.packbits(np.ones((num_rows, 1), dtype=np.uint8), axis=0)
        pad = -len(packed) % 8
        self.num_rows = num_rows
        columns = np.concatenate([packed, np.packbits(bits.astype(np.uint8), axis=0)], 1).T
        words = np.ascontiguousarray(np.pad(columns, ((0, 0), (0, pad)))).view(np.uint64)
        self._all, self._columns = words[:1], words[1:]

    def _cells(self, places: Sequence[int]) -> np.ndarray:
        """Rows of each cell, (2^|S|, words); the first place is the most significant."""
        cells = self._all
        for k in places:
            own = self._columns[k]
            cells = np.stack([cells & ~own, cells & own], 1).reshape(-1, len(own))
        return cells

    def shares(self, places: Sequence[int]) -> np.ndarray:
        """Shares of the cells of a set, (2^|S|,)."""
        counts: np.ndarray = np.bitwise_count(self._cells(places)).sum(1, dtype=np.int64)
        return counts / self.num_rows

    def shares_with_each(self, places: Sequence[int]) -> np.ndarray:
        """Shares of the cells of a set and one attribute more, the last place, (K, 2^|S|, 2)."""
        cells = self._cells(places)
        whole = np.bitwise_count(cells).sum(1, dtype=np.int64)
        on = np.stack(
            [np.bitwise_count(self._columns & own).sum(1, dtype=np.int64) for own in cells], 1
        )
        return np.stack([whole - on, on], -1) / self.num_rows


class RowScores:
    """Family scores from rows of bits.

    Args:
        bits: 0/1, (D, K): the draws of all rows, one after another.
        num_rows: n in the score.
        score: what to compute.
        worth: rows that the draws are worth together, w; n if None.
        model: 0/1, (D', K), rows that the model of the draws draws without data; None to leave the
            counts as they are.
        share: rho, of what the model lacks in its draws.
    """

    def __init__(
        self,
        bits: np.ndarray,
        num_rows: float,
        score: Score | FamilyScore,
        worth: float | None = None,
        model: np.ndarray | None = None,
        share: float = 1.0,
    ) -> None:
        self.num_rows, self.score = num_rows, score
        self.num_attributes = bits.shape[1]
        self.tolerance = tie_tolerance(num_rows)
        self.worth = num_rows if worth is None else worth
        self._parts = [(_Packed(bits), 1 / share)]
        if model is not None:
            self._parts.append((_Packed(model), 1 - 1 / share))
        self._local: dict[tuple[int, int], float] = {}
        self._gains: dict[tuple[int, int], np.ndarray] = {}

    def counts(self, attribute: int, parents: int) -> np.ndarray:
        """Expected counts by state of the parents and value of the attribute, (2^P, 2).

        The smallest parent is the most significant.
        """
        places = [*members(parents), attribute]
        shares = [part.shares(places) * weight for part, weight in self._parts]
        return self._counts(shares).reshape(-1, 2)

    def _counts(self, shares: Iterable[np.ndarray]) -> np.ndarray:
        counts: np.ndarray = self.worth * np.clip(sum(shares), 0.0, None)
        return counts

    def _of_families(self, counts: np.ndarray) -> np.ndarray:
        """Scores from expected counts by state of the parents and value, (B, 2^P, 2) -> (B,)."""
        if isinstance(self.score, FamilyScore):
            return self.score.of_families(counts, self.num_rows, self.num_attributes)
        size = counts.shape[-2].bit_length() - 1
        whole = self.score.of_set(counts.reshape(len(counts), -1), size + 1, self.num_rows)
        return whole - self.score.of_set(counts.sum(-1), size, self.num_rows)

    def local(self, attribute: int, parents: int) -> float:
        """The score of one attribute under a set of parents."""
        key = attribute, parents
        if key not in self._local:
            self._local[key] = float(self._of_families(self.counts(attribute, parents)[None])[0])
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
            places = members(parents)
            counts = self._counts(
                [
                    part.shares_with_each([*places, attribute]) * weight
                    for part, weight in self._parts
                ]
            )  # (K, states of the parents and of the attribute, of the further parent)
            counts = counts.reshape(self.num_attributes, -1, 2, 2).swapaxes(2, 3)
            gains = self._of_families(counts.reshape(self.num_attributes, -1, 2))
            gains = gains - self.local(attribute, parents)
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


def local_search(
    scores: RowScores,
    known: Constraints,
    starts: Sequence[Sequence[int] | None],
    rng: np.random.Generator,
    max_parents: int = MOST_PARENTS,
) -> tuple[tuple[int, ...], float]:
    """The best DAG of climbs from several starts, and from the best with some arrows turned.

    Arguments: as of :func:`hill_climb`, with several starts.
    """
    ends = [hill_climb(scores, known, start, max_parents) for start in starts]
    best = max(ends, key=lambda end: end[1])
    for _ in range(NUM_TURNS):
        start = _some_turned(best[0], known, rng, max_parents)
        new = hill_climb(scores, known, start, max_parents)
        if new[1] > best[1] + scores.tolerance:
            best = new
    return best


def _some_turned(
    parents: Sequence[int], known: Constraints, rng: np.random.Generator, max_parents: int
) -> tuple[int, ...]:
    """The DAG with some arrows turned; those that cannot be are left out."""
    out = list(parents)
    arrows = [(i, j) for j, mask in enumerate(out) for i in members(mask & ~known.required[j])]
    wanted = min(len(arrows), max(2, round(TURNED * len(arrows))))
    for place in rng.permutation(len(arrows))[:wanted]:
        i, j = arrows[place]
        out[j] &= ~(1 << i)
        barred = known.excluded[i] >> j & 1 or out[i].bit_count() >= max_parents
        if not barred and not reachable(matrix_of_columns(out))[i, j]:
            out[i] |= 1 << j
    return tuple(out)
