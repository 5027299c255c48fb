"""Tables of numbers from files; nothing in a file is ever executed (no pickle)."""

from __future__ import annotations

import csv
import io
import zipfile
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ppl_models.parts.frames import misread_numbers
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import EXACT, inexact

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


MISSING = frozenset(
    {"", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "None", "null", "NULL"}
)  # as pandas reads them
MOST_NAMED = 12
TAB = "\t"
SEPARATORS = {".csv": ",", ".tsv": TAB}
COLUMNAR = (".parquet", ".arrow", ".feather")
SHEETS = (".xls", ".xlsx", ".ods")
KINDS = {",": "comma-separated text", TAB: "tab-separated text"}
FORMULA = tuple("=+-@\t\r\n")  # what a formula begins with in a spreadsheet
QUOTE = "'"  # before what stays a text in a spreadsheet
NPY_MAGIC, ZIP_MAGIC, PARQUET_MAGIC, ARROW_MAGIC = b"\x93NUMPY", b"PK\x03\x04", b"PAR1", b"ARROW1"


@shows_briefly
@dataclass(frozen=True, eq=False)
class Table:
    """Table of numbers with column names.

    Args:
        values: (N, J) float64; NaN where an entry is missing.
        names: J different column names.
        row_names: N different names of rows, where they were asked for and the file has some.
    """

    values: np.ndarray
    names: tuple[str, ...]
    row_names: tuple[str, ...] | None = None


class EntryError(ValueError):
    """Error: an entry is no number, where the file itself is sound."""


def read_table(
    path: str | Path, row_names: bool = False, columns: Sequence[str] | None = None
) -> Table:
    r"""Read a table of numbers, one row a unit, from a file.

    Files are csv, tsv, parquet, arrow, npy or npz, or a folder of parquet files.

    - ``.csv``, ``.tsv``: UTF-8, separated by commas or tabs. The first line holds the column names;
      a first line of numbers only is taken as data, and columns are then named "0", "1", ...,
      unless it counts its three or more columns from 0 or from 1, which is a line of names. An
      apostrophe that keeps a spreadsheet from taking a text for a formula, as in ``'=a`` or
      ``'-a``, is no part of the text. Empty entries, NA, N/A, n/a, NaN, None and null are missing.
    - ``.parquet``, ``.arrow``, ``.feather``, a folder of parquet files: numbers and booleans; nulls
      are missing; an index stored by pandas is left out.
    - ``.npy``: an (N, J) array of numbers or booleans.
    - ``.npz``: the same; of several arrays name one by ``file.npz:name``.

    Args:
        path: the file.
        row_names: take the first column of a csv or tsv file for names of the rows where it holds
            texts; leave it out where it counts them.
        columns: names of those to read, in their order; the others may hold anything, such as
            texts. Where a file names none they are called "0", "1", ... None for all.

    Returns:
        The table. Rows and columns without a name are counted from 0 in error messages, and lines
        of the file from 1.

    Raises:
        ValueError: for a file that is missing, empty, of another kind than its ending says or of an
            unknown ending; for a column that is asked for and not there, an entry that is no number
            (naming column and row), rows of unequal length (naming the line), a column name that is
            empty or occurs twice, a row name likewise, an npz file with several arrays and none
            named, an array that has not two dims, and a table without rows or columns.
    """
    file, key = _split_key(str(path))
    ending = _ending_of(file)
    if ending not in _READERS:
        raise ValueError(
            f"{file}: a file ending in {', '.join(_READERS)} was expected, got"
            f" {ending or 'no ending'!r}{'; save the sheet as csv' if ending in SHEETS else ''}"
        )
    if columns is not None and not columns:
        raise ValueError(f"{file}: at least one column was expected to be asked for, got none")
    try:
        _check_file(file)
        labels = None
        if row_names and ending in SEPARATORS:
            separator = SEPARATORS[ending]
            text, labels = _without_labels(file, _read_text(file, separator), separator)
            values, names = _read_lines(file, text, separator, columns)
        else:
            values, names = _READERS[ending](file, key, columns)
    except Exception as error:
        raise _in_one_line(file, error) from error
    if values.ndim != 2:
        raise ValueError(
            f"{file}: a table (rows, items) was expected, got an array of shape {values.shape}"
        )
    if 0 in values.shape:
        raise ValueError(
            f"{file}: at least one row and one column were expected, got {values.shape[0]} x"
            f" {values.shape[1]}"
        )
    names = names or tuple(str(j) for j in range(values.shape[1]))
    _check_names(file, names)
    return Table(values, names, labels)


