"""Tables and sequences from files; nothing in a file is ever executed (no pickle)."""

from __future__ import annotations

import collections
import csv
import io
import itertools
import math
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from ppl_models.data.frames import (
    FEWEST_NAMED,
    LONG,
    from_long,
    is_long,
    misread_numbers,
    row_names,
)
from ppl_models.data.sequences import COLUMNS, as_trajectories
from ppl_models.data.tables import EXACT, inexact, quoted
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import check_size, installed

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


MISSING = frozenset(
    {"", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "None", "null", "NULL"}
)  # as pandas reads them
TRUTHS = {"TRUE": 1.0, "True": 1.0, "true": 1.0, "FALSE": 0.0, "False": 0.0, "false": 0.0}
MOST_NAMED = 12
CATEGORICAL = "categorical"  # of the command line
TAB = "\t"
SEPARATORS = {
    ".csv": ",", ".tsv": TAB, ".all": TAB,  # SigProfiler's
    ".txt": TAB,  # or the one that its first line has
}  # fmt: skip
COLUMNAR = (".parquet", ".arrow", ".feather")
ARRAYS = (".npy", ".npz")
ENDINGS = (*SEPARATORS, *COLUMNAR, *ARRAYS)
BLOCK = 2**26  # bytes of a csv file, of which no line has more
SHEETS = (".xls", ".xlsx", ".ods")
KINDS = {
    ",": "comma-separated text",
    TAB: "tab-separated text",
    ";": "text separated by semicolons",
    " ": "text separated by blanks",
}
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
      unless it counts its three or more columns from 0 or from 1, or follows an empty entry over
      names or numbers of rows, which is a line of names. An
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
    if ending not in ENDINGS:
        raise ValueError(
            f"{file}: a file ending in {', '.join(ENDINGS)} was expected, got"
            f" {ending or 'no ending'!r}{'; save the sheet as csv' if ending in SHEETS else ''}"
        )
    if columns is not None and not columns:
        raise ValueError(f"{file}: at least one column was expected to be asked for, got none")
    labels = None
    try:
        _check_file(file)
        if ending in ARRAYS:
            values = _array(file, ending, key)
            names = tuple(map(str, range(values.shape[1]))) if values.ndim == 2 else ()
            if columns is not None and names:
                values = values[:, _places(file, names, columns)]
        else:
            begin = None
            if ending in SEPARATORS:
                table, labels, begin = _read_lines(file, row_names)
            else:
                table = _arrow_table(file)
            names = tuple(table.column_names)
            places = range(len(names)) if columns is None else _places(file, names, columns)
            parts = [_numbers(file, names[j], table.column(j), begin) for j in places]
            values = np.stack(parts, 1) if parts else np.empty((table.num_rows, 0))
    except Exception as error:
        raise _in_one_line(file, error) from error
    if values.ndim != 2:
        raise ValueError(
            f"{file}: a table (rows, items) was expected, got an array of shape {values.shape}"
        )
    if 0 in values.shape:
        raise ValueError(_too_few(file, *values.shape))
    names = names if columns is None else tuple(columns)
    _check_names(file, names)
    return Table(values, names, labels)


def _too_few(file: Path, num_rows: int, num_columns: int) -> str:
    return f"{file}: at least one row and one column were expected, got {num_rows} x {num_columns}"


