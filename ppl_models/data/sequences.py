"""Sequences of any form that a user may pass, as the one packed tensor that programs see.

Items: (B, T, J), NaN where an entry is missing, infinity in all items after the end of a sequence.
States and actions: (B, T, 2) int64; an action of -1 is missing, a state of -1 marks steps after the
end. Continuous states: (B, T, D + 1) float64, the state and then the action; an action of NaN is
missing, and all is NaN after the end.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppl_models.data.frames import (
    as_frame,
    column_names,
    holds_texts,
    is_frame,
    refuse_ids,
    row_names,
    row_of,
)
from ppl_models.data.tables import as_dense, as_floats, as_items, with_nan
from ppl_models.parts.repr import listed
from ppl_models.parts.responses import ResponseFamily

PLACES = ("sequence", "time")  # columns of a data frame that say where a row belongs
COLUMNS = (*PLACES, "state", "action")
# names of columns that tell sequences apart where one entry stands in several rows
UNITS = re.compile(
    r"(.*[^a-z])?id|(subj(ect)?|person|participant|patient|animal|individual|user|track|episode)s?"
    r"([ _.-]?(id|nr|no|name|code|number))?",
    re.I,
)
MOST_LEFT_OUT, FEW_STEPS = 1.5, 5  # times the steps, and steps, of a column that counts them
ITEM = "--columns, or num_items in the model"
COUNTED = 0.8  # of the rows, that are one more than the row before in counts that begin again
FEATURE_COLUMNS = (*PLACES, "action")
MOST_EMPTY = 1000  # steps a row that gaps in time may add, beyond which time does not count steps
SCALES = (0.01, 100.0)  # standard deviations of a feature for which the priors of weights are meant
SLICE = 2**19  # entries of the data looked at at a time
FORMS = (
    "a list of tables (steps, items), one a sequence; one such table; an array (sequences, steps,"
    " items); a dict {'items': that array, 'length': (sequences,)}; or a data frame with a row a"
    " step and columns 'sequence' and 'time' beside the items"
)


class UnvisitedWarning(UserWarning):
    """Warning: some probabilities depend on the prior alone.

    A state or an action never occurs, or no sequence has a second step.
    """


class FeatureScaleWarning(UserWarning):
    """Warning: a column of the state is constant or on an extreme scale for its priors."""


def slices(size: int) -> Iterator[slice]:
    """Consecutive ranges that cover ``size`` entries."""
    return (slice(begin, min(begin + SLICE, size)) for begin in range(0, size, SLICE))


# ---------------------------------------------------------------- what all forms share


def check_present(frame: Any, names: tuple[str, ...]) -> None:
    """Refuse a data frame with missing entries in columns that must have none."""
    for name in names:
        missing = np.flatnonzero(frame[name].isna().to_numpy())
        if len(missing):
            raise ValueError(
                f"data: column {name!r} must not be empty; it is in"
                f" {row_of(frame, int(missing[0]))}"
            )


def with_places(frame: Any) -> Any:
    """Add columns of sequence and time where a frame of steps lacks them.

    All rows are one sequence where none is named, and steps stand in their order where no time is.
    """
    names = list(map(str, frame.columns))
    if "sequence" not in names:
        frame = frame.assign(sequence=0)
    return (
        frame
        if "time" in names
        else frame.assign(time=frame.groupby("sequence", sort=False).cumcount())
    )


def _refuse_index(frame: Any) -> None:
    """Refuse levels of an index that say where rows belong, as only columns are read.

    They name sequences of several rows, or are times that do not count the rows as they stand.
    """
    names = [str(name) for name in frame.columns]
    for level, name in enumerate(map(str, frame.index.names)):
        values = frame.index.get_level_values(level).to_series().reset_index(drop=True)
        if name in names:
            continue
        place = ""
        if (name == "sequence" or UNITS.fullmatch(name)) and values.nunique() < len(values):
            place = "sequence"
        elif name == "time" and values.dtype.kind in "iuf":
            sequence = frame.iloc[:, names.index("sequence")] if "sequence" in names else 0 * values
            steps = values.groupby(sequence.to_numpy(), sort=False).diff().dropna()
            place = "" if bool((steps == 1).all()) else "time"
        if place:
            raise ValueError(
                f"data: {name!r} is in the index, which is not read: a column {place!r} was"
                " expected, as of data.reset_index()"
                + ("" if name == place else f".rename(columns={{{name!r}: {place!r}}})")
            )


def places_in(frame: Any) -> dict[str, str]:
    """Columns of a frame of steps that say where a row belongs, by place: sequence and time.

    Where no column is called ``sequence``, one that is named as a unit (``id``, ``subject``,
    ``animal``) and holds an entry in several rows is it, or else the one of texts each of which
    stands in consecutive rows. Where none is called ``time``, one that counts the rows of every
    sequence is it.

    Args:
        frame: a pandas frame with a row a step.

    Raises:
        ValueError: for columns of which several may be the sequence or the time, and for one of
            numbers that may be, saying how to decide.
    """
    names = column_names(frame)
    rest = {
        name: frame.iloc[:, j]
        for j, name in enumerate(names)
        if name not in PLACES and name != row_names(frame)
    }
    found = {place: place for place in PLACES if place in names}
    if "sequence" not in found:
        units = [
            name
            for name, column in rest.items()
            if UNITS.fullmatch(name) and column.nunique() < len(column)
        ]
        runs = {name: column for name, column in rest.items() if _stands_in_runs(column)}
        units = units or [name for name, column in runs.items() if holds_texts(column)]
        _refuse_several(units, "sequence", "tells sequences apart")
        if units:
            found["sequence"] = units[0]
        elif runs:
            name = next(iter(runs))
            raise ValueError(
                f"data: column {name!r} holds one value after the other, each in several rows: call"
                f" it 'sequence' (--sequence {name}) where it tells sequences apart, or leave it"
                " out"
            )
    told = found.get("sequence")
    rest.pop(told or "", None)
    key = None if told is None else frame[frame.columns[names.index(told)]]
    if "time" not in found:
        counts = [name for name, column in rest.items() if _increment(column, key) == 1]
        _refuse_several(counts, "time", "counts the steps")
        if counts:
            found["time"] = counts[0]
            del rest[counts[0]]
        for name, column in rest.items() if not counts else ():
            if _increment(column, key) or counts_steps(column, key) or _begins_again(column):
                raise ValueError(
                    f"data: column {name!r} counts rows, and would be an item: call it 'time'"
                    f" (--time {name}) where it counts the steps of a sequence (numbers left out"
                    " are steps without entries) and the column that tells sequences apart"
                    " 'sequence' (--sequence), or leave it out where rows follow each other"
                )
    for name, column in rest.items():
        refuse_ids(name, column, ITEM)
        if key is not None and _is_of_sequence(column, key):
            raise ValueError(
                f"data: column {name!r} holds one value in each sequence, which says nothing of"
                f" states that change: leave it out, or say that it is an item ({ITEM})"
            )
    return found


def _refuse_several(names: Sequence[str], place: str, what: str) -> None:
    if len(names) > 1:
        raise ValueError(
            f"data: one column that {what} was expected, got {listed(map(repr, names))}: call the"
            f" one that does {place!r} (--{place} {names[0]}), and leave the other out"
        )


def _stands_in_runs(column: Any) -> bool:
    """Tell whether different entries stand in consecutive rows each, several on average."""
    num_runs = int((column != column.shift()).sum())
    least = 2 if holds_texts(column) else 3  # numbers may be steps of a measurement
    is_told = not column.isna().any() and str(column.dtype) != "bool"
    return is_told and least <= column.nunique() == num_runs <= len(column) / 2


def _grouped(column: Any, sequence: Any) -> Any:
    """A column by sequence; None of one that holds other than whole numbers."""
    if holds_texts(column) or str(column.dtype) == "bool" or not len(column):
        return None
    if column.isna().any() or bool((column % 1 != 0).any()):
        return None
    return column.groupby(0 * column if sequence is None else sequence, sort=False)


def _increment(column: Any, sequence: Any) -> float:
    """Difference of each row of a sequence from the one before, where it is always the same."""
    if holds_texts(column) or str(column.dtype) == "bool" or column.isna().any():
        return 0.0
    groups = (1.0 * column).groupby(0 * column if sequence is None else sequence, sort=False)
    steps = groups.diff().dropna().to_numpy()
    if not len(steps) or int(groups.size().max()) < FEW_STEPS:
        return 0.0
    return float(steps[0]) if np.allclose(steps, steps[0], 1e-6, 0.0) else 0.0


def _is_of_sequence(column: Any, sequence: Any) -> bool:
    """Tell whether a column has one value in each sequence, and different ones in several."""
    groups = column.groupby(sequence, sort=False)
    is_long = int(groups.size().max()) >= FEW_STEPS
    return is_long and column.nunique() > 1 and bool((groups.nunique() <= 1).all())


def counts_steps(column: Any, sequence: Any) -> bool:
    """Tell whether entries of every sequence are different whole numbers, few of them left out."""
    groups = _grouped(column, sequence)
    if groups is None:
        return False
    size, span = groups.size(), groups.max() - groups.min() + 1
    return (
        bool((groups.nunique() == size).all() and (span <= MOST_LEFT_OUT * size).all())
        and int(size.max()) >= FEW_STEPS
    )


def _begins_again(column: Any) -> bool:
    """Tell whether a column counts rows by one, and begins again at the same number."""
    if _grouped(column, None) is None or len(column) < FEW_STEPS:
        return False
    ahead = column.diff().to_numpy()[1:] == 1
    return bool(
        COUNTED <= ahead.mean() < 1 and (column.to_numpy()[1:][~ahead] == column.iloc[0]).all()
    )


def in_places(frame: Any, read_as: Mapping[str, str] | None = None) -> Any:
    """Frame of steps whose columns of places are called ``sequence`` and ``time``.

    Args:
        frame: a pandas frame; read_as: columns by place, None for :func:`places_in`.
    """
    found = places_in(frame) if read_as is None else read_as
    names = column_names(frame)
    labels = {
        frame.columns[names.index(name)]: place for place, name in found.items() if name in names
    }
    if read_as is None and row_names(frame) not in (None, *found.values()):
        frame = frame.iloc[:, 1:]
    return frame.rename(columns=labels)


def _sequences_of(keys: Sequence[Any]) -> tuple[np.ndarray, list[Any]]:
    """Sequence number of every row, (N,), and the keys in the order of their first rows."""
    order_of: dict[Any, int] = {}
    numbers = [order_of.setdefault(key, len(order_of)) for key in keys]
    return np.array(numbers, dtype=np.int64), list(order_of)


def _steps_of(
    frame: Any, time: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, list[Any]]:
    """Step numbers of rows whose times count by 1: order, sequences, steps, lengths, keys."""
    if not len(frame):
        raise ValueError("data: at least one row was expected, got none")
    sequence, keys = _sequences_of(frame["sequence"].tolist())
    order = np.lexsort((time, sequence))
    sequence, time = sequence[order], time[order]
    gap = np.flatnonzero((sequence[1:] == sequence[:-1]) & (np.diff(time) != 1))
    if len(gap):
        at = int(gap[0])
        raise ValueError(
            f"data: times of a sequence must follow each other by 1; sequence"
            f" {keys[sequence[at]]!r} goes from {time[at]:.15g} to {time[at + 1]:.15g}: cut it"
            " there, or give the steps between with an empty action"
        )
    lengths = np.bincount(sequence)
    sequence, step = _counted(lengths)
    return order, sequence, step, lengths, keys


def _counted(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sequence and step of every row, (N,) each, of sequences (B,) that follow each other."""
    begins = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(np.arange(len(lengths)), lengths), np.arange(len(begins)) - begins


