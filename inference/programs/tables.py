"""Data of any kind as tensors: arrays, data frames, dicts of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppl_models.parts.sparse import SparseTable


class Columns:
    """A data frame as a program reads it: one tensor a column, by name.

    ``data["x"]`` is a column (N,), ``data[["x", "y"]]`` a table (N, 2), ``len(data)`` the number of
    rows.

    Args:
        columns: by name, each (N,); left_out: columns that hold no numbers, with what they hold.
    """

    def __init__(
        self, columns: Mapping[str, Tensor], left_out: Mapping[str, str] | None = None
    ) -> None:
        self._columns, self._left_out = dict(columns), dict(left_out or {})

    @property
    def columns(self) -> list[str]:
        """The names, in order."""
        return list(self._columns)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self), len(self._columns)

    def keys(self) -> list[str]:
        """As :attr:`columns`."""
        return self.columns

    def values(self) -> list[Tensor]:
        """The columns, in order."""
        return list(self._columns.values())

    def items(self) -> list[tuple[str, Tensor]]:
        """Names and columns."""
        return list(self._columns.items())

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()))) if self._columns else 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key in self._left_out:
                raise ValueError(
                    f"column {key!r} holds {self._left_out[key]}: numbers were expected; code its"
                    " values as 0, 1, ..."
                )
            if key not in self._columns:
                raise ValueError(
                    f"the program reads column {key!r}, which the data do not have; their columns"
                    f" are {self.columns}"
                )
            return self._columns[key]
        if isinstance(key, Sequence) and all(isinstance(name, str) for name in key):
            chosen = [self[name] for name in key]
            return torch.stack([column.to(floating_dtype(chosen)) for column in chosen], -1)
        if isinstance(key, slice | Tensor | np.ndarray | list):
            return self.map(lambda column: column[key])
        raise TypeError(f"a table of columns is read by name, got {key!r}")

    def __getattr__(self, name: str) -> Tensor:
        if not name.startswith("_") and name in self._columns:
            column: Tensor = self[name]
            return column
        raise AttributeError(name)

    @property
    def left_out(self) -> list[str]:
        """Columns that hold no numbers."""
        return list(self._left_out)

    def map(self, change: Callable[[Tensor], Tensor]) -> Columns:
        """The same table with every column changed."""
        return Columns(
            {name: change(column) for name, column in self._columns.items()}, self._left_out
        )


def is_frame(data: Any) -> bool:
    """Data frame test: named columns of equal length."""
    return hasattr(data, "columns") and hasattr(data, "to_numpy")


def as_columns(frame: Any) -> Columns:
    """Columns of a data frame as tensors; columns of text are refused when they are read."""
    columns: dict[str, Tensor] = {}
    left_out: dict[str, str] = {}
    for name in frame.columns:
        try:
            columns[str(name)] = _tensor(frame[name])
        except ValueError as error:
            left_out[str(name)] = str(error)
    return Columns(columns, left_out)


def _tensor(values: Any) -> Tensor:
    """Numbers or booleans as a tensor; whatever lacks a value becomes NaN.

    Raises:
        ValueError: with what the values are, where they are no numbers.
    """
    array = np.array(
        values.to_numpy() if hasattr(values, "to_numpy") else values
    )  # frames lend read-only arrays
    if array.dtype.kind in "mM":  # counts of nanoseconds, which nobody means
        raise ValueError("dates or times")
    if array.dtype.kind not in "biuf":
        kinds = sorted(
            {type(value).__name__ for value in array.ravel().tolist()}
            - {"float", "int", "bool", "NAType", "NoneType"}
        )
        if kinds:
            raise ValueError(f"values of type {', '.join(kinds)}")
        numbers = [
            np.nan if _is_missing(value) else float(value) for value in array.ravel().tolist()
        ]
        array = np.array(numbers).reshape(array.shape)
    if array.dtype.kind == "u":
        array = array.astype(np.int64)
    return torch.from_numpy(array)


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def as_tensors(data: Any) -> Any:
    """Tensors of one floating dtype from arrays, series and data frames.

    Alone or in a dict; for programs that do not check their data.

    Raises:
        ValueError: for text where numbers were expected.
    """
    if isinstance(data, dict):
        tensors = {name: as_tensors(value) for name, value in data.items()}
        widest = floating_dtype(tensors)
        return map_tensors(lambda x: x.to(widest) if x.is_floating_point() else x, tensors)
    if isinstance(data, Tensor | Columns) or not hasattr(data, "__array__"):
        return data
    try:
        return _tensor(data)
    except ValueError as error:
        raise ValueError(f"data: numbers were expected, got {error}") from None


def map_tensors(change: Callable[[Tensor], Tensor], data: Any) -> Any:
    """Apply ``change`` to a tensor, or to every tensor of a dict or table.

    What is no tensor stays.
    """
    if isinstance(data, Columns):
        return data.map(change)
    if isinstance(data, dict):
        return {name: map_tensors(change, value) for name, value in data.items()}
    return change(data) if isinstance(data, Tensor | SparseTable) else data


def first_row(data: Any) -> Any:
    """First row of data of any kind; of a sparse table with its zeros."""
    row = map_tensors(operator.itemgetter(slice(1)), data)
    return row.dense() if isinstance(row, SparseTable) else row


def first_tensor(data: Any) -> Any:
    """First tensor of a table or dict that is no single number.

    Its length is the number of rows.
    """
    if not isinstance(data, Mapping | Columns):
        return data
    values = list(_parts(data))
    tables = [value for value in values if getattr(value, "ndim", 0)]
    return tables[0] if tables else values[0]


def _parts(data: Mapping[str, Any] | Columns) -> Iterable[Any]:
    """Entries by name, without being counted as read by the program."""
    return data._columns.values() if isinstance(data, Columns) else data.values()


def row_data(data: Any) -> bool:
    """Row-wise data: a table, or tensors of one length."""
    if isinstance(data, Tensor):
        return data.dim() > 0
    if isinstance(data, Columns):
        return True
    if not isinstance(data, dict):
        return False
    return (
        all(isinstance(value, Tensor) and value.dim() > 0 for value in data.values())
        and len({len(v) for v in data.values()}) == 1
    )


def floating_dtype(data: Any) -> torch.dtype:
    """Widest floating dtype among tensors, alone or nested; double if there is none."""
    found: list[torch.dtype] = []

    def look(value: Any) -> None:
        if isinstance(value, Tensor):
            found.extend([value.dtype] if value.is_floating_point() else [])
        elif isinstance(value, dict | Columns):
            for part in _parts(value):
                look(part)
        elif isinstance(value, tuple | list):
            for part in value:
                look(part)

    look(data)
    return max(found, key=lambda dtype: torch.finfo(dtype).bits, default=torch.float64)


def checks_data(model: Callable[..., Any]) -> bool:
    """Model with a check of its own data, row by row."""
    return callable(getattr(model, "check_data", None))