def read_frame(
    path: str | Path,
    columns: Sequence[str] | None = None,
    id: str | None = None,
    drop: Sequence[str] = (),
    transpose: bool = False,
    texts: Collection[str] = (),
    numbers: bool = False,
    long: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Read a table as it lies in a file, with the names of its rows as the index.

    Rows are named by the column ``id``, or by the first column where it has no name in the file (as
    R's ``write.csv`` and ``write.table``, and pandas' ``to_csv``, write row names) or holds texts
    that are all different. Columns of entries that are no numbers are texts, None where missing;
    of TRUE and FALSE alone they are 1 and 0.

    Args:
        path: a file as :func:`read_table` takes it, or a ``.txt`` file separated by tabs, commas,
            semicolons or blanks.
        columns: those to read, in their order, by name or as ranges ``E1..E28`` of neighbours;
            None for all.
        id: the column that names the rows.
        drop: columns, likewise, to leave out.
        transpose: whether the rows of the file are the columns of the table.
        texts: columns that are texts whatever they hold.
        numbers: whether to refuse entries that are no numbers.
        long: columns of the person, the item and the answer, where a line of the file is an answer;
            persons become the rows, and items the columns.

    Raises:
        ValueError: as :func:`read_table`; for a column that is not there, an id that is missing in
            a row or is there twice, a second column that names every row, or a column that holds
            numbers and texts, of which one is likely a slip; as
            :func:`ppl_models.data.frames.from_long`.
    """
    import pandas as pd

    table = _Named.of(path, transpose, long=long)
    labels = table.id_column(id)
    chosen = table.chosen(columns, drop, labels)
    frame = pd.DataFrame({name: table.values(name, name in texts, numbers) for name in chosen})
    return frame if labels is None else frame.set_axis(pd.Index(table.ids(labels), name=labels))


def columns_chosen(
    path: str | Path,
    columns: Sequence[str] | None = None,
    id: str | None = None,
    drop: Sequence[str] = (),
    transpose: bool = False,
    long: Sequence[str] | None = None,
) -> tuple[list[str], str | None]:
    """Columns that :func:`read_frame` would read, and the one that names the rows, if any."""
    table = _Named.of(path, transpose, only_names=True, long=long)
    labels = table.id_column(id)
    return table.chosen(columns, drop, labels), labels


def long_columns(path: str | Path) -> list[str] | None:
    """Columns of person, item and answer of a file that is likely in long format; else None.

    Beside row names under no name, as R and pandas write them, it has these three.
    """
    import pandas as pd

    file, _ = _split_key(str(path))
    if _ending_of(file) not in SEPARATORS or not file.is_file():
        return None
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        _, first = next(_lines(file, "".join(itertools.islice(stream, 1)).strip()), (0, []))
    names = [name.strip() for name in first if name.strip()]
    if len(names) != len(LONG) or is_number(names[0]) or len(first) > len(LONG) + 1:
        return None
    table = _Named.of(path, False)
    if any(name not in table.columns for name in names):
        return None
    return names if is_long(pd.DataFrame({name: table.entries(name) for name in names})) else None


@dataclass(frozen=True, eq=False)
class _Named:
    """Columns of a file by name, as they lie in it.

    Args:
        file: where they lie.
        columns: arrays of numbers, or texts of one.
        begin: lines of names before the texts; None of other files.
        unnamed: whether the first column has no name in the file.
    """

    file: Path
    columns: dict[str, Any]
    begin: int | None
    unnamed: bool

    @classmethod
    def of(
        cls,
        path: str | Path,
        transpose: bool,
        only_names: bool = False,
        long: Sequence[str] | None = None,
    ) -> _Named:
        """Open a file; a large one without its entries, where names are all that is asked."""
        file, _ = _split_key(str(path))
        if long is not None:
            return cls._of_answers(cls.of(path, transpose), long)
        if only_names and not transpose and _ending_of(file) in (*COLUMNAR, ".npy"):
            with suppress(Exception):  # what is wrong is said where the file is read
                return cls(file, dict.fromkeys(_names_alone(file), np.zeros(0)), None, False)
        if _ending_of(file) in ARRAYS or _ending_of(file) not in ENDINGS:
            table = read_table(path)  # says what is wrong with an ending, too
            values = table.values.T if transpose else table.values
            numbers = tuple(str(j) for j in range(values.shape[1]))
            own = dict(zip(numbers if transpose else table.names, values.T, strict=True))
            return cls(file, own, None, False)
        try:
            _check_file(file)
            begin = None
            if _ending_of(file) in SEPARATORS:
                found, _, begin = _read_lines(file)
            else:
                found = _arrow_table(file)
        except Exception as error:
            raise _in_one_line(file, error) from error
        names = list(found.column_names)
        if 0 in found.shape:
            raise ValueError(_too_few(file, *found.shape))
        unnamed = names[0] == "" and len(names) > 1
        if unnamed:
            names[0] = "row" if "row" not in names else "row_name"
        columns = dict(zip(names, found.columns, strict=False))
        if transpose:
            import pyarrow as pa

            labels = [_text(entry) or "" for entry in found.column(0).to_pylist()]
            rows = zip(*(column.to_pylist() for column in found.columns[1:]), strict=True)
            cells = [
                pa.chunked_array([[None if cell is None else str(cell) for cell in row]])
                for row in rows
            ]
            columns = {"row": pa.chunked_array([names[1:]])} | dict(
                zip(labels, cells, strict=False)
            )
            names, unnamed, begin = ["row", *labels], True, 1
        _check_names(file, tuple(names))
        return cls(file, columns, begin, unnamed)

    @classmethod
    def _of_answers(cls, lines: _Named, long: Sequence[str]) -> _Named:
        """Table of a row a person, from one of a line an answer."""
        import pandas as pd
        import pyarrow as pa

        _places(lines.file, tuple(lines.columns), long)
        held: dict[str, Any] = {name: lines.entries(name) for name in long}
        with suppress(EntryError):
            held[long[2]] = lines.values(long[2], False, True)
        try:
            wide = from_long(pd.DataFrame(held), *long)
        except ValueError as error:
            raise ValueError(f"{lines.file}: {str(error).removeprefix('from_long: ')}") from None
        if long[0] in wide.columns:
            raise ValueError(f"{lines.file}: an item is named {long[0]!r}, as the persons' column")
        own: dict[str, Any] = {long[0]: pa.chunked_array([wide.index.tolist()])}
        for name in wide:
            texts = wide[name].astype(object).where(wide[name].notna(), None)
            is_number = wide[name].dtype == np.float64
            own[name] = wide[name].to_numpy() if is_number else pa.chunked_array([texts.tolist()])
        return cls(lines.file, own, None, True)

    def entries(self, name: str) -> list[str | None]:
        """Entries of a column as texts, None where missing."""
        return [_text(entry) for entry in self.columns[name].to_pylist()]

    def values(self, name: str, as_texts: bool, numbers: bool) -> Any:
        """A column as numbers, or as texts where one is no number or all are to be."""
        column = self.columns[name]
        if isinstance(column, np.ndarray):
            return column
        if not as_texts:
            try:
                return _numbers(self.file, name, column, self.begin)
            except EntryError:
                held = self.entries(name)
                if all(entry is None or entry in TRUTHS for entry in held):
                    return np.array([TRUTHS.get(entry or "", math.nan) for entry in held])
                if numbers:
                    raise
        entries = self.entries(name)
        return entries if as_texts else _unmixed(self.file, name, entries)

    def id_column(self, given: str | None) -> str | None:
        """The column that names the rows."""
        import pandas as pd

        if given is not None:
            _places(self.file, tuple(self.columns), (given,))
            return given
        first, *others = self.columns
        if self.unnamed:
            return first
        if others and self._entries_of(first) is not None:
            rest = [name for name in others if self._begins_as_text(name)]
            rest = rest if self._begins_as_text(first) else []
            held = {name: self._entries_of(name) for name in (first, *rest)}
            try:
                return row_names(pd.DataFrame(held), others)
            except ValueError as error:
                raise ValueError(f"{self.file}: {error}") from None
        return None

    def _begins_as_text(self, name: str) -> bool:
        column = self.columns[name]
        if isinstance(column, np.ndarray):
            return False
        head = [_text(entry) for entry in column.slice(0, FEWEST_NAMED).to_pylist()]
        return not any(entry is None or is_number(entry) for entry in head)

    def _entries_of(self, name: str) -> Any:
        """Numbers or texts of a column; None of one of both, or that is not read."""
        if not len(self.columns[name]):
            return None
        with suppress(ValueError):
            return self.values(name, False, False)
        return None

    def ids(self, name: str) -> list[Any]:
        """Names of the rows; whole numbers as numbers."""
        column = self.columns[name]
        entries = (
            [f"{value:.15g}" for value in column.tolist()]
            if isinstance(column, np.ndarray)
            else self.entries(name)
        )
        seen: set[Any] = set()
        for row, entry in enumerate(entries):
            if entry is None or entry in seen:
                words = "one is missing" if entry is None else f"{entry!r} is there twice, again"
                raise ValueError(
                    f"{self.file}: column {name!r} names the rows, but {words} in row {row}: a name"
                    " of its own was expected for each; name another column with --id"
                )
            seen.add(entry)
        is_whole = all(entry is not None and entry.isdecimal() for entry in entries)
        return [int(entry or 0) for entry in entries] if is_whole else entries

    def chosen(
        self, columns: Sequence[str] | None, drop: Sequence[str], labels: str | None
    ) -> list[str]:
        """Names of the columns asked for, ranges spelled out."""
        names = tuple(self.columns)
        left_out = {*self._ranges(drop), labels}
        _places(self.file, names, self._ranges(drop))
        if columns is None:
            chosen = [name for name in names if name not in left_out]
        else:
            chosen = [name for name in self._ranges(columns) if name not in self._ranges(drop)]
            _places(self.file, names, chosen)
        if not chosen:
            raise ValueError(f"{self.file}: at least one column was expected, and none is left")
        return chosen

    def _ranges(self, asked: Sequence[str]) -> list[str]:
        names, out = list(self.columns), []
        for name in asked:
            first, dots, last = name.partition("..")
            if name in names or not dots:
                out.append(name)
                continue
            places = [names.index(end) for end in _known_ends(self.file, names, (first, last))]
            if places[0] > places[1]:
                raise ValueError(f"{self.file}: {name}: column {last!r} stands before {first!r}")
            out += names[places[0] : places[1] + 1]
        return out


def _names_alone(file: Path) -> tuple[str, ...]:
    """Names of the columns of an array or of columnar files, none of whose entries are read."""
    if _ending_of(file) == ".npy":
        return tuple(map(str, range(np.load(file, mmap_mode="r").shape[1])))
    import pyarrow.dataset

    form = "parquet" if _ending_of(file) == ".parquet" else "ipc"
    schema = pyarrow.dataset.dataset(file, format=form).schema
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    return tuple(name for name in schema.names if name not in index)


def _known_ends(file: Path, names: list[str], ends: Sequence[str]) -> Sequence[str]:
    _places(file, names, list(dict.fromkeys(ends)))
    return ends


def _unmixed(file: Path, name: str, entries: list[str | None]) -> list[str | None]:
    """Texts of a column, none of which is a number.

    Raises:
        MixedError: for a column of both, or of texts that stand for numbers.
    """
    words = [row for row, entry in enumerate(entries) if entry is not None and not is_number(entry)]
    if len(words) == sum(entry is not None for entry in entries):
        return entries
    misread = misread_numbers(dict.fromkeys(entries[row] for row in words))
    if misread:
        raise ValueError(f"{file}: column {name!r} holds {misread}")
    inexact_words = next(filter(None, map(inexact_entry, filter(None, entries))), "")
    if not words and inexact_words:
        raise ValueError(f"{file}: column {name!r}: {inexact_words}")
    more = f" ({len(words):,} such rows)" if len(words) > 1 else ""
    raise ValueError(
        f"{file}: column {name!r} holds numbers, and {entries[words[0]]!r} in row {words[0]}{more}:"
        " leave such an entry empty if it is missing, or the column out, or say --response"
        f" {name}={CATEGORICAL} if it holds names of categories"
    )


def _text(entry: Any) -> str | None:
    text = "" if entry is None else str(entry).strip()
    return None if text in MISSING else own_text(text)


def inexact_entry(entry: str) -> str:
    """Fault of a whole number beyond double precision, as text; "" for others."""
    digits = entry.strip().lstrip("+-").lstrip("0")
    if not digits.isdecimal() or len(digits) < len(str(EXACT)):
        return ""
    return inexact(
        np.array([int(digits[:300])], dtype=object)
    )  # more digits than a float has room for make no difference


def is_number(entry: str) -> bool:
    """Tell whether an entry of a text file is a number."""
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
    for j, name in enumerate(columns):
        if name not in names:
            raise ValueError(
                f"{file}: no column is named {name!r}; the columns are {quoted(names, MOST_NAMED)}"
            )
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
        b"\xff\xfe": "text in UTF-16, to be saved in UTF-8",
        b"\xfe\xff": "text in UTF-16, to be saved in UTF-8",
    }
    found = next((kind for magic, kind in kinds.items() if start.startswith(magic)), None)
    what = f"the content looks like {found}" if found else f"the first bytes are {start!r}"
    return ValueError(f"{file}: the ending promises {expected}, but {what}")


# Text


def _text_of(file: Path) -> str:
    content = file.read_bytes()
    if b"\x00" in content or content.startswith((NPY_MAGIC, ZIP_MAGIC, PARQUET_MAGIC, b"\x1f\x8b")):
        raise _other_kind(file, KINDS[SEPARATORS[file.suffix.lower()]])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file}: UTF-8 text was expected, got byte {content[error.start]:#x} at"
            f" {error.start}; save the file in UTF-8"
        ) from error


def separator_of(file: Path, text: str = "") -> str:
    """Separator of a text file: by its ending, and of ``.txt`` by its first line."""
    separator = SEPARATORS[file.suffix.lower()]
    first = text.partition("\n")[0]
    if file.suffix.lower() != ".txt" or separator in first:
        return separator
    return next((other for other in (",", ";", " ") if other in first), separator)


def _lines(file: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Number in the file and entries of each line that has some; strict about quotes and widths."""
    separator, width = separator_of(file, text), 0
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        for line in reader:
            if width == 0 and file.suffix.lower() == ".txt" and _lacks_first(text, separator):
                line = ["", *line]  # as R's write.table leaves it out
            width = width or len(line)
            if line and len(line) != width:
                raise ValueError(
                    f"{file}: line {reader.line_num} has {len(line)} entries, where {width} were"
                    " expected as in the first line"
                )
            if line:
                yield reader.line_num, line
    except csv.Error as error:
        raise ValueError(
            f"{file}: line {reader.line_num}: {KINDS[separator]} was expected, but {error}"
        ) from error


def _lacks_first(text: str, separator: str) -> bool:
    """Tell whether the first line has one entry less than the second: row names have no name."""
    lines = itertools.islice(csv.reader(io.StringIO(text, newline=""), delimiter=separator), 2)
    widths = [len(line) for line in lines]
    return len(widths) == 2 and widths[0] == widths[1] - 1


def _read_lines(
    file: Path, row_names: bool = False, is_named: bool = False
) -> tuple[pa.Table, tuple[str, ...] | None, int]:
    """Read the entries of a csv or tsv file as texts.

    Args:
        file: the file.
        row_names: whether to separate row names, or row numbers, in the first column.
        is_named: whether the first line holds names whatever they are.

    Returns:
        The table; row names, if any; and the number of lines of names, 0 or 1.
    """
    with installed(f"{file}: a file of this kind", "arrow"):
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

    text = _text_of(file)
    separator = separator_of(file, text)
    _, line = next(_lines(file, text), (0, []))
    if not line:
        raise ValueError(f"{file}: the file holds no line with an entry")
    _check_separator(file, _header(line, is_named) or (), separator)
    if '"' in text:  # Arrow takes "1"2 for 12
        collections.deque(_lines(file, text), 0)
    places = [str(j) for j in range(len(line))]
    if file.suffix.lower() == ".txt" and _lacks_first(text, separator):
        text = f'""{separator}{text}'
    try:
        table = arrow_csv.read_csv(
            pa.py_buffer(text.encode()),
            arrow_csv.ReadOptions(column_names=places, block_size=BLOCK),
            arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(places, pa.string())),
        )
    except pa.ArrowInvalid:
        collections.deque(_lines(file, text), 0)  # says which line
        raise
    labels: tuple[str, ...] | None = None
    if row_names and len(line) > 1:
        begin = int(_header(line[1:]) is not None)
        firsts = [entry.strip() for entry in table.column(0).to_pylist()[begin:]]
        counts = len(firsts) >= 3 and any(
            firsts == [str(j + start) for j in range(len(firsts))] for start in (0, 1)
        )
        if counts or not all(first in MISSING or is_number(first) for first in firsts):
            for j, name in enumerate(firsts):
                if not name or name in firsts[:j]:
                    raise ValueError(
                        f"{file}: row {j} is named {name!r}; a name of its own was expected for"
                        " each"
                    )
            table, line, labels = table.remove_column(0), line[1:], tuple(firsts)
            labels = None if counts else labels
    head = _header(line, is_named or (labels is None and _numbers_columns(line, table)))
    if head is not None:
        table = table.slice(1).rename_columns(list(head))
    else:
        table = table.rename_columns(places[: len(line)])
    return table, labels, int(head is not None)


