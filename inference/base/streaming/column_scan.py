"""First look at the columns of rows in blocks: a sample, and what no sampled row holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from inference.base.streaming.row_blocks import SAMPLE_ROWS, RowBlocks, drawn_rows
from ppl_models.data.frames import holds_texts, misread_numbers

if TYPE_CHECKING:
    import pandas as pd

MOST_VALUES = 60  # of a column that are kept: more are no categories


def numbered(blocks: RowBlocks) -> Iterator[pd.DataFrame]:
    """The blocks of a file as frames, whose index counts the rows from 0."""
    first = 0
    for block in blocks:
        yield block.set_axis(range(first, first + len(block)))
        first += len(block)


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