def read_texts(
    path: str | Path, columns: Sequence[str] | None = None
) -> dict[str, list[str | None]]:
    """Read columns of a csv, tsv or parquet file as texts, None where missing.

    The first line of text holds the names.

    Args:
        path: the file.
        columns: as for :func:`read_table`.

    Raises:
        ValueError: as :func:`read_table`, but for entries that are no numbers; and for a file of
            another ending.
    """
    file = Path(path)
    ending = _ending_of(file)
    if ending not in (*SEPARATORS, *COLUMNAR):
        raise ValueError(
            f"{file}: texts are read from files ending in {', '.join((*SEPARATORS, *COLUMNAR))},"
            f" got {ending or 'no ending'!r}"
        )
    try:
        _check_file(file)
        if ending in COLUMNAR:
            table = _arrow_table(file)
            names = tuple(table.column_names)
            lines: list[list[str]] = [
                ["" if value is None else str(value) for value in row.values()]
                for row in table.to_pylist()
            ]
        else:
            separator = SEPARATORS[ending]
            head, *lines = [
                line
                for line in csv.reader(
                    io.StringIO(_read_text(file, separator), newline=""),
                    delimiter=separator,
                    strict=True,
                )
                if line
            ] or [[]]
            names = tuple(own_text(name.strip()) for name in head)
            _check_separator(file, names, separator)
            for number, line in enumerate(lines):
                if len(line) != len(names):
                    raise ValueError(
                        f"{file}: row {number} has {len(line)} entries, where {len(names)} were"
                        " expected as in the first line"
                    )
    except Exception as error:
        raise _in_one_line(file, error) from error
    _check_names(file, names)
    if not names or not lines:
        raise ValueError(
            f"{file}: at least one row and one column were expected, got {len(lines)} x"
            f" {len(names)}"
        )
    chosen = names if columns is None else tuple(columns)
    return {
        name: [None if line[j].strip() in MISSING else own_text(line[j].strip()) for line in lines]
        for name, j in zip(chosen, _places(file, names, chosen), strict=True)
    }


def inexact_entry(entry: str) -> str:
    """Fault of a whole number beyond double precision, as text; "" for others."""
    digits = entry.strip().lstrip("+-").lstrip("0")
    if not digits.isdecimal() or len(digits) < len(str(EXACT)):
        return ""
    return inexact(
        np.array([int(digits[:300])], dtype=object)
    )  # more digits than a float has room for make no difference


def is_number(entry: str) -> bool:
    """Whether an entry of a text file is a number."""
    try:
        _float(entry)
    except ValueError:
        return False
    return True


def as_text(entry: Any) -> Any:
    """Mark a text that a spreadsheet would take for a formula with an apostrophe."""
    if not isinstance(entry, str) or is_number(entry):
        return entry
    return QUOTE + entry if entry.lstrip(QUOTE)[:1] in FORMULA else entry


def own_text(entry: Any) -> Any:
    """Restore a text that :func:`as_text` wrote; any other entry as it is."""
    if isinstance(entry, str) and entry.startswith(QUOTE) and as_text(entry[1:]) == entry:
        return entry[1:]
    return entry


def to_csv(table: pd.DataFrame, file: Any, header: bool = True) -> None:
    """Write the columns of a table as csv, in which a spreadsheet takes no text for a formula."""
    plain = _mapped(table, as_text)
    words = [*plain.columns, *(word for j in _texts(plain) for word in plain.iloc[:, j].unique())]
    breaks = any(
        "\r" in word for word in words if isinstance(word, str)
    )  # which csv itself quotes in newer Pythons only
    plain.to_csv(
        file,
        index=False,
        header=header,
        quoting=csv.QUOTE_NONNUMERIC if breaks else csv.QUOTE_MINIMAL,
    )


def own_texts(table: pd.DataFrame) -> pd.DataFrame:
    """Restore a table's names and entries as they were before :func:`to_csv`."""
    return _mapped(table, own_text)


def _mapped(table: pd.DataFrame, function: Callable[[Any], Any]) -> pd.DataFrame:
    """Apply a function to the names and to the entries that are no numbers."""
    new = table.set_axis([function(name) for name in table.columns], axis=1)
    for j in _texts(table):
        new.isetitem(j, table.iloc[:, j].map(function))
    return new


def _texts(table: pd.DataFrame) -> list[int]:
    """Positions of the columns that are no numbers."""
    import pandas as pd

    return [j for j, kind in enumerate(table.dtypes) if not pd.api.types.is_numeric_dtype(kind)]


