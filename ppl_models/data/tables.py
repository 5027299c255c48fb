"""Tables of rows of any form (array, frame, tensor, variates) as checked tensors."""

from __future__ import annotations

import math
import operator
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppl_models.data.frames import (
    alike_levels,
    as_frame,
    coded,
    column_names,
    is_frame,
    misread_numbers,
    row_names,
    row_of,
)
from ppl_models.data.sparse import SparseTable, is_sparse, kind_of
from ppl_models.parts.repr import MOST_LISTED, listed
from ppl_models.parts.responses import NegativeBinomial, Normal, Poisson, ResponseFamily
from ppl_models.parts.validation import is_integer

EXACT = 2**53  # whole numbers up to this size are numbers in double precision
MISSING_CODES = (-9, -99, -999, -9999, 9, 99, 999, 9999)  # of questionnaires, for a missing answer
FEW_ENTRIES = 8  # of a column, from which two values are called codes
BEYOND = 4.0  # times the largest other entry, from which a positive code of a missing answer is one
CHECKED_ROWS = 2**22  # numbers looked at in one go
LOST = 5e-4  # of a variance, by rounding of squares about zero

Shape = tuple[int, ...]
Data = Tensor | dict[str, Tensor]


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
    if is_frame(data):
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


def as_floats(data: Any, where: str = "data") -> np.ndarray:
    """The numbers in single or double precision, of native byte order.

    The array itself comes back where it is that already and may be written to.

    Raises:
        ValueError: for rows of unequal length, what is no real number, whole numbers beyond 2**53.
    """
    if is_sparse(data):
        raise ValueError(
            f"{where}: a dense table was expected, got {kind_of(data)}: give its toarray();"
            " PoissonFactorization takes sparse counts"
        )
    if isinstance(data, str | os.PathLike):
        raise ValueError(
            f"{where}: a table was expected, got {str(data)!r}: read the file first, as by"
            " ppl_models.data.files.read_frame"
        )
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ValueError(
            f"{where}: a table (rows, items) was expected, got rows of unequal length ({error})"
        ) from error
    _check_numeric(array, where)
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
                entry = value.item() if isinstance(value, np.generic) else value
                got = misread_numbers(texts) or f"{entry!r}{remedy}"
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
    if is_frame(data) and len(data.columns) == num_items + 1 and row_names(data) is not None:
        data = data.iloc[:, 1:]
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


def quoted(names: Sequence[str], most: int = MOST_LISTED) -> str:
    """Names in quotes, the first of many."""
    return listed(map(repr, names), most)


def check_reach(
    table: Tensor,
    names: tuple[str, ...],
    response: ResponseFamily,
    bound: float | None = None,
    remedy: str = "",
    least: float = 0.0,
) -> None:
    """Columns that predictors are linear in must not lie too far from zero, or vary too little.

    Args:
        table: (N, J), NaN where missing; names: of the columns; response: their family.
        bound: half-width of the interval of the predictors; each family's own if None.
        remedy: what else to do than to change the data.
        least: smallest variance that the model has, of one that takes squares about zero.

    Raises:
        ValueError: naming the column.
    """
    for family, columns, _ in response.blocks(table.shape[1]):
        reach = family.bound if bound is None else bound
        for j in range(columns.start, columns.stop) if family.is_linear else ():
            observed = family.statistic(table[~table[:, j].isnan(), j])
            if not len(observed) or bool((observed == observed[0]).all()):
                continue
            mean, variance = float(observed.mean()), float(observed.var(correction=0))
            if variance < least:
                raise ValueError(
                    f"data: column {names[j]!r} has variance {variance:g}, and the smallest of the"
                    f" model is {least:g}: standardise it, or change its unit"
                )
            if least and torch.finfo(observed.dtype).eps * mean**2 > LOST * variance:
                raise ValueError(
                    f"data: column {names[j]!r} lies {abs(mean) / variance**0.5:,.0f} of its"
                    " deviations from zero, too far for its precision: standardise it, or give it"
                    " in double precision"
                )
            if abs(mean) > reach / 2:
                raise ValueError(
                    f"data: column {names[j]!r} has mean {abs(mean):g} in size, too far from zero"
                    f" for parameters within {reach:g}: standardise it, or change its unit{remedy}"
                )


