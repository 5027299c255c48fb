"""Weights of rows, and rows left out for missing covariates, checked before any work."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from inference.base.outcome import RowsWarning
from inference.base.streaming.row_blocks import RowBlocks
from inference.base.streaming.sources import column_apart
from inference.base.structure import Capability, Method, Problem, Structure, refuse_open_sites
from inference.engines.em import EM
from inference.programs.arguments import program_name
from inference.programs.program import Program
from inference.structures.registry import structure_of
from ppl_models.data.frames import as_frame, check_index, is_frame, row_of
from ppl_models.data.tables import as_table, checks_data, first_tensor, floating_dtype, with_nan
from ppl_models.parts.repr import counted

Missing = Literal["refuse", "drop"]
MOST_NAMED = 10  # rows of a warning
LEAST_SUM = 2.0  # weights that add up to less are shares, and no counts


def row_weights(
    weights: Any, data: Any, tensors: Any, structure: Structure, program: Program | None = None
) -> Tensor:
    """Weights as a tensor (N,) beside the rows.

    Args:
        weights: one number a row.
        data: the rows as they were given; tensors: the same, checked.
        structure: of the model; program: of a user, whose plate says how many rows there are.

    Raises:
        ValueError: for a model whose steps do not count rows by weights; for weights that are not
            one finite number of at least zero a row, that are all zero, or that have another index
            than the rows.
    """
    check_weighed(structure)
    if isinstance(weights, str):
        raise ValueError(
            f"weights: one number a row was expected beside rows in memory, got {weights!r}: the"
            f" name of a column is for RowBlocks; give data[{weights!r}], and the other columns as"
            " data"
        )
    check_index("weights", weights, data)
    like = first_tensor(tensors)
    num_rows = len(like) if program is None else program.num_rows
    values = _numbers(weights)
    if values.shape != (num_rows,):
        raise ValueError(
            f"weights: one number for each of the {num_rows:,} rows was expected, got shape"
            f" {values.shape}"
        )
    _check_values(values, data)
    like = like if program is None else like.new_empty(0, dtype=floating_dtype(program.args))
    return torch.tensor(values).to(like)  # a copy: arrays of pandas may be read-only


def check_weighed(structure: Structure) -> None:
    """Refuse a model whose steps do not count rows by weights.

    Raises:
        ValueError: saying which do.
    """
    if Capability.WEIGHTS not in structure.capabilities and checks_data(structure.model):
        raise ValueError(
            "weights: mixtures, hidden Markov models (one weight a sequence), noisy-OR models,"
            " encoders and latent attribute models without negative binomial items, and programs of"
            f" your own take weights of rows, and {program_name(structure.model)} does not;"
            " repeat rows instead where weights are counts"
        )


def weights_in_blocks(weights: Any, blocks: RowBlocks) -> tuple[RowBlocks, np.ndarray]:
    """Split row blocks into the items and the weights of all processes' rows, (N,).

    Args:
        weights: one number for each row of the source, such as a memory map; or the name of a
            column of it.
        blocks: this process's rows.

    Raises:
        ValueError: as :func:`row_weights`, in all processes alike.
    """
    words, own_values, processes = None, np.zeros(0), blocks.processes
    try:
        if isinstance(weights, str):
            rest, column = column_apart(blocks.source, weights)
            parts = [
                part[weights] for part in column.parts(blocks.begin, blocks.end, blocks.block_rows)
            ]
            own_values = np.concatenate([_numbers(part) for part in parts]) if parts else own_values
            blocks = replace(blocks, source=rest)
        else:
            size = len(blocks.source)
            if np.shape(weights) != (size,):
                raise ValueError(
                    f"weights: one number for each of the {size:,} rows was expected, got shape"
                    f" {np.shape(weights)}"
                )
            own_values = _numbers(weights[blocks.begin : blocks.end])
    except ValueError as error:
        words = str(error)
    processes.refuse(processes.gathered(words))
    values = np.concatenate(processes.gathered(own_values))
    _check_values(values)
    return blocks, values


def _numbers(values: Any) -> np.ndarray:
    """Convert to double precision, NaN where missing."""
    try:
        return np.asarray(
            with_nan(np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)),
            dtype=np.float64,
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"weights: one number a row was expected ({error})") from error


def _check_values(values: np.ndarray, data: Any = None) -> None:
    """Refuse weights (N,) that count no rows, named as ``data`` names them."""
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"weights: finite numbers of at least zero were expected, got {values[row]:g} in"
            f" {row_of(data if is_frame(data) and len(data) == len(values) else None, row)}"
        )
    if not values.any():
        raise ValueError("weights: at least one weight above zero was expected, got zeros alone")
    if values.sum() < LEAST_SUM:
        raise ValueError(
            "weights: numbers that count rows were expected, and these add up to"
            f" {values.sum():.3g}: scale them to the size of the sample, as weights /"
            " weights.mean()"
        )


def check_weighing(problem: Problem, method: Method) -> None:
    """Refuse an engine, or a program of a user, that does not count rows by weights.

    Raises:
        ValueError: naming it.
    """
    is_family = checks_data(problem.model)
    if not isinstance(method, EM) or is_family and not method.accelerate:
        raise ValueError(f"weights: EM() takes weights of rows, and {method!r} does not")
    if not is_family:
        program = problem.program()
        refuse_open_sites("weights: EM", problem.structure, program)
        program.check_weighable()


def complete_covariates(
    model: Any, data: Any, weights: Any, covariates_missing: Missing
) -> tuple[Any, Any]:
    """Drop rows that lack a covariate from data and weights, where that is asked for.

    Args:
        model, data, weights: as ``fit`` takes them.
        covariates_missing: "refuse" or "drop".

    Raises:
        ValueError: for another word, a model without covariates, weights of another number than
            rows, or if every row lacks a covariate.

    Warns:
        RowsWarning: if rows are left out, saying how many and which.
    """
    if covariates_missing not in ("refuse", "drop"):
        raise ValueError(
            f"fit: covariates_missing must be 'refuse' or 'drop', got {covariates_missing!r}"
        )
    if covariates_missing == "refuse" or isinstance(data, RowBlocks) or isinstance(model, type):
        return data, weights
    structure = structure_of(model)
    covariates = structure.covariates
    if covariates is None:
        raise ValueError(
            "fit: covariates_missing='drop' leaves out rows that lack a covariate, and this"
            f" {type(model).__name__} has none, as Mixture(..., covariates=('age', 'sex')) or"
            " DeepDiscreteEncoder(..., covariates=...) has"
        )
    data = as_frame(data)
    seen = covariates.seen(data, model.num_items)
    if all(seen):
        return data, weights
    if not any(seen):
        raise ValueError("fit: covariates_missing='drop': every row lacks a covariate")
    if weights is not None:
        if np.shape(weights) != (len(seen),):
            raise ValueError(
                f"weights: one number for each of the {len(seen):,} rows was expected, got shape"
                f" {np.shape(weights)}"
            )
        weights = (
            weights[seen]
            if hasattr(weights, "loc")
            else (
                weights[torch.tensor(seen)]
                if isinstance(weights, Tensor)
                else np.asarray(weights)[seen]
            )
        )
    gone = [row for row, kept in enumerate(seen) if not kept]
    rows = ", ".join(row_of(data, row).removeprefix("row ") for row in gone[:MOST_NAMED]) + (
        f" and {len(gone) - MOST_NAMED:,} more" if len(gone) > MOST_NAMED else ""
    )
    warnings.warn(
        f"{counted(len(gone), 'row')} of {len(seen):,} left out of the fit, for lack of a"
        f" covariate: {rows}, counted from 0. Where such rows differ from the others, the fit is"
        " one of the others",
        RowsWarning,
        stacklevel=3,
    )
    return data[seen] if is_frame(data) else as_table(data)[0][torch.tensor(seen)], weights