def _columns_of(
    frame: Any, names: Sequence[Any], kind: str, read: Callable[[Any, np.ndarray], np.ndarray]
) -> tuple[Any, dict[Any, np.ndarray]]:
    """A frame of steps with its places, and columns of it as ``read`` takes their numbers."""
    _refuse_index(frame)
    frame = with_places(frame)
    check_present(frame, PLACES)
    columns = {}
    for name in names:
        try:
            columns[name] = read(name, frame[name].to_numpy(dtype=np.float64, na_value=np.nan))
        except (TypeError, ValueError) as error:
            words = f"data: column {str(name)!r}: {kind.format(error=error, name=name)}"
            raise ValueError(words) from error
    return frame, columns


def _of_steps(data: Mapping[Any, Any]) -> tuple[Any, Any, Any]:
    """States, actions and lengths of a dict."""
    if not {"state", "action"} <= set(data) <= {"state", "action", "length"}:
        raise ValueError(
            "data: a dict of 'state', 'action' and 'length' was expected, got"
            f" {sorted(map(str, data))}"
        )
    return data["state"], data["action"], data.get("length")


def _numbers(name: str, value: Any, kind: str) -> Tensor:
    """Convert to a tensor of numbers, NaN where an object stands for a missing one."""
    if isinstance(value, Tensor):
        array = value.detach()
    else:
        try:
            numbers = with_nan(np.array(value))
            array = torch.from_numpy(
                numbers.astype(np.float64) if numbers.dtype.kind == "O" else numbers
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"data[{name!r}]: {kind} were expected ({error})") from error
    if array.is_complex() or array.dtype == torch.bool:
        raise ValueError(f"data[{name!r}]: {kind} were expected, got dtype {array.dtype}")
    return array


