"""Sparse tables of counts: non-zero cells row by row, never made dense as a whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppl_models.data.frames import SparseFrame
from ppl_models.parts.responses import MOST_COUNTS

MOST_SHARE = 0.1  # of non-zero cells, up to which a dense table is worth holding sparse
LEAST_CELLS = 2**20  # of a dense table that is


@dataclass(frozen=True, eq=False)
class SparseTable:
    """Table (N, J) by its non-zero cells, in rows (CSR).

    Args:
        offsets: places of the rows among the cells, (N + 1,), from 0.
        columns: of the cells, (C,), in ascending order within a row, int32.
        values: of the cells, (C,), none of them zero.
        num_columns: J.
    """

    offsets: Tensor
    columns: Tensor
    values: Tensor
    num_columns: int

    @classmethod
    def of(cls, matrix: Any) -> SparseTable:
        """Table of a scipy matrix or array; duplicates add up, stored zeros go.

        Numbers of single and double precision share the memory of a CSR matrix in order.
        """
        from scipy import sparse  # heavy, and of no use to most

        rows = sparse.csr_array(matrix)  # a view of one that is
        if not rows.has_canonical_format or not rows.data.all():
            rows = rows.copy()  # the user's stays as it is
            rows.sum_duplicates()
            rows.eliminate_zeros()
        kind = np.float32 if rows.dtype == np.float32 else np.float64
        return cls(
            torch.from_numpy(np.require(rows.indptr, np.int64, "W")),
            torch.from_numpy(np.require(rows.indices, np.int32, "W")),
            torch.from_numpy(np.require(rows.data, kind, "W")),
            int(rows.shape[1]),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(N, J)."""
        return len(self), self.num_columns

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the values."""
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: slice | Tensor) -> SparseTable:
        """Some of the rows: views of a slice's cells, copies of those at places (n,)."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                stop = max(start, stop)
                first, last = int(self.offsets[start]), int(self.offsets[stop])
                own = (self.columns[first:last], self.values[first:last])
                return replace(
                    self,
                    offsets=self.offsets[start : stop + 1] - first,
                    columns=own[0],
                    values=own[1],
                )
            index = torch.arange(start, stop, step)
        if index.dtype == torch.bool:
            index = index.nonzero().ravel()
        sizes = self.sizes[index]
        offsets = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
        shift = torch.repeat_interleave(self.offsets[index] - offsets[:-1], sizes)
        cells = torch.arange(int(offsets[-1])) + shift
        return replace(
            self, offsets=offsets, columns=self.columns[cells], values=self.values[cells]
        )

    def to(self, like: Tensor | torch.dtype) -> SparseTable:
        """The table in the precision of ``like``, in memory of the processor."""
        return replace(
            self, values=self.values.to(like.dtype if isinstance(like, Tensor) else like)
        )

    def is_floating_point(self) -> bool:
        """True, as of the tensors that a table stands for."""
        return True

    def dense(self) -> Tensor:
        """All cells, (N, J)."""
        table = self.values.new_zeros(self.shape)
        table[self.rows, self.columns.long()] = self.values
        return table

    @property
    def sizes(self) -> Tensor:
        """Non-zero cells of each row, (N,)."""
        return self.offsets.diff()

    @property
    def rows(self) -> Tensor:
        """Row of every cell, (C,), int32."""
        return torch.repeat_interleave(torch.arange(len(self), dtype=torch.int32), self.sizes)

    def with_values(self, values: Tensor) -> Any:
        """Matrix of scipy with these values in the non-zero cells, of no memory of its own."""
        from scipy import sparse

        return sparse.csr_array(
            (values.numpy(), self.columns.numpy(), self._short.numpy()), shape=self.shape
        )

    @cached_property
    def _short(self) -> Tensor:
        """Offsets in the integers of the columns, so that scipy converts neither."""
        fits = len(self.values) < torch.iinfo(torch.int32).max
        return self.offsets.to(torch.int32) if fits else self.offsets

    def row_sums(self, values: Tensor) -> Tensor:
        """Sums over the cells of each row of values (C,), (N,)."""
        total: Any = self.with_values(values) @ np.ones(self.num_columns, values.numpy().dtype)
        return torch.from_numpy(total)

    def column_sums(self, values: Tensor) -> Tensor:
        """Sums over the cells of each column of values (C,), (J,)."""
        found = np.bincount(self.columns.numpy(), values.numpy(), self.num_columns)
        return torch.from_numpy(found).to(values)


def is_sparse(data: Any) -> bool:
    """Sparse matrix or array of scipy, with names or without."""
    if isinstance(data, SparseFrame):
        return True
    if type(data).__module__.partition(".")[0] != "scipy":  # asked without loading it
        return False
    from scipy import sparse

    return bool(sparse.issparse(data))


def kind_of(data: Any) -> str:
    """Kind of a sparse matrix, for messages."""
    return f"a sparse matrix of scipy ({type(data).__name__}) of shape {data.shape}"


def as_sparse_counts(data: Any, num_items: int) -> tuple[SparseTable, tuple[str, ...]]:
    """Check sparse counts, and name their columns, by number where they have no names.

    Args:
        data: matrix or array of scipy, or one with names; num_items: J.

    Raises:
        ValueError: for another shape, or NaN, negative, fractional or infinite entries.
    """
    names = tuple(map(str, range(num_items)))
    if isinstance(data, SparseFrame):
        data, names = data.matrix, data.names
    if len(data.shape) != 2 or data.shape[1] != num_items:
        raise ValueError(
            f"data: rows of num_items = {num_items} columns were expected, got shape {data.shape}"
        )
    if data.shape[0] == 0:
        raise ValueError("data: at least one row was expected, got none")
    if data.dtype.kind not in "biuf":
        raise ValueError(f"data: real numbers were expected, got dtype {data.dtype}")
    table = SparseTable.of(data)
    values = table.values
    for wrong, fault in (
        (values.isnan(), "missing entries (NaN) need a dense table, such as data.toarray()"),
        (values < 0, "counts of at least zero were expected"),
        (values > MOST_COUNTS, f"counts of at most {MOST_COUNTS:,} were expected"),
        (values != values.round(), "whole counts were expected"),
    ):
        if bool(wrong.any()):
            cell = int(wrong.long().argmax())
            row = int(torch.searchsorted(table.offsets, cell, right=True)) - 1
            raise ValueError(
                f"data: {fault}, got {float(values[cell]):g} in row {row}, column"
                f" {names[int(table.columns[cell])]!r} of the sparse table"
            )
    return table, names


def worth_sparse(table: Any) -> SparseTable | None:
    """Sparse form of a large, complete table (N, J) that is mostly zero; None for all others."""
    if isinstance(table, SparseTable):
        return table
    if table.numel() < LEAST_CELLS or table.device.type != "cpu":
        return None
    if int(table.count_nonzero()) > MOST_SHARE * table.numel():  # NaN counts
        return None
    found = SparseTable.of(table.numpy())
    return None if bool(found.values.isnan().any()) else found
