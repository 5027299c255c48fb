"""Rows that lack a covariate, which a fit leaves out where it is asked to."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from inference.base.blocks.row_blocks import RowBlocks
from inference.base.outcome import RowsWarning
from inference.programs.data import is_frame
from inference.structures.registry import structure_of
from ppl_models.parts.frames import as_frame
from ppl_models.parts.showing import counted
from ppl_models.parts.validation import as_table

__all__ = ["Missing", "complete_covariates"]

Missing = Literal["refuse", "drop"]
MOST_NAMED = 10  # rows of a warning


def complete_covariates(model: Any, data: Any, weights: Any, covariates_missing: Missing) -> tuple[Any, Any]:
    """Data and weights without the rows that lack a covariate of the model, where these are to be dropped; else as they are.

    Args:
        model, data, weights: as ``fit`` takes them.
        covariates_missing: "refuse" or "drop".

    Raises:
        ValueError: for another word, a model without covariates, weights of another number than rows, or if every row lacks a covariate.

    Warns:
        RowsWarning: if rows are left out, saying how many and which.
    """
    if covariates_missing not in ("refuse", "drop"):
        raise ValueError(f"fit: covariates_missing must be 'refuse' or 'drop', got {covariates_missing!r}")
    if covariates_missing == "refuse" or isinstance(data, RowBlocks) or isinstance(model, type):
        return data, weights
    structure = structure_of(model)
    known = structure.covariates
    if known is None:
        raise ValueError(
            f"fit: covariates_missing='drop' leaves out rows that lack a covariate, and this {type(model).__name__} has none, as Mixture(..., covariates=('age', 'sex')) or "
            "DeepDiscreteEncoder(..., covariates=...) has"
        )
    data = as_frame(data)
    seen = known.seen(data, model.num_items)
    if all(seen):
        return data, weights
    if not any(seen):
        raise ValueError("fit: covariates_missing='drop': every row lacks a covariate")
    if weights is not None:
        if np.shape(weights) != (len(seen),):
            raise ValueError(f"weights: one number for each of the {len(seen):,} rows was expected, got shape {np.shape(weights)}")
        weights = weights[seen] if hasattr(weights, "loc") else weights[torch.tensor(seen)] if isinstance(weights, Tensor) else np.asarray(weights)[seen]
    gone = [row for row, kept in enumerate(seen) if not kept]
    rows = ", ".join(map(str, gone[:MOST_NAMED])) + (f" and {len(gone) - MOST_NAMED:,} more" if len(gone) > MOST_NAMED else "")
    warnings.warn(
        f"{counted(len(gone), 'row')} of {len(seen):,} {'lacks' if len(gone) == 1 else 'lack'} a covariate and {'is' if len(gone) == 1 else 'are'} left out of the fit: "
        f"{rows}, counted from 0. Where such rows differ from the others, the fit is one of the others",
        RowsWarning,
        stacklevel=3,
    )
    return data[seen] if is_frame(data) else as_table(data)[0][torch.tensor(seen)], weights
