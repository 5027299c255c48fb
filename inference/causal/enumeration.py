"""All DAGs on few attributes, and their classes: 25 and 11 for three, 543 and 185 for four, 29 281 and 8 782 for five."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from inference.causal.pdags import class_of
from ppl_models.parts.validation import check_size

__all__ = ["MOST_ENUMERATED", "Classes", "all_classes", "all_dags"]

MOST_ENUMERATED = 5


@functools.cache
def all_dags(num_attributes: int) -> np.ndarray:
    """The sets of parents in every DAG, (number of DAGs, K) integers: bit i of entry j says i -> j.

    Raises:
        ValueError: for more than five attributes.
    """
    check_size("all_dags", "num_attributes", num_attributes)
    if num_attributes > MOST_ENUMERATED:
        raise ValueError(f"all_dags: at most {MOST_ENUMERATED} attributes can be enumerated, got {num_attributes}")
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
    arrow = [[(parents[:, j] >> i & 1).astype(bool) for j in range(num_attributes)] for i in range(num_attributes)]
    key = np.zeros(len(parents), dtype=np.int64)
    place = 0
    for i in range(num_attributes):
        for k in range(i + 1, num_attributes):
            joined = arrow[i][k] | arrow[k][i]
            marks = [joined] + [arrow[i][j] & arrow[k][j] & ~joined for j in range(num_attributes) if j not in (i, k)]
            for mark in marks:
                key |= mark.astype(np.int64) << place
                place += 1
    _, first, of_dag, size = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    matrices = np.stack([class_of([int(mask) for mask in parents[row]]).matrix for row in first])
    found = Classes(parents[first], size, of_dag.reshape(-1), matrices)
    for array in (found.member, found.size, found.of_dag, found.matrices):
        array.setflags(write=False)
    return found
