"""Distinct values among many integers, a slice at a time, in the smallest type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

TABLE_SIZE = 2**22  # codes below this are looked up in a table instead of a sorted list


@dataclass(frozen=True, eq=False)
class Codes:
    """Distinct values among many integers in [0, bound), and each one's position.

    Args:
        distinct: ascending.
        table: place of every integer, where the bound is small enough for a table.
    """

    distinct: np.ndarray
    table: np.ndarray | None

    @classmethod
    def of(cls, parts: Iterable[np.ndarray], bound: int, most: int | None = None) -> Codes | None:
        """Build codes from integers, a part at a time; None beyond ``most`` values."""
        tabled = bound <= TABLE_SIZE
        seen, distinct = np.zeros(bound if tabled else 0, dtype=bool), np.empty(0, dtype=np.int64)
        for part in parts:
            if tabled:
                seen[part] = True
            else:
                distinct = np.union1d(distinct, part)
                if most is not None and len(distinct) > most:
                    return None
        if not tabled:
            return cls(distinct, None)
        distinct = np.flatnonzero(seen)
        if most is not None and len(distinct) > most:
            return None
        table = np.zeros(bound, dtype=np.int32)
        table[distinct] = np.arange(len(distinct))
        return cls(distinct, table)

    def places(self, codes: np.ndarray) -> np.ndarray:
        """Position of each integer among the distinct values."""
        return np.searchsorted(self.distinct, codes) if self.table is None else self.table[codes]


def small_integers(largest: int) -> Any:
    """Smallest integer type that torch indexes with after a cast."""
    return next(
        kind for kind in (np.uint8, np.int16, np.int32, np.int64) if largest <= np.iinfo(kind).max
    )
