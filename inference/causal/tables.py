r"""Tables of profile probabilities, their marginals, and the information in them.

K binary attributes make :math:`2^K` profiles. A table holds the probability of each, attribute 1
being the most significant bit of a profile's place; reshaped to (2, ..., 2), axis k is attribute k.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import xlogy

from inference.causal.graphs import check_dag, real_numbers, topological_order
from inference.causal.pdags import members

MOST_ATTRIBUTES = 20
SUM_TOLERANCE = 1e-6  # a table in single precision may miss one by so much
MOST_ROWS = 1e15


def profiles(num_attributes: int) -> np.ndarray:
    """All profiles in the order of a table, 0/1 (2^K, K)."""
    places = np.arange(2**num_attributes)
    bits: np.ndarray = places[:, None] >> np.arange(num_attributes - 1, -1, -1) & 1
    return bits


def as_tables(owner: str, tables: Any, name: str = "tables") -> np.ndarray:
    """Tables as float64 (B, 2^K) that sum to one, from (B, 2^K) or (B, 2, ..., 2).

    Raises:
        ValueError: for another shape, more than 20 attributes, numbers that are negative or not
            finite, or that do not sum to one.
    """
    array = _numbers(owner, tables, name)
    if array.ndim > 2 and set(array.shape[1:]) == {2}:
        array = array.reshape(len(array), -1)
    num_attributes = int(array.shape[-1]).bit_length() - 1 if array.ndim == 2 else 0
    if num_attributes < 1 or not len(array) or array.shape[1] != 2**num_attributes:
        raise ValueError(
            f"{owner}: {name} must have shape (draws, 2^K) or (draws, 2, ..., 2), got {array.shape}"
        )
    return _normalised(owner, array, name)


def as_table(owner: str, table: Any, name: str = "table") -> np.ndarray:
    """Table as float64 (2^K,) that sums to one; errors as :func:`as_tables`."""
    array = _numbers(owner, table, name)
    if array.ndim > 1 and set(array.shape) == {2}:
        array = array.reshape(-1)
    if array.ndim != 1 or len(array) < 2 or len(array) & (len(array) - 1):
        raise ValueError(
            f"{owner}: {name} must have shape (2^K,) or (2, ..., 2), got {array.shape}"
        )
    checked: np.ndarray = _normalised(owner, array[None], name)[0]
    return checked


def _numbers(owner: str, table: Any, name: str) -> np.ndarray:
    return real_numbers(owner, table, name).astype(np.float64)


def _normalised(owner: str, tables: np.ndarray, name: str) -> np.ndarray:
    num_attributes = tables.shape[1].bit_length() - 1
    if num_attributes > MOST_ATTRIBUTES:
        raise ValueError(
            f"{owner}: {name} may have at most {MOST_ATTRIBUTES} attributes, got {num_attributes}"
        )
    if not np.isfinite(tables).all():
        raise ValueError(f"{owner}: {name} must be finite")
    if (tables < 0).any():
        raise ValueError(f"{owner}: {name} must not be negative, got {tables.min():g}")
    sums = tables.sum(1)
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > SUM_TOLERANCE:
        raise ValueError(
            f"{owner}: {name} must sum to one (divide counts by their sum), got {sums[worst]:g}"
        )
    scaled: np.ndarray = tables / sums[:, None]
    return scaled


def check_rows(owner: str, num_rows: Any, name: str = "num_rows") -> float:
    """Number of rows, whole or not: from 1 to 1e15, beyond which scores have no digits."""
    is_plain = isinstance(num_rows, int | float | np.number) and not isinstance(num_rows, bool)
    value = float(num_rows) if is_plain else float("nan")
    if not 1 <= value <= MOST_ROWS:
        raise ValueError(
            f"{owner}: {name} must be a number of at least 1 and at most {MOST_ROWS:g}, got"
            f" {num_rows!r}"
        )
    return value


def dag_table(dag: Any, probabilities: Sequence[Any]) -> np.ndarray:
    r"""Table :math:`p(\alpha) = \prod_k P(\alpha_k \mid \alpha_{pa(k)})` of a DAG, (2^K,).

    The conditional probabilities are known.

    Args:
        dag: bool (K, K), ``[i, j]`` for i -> j.
        probabilities: for each attribute P(1 | parents), shape (2,) * number of parents, the
            parents ascending; a number without parents.

    Raises:
        ValueError: for a circle, another shape, or what is no probability.
    """
    matrix = check_dag("dag_table", dag)
    num_attributes = len(matrix)
    if len(probabilities) != num_attributes:
        raise ValueError(
            f"dag_table: probabilities must hold {num_attributes} arrays, got {len(probabilities)}"
        )
    bits = profiles(num_attributes)
    table = np.ones(2**num_attributes)
    for k in topological_order(matrix):
        parents = np.flatnonzero(matrix[:, k])
        chance = np.asarray(probabilities[k], dtype=np.float64)
        if chance.shape != (2,) * len(parents):
            raise ValueError(
                f"dag_table: probabilities[{k}] must have shape {(2,) * len(parents)}, got"
                f" {chance.shape}"
            )
        if not ((chance >= 0) & (chance <= 1)).all():
            raise ValueError(f"dag_table: probabilities[{k}] must lie in [0, 1]")
        on = chance[tuple(bits[:, i] for i in parents)]
        table *= np.where(bits[:, k] == 1, on, 1 - on)
    return table


class Marginals:
    """The marginal tables of one table, each summed once.

    The first half of the axes is summed out before the second, and what is left after the first is
    kept: with 20 attributes a marginal of two then costs some thousand additions instead of a
    million.

    Args:
        table: (2^K,), of probabilities or counts.
    """

    def __init__(self, table: np.ndarray) -> None:
        self.num_attributes = len(table).bit_length() - 1
        self.first = self.num_attributes // 2 if self.num_attributes > 10 else 0
        self._table = table
        self._half: dict[int, np.ndarray] = {}
        self._entropy: dict[int, float] = {}

    def of(self, mask: int) -> np.ndarray:
        """The marginal of a set, (2^|S|,); its smallest attribute is the most significant bit."""
        early = mask & ((1 << self.first) - 1)
        if early not in self._half:
            self._half[early] = _summed(
                self._table.reshape(-1), early, 0, self.first, self.num_attributes
            )
        return _summed(
            self._half[early].reshape(-1),
            mask >> self.first,
            early.bit_count(),
            self.num_attributes - self.first,
            None,
        )

    def entropy(self, mask: int) -> float:
        """Entropy of a set of attributes under a table that sums to one, nats."""
        if mask not in self._entropy:
            cells = self.of(mask)
            self._entropy[mask] = -float(xlogy(cells, cells).sum())
        return self._entropy[mask]

    def information(self, i: int, j: int, given: int = 0) -> float:
        """I(i; j | given), nats, not below 0."""
        x, y = 1 << i, 1 << j
        entropy = self.entropy
        return max(
            0.0, entropy(given | x) + entropy(given | y) - entropy(given | x | y) - entropy(given)
        )

    def crossed(self, i: int, j: int, given: int = 0) -> np.ndarray:
        """p(z, x_i, x_j), shape (2^|given|, 2, 2)."""
        both = given | 1 << i | 1 << j
        order = members(both)
        cube = self.of(both).reshape((2,) * len(order))
        cube = np.moveaxis(cube, (order.index(i), order.index(j)), (-2, -1))
        return cube.reshape(-1, 2, 2)


def _summed(
    flat: np.ndarray, mask: int, kept_before: int, num_axes: int, total: int | None
) -> np.ndarray:
    """Sum out the axes of a flat table that a mask lacks, after ``kept_before`` axes."""
    shape, drop = [2**kept_before], []
    axis = 0
    while axis < num_axes:
        keep, run = mask >> axis & 1, 0
        while axis < num_axes and mask >> axis & 1 == keep:
            run, axis = run + 1, axis + 1
        if not keep:
            drop.append(len(shape))
        shape.append(2**run)
    shape.append(1 if total is None else 2 ** (total - num_axes))
    summed: np.ndarray = flat.reshape(shape).sum(tuple(drop)).reshape(-1)
    return summed
