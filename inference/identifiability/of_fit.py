"""Identifiability report of a fit: theorems of its kind, or the Fisher information."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import Any, Protocol

import numpy as np

from inference.base.plugins import load_kind
from inference.base.structure import Structure
from inference.fitting.columns import as_fitted
from inference.fitting.record import FitRecord
from inference.identifiability.fisher import InformationReport, information_from_scores
from inference.identifiability.scores import (
    MOST_PARAMETERS,
    MOST_WORK,
    coordinates_of,
    row_scores,
    rows_like,
    scores_of_drawn,
)
from inference.programs.data import checked
from inference.programs.program import Program
from inference.programs.sites import is_large
from ppl_models.data.tables import checks_data, first_tensor

# folder of a kind -> file of its theorems, where that is named otherwise
THEOREMS = {"layers": "check", "mixture": "latent_classes"}
ROWS_EACH = 2  # rows a parameter, below which their scores say nothing of its rank


class IdentifiabilityText(Protocol):
    """Protocol of the reports."""

    def text(self) -> str:
        """Report in words."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Report as plain JSON values."""
        ...


def identifiability_of(fit: FitRecord, data: Any = None) -> IdentifiabilityText | None:
    """Report on the identifiability of a fit; None where it would cost too much.

    Args:
        fit: of any program.
        data: the data of the fit, whose rows a program without theorems of its own is judged by.
    """
    load_kind(__package__, type(fit.structure), THEOREMS)
    data = as_fitted(fit, data)
    return report_of(fit.structure, fit, data)


@singledispatch
def report_of(structure: Structure, fit: FitRecord, data: Any) -> IdentifiabilityText | None:
    """Rank and conditioning of the Fisher information, from the scores of the rows.

    A kind with theorems of its own registers a better answer in the file of the theorem, in this
    folder.
    """
    size = sum(value.numel() for value in fit.params.values())
    if data is None or fit.draws is not None or structure.local_sites or size > MOST_PARAMETERS:
        return None
    tensors = checked(fit.model, data)[0]
    # which may be some of the fit's
    num_rows = len(first_tensor(tensors)) if checks_data(fit.model) else fit.num_rows
    if num_rows < ROWS_EACH * size or num_rows * size > MOST_WORK:
        return None
    program = Program(fit.model, tensors)
    values = max([1, *(site.num_values or 1 for site in program.sites)])
    if is_large(program.sites) or num_rows * values > MOST_WORK:
        return None
    try:
        scores, names = row_scores(fit, data, hold_bounds=True)
        found = information_from_scores(scores, names) if names else None
    except (
        ValueError,
        RuntimeError,
    ):  # latents that cannot be summed out, rows outside a single plate, no derivative
        return None
    if found is None or found.is_full_rank:
        return found
    return information_of_distribution(fit, data) or found


@singledispatch
def possible_values(
    structure: Structure, fit: FitRecord, data: Any
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Ends, by site, of all parameters that have the same distribution, where these are known.

    Not the error of sampling: more rows do not narrow them, unless they tell more.
    """
    return {}


def information_of_distribution(fit: FitRecord, data: Any) -> InformationReport | None:
    """Rank and conditioning by the scores of rows drawn from the fit.

    They differ where those of the data happen to agree (a column that is there twice). None where
    no rows can be drawn at a reasonable cost.
    """
    try:
        rows = rows_like(fit, data)
        coordinates = coordinates_of(fit, rows)
        coordinates = coordinates.without(coordinates.at_bound())
        scores = scores_of_drawn(fit, rows, coordinates)
        found = information_from_scores(scores, coordinates.names)
        return replace(found, is_simulated=True)
    except (ValueError, RuntimeError):
        return None