def _whole(name: str, value: Any) -> Tensor:
    """Convert to whole numbers, -1 where one is missing."""
    array = _numbers(name, value, "whole numbers")
    if array.is_floating_point():
        filled = torch.where(array.isnan(), torch.full_like(array, -1.0), array)
        wrong = (filled != filled.round()) | filled.isinf()
        if wrong.any():
            place = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"data[{name!r}]: whole numbers were expected, got {float(array[tuple(place)])} at"
                f" {place}"
            )
        array = filled
    return array.to(torch.int64)


def _inside(length: Any, num_rows: int, num_steps: int, device: torch.device) -> Tensor:
    """Mask of the steps before the end of their sequence, (B, T)."""
    steps = torch.arange(num_steps, device=device)
    if length is None:
        return (steps >= 0).expand(num_rows, num_steps)
    ends = _whole("length", length).to(device)
    if tuple(ends.shape) != (num_rows,):
        raise ValueError(
            f"data['length']: shape ({num_rows},), one length a sequence, was expected, got"
            f" {tuple(ends.shape)}"
        )
    wrong = (ends < 1) | (ends > num_steps)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        hint = ": leave out a sequence that is empty" if int(ends[row]) == 0 else ""
        raise ValueError(
            f"data['length']: 1 to {num_steps} was expected, got {int(ends[row])} for sequence"
            f" {row}{hint}"
        )
    return steps < ends[:, None]


# ---------------------------------------------------------------- items


def inside_of(packed: Tensor) -> Tensor:
    """Mask of the steps of packed sequences before the end, (B, T)."""
    return packed[..., 0] != torch.inf


