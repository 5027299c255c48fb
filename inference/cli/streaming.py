"""Tables that a command reads block by block: opened, scanned, fitted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from inference.base.streaming.row_blocks import BLOCK_ROWS, SAMPLE_ROWS, RowBlocks, drawn_rows
from inference.base.structure import Capability
from ppl_models.data.frames import holds_texts, misread_numbers
from ppl_models.parts.repr import counted, shown_settings

if TYPE_CHECKING:
    import pandas as pd

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


def numbered(blocks: RowBlocks) -> Iterator[pd.DataFrame]:
    """The blocks of a file as frames, whose index counts the rows from 0."""
    first = 0
    for block in blocks:
        yield block.set_axis(range(first, first + len(block)))
        first += len(block)


MOST_VALUES = 60  # of a column that are kept: more are no categories


@dataclass(frozen=True)
class ColumnScan:
    """Rows that stand for all rows where columns are judged.

    Args:
        frame: a sample of the rows, and beside it rows that have a value, up to sixty a column, or
            a kind of value (negative, not whole, zero) that no other of them has.
        counting: columns that count the rows.
        num_rows: of the whole table.
    """

    frame: pd.DataFrame
    counting: tuple[str, ...]
    num_rows: int


@dataclass
class _ColumnValues:
    """Values of one column so far."""

    values: list[Any] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    last: float = np.nan
    counts: bool = True

    def new_rows(self, column: pd.Series, start: int) -> list[int]:
        """Places of rows of the block that bring something new."""
        if holds_texts(column):
            self.counts = False
            return self._new_values(column)
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        steps = np.diff(numbers, prepend=[] if start == 0 else [self.last])
        self.counts, self.last = self.counts and bool((steps == 1).all()), float(numbers[-1])
        with np.errstate(invalid="ignore"):
            kinds = {
                "negative": numbers < 0,
                "zero": numbers == 0,
                "no whole number": numbers != np.floor(numbers),
            }
        rows = [
            int(has.argmax())
            for kind, has in kinds.items()
            if kind not in self.kinds and (has & ~np.isnan(numbers)).any()
        ]
        self.kinds |= {kind for kind, has in kinds.items() if has.any()}
        return rows + self._new_values(column)

    def _new_values(self, column: pd.Series) -> list[int]:
        if len(self.values) > MOST_VALUES:
            return []
        new = (
            column[column.notna() & ~column.isin(self.values)]
            .drop_duplicates()
            .head(MOST_VALUES + 1)
        )
        self.values += new.tolist()
        return [int(place) for place in column.index.get_indexer(new.index)]


def scan_columns(blocks: RowBlocks, seed: int = 0) -> ColumnScan:
    """Read all rows once, block by block, to see what columns hold.

    Args:
        blocks: of frames.
        seed: of the sample.

    Raises:
        ValueError: for a column that holds texts some of which are numbers.
    """
    import pandas as pd

    from ppl_models.data.files import is_number

    columns: dict[str, _ColumnValues] = {}
    picked, parts = drawn_rows(len(blocks), SAMPLE_ROWS, seed), []
    for block in numbered(blocks):
        start = int(block.index[0])
        rows = set((picked[(picked >= start) & (picked < start + len(block))] - start).tolist())
        for name in block:
            column = columns.setdefault(str(name), _ColumnValues())
            rows.update(column.new_rows(block[name], start))
            numbers = [
                value for value in column.values if isinstance(value, str) and is_number(value)
            ]
            if numbers:
                misread = misread_numbers(column.values)
                remedy = "save it as a column of numbers, or leave it out with --columns"
                held = misread or f"texts that are numbers, such as {numbers[0]!r}: {remedy}"
                raise ValueError(f"column {str(name)!r} holds {held}")
        parts.append(block.iloc[sorted(rows)].copy())
    frame = pd.concat(parts)
    return ColumnScan(
        frame,
        tuple(name for name, column in columns.items() if column.counts and len(blocks) > 2),
        len(blocks),
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
