"""Rows of a program's data taken apart, and whether their density stays what it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from inference.fitting.result import Fit
from ppl_models.data.tables import checks_data, first_tensor

ALIKE = 1e-4  # relative, of one log-density worked out twice


def rows_of(data: Any, index: np.ndarray) -> Any:
    """Return some rows of a table, frame, list, or dict of these; other parts stay whole."""
    if isinstance(data, dict):
        count = len(first_tensor(data))
        return {
            name: rows_of(value, index) if np.ndim(value) and len(value) == count else value
            for name, value in data.items()
        }
    if isinstance(data, list | tuple):  # which the model's own check makes a table of, or refuses
        return [data[i] for i in index]
    return data.iloc[index] if hasattr(data, "iloc") else data[index]


def check_apart(
    owner: str, result: Fit, data: Any, taken: Callable[[Any, np.ndarray], Any] = rows_of
) -> None:
    """Rows of an own program, taken apart, must have the density that they have among the others.

    Args:
        owner: for the message.
        result: a fit of the program; data: rows of its kind.
        taken: gives some of the rows by their numbers.

    Raises:
        ValueError: naming what may be taken for rows and is none.
    """
    if checks_data(result.model):
        return
    count = len(first_tensor(data))
    some = np.arange(0, count, 2)
    whole = result.log_likelihood_rows(data).double().cpu().numpy()
    alone = result.log_likelihood_rows(taken(data, some)).double().cpu().numpy()
    if (
        whole.shape != (count,)
        or alone.shape != some.shape
        or not np.allclose(alone, whole[some], ALIKE, ALIKE, equal_nan=True)
    ):
        raise ValueError(
            f"{owner}: rows whose density does not depend on the other rows were expected. Every"
            f" argument with {count} entries is taken to have one a row: pass what is none of the"
            " rows with another shape, such as (1, ...), or hold it in the program"
        )