def as_item_sequences(
    data: Any, num_items: int, response: ResponseFamily, for_fit: bool = True
) -> tuple[Tensor, tuple[str, ...]]:
    """Check sequences of items, and pack them.

    Args:
        data: a list of tables (T, J) of unequal length; one table, which is one sequence; a data
            frame with a row a step, in which columns ``sequence`` and ``time`` say where a row
            belongs (without the first all are one sequence, without the second rows follow each
            other as they stand; whole numbers of time that are left out are steps without entries);
            an array (B, T, J), in which empty steps at the end of a sequence are no steps; or a
            dict ``{"items": (B, T, J), "length": (B,)}``. NaN is a missing entry.
        num_items: J.
        response: the family of the items.
        for_fit: whether a fit is to follow.

    Returns:
        Packed sequences, and the names of the items.

    Raises:
        ValueError: for other forms, an empty sequence, sequences of other widths, times that are
            negative, not whole or twice in a sequence, a sequence without any entry (in a fit), and
            as :func:`ppl_models.data.tables.as_items` says.

    Warns:
        ConstantColumnWarning: naming every item that holds one value.
    """
    data = as_frame(data)
    if is_frame(data):
        table, names, sequence, step = _of_frame(data, num_items, response, for_fit)
        lengths = np.zeros(int(sequence.max()) + 1, dtype=np.int64)
        np.maximum.at(lengths, sequence, step + 1)
    elif isinstance(data, Mapping):
        return _of_array(*_of_dict(data), num_items, response, for_fit)
    else:
        parts = data
        if not isinstance(data, list | tuple) or not len(data) or _are_numbers(data):
            array = _as_array(data)
            if array.ndim == 3:
                return _of_array(array, None, num_items, response, for_fit)
            parts = [array]
        tables = [_as_table(part, number, num_items) for number, part in enumerate(parts)]
        lengths = np.array([len(part) for part in tables])
        table, names = _items(_joined(tables), num_items, response, for_fit)
        sequence, step = _counted(lengths)
    packed = _laid_out(
        table, torch.from_numpy(lengths), torch.from_numpy(sequence), torch.from_numpy(step)
    )
    _check_present(packed, for_fit)
    return packed, names


def item_rows(data: Any) -> Any:
    """The items of all steps, one table (N, J) or frame, of data as :func:`as_item_sequences`."""
    data = as_frame(data)
    if is_frame(data):
        data = in_places(data)
        return data[[name for name in data.columns if str(name) not in PLACES]]
    if isinstance(data, Mapping):
        array = _of_dict(data)[0]
        return array.reshape(-1, array.shape[-1])
    if isinstance(data, list | tuple) and len(data) and not _are_numbers(data):
        tables = [as_frame(part) for part in data]
        tables = [part if is_frame(part) else _as_array(part) for part in tables]
        if all(is_frame(part) or part.ndim == 2 for part in tables):
            return _joined(tables)
    array = _as_array(data)
    return array.reshape(-1, array.shape[-1]) if array.ndim == 3 else array


def places_of(frame: Any) -> tuple[np.ndarray, np.ndarray]:
    """Sequence and step numbers of every row of a checked frame, (N,) each, from 0.

    Sequences stand in the order of their first rows, steps count from the first time of the
    sequence.
    """
    names = list(column_names(frame))
    sequence, keys = np.zeros(len(frame), dtype=np.int64), [""]
    if "sequence" in names:
        sequence, keys = _sequences_of(frame[frame.columns[names.index("sequence")]].tolist())
    if "time" not in names:
        order = np.argsort(sequence, kind="stable")
        starts = np.searchsorted(sequence[order], np.arange(len(keys)))
        step = np.empty(len(frame), dtype=np.int64)
        step[order] = np.arange(len(frame)) - starts[sequence[order]]
        return sequence, step
    time = _times(frame[frame.columns[names.index("time")]])
    first = np.full(len(keys), np.iinfo(np.int64).max)
    np.minimum.at(first, sequence, time)
    step = time - first[sequence]
    order = np.lexsort((step, sequence))
    twice = (np.diff(sequence[order]) == 0) & (np.diff(step[order]) == 0)
    if twice.any():
        at = order[int(twice.argmax()) + 1]
        told = "sequence" in names
        of = f" of sequence {keys[sequence[at]]!r}" if told else ""
        remedy = "" if told else "; name the column that tells sequences apart 'sequence'"
        raise ValueError(
            f"data: column 'time': every time once in a sequence was expected, but {time[at]}{of}"
            f" is there twice, again in {row_of(frame, int(at))}{remedy}"
        )
    return sequence, step


