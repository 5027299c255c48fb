"""Tables that a command reads block by block: opened, scanned, fitted."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from inference.base.streaming.row_blocks import BLOCK_ROWS, SAMPLE_ROWS, RowBlocks
from inference.base.structure import Capability
from ppl_models.parts.repr import counted, shown_settings

if TYPE_CHECKING:
    from inference.fitting.result import Fit


ENDINGS = (".npy", ".parquet", ".arrow", ".feather")
CONVERT = (
    "pyarrow makes a parquet file of a csv file piece by piece, in six lines that stand in the page"
    " on large data (docs/scaling.md)"
)


def open_source(
    path: str, columns: Sequence[str] | None, block_rows: int | None, why_not: str = ""
) -> RowBlocks | None:
    """Open a file as row blocks, if it is large or blocks are asked for; else None.

    Args:
        path: the file, or a folder of parquet files.
        columns: to read, all if None.
        block_rows: as the user says; None if he does not.
        why_not: why the command, as it was called, wants its rows in memory, beginning with the
            option; "" where it does not.

    Raises:
        ValueError: where blocks are asked for and not possible, for a column that is not there, or
            a file that holds no table of numbers.
    """
    from ppl_models.data.files import holds_parquet

    file = Path(path)
    if not (holds_parquet(file) or (file.suffix.lower() in ENDINGS and file.is_file())):
        if block_rows is not None and (file.exists() or not file.suffix):
            raise ValueError(
                f"--block-rows: blocks are read from {', '.join(ENDINGS)} files and folders of"
                f" parquet files, got {path}; {CONVERT}"
            )
        return None  # said, where something is wrong, by whoever reads the whole
    if why_not and block_rows is not None:
        raise ValueError(f"--block-rows: {why_not}")
    try:
        source = _opened(file)
        blocks = RowBlocks.of(source, block_rows or BLOCK_ROWS, columns=columns)
        if block_rows is None and len(blocks) <= BLOCK_ROWS:
            return None
        if why_not:
            typer.echo(f"All {len(blocks):,} rows are read into memory: {why_not}.")
            return None
        return (
            blocks
            if not isinstance(source, np.ndarray) or columns is not None
            else RowBlocks.of(
                source, block_rows or BLOCK_ROWS, columns=[str(j) for j in range(source.shape[1])]
            )
        )
    except Exception as error:  # readers of damaged files raise all there is
        if block_rows is None and not isinstance(error, ValueError):
            return None
        text = " ".join(str(error).split()).removeprefix("RowBlocks: ")
        raise ValueError(text if text.startswith(str(file)) else f"{file}: {text}") from error


def _opened(file: Path) -> Any:
    """A map of an array of numbers, or the path of what has columns."""
    if file.stat().st_size == 0:
        raise ValueError(f"{file}: the file is empty")
    if file.suffix.lower() != ".npy":
        return file
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    if array.dtype.kind not in "biuf" or array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"{file}: a table of numbers (rows, items) was expected, got an array of {array.dtype}"
            f" of shape {array.shape}"
        )
    return array


def engine_in_memory(engine: str) -> str:
    """Why an engine wants its rows in memory; "" for EM."""
    return (
        ""
        if engine in ("auto", "em")
        else f"--engine {engine} wants its rows in memory; em reads them in blocks"
    )


def under_names(blocks: RowBlocks, names: Sequence[str]) -> RowBlocks:
    """The blocks of an array under names of its columns."""
    return dataclasses.replace(
        blocks,
        source=dataclasses.replace(blocks.source, names=tuple(names)),  # type: ignore[type-var]
    )


def say_blocks(blocks: RowBlocks, chosen: str = "") -> None:
    """Say that rows are read in blocks, and what is ``chosen`` on a sample of them."""
    sample = (
        ""
        if len(blocks) <= SAMPLE_ROWS
        else (
            f"; {chosen or 'the start'} comes from {SAMPLE_ROWS:,} of them, drawn at random, the"
            " estimates from all"
        )
    )
    typer.echo(
        f"{counted(len(blocks), 'row')}, read in blocks of"
        f" {min(blocks.block_rows, len(blocks)):,}{sample}."
    )


def goes_in_blocks(model: Any, sample: Any, block_rows: int | None) -> bool:
    """Test if a model can be fitted from row blocks.

    Its statistics are then sums over rows, and its engine is EM.

    Args:
        model: to be fitted.
        sample: some of its rows, in memory.
        block_rows: as the user says; None if he does not.

    Raises:
        ValueError: where blocks are asked for and not possible, or the model refuses the sample.
    """
    from inference.engines.em import EM
    from inference.fitting.problem import problem_of
    from inference.programs.global_state import quiet
    from inference.structures.layers.choose_penalty import ChoosePenalty
    from inference.structures.noisy_or.grow_and_prune import GrowAndPrune
    from inference.structures.registry import structure_of

    why = ""
    if Capability.BLOCKS not in structure_of(model).capabilities:
        response = getattr(model, "component", getattr(model, "response", None))
        items = (
            "" if response is None else f" of {shown_settings(response).removesuffix('()')} items"
        )
        why = (
            f"{type(model).__name__}{items} wants all rows in memory, since its M-step reads them"
            " once more"
        )
    else:
        with quiet():
            problem = problem_of(model, sample, 0)
        method = problem.structure.recommended(problem).method
        engine = method.engine if isinstance(method, ChoosePenalty) else method
        if not (engine is None or isinstance(engine, EM | GrowAndPrune)):
            why = (
                f"so many latents are fitted by {type(engine).__name__}, which wants its rows in"
                " memory"
            )
    if why and block_rows is not None:
        raise ValueError(f"--block-rows: {why}; leave the option out, or fit some of the rows")
    if why:
        typer.echo(f"All rows are read into memory: {why}.")
    return not why


def fit_blocks(
    model: Any,
    blocks: RowBlocks,
    first: Fit | None,
    init: Any,
    seed: int,
    checkpoint: Path | None,
    **settings: Any,
) -> Fit:
    """Fit all rows in blocks by EM.

    Where the model leaves something to be chosen, it is chosen on a sample, from whose estimates EM
    starts.

    Args:
        model: as :func:`inference.fit`.
        blocks: as :func:`inference.fit`.
        init: as :func:`inference.fit`.
        seed: as :func:`inference.fit`.
        checkpoint: as :func:`inference.fit`.
        **settings: as :func:`inference.fit`.
        first: of a sample, of the same model, where one was made.
    """
    from inference import EM, fit
    from inference.structures.layers.choose_penalty import is_open

    settings["seed"] = seed
    if first is None and is_open(model):
        beside = None if checkpoint is None else checkpoint.with_name(f"{checkpoint.name}.graph")
        sample = blocks.sample(SAMPLE_ROWS, seed)
        first = fit(model, sample, init=init, checkpoint=beside, **settings)
    if first is None:
        return fit(model, blocks, init=init, checkpoint=checkpoint, **settings)
    settings.pop("num_restarts")
    result = fit(first.model, blocks, EM(), init=first, checkpoint=checkpoint, **settings)
    warnings = tuple(dict.fromkeys((*first.warnings, *result.warnings)))
    return dataclasses.replace(result, choice=first.choice, warnings=warnings)
