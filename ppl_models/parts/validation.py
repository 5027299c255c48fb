"""Validation of a user's data and arguments, and its messages."""

from __future__ import annotations

import dataclasses
import math
import types
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ppl_models.parts.frames import (
    alike_levels,
    as_frame,
    coded,
    column_names,
    misread_numbers,
    row_of,
)
from ppl_models.parts.responses import NegativeBinomial, Normal, Poisson, ResponseFamily

LARGEST = 2**63 - 1  # of a count or a seed
MOST_NAMED = 8
EXACT = 2**53  # whole numbers up to this size are numbers in double precision
MISSING_CODES = (-9, -99, -999, -9999, 99, 999, 9999)  # of questionnaires, for a missing answer
FEW_ENTRIES = 8  # of a column, from which two values are called codes
BEYOND = 4.0  # times the largest other entry, from which a positive code of a missing answer is one


class ColumnsWarning(UserWarning):
    """A table has columns that the fit or the model does not know, which are left out."""


class CodesWarning(UserWarning):
    """Warning of a column that looks like codes.

    Of two answers, a missing answer, one category in several ways.
    """


class ConstantColumnWarning(UserWarning):
    """Warning of a column that holds one value.

    It says nothing of the latents, and its intercept may run to its bound.
    """


def is_integer(value: Any, least: int = 1) -> bool:
    """Integer test, Python's or NumPy's, of at least ``least``; True and False are none."""
    return (
        isinstance(value, int | np.integer)
        and not isinstance(value, bool)
        and bool(least <= value <= LARGEST)
    )


def is_number(value: Any) -> bool:
    """Finite number test, Python's or NumPy's; True and False are none."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def check_size(
    owner: str, name: str, value: Any, least: int = 1, wanted: str | None = None
) -> None:
    """Check an integer of at least ``least``; ``wanted`` replaces the message's words."""
    if not is_integer(value, least):
        own = {0: "a non-negative integer", 1: "a positive integer"}.get(
            least, f"an integer of at least {least}"
        )
        raise ValueError(f"{owner}: {name} must be {wanted or own}, got {value!r}")


def check_number(
    owner: str,
    name: str,
    value: Any,
    must: str,
    above: float = -math.inf,
    below: float = math.inf,
    least: float = -math.inf,
    most: float = math.inf,
) -> None:
    """Check a finite number in ``(above, below)`` and ``[least, most]``.

    ``must`` says so in words.
    """
    if not (is_number(value) and above < value < below and least <= value <= most):
        raise ValueError(f"{owner}: {name} must {must}, got {value!r}")


def check_numbers(
    owner: str, name: str, value: Any, must: str, length: int, **limits: float
) -> tuple[float, ...]:
    """``length`` numbers, each within the limits of :func:`check_number`, as a tuple."""
    numbers = value.tolist() if isinstance(value, np.ndarray | Tensor) else value
    if not isinstance(numbers, list | tuple) or len(numbers) != length:
        raise ValueError(f"{owner}: {name} must {must}, got {value!r}")
    for number in numbers:
        check_number(owner, name, number, must, **limits)
    return tuple(float(number) for number in numbers)


def check_kind(
    owner: str, name: str, value: Any, kinds: type | tuple[type, ...] | types.UnionType, wanted: str
) -> None:
    """``value`` must be an instance of one of ``kinds``, and not the class itself."""
    if not isinstance(value, kinds):
        hint = " (the class itself; add parentheses)" if isinstance(value, type) else ""
        raise ValueError(f"{owner}: {name} must be {wanted}, got {value!r}{hint}")


def plain_fields(record: Any, tensors: bool = True) -> None:
    """Convert the fields of a frozen record to Python numbers and tuples.

    Numbers of NumPy and torch, lists and arrays.

    Args:
        record: to be changed in place, while it is made.
        tensors: whether tensors are meant as numbers too; else they stay.
    """
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        changed = value if isinstance(value, Tensor) and not tensors else _plain(value)
        if changed is not value:
            object.__setattr__(record, field.name, changed)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray | Tensor):
        return _plain(value.tolist())  # a number where it has no dims
    if isinstance(value, list) or type(value) is tuple:
        parts = tuple(_plain(part) for part in value)
        return (
            value
            if isinstance(value, tuple) and all(a is b for a, b in zip(parts, value, strict=True))
            else parts
        )
    return value