# ---------------------------------------------------------------- rows of several variates


def variate_shapes(owner: str, variates: Any) -> tuple[Shape, ...]:
    """The shape of one row of each variate, from widths, groups of names, or shapes.

    Args:
        owner: the model, for messages.
        variates: one entry a variate: a number of columns, a tuple of their names, or the shape of
            an image.

    Raises:
        ValueError: for fewer than two variates, an entry of another kind, or variates that share a
            column.
    """
    if not isinstance(variates, tuple) or not variates:
        raise ValueError(
            f"{owner}: variates must list the columns of each variate, such as (1, 1) or (('a',"
            f" 'b'), ('c',)), got {variates!r}"
        )
    if len(variates) == 1:
        raise ValueError(
            f"{owner}: at least two variates were expected, got one: without a second one nothing"
            " says which rows belong together (any split of a single density into components"
            " fits it)"
        )
    shapes: list[Shape] = []
    owners: dict[str, int] = {}
    for v, entry in enumerate(variates):
        if is_integer(entry):
            shapes.append((int(entry),))
        elif isinstance(entry, str):
            raise ValueError(
                f"{owner}: variates[{v}] must be a number of columns or a tuple of names, got"
                f" {entry!r}: write ({entry!r},)"
            )
        elif isinstance(entry, tuple) and entry and all(isinstance(name, str) for name in entry):
            for name in entry:
                if owners.get(name, v) != v:
                    raise ValueError(
                        f"{owner}: column {name!r} is in variates {owners[name]} and {v}: variates"
                        " that share a column are not independent given the component; put it into"
                        " one of them"
                    )
                if name in owners:
                    raise ValueError(f"{owner}: column {name!r} is twice in variate {v}")
                owners[name] = v
            shapes.append((len(entry),))
        elif isinstance(entry, tuple) and entry and all(is_integer(size) for size in entry):
            shapes.append(tuple(int(size) for size in entry))
        else:
            raise ValueError(
                f"{owner}: variates[{v}] must be a number of columns, a tuple of their names, or"
                f" the shape of an image, got {entry!r}"
            )
    return tuple(shapes)


def named_columns(variates: tuple[Any, ...]) -> tuple[str, ...] | None:
    """Names of all columns in the order of the variates; None where these have numbers."""
    if not all(isinstance(entry, tuple) and isinstance(entry[0], str) for entry in variates):
        return None
    return tuple(name for entry in variates for name in entry)


def each_variate(data: Any) -> tuple[Any, ...]:
    """Variates of data, every column of a table or every array of several by itself."""
    data = as_frame(data)
    if is_frame(data):
        return tuple((name,) for name in column_names(data))
    if isinstance(data, Mapping | tuple) or (
        isinstance(data, list) and any(isinstance(part, Tensor | np.ndarray) for part in data)
    ):
        shapes = [tuple(np.shape(x))[1:] for x in _arrays(data)]
        return tuple(shape if len(shape) > 1 else math.prod(shape) for shape in shapes)
    return (1,) * as_table(data)[0].shape[1]


def as_variates(
    owner: str, data: Any, variates: tuple[Any, ...], may_miss: bool
) -> tuple[Data, tuple[str, ...]]:
    r"""Rows of V variates as one table (N, D), or as a dict of tensors.

    A table has the variates' columns side by side; a dict ``variate_0``, ... has tensors (N,
    \*shape) where rows are images or lie in a file. Also the names of the columns, () for a dict.

    Args:
        owner: the model, for messages.
        data: a table (array, tensor, frame), or one array a variate in a tuple, a list, or a dict.
            Memory-mapped arrays stay on the disk.
        variates: as :func:`variate_shapes` takes them.
        may_miss: whether a variate of a row may be missing (NaN).

    Raises:
        ValueError: for another number of variates, columns or rows, entries that are no numbers,
            infinities, or missing entries.
    """
    shapes = variate_shapes(owner, variates)
    table: Data
    names: tuple[str, ...] = ()
    if (
        isinstance(data, Mapping | tuple)
        or isinstance(data, list)
        and any(isinstance(part, Tensor | np.ndarray) for part in data)
    ):
        table = _separate(data, shapes)
        if all(len(shape) == 1 for shape in shapes) and not any(_is_lazy(x) for x in _arrays(data)):
            if all(x.dtype == torch.float32 for x in table.values()):
                dtype = torch.float32
            else:
                dtype = torch.float64
            table = torch.cat([x.to(dtype) for x in table.values()], 1)
            names = named_columns(variates) or tuple(str(j) for j in range(table.shape[1]))
    elif any(len(shape) > 1 for shape in shapes):
        raise ValueError(
            "data: one array a variate was expected, of shapes"
            f" {[('rows', *shape) for shape in shapes]}, in a tuple or a dict; got"
            f" {type(data).__name__}"
        )
    else:
        table, names = _one_table(data, variates, shapes)
    _check_variates(owner, table, shapes, names, may_miss)
    return table, names


