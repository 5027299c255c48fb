"""Predictions for new rows as plain arrays: latents, probabilities, score, imputed data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from inference.base.diagnostics import as_array
from inference.fitting.columns import as_fitted, checked_as_fitted
from inference.fitting.posterior import (
    decode_latents,
    everything_of_rows,
    log_likelihood_rows,
    reconstruct,
)
from inference.fitting.record import FitRecord
from ppl_models.data.frames import as_frame, is_frame
from ppl_models.data.sequences import inside_of
from ppl_models.parts.repr import listed

if TYPE_CHECKING:
    from inference.fitting.record import FitRecord


def predicted(fit: FitRecord, data: Any, site: str | None = None) -> np.ndarray:
    """Most probable value of one latent in each row.

    Args:
        fit: of a model with discrete latents; data: the rows.
        site: the latent, which may be left out where there is one.

    Returns:
        (N,) of whole numbers for a latent of several values, (N, K) of 0 and 1 for K bits,
        (sequences, steps) for a chain, -1 after the end.

    Raises:
        ValueError: for a model without discrete latents, or with several and none named.
    """
    modes = decode_latents(fit, data)
    shared = {} if site is not None else fit.shared_latents or {}
    modes = {
        name: value
        for name, value in modes.items()
        if name not in shared and (fit.latents is None or name in fit.latents)
    }
    return whole_numbers(modes[one_latent("predict", fit, list(modes), site)])


def probabilities(fit: FitRecord, data: Any, site: str | None = None) -> np.ndarray:
    """Posterior of one latent in each row: of each value, or P(latent = 1) of each bit.

    Args, Raises: as :func:`predicted`.
    """
    means, modes = everything_of_rows(fit, data)
    return as_array(means[one_latent("predict_proba", fit, list(modes), site)])


def score(fit: FitRecord, data: Any) -> float:
    """Mean log-likelihood of a row (sequence), latents summed out.

    Where the configurations are too many to sum over, an estimate of it.

    Raises:
        ValueError: for a program whose rows do not stand in one plate, or whose log-likelihood is
            an integral that nobody has worked out.
    """
    rows = log_likelihood_rows(fit, data)
    if rows.dim() != 1:
        raise ValueError(
            "score: a program with one plate over its rows was expected; log_likelihood_rows gives"
            " what there is"
        )
    return float(rows.double().mean())


def one_latent(caller: str, fit: FitRecord, sites: Sequence[str], site: str | None) -> str:
    """Name of the latent that is meant: ``site``, or the only one.

    Raises:
        ValueError: without discrete latents, for several and none named, for an unknown name.
    """
    if not sites:
        raise ValueError(f"{caller}: {without_latents(fit, 'discrete latents')}")
    if site is None and len(sites) > 1:
        raise ValueError(
            f"{caller}: {fit.model_name} has several latents, {', '.join(map(repr, sites))}: say"
            f" which, as {caller}(data, {sites[-1]!r})"
        )
    if site is not None and site not in sites:
        raise ValueError(
            f"{caller}: site must be one of {', '.join(map(repr, sites))}, got {site!r}"
        )
    return site if site is not None else sites[0]


def without_latents(fit: FitRecord, wanted: str) -> str:
    """Reason why rows have no latents of their own, with what there is instead."""
    words = f"{fit.model_name} has no {wanted}"
    if fit.local:
        return (
            f"{words}; {', '.join(fit.local)} of the rows are in fit.local, and"
            " posterior_frame(data) works out those of new rows"
        )
    if fit.shared_latents:
        names = listed(map(repr, fit.shared_latents))
        return (
            f"{words} in a plate over rows: posterior_latents(data) and decode_latents(data) have"
            f" those outside it, {names}"
        )
    return words


def whole_numbers(values: Tensor) -> np.ndarray:
    """Convert whole numbers to integers; other values of a latent stay."""
    array = as_array(values)
    return array.astype(np.int64) if np.array_equal(array, np.round(array)) else array


def fill_missing(fit: FitRecord, data: Any) -> Any:
    """Impute missing entries by their expectation given the row; all others stay.

    A number is its expectation (of a yes-or-no item the probability of yes), a category the most
    probable one. One value stands for what is not known, so that filled columns vary less than
    complete ones would: for errors and intervals, fit the data with their gaps.

    Returns:
        A frame under the columns (and the index) of the given one; an array where something else
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
        filled = as_array(torch.where(given.isnan(), expected.to(given), given))
        return _laid_out(data, given, filled) if fit.structure.row_columns else filled
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


def _laid_out(data: Any, given: Tensor, filled: np.ndarray) -> np.ndarray:
    """Filled sequences (B, T, J) in the shape of the array that was given.

    Steps after the end of a sequence, and empty ones at the end of an array, stay as they were.
    """
    own = as_array(data) if isinstance(data, Tensor) else data
    kept = own if own.dtype.kind == "f" else np.full(own.shape, np.nan)
    out = np.array(kept, dtype=filled.dtype)
    steps = out if out.ndim == filled.ndim else out[None]  # one table is one sequence
    width = min(steps.shape[1], filled.shape[1])
    inside = as_array(inside_of(given))[:, :width]
    steps[:, :width][inside] = filled[:, :width][inside]
    return out


def _value(column: Any, codes: np.ndarray, code: int, levels: tuple[str, ...]) -> Any:
    """Category in the notation of its column."""
    places = np.flatnonzero(codes == code)
    return column.iloc[int(places[0])] if len(places) else levels[code]