def check_flag(owner: str, name: str, value: Any) -> None:
    """``value`` must be True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{owner}: {name} must be True or False, got {value!r}")


def numbers_like(owner: str, data: Tensor | None, num_rows: int | None) -> dict[str, Any]:
    """Data type and device of a program's numbers: those of its data.

    Double precision where it draws ``num_rows`` rows.
    """
    if data is None and num_rows is None:
        raise ValueError(f"{owner}: give data, or num_rows to draw some")
    return (
        {"dtype": torch.float64} if data is None else {"dtype": data.dtype, "device": data.device}
    )


def as_table(data: Any) -> tuple[Tensor, tuple[str, ...]]:
    """A tensor, array or data frame as a floating (N, J) tensor and its column names.

    Single and double precision are kept, and a tensor's device; all other numbers become float64.
    Masked entries of a masked array, None and ``pandas.NA`` become NaN.

    Raises:
        ValueError: for strings or objects (naming the column), complex numbers, infinities, numbers
            whose squares are infinite, whole numbers beyond 2**53, no rows, rows of unequal length,
            a sparse tensor, or not two dims.
    """
    data = as_frame(data)
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        names = column_names(data)
        for name in data.columns:
            remedy = (
                ": leave the column out, make it the index if it names the rows, as in"
                f" data.set_index({name!r}), or take a model of categories, such as Mixture(3,"
                " Categorical.from_frame(data))"
            )
            _check_numeric(np.asarray(data[name]), f"data: column {str(name)!r}", remedy)
        columns = [data[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in data.columns]
        table = torch.from_numpy(np.stack(columns, 1) if columns else np.empty(data.shape))
    else:
        names = ()
        data = as_dense(data if isinstance(data, Tensor) else torch.from_numpy(as_floats(data)))
        if data.is_complex():
            raise ValueError(f"data: real numbers were expected, got dtype {data.dtype}")
        if data.dtype == torch.int64 and (words := inexact(data)):
            raise ValueError(f"data: {words}")
        table = data if data.dtype in (torch.float32, torch.float64) else data.to(torch.float64)
    if table.dim() != 2:
        raise ValueError(
            f"data: a table (rows, items) was expected, got shape {tuple(table.shape)}"
        )
    if table.shape[0] == 0:
        raise ValueError("data: at least one row was expected, got none")
    infinite = torch.isinf(table)
    if infinite.any():
        row, column = (int(i) for i in infinite.nonzero()[0])
        raise ValueError(
            "data: finite numbers (or NaN for missing) were expected, got an infinity in"
            f" {row_of(data, row)}, column {column}"
        )
    largest = torch.finfo(table.dtype).max ** 0.5 / 1e3
    large = (table > largest) | (table < -largest)
    if large.any():
        row, column = (int(i) for i in large.nonzero()[0])
        raise ValueError(
            f"data: numbers of at most {largest:.0e} in size, whose squares and sums are numbers"
            f" too, were expected, got {float(table[row, column]):g} in {row_of(data, row)}, column"
            f" {column}: change the unit, or mark a wrong entry as missing (NaN)"
        )
    return table, names or tuple(str(j) for j in range(table.shape[1]))


def as_dense(data: Tensor) -> Tensor:
    """Tensor without its history, in a dtype that numpy knows.

    Double precision where it does not; sparse ones and those without numbers are refused.
    """
    if data.layout != torch.strided:
        raise ValueError(f"data: a dense tensor was expected, got layout {data.layout}")
    if data.is_meta:
        raise ValueError(
            "data: a tensor with numbers in it was expected, got one on the device 'meta', which"
            " holds none"
        )
    data = data.detach()
    return (
        data.double()
        if data.dtype.is_floating_point and data.dtype not in (torch.float32, torch.float64)
        else data
    )


def check_complete(owner: str, table: Tensor, names: tuple[str, ...], data: Any = None) -> None:
    """Check that no entry of a table is missing.

    The message names the first that is, as ``data``, of which the table was made, names its rows.
    """
    missing = table.isnan().nonzero().tolist()
    if missing:
        row, column = missing[0]
        raise ValueError(
            f"data: {owner} needs complete rows; {row_of(data, row)}, column {names[column]!r} is"
            " missing"
        )


def as_floats(data: Any) -> np.ndarray:
    """The numbers in single or double precision, of native byte order.

    The array itself comes back where it is that already and may be written to.

    Raises:
        ValueError: for rows of unequal length, what is no real number, whole numbers beyond 2**53.
    """
    if sparse.issparse(data):
        raise ValueError(
            f"data: a dense table was expected, got {type(data).__name__} of scipy, of shape"
            f" {data.shape}: give data.toarray(); PoissonFactorization takes sparse counts"
        )
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ValueError(
            f"data: a table (rows, items) was expected, got rows of unequal length ({error})"
        ) from error
    _check_numeric(array, "data")
    array = with_nan(array)
    is_single = array.dtype.kind == "f" and array.dtype.itemsize == 4
    floats = np.require(
        array, np.float32 if is_single else np.float64, ["C", "W"]
    )  # torch shares its memory
    if min(floats.strides, default=0) < 0:  # of one row backwards, which NumPy takes for in order
        floats = floats.copy()
    if isinstance(data, np.ma.MaskedArray):
        floats = floats.copy()
        floats[np.ma.getmaskarray(data)] = np.nan
    return floats


def with_nan(array: np.ndarray) -> np.ndarray:
    """An array, NaN where an object stands for a missing entry: None and ``pandas.NA``."""
    if array.dtype.kind != "O":
        return array
    missing = np.array([value is None or _is_na(value) for value in array.ravel()], dtype=bool)
    return np.where(missing.reshape(array.shape), np.nan, array)


def _is_na(value: Any) -> bool:
    return type(value).__name__ == "NAType"


def _check_numeric(array: np.ndarray, where: str, remedy: str = "") -> None:
    if array.dtype.kind in "biuf":
        if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and (words := inexact(array)):
            raise ValueError(f"{where}: {words}")
        return
    if array.dtype.kind in "OUST":
        for value in array.ravel():
            if isinstance(value, int | np.integer):
                if words := inexact(np.array([int(value)], dtype=object)):
                    raise ValueError(f"{where}: {words}")
            elif not (value is None or _is_na(value) or isinstance(value, float | np.number)):
                texts = dict.fromkeys(text for text in array.ravel() if isinstance(text, str))
                got = misread_numbers(texts) or f"{value!r}{remedy}"
                raise ValueError(f"{where}: numbers were expected, got {got}")
        if array.dtype.kind == "O":
            return
    days = "write a number, such as the days since the first date, or leave the column out"
    hint = f": {days}" if array.dtype.kind == "M" else ""
    raise ValueError(f"{where}: real numbers were expected, got dtype {array.dtype}{hint}")


def inexact(values: Any) -> str:
    """Fault of whole numbers beyond double precision; "" where there are none."""
    large = (values > EXACT) | (values < -EXACT)
    if not large.any():
        return ""
    return (
        f"whole numbers of at most {EXACT:,} (2**53) in size, which double precision tells apart, "
        f"were expected, got {int(values[large][0])}: leave the column out if it names the "
        "rows, or subtract what all its entries have in common"
    )


def as_items(
    data: Any, num_items: int, response: ResponseFamily, for_fit: bool = True
) -> tuple[Tensor, tuple[str, ...]]:
    """Check a table of items against a response family.

    Args:
        data: (N, J) tensor, array or data frame, NaN where missing; categories by name in a data
            frame, else as codes.
        num_items: J.
        response: the family of the columns.
        for_fit: whether a fit is to follow; rows to predict for may be empty, and their columns
            constant.

    Returns:
        The (N, J) tensor and the item names.

    Raises:
        ValueError: as :func:`as_table`; for another number of columns; for an all-missing row or
            column; for values outside the family's range, naming the column; for categories that
            the family does not know, naming the level.

    Warns:
        ConstantColumnWarning: naming every column that holds one value.
        CodesWarning: naming every column that looks like codes and is not taken for them.
    """
    data = as_frame(data)
    if hasattr(data, "columns") and len(data.columns) != num_items:
        raise ValueError(_other_width(num_items, column_names(data)))
    levels = response.category_names(num_items)
    table, names = as_table(coded(data, levels))
    if table.shape[1] != num_items:
        raise ValueError(_other_width(num_items, names))
    missing = torch.isnan(table)
    for dim, what in ((0, "column"), (1, "row")):
        empty = missing.all(dim).nonzero().ravel().tolist()
        if empty and for_fit:
            shown = f"column {names[empty[0]]!r}" if dim == 0 else row_of(data, empty[0])
            raise ValueError(
                f"data: {shown} has no observed entry; drop it ({len(empty)} such {what}(s))"
            )
    constant, doubts = [], []
    for family, columns, _ in response.blocks(num_items):
        for j in range(columns.start, columns.stop):
            observed = table[~missing[:, j], j]
            if not len(observed):
                continue
            problem = family.item(j - columns.start).problem(observed)
            if problem is not None:
                raise ValueError(f"data: column {names[j]!r}: {problem}")
            if (observed == observed[0]).all():
                constant.append(names[j])
            else:
                doubts += _doubts_of(names[j], observed, family, levels.get(j, ()))
    if constant and for_fit:
        warnings.warn(
            f"columns with one value only: {', '.join(constant)}",
            ConstantColumnWarning,
            stacklevel=3,
        )
    for words in doubts if for_fit else ():
        warnings.warn(words, CodesWarning, stacklevel=3)
    return table, names


def _doubts_of(
    name: str, observed: Tensor, family: ResponseFamily, levels: Sequence[str]
) -> list[str]:
    """Doubts about the kind of a column, a sentence each."""
    alike = alike_levels(name, levels)
    if isinstance(family, Normal):
        taken_for = "measurements"
    elif isinstance(family, Poisson | NegativeBinomial):
        taken_for = "counts"
    elif family.num_thresholds(1) and all(one.removeprefix("-").isdecimal() for one in levels):
        taken_for = "the lowest or highest of its categories"
        observed = observed.new_tensor([float(level) for level in levels])
    else:
        return alike
    return alike + [f"column {name!r} {words}" for words in _codes_in(observed, taken_for)]


def _codes_in(observed: Tensor, taken_for: str) -> list[str]:
    """Contents of a column in the place of its kind, in words without a subject."""
    head = observed[:1000]
    if len(head.unique()) > 2 and bool((head != head.floor()).any()):
        return []  # measurements; the others need not be looked at
    values = observed.unique()  # rising
    if len(values) == 2:
        low, high = values.tolist()
        if taken_for != "measurements" or (low, high) == (0.0, 1.0) or len(observed) < FEW_ENTRIES:
            return []
        remedy = (
            "write 0 and 1 if they are the codes of two answers (Bernoulli), or take them for "
            "categories (Categorical)"
        )
        return [
            f"holds two values only, {low:g} and {high:g}, and is taken for {taken_for}: {remedy}"
        ]
    is_code = torch.isin(values, values.new_tensor(MISSING_CODES))
    codes, others = values[is_code].tolist(), values[~is_code]
    if not codes or len(others) < 2 or others[0] < 0 or not bool((others == others.floor()).all()):
        return []
    least, largest = float(others[0]), float(others[-1])
    if any(abs(code) <= largest * (BEYOND if code > 0 else 1.0) for code in codes):
        return []
    listed = " and ".join(f"{code:g}" for code in codes)
    return [
        f"holds {listed} beside whole numbers from {least:g} to {largest:g}, and {listed} would be "
        f"taken for {taken_for}: write an empty entry (NaN) where an answer is missing"
    ]


def _other_width(num_items: int, names: Sequence[str]) -> str:
    return (
        f"data: num_items = {num_items} columns were expected, got {len(names)} ({quoted(names)}):"
        f" leave out those that are no items, or write num_items={len(names)} in the model"
    )


def quoted(names: Sequence[str], most: int = MOST_NAMED) -> str:
    """Names in quotes, the first of many."""
    return ", ".join(map(repr, names[:most])) + (
        f" and {len(names) - most:,} more" if len(names) > most else ""
    )


def check_reach(
    table: Tensor,
    names: tuple[str, ...],
    response: ResponseFamily,
    bound: float | None = None,
    remedy: str = "",
) -> None:
    """Columns that predictors are linear in must not lie too far from zero.

    Args:
        table: (N, J), NaN where missing; names: of the columns; response: their family.
        bound: half-width of the interval of the predictors; each family's own if None.
        remedy: what else to do than to change the data.

    Raises:
        ValueError: naming the column.
    """
    for family, columns, _ in response.blocks(table.shape[1]):
        reach = family.bound if bound is None else bound
        for j in range(columns.start, columns.stop) if family.is_linear else ():
            observed = table[~table[:, j].isnan(), j]
            mean = float(family.statistic(observed).mean()) if len(observed) else 0.0
            if abs(mean) > reach / 2 and not bool((observed == observed[0]).all()):
                raise ValueError(
                    f"data: column {names[j]!r} has mean {abs(mean):g} in size, too far from zero"
                    f" for parameters within {reach:g}: standardise it, or change its unit{remedy}"
                )
