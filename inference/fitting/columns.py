"""Columns of new rows under those of a fit, matched by name."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inference.base.streaming.row_blocks import SAMPLE_ROWS, RowBlocks, drawn_rows
from inference.programs.data import Columns, checked, checks_data, is_frame
from ppl_models.parts.frames import as_frame, column_names
from ppl_models.parts.validation import ColumnsWarning, quoted

if TYPE_CHECKING:
    from inference.fitting.record import FitRecord


def as_fitted(fit: FitRecord, data: Any) -> Any:
    """Data with the columns of the fit, in its order.

    Whatever is no data frame (or list of them), or was fitted without names, is returned as it is.

    Args:
        fit: which columns, and in what order.
        data: as the fit takes it.

    Raises:
        ValueError: naming columns of the fit that the frame lacks, or names that two of its columns
            have.

    Warns:
        ColumnsWarning: naming columns that the fit does not know.
    """
    if isinstance(data, RowBlocks):
        raise ValueError(
            "data: rows in memory were expected, got RowBlocks, of which posterior_latents,"
            " decode_latents, log_likelihood_rows, predict, score, summary and report take one"
            " block at a time: give some of them, blocks.sample(20_000)"
        )
    data, wanted = as_frame(data), fit.item_names
    if isinstance(data, list | tuple) and data and all(is_frame(as_frame(part)) for part in data):
        return [as_fitted(fit, part) for part in data]  # one a sequence
    if not is_frame(data) or not wanted:
        return data
    names = column_names(data)
    beside = fit.structure.row_columns
    missing = [name for name in wanted if name not in names]
    if names == wanted or (missing and _are_numbers(wanted)):
        return data
    if missing:
        raise ValueError(
            f"data: the columns of the fit were expected, but {quoted(missing)} {_is(missing)}"
            f" missing; the columns are {quoted(names)}"
        )
    chosen = [*(name for name in names if name in beside and name not in wanted), *wanted]
    found = data[[data.columns[names.index(name)] for name in chosen]]
    unknown = [name for name in names if name not in chosen]
    if unknown and _by_place(fit, found):
        warnings.warn(
            f"the fit does not know the columns {quoted(unknown)}, which are left out",
            ColumnsWarning,
            stacklevel=3,
        )
    return found


def sample_of(fit: FitRecord, blocks: RowBlocks) -> Any:
    """Sample of a fit's rows from blocks, for methods that want rows in memory.

    Of a table, a frame under the columns of the fit; its index holds the numbers of the rows.
    """
    rows = blocks.sample(SAMPLE_ROWS, fit.seed)
    if (
        not is_frame(as_frame(rows))
        and getattr(rows, "ndim", 0) == 2
        and rows.shape[1] == len(fit.item_names)
    ):
        import numpy as np
        import pandas as pd

        rows = pd.DataFrame(
            np.asarray(rows),
            blocks.begin + drawn_rows(len(blocks), SAMPLE_ROWS, fit.seed),
            list(fit.item_names),
        )
    return as_fitted(fit, rows)


def checked_as_fitted(
    fit: FitRecord, data: Any, for_fit: bool = False, takes_sparse: bool = False
) -> tuple[Any, tuple[str, ...]]:
    """Data under the columns of the fit as tensors, and their names.

    See :func:`as_fitted` and :func:`inference.programs.data.checked`.
    """
    return checked(fit.model, as_fitted(fit, data), for_fit, takes_sparse)


def _by_place(fit: FitRecord, frame: Any) -> bool:
    """Every column counts: the program does not read columns by name."""
    return checks_data(fit.model) or not isinstance(checked(fit.model, frame)[0], Columns)


def _are_numbers(wanted: tuple[str, ...]) -> bool:
    """Columns numbered by the library: the fit was made of an array."""
    of_sequences = (*(f"feature_{i}" for i in range(len(wanted) - 1)), "action")
    return wanted in (tuple(map(str, range(len(wanted)))), of_sequences)


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
