r"""Classes of DAGs: all of them on few attributes, the likely ones on more.

Three attributes have 25 DAGs in 11 classes, four 543 in 185, five 29 281 in 8 782. Up to twelve,
DAGs are drawn with probability proportional to the exponential of their score times the number of
orders that they agree with (Friedman and Koller 2003; exact draws as in Ellis and Wong 2008): with
:math:`s(i, P)` the local scores,

.. math::

    \beta_i(C) = \log \sum_{P \subseteq C} e^{s(i, P)}, \qquad R(C) = \log \sum_{i \in C} e^{R(C
    \setminus i) + \beta_i(C \setminus i)},

the last attribute and its parents are drawn from the terms of :math:`R`, then the last but one. The
draws only find classes; what counts for each is its score.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from inference.causal.bits import members
from inference.causal.pdags import Pdag, class_of
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import check_size

MOST_ENUMERATED = 5
MOST_SAMPLED = 12
LEAST_DRAWS = 5000  # of DAGs, over all tables
DRAWS_EACH = 10  # at least, for every table
CHUNK = 2**22  # numbers held at once


@functools.cache
def all_dags(num_attributes: int) -> np.ndarray:
    """The sets of parents in every DAG, (number of DAGs, K) integers: bit i of entry j says i -> j.

    Raises:
        ValueError: for more than five attributes.
    """
    check_size("all_dags", "num_attributes", num_attributes)
    if num_attributes > MOST_ENUMERATED:
        raise ValueError(
            f"all_dags: at most {MOST_ENUMERATED} attributes can be enumerated, got"
            f" {num_attributes}"
        )
    own = []
    for j in range(num_attributes):
        masks = np.arange(2**num_attributes)
        own.append(masks[masks >> j & 1 == 0])
    parents = np.stack(np.meshgrid(*own, indexing="ij"), -1).reshape(-1, num_attributes)
    left = np.full(len(parents), 2**num_attributes - 1)
    for _ in range(num_attributes):  # every round takes away the nodes whose parents are all gone
        free = ((parents & left[:, None]) == 0) @ (1 << np.arange(num_attributes))
        left &= ~free
    found: np.ndarray = parents[left == 0]
    found.setflags(write=False)
    return found


@shows_briefly
@dataclass(frozen=True, eq=False)
class Classes:
    """The Markov equivalence classes of all DAGs on K attributes.

    Args:
        member: one DAG of each class, its sets of parents, (number of classes, K).
        size: number of DAGs in each class.
        of_dag: the class of each row of :func:`all_dags`.
        matrices: the CPDAG of each, bool (number of classes, K, K).
    """

    member: np.ndarray
    size: np.ndarray
    of_dag: np.ndarray
    matrices: np.ndarray


@functools.cache
def all_classes(num_attributes: int) -> Classes:
    """The classes, told apart by skeleton and v-structures.

    Raises:
        ValueError: for more than five attributes.
    """
    parents = all_dags(num_attributes)
    arrow = [
        [(parents[:, j] >> i & 1).astype(bool) for j in range(num_attributes)]
        for i in range(num_attributes)
    ]
    key = np.zeros(len(parents), dtype=np.int64)
    place = 0
    for i in range(num_attributes):
        for k in range(i + 1, num_attributes):
            joined = arrow[i][k] | arrow[k][i]
            marks = [joined] + [
                arrow[i][j] & arrow[k][j] & ~joined
                for j in range(num_attributes)
                if j not in (i, k)
            ]
            for mark in marks:
                key |= mark.astype(np.int64) << place
                place += 1
    _, first, of_dag, size = np.unique(
        key, return_index=True, return_inverse=True, return_counts=True
    )
    matrices = np.stack([class_of([int(mask) for mask in parents[row]]).matrix for row in first])
    found = Classes(parents[first], size, of_dag.reshape(-1), matrices)
    for array in (found.member, found.size, found.of_dag, found.matrices):
        array.setflags(write=False)
    return found


def likely_classes(
    sets: np.ndarray, rng: np.random.Generator
) -> tuple[dict[Pdag, tuple[int, ...]], float]:
    """Classes that are likely under one of several tables, each with one of its DAGs, and the
    probability that a further draw would bring a new one.

    Args:
        sets: F of every set of attributes (:mod:`inference.causal.scores`), (B, 2^K).
        rng: of the draws: at least 5,000, and ten for every table.

    Returns:
        CPDAG -> sets of parents; the share of draws whose class came only once (Good and Turing's
        estimate for the law of the draws, which prefers graphs that agree with many orders; under
        the scores alone it can be two or three times that).
    """
    num_attributes = sets.shape[1].bit_length() - 1
    each = max(DRAWS_EACH, -(-LEAST_DRAWS // len(sets)))
    counts: dict[tuple[int, ...], int] = {}
    step = max(1, CHUNK // (num_attributes * sets.shape[1]))
    for start in range(0, len(sets), step):
        orders = _Orders(sets[start : start + step])
        for b in range(len(orders.reached)):
            for _ in range(each):
                parents = orders.draw(b, rng)
                counts[parents] = counts.get(parents, 0) + 1
    found: dict[Pdag, tuple[int, ...]] = {}
    times: dict[Pdag, int] = {}
    for parents, number in counts.items():
        graph = class_of(parents)
        found.setdefault(graph, parents)
        times[graph] = times.get(graph, 0) + number
    return found, sum(number == 1 for number in times.values()) / sum(times.values())


class _Orders:
    """The sums over orders for a batch of tables."""

    def __init__(self, sets: np.ndarray) -> None:
        size = sets.shape[1]
        self.num_attributes = size.bit_length() - 1
        places = np.arange(size)
        self.local, self.summed = [], []
        for i in range(self.num_attributes):
            free = places >> i & 1 == 0
            local = np.full(sets.shape, -np.inf)
            local[:, free] = sets[:, places[free] | 1 << i] - sets[:, free]
            summed = local.copy()
            for j in range(self.num_attributes):
                if j != i:
                    halves = summed.reshape(len(sets), -1, 2, 2**j)
                    halves[:, :, 1] = np.logaddexp(halves[:, :, 0], halves[:, :, 1])
            self.local.append(local)
            self.summed.append(summed)
        self.reached = np.full(sets.shape, -np.inf)
        self.reached[:, 0] = 0.0
        counts = sum((places >> i & 1 for i in range(self.num_attributes)), np.zeros_like(places))
        for number in range(1, self.num_attributes + 1):
            layer = places[counts == number]
            for i in range(self.num_attributes):
                inside = layer[layer >> i & 1 == 1]
                before = inside ^ 1 << i
                self.reached[:, inside] = np.logaddexp(
                    self.reached[:, inside], self.reached[:, before] + self.summed[i][:, before]
                )
        self._subsets: dict[int, np.ndarray] = {}
        self._places = places

    def draw(self, b: int, rng: np.random.Generator) -> tuple[int, ...]:
        """The parents of each attribute in a DAG drawn for table b."""
        parents = [0] * self.num_attributes
        left = len(self._places) - 1
        while left:
            inside = members(left)
            terms = np.array(
                [self.reached[b, left ^ 1 << i] + self.summed[i][b, left ^ 1 << i] for i in inside]
            )
            i = inside[_chosen(terms, rng)]
            left ^= 1 << i
            if left not in self._subsets:
                self._subsets[left] = self._places[self._places & ~left == 0]
            subsets = self._subsets[left]
            parents[i] = int(subsets[_chosen(self.local[i][b, subsets], rng)])
        return tuple(parents)


def _chosen(logits: np.ndarray, rng: np.random.Generator) -> int:
    """A place drawn with probability proportional to the exponential."""
    reached = np.cumsum(np.exp(logits - logits.max()))
    return min(
        int(np.searchsorted(reached, rng.random() * reached[-1], side="right")), len(logits) - 1
    )