def _numbers_columns(line: list[str], table: pa.Table) -> bool:
    """Tell whether the first line is the numbers of columns, after row names under no name.

    As pandas writes a frame whose columns have no names: the first line is ``,0,1,2``, and below
    its empty entry rows are counted or named.
    """
    names = [name.strip() for name in line]
    if len(names) < 2 or names[0] or not all(name.isdecimal() for name in names[1:]):
        return False
    firsts = [entry.strip() for entry in table.column(0).to_pylist()[1:]]
    counts = any(firsts == [str(j + start) for j in range(len(firsts))] for start in (0, 1))
    is_named = not any(first in MISSING or is_number(first) for first in firsts)
    return bool(firsts) and len({*names}) == len(names) and (counts or is_named)


def _float(entry: str) -> float:
    if "_" in entry:
        raise ValueError(entry)
    return float(entry)


def _header(row: list[str], is_named: bool = False) -> tuple[str, ...] | None:
    """The column names, or None where the row holds data."""
    names = tuple(own_text(entry.strip()) for entry in row)
    if (
        is_named
        or not all(name in MISSING or is_number(name) for name in names)
        or not any(map(is_number, names))
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


def _array(file: Path, ending: str, key: str | None) -> np.ndarray:
    """The array of an npy file, or that of an npz file which ``key`` names."""
    is_archive = ending == ".npz"
    with file.open("rb") as stream:
        begins_well = stream.read(len(NPY_MAGIC)) == NPY_MAGIC
    if not (zipfile.is_zipfile(file) if is_archive else begins_well):
        raise _other_kind(file, ending[1:])
    what = "array"
    try:
        with file.open("rb") as stream:
            values = np.load(stream, allow_pickle=False)
            if is_archive:
                names = values.files
                listed = ", ".join(names) or "none"
                if key is None and len(names) != 1:
                    raise ValueError(
                        f"one array was expected, got {len(names)}: {listed}; name one by"
                        f" {file}:NAME"
                    )
                if key is not None and key not in names:
                    raise ValueError(f"no array is named {key!r}; there are: {listed}")
                key = names[0] if key is None else key
                values, what = values[key], f"array {key!r}"
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, NotImplementedError) as error:
        raise ValueError(f"{file}: {_without_pickle(error)}") from error
    if not isinstance(values, np.ndarray):
        raise ValueError(f"{file}: {key!r} is no numpy array")
    return _as_numbers(file, values, what)


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
    """Tell whether a folder holds parquet files, which together are one table."""
    try:
        return (
            file.is_dir()
            and file.suffix.lower() not in ENDINGS
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
    with installed(f"{file}: a file of this kind", "arrow"):
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


def _numbers(file: Path, name: str, column: pa.ChunkedArray, begin: int | None) -> np.ndarray:
    """A column as float64, NaN where missing.

    Args:
        file: the file; name: of the column.
        column: numbers, booleans, or the texts of a csv file.
        begin: lines of names before the texts; None of other files.
    """
    import pyarrow as pa

    kind = column.type
    if begin is not None:
        return _parsed(file, f"{file}: column {repr(name) if begin else name}", column, begin)
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
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)


