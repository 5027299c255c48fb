"""Variates of a row: their columns, and data in any form as one table or tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppl_models.networks.network import Shape
from ppl_models.parts.validation import as_table, is_integer

CHECKED_ROWS = 2**22  # numbers looked at in one go

Data = Tensor | dict[str, Tensor]


def variate_shapes(owner: str, variates: Any) -> tuple[Shape, ...]:
    """Shape of one row of each variate, from widths, groups of names, or shapes.

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


def as_variates(
    owner: str, data: Any, variates: tuple[Any, ...], may_miss: bool
) -> tuple[Data, tuple[str, ...]]:
    r"""Check rows of V variates: one table (N, D), or a dict of tensors.

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
    _check(owner, table, shapes, names, may_miss)
    return table, names


def rows_of(data: Data, shapes: Sequence[Shape]) -> list[Tensor]:
    r"""Split a table or dict into one tensor a variate, (n, \*shape)."""
    if isinstance(data, Mapping):
        return [data[f"variate_{v}"] for v in range(len(shapes))]
    return list(data.split([math.prod(shape) for shape in shapes], dim=-1))


# ---------------------------------------------------------------- forms of data


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
        tensor = _tensor(array, f"data: {key.replace('_', ' ')}")
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
    if hasattr(data, "columns") and hasattr(data, "to_numpy") and named is not None:
        absent = [name for name in named if name not in {str(column) for column in data.columns}]
        if absent:
            raise ValueError(
                f"data: columns {absent} of the variates were expected, got"
                f" {[str(column) for column in data.columns][:20]}"
            )
        data = data[[column for name in named for column in data.columns if str(column) == name]]
    if _is_lazy(data):
        table = _tensor(data, "data")
        if table.dim() != 2:
            raise ValueError(
                f"data: a table (rows, columns) was expected, got shape {tuple(table.shape)}"
            )
    else:
        table, names = as_table(data)
        if not (hasattr(data, "columns") and hasattr(data, "to_numpy")) and named is not None:
            names = named
    if table.shape[1] != width:
        widths = " + ".join(str(shape[0]) for shape in shapes)
        raise ValueError(f"data: {widths} = {width} columns were expected, got {table.shape[1]}")
    return table, names or tuple(str(j) for j in range(width))


def _tensor(array: Any, where: str) -> Tensor:
    """Convert numbers to a tensor; a memory-mapped array without a copy."""
    if isinstance(array, Tensor):
        if array.is_complex() or array.layout != torch.strided:
            raise ValueError(
                f"{where}: a dense tensor of real numbers was expected, got {array.dtype},"
                f" {array.layout}"
            )
        return array.detach()
    if _is_lazy(array):
        return torch.from_numpy(_writable(array, where))
    try:
        array = np.asarray(array)
    except ValueError as error:
        raise ValueError(
            f"{where}: an array of numbers was expected, got rows of unequal length ({error})"
        ) from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{where}: numbers were expected, got dtype {array.dtype}")
    kept = array.dtype in (np.float32, np.float64, np.uint8)
    return torch.from_numpy(np.array(array) if kept else array.astype(np.float64))


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


def _check(
    owner: str, data: Data, shapes: Sequence[Shape], names: Sequence[str], may_miss: bool
) -> None:
    """Refuse infinities, and missing entries that are not whole variates of a row."""
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
