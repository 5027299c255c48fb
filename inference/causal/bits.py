"""Sets of attributes as integers: attribute k is in a set when bit k is 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    """Whether the attributes of a set are pairwise adjacent; ``adjacent[k]`` is the set of those
    next to k.
    """
    return all(mask & ~adjacent[k] == 1 << k for k in members(mask))


def masks_of_columns(matrix: np.ndarray) -> tuple[int, ...]:
    """For each column of a boolean matrix (K, K) the set of its rows that are True: the parents,
    where [i, j] says i -> j.
    """
    return tuple(mask_of(np.flatnonzero(matrix[:, j])) for j in range(len(matrix)))


def matrix_of_columns(masks: Iterable[int]) -> np.ndarray:
    """The boolean matrix (K, K) whose column j is the set ``masks[j]``."""
    masks = tuple(masks)
    matrix = np.zeros((len(masks), len(masks)), dtype=bool)
    for j, mask in enumerate(masks):
        matrix[members(mask), j] = True
    return matrix
