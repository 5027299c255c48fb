"""Families of the columns of a table, read off their values and what a user says of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from ppl_models.data.frames import (
    as_frame,
    check_texts,
    column_names,
    holds_texts,
    is_frame,
    misread_numbers,
    refuse_ids,
    row_names,
)
from ppl_models.data.sparse import as_sparse_counts, is_sparse
from ppl_models.data.tables import EXACT, FEW_ENTRIES, CodesWarning, as_table
from ppl_models.parts.blocks import Blocks
from ppl_models.parts.categorical import Categorical, Ordinal
from ppl_models.parts.repr import listed
from ppl_models.parts.responses import (
    Bernoulli,
    LogNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    ResponseFamily,
)
from ppl_models.parts.validation import check_size

if TYPE_CHECKING:
    import pandas as pd

Response = ResponseFamily | Callable[[Any], ResponseFamily]  # of columns, or read off them

RESPONSES: dict[str, Response] = {
    "bernoulli": Bernoulli(),
    "poisson": Poisson(),
    "normal": Normal(),
    "lognormal": LogNormal(),
    "negative-binomial": NegativeBinomial(),
}  # of numbers, by the names of the command line
CATEGORIES = "categorical"
ORDERED: dict[str, Response] = {
    "ordinal": partial(Ordinal.from_frame, link="cumulative"),
    "partial-credit": partial(Ordinal.from_frame, link="adjacent"),
}
FAMILIES = RESPONSES | {CATEGORIES: Categorical.from_frame}
EVERY = FAMILIES | ORDERED
COUNTING = "numbers that count the rows, taken for measurements"
LEAST_IDS = 30  # rows
LEVELS = "ordered levels"  # the kind that has no link
READ: dict[str, Response] = FAMILIES | {LEVELS: Ordinal.from_frame}  # by kind_of_column
KINDS: dict[type[ResponseFamily], str] = {
    Bernoulli: "yes-no",
    Poisson: "counts",
    NegativeBinomial: "counts (negative binomial)",
    Normal: "measurements",
    LogNormal: "positive measurements",
    Ordinal: "ordered categories",
    Categorical: "categories",
}  # what columns of a family are called
LEAST_VARIANCE = 0.7  # of counts, as a share of their mean: what chance leaves of 1
LARGEST_CODE, ROWS_A_LEVEL = 10, 3  # of a short run of whole numbers
# of a column of texts: so many always may be, and never more (else half of the rows)
FEW_CATEGORIES, MOST_CATEGORIES = 10, 50
MOST_NAMED = 4

# of single and double bases, insertions and deletions, as signature tools write them
MUTATION_TYPE = r"[ACGT]\[[CT]>[ACGT]\][ACGT]|[ACGT]{2}>[ACGT]{2}|\d:(Del|Ins):[CTRM]:\d"
FEW_ROWS_EACH = 2  # rows a group, at most, of a table that lies on its side
MOST_COLUMNS = 4  # a row, of a table that does not look as if it lay on its side


def items_of(frame: Any, responses: Mapping[str, Response] | None = None) -> ResponseFamily:
    """Response families of the columns of a table, read off their values.

    Bool, 0 and 1 are yes-no (:class:`Bernoulli`). Texts, pandas categoricals, and whole numbers
    with two values that are not 0 and 1 are categories (:class:`Categorical`); ordered
    pandas categoricals, and short runs of whole numbers such as 1, ..., 5, are ordered categories
    (:class:`Ordinal`; layered models give them the cumulative link). Whole numbers with zeros among
    them whose variance is not far below their mean are counts (:class:`Poisson`: of a mixture of
    Poisson distributions, the variance is at least the mean). All other numbers are measurements
    (:class:`Normal`). A first column that names the rows
    (:func:`~ppl_models.data.frames.row_names`), as files of R and pandas have it, is no item.

    Args:
        frame: a data frame of any library, or an array (N, J), whose columns are "0", "1", ...;
            categories in an array of numbers are codes 0, 1, ..., so that 1, ..., 5 in it are
            measurements, with a warning. Sparse matrices of scipy, and AnnData objects that hold
            one, are yes-no where all entries are 0 or 1, and counts where all are whole.
        responses: of columns that are something else, by name: a family, or a function of a
            frame that reads it, such as ``{"age": Poisson(), "grade": Categorical.from_frame}``.

    Returns:
        One family for all columns, or :class:`Blocks` of neighbouring columns of one kind.

    Raises:
        ValueError: for data without columns, names that are none of them, or a column of too many
            different texts, or of texts that stand for numbers.

    Warns:
        CodesWarning: naming the columns that may be something else, and how to say so.

    Example:
        >>> import pandas as pd
        >>> from ppl_models import Normal, items_of
        >>> columns = {"smokes": [0, 1, 1], "visits": [0, 7, 2], "age": [31.5, 40.2, 28.9]}
        >>> frame = pd.DataFrame(columns)
        >>> items_of(frame)
        Blocks(parts=((Bernoulli(), 1), (Poisson(), 1), (Normal(), 1)))
        >>> items_of(frame, {"visits": Normal()})
        Blocks(parts=((Bernoulli(), 1), (Normal(), 2)))
    """
    frame = as_frame(frame)
    if is_sparse(frame) and not responses:
        cells, _ = as_sparse_counts(frame, frame.shape[1])
        return Bernoulli() if bool((cells.values <= 1).all()) else Poisson()
    table, holds_codes = _as_columns(frame)
    if row_names(table) not in (None, *(responses or ())):
        table = table.iloc[:, 1:]
    refuse_lying(table)
    doubts: dict[str, list[str]] = {}
    family = read_items(table, responses or {}, doubts, holds_codes)
    for words, names in doubts.items():
        warnings.warn(
            f"{'column' if len(names) == 1 else 'columns'} {listed(map(repr, names), MOST_NAMED)}:"
            f" {words}; where that is wrong, say what the model's items are, such as"
            f" items_of(data, {{{names[0]!r}: Normal()}})",
            CodesWarning,
            stacklevel=2,
        )
    return family


def _as_columns(data: Any) -> tuple[pd.DataFrame, bool]:
    """A data frame as it is; an array (N, J) as one with columns "0", "1", ...

    Also whether categories in it are codes 0, 1, ..., as in arrays of numbers.
    """
    import pandas as pd

    frame = as_frame(data)
    if is_frame(frame):
        return frame, False
    if isinstance(frame, np.ndarray) and frame.dtype.kind in "OU" and frame.ndim == 2:
        return pd.DataFrame(frame).rename(columns=str), False  # texts among the entries
    table, names = as_table(frame)
    return pd.DataFrame(table.detach().cpu().numpy(), columns=list(names)), True


def read_items(
    frame: pd.DataFrame,
    responses: Mapping[str, Response],
    doubts: dict[str, list[str]],
    holds_codes: bool = False,
) -> ResponseFamily:
    """As :func:`items_of`, of a pandas frame; adds columns to ``doubts``, by what is in doubt."""
    names = column_names(frame)
    if not names:
        raise ValueError("items_of: a table with columns was expected, got one without any")
    for name, given in responses.items():
        if name not in names:
            raise ValueError(
                f"responses: {name!r} is no column of the table; its columns are {listed(names)}"
            )
        if isinstance(given, type) or not (isinstance(given, ResponseFamily) or callable(given)):
            raise ValueError(
                f"responses: column {name!r}: a family such as Poisson(), or a function that reads"
                f" one, such as Categorical.from_frame, was expected, got {given!r}"
            )
    found: list[Response] = []
    for name, column in zip(names, frame.columns, strict=True):
        response = responses.get(name)
        if response is None:
            kind, doubt = kind_of_column(frame[column], holds_codes)
            response = READ[kind]
            if doubt:
                doubts.setdefault(doubt, []).append(name)
        found.append(response)
        _check_column(frame[column], response)
    runs: list[tuple[ResponseFamily, int]] = []
    place = 0
    for response, group in groupby(found):
        width = len(list(group))
        if isinstance(response, ResponseFamily):
            family, is_single = response, response.own_items == 1
        else:
            family, is_single = response(frame.iloc[:, place : place + width]), False
        place += width
        runs += [(family, 1)] * width if is_single else [(family, width)]
    return runs[0][0] if len(runs) == 1 else Blocks(*runs)


def _check_column(column: pd.Series, response: Response) -> None:
    if not holds_texts(column):
        return
    name = str(column.name)
    if isinstance(response, ResponseFamily) and not isinstance(response, Categorical):
        raise ValueError(
            f"column {name!r} holds texts, which {KINDS.get(type(response), response)} cannot be:"
            " leave the column out, or take it for categories"
        )
    most = max(FEW_CATEGORIES, min(MOST_CATEGORIES, len(column) // 2))
    if not isinstance(response, ResponseFamily) and column.nunique() > most:
        values = column.dropna().unique()
        twice = column[column.duplicated() & column.notna()]
        many = f"{len(values):,} different texts, too many for categories" + (
            f", and {str(twice.iloc[0])!r} more than once, so that it names no rows: leave the"
            " column out"
            if len(twice)
            else ": leave the column out, or name the rows by it (--id, or the index of the frame)"
        )
        raise ValueError(f"column {name!r} holds {misread_numbers(values) or many}")


def kind_of_column(column: Any, holds_codes: bool = False) -> tuple[str, str]:
    """Kind of a pandas column, a name among :data:`READ`, and what is in doubt, in words.

    Args:
        column: the column.
        holds_codes: whether categories in it are codes 0, 1, ..., and no numbers of their own.

    Raises:
        ValueError: for texts that stand for numbers, as :func:`check_texts`, and what may be an id.
    """
    refuse_ids(str(column.name), column)
    if holds_texts(column):
        check_texts(column, f"column {str(column.name)!r}")
        return (LEVELS if getattr(column.dtype, "ordered", False) else CATEGORIES), ""
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    seen = values[~np.isnan(values)]
    if np.isin(seen, (0.0, 1.0)).all():
        return "bernoulli", ""
    with np.errstate(all="ignore"):  # values beyond all bounds are refused by the model
        if not (seen == np.floor(seen)).all():
            return "normal", ""
        codes = np.unique(seen) if len(np.unique(seen[:1000])) <= LARGEST_CODE + 1 else seen[:0]
        if len(codes) == 2 and len(seen) >= FEW_ENTRIES and abs(codes).max() < EXACT:
            return ("normal" if holds_codes else CATEGORIES), ""  # as_items says the former
        if seen.min() == 0 and seen.var() >= LEAST_VARIANCE * seen.mean():
            return "poisson", ""
        if len(seen) >= FEW_ENTRIES and _counts(values):
            return "normal", COUNTING
        if len(values) >= LEAST_IDS and len(np.unique(values)) == len(values) == len(seen):
            return "normal", "a different whole number in each row, taken for measurements"
    if len(codes) < 3 or codes[0] < 0 or codes[-1] > LARGEST_CODE or len(seen) < FEW_ENTRIES:
        return "normal", ""
    if holds_codes and codes[0] > 0:
        return "normal", "whole numbers of an array, measurements (of a frame, categories)"
    if (np.diff(codes) == 1).all() and len(seen) >= ROWS_A_LEVEL * len(codes):
        return LEVELS, "a short run of whole numbers, taken for ordered categories"
    return "normal", "few whole numbers, taken for measurements"


def described(family: ResponseFamily, names: Sequence[str]) -> str:
    """Kinds of columns in words: ``yes-no: a, b; counts: c``, or ``all counts``."""
    groups: dict[str, list[str]] = {}
    for part, columns, _ in family.blocks(len(names)):
        kind = KINDS.get(type(part), type(part).__name__)
        groups.setdefault(kind, []).extend(names[columns])
    if len(groups) == 1:
        return f"all {next(iter(groups))}"
    return "; ".join(f"{kind}: {listed(held)}" for kind, held in groups.items())


def in_order(
    frame: pd.DataFrame, responses: Mapping[str, Response], orders: Sequence[Sequence[str]]
) -> tuple[pd.DataFrame, dict[str, Response]]:
    """Convert columns of texts to ordered categories; the responses with those columns.

    Args:
        frame: the table.
        responses: by column.
        orders: names of categories, from the lowest to the highest, one list a scale.

    Raises:
        ValueError: for an order that no column has, or an ordinal column whose order is not given.
    """
    frame, responses = frame.copy(), dict(responses)
    texts = {
        name: set(map(str, frame[name].dropna().unique()))
        for name in map(str, frame.columns)
        if holds_texts(frame[name])
    }
    for order in orders:
        fitting = [name for name, held in texts.items() if held <= set(order)]
        if not fitting:
            raise ValueError(
                f"--order: no column of texts holds {listed(order)} and nothing else; the columns"
                f" of texts are {listed(list(texts))}"
            )
        responses = dict.fromkeys(fitting, ORDERED["ordinal"]) | responses
    for name, response in responses.items():
        if response in ORDERED.values() and name in texts:
            frame[name] = _ordered(frame[name], texts[name], orders)
    return frame, responses


def _ordered(column: pd.Series, held: set[str], orders: Sequence[Sequence[str]]) -> pd.Series:
    import pandas as pd

    for order in orders:
        if held <= set(order):
            levels = [name for name in order if name in held]
            return pd.Series(pd.Categorical(column, levels, ordered=True), column.index)
    raise ValueError(
        f"--order: column {column.name!r} holds {listed(sorted(held))}, whose order is not known:"
        " give them from the lowest to the highest, as in --order never,rarely,often,always"
    )


def refuse_lying(frame: pd.DataFrame, remedy: str = "transpose it, data.T") -> None:
    """Refuse a table whose rows are columns: each row of one kind, each column of several.

    Texts and numbers in every column, and none of them together in any row, is what a table of
    unlike columns looks like that lies on its side, and nothing else.
    """
    import pandas as pd

    if frame.shape[1] < 2 or not all(holds_texts(column) for _, column in frame.items()):
        return
    numbers = frame.apply(pd.to_numeric, errors="coerce").notna()
    known = frame.notna()
    texts = known & ~numbers
    if (numbers.any() & texts.any()).all() and not (numbers.any(axis=1) & texts.any(axis=1)).any():
        row = str(frame.index[numbers.any(axis=1).to_numpy().argmax()])
        raise ValueError(
            f"every column holds numbers and texts, such as {str(frame.columns[0])!r}, and every"
            f" row one of the two, such as {row!r}: the table lies on its side; {remedy}"
        )


def refuse_few_rows(table: Any, num_groups: int, remedy: str, owner: str = "data") -> bool:
    """Refuse a table of two rows for each group or fewer, and more than four times the columns.

    Args:
        table: rows by columns.
        num_groups: of its rows.
        remedy: what to do.
        owner: of the message.

    Returns:
        Whether the columns are so many.
    """
    rows, columns = np.shape(table) if np.ndim(table) == 2 else (1, 0)
    if not rows:
        raise ValueError(f"{owner}: at least one row was expected, got none")
    is_wide: bool = MOST_COLUMNS * rows < columns
    if is_wide and rows <= FEW_ROWS_EACH * num_groups:
        raise ValueError(
            f"{owner}: more than {FEW_ROWS_EACH} rows for each group were expected, got {rows:,}"
            f" rows of {columns:,} columns: the table lies on its side; {remedy}"
        )
    return is_wide


def has_mutation_rows(table: Any) -> bool:
    """Table whose rows are types of mutation, such as ``A[C>A]A``."""
    index: Any = getattr(table, "index", None)
    return hasattr(index, "str") and bool(index.astype(str).str.fullmatch(MUTATION_TYPE).all())


def counting_columns(frame: pd.DataFrame) -> list[str]:
    """Names of the columns that count the rows."""
    numbers = [name for name in frame.columns if len(frame) > 2 and not holds_texts(frame[name])]
    return [name for name in numbers if _counts(frame[name].to_numpy(np.float64, na_value=np.nan))]


def _counts(values: np.ndarray) -> bool:
    return len(values) > 2 and bool((np.diff(values) == 1).all())


def refuse_texts(frame: pd.DataFrame) -> None:
    """Refuse columns of texts.

    Raises:
        ValueError: naming the first.
    """
    for name in frame.columns:
        if holds_texts(frame[name]) and frame[name].notna().any():
            raise ValueError(
                f"column {name!r} holds texts, such as {frame[name].dropna().iloc[0]!r}; name the"
                " columns to use with --columns, or leave this one out with --drop"
            )


# ---------------------------------------------------------------- models that wait for data


@dataclass(frozen=True)
class ByColumn(ResponseFamily):
    """Families of the columns as :func:`items_of` reads them, once a model meets its data."""

    def blocks(self, num_items: int) -> list[tuple[ResponseFamily, slice, slice]]:
        raise ValueError("the families of the columns are read off data, and there are none yet")


class OpenModel:
    """Models that leave sizes to the data, which :func:`inference.fit` and all that fit read."""

    @property
    def waits_for_data(self) -> bool:
        """Tell whether a size is still to be read off data."""
        raise NotImplementedError

    def for_data(self, data: Any) -> Self:
        """Model with what it leaves open read off the data; itself where nothing is open."""
        raise NotImplementedError

    def read_as(self, data: Any) -> dict[str, str]:
        """Columns of a frame that say which row or step it is, by what they are taken for."""
        return {}


class OpenItems(OpenModel):
    """Models whose number of items, and families of items, may be left to the data.

    A model is open while ``num_items`` is None. :func:`inference.fit` and all that fit complete it
    by :meth:`for_data`; without data, whatever needs the number raises a ``ValueError``.
    """

    num_items: int | None
    usual: ClassVar[
        Mapping[str, ResponseFamily]
    ] = {}  # field of the items' family, and its default
    takes_sparse: ClassVar[bool] = False  # works on the cells of a sparse table

    def for_data(self, data: Any) -> Self:
        """Model with what it leaves open read off the data; itself where nothing is open.

        Args:
            data: as the model takes them in a fit; covariates among them are no items.

        Raises:
            ValueError: for data of another form, or as :func:`items_of`.

        Warns:
            CodesWarning: as :func:`items_of`.
        """
        model = self._coded(data)
        if not self.waits_for_data:
            return model
        items = as_frame(model._items_among(data))
        if is_frame(items):
            items = items.drop(columns=[name for name in [row_names(items)] if name is not None])
        if has_mutation_rows(items):
            raise ValueError(
                "data: rows are samples; here they are types of mutation, such as"
                f" {str(items.index[0])!r}: transpose the table, data.T"
            )
        if not isinstance(self._item_family, ByColumn):
            for name in items.columns if is_frame(items) else ():
                refuse_ids(str(name), items[name], f"num_items={len(items.columns)} in the model")
            return replace(model, num_items=_width(items))  # type: ignore[type-var]
        families = dict.fromkeys(self.usual, items_of(items))
        return replace(model, num_items=_width(items), **families)  # type: ignore[type-var]

    def _coded(self, data: Any) -> Self:
        """Model whose covariates know the categories that the data hold as texts."""
        given, frame = getattr(self, "_given", None), as_frame(data)
        known = given.for_frame(frame) if given is not None and is_frame(frame) else given
        if known is given:
            return self
        return replace(self, covariates=known)  # type: ignore[type-var]

    def read_as(self, data: Any) -> dict[str, str]:
        """Columns of a frame that are no items, by what they are taken for: ``row``, its name.

        A model that knows its items takes no column for anything else where their number is that
        of the columns.
        """
        frame = as_frame(data)
        if not is_frame(frame):
            return {}
        name, given = row_names(frame), getattr(self, "_given", None)
        num_items = len(frame.columns) - (0 if given is None else len(given.names))
        is_item = not self.waits_for_data and self._width == num_items
        return {} if name is None or is_item else {"row": name}

    @property
    def _item_family(self) -> Any:
        """Family of the items; None where the model has no choice of it."""
        return next((getattr(self, name) for name in self.usual), None)

    def taken_for(self, names: Sequence[str]) -> str:
        """Kinds of the columns in words: ``yes-no: a, b; counts: c``.

        Args:
            names: of the items, and maybe of what stands behind them.

        Returns:
            The words; "" for a model of one kind of columns, or of whole rows.
        """
        family = self._item_family
        if not isinstance(family, ResponseFamily) or len(names) < self._width:
            return ""
        return described(family, names[: self._width])

    def _items_among(self, data: Any) -> Any:
        """The items alone, a table (N, J)."""
        given = getattr(self, "_given", None)
        if given is None:
            return data
        frame = as_frame(data)
        return (
            given.split(frame)[0] if is_frame(frame) else as_table(frame)[0][:, : -len(given.names)]
        )

    def _settle(self) -> None:
        """Take the width from a family that knows it, and the usual family where that is known."""
        family = self._item_family
        if self.waits_for_data and isinstance(family, ResponseFamily):
            object.__setattr__(self, "num_items", family.own_items)
        if self.num_items is not None:
            check_size(type(self).__name__, "num_items", self.num_items)
        if not self.waits_for_data and isinstance(family, ByColumn):
            for name, usual in self.usual.items():
                object.__setattr__(self, name, usual)

    @property
    def waits_for_data(self) -> bool:
        """Tell whether the number of items is still to be read off data."""
        return self.num_items is None

    @property
    def _width(self) -> int:
        """Number of items, J.

        Raises:
            ValueError: while it is open.
        """
        if self.num_items is None:
            raise ValueError(
                f"{type(self).__name__}: num_items was left open, and is read off the data in a"
                " fit: give num_items, or take the model of some data, model.for_data(data)"
            )
        return self.num_items


def _width(items: Any) -> int:
    """Number of columns of a table of any form."""
    frame = as_frame(items)
    if is_frame(frame):
        return len(frame.columns)
    if is_sparse(frame):
        return int(frame.shape[1])
    return as_table(frame)[0].shape[1]
