"""Weights of rows, checked before any work."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.base.structure import Method, Structure
from inference.engines.em import EM
from inference.programs.data import first_tensor, is_frame

__all__ = ["check_weighing", "row_weights"]

LEAST_SUM = 2.0  # weights that add up to less are shares, and no counts


def row_weights(weights: Any, data: Any, tensors: Any, structure: Structure) -> Tensor:
    """Weights as a tensor (N,) beside the rows.

    Args:
        weights: one number a row.
        data: the rows as they were given; tensors: the same, checked.
        structure: of the model.

    Raises:
        ValueError: for a model whose steps do not count rows by weights; for weights that are not one finite number of at least zero a row, that are all
            zero, or that have another index than the rows.
    """
    if not structure.takes_weights:
        raise ValueError(
            "weights: mixtures, hidden Markov models (one weight a sequence), noisy-OR models, and encoders and latent attribute models without negative binomial "
            "items take weights of rows, and this "
            f"{type(structure.model).__name__} does not; repeat rows instead where weights are counts"
        )
    if is_frame(data) and hasattr(weights, "to_numpy") and len(weights) == len(data) and not data.index.equals(getattr(weights, "index", data.index)):
        raise ValueError("weights: the index of the rows was expected, got another one: give weights in the order of the rows, as an array if need be")
    like, num_rows = first_tensor(tensors), len(first_tensor(tensors))
    try:
        values = np.asarray(weights.detach().cpu() if isinstance(weights, Tensor) else weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"weights: one number a row was expected ({error})") from error
    if values.shape != (num_rows,):
        raise ValueError(f"weights: one number for each of the {num_rows:,} rows was expected, got shape {values.shape}")
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"weights: finite numbers of at least zero were expected, got {values[row]:g} in row {row}")
    if not values.any():
        raise ValueError("weights: at least one weight above zero was expected, got zeros alone")
    if values.sum() < LEAST_SUM:
        raise ValueError(
            f"weights: numbers that count rows were expected, and these add up to {values.sum():.3g}: scale them to the size of the sample, as "
            "weights / weights.mean()"
        )
    return torch.tensor(values).to(like)  # a copy: arrays of pandas may be read-only


def check_weighing(method: Method) -> None:
    """Refuse an engine that does not count rows by weights.

    Raises:
        ValueError: naming it.
    """
    if not (isinstance(method, EM) and method.accelerate):
        raise ValueError(f"weights: EM() takes weights of rows, and {method!r} does not")