def _parsed(file: Path, where: str, column: pa.ChunkedArray, begin: int) -> np.ndarray:
    """Numbers of a column of texts; the message names the row and the line of one that is none."""
    import pyarrow as pa
    from pyarrow import compute

    texts = compute.utf8_trim_whitespace(column)
    is_missing = compute.is_in(texts, pa.array(sorted(MISSING)))
    texts = compute.if_else(is_missing, pa.scalar(None, pa.string()), texts)
    values = None
    with suppress(pa.ArrowInvalid):
        values = texts.cast(pa.float64()).to_numpy()
    if values is None or np.isnan(values).sum() > texts.null_count:  # such as nan(1)
        values = np.full(len(column), np.nan)
        for row, entry in enumerate(column.to_pylist()):
            text = entry.strip()
            try:
                values[row] = np.nan if text in MISSING else _float(text)
            except ValueError:
                lines = itertools.islice(_lines(file, _text_of(file)), row + begin, None)
                raise EntryError(
                    f"{where}, row {row} (line {next(lines)[0]}): a number was expected, got"
                    f" {misread_numbers([text]) or repr(entry)}"
                ) from None
    for row in np.flatnonzero(np.abs(values) > EXACT).tolist():
        if words := inexact_entry(column[row].as_py()):
            raise EntryError(f"{where}, row {row}: {words}")
    return values


