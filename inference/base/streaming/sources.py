"""Sources of rows: memory maps, parquet and Arrow data, sliceable objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ppl_models.data.frames import SparseFrame, as_frame, column_names
from ppl_models.data.sparse import is_sparse
from ppl_models.parts.validation import installed

MOST_CELLS = 2**24  # of a block of sparse rows, which is dense
ARROW = (".parquet", ".arrow", ".feather", ".ipc")
# of a parquet file at once: small numbers take several times their size while they are decoded
DECODED_ROWS = 8_192


class Source(Protocol):
    """Protocol of a source of rows, in an order, read part by part."""

    def __len__(self) -> int:
        """Number of rows."""
        ...

    def kind(self) -> str:
        """Width and type of a row, in words, which all rows share."""
        ...

    def parts(self, begin: int, end: int, size: int) -> Iterator[Any]:
        """Yield rows ``begin`` to ``end``, at most ``size`` at a time."""
        ...

    def files(self) -> tuple[Path, ...]:
        """Files on this machine; none where rows lie in memory or elsewhere."""
        ...


def is_lazy(data: Any) -> bool:
    """Tell whether data are rows on disk, which a fit reads block by block."""
    if isinstance(data, np.memmap):
        return data.ndim >= 2
    return type(data).__module__ == "pyarrow._dataset"


def source_of(data: Any, columns: Sequence[str] | None = None) -> Source:
    """Open the rows of a file, memory map, Arrow data set, frame, sliceable object or dict.

    Args:
        data: as said.
        columns: of a frame or file, in this order; all if None.
    """
    if isinstance(data, dict):
        if columns is not None:
            raise ValueError(
                "RowBlocks: columns are chosen by name from a data frame, parquet file or Arrow"
                " data set, and this is a dict of arrays: leave some out of it"
            )
        return _arrays(data)
    if isinstance(data, str | os.PathLike):
        data = _opened(Path(data))
    if type(data).__module__ == "pyarrow._dataset":
        if not hasattr(data, "to_batches") or not hasattr(data, "get_fragments"):
            raise ValueError(
                f"RowBlocks: a pyarrow.dataset was expected, got {type(data).__name__}"
            )
        return _Arrow(
            data,
            (
                _known("RowBlocks", columns, tuple(data.schema.names))
                if columns is not None
                else _items_of(data.schema)
            ),
        )
    data = as_frame(data)
    if is_sparse(data) and columns is None:
        matrix = data.matrix if isinstance(data, SparseFrame) else data
        return Sparse(matrix.tocsr(), data.names if isinstance(data, SparseFrame) else None)
    if hasattr(data, "columns") and hasattr(data, "iloc"):
        chosen = _known("RowBlocks", columns, column_names(data))
        return _Frame(data if columns is None else data[list(chosen)])
    if isinstance(data, np.ndarray | Tensor):
        if data.ndim < 2:
            raise ValueError(
                f"RowBlocks: a table (rows, items) was expected, got shape {tuple(data.shape)}"
            )
        if columns is None:
            return _Array(data)
        if data.ndim == 2:
            numbers = tuple(map(str, range(data.shape[1])))
            return _Named(
                _Array(data),
                tuple(numbers.index(name) for name in _known("RowBlocks", columns, numbers)),
                tuple(columns),
            )
    if columns is not None:
        raise ValueError(
            "RowBlocks: columns are chosen by name from a data frame, parquet file or Arrow data"
            " set, or by number ('0', '1', ...) from a table in an array, and this is none"
        )
    if type(data).__name__ == "DataLoader":
        raise ValueError(
            "RowBlocks: rows that can be sliced were expected, got a DataLoader, which collates"
            " them one by one: give its dataset"
        )
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")) or isinstance(
        data, dict | bytes | list | tuple
    ):
        raise ValueError(
            "RowBlocks: a path, a NumPy memory map, a pyarrow.dataset, a dict of arrays, or an"
            " object with a length and slices (data[0:1000] is a table) was expected, got"
            f" {type(data).__name__}"
        )
    return _Slices(data)


def column_apart(source: Source, name: str) -> tuple[Source, Source]:
    """Split a source into the rows without one column, and that column alone."""
    if not isinstance(source, _Arrow | _Frame | _Arrays):
        raise ValueError(
            f"weights: the name of a column, {name!r}, was given, and these rows have no named"
            " columns: give one number a row"
        )
    names = source.names()
    if name not in names:
        raise ValueError(
            f"weights: the name of a column was expected, got {name!r}; the columns are"
            f" {list(names[:20])}"
        )
    if len(names) == 1:
        raise ValueError(f"weights: {name!r} is the only column, so that no rows are left")
    rest = tuple(other for other in names if other != name)
    return source.chosen(rest), source.chosen((name,))


def _opened(path: Path) -> Any:
    if not path.exists():
        raise ValueError(f"RowBlocks: {path}: there is no such file")
    if path.suffix == ".npy":
        try:
            return np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise ValueError(
                f"RowBlocks: {path}: an array of numbers was expected ({error})"
            ) from error
    if path.is_dir() or path.suffix in ARROW:
        with installed(f"RowBlocks: {path}: a file of this kind", "arrow"):
            import pyarrow
            import pyarrow.dataset

        kind = "parquet" if path.is_dir() or path.suffix == ".parquet" else "Arrow"
        try:
            return pyarrow.dataset.dataset(path, format="parquet" if kind == "parquet" else "ipc")
        except pyarrow.ArrowInvalid as error:
            raise ValueError(f"RowBlocks: {path}: {_unlike(path, kind)}") from error
    raise ValueError(
        "RowBlocks: a .npy, .parquet or .arrow file, or a folder of parquet files, was expected,"
        f" got {path}"
    )


def _unlike(path: Path, kind: str) -> str:
    if path.is_dir():
        return f"a folder of {kind} files was expected, and not all of its files are"
    with path.open("rb") as stream:
        return f"the ending promises {kind}, but the first bytes are {stream.read(8)!r}"


def _known(owner: str, columns: Sequence[str] | None, names: tuple[str, ...]) -> tuple[str, ...]:
    if columns is None:
        return names
    if isinstance(columns, str):
        raise ValueError(f"{owner}: columns must be a list of names, got {columns!r}")
    unknown = [name for name in columns if name not in names]
    if unknown:
        raise ValueError(
            f"{owner}: columns {unknown} are not in the data, whose columns are {list(names[:20])}"
        )
    return tuple(columns)


@dataclass(frozen=True, eq=False)
class _Array:
    """Array or tensor; parts of a memory map are mapped one by one, to free what was read."""

    array: np.ndarray | Tensor

    def __len__(self) -> int:
        return len(self.array)

    def kind(self) -> str:
        return f"{tuple(self.array.shape[1:])} numbers of {self.array.dtype}"

    def parts(self, begin: int, end: int, size: int) -> Iterator[Any]:
        for first in range(begin, end, size):
            yield _mapped_alone(self.array[first : min(first + size, end)])

    def files(self) -> tuple[Path, ...]:
        root = _root(self.array)
        return () if root is None else (Path(root.filename),)  # type: ignore[arg-type]


def _root(array: Any) -> np.memmap | None:
    """Memory map of a file that an array is a part of; None for none."""
    if not isinstance(array, np.memmap):
        return None
    while isinstance(array.base, np.memmap):
        array = array.base
    return array if array.filename is not None else None


def _mapped_alone(part: Any) -> Any:
    root = _root(part)
    if root is None or not part.flags.c_contiguous:
        return part
    offset = root.offset + part.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return np.asarray(
        np.memmap(root.filename, dtype=part.dtype, mode="r", offset=offset, shape=part.shape)  # type: ignore[call-overload]
    )


def _arrays(data: dict[Any, Any]) -> _Arrays:
    arrays: dict[str, _Array] = {}
    for name, value in data.items():
        opened = _opened(Path(value)) if isinstance(value, str | os.PathLike) else value
        if not isinstance(opened, np.ndarray | Tensor) or not opened.ndim:
            raise ValueError(
                "RowBlocks: a dict of arrays, tensors or .npy files, one entry a row in each, was"
                f" expected, got {type(value).__name__} as {name!r}"
            )
        arrays[str(name)] = _Array(opened)
    lengths = {name: len(value) for name, value in arrays.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(
            "RowBlocks: a dict of arrays of one length, one entry a row in each, was expected, got"
            f" lengths {lengths}"
        )
    return _Arrays(arrays)


@dataclass(frozen=True, eq=False)
class _Arrays:
    """Arrays side by side, such as the states and the actions of sequences."""

    arrays: dict[str, _Array]

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def names(self) -> tuple[str, ...]:
        return tuple(self.arrays)

    def chosen(self, names: Sequence[str]) -> _Arrays:
        return _Arrays({name: self.arrays[name] for name in names})

    def kind(self) -> str:
        return ", ".join(f"{name} of {value.kind()}" for name, value in self.arrays.items())

    def parts(self, begin: int, end: int, size: int) -> Iterator[Any]:
        for values in zip(
            *(value.parts(begin, end, size) for value in self.arrays.values()), strict=True
        ):
            yield dict(zip(self.arrays, values, strict=True))

    def files(self) -> tuple[Path, ...]:
        return tuple(
            dict.fromkeys(path for value in self.arrays.values() for path in value.files())
        )


@dataclass(frozen=True, eq=False)
class _Named:
    """Some columns of an array, as a frame in which each is named by its number."""

    array: _Array
    places: tuple[int, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.array)

    def kind(self) -> str:
        return f"{', '.join(self.names)} of {self.array.array.dtype}"

    def parts(self, begin: int, end: int, size: int) -> Iterator[Any]:
        import pandas as pd

        for part in self.array.parts(begin, end, size):
            yield pd.DataFrame(np.asarray(part[:, list(self.places)]), columns=list(self.names))

    def files(self) -> tuple[Path, ...]:
        return self.array.files()


@dataclass(frozen=True, eq=False)
class _Frame:
    """A pandas frame."""

    frame: Any

    def __len__(self) -> int:
        return len(self.frame)

    def names(self) -> tuple[str, ...]:
        return column_names(self.frame)

    def chosen(self, names: Sequence[str]) -> _Frame:
        return _Frame(self.frame[list(names)])

    def kind(self) -> str:
        return ", ".join(f"{name} of {self.frame[name].dtype}" for name in self.frame.columns)

    def parts(self, begin: int, end: int, size: int) -> Iterator[Any]:
        for first in range(begin, end, size):
            yield self.frame.iloc[first : min(first + size, end)]

    def files(self) -> tuple[Path, ...]:
        return ()


@dataclass(frozen=True, eq=False)
class Sparse:
    """Sparse matrix of scipy, whose parts are dense: frames where its columns have names."""

    matrix: Any
    names: tuple[str, ...] | None

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def block_rows(self) -> int:
        """Rows that are dense at once."""
        return max(1, MOST_CELLS // max(1, int(self.matrix.shape[1])))

    def kind(self) -> str:
        return f"{self.matrix.shape[1]} numbers of {self.matrix.dtype}"

    def parts(self, begin: int, end: int, size: int) -> Iterator[Any]:
        import pandas as pd

        for first in range(begin, end, size):
            part = self.matrix[first : min(first + size, end)].toarray()
            yield part if self.names is None else pd.DataFrame(part, columns=list(self.names))

    def files(self) -> tuple[Path, ...]:
        return ()


@dataclass(frozen=True, eq=False)
class _Slices:
    """Any object with a length, whose slices are tables."""

    data: Any

    def __len__(self) -> int:
        return len(self.data)

    def kind(self) -> str:
        return _kind_of(self.data[0 : min(1, len(self.data))]) if len(self.data) else "nothing"

    def parts(self, begin: int, end: int, size: int) -> Iterator[Any]:
        wanted = self.kind()
        for first in range(begin, end, size):
            last = min(first + size, end)
            part = as_frame(self.data[first:last])
            if not hasattr(part, "__len__") or len(part) != last - first:
                raise ValueError(
                    f"data: {last - first:,} rows were expected of [{first}:{last}], got"
                    f" {len(part) if hasattr(part, '__len__') else part!r}"
                )
            kind = _kind_of(part)
            if kind != wanted:
                raise ValueError(
                    f"data: rows like the first ({wanted}) were expected everywhere, but rows"
                    f" {first:,} to {last:,} are {kind}"
                )
            yield part

    def files(self) -> tuple[Path, ...]:
        return ()


def _kind_of(part: Any) -> str:
    part = as_frame(part)
    if hasattr(part, "columns"):
        return _Frame(part).kind()
    if isinstance(part, np.ndarray | Tensor):
        return _Array(part).kind()
    return f"{type(part).__name__} of {np.asarray(part).shape[1:]}"


@dataclass(frozen=True, eq=False)
class _Arrow:
    """Arrow data set, read by the row groups asked for, one after the other."""

    dataset: Any
    columns: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.dataset.count_rows())

    def names(self) -> tuple[str, ...]:
        return self.columns

    def chosen(self, names: Sequence[str]) -> _Arrow:
        return _Arrow(self.dataset, tuple(names))

    def kind(self) -> str:
        schema = self.dataset.schema
        return ", ".join(f"{name} of {schema.field(name).type}" for name in self.columns)

    def parts(self, begin: int, end: int, size: int) -> Iterator[Any]:
        import pyarrow

        held: list[Any] = []
        for batch in self._batches(begin, end, size):
            while batch.num_rows:
                room = size - sum(part.num_rows for part in held)
                held.append(batch.slice(0, room))
                batch = batch.slice(min(room, batch.num_rows))
                if sum(part.num_rows for part in held) == size:
                    yield _as_pandas(pyarrow.Table.from_batches(held))
                    held = []
        if held:
            yield _as_pandas(pyarrow.Table.from_batches(held))

    def _batches(self, begin: int, end: int, size: int) -> Iterator[Any]:
        passed = 0
        for fragment in self.dataset.get_fragments():
            if passed >= end:
                return
            count = fragment.count_rows()
            if passed + count > begin:
                yield from self._of_file(
                    fragment, max(begin - passed, 0), min(end - passed, count), size
                )
            passed += count

    def _of_file(self, fragment: Any, begin: int, end: int, size: int) -> Iterator[Any]:
        """Rows of one file, from the row groups that hold some of them alone."""
        passed = 0
        for count, read in self._groups(fragment, size):
            first, last, at = max(begin - passed, 0), min(end - passed, count), 0
            for batch in read() if first < last else ():
                span = slice(max(first - at, 0), min(last - at, batch.num_rows))
                if span.start < span.stop:
                    yield batch.slice(span.start, span.stop - span.start)
                at += batch.num_rows
            passed += count

    def _groups(
        self, fragment: Any, size: int
    ) -> Iterator[tuple[int, Callable[[], Iterator[Any]]]]:
        """Numbers of rows of the row groups, each with a reader by batches.

        A scanner holds a row group as a whole, so parquet files are decoded as they are read,
        unless columns must be cast or come from the names of folders.
        """
        import pyarrow.fs
        import pyarrow.parquet

        names = list(self.columns)

        def scanned(part: Any) -> Iterator[Any]:
            return iter(
                part.scanner(
                    self.dataset.schema,
                    columns=names,
                    batch_size=size,
                    batch_readahead=1,
                    use_threads=False,
                ).to_batches()
            )

        def decoded(file: Any, number: int) -> Iterator[Any]:
            return (
                batch.select(names)
                for batch in file.iter_batches(
                    min(size, DECODED_ROWS), [number], names, use_threads=False
                )
            )

        if not isinstance(fragment, pyarrow.dataset.ParquetFileFragment):
            yield fragment.count_rows(), partial(scanned, fragment)
            return
        is_far = not isinstance(fragment.filesystem, pyarrow.fs.LocalFileSystem)
        with (
            fragment.open() as stream,
            pyarrow.parquet.ParquetFile(
                stream, metadata=fragment.metadata, pre_buffer=is_far
            ) as file,
        ):
            held = {field.name: field.type for field in file.schema_arrow}
            as_is = all(held.get(name) == self.dataset.schema.field(name).type for name in names)
            for number, group in enumerate(fragment.split_by_row_group()):
                yield (
                    file.metadata.row_group(number).num_rows,
                    partial(decoded, file, number) if as_is else partial(scanned, group),
                )

    def files(self) -> tuple[Path, ...]:
        paths = (Path(name) for name in getattr(self.dataset, "files", ()))
        return tuple(path for path in paths if path.exists())


def num_rows_in(part: Any) -> int:
    """Number of rows of a part."""
    return len(next(iter(part.values())) if isinstance(part, dict) else part)


def _items_of(schema: Any) -> tuple[str, ...]:
    """Column names of a data set, without an index that pandas has stored."""
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    return tuple(name for name in schema.names if name not in index)


def _as_pandas(table: Any) -> Any:
    """Convert an Arrow table to pandas, decimals and booleans with gaps as numbers."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        column = table.column(place)
        if (
            pa.types.is_decimal(field.type)
            or pa.types.is_null(field.type)
            or (pa.types.is_boolean(field.type) and column.null_count)
        ):
            number = column.cast(pa.int8()) if pa.types.is_boolean(field.type) else column
            table = table.set_column(place, field.name, number.cast(pa.float64(), safe=False))
    return table.to_pandas(ignore_metadata=True)


def rows_at(part: Any, index: Any) -> Any:
    """Copy of some rows of a part, in its form."""
    if isinstance(part, dict):
        return {name: rows_at(value, index) for name, value in part.items()}
    if hasattr(part, "iloc"):
        return part.iloc[np.asarray(index)].copy()
    if isinstance(part, Tensor):
        return part[torch.as_tensor(index)].clone()
    return np.array(np.asarray(part)[np.asarray(index)])


def joined_rows(parts: Sequence[Any]) -> Any:
    """Concatenate rows of one form."""
    if isinstance(parts[0], dict):
        return {name: joined_rows([part[name] for part in parts]) for name in parts[0]}
    if hasattr(parts[0], "iloc"):
        import pandas as pd

        return pd.concat(list(parts), ignore_index=True)
    return torch.cat(list(parts)) if isinstance(parts[0], Tensor) else np.concatenate(list(parts))
