"""What a user may pass as data, and what is said when it does not fit."""

from __future__ import annotations

import dataclasses
import math
import types
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppl_models.parts.frames import as_frame, coded, column_names, row_of
from ppl_models.parts.responses import ResponseFamily

__all__ = [
    "ColumnsWarning", "ConstantColumnWarning", "as_dense", "as_items", "as_table", "check_complete", "check_flag", "check_kind", "check_number", "check_numbers", "check_reach", "check_size",
    "is_integer", "is_number", "numbers_like", "plain_fields", "quoted",
]  # fmt: skip

LARGEST = 2**63 - 1  # of a count or a seed
MOST_NAMED = 8


class ColumnsWarning(UserWarning):
    """A table has columns that the fit or the model does not know, which are left out."""


class ConstantColumnWarning(UserWarning):
    """A column holds one value: it says nothing of the latents, and its intercept may run to its bound."""


def is_integer(value: Any, least: int = 1) -> bool:
    """Whether ``value`` is an integer of at least ``least``, Python's or NumPy's; True and False are none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(least <= value <= LARGEST)


def is_number(value: Any) -> bool:
    """Whether ``value`` is a finite number, Python's or NumPy's; True and False are none."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def check_size(owner: str, name: str, value: Any, least: int = 1, wanted: str | None = None) -> None:
    """``value`` must be an integer of at least ``least``; ``wanted`` says so where a message has words of its own."""
    if not is_integer(value, least):
        own = {0: "a non-negative integer", 1: "a positive integer"}.get(least, f"an integer of at least {least}")
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
    """``value`` must be a finite number inside ``(above, below)`` and ``[least, most]``; ``must`` says so in words."""
    if not (is_number(value) and above < value < below and least <= value <= most):
        raise ValueError(f"{owner}: {name} must {must}, got {value!r}")


def check_numbers(owner: str, name: str, value: Any, must: str, length: int, **limits: float) -> tuple[float, ...]:
    """``length`` numbers, each within the limits of :func:`check_number`, as a tuple."""
    numbers = value.tolist() if isinstance(value, np.ndarray | Tensor) else value
    if not isinstance(numbers, list | tuple) or len(numbers) != length:
        raise ValueError(f"{owner}: {name} must {must}, got {value!r}")
    for number in numbers:
        check_number(owner, name, number, must, **limits)
    return tuple(float(number) for number in numbers)


def check_kind(owner: str, name: str, value: Any, kinds: type | tuple[type, ...] | types.UnionType, wanted: str) -> None:
    """``value`` must be an instance of one of ``kinds``, and not the class itself."""
    if not isinstance(value, kinds):
        hint = " (the class itself; add parentheses)" if isinstance(value, type) else ""
        raise ValueError(f"{owner}: {name} must be {wanted}, got {value!r}{hint}")


def plain_fields(record: Any, tensors: bool = True) -> None:
    """Numbers of NumPy and torch in the fields of a frozen record as Python's, and lists and arrays as tuples.

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
        return value if isinstance(value, tuple) and all(a is b for a, b in zip(parts, value, strict=True)) else parts
    return value


def check_flag(owner: str, name: str, value: Any) -> None:
    """``value`` must be True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{owner}: {name} must be True or False, got {value!r}")


def numbers_like(owner: str, data: Tensor | None, num_rows: int | None) -> dict[str, Any]:
    """dtype and device of the numbers of a program: those of its data; double precision where it draws ``num_rows`` rows."""
    if data is None and num_rows is None:
        raise ValueError(f"{owner}: give data, or num_rows to draw some")
    return {"dtype": torch.float64} if data is None else {"dtype": data.dtype, "device": data.device}


def as_table(data: Any) -> tuple[Tensor, tuple[str, ...]]:
    """A tensor, array or data frame as a floating (N, J) tensor and its column names.

    Single and double precision are kept, and a tensor's device; all other numbers become float64. Masked entries of a
    masked array become NaN.

    Raises:
        ValueError: for strings or objects (naming the column), complex numbers, infinities, numbers whose squares are infinite, no rows, rows of
            unequal length, a sparse tensor, or not two dims.
    """
    data = as_frame(data)
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        names = column_names(data)
        for name in data.columns:
            remedy = f": leave the column out, make it the index if it names the rows, as in data.set_index({name!r}), or take a model of categories, such as Mixture(3, Categorical.from_frame(data))"
            _check_numeric(np.asarray(data[name]), f"data: column {str(name)!r}", remedy)
        table = torch.from_numpy(np.array(data.to_numpy(dtype=np.float64, na_value=np.nan)))
    else:
        names = ()
        data = as_dense(data if isinstance(data, Tensor) else torch.from_numpy(_as_floats(data)))
        if data.is_complex():
            raise ValueError(f"data: real numbers were expected, got dtype {data.dtype}")
        table = data if data.dtype in (torch.float32, torch.float64) else data.to(torch.float64)
    if table.dim() != 2:
        raise ValueError(f"data: a table (rows, items) was expected, got shape {tuple(table.shape)}")
    if table.shape[0] == 0:
        raise ValueError("data: at least one row was expected, got none")
    infinite = torch.isinf(table)
    if infinite.any():
        row, column = (int(i) for i in infinite.nonzero()[0])
        raise ValueError(f"data: finite numbers (or NaN for missing) were expected, got an infinity in {row_of(data, row)}, column {column}")
    largest = torch.finfo(table.dtype).max ** 0.5 / 1e3
    large = (table > largest) | (table < -largest)
    if large.any():
        row, column = (int(i) for i in large.nonzero()[0])
        raise ValueError(
            f"data: numbers of at most {largest:.0e} in size, whose squares and sums are numbers too, were expected, got {float(table[row, column]):g} in {row_of(data, row)}, "
            f"column {column}: change the unit, or mark a wrong entry as missing (NaN)"
        )
    return table, names or tuple(str(j) for j in range(table.shape[1]))


