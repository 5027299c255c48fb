"""Handwritten digits that ship with scikit-learn, as 0/1 pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ppl_models.parts.repr import shows_briefly

if TYPE_CHECKING:
    import numpy as np


@shows_briefly
@dataclass(frozen=True, eq=False)
class Digits:
    """Binarised images of digits.

    Args:
        items: (N, J) float64 of 0 and 1, one row an image, its pixels row by row.
        labels: (N,) int64, the digit shown; never used in fitting.
        image_shape: (rows, columns) of an image, rows * columns = J.
        item_names: one name a pixel, ``"r3c4"`` for row 3 and column 4, counted from 0.
    """

    items: np.ndarray
    labels: np.ndarray
    image_shape: tuple[int, int]
    item_names: tuple[str, ...]


def load_digits(threshold: float = 8) -> Digits:
    """Load the 1797 handwritten digits of scikit-learn as 64 binary pixels.

    A pixel is 1 where its grey value reaches a threshold.

    Source: E. Alpaydin and C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine
    Learning Repository, doi:10.24432/C50P49 (its test set).

    Args:
        threshold: grey values, 0 to 16, at or above it become 1.

    Raises:
        ValueError: if the threshold is not in (0, 16], where all pixels would be equal.
    """
    if not 0 < threshold <= 16:
        raise ValueError(f"load_digits: threshold must lie in (0, 16], got {threshold!r}")
    import numpy as np
    from sklearn.datasets import load_digits as load

    bunch = load()
    num_rows, num_columns = bunch.images.shape[1:]
    names = tuple(f"r{r}c{c}" for r in range(num_rows) for c in range(num_columns))
    items = (bunch.data >= threshold).astype(np.float64)
    return Digits(items, bunch.target.astype(np.int64), (num_rows, num_columns), names)
