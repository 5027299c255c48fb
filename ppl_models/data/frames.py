"""Data frames of any library (pandas, polars, PyArrow, ...), through narwhals."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

MAX_LEVELS = 50  # of a column; one with more is likely a number or an identifier
# kinds of objects that are numbers, as pandas tells them
NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "boolean", "empty")
PLAIN_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")
PERCENTAGE = re.compile(r"[+-]?(\d+([.,]\d+)?|[.,]\d+)\s*%")
WITH_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}([. ]\d{3})+),\d+|[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
DAY, MONTH, CLOCK = "(?:0?[1-9]|[12]\\d|3[01])", "(?:0?[1-9]|1[0-2])", "(?:[T ]+\\d{1,2}:\\d{2}.*)?"
NAMED_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
DATE = re.compile(
    rf"[12]\d{{3}}[-/.]{MONTH}[-/.]{DAY}{CLOCK}"
    rf"|(?i:{DAY}[- .]+{NAMED_MONTH}[- ,]+(?:\d\d)?\d\d{CLOCK})"
    rf"|(?i:{NAMED_MONTH}[- ]{DAY},? \d{{4}}{CLOCK})"
    rf"|{DAY}[-/.]{DAY}[-/.](?:[12]\d{{3}}|(?<=\d\d.)\d\d){CLOCK}"
)
MISREAD = (
    ("percentages", PERCENTAGE, "write numbers without the sign, such as 12 for 12%"),
    (
        "numbers with commas", WITH_COMMA,
        "write decimals with a point, such as 1.5, and thousands without a mark, such as 1000",
    ),
    (
        "dates", DATE,
        "write a number, such as the days since the first date, or leave the column out",
    ),
)  # texts that stand for numbers: what they are, how they look, and what to do  # fmt: skip

LONG = ("person", "item", "answer")
FEWEST_NAMED = 3  # rows that different texts can name
UNNAMED = re.compile(r"(Unnamed: 0)?")  # first column without a name in its file, as pandas has it
ROW_NUMBERS = re.compile(r"X|\.{3}1|index|level_0|row_?(names?|numbers?|id)?")  # R's and pandas'
ID = re.compile(r"(.*[^a-z])?id|(case|subj|subject|person|pat|resp)_?id", re.I)
NUMBER, LEAST_NUMBERED = re.compile(r"(.*[^a-z])?(nr|no|number)", re.I), 30  # rows, all different
SINGLE = 0.95  # of the lines of a long table, that are no second answer to an item

OWN = (
    "builtins",
    "inference",
    "numpy",
    "pandas",
    "ppl_models",
    "torch",
)  # what these define is never another library's frame


class UnusedLevelWarning(UserWarning):
    """Warning: a category of a column occurs in no row, so nothing is learned of it."""


@dataclass(frozen=True, eq=False)
class SparseFrame:
    """Sparse matrix of scipy with names of its rows and columns.

    Args:
        matrix: (N, J); row_names: (N,), a pandas index; names: J of the columns.
    """

    matrix: Any
    row_names: Any
    names: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """(N, J)."""
        return self.matrix.shape  # type: ignore[no-any-return]

    def chosen(self, names: Sequence[str]) -> SparseFrame:
        """Some of the columns, in the order given."""
        places = [self.names.index(name) for name in names]
        return replace(self, matrix=self.matrix.tocsc()[:, places].tocsr(), names=tuple(names))


def _of_annotated(data: Any) -> Any:
    """Frame of an AnnData object, or of one like it: its matrix under its names."""
    import pandas as pd

    matrix = data.X
    names = tuple(map(str, data.var_names))
    _refuse_copies(names)
    if hasattr(matrix, "tocsr"):
        return SparseFrame(matrix.tocsr(), pd.Index(data.obs_names), names)
    if not isinstance(matrix, np.ndarray):
        raise ValueError(
            f"data: an AnnData object whose X is an array or a sparse matrix in memory was"
            f" expected, got {type(matrix).__name__}: call its to_memory(), or put a layer in X"
        )
    return pd.DataFrame(matrix, pd.Index(data.obs_names), list(names))


def as_frame(data: Any) -> Any:
    """Convert a data frame of another library to pandas; all other data as they are.

    An AnnData object is its matrix X under its names: a pandas frame, or, where X is sparse, a
    :class:`SparseFrame`.

    Raises:
        ValueError: for two columns of one name, or a frame that has not been computed yet.
    """
    if all(hasattr(data, name) for name in ("X", "obs_names", "var_names")):
        return _of_annotated(data)
    if type(data).__module__.partition(".")[0] not in OWN and hasattr(type(data), "columns"):
        data = _as_pandas(data)
    if is_frame(data):
        column_names(data)
    return data


def is_frame(data: Any) -> bool:
    """Data frame test: named columns of equal length."""
    return hasattr(data, "columns") and hasattr(data, "to_numpy")


def column_names(frame: Any) -> tuple[str, ...]:
    """Names of a frame's columns.

    Raises:
        ValueError: naming a name that two columns have.
    """
    names = tuple(str(name) for name in frame.columns)
    _refuse_copies(names)
    return names


def row_of(data: Any, row: int) -> str:
    """Row name for a message: its number from 0, and its index label if different."""
    label = row
    if hasattr(data, "columns") and hasattr(data, "index"):
        label = data.index[row]
    return f"row {row}" if str(label) == str(row) else f"row {row} (of index {str(label)!r})"


def check_index(name: str, given: Any, data: Any) -> None:
    """Refuse a series or frame beside a frame of as many rows, under another index.

    Raises:
        ValueError: naming what was given.
    """
    if (
        is_frame(data)
        and hasattr(data, "index")
        and hasattr(given, "to_numpy")
        and len(given) == len(data)
        and not data.index.equals(getattr(given, "index", data.index))
    ):
        raise ValueError(
            f"{name}: the index of the rows was expected, got another one: give {name} in the"
            " order of the rows, as an array if need be"
        )


def holds_texts(column: Any) -> bool:
    """Tell whether a column holds texts; objects that are all numbers, or missing, do not."""
    import pandas as pd

    if pd.api.types.is_object_dtype(column):
        return pd.api.types.infer_dtype(column, skipna=True) not in NUMBERS
    return not pd.api.types.is_numeric_dtype(column)


def row_names(frame: Any, others: Sequence[str] = ()) -> str | None:
    """Name of the first column of a table, where it names the rows; else None.

    It does where it has no name in its file (as R's ``write.csv`` and pandas' ``to_csv`` write row
    names) and its entries all differ; where it holds texts that all differ and are no numbers; and
    where it counts the rows under a name such as ``id`` or ``X``.

    Args:
        frame: a pandas frame, whose index may name the rows already.
        others: columns beside the first, where the frame holds but those of texts.

    Raises:
        ValueError: for two columns of texts that both name every row.
    """
    first, *texts = column_names(frame) or ("",)
    if not (texts or others) or len(frame) < FEWEST_NAMED:
        return None
    column = frame.iloc[:, 0]
    if not holds_texts(column):
        return first if _numbers_rows(first, column) else None
    if not column.notna().all() or not column.is_unique:
        return None
    if UNNAMED.fullmatch(first):
        return first
    if frame.index.name is not None or not _names_rows(column):
        return None
    for j, other in enumerate(texts, 1):
        if holds_texts(frame.iloc[:, j]) and _names_rows(frame.iloc[:, j]):
            raise ValueError(
                f"columns {first!r} and {other!r} both name every row: say which is the id (--id"
                f" {first}, or data.set_index({first!r})), and leave the other out (--drop {other})"
            )
    return first


def _names_rows(column: Any) -> bool:
    """Tell whether a column of texts holds a different one, and no number, in each row."""
    texts = column.tolist()
    return (
        all(isinstance(text, str) and not PLAIN_NUMBER.fullmatch(text.strip()) for text in texts)
        and len(set(texts)) == len(texts)
        and not misread_numbers(texts)
    )


def _numbers_rows(name: str, column: Any) -> bool:
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if UNNAMED.fullmatch(name):
        return bool((values == np.floor(values)).all()) and len(np.unique(values)) == len(values)
    is_named = any(form.fullmatch(name) for form in (ROW_NUMBERS, ID, NUMBER))
    return is_named and bool((np.diff(values) == 1).all())


def refuse_ids(name: str, column: Any, as_item: str = "") -> None:
    """Refuse a column of whole numbers that has the name of an id, and may be one.

    Args:
        name, column: of a table; as_item: how to say that it is an item, "" for items of any kind.

    Raises:
        ValueError: saying how to decide.
    """
    if holds_texts(column) or len(column) < FEWEST_NAMED:
        return
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    seen = values[~np.isnan(values)]
    num_different, remedy = len(np.unique(seen)), "leave it out"
    if UNNAMED.fullmatch(name):
        what = "entries under no name, as of rows, that do not tell rows apart"
    elif not (np.isfinite(seen).all() and (seen == np.floor(seen)).all()):
        return
    elif num_different == len(values) and (
        ID.fullmatch(name) or (NUMBER.fullmatch(name) and len(values) >= LEAST_NUMBERED)
    ):
        what = "a different whole number in each row"
        remedy += f", name the rows by it (--id {name}, or data.set_index({name!r})),"
    elif num_different > 2 and ID.fullmatch(name):
        what = f"{num_different:,} different whole numbers in {len(values):,} rows, named as an id"
    else:
        return
    as_item = as_item or (
        f"--response {name}=normal, or the items items_of(data, {{{name!r}: Normal()}})"
    )
    raise ValueError(
        f"column {name!r} holds {what}: {remedy} or say that it is a measurement ({as_item})"
    )


def misread_numbers(texts: Iterable[Any]) -> str:
    """Diagnosis of texts that stand for numbers, with a remedy; "" for names.

    Args:
        texts: the different entries of a column; some may be plain numbers, and all others must be
            of one kind (percentages, numbers with commas, dates).
    """
    others = [
        text for text in (str(value).strip() for value in texts) if not PLAIN_NUMBER.fullmatch(text)
    ]
    for kind, form, remedy in MISREAD if others else ():
        if all(form.fullmatch(text) for text in others):
            return f"{kind}, such as {others[0]!r}: {remedy}"
    return ""


def check_texts(column: Any, where: str) -> None:
    """Refuse a column of texts that stand for numbers and is no pandas categorical.

    Raises:
        ValueError: naming the column as ``where`` does, an entry, and what to do.
    """
    try:
        texts = () if hasattr(column.dtype, "categories") else column.dropna().unique()
    except TypeError as error:
        entry = column.dropna().iloc[0]
        raise ValueError(
            f"{where} holds entries such as {entry!r}: a number or a text in each was expected"
        ) from error
    misread = misread_numbers(texts)
    if misread:
        raise ValueError(
            f"{where} holds {misread}; where they name categories, say that the column is "
            "categorical"
        )


def alike_levels(name: str, levels: Iterable[str]) -> list[str]:
    """Sentences on categories of a column whose names differ in case or in blanks alone."""
    groups: dict[str, list[str]] = {}
    for level in levels:
        groups.setdefault(" ".join(str(level).split()).casefold(), []).append(level)
    return [
        f"column {name!r} holds {', '.join(map(repr, group))} as {len(group)} categories: write "
        "them in one way if they are one"
        for group in groups.values()
        if len(group) > 1
    ]


# -------------------------------------------------------------------- long format


def from_long(
    data: Any, row: str | None = None, item: str | None = None, answer: str | None = None
) -> Any:
    """Table with one row a unit, from one with a line an answer (person, item, answer).

    Answers that have no line are missing. Rows and columns stand in the order in which they first
    appear.

    Args:
        data: a data frame of any library.
        row, item, answer: names of the columns that say whose answer it is, to which item, and the
            answer; where they are left out, the frame has these three columns, in this order.

    Returns:
        A pandas frame with the persons as its index, and a column an item.

    Raises:
        ValueError: for columns that are not there, a line without person or item, or two answers of
            one person to one item, naming both.
    """
    import pandas as pd

    frame = as_frame(data)
    if not is_frame(frame) or not len(frame):
        raise ValueError(
            "from_long: a data frame with lines was expected, got"
            f" {'none' if is_frame(frame) else type(frame).__name__}"
        )
    names = column_names(frame)
    given = [name for name in (row, item, answer) if name is not None]
    chosen = given or list(names)
    absent = [name for name in given if name not in names]
    if absent or len({*chosen}) != len(LONG) or len(chosen) != len(LONG):
        raise ValueError(
            f"from_long: three columns ({', '.join(LONG)}) were expected, got"
            f" {', '.join(map(repr, chosen))}; the columns are {', '.join(map(repr, names))}"
        )
    columns = [frame[frame.columns[names.index(name)]] for name in chosen]
    (rows, row_names), (places, items) = (pd.factorize(column) for column in columns[:2])
    for codes, name in ((rows, chosen[0]), (places, chosen[1])):
        if (codes < 0).any():
            raise ValueError(
                f"from_long: column {name!r} is missing in line {int((codes < 0).argmax())} of the"
                " table, counted from 0"
            )
    cells = rows * len(items) + places
    again = pd.Series(cells).duplicated(keep=False).to_numpy()
    if again.any():
        first, second = np.flatnonzero(cells == cells[again.argmax()])[:2]
        raise ValueError(
            f"from_long: one answer of each {chosen[0]} to each {chosen[1]} was expected, got"
            f" several of {str(row_names[rows[first]])!r} to {str(items[places[first]])!r}, in"
            f" lines {first} and {second}, counted from 0"
        )
    line = np.full((len(row_names), len(items)), -1)
    line[rows, places] = np.arange(len(rows))
    answers = columns[2].reset_index(drop=True)
    table = {
        str(name): answers.reindex(line[:, j]).reset_index(drop=True)
        for j, name in enumerate(items)
    }
    return pd.DataFrame(table).set_axis(pd.Index(row_names, name=chosen[0]))


def is_long(data: Any) -> bool:
    """Tell whether the three columns of a frame are persons, items and answers.

    That is so where hardly any pair of the first two is there twice, at least half of all such
    pairs are there, and there are three persons and three items or more.
    """
    import pandas as pd

    if len(data.columns) != len(LONG):
        return False
    rows, items = (pd.factorize(data[name])[0] for name in data.columns[:2])
    num_items = int(items.max()) + 1
    num_cells = (int(rows.max()) + 1) * num_items
    different = len(np.unique(rows * num_items + items))
    return (
        min(rows.min(), items.min()) == 0
        and min(int(rows.max()), int(items.max())) >= 2
        and different >= SINGLE * len(rows)
        and 2 * different >= num_cells
    )


def _as_pandas(data: Any) -> Any:
    import narwhals.stable.v1 as nw

    if isinstance(
        getattr(data, "column_names", None), list
    ):  # a table of Arrow, which may have several columns of one name
        _refuse_copies(data.column_names)
    frame = nw.from_native(data, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        name = f"{type(data).__module__.partition('.')[0]}.{type(data).__name__}"
        raise ValueError(
            f"data: rows were expected, got a {name}, which has not been computed yet; call its"
            " collect() or compute() first"
        )
    return frame.to_pandas() if isinstance(frame, nw.DataFrame) else data


def as_given(data: Any, table: Any) -> Any:
    """Convert a pandas frame to the library whose frame ``data`` are; for all others as it is."""
    if type(data).__module__.partition(".")[0] in OWN or not hasattr(type(data), "columns"):
        return table
    import narwhals.stable.v1 as nw

    frame = nw.from_native(data, pass_through=True)
    if not isinstance(frame, nw.DataFrame) or not is_frame(table):
        return table
    columns = {str(name): table[name].to_numpy() for name in table.columns}
    library = nw.get_native_namespace(frame)
    return nw.from_dict(columns, native_namespace=library).to_native()


def _refuse_copies(names: Any) -> None:
    copies = [name for name, count in Counter(map(str, names)).items() if count > 1]
    if copies:
        raise ValueError(
            "data: columns of different names were expected, got several named"
            f" {', '.join(map(repr, copies[:5]))}: rename or drop all but one"
        )


# -------------------------------------------------------------------- categories


def levels_of_frame(
    owner: str, data: Any, max_levels: int, ordered: bool = False
) -> tuple[tuple[str, ...], ...]:
    """Category names of every column.

    Of a pandas categorical in its own order, of whole numbers in theirs, of text in the alphabet's.

    Args:
        owner: who asks, for messages.
        data: a data frame of any library.
        max_levels: that a column may have.
        ordered: whether the order counts, so that text must bring its own.

    Raises:
        ValueError: for no frame; or naming a column without values, with too many, with others than
            text, categories, booleans and whole numbers, or with text in no order where the order
            counts.

    Warns:
        UnusedLevelWarning: naming levels of a pandas categorical that no row has.
    """
    if isinstance(max_levels, bool) or not isinstance(max_levels, int) or max_levels < 1:
        raise ValueError(f"{owner}: max_levels must be a positive integer, got {max_levels!r}")
    frame = as_frame(data)
    if not is_frame(frame):
        raise ValueError(
            f"{owner}: a data frame was expected, got {type(data).__name__}; of arrays, give"
            " num_categories"
        )
    if not len(frame.columns):
        raise ValueError(f"{owner}: a data frame with columns was expected, got one without any")
    return tuple(
        _levels_of(owner, frame[name], str(name), max_levels, ordered) for name in frame.columns
    )


def _levels_of(
    owner: str, column: Any, name: str, max_levels: int, ordered: bool
) -> tuple[str, ...]:
    where = f"{owner}: column {name!r}"
    _, values = _factors(column, where)
    if not values:
        raise ValueError(f"{where} has no observed entry")
    if len(values) > max_levels:
        misread = misread_numbers(values) if holds_texts(column) else ""
        if misread:
            raise ValueError(f"{where} holds {misread}")
        raise ValueError(
            f"{where} has {len(values):,} different values, more than max_levels = {max_levels}: a"
            " number or an identifier is no category; leave it out, or allow more"
        )
    labels = {_label(value, where) for value in values}
    categories = getattr(column.dtype, "categories", None)
    if categories is not None and (not ordered or column.dtype.ordered):
        own = list(dict.fromkeys(_label(value, where) for value in categories))
        unused = [label for label in own if label not in labels]
        if unused and not ordered:
            warnings.warn(
                f"{where}: no row has {', '.join(map(repr, unused))}, which the fit leaves out",
                UnusedLevelWarning,
                stacklevel=4,
            )
        if unused and ordered:
            raise ValueError(
                f"{where}: no row has {', '.join(map(repr, unused))}, so nothing says where it lies"
                " in the order: drop it, or join it to a neighbour"
            )
        return tuple(label for label in own if label in labels)
    if all(
        isinstance(value, bool | np.bool_ | int | np.integer | float | np.floating)
        for value in values
    ):
        return tuple(dict.fromkeys(_label(value, where) for value in sorted(values)))
    if ordered:
        raise ValueError(
            f"{where} holds text in no order: make it an ordered pandas Categorical, or give levels"
            " from the lowest to the highest"
        )
    return tuple(sorted(labels))


def coded(data: Any, names: Mapping[int, Sequence[str]], owner: str = "data") -> Any:
    """Encode categories as codes 0, 1, ...

    Of a data frame, or an array of text; tensors and arrays of numbers hold codes, and are as they
    were.

    Args:
        data: a table.
        names: of the categories, by the place of their column.
        owner: for messages.

    Raises:
        ValueError: naming the column and a level that is not among the names.
    """
    data = as_frame(data)
    if isinstance(data, np.ndarray | list | tuple) and names:
        data = _text_as_frame(data)
    if not names or not is_frame(data) or len(data.columns) <= max(names):
        return data
    import pandas as pd

    columns = {name: data[name] for name in data.columns}
    for place, levels in names.items():
        name = data.columns[place]
        columns[name] = pd.Series(
            _codes(data[name], levels, f"{owner}: column {str(name)!r}"), data.index
        )
    return pd.DataFrame(columns, data.index)


def _text_as_frame(data: Any) -> Any:
    try:
        array = np.asarray(data)
    except ValueError:  # lines of unequal length, which are refused where all data are
        return data
    if array.dtype.kind not in "OUT" or array.ndim != 2:
        return data
    import pandas as pd

    return pd.DataFrame(array)


def _codes(column: Any, levels: Sequence[str], where: str) -> np.ndarray:
    codes, values = _factors(column, where)
    place = {label: code for code, label in enumerate(levels)}
    of_value = np.full(len(values) + 1, np.nan)  # the last is what is missing
    for i, value in enumerate(values):
        label = _label(value, where)
        if isinstance(value, bool | np.bool_) and label not in place:
            label = str(int(value))
        if label not in place:
            known = ", ".join(map(repr, [*levels[:8], *(["..."] if len(levels) > 8 else [])]))
            hint = (
                "; names are given to the model, as by Categorical.from_frame(data)"
                if list(levels) == list(map(str, range(len(levels))))
                else ""
            )
            raise ValueError(
                f"{where}: level {label!r} is unknown to the model, whose levels are {known}{hint}"
            )
        of_value[i] = place[label]
    return np.asarray(of_value[codes])


def _factors(column: Any, where: str) -> tuple[np.ndarray, list[Any]]:
    """Encode entries by the position of their value among distinct ones, -1 if missing."""
    import pandas as pd

    try:
        codes, values = pd.factorize(column)
    except TypeError as error:
        raise ValueError(
            f"{where}: text, categories, booleans or whole numbers were expected ({error})"
        ) from None
    return codes, list(values)


def _label(value: Any, where: str) -> str:
    """Name of a level; of whole numbers without a point.

    A column with missing entries holds 1.0 for 1.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer) or (
        isinstance(value, float | np.floating) and float(value).is_integer()
    ):
        return str(int(value))
    raise ValueError(
        f"{where}: text, categories, booleans or whole numbers were expected, got {value!r}"
    )
