"""Observed sites of a fitted program: names, data, and simulation of rows."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from inference.fitting.columns import as_fitted, checked_as_fitted
from inference.programs.data import checked, checks_data
from inference.programs.posterior_predictive import observed_names, observed_values, replicate
from inference.programs.program import Params, Program
from ppl_models.parts.validation import as_table

if TYPE_CHECKING:
    from inference.fitting.record import FitRecord


def as_matrix(fit: FitRecord, data: Any) -> np.ndarray:
    """Array (N, J) of ``data``, NaN where missing, checked as the model checks it.

    Raises:
        ValueError: if ``data`` does not fit the model, or is not one table of items.
    """
    data = as_fitted(fit, data)
    table = checked(fit.model, data) if checks_data(fit.model) else as_table(data)
    values: np.ndarray = table[0].detach().cpu().numpy().astype(np.float64)
    return np.where(
        np.isinf(values), np.nan, values
    )  # infinity is what lies after the end of a sequence


def observed_sites(fit: FitRecord, data: Any = None) -> tuple[str, ...]:
    """Names of the observed sites, described by the model or found given ``data``."""
    described = fit.structure.observed_sites()
    if described or data is None:
        return described
    return observed_names(Program(fit.model, checked_as_fitted(fit, data)[0]))


def can_simulate(fit: FitRecord, data: Any = None) -> bool:
    """Whether the program can be called as ``model(None, num_rows)``.

    Of a program that draws rows like others, these must be given.
    """
    if fit.structure.stand_in() is not None:
        return data is not None
    names = list(inspect.signature(fit.model).parameters)
    return len(names) > 1 and names[1] == "num_rows"


def replicated_tables(
    fit: FitRecord, data: Any, num_simulations: int, seed: int
) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """Observed tables by name, one row a unit, and those of data sets drawn from the fit.

    Args:
        fit: the fit; data: as it takes it.
        num_simulations: data sets; seed: of the first.
    """
    data = as_fitted(fit, data)
    tensors, _ = checked(fit.model, data)
    program, structure = Program(fit.model, tensors), fit.structure
    point = fit.params | (fit.local or {})

    def tables(values: Params) -> dict[str, np.ndarray]:
        return {
            name: value.double().cpu().numpy()
            for name, value in structure.as_tables(program, values).items()
        }

    draws = []
    for s in range(num_simulations):
        drawn = structure.simulate_like(fit.params, data, seed + s)
        draws.append(tables(replicate(program, point, seed + s) if drawn is None else drawn))
    return tables(observed_values(program, point)), draws