def rows_of(data: Data, shapes: Sequence[Shape]) -> list[Tensor]:
    r"""Each variate of a table or dict as a tensor of its own, (n, \*shape)."""
    if isinstance(data, Mapping):
        return [data[f"variate_{v}"] for v in range(len(shapes))]
    return list(data.split([math.prod(shape) for shape in shapes], dim=-1))


def _arrays(data: Any) -> list[Any]:
    return list(data.values()) if isinstance(data, Mapping) else list(data)


def _is_lazy(array: Any) -> bool:
    return isinstance(array, np.memmap)


def _separate(data: Any, shapes: Sequence[Shape]) -> dict[str, Tensor]:
    keys = [f"variate_{v}" for v in range(len(shapes))]
    if isinstance(data, Mapping) and set(data) == set(keys):
        data = [data[key] for key in keys]
    arrays = _arrays(data)
    if len(arrays) != len(shapes):
        raise ValueError(f"data: {len(shapes)} variates were expected, got {len(arrays)} arrays")
    out = {}
    for key, array, shape in zip(keys, arrays, shapes, strict=True):
        tensor = _variate(array, f"data: {key.replace('_', ' ')}")
        if tensor.dim() == 1 and shape == (1,):
            tensor = tensor[:, None]
        if tuple(tensor.shape[1:]) != shape:
            raise ValueError(
                f"data: {key.replace('_', ' ')} was expected to have shape {('rows', *shape)}, got"
                f" {tuple(tensor.shape)}"
            )
        out[key] = tensor
    lengths = [len(x) for x in out.values()]
    if len(set(lengths)) > 1:
        raise ValueError(f"data: every variate must have the same number of rows, got {lengths}")
    if lengths[0] == 0:
        raise ValueError("data: at least one row was expected, got none")
    return out


def _one_table(
    data: Any, variates: tuple[Any, ...], shapes: Sequence[Shape]
) -> tuple[Tensor, tuple[str, ...]]:
    names: tuple[str, ...] = ()
    named, width = named_columns(variates), sum(shape[0] for shape in shapes)
    if is_frame(data) and named is not None:
        absent = [name for name in named if name not in {str(column) for column in data.columns}]
        if absent:
            raise ValueError(
                f"data: columns {absent} of the variates were expected, got"
                f" {[str(column) for column in data.columns][:20]}"
            )
        data = data[[column for name in named for column in data.columns if str(column) == name]]
    if _is_lazy(data):
        table = _variate(data, "data")
        if table.dim() != 2:
            raise ValueError(
                f"data: a table (rows, columns) was expected, got shape {tuple(table.shape)}"
            )
    else:
        table, names = as_table(data)
        if not is_frame(data) and named is not None:
            names = named
    if table.shape[1] != width:
        widths = " + ".join(str(shape[0]) for shape in shapes)
        raise ValueError(f"data: {widths} = {width} columns were expected, got {table.shape[1]}")
    return table, names or tuple(str(j) for j in range(width))


def _variate(array: Any, where: str) -> Tensor:
    """Numbers as a tensor; a memory-mapped array without a copy."""
    if isinstance(array, Tensor):
        if array.is_complex() or array.layout != torch.strided:
            raise ValueError(
                f"{where}: a dense tensor of real numbers was expected, got {array.dtype},"
                f" {array.layout}"
            )
        return array.detach()
    if _is_lazy(array):
        return torch.from_numpy(_writable(array, where))
    if not (isinstance(array, np.ndarray) and array.dtype == np.uint8):
        return torch.from_numpy(as_floats(array, where))
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


