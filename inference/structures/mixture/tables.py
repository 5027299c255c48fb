"""Latent classes of categorical answers: how many free numbers a table of all answers can settle at
most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def most_classes(sizes: Sequence[int]) -> int:
    """The largest number of classes with no more free numbers than the table has free shares; it
    may still be too many.

    Args:
        sizes: categories of each item.
    """
    return max(1, math.prod(sizes) // (1 + sum(size - 1 for size in sizes)))


def table_too_small(num_free: int, sizes: Sequence[int]) -> str:
    """That a table of all answers has fewer free shares than a model has free numbers, as a
    sentence; empty where it has as many.

    Args:
        num_free: of the model; sizes: categories of each item.
    """
    cells = math.prod(sizes)
    if num_free < cells:
        return ""
    table = " × ".join(map(str, sizes)) if len(sizes) > 1 else "one item"
    return (
        f"the table of all possible answers ({table}) has only {cells} cells, whose shares are"
        f" {cells - 1} free numbers, and the model has {num_free}."
    )