def _check_file(file: Path) -> None:
    if not file.exists():
        raise ValueError(f"{file}: no such file")
    if holds_parquet(file):
        return
    if not file.is_file():
        raise ValueError(f"{file}: a file was expected, got a folder or a device")
    if file.stat().st_size == 0:
        raise ValueError(f"{file}: the file is empty")


def _in_one_line(file: Path, error: Exception) -> ValueError:
    """Reader's error on a file in one line, with the file's name."""
    text = " ".join(str(error).split())
    if isinstance(error, ValueError) and str(error).startswith(f"{file}: "):
        return type(error)(text) if isinstance(error, EntryError) else ValueError(text)
    if isinstance(error, OSError) and error.strerror:
        return ValueError(f"{str(file)[:200]}: the file cannot be read: {error.strerror}")
    return ValueError(f"{file}: the file is damaged: {text[:300] or type(error).__name__}")


def _split_key(path: str) -> tuple[Path, str | None]:
    stem, separator, key = path.rpartition(":")
    if separator and stem.lower().endswith(".npz"):
        return Path(stem), key
    return Path(path), None


def _places(file: Path, names: Sequence[str], columns: Sequence[str]) -> list[int]:
    """Positions of the columns that are asked for."""
    shown = ", ".join(map(repr, names[:MOST_NAMED])) + (", ..." if len(names) > MOST_NAMED else "")
    for j, name in enumerate(columns):
        if name not in names:
            raise ValueError(f"{file}: no column is named {name!r}; the columns are {shown}")
        if name in columns[:j] or names.count(name) > 1:
            is_repeated = names.count(name) > 1
            words = "two columns are named" if is_repeated else "one column was asked for twice,"
            raise ValueError(f"{file}: {words} {name!r}")
    return [names.index(name) for name in columns]


def _check_names(file: Path, names: tuple[str, ...]) -> None:
    seen = set()
    for j, name in enumerate(names):
        if not name:
            raise ValueError(
                f"{file}: column {j} has no name; if it holds row labels, write the file without"
                " them"
            )
        if name in seen:
            raise ValueError(f"{file}: two columns are named {name!r}")
        seen.add(name)


def _other_kind(file: Path, expected: str) -> ValueError:
    with file.open("rb") as stream:
        start = stream.read(8)
    kinds = {
        NPY_MAGIC: "npy",
        ZIP_MAGIC: "npz (or another zip archive)",
        PARQUET_MAGIC: "parquet",
        b"\x1f\x8b": "gzip",
    }
    found = next((kind for magic, kind in kinds.items() if start.startswith(magic)), None)
    what = f"the content looks like {found}" if found else f"the first bytes are {start!r}"
    return ValueError(f"{file}: the ending promises {expected}, but {what}")


# Text


def _read_text(file: Path, separator: str) -> str:
    content = file.read_bytes()
    if b"\x00" in content or content.startswith((NPY_MAGIC, ZIP_MAGIC, PARQUET_MAGIC, b"\x1f\x8b")):
        raise _other_kind(file, KINDS[separator])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file}: UTF-8 text was expected, got byte {content[error.start]:#x} at {error.start}"
        ) from error


def _without_labels(file: Path, text: str, separator: str) -> tuple[str, tuple[str, ...] | None]:
    """Separate row names, or row numbers, from the text of a table.

    The text comes back as it is where there are none.
    """
    try:
        lines = [
            line
            for line in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
            if line
        ]
    except csv.Error:
        return text, None  # said where it is read
    if not lines or len(lines[0]) < 2:
        return text, None
    firsts = [line[0].strip() for line in (lines if _header(lines[0][1:]) is None else lines[1:])]
    counts = len(firsts) >= 3 and any(
        firsts == [str(j + start) for j in range(len(firsts))] for start in (0, 1)
    )
    if not counts and all(first in MISSING or is_number(first) for first in firsts):
        return text, None
    for j, name in enumerate(firsts):
        if not name or name in firsts[:j]:
            raise ValueError(
                f"{file}: row {j} is named {name!r}; a name of its own was expected for each"
            )
    without = io.StringIO(newline="")
    csv.writer(without, delimiter=separator).writerows(line[1:] for line in lines)
    return without.getvalue(), None if counts else tuple(firsts)


