"""A model and data, checked and brought together: what engines are given."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from inference.base.hashing import digest_of
from inference.base.outcome import RowsWarning
from inference.base.streaming.column_scan import scan_columns
from inference.base.streaming.row_blocks import BLOCK_ROWS, RowBlocks
from inference.base.streaming.rows import check_rows
from inference.base.streaming.sources import is_lazy
from inference.base.structure import (
    Capability,
    Method,
    Problem,
    Structure,
    refuse_open_sites,
    refused_rows,
)
from inference.engines.em import EM
from inference.fitting.weights import check_weighed, row_weights, weights_in_blocks
from inference.programs.arguments import call_of
from inference.programs.data import checked
from inference.programs.program import Program
from inference.programs.validate import check_program
from inference.structures.registry import structure_of
from ppl_models.data.frames import as_frame, is_frame
from ppl_models.data.items import OpenItems, OpenModel
from ppl_models.data.sequences import in_places
from ppl_models.data.sparse import SparseTable, is_sparse
from ppl_models.data.tables import checks_data
from ppl_models.parts.validation import is_integer


def problem_of(
    model: Callable[..., Any],
    data: Any,
    seed: int,
    start_given: bool = False,
    weights: Any = None,
    takes_sparse: bool = False,
) -> Problem:
    """Problem of a model and its data, checked by the model's own rules if it has any.

    Args:
        model: the program; data: what it takes.
        seed: of everything random.
        start_given: whether the user gave the parameters to start from.
        weights: how often each row counts; None for once.
        takes_sparse: whether the caller can do with a sparse table.

    Raises:
        ValueError: for a model that is a class, a seed out of range, data that the model refuses,
            weights that are none (:func:`inference.fitting.weights.row_weights`), or a program that
            no engine can fit.
    """
    _check_call(model, seed)
    model = call_of(model, data)
    if isinstance(data, RowBlocks):
        raise ValueError(
            "data: rows in memory were expected, got RowBlocks, which fit takes: give some of the"
            " rows, blocks.sample(20_000)"
        )
    model = model_of_data(model, data)
    tensors, names = checked(model, data, for_fit=True, takes_sparse=takes_sparse)
    own_program = None if checks_data(model) else Program(model, tensors)
    if own_program is not None:
        check_program(own_program)
        _warn_of_plates(own_program)
    structure = structure_of(model)
    tensor_weights = (
        None
        if weights is None
        else row_weights(weights, as_frame(data), tensors, structure, own_program)
    )
    bound_model = structure.bind(tensors, tensor_weights)
    problem = Problem(
        bound_model,
        tensors,
        names,
        int(seed),
        start_given,
        structure if bound_model is model else structure_of(bound_model),
        weights=tensor_weights,
    )
    if own_program is not None:
        own_program.share_trial(problem.trial_results)
        if own_program.is_of(bound_model, tensors):
            problem.once("program", lambda: own_program.weighed(tensor_weights))
    return problem


def _warn_of_plates(program: Program) -> None:
    for name, (drawn, size) in program.drawn.items():
        warnings.warn(
            f"plate {name!r} would draw {drawn:,} of {size:,} rows at every run: all of them are"
            " taken, at every run",
            RowsWarning,
            stacklevel=4,
        )


def model_of_data(model: Any, data: Any, weights: Any = None, seed: int = 0) -> Any:
    """Model with what it leaves open read off the data; any other program as it is.

    Of rows in blocks, columns are judged by a sample and by values that no sampled row has.

    Args:
        model, data, weights: as ``fit`` takes them; a column of weights is no item.
        seed: of the sample.

    Raises:
        ValueError: as :meth:`ppl_models.Mixture.for_data`; for an open model of rows that several
            processes share, of which each knows its own.
    """
    if not isinstance(model, OpenModel):
        return model
    if not model.waits_for_data:
        in_memory = not (isinstance(data, RowBlocks) or is_lazy(data))
        return model.for_data(data) if in_memory else model
    blocks = RowBlocks.of(data) if is_lazy(data) else data
    if not isinstance(blocks, RowBlocks):
        return model.for_data(data)
    if not isinstance(model, OpenItems):
        raise ValueError(
            f"model: where rows come in blocks, the sizes of {type(model).__name__} were expected,"
            f" got {model!r}: take model.for_data(rows in memory)"
        )
    if blocks.processes.group is not None:
        raise ValueError(
            f"model: where processes share the rows, num_items and the families of the items of"
            f" {type(model).__name__} were expected, got none: take model.for_data(a sample) of the"
            " same sample in all of them"
        )
    if not is_frame(next(iter(blocks))):
        return model.for_data(blocks.sample(seed=seed))
    frame = scan_columns(blocks, seed).frame
    return model.for_data(
        frame.drop(columns=weights, errors="ignore") if isinstance(weights, str) else frame
    )


def as_read(model: Any, data: Any) -> tuple[Any, dict[str, str]]:
    """Data without the column that names rows, or under names of places; what was read as what."""
    in_memory = not (isinstance(data, RowBlocks) or is_lazy(data))
    read_as = model.read_as(data) if isinstance(model, OpenModel) and in_memory else {}
    if "row" in read_as:
        return as_frame(data).drop(columns=read_as["row"]), read_as
    return in_places(as_frame(data), read_as) if read_as else data, read_as


def _check_call(model: Any, seed: Any) -> None:
    if not callable(model) or isinstance(model, type):
        raise ValueError(
            f"model: a Pyro program (a callable, not a class) was expected, got {model!r}"
        )
    if not is_integer(seed, least=0):
        raise ValueError(f"seed: a non-negative integer below 2**63 was expected, got {seed!r}")


def problem_of_blocks(
    model: Callable[..., Any],
    blocks: RowBlocks,
    seed: int,
    start_given: bool = False,
    weights: Any = None,
    method: Method | None = None,
) -> Problem:
    """Problem of rows in blocks, read once; its data are a sample.

    Raises:
        ValueError: as there; for a model whose M-step wants its rows in memory.
    """
    _check_call(model, seed)
    model = model_of_data(model, blocks, weights, seed)
    structure = structure_of(model)
    words = None
    is_generic = (
        type(structure) is Structure
    )  # nothing but the program is known: sums of its log-density and derivatives are what EM wants
    can_sum = not structure.local_sites and structure.covariates is None
    if not (
        Capability.BLOCKS in structure.capabilities
        or Capability.LOCAL_BLOCKS in structure.capabilities
        or is_generic
        or (can_sum and isinstance(method, EM) and not method.accelerate)
    ):
        words = (
            "RowBlocks: mixtures, hidden Markov models, encoders, latent attributes, noisy-OR"
            " models, factor analysis, factorizations, OptionsHMM and programs of your own are"
            " fitted from rows in blocks, without negative binomial or bounded items, Student t"
            " components, durations without max_duration and covariates, and this"
            f" {type(model).__name__} wants its rows in memory:"
            " fit(model, blocks.sample(20_000)) fits some of them"
            + (
                ", and EM(accelerate=False) all of them more slowly, by sums of the log-density and"
                " its derivatives, where latents can be summed out"
                if can_sum
                else ""
            )
        )
    blocks.processes.refuse(blocks.processes.gathered(words))
    weight_array = None
    if weights is not None:
        check_weighed(structure)
        blocks, weight_array = weights_in_blocks(weights, blocks)

    def look(program: Program) -> None:
        refuse_open_sites("RowBlocks: EM", structure, program)
        program.check_enumerable()

    rows, sample, names = check_rows(
        model, blocks, int(seed), look, weight_array, partial(refused_rows, structure)
    )
    sample_weights = None if rows.weights is None else rows.weights[torch.as_tensor(rows.sampled)]
    bound_model = structure.bind(sample, sample_weights)
    return Problem(
        bound_model,
        sample,
        names,
        int(seed),
        start_given,
        structure if bound_model is model else structure_of(bound_model),
        weights=sample_weights,
        rows=rows,
    )


def in_blocks(model: Callable[..., Any], data: Any, method: Method | None = None) -> Any:
    """Convert memory maps and Arrow data sets of several blocks, and sparse tables, to row blocks.

    Sparse tables of models that do not work on their cells; a block is dense.

    Args:
        model: the program; data: what the user gave.
        method: the engine; None for the recommended one.
    """
    if (
        isinstance(data, RowBlocks)
        or not (is_lazy(data) or is_sparse(data := as_frame(data)))
        or not callable(model)
        or isinstance(model, type)
    ):
        return data
    is_array = hasattr(data, "dtype")
    structure = structure_of(model)
    goes = _goes_in_blocks(structure, method)
    if is_sparse(data):
        goes = goes and not getattr(model, "takes_sparse", False) and not structure.row_columns
        return RowBlocks.of(data) if goes else data
    if not goes or (
        structure.row_columns and not (is_array and data.ndim == 3)
    ):  # steps of one sequence, or of several, are no rows
        return data if is_array else data.to_table()
    if is_array and len(data) <= BLOCK_ROWS:
        return data
    blocks = RowBlocks.of(data)
    return blocks if len(blocks) > BLOCK_ROWS else data.to_table()


def _goes_in_blocks(structure: Structure, method: Method | None) -> bool:
    """Tell whether an engine fits rows block by block."""
    return _solves(structure, method) or (
        Capability.BLOCKS in structure.capabilities
        and (method is None or (isinstance(method, EM) and method.accelerate))
    )


def takes_sparse(model: Callable[..., Any], method: Method | None = None) -> bool:
    """Tell whether an engine (the recommended one: None) fits a model to a sparse table."""
    if getattr(model, "takes_sparse", False):
        return method is None or getattr(method, "solves_blocks", False)
    structure = structure_of(model)
    return _goes_in_blocks(structure, method) and not structure.row_columns


def _solves(structure: Structure, method: Method | None) -> bool:
    """Tell whether an engine made for the structure solves rows block by block."""
    return Capability.LOCAL_BLOCKS in structure.capabilities and (
        method is None or getattr(method, "solves_blocks", False)
    )


def check_blocks(
    model: Any, blocks: RowBlocks, method: Method | None, init: Any, num_restarts: int | None
) -> None:
    """Refuse engines that need all rows at once, before any row is read.

    Args:
        model: the program; blocks: the rows.
        method: the engine; None for the recommended one, which :func:`check_engine` looks at once
            it is known.
        init, num_restarts: as the user gave them.

    Raises:
        ValueError: saying which engine does without.
    """
    if blocks.processes.group is not None:
        blocks.processes.agree(
            "method, init and num_restarts", digest_of((method, init, num_restarts), "the settings")
        )
    if method is not None:
        check_engine(structure_of(model), method)


def check_engine(structure: Structure, method: Method) -> None:
    """Refuse engines that are neither EM by sums over rows nor solve a block's rows."""
    if Capability.LOCAL_BLOCKS in structure.capabilities and not _solves(structure, method):
        raise ValueError(
            f"RowBlocks: this {type(structure.model).__name__} is fitted from rows in blocks by"
            f" Factorize(), and {method!r} wants them in memory: leave method out, or give"
            " blocks.sample(20_000) for some of the rows"
        )
    if not (Capability.LOCAL_BLOCKS in structure.capabilities or isinstance(method, EM)):
        raise ValueError(
            f"RowBlocks: EM() is fitted from rows in blocks, and {method!r} wants them in memory:"
            " give method=EM() (and a penalty, where the model's is left open), or"
            " blocks.sample(20_000) for some of the rows"
        )


def refuse_sparse(problem: Problem, method: Method) -> None:
    """Refuse engines that need every cell of a sparse table.

    Raises:
        ValueError: saying which engine does without.
    """
    if isinstance(problem.data, SparseTable) and not getattr(method, "solves_blocks", False):
        raise ValueError(
            f"data: a dense table was expected, got a sparse one: Factorize() takes it, and"
            f" {method!r} needs every cell: leave method out, or give data.toarray()"
        )
