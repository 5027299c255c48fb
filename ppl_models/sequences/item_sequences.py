"""Sequences of items: what a user may pass, and the one packed tensor that programs see.

Packed: (B, T, J), NaN where an entry is missing, infinity in all items after the end of a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppl_models.parts.frames import as_frame, column_names, row_of
from ppl_models.parts.responses import ResponseFamily
from ppl_models.parts.validation import as_dense, as_floats, as_items

PLACES = ("sequence", "time")  # columns of a data frame that say where a row belongs
MOST_EMPTY = 1000  # steps a row that gaps in time may add, beyond which time does not count steps
FORMS = (
    "a list of tables (steps, items), one a sequence; one such table; an array (sequences, steps,"
    " items); a dict {'items': that array, 'length': (sequences,)}; or a data frame with a row a"
    " step and columns 'sequence' and 'time' beside the items"
)


def inside_of(packed: Tensor) -> Tensor:
    """Which steps of packed sequences are steps, (B, T) bool: those before the end."""
    return packed[..., 0] != torch.inf


def as_item_sequences(
    data: Any, num_items: int, response: ResponseFamily, for_fit: bool = True
) -> tuple[Tensor, tuple[str, ...]]:
    """Check sequences, and pack them.

    Args:
        data: a list of tables (T, J) of unequal length; one table, which is one sequence; a data
            frame with a row a step, in which columns ``sequence`` and ``time`` say where a row
            belongs (without the first all are one sequence, without the second rows follow each
            other as they stand; whole numbers of time that are left out are steps without entries);
            an array (B, T, J), in which empty steps at the end of a sequence are no steps; or a
            dict ``{"items": (B, T, J), "length": (B,)}``. NaN is a missing entry.
        num_items: J; response: the family of the items.
        for_fit: whether a fit is to follow.

    Returns:
        Packed sequences, and the names of the items.

    Raises:
        ValueError: for other forms, an empty sequence, sequences of other widths, times that are
            negative, not whole or twice in a sequence, a sequence without any entry (in a fit), and
            as :func:`ppl_models.parts.validation.as_items` says.

    Warns:
        ConstantColumnWarning: naming every item that holds one value.
    """
    data = as_frame(data)
    if _is_frame(data):
        table, names, sequence, step = _of_frame(data, num_items, response, for_fit)
        lengths = np.zeros(int(sequence.max()) + 1, dtype=np.int64)
        np.maximum.at(lengths, sequence, step + 1)
    elif isinstance(data, Mapping):
        return _of_array(*_of_dict(data), num_items, response, for_fit)
    elif isinstance(data, list | tuple) and len(data) and not _are_numbers(data):
        tables = [_as_table(part, number, num_items) for number, part in enumerate(data)]
        lengths = np.array([len(part) for part in tables])
        table, names = _items(_joined(tables, num_items), num_items, response, for_fit)
        sequence = np.repeat(np.arange(len(tables)), lengths)
        step = np.arange(len(sequence)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    else:
        array = _as_array(data)
        if array.ndim == 3:
            return _of_array(array, None, num_items, response, for_fit)
        one = _as_table(array, 0, num_items)
        table, names = _items(one, num_items, response, for_fit)
        lengths, sequence, step = (
            np.array([len(one)]),
            np.zeros(len(one), dtype=np.int64),
            np.arange(len(one)),
        )
    packed = _laid_out(
        table, torch.from_numpy(lengths), torch.from_numpy(sequence), torch.from_numpy(step)
    )
    _check_present(packed, for_fit)
    return packed, names


def places_of(frame: Any) -> tuple[np.ndarray, np.ndarray]:
    """The sequence and the step of every row of a checked data frame, (N,) each, both counted from
    0: sequences in the order of their first rows, steps from the first time of the sequence.
    """
    names = list(column_names(frame))
    if "sequence" in names:
        order_of: dict[Any, int] = {}
        sequence = np.array(
            [
                order_of.setdefault(key, len(order_of))
                for key in frame[frame.columns[names.index("sequence")]].tolist()
            ],
            dtype=np.int64,
        )
    else:
        sequence, order_of = np.zeros(len(frame), dtype=np.int64), {"": 0}
    if "time" not in names:
        order = np.argsort(sequence, kind="stable")
        starts = np.searchsorted(sequence[order], np.arange(len(order_of)))
        step = np.empty(len(frame), dtype=np.int64)
        step[order] = np.arange(len(frame)) - starts[sequence[order]]
        return sequence, step
    time = _times(frame[frame.columns[names.index("time")]])
    first = np.full(len(order_of), np.iinfo(np.int64).max)
    np.minimum.at(first, sequence, time)
    step = time - first[sequence]
    order = np.lexsort((step, sequence))
    twice = (np.diff(sequence[order]) == 0) & (np.diff(step[order]) == 0)
    if twice.any():
        at = order[int(twice.argmax()) + 1]
        of = f" of sequence {list(order_of)[sequence[at]]!r}" if "sequence" in names else ""
        raise ValueError(
            f"data: column 'time': every time once in a sequence was expected, but {time[at]}{of}"
            f" is there twice, again in {row_of(frame, int(at))}"
        )
    return sequence, step


def _times(column: Any) -> np.ndarray:
    try:
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"data: column 'time': whole numbers that count steps were expected ({error})"
        ) from error
    wrong = ~(np.isfinite(values) & (values == np.round(values)))
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(
            f"data: column 'time': whole numbers that count steps were expected, got {values[at]:g}"
            f" in {row_of(column.to_frame(), at)}"
        )
    return values.astype(np.int64)


def _is_frame(data: Any) -> bool:
    return hasattr(data, "columns") and hasattr(data, "to_numpy")


def _are_numbers(data: Sequence[Any]) -> bool:
    return all(
        isinstance(part, int | float | np.number | None)
        or (isinstance(part, Tensor) and part.dim() == 0)
        for part in data
    )


def _of_frame(
    frame: Any, num_items: int, response: ResponseFamily, for_fit: bool
) -> tuple[Tensor, tuple[str, ...], np.ndarray, np.ndarray]:
    if not len(frame):
        raise ValueError("data: at least one row was expected, got none")
    names = column_names(frame)
    for name in PLACES:
        if name in names:
            missing = np.flatnonzero(frame[frame.columns[names.index(name)]].isna().to_numpy())
            if len(missing):
                raise ValueError(
                    f"data: column {name!r} must not be empty; it is in"
                    f" {row_of(frame, int(missing[0]))}"
                )
    if (
        "time" in names
        and (negative := _times(frame[frame.columns[names.index("time")]]) < 0).any()
    ):
        raise ValueError(
            "data: column 'time': whole numbers from 0 that count steps were expected, got a"
            f" negative one in {row_of(frame, int(negative.argmax()))}"
        )
    sequence, step = places_of(frame)
    items = frame[
        [column for column, name in zip(frame.columns, names, strict=True) if name not in PLACES]
    ]
    table, item_names = _items(items, num_items, response, for_fit)
    if int(step.max()) >= MOST_EMPTY * len(frame):
        raise ValueError(
            f"data: column 'time': numbers that count steps were expected, but {len(frame):,} rows"
            f" lie up to {int(step.max()):,} steps apart: number the steps, or leave the column out"
            " where rows follow each other"
        )
    return table, item_names, sequence, step


def _of_dict(data: Mapping[Any, Any]) -> tuple[np.ndarray | Tensor, Any]:
    if "items" not in data or not set(data) <= {"items", "length"}:
        raise ValueError(
            "data: a dict of 'items' (sequences, steps, items) and 'length' (sequences,) was"
            f" expected, got {sorted(map(str, data))}"
        )
    array = _as_array(data["items"])
    if array.ndim != 3:
        raise ValueError(
            f"data['items']: shape (sequences, steps, items) was expected, got {tuple(array.shape)}"
        )
    return array, data.get("length")


def _of_array(
    array: Any, length: Any, num_items: int, response: ResponseFamily, for_fit: bool
) -> tuple[Tensor, tuple[str, ...]]:
    """Of (B, T, J), the sequences of which end where ``length`` says, else where infinities or
    nothing but empty steps follow.
    """
    if array.shape[-1] != num_items or 0 in array.shape:
        raise ValueError(
            f"data: shape (sequences, steps, num_items = {num_items}), none of them 0, was"
            f" expected, got {tuple(array.shape)}"
        )
    tensor = (
        array.detach()
        if isinstance(array, Tensor)
        else torch.from_numpy(np.array(as_floats(array)))
    )
    if tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.to(torch.float64)
    num, width = tensor.shape[:2]
    steps = torch.arange(width, device=tensor.device)
    if length is None:
        after = (tensor == torch.inf).all(-1).long()
        ends = width - after.flip(1).cummin(1).values.sum(1)
        seen = (tensor.isfinite().any(-1) * (steps + 1)).amax(1)
        ends = torch.where((ends == width) & (seen > 0), seen, ends)
    else:
        ends = torch.as_tensor(
            np.asarray(length.cpu() if isinstance(length, Tensor) else length)
        ).to(tensor.device)
        if tuple(ends.shape) != (num,) or not bool(
            ((ends >= 0) & (ends <= width) & (ends == ends.round())).all()
        ):
            raise ValueError(
                f"data['length']: {num} whole numbers up to {width}, one a sequence, were expected,"
                f" got {length!r}"
            )
        ends = ends.long()
    if bool((ends == 0).any()):
        raise ValueError(f"data: sequence {int((ends == 0).nonzero()[0])} is empty; leave it out")
    inside = steps < ends.unsqueeze(-1)
    table, names = _items(tensor[inside], num_items, response, for_fit)
    sequence, step = inside.nonzero(as_tuple=True)
    packed = _laid_out(table, ends, sequence, step)
    _check_present(packed, for_fit)
    return packed, names


def _as_array(data: Any) -> Any:
    if isinstance(data, Tensor):
        return as_dense(data)
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ValueError(f"data: sequences were expected: {FORMS} ({error})") from error
    if array.ndim == 0 or 0 in array.shape:
        raise ValueError(f"data: sequences were expected: {FORMS}; got shape {array.shape}")
    return array


def _as_table(part: Any, number: int, num_items: int) -> Any:
    """One sequence as a table (T, J)."""
    part = as_frame(part)
    if not _is_frame(part):
        part = as_dense(part) if isinstance(part, Tensor) else np.asarray(part)
        if part.ndim == 1 and num_items == 1:
            part = part.reshape(-1, 1)
        if part.ndim == 1:
            raise ValueError(
                f"data: sequence {number}: a table (steps, num_items = {num_items}) was expected,"
                f" got shape {tuple(part.shape)}: {FORMS}"
            )
    if len(part.shape) != 2:
        raise ValueError(
            f"data: sequence {number}: a table (steps, items) was expected, got shape"
            f" {tuple(part.shape)}"
        )
    if part.shape[1] != num_items:
        hint = (
            "; several sequences of one item stand in an array (sequences, steps, 1)"
            if num_items == 1 and number == 0
            else ""
        )
        raise ValueError(
            f"data: sequence {number}: num_items = {num_items} columns were expected, got"
            f" {part.shape[1]}{hint}"
        )
    if not part.shape[0]:
        raise ValueError(f"data: sequence {number} is empty; leave it out")
    return part


def _joined(tables: list[Any], num_items: int) -> Any:
    """All sequences one after the other: a frame where they are frames, under the first one's
    columns.
    """
    if all(_is_frame(part) for part in tables):
        import pandas as pd

        names = column_names(tables[0])
        for number, part in enumerate(tables):
            if set(column_names(part)) != set(names):
                raise ValueError(
                    f"data: sequence {number}: the columns of the first sequence,"
                    f" {', '.join(names)}, were expected, got {', '.join(column_names(part))}"
                )
        return pd.concat([part[tables[0].columns.tolist()] for part in tables], ignore_index=True)
    if any(_is_frame(part) for part in tables):
        raise ValueError("data: sequences of one kind were expected, got data frames and arrays")
    if all(isinstance(part, Tensor) for part in tables):
        return torch.cat(tables)
    return np.concatenate(
        [part.cpu().numpy() if isinstance(part, Tensor) else part for part in tables]
    )


def _items(
    table: Any, num_items: int, response: ResponseFamily, for_fit: bool
) -> tuple[Tensor, tuple[str, ...]]:
    """The checked items of all steps (N, J), and their names; steps without any entry, of which a
    fit may have many, stand aside.
    """
    if _is_frame(table):
        empty = table.isna().to_numpy().all(1)
    else:
        array = table.detach().cpu().numpy() if isinstance(table, Tensor) else table
        empty = (
            np.isnan(array).all(1) if array.dtype.kind == "f" else np.zeros(len(array), dtype=bool)
        )
    if empty.all():
        if for_fit:
            raise ValueError("data: at least one observed entry was expected, got none")
        names = column_names(table) if _is_frame(table) else tuple(map(str, range(table.shape[1])))
        return torch.full(tuple(table.shape), torch.nan, dtype=torch.float64), names
    checked, names = as_items(table[~empty], num_items, response, for_fit)
    if not empty.any():
        return checked, names
    out = checked.new_full((len(empty), num_items), torch.nan)
    out[torch.from_numpy(~empty).to(out.device)] = checked
    return out, names


def _laid_out(table: Tensor, lengths: Tensor, sequence: Tensor, step: Tensor) -> Tensor:
    """(B, T, J) from the steps (N, J) and their places; one step more where the longest sequence
    ends without an entry, so that its end is told.
    """
    device = table.device
    lengths, sequence, step = (part.to(device) for part in (lengths, sequence, step))
    width = int(lengths.max())
    packed = table.new_full((len(lengths), width + 1, table.shape[1]), torch.inf)
    packed[torch.arange(width + 1, device=device) < lengths.unsqueeze(-1)] = torch.nan
    packed[sequence, step] = table
    return (
        packed
        if bool((lengths == width).logical_and(packed[:, width - 1].isnan().all(-1)).any())
        else packed[:, :width].contiguous()
    )


def _check_present(packed: Tensor, for_fit: bool) -> None:
    silent = (~packed.isfinite()).flatten(1).all(1)
    if for_fit and bool(silent.any()):
        raise ValueError(
            f"data: sequence {int(silent.nonzero()[0])} has no observed entry; leave it out"
            f" ({int(silent.sum())} such sequence(s))"
        )
