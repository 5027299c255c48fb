"""Latent classes of categorical answers: numbers that a table of answers can settle."""

from __future__ import annotations

import math
from collections.abc import Sequence


def most_classes(sizes: Sequence[int]) -> int:
    """Largest number of latent classes that a table of answers can determine.

    It may still be too many.

    Args:
        sizes: categories of each item.
    """
    return max(1, math.prod(sizes) // (1 + sum(size - 1 for size in sizes)))


def table_too_small(num_free: int, sizes: Sequence[int]) -> str:
    """Sentence on a table with fewer free shares than the model's parameters, or none.

    ``num_free``: of the model; ``sizes``: categories of each item.
    """
    cells = math.prod(sizes)
    if num_free < cells:
        return ""
    table = " × ".join(map(str, sizes)) if len(sizes) > 1 else "one item"
    return (
        f"the table of all possible answers ({table}) has only {cells} cells, whose shares are"
        f" {cells - 1} free numbers, and the model has {num_free}."
    )