def _writable(array: np.memmap, where: str) -> np.ndarray:
    """Map a part of the file so that torch takes it; the file is never written."""
    if (
        array.dtype.kind not in "biuf"
        or not array.dtype.isnative
        or array.dtype.kind == "f"
        and array.dtype.itemsize < 4
    ):
        raise ValueError(
            f"{where}: numbers in single or double precision, or small integers, were expected in"
            f" the file, got dtype {array.dtype}"
        )
    if array.flags.writeable:
        return np.asarray(array)
    root = array
    while isinstance(root.base, np.memmap):
        root = root.base
    if root.filename is None or not array.flags.c_contiguous:
        return np.array(array)
    begin = root.offset + array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return np.asarray(
        np.memmap(root.filename, dtype=array.dtype, mode="c", offset=begin, shape=array.shape)
    )


def _check_variates(
    owner: str, data: Data, shapes: Sequence[Shape], names: Sequence[str], may_miss: bool
) -> None:
    """No infinities; no missing entries, or whole variates of a row that leave at least one."""
    parts = rows_of(data, shapes)
    if not any(x.is_floating_point() for x in parts):
        return
    step = max(1, CHECKED_ROWS // sum(math.prod(shape) for shape in shapes))
    for begin in range(0, len(parts[0]), step):
        rows = [x[begin : begin + step].flatten(1) for x in parts]
        missing = []
        for v, x in enumerate(rows):
            good = torch.isfinite(x)
            missing.append(~good.any(1))
            if good.all():
                continue
            row, column = (int(i) for i in (~good).nonzero()[0])
            place = f"row {begin + row}, " + (
                f"column {names[sum(s[0] for s in shapes[:v]) + column]!r}"
                if names
                else f"variate {v}"
            )
            if bool(x[row, column].isinf()):
                raise ValueError(f"data: finite numbers were expected, got an infinity in {place}")
            if not may_miss:
                raise ValueError(
                    f"data: {place} is missing; {owner}(weights='free') leaves a variate of a row"
                    " out where all of it is missing, or drop or fill such rows"
                )
            if bool((x.isnan().any(1) & good.any(1)).any()):
                raise ValueError(
                    f"data: {place} is missing but other columns of its variate are not: a network"
                    " takes a whole variate, so fill it in, or blank all of it"
                )
        if torch.stack(missing).all(0).any():
            raise ValueError(
                f"data: row {begin + int(torch.stack(missing).all(0).nonzero()[0])} has no variate"
                " that is observed; drop it"
            )


# ---------------------------------------------------------------- data of a user's own program


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
        return [self[name] for name in self]

    def items(self) -> list[tuple[str, Tensor]]:
        """Names and columns."""
        return [(name, self[name]) for name in self]

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
        array = with_nan(array).astype(np.float64)
    if array.dtype.kind == "u":
        array = array.astype(np.int64)
    return torch.from_numpy(array)


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


def map_tensors(change: Callable[[Any], Any], data: Any) -> Any:
    """Apply ``change`` to a tensor, or to every tensor of a dict or table.

    What is no tensor stays.
    """
    if isinstance(data, Columns):
        return data.map(change)
    if isinstance(data, dict):
        return {name: map_tensors(change, value) for name, value in data.items()}
    if isinstance(data, SparseTable):  # has what changes ask of a tensor: rows, precision
        return change(data)
    return change(data) if isinstance(data, Tensor) else data


def first_row(data: Any) -> Any:
    """First row of data of any kind; of a sparse table with its zeros."""
    if isinstance(data, SparseTable):
        return data[:1].dense()
    return map_tensors(operator.itemgetter(slice(1)), data)


def first_tensor(data: Any) -> Any:
    """First tensor of a table or nested dict that is no single number; None of an empty one.

    Its length is the number of rows.
    """
    if not isinstance(data, Mapping | Columns):
        return data
    values = [first_tensor(value) for value in _parts(data)]
    tables = [value for value in values if getattr(value, "ndim", 0)]
    return tables[0] if tables else values[0] if values else None


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