def as_dense(data: Tensor) -> Tensor:
    """The tensor without its history, in double precision where numpy does not know its floating type; sparse ones and those without numbers are refused."""
    if data.layout != torch.strided:
        raise ValueError(f"data: a dense tensor was expected, got layout {data.layout}")
    if data.is_meta:
        raise ValueError("data: a tensor with numbers in it was expected, got one on the device 'meta', which holds none")
    data = data.detach()
    return data.double() if data.dtype.is_floating_point and data.dtype not in (torch.float32, torch.float64) else data


def check_complete(owner: str, table: Tensor, names: tuple[str, ...], data: Any = None) -> None:
    """No entry of a table may be missing; the message names the first that is, as ``data``, of which the table was made, names its rows."""
    missing = table.isnan().nonzero().tolist()
    if missing:
        row, column = missing[0]
        raise ValueError(f"data: {owner} needs complete rows; {row_of(data, row)}, column {names[column]!r} is missing")


def _as_floats(data: Any) -> np.ndarray:
    """The numbers in single or double precision, of native byte order; the array itself where it is that and may be written to."""
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ValueError(f"data: a table (rows, items) was expected, got rows of unequal length ({error})") from error
    _check_numeric(array, "data")
    is_single = array.dtype.kind == "f" and array.dtype.itemsize == 4
    floats = np.require(array, np.float32 if is_single else np.float64, ["C", "W"])  # torch shares its memory
    if isinstance(data, np.ma.MaskedArray):
        floats = floats.copy()
        floats[np.ma.getmaskarray(data)] = np.nan
    return floats


def _check_numeric(array: np.ndarray, where: str, remedy: str = "") -> None:
    if array.dtype.kind in "biuf":
        return
    if array.dtype.kind in "OUST":
        for value in array.ravel():
            if not (value is None or type(value).__name__ == "NAType" or isinstance(value, int | float | np.number)):
                raise ValueError(f"{where}: numbers were expected, got {value!r}{remedy}")
        if array.dtype.kind == "O":
            return
    raise ValueError(f"{where}: real numbers were expected, got dtype {array.dtype}")


def as_items(
    data: Any, num_items: int, response: ResponseFamily, for_fit: bool = True
) -> tuple[Tensor, tuple[str, ...]]:
    """Check a table of items against a response family.

    Args:
        data: (N, J) tensor, array or data frame, NaN where missing; categories by name in a data frame, else as codes.
        num_items: J.
        response: the family of the columns.
        for_fit: whether a fit is to follow; rows to predict for may be empty, and their columns constant.

    Returns:
        The (N, J) tensor and the item names.

    Raises:
        ValueError: as :func:`as_table`; for another number of columns; for an all-missing row or column; for values
            outside the family's range, naming the column; for categories that the family does not know, naming the level.

    Warns:
        ConstantColumnWarning: naming every column that holds one value.
    """
    data = as_frame(data)
    if hasattr(data, "columns") and len(data.columns) != num_items:
        raise ValueError(_other_width(num_items, column_names(data)))
    table, names = as_table(coded(data, response.category_names(num_items)))
    if table.shape[1] != num_items:
        raise ValueError(_other_width(num_items, names))
    missing = torch.isnan(table)
    for dim, what in ((0, "column"), (1, "row")):
        empty = missing.all(dim).nonzero().ravel().tolist()
        if empty and for_fit:
            shown = f"column {names[empty[0]]!r}" if dim == 0 else row_of(data, empty[0])
            raise ValueError(f"data: {shown} has no observed entry; drop it ({len(empty)} such {what}(s))")
    constant = []
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
    if constant and for_fit:
        warnings.warn(f"columns with one value only: {', '.join(constant)}", ConstantColumnWarning, stacklevel=3)
    return table, names


def _other_width(num_items: int, names: Sequence[str]) -> str:
    return (
        f"data: num_items = {num_items} columns were expected, got {len(names)} ({quoted(names)}): leave out those that are no items, "
        f"or write num_items={len(names)} in the model"
    )


def quoted(names: Sequence[str], most: int = MOST_NAMED) -> str:
    """Names in quotes, the first of many."""
    return ", ".join(map(repr, names[:most])) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def check_reach(table: Tensor, names: tuple[str, ...], response: ResponseFamily, bound: float | None = None, remedy: str = "") -> None:
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
                    f"data: column {names[j]!r} has mean {abs(mean):g} in size, too far from zero for parameters within {reach:g}: "
                    f"standardise it, or change its unit{remedy}"
                )