def _times(column: Any) -> np.ndarray:
    try:
        values: np.ndarray = column.to_numpy(dtype=np.float64, na_value=np.nan)
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
    _refuse_index(frame)
    if sum(name not in PLACES for name in column_names(frame)) != num_items:
        frame = in_places(frame)
    names = column_names(frame)
    check_present(frame, tuple(name for name in PLACES if name in names))
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
    """Pack an array (B, T, J).

    Sequences end where ``length`` says, else where infinities or nothing but empty steps follow.
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
        if bool((ends == 0).any()):
            raise ValueError(
                f"data: sequence {int((ends == 0).nonzero()[0])} is empty; leave it out"
            )
        inside = steps < ends.unsqueeze(-1)
    else:
        inside = _inside(length, num, width, tensor.device)
        ends = inside.sum(1)
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
    """Convert one sequence to a table (T, J)."""
    part = as_frame(part)
    if not is_frame(part):
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


def _joined(tables: list[Any]) -> Any:
    """Concatenate sequences; frames under the columns of the first."""
    if all(is_frame(part) for part in tables):
        import pandas as pd

        names = column_names(tables[0])
        for place in PLACES:
            if place in names:
                raise ValueError(
                    f"data: sequence 0: items alone were expected in a list of sequences, got a"
                    f" column {place!r}: give one frame of all rows with the columns 'sequence' and"
                    " 'time', or leave it out where rows follow each other"
                )
        for number, part in enumerate(tables):
            if set(column_names(part)) != set(names):
                raise ValueError(
                    f"data: sequence {number}: the columns of the first sequence,"
                    f" {', '.join(names)}, were expected, got {', '.join(column_names(part))}"
                )
        return pd.concat([part[tables[0].columns.tolist()] for part in tables], ignore_index=True)
    if any(is_frame(part) for part in tables):
        raise ValueError("data: sequences of one kind were expected, got data frames and arrays")
    if all(isinstance(part, Tensor) for part in tables):
        return torch.cat(tables)
    return np.concatenate(
        [part.cpu().numpy() if isinstance(part, Tensor) else part for part in tables]
    )


def _items(
    table: Any, num_items: int, response: ResponseFamily, for_fit: bool
) -> tuple[Tensor, tuple[str, ...]]:
    """Check the items of all steps, (N, J), and their names; empty steps are set aside."""
    if is_frame(table):
        empty = table.isna().to_numpy().all(1)
    else:
        array = table.detach().cpu().numpy() if isinstance(table, Tensor) else table
        empty = (
            np.isnan(array).all(1) if array.dtype.kind == "f" else np.zeros(len(array), dtype=bool)
        )
    if empty.all():
        if for_fit:
            raise ValueError("data: at least one observed entry was expected, got none")
        names = column_names(table) if is_frame(table) else tuple(map(str, range(table.shape[1])))
        return torch.full(tuple(table.shape), torch.nan, dtype=torch.float64), names
    checked, names = as_items(table[~empty], num_items, response, for_fit)
    if not empty.any():
        return checked, names
    out = checked.new_full((len(empty), num_items), torch.nan)
    out[torch.from_numpy(~empty).to(out.device)] = checked
    return out, names


def _laid_out(table: Tensor, lengths: Tensor, sequence: Tensor, step: Tensor) -> Tensor:
    """Lay out steps (N, J) as (B, T, J) by their places.

    One step more follows where the longest sequence ends without an entry, to mark its end.
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


# ---------------------------------------------------------------- states and actions


def trajectory_lengths(trajectories: Tensor) -> Tensor:
    """Number of steps of every packed sequence, (B,)."""
    return (trajectories[..., 0] >= 0).sum(-1)


def unpack(trajectories: Tensor) -> dict[str, Tensor]:
    """Unpack sequences to ``{"state": (B, T), "action": (B, T), "length": (B,)}``."""
    lengths = trajectory_lengths(trajectories)
    return {"state": trajectories[..., 0], "action": trajectories[..., 1], "length": lengths}


def pack(state: Any, action: Any, length: Any = None) -> Tensor:
    """Pack states and actions (B, T) as one tensor (B, T, 2), -1 after the end.

    Lengths are (B,).

    Raises:
        ValueError: for values that are not whole numbers (NaN is a missing one), unequal shapes, or
            lengths outside 1..T.
    """
    columns = {"state": _whole("state", state), "action": _whole("action", action)}
    shape = tuple(columns["state"].shape)
    for name, value in columns.items():
        if value.dim() != 2 or 0 in value.shape:
            raise ValueError(
                f"data[{name!r}]: shape (sequences, steps), none of them 0, was expected, got"
                f" {tuple(value.shape)}"
            )
        if tuple(value.shape) != shape:
            raise ValueError(
                f"data: 'state' and 'action' must have one shape, got {shape} and"
                f" {tuple(value.shape)}"
            )
    packed = torch.stack(list(columns.values()), -1)
    if length is None:
        return packed
    return packed.masked_fill(~_inside(length, shape[0], shape[1], packed.device)[..., None], -1)


