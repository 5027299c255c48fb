"""Data with what a fit expects in place of missing entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.base.diagnostics import as_array
from inference.fitting.columns import as_fitted, checked_as_fitted
from inference.fitting.posterior import reconstruct
from inference.fitting.record import FitRecord
from inference.programs.data import is_frame
from ppl_models.parts.frames import as_frame


def fill_missing(fit: FitRecord, data: Any) -> Any:
    """The data with what the fit expects of its row in place of every missing entry; all others are
    as they were.

    A number is its expectation (of a yes-or-no item the probability of yes), a category the most
    probable one. One value stands for what is not known, so that filled columns vary less than
    complete ones would: for errors and intervals, fit the data with their gaps.

    Returns:
        A pandas frame under the columns and index of the given one; an array where something else
        was given.

    Raises:
        ValueError: as :func:`inference.fitting.posterior.reconstruct`, and for
            sequences that are not one array.
    """
    data = as_frame(data)
    if fit.structure.row_columns and not isinstance(data, Tensor | np.ndarray):
        raise ValueError(
            "fill_missing: sequences as one array (sequences, steps, items) were expected;"
            " fit.reconstruct(data) takes every form"
        )
    given, expected = checked_as_fitted(fit, data)[0], reconstruct(fit, data)
    if not is_frame(data):
        return as_array(torch.where(given.isnan(), expected.to(given), given))
    out, codes, values = data.copy(), as_array(given), as_array(expected)
    levels = fit.structure.category_names(fit.item_names)
    for j, (name, column) in enumerate(
        zip(fit.item_names, as_fitted(fit, data).columns, strict=True)
    ):
        lost = np.isnan(codes[:, j])
        if not lost.any():
            continue
        if name in levels:
            out.loc[lost, column] = [
                _value(data[column], codes[:, j], code, levels[name])
                for code in values[lost, j].astype(int)
            ]
        else:
            out[column] = np.where(lost, values[:, j], codes[:, j])
    return out


def _value(column: Any, codes: np.ndarray, code: int, levels: tuple[str, ...]) -> Any:
    """A category as the column itself writes it."""
    found = np.flatnonzero(codes == code)
    return column.iloc[int(found[0])] if len(found) else levels[code]