def _read_lines(
    file: Path, text: str, separator: str, columns: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    convert = (
        float if "_" not in text.partition("\n")[2] else _float
    )  # float() would read 1_0 as ten
    names: tuple[str, ...] | None = None
    width, kept, places, numbers = 0, 0, None, array("d")
    try:
        for row in reader:
            if not row:
                continue
            if not width:
                width = kept = len(row)
                names = head = _header(row)
                if head is not None:
                    _check_separator(file, head, separator)
                if columns is not None:
                    places, kept, names = (
                        _places(file, head or tuple(map(str, range(width))), columns),
                        len(columns),
                        tuple(columns),
                    )
                if head is not None:
                    continue
            if len(row) != width:
                raise ValueError(
                    f"{file}: line {reader.line_num} has {len(row)} entries, where {width} were"
                    " expected as in the first line"
                )
            entries = row if places is None else [row[j] for j in places]
            try:
                numbers.extend(map(convert, entries))
            except ValueError:  # a missing entry, or no number; those before it were appended
                del numbers[len(numbers) // kept * kept :]
                where = (len(numbers) // kept, reader.line_num)
                numbers.extend(
                    _parse(file, names, j, entry, where) for j, entry in enumerate(entries)
                )
    except csv.Error as error:
        raise ValueError(
            f"{file}: line {reader.line_num}: {KINDS[separator]} was expected, but {error}"
        ) from error
    if not width:
        raise ValueError(f"{file}: the file holds no line with an entry")
    values = np.frombuffer(numbers, dtype=np.float64).reshape(-1, kept)
    large = np.argwhere(np.abs(values) > EXACT)
    if len(large):
        lines = [
            row
            for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
            if row
        ][-len(values) :]
        for place, j in large.tolist():
            words = inexact_entry(lines[place][j if places is None else places[j]])
            if words:
                raise EntryError(
                    f"{file}: column {repr(names[j]) if names else j}, row {place}: {words}"
                )
    return values, names or ()


def _float(entry: str) -> float:
    if "_" in entry:
        raise ValueError(entry)
    return float(entry)


def _header(row: list[str]) -> tuple[str, ...] | None:
    """Column names of a row, or None where it holds data."""
    names = tuple(own_text(entry.strip()) for entry in row)
    if not all(name in MISSING or is_number(name) for name in names) or not any(
        map(is_number, names)
    ):
        return names
    counting = [tuple(str(j + start) for j in range(len(names))) for start in (0, 1)]
    return names if len(names) >= 3 and names in counting else None


def _check_separator(file: Path, names: tuple[str, ...], separator: str) -> None:
    others = [(";", "semicolons"), (TAB, "tabs"), (",", "commas")]
    if len(names) == 1:
        for other, what in others:
            if other != separator and other in names[0]:
                expected = "commas" if separator == "," else "tabs"
                remedy = (
                    f"name the file {file.stem}.{'tsv' if other == TAB else 'csv'}"
                    if other in SEPARATORS.values()
                    else f"save it with {expected}, and points in decimal numbers"
                )
                raise ValueError(
                    f"{file}: entries separated by {expected} were expected, got {what}:"
                    f" {names[0][:60]!r}; {remedy}"
                )


def _parse(
    file: Path, names: tuple[str, ...] | None, column: int, entry: str, where: tuple[int, int]
) -> float:
    stripped = entry.strip()
    if stripped in MISSING:
        return float("nan")
    try:
        return _float(stripped)
    except ValueError:
        name = repr(names[column]) if names else str(column)
        raise EntryError(
            f"{file}: column {name}, row {where[0]} (line {where[1]}): a number was expected, got "
            f"{misread_numbers([stripped]) or repr(entry)}"
        ) from None


# Arrays


def _as_numbers(file: Path, values: np.ndarray, what: str = "array") -> np.ndarray:
    """Convert a boolean, integer or floating array to float64."""
    if values.dtype.kind not in "biuf":
        kinds = {
            "U": "strings",
            "S": "strings",
            "T": "strings",
            "c": "complex numbers",
            "V": "records",
            "M": "dates",
        }
        found = kinds.get(values.dtype.kind, f"dtype {values.dtype}")
        hint = (
            f", first {str(values.flat[0])!r}" if values.dtype.kind in "UST" and values.size else ""
        )
        raise ValueError(f"{file}: the {what} holds {found}{hint}; real numbers were expected")
    if values.dtype.kind in "iu" and (words := inexact(values)):
        raise ValueError(f"{file}: {words}")
    return np.ascontiguousarray(values, dtype=np.float64)


def _chosen(
    file: Path, values: np.ndarray, columns: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Select columns of an array, which have no names but their numbers."""
    if columns is None or values.ndim != 2:
        return values, ()
    return values[:, _places(file, tuple(map(str, range(values.shape[1]))), columns)], tuple(
        columns
    )


def _read_npy(
    file: Path, key: str | None, columns: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    with file.open("rb") as stream:
        if not stream.read(len(NPY_MAGIC)) == NPY_MAGIC:
            raise _other_kind(file, "npy")
    try:
        with file.open("rb") as stream:
            values = np.load(stream, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{file}: {_without_pickle(error)}") from error
    values, names = _chosen(file, values, columns)
    return _as_numbers(file, values), names


def _read_npz(
    file: Path, key: str | None, columns: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    if not zipfile.is_zipfile(file):
        raise _other_kind(file, "npz")
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            names = archive.files
            listed = ", ".join(names) or "none"
            if key is None and len(names) != 1:
                raise ValueError(
                    f"one array was expected, got {len(names)}: {listed}; name one by {file}:NAME"
                )
            if key is not None and key not in names:
                raise ValueError(f"no array is named {key!r}; there are: {listed}")
            chosen = key if key is not None else names[0]
            values = archive[chosen]
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, NotImplementedError) as error:
        raise ValueError(f"{file}: {_without_pickle(error)}") from error
    if not isinstance(values, np.ndarray):
        raise ValueError(f"{file}: {chosen!r} is no numpy array")
    values, names = _chosen(file, values, columns)
    return _as_numbers(file, values, f"array {chosen!r}"), names


def _without_pickle(error: Exception) -> str:
    """Error message of Numpy in words that do not invite to allow pickle."""
    if "allow_pickle" in str(error):
        return (
            "the array holds Python objects; they are not read, for reading them can run code. Save"
            " numbers instead"
        )
    return f"the file is damaged: {error}" if not isinstance(error, ValueError) else str(error)


# Columns


def holds_parquet(file: Path) -> bool:
    """Whether a folder holds parquet files, which together are one table."""
    try:
        return (
            file.is_dir()
            and file.suffix.lower() not in _READERS
            and next(file.glob("**/*.parquet"), None) is not None
        )
    except OSError:  # a path that is none
        return False


def _ending_of(file: Path) -> str:
    return ".parquet" if holds_parquet(file) else file.suffix.lower()


def _arrow_table(file: Path) -> pa.Table:
    """Read a parquet or Arrow file, or a folder, without a stored pandas index."""
    is_parquet = file.is_dir() or file.suffix.lower() == ".parquet"
    if file.is_file():
        with file.open("rb") as stream:
            if stream.read(len(ARROW_MAGIC))[: len(PARQUET_MAGIC) if is_parquet else None] != (
                PARQUET_MAGIC if is_parquet else ARROW_MAGIC
            ):
                raise _other_kind(file, "parquet" if is_parquet else "a file of Arrow")
    import pyarrow as pa

    try:
        if is_parquet and file.is_file():
            import pyarrow.parquet as pq

            table = pq.ParquetFile(file).read()
        else:
            import pyarrow.dataset

            table = pyarrow.dataset.dataset(
                file, format="parquet" if is_parquet else "ipc"
            ).to_table()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{file}: the file is damaged: {error}") from error
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])
    return table.select([j for j, name in enumerate(table.column_names) if name not in index])


def _read_parquet(
    file: Path, key: str | None, columns: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    table = _arrow_table(file)
    kept, names = list(range(table.num_columns)), tuple(table.column_names)
    if columns is not None:
        kept, names = [kept[j] for j in _places(file, names, columns)], tuple(columns)
    values = [
        _arrow_numbers(file, name, table.column(j)) for j, name in zip(kept, names, strict=True)
    ]
    return np.stack(values, axis=1) if values else np.empty((table.num_rows, 0)), names


def _arrow_numbers(file: Path, name: str, column: pa.ChunkedArray) -> np.ndarray:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
    ):
        first = next((i for i, value in enumerate(column) if value.is_valid), None)
        if first is None:
            return np.full(len(column), np.nan)
        raise EntryError(
            f"{file}: column {name!r}, row {first}: a number was expected, got"
            f" {column[first].as_py()!r}"
        )
    elif pa.types.is_integer(kind) and (words := inexact(column.drop_null().to_numpy())):
        raise EntryError(f"{file}: column {name!r}: {words}")
    return column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)


Reader = Callable[[Path, "str | None", "Sequence[str] | None"], tuple[np.ndarray, tuple[str, ...]]]

_READERS: dict[str, Reader] = {
    ".csv": lambda file, key, columns: _read_lines(file, _read_text(file, ","), ",", columns),
    ".tsv": lambda file, key, columns: _read_lines(file, _read_text(file, "\t"), "\t", columns),
    **dict.fromkeys(COLUMNAR, _read_parquet),
    ".npy": _read_npy,
    ".npz": _read_npz,
}