def as_trajectories(data: Any, num_states: int, num_actions: int, for_fit: bool = True) -> Tensor:
    """Check sequences of states and actions, and pack them.

    Args:
        data: a dict ``{"state": (B, T), "action": (B, T), "length": (B,)}`` (without a length all
            are T long), packed sequences (B, T, 2), or a data frame with columns sequence (one if
            it is not there), time (the order of the rows), state, action, one row a step.
        num_states: they start at 0.
        num_actions: they start at 0.
        for_fit: whether a fit is to follow.

    Raises:
        ValueError: for states or actions out of range, a missing state (name it: states cannot be
            summed out), no known action at all, a gap in time, an empty sequence, or what
            :func:`pack` raises.

    Warns:
        UnvisitedWarning: naming states and actions that never occur.
    """
    data = as_frame(data)
    if is_frame(data):
        packed = _trajectories_of_frame(data)
    elif isinstance(data, Mapping):
        packed = pack(*_of_steps(data))
    else:
        packed = _whole("trajectories", data)
        if packed.dim() != 3 or packed.shape[-1] != 2 or 0 in packed.shape:
            raise ValueError(
                "data: a dict {'state': (B, T), 'action': (B, T), 'length': (B,)} was expected"
                f" (or packed (B, T, 2)), got shape {tuple(packed.shape)}"
            )
    lengths = trajectory_lengths(packed)
    if isinstance(data, Mapping) and "length" in data:
        lengths = _whole("length", data["length"]).to(packed.device)
    seen = _check_steps(packed, lengths, num_states, num_actions)
    if for_fit:
        if not seen[1].any():
            raise ValueError("data['action']: at least one known action was expected, got none")
        warn_unvisited(
            int(lengths.max()),
            {name: count == 0 for name, count in zip(("states", "actions"), seen, strict=True)},
            4,
        )
    return packed


def named_steps(data: Any) -> dict[str, tuple[str, ...]]:
    """Names, in alphabetic order, of the states or actions that are texts, by place."""
    texts = {place: _texts_of(as_frame(data), place) for place in COLUMNS[2:]}
    return {
        place: tuple(sorted({str(name) for name in own.ravel() if name is not None}))
        for place, own in texts.items()
        if own is not None
    }


def coded_steps(data: Any, names: Mapping[str, tuple[str, ...]]) -> Any:
    """Data with the numbers of states and actions in the place of their names.

    Raises:
        ValueError: naming a state or an action that is not among its names.
    """
    data = as_frame(data)
    for place, own in names.items():
        texts = _texts_of(data, place) if own else None
        if texts is None:
            continue
        codes = {name: code for code, name in enumerate(own)}
        for name in texts.ravel():
            if name is not None and str(name) not in codes:
                raise ValueError(
                    f"data: column {place!r}: {str(name)!r} is unknown to the model, whose"
                    f" {place}s are {listed(map(repr, own))}"
                )
        numbers = [np.nan if name is None else codes[str(name)] for name in texts.ravel()]
        values = np.array(numbers, dtype=np.float64).reshape(texts.shape)
        data = data.assign(**{place: values}) if is_frame(data) else {**data, place: values}
    return data


def _texts_of(data: Any, place: str) -> np.ndarray | None:
    """States or actions that are texts, None where one is missing; None for numbers."""
    import pandas as pd

    if not (is_frame(data) or isinstance(data, Mapping)) or place not in data:
        return None
    values = data[place]
    if isinstance(values, Tensor):
        return None
    column = pd.Series(np.array(values, dtype=object).ravel())
    if not holds_texts(column.infer_objects()):
        return None
    texts: np.ndarray = column.where(column.notna(), None).to_numpy(dtype=object, na_value=None)
    return texts.reshape(np.shape(np.array(values, dtype=object)))


