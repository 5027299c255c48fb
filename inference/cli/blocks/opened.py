"""Which files a command reads in blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from inference.base.streaming.row_blocks import BLOCK_ROWS, RowBlocks

if TYPE_CHECKING:
    import pandas as pd


ENDINGS = (".npy", ".parquet", ".arrow", ".feather")
CONVERT = (
    "pyarrow makes a parquet file of a csv file piece by piece, in six lines that stand in the page"
    " on large data (docs/scaling.md)"
)


def open_blocks(
    path: str, columns: Sequence[str] | None, block_rows: int | None, why_not: str = ""
) -> RowBlocks | None:
    """Rows of a file by blocks, where they are more than one block or are asked for so; None for a
    table that is read as a whole.

    Args:
        path: the file, or a folder of parquet files; columns: to read, all if None.
        block_rows: as the user says; None if he does not.
        why_not: why the command, as it was called, wants its rows in memory, beginning with the
            option; "" where it does not.

    Raises:
        ValueError: where blocks are asked for and not possible, for a column that is not there, or
            a file that holds no table of numbers.
    """
    from ppl_models.datasets.files import holds_parquet

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


def under_names(blocks: RowBlocks, names: Sequence[str]) -> RowBlocks:
    """The blocks of an array under names of its columns."""
    return dataclasses.replace(
        blocks,
        source=dataclasses.replace(blocks.source, names=tuple(names)),  # type: ignore[type-var]
    )


def numbered(blocks: RowBlocks) -> Iterator[pd.DataFrame]:
    """The blocks of a file as frames, whose index counts the rows from 0."""
    first = 0
    for block in blocks:
        yield block.set_axis(range(first, first + len(block)))
        first += len(block)
