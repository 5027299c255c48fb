"""Rows that stay where they are, and are read block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference.base.streaming.processes import Processes
from inference.base.streaming.sources import (
    Source,
    Sparse,
    joined_rows,
    num_rows_in,
    rows_at,
    source_of,
)
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_flag, check_size

BLOCK_ROWS = 65_536
SAMPLE_ROWS = 20_000  # from which a fit starts


@shows_briefly
@dataclass(frozen=True, eq=False)
class RowBlocks:
    """Rows read in blocks, on disk or elsewhere, with a few blocks in memory.

    Make one by :meth:`of`. It is iterated over block by block (arrays, tensors or data frames, as
    the source gives them), so that ``for block in blocks: fit.posterior_latents(block)`` asks a fit
    of one block at a time.

    Args:
        source: where the rows lie.
        block_rows: rows of a block.
        begin, end: which of the source's rows are this process's.
        processes: that share the fit.
    """

    source: Source
    block_rows: int
    begin: int
    end: int
    processes: Processes

    @classmethod
    def of(
        cls,
        source: Any,
        block_rows: int = BLOCK_ROWS,
        group: Any = None,
        columns: Sequence[str] | None = None,
        split: bool = False,
    ) -> RowBlocks:
        """Open a source of rows as row blocks.

        Args:
            source: path of a ``.npy``, ``.parquet`` or ``.arrow`` file or of a folder of parquet
                files, a NumPy memory map (or array), a ``pyarrow.dataset``, a tensor, a data frame,
                a sparse matrix of scipy or an AnnData object with one, of which a block is dense,
                or any object with a length whose slices are tables; or a dict of arrays, tensors or
                ``.npy`` files of one length, as for sequences of states and actions, or for a
                program that reads them by name.
            block_rows: rows held at a time. Fewer than some ten thousand cost time, for every block
                has a fixed price of a few milliseconds.
            group: of ``torch.distributed``, such as ``torch.distributed.group.WORLD``, where
                several processes share one fit; each then makes the same calls. None for one
                process.
            columns: of a file or frame, in the order of the model's items; all if None.
            split: whether every process names the same source, of which each takes an equal share
                of consecutive rows; else each names rows of its own.

        Raises:
            ValueError: for a source of another kind, a file or column that is not there, or
                settings out of range.
        """
        check_size("RowBlocks", "block_rows", block_rows)
        check_flag("RowBlocks", "split", split)
        if group is not None and not _is_group(group):
            raise ValueError(
                "RowBlocks: group must be a process group of torch.distributed (after"
                f" init_process_group), or None, got {group!r}"
            )
        if split and group is None:
            raise ValueError(
                "RowBlocks: split=True shares rows among the processes of a group, and no group was"
                " given"
            )
        opened, processes = source_of(source, columns), Processes(group)
        begin, end = 0, len(opened)
        if split:
            begin = end * processes.rank // processes.size
            end = end * (processes.rank + 1) // processes.size
        if begin == end and group is None:
            raise ValueError("RowBlocks: at least one row was expected, got none")
        if isinstance(opened, Sparse):
            block_rows = min(block_rows, opened.block_rows)
        return cls(opened, int(block_rows), begin, end, processes)

    def __len__(self) -> int:
        """Number of rows of this process."""
        return self.end - self.begin

    @property
    def sample_rows(self) -> int:
        """Rows from which a fit starts."""
        is_sparse = isinstance(self.source, Sparse)
        return min(SAMPLE_ROWS, self.block_rows) if is_sparse else SAMPLE_ROWS

    def __iter__(self) -> Iterator[Any]:
        return self.source.parts(self.begin, self.end, self.block_rows)

    def sample(self, num_rows: int = SAMPLE_ROWS, seed: Seed = 0) -> Any:
        """Sample this process's rows without replacement, in memory and in their order.

        The index of a data frame has the numbers of the rows, counted from 0 in the source.

        Args:
            num_rows: at most so many; seed: of the draw.
        """
        seed = as_seed("sample", seed)
        check_size("sample", "num_rows", num_rows)
        picked, first, parts = drawn_rows(len(self), num_rows, seed), 0, []
        for block in self:
            size = num_rows_in(block)
            places = picked[(picked >= first) & (picked < first + size)] - first
            if len(places):
                parts.append(rows_at(block, places))
            first += size
        rows = joined_rows(parts)
        return rows.set_axis(self.begin + picked) if hasattr(rows, "iloc") else rows


def drawn_rows(num_rows: int, num_drawn: int, seed: int) -> np.ndarray:
    """Row numbers drawn without replacement, in order; all where there are no more."""
    if num_drawn >= num_rows:
        return np.arange(num_rows)
    return np.sort(
        np.random.default_rng(seed).choice(num_rows, num_drawn, replace=False, shuffle=False)
    )


def _is_group(group: Any) -> bool:
    import torch

    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return False
    return isinstance(group, torch.distributed.ProcessGroup)