def _check_steps(
    packed: Tensor, lengths: Tensor, num_states: int, num_actions: int
) -> tuple[Tensor, Tensor]:
    """Refuse values out of range; counts of every state (S,) and action (A,).

    A slice of the data at a time.
    """
    empty = (lengths == 0) | (packed[:, 0, 0] < 0)
    if empty.any():
        raise ValueError(f"data: sequence {int(empty.nonzero()[0])} is empty")
    flat, width = packed.reshape(-1, 2), packed.shape[1]
    sizes = {"state": num_states, "action": num_actions}
    counts = [torch.zeros(size, dtype=torch.int64, device=packed.device) for size in sizes.values()]
    for part in slices(len(flat)):
        at = torch.arange(part.start, part.stop, device=packed.device)
        inside = at % width < lengths[at // width]
        for i, (name, size) in enumerate(sizes.items()):
            value = flat[part, i]
            wrong = torch.where(
                inside, (value < -i) | (value >= size), value != -1
            )  # -1 is a missing action, not a state
            if wrong.any():
                row, step = divmod(part.start + int(wrong.nonzero()[0]), width)
                _refuse(name, packed[row], step, step < int(lengths[row]), row, size)
            counts[i] += torch.bincount(value[inside & (value >= 0)], minlength=size)
    return counts[0], counts[1]


def _refuse(name: str, sequence: Tensor, step: int, inside: bool, row: int, size: int) -> None:
    found = int(sequence[step, 0 if name == "state" else 1])
    if name == "state" and (found == -1 or not inside):
        step = int((sequence[:, 0] < 0).nonzero()[0])
        raise ValueError(
            f"data['state']: missing at sequence {row}, step {step}; a missing state cannot be"
            " summed out: cut the sequence there (a missing action, -1, can)"
        )
    allowed = f"0 to {size - 1}" + (", or -1 where missing," if name == "action" else "")
    raise ValueError(
        f"data[{name!r}]: {allowed} was expected, got {found} at sequence {row}, step {step} (they"
        " are counted from 0: subtract 1 from what is counted from 1)"
    )


def warn_unvisited(longest: int, never: Mapping[str, Tensor], stacklevel: int) -> None:
    """Warn of states and actions that never occur, and of sequences of one step.

    ``never`` holds what was not seen by name ("states", "actions"), (n,) bool.
    """
    if longest == 1:
        text = (
            "all sequences have one step: nothing is learnt of the high-level policy and the"
            " environment, and options are not determined"
        )
        warnings.warn(text, UnvisitedWarning, stacklevel=stacklevel + 1)
    for name, unseen in never.items():
        values = unseen.nonzero().ravel().tolist()
        if values:
            shown = listed(values, 10)
            text = f"{name} that never occur: {shown}; what is estimated for them is the prior's"
            warnings.warn(text, UnvisitedWarning, stacklevel=stacklevel + 1)


def places_of_steps(frame: Any) -> dict[str, str]:
    """Columns of a frame of states and actions that say where a step belongs, if all others do."""
    others = [name for name in frame.columns if str(name) not in COLUMNS[2:]]
    if len(others) + len(COLUMNS[2:]) != len(frame.columns):
        return {}
    found = places_in(frame[others]) if {*map(str, others)} - {*PLACES} else {}
    return found if {*found.values()} >= {*map(str, others)} - {row_names(frame)} else {}


def _trajectories_of_frame(frame: Any) -> Tensor:
    """Pack a frame of one row a step, sequences in the order of their first row."""
    if found := places_of_steps(frame):
        frame = in_places(frame, found)
        frame = frame[[name for name in frame.columns if str(name) in COLUMNS]]
    names = [str(name) for name in frame.columns]
    absent, others = (
        [name for name in wanted if name not in present]
        for wanted, present in ((COLUMNS, names), (names, COLUMNS))
    )
    if others or len(set(names)) < len(names) or not {"state", "action"} <= set(names):
        remedy = (
            f"rename yours, as in data.rename(columns={dict(zip(others, absent, strict=False))})"
            if absent and others
            else "leave the others out, and add what is missing"
        )
        raise ValueError(
            f"data: columns {', '.join(COLUMNS)} were expected, got {', '.join(names)}: {remedy}"
        )
    frame, columns = _columns_of(
        frame,
        COLUMNS[1:],
        "whole numbers were expected ({error}): number its values, as in"
        " data[{name!r}] = pandas.factorize(data[{name!r}])[0]",
        lambda name, values: _whole(name, values).numpy(),
    )
    order, sequence, step, lengths, keys = _steps_of(frame, columns["time"])
    missing = np.flatnonzero(columns["state"][order] < 0)
    if len(missing):
        at = int(missing[0])
        raise ValueError(
            f"data['state']: missing or negative in sequence {keys[sequence[at]]!r} at time"
            f" {columns['time'][order[at]]}; a missing state cannot be summed out: cut the sequence"
            " there (a missing action can)"
        )
    packed = np.full((len(lengths), int(lengths.max()), 2), -1, dtype=np.int64)
    packed[sequence, step, 0], packed[sequence, step, 1] = (
        columns["state"][order],
        columns["action"][order],
    )
    return torch.from_numpy(packed)


# ---------------------------------------------------------------- continuous states


def feature_lengths(packed: Tensor) -> Tensor:
    """Number of steps of every packed sequence, (B,)."""
    return (~packed[..., 0].isnan()).sum(-1)


def as_feature_trajectories(
    data: Any, num_features: int, num_actions: int, for_fit: bool = True, has_units: bool = False
) -> tuple[Tensor, tuple[str, ...]]:
    """Check sequences of features and actions, and pack them.

    Args:
        data: a dict ``{"state": (B, T, D), "action": (B, T), "length": (B,)}`` (without a length
            all are T long; -1 or NaN for a missing action), packed sequences, or a data frame with
            columns sequence, time, action and one for each entry of the state, one row a step.
        num_features: D.
        num_actions: actions start at 0.
        for_fit: whether a fit is to follow; has_units: whether that takes the states' units, so
            that their scale does not matter.

    Returns:
        Packed sequences, and the names of their columns.

    Raises:
        ValueError: for other shapes, actions out of range or not whole, a missing or infinite state
            (a state cannot be summed out), a gap in time, an empty sequence.

    Warns:
        UnvisitedWarning: naming actions that never occur, or where no sequence has a second step.
        FeatureScaleWarning: naming columns of the state that are constant or on an extreme scale.
    """
    names = (*(f"feature_{i}" for i in range(num_features)), "action")
    data = as_frame(data)
    if is_frame(data):
        packed, names = _features_of_frame(data, num_features)
    elif isinstance(data, Mapping):
        packed = _pack_features(*_of_steps(data), num_features)
    else:
        packed = _floats("trajectories", data)
        if packed.dim() != 3 or packed.shape[-1] != num_features + 1 or 0 in packed.shape:
            raise ValueError(
                f"data: a dict {{'state': (B, T, {num_features}), 'action': (B, T), 'length':"
                f" (B,)}} was expected (or packed (B, T, {num_features + 1})), got shape"
                f" {tuple(packed.shape)}"
            )
        after = packed.isnan().all(-1).flip(1).to(torch.int64).cummin(1).values.flip(1).bool()
        _check_states(packed, ~after)
    _check_actions(packed, num_actions)
    if for_fit:
        action = packed[..., -1]
        if action.isnan().all():
            raise ValueError("data['action']: at least one known action was expected, got none")
        never = torch.bincount(action[~action.isnan()].to(torch.int64), minlength=num_actions) == 0
        warn_unvisited(int(feature_lengths(packed).max()), {"actions": never}, 4)
        _warn_scale(packed, names, has_units)
    return packed, names


def _floats(name: str, value: Any) -> Tensor:
    """Convert to double precision; the same object if it is, so that plans are kept."""
    array = _numbers(name, value, "numbers")
    return array if array.dtype == torch.float64 else array.to(torch.float64)


def _pack_features(state: Any, action: Any, length: Any, num_features: int) -> Tensor:
    states, actions = _floats("state", state), _floats("action", action)
    if states.dim() != 3 or states.shape[-1] != num_features or 0 in states.shape:
        raise ValueError(
            f"data['state']: shape (sequences, steps, {num_features}) was expected, got"
            f" {tuple(states.shape)}"
        )
    if actions.shape != states.shape[:2]:
        raise ValueError(
            f"data['action']: shape {tuple(states.shape[:2])} was expected, got"
            f" {tuple(actions.shape)}"
        )
    rows, steps = actions.shape
    inside = _inside(length, rows, steps, states.device)
    actions = torch.where(actions == -1, torch.nan, actions.to(states.device))
    packed = torch.cat([states, actions[..., None]], -1)
    _check_states(packed, inside)
    return torch.where(inside[..., None], packed, torch.nan)


def _check_states(packed: Tensor, inside: Tensor) -> None:
    if not inside[:, 0].all():
        raise ValueError(f"data: sequence {int((~inside[:, 0]).nonzero()[0])} is empty")
    wrong = inside[..., None] & ~packed[..., :-1].isfinite()
    if wrong.any():
        row, step, column = (int(i) for i in wrong.nonzero()[0])
        state = float(packed[row, step, column])
        what = "missing" if np.isnan(state) else f"{state:g}"
        raise ValueError(
            f"data['state']: {what} at sequence {row}, step {step}, column {column}; a state must"
            " be finite and cannot be summed out: cut the sequence there (a missing action, -1,"
            " can)"
        )


def _check_actions(packed: Tensor, num_actions: int) -> None:
    action = packed[..., -1]
    wrong = ~action.isnan() & ~((action >= 0) & (action < num_actions) & (action == action.round()))
    if wrong.any():
        row, step = (int(i) for i in wrong.nonzero()[0])
        raise ValueError(
            f"data['action']: 0 to {num_actions - 1}, or -1 where missing, was expected, got"
            f" {float(action[row, step]):g} at sequence {row}, step {step}"
        )


def _warn_scale(packed: Tensor, names: tuple[str, ...], has_units: bool) -> None:
    states = packed[..., :-1][~packed[..., 0].isnan()]
    spread = states.std(0, correction=0)
    odd = spread == 0 if has_units else ~((spread >= SCALES[0]) & (spread <= SCALES[1]))
    if odd.any():
        shown = ", ".join(
            f"{names[int(i)]} ({float(spread[i]):.2g})" for i in odd.nonzero().ravel()[:10]
        )
        message = (
            f"columns of the state that are constant: {shown}; they say nothing of the actions"
            if has_units
            else "columns of the state with a standard deviation outside"
            f" {SCALES[0]:g} to {SCALES[1]:g}: {shown}; the priors of the weights are meant for"
            " standardised columns"
        )
        warnings.warn(message, FeatureScaleWarning, stacklevel=5)


def _features_of_frame(frame: Any, num_features: int) -> tuple[Tensor, tuple[str, ...]]:
    """Pack a frame of one row a step; also the names of the columns."""
    given = [str(name) for name in frame.columns]
    features = [name for name in frame.columns if str(name) not in FEATURE_COLUMNS]
    if "action" not in given or len(features) != num_features or len(set(given)) != len(given):
        raise ValueError(
            f"data: columns sequence, time, action and {num_features} of the state were expected,"
            f" got {', '.join(given)}"
        )
    frame, columns = _columns_of(
        frame,
        ("time", "action", *features),
        "numbers were expected ({error})",
        lambda _, values: values,
    )
    order, sequence, step, lengths, _ = _steps_of(frame, columns["time"])
    state = np.zeros((len(lengths), int(lengths.max()), num_features))
    action = np.full(state.shape[:2], np.nan)
    state[sequence, step] = np.stack([columns[name] for name in features], -1)[order]
    action[sequence, step] = columns["action"][order]
    return _pack_features(state, action, lengths, num_features), (
        *(str(name) for name in features),
        "action",
    )