# Sequences


def stream_sequences(
    path: str | Path, num_states: int, num_actions: int, num_rows: int = 1_000_000
) -> Iterator[Tensor]:
    """Stream packed sequences (B, T, 2), batch after batch.

    No more than about ``num_rows`` rows and one sequence are held.

    For :func:`inference.structures.options.moments.count_moments`, which takes them in one
    pass. A sequence longer than memory is one file that must be cut.

    Args:
        path: csv with columns sequence, time, state, action, one row a step; the rows of a sequence
            stand together.
        num_states: they start at 0.
        num_actions: they start at 0.
        num_rows: rows read at a time.

    Raises:
        ValueError: for no such file, other columns, a sequence whose rows do not stand together, or
            as :func:`ppl_models.data.sequences.as_trajectories`; when the batch is asked
            for.
    """
    import pandas as pd

    check_size("stream_sequences", "num_rows", num_rows)
    if not Path(path).is_file():
        raise ValueError(f"stream_sequences: no file {str(path)!r}")
    done: set[Any] = set()
    kept: pd.DataFrame | None = None
    with pd.read_csv(path, chunksize=num_rows) as reader:
        for chunk in reader:
            if sorted(map(str, chunk.columns)) != sorted(COLUMNS):
                raise ValueError(
                    f"data: columns {', '.join(COLUMNS)} were expected, got"
                    f" {', '.join(map(str, chunk.columns))}"
                )
            table = chunk if kept is None else pd.concat([kept, chunk], ignore_index=True)
            if not len(table):
                continue
            open_rows = table["sequence"] == table["sequence"].iloc[-1]
            whole, kept = table[~open_rows], table[open_rows]
            if len(whole):
                yield _whole_sequences(whole, done, num_states, num_actions)
    if kept is None:
        raise ValueError(f"stream_sequences: {str(path)!r} holds no rows")
    yield _whole_sequences(kept, done, num_states, num_actions)


def _whole_sequences(
    table: pd.DataFrame, done: set[Any], num_states: int, num_actions: int
) -> Tensor:
    keys = table["sequence"]
    blocks = keys[keys != keys.shift()]
    again = [key for key in blocks.tolist() if key in done] or blocks[blocks.duplicated()].tolist()
    if again:
        raise ValueError(
            f"data: the rows of a sequence must stand together; sequence {again[0]!r} comes again"
        )
    done.update(blocks.tolist())
    return as_trajectories(table, num_states, num_actions, for_fit=False)
