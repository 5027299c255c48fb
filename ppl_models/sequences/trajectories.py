"""Sequences of states and actions: what a user may pass, and the one packed tensor that programs
see.

Packed: (B, T, 2) int64, state and action; an action of -1 is missing, a state of -1 marks steps
after the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppl_models.parts.frames import as_frame, row_of
from ppl_models.parts.validation import with_nan
from ppl_models.sequences.codes import slices

COLUMNS = ("sequence", "time", "state", "action")


class UnvisitedWarning(UserWarning):
    """The data say nothing of some probabilities, and their estimates are the prior's: a state or
    an action never occurs, or no sequence has a second step.
    """


def trajectory_lengths(trajectories: Tensor) -> Tensor:
    """(B,), the steps of every packed sequence."""
    return (trajectories[..., 0] >= 0).sum(-1)


def unpack(trajectories: Tensor) -> dict[str, Tensor]:
    """``{"state": (B, T), "action": (B, T), "length": (B,)}`` of packed sequences."""
    lengths = trajectory_lengths(trajectories)
    return {"state": trajectories[..., 0], "action": trajectories[..., 1], "length": lengths}


def pack(state: Any, action: Any, length: Any = None) -> Tensor:
    """Arrays (B, T) of states and actions, and lengths (B,), as one tensor (B, T, 2); entries after
    the end become -1.

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
    ends = _whole("length", length).to(packed.device)
    if tuple(ends.shape) != shape[:1]:
        raise ValueError(
            f"data['length']: shape {shape[:1]}, one length a sequence, was expected, got"
            f" {tuple(ends.shape)}"
        )
    if not ((ends >= 1) & (ends <= shape[1])).all():
        row = int(((ends < 1) | (ends > shape[1])).nonzero()[0])
        raise ValueError(
            f"data['length']: 1 to {shape[1]} was expected, got {int(ends[row])} for sequence {row}"
        )
    after = torch.arange(shape[1], device=packed.device) >= ends[:, None]
    return packed.masked_fill(after[..., None], -1)


def _whole(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        array = value.detach()
    else:
        try:
            numbers = np.array(value)
            array = torch.from_numpy(
                with_nan(numbers).astype(np.float64) if numbers.dtype.kind == "O" else numbers
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"data[{name!r}]: whole numbers were expected ({error})") from error
    if array.is_complex() or array.dtype == torch.bool:
        raise ValueError(f"data[{name!r}]: whole numbers were expected, got dtype {array.dtype}")
    if array.is_floating_point():
        filled = torch.where(array.isnan(), torch.full_like(array, -1.0), array)
        if not (filled == filled.round()).all() or filled.isinf().any():
            place = ((filled != filled.round()) | filled.isinf()).nonzero()[0].tolist()
            raise ValueError(
                f"data[{name!r}]: whole numbers were expected, got {float(array[tuple(place)])} at"
                f" {place}"
            )
        array = filled
    return array.to(torch.int64)


def as_trajectories(data: Any, num_states: int, num_actions: int, for_fit: bool = True) -> Tensor:
    """Check sequences, and pack them.

    Args:
        data: a dict ``{"state": (B, T), "action": (B, T), "length": (B,)}`` (without a length all
            are T long), packed sequences (B, T, 2), or a data frame with columns sequence (one if
            it is not there), time (the order of the rows), state, action, one row a step.
        num_states, num_actions: the ranges start at 0.
        for_fit: whether a fit is to follow.

    Raises:
        ValueError: for states or actions out of range, a missing state (name it: states cannot be
            summed out), no known action at all, a gap in time, an empty sequence, or what
            :func:`pack` raises.

    Warns:
        UnvisitedWarning: naming states and actions that never occur.
    """
    data = as_frame(data)
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        packed = _from_frame(data)
    elif isinstance(data, Mapping):
        missing = [name for name in ("state", "action") if name not in data]
        unknown = [str(name) for name in data if name not in ("state", "action", "length")]
        if missing or unknown:
            raise ValueError(
                "data: a dict of 'state', 'action' and 'length' was expected, got"
                f" {sorted(map(str, data))}"
            )
        packed = pack(data["state"], data["action"], data.get("length"))
    else:
        packed = _whole("trajectories", data)
        if packed.dim() != 3 or packed.shape[-1] != 2 or 0 in packed.shape:
            raise ValueError(
                "data: a dict {'state': (B, T), 'action': (B, T), 'length': (B,)} was expected"
                f" (or packed (B, T, 2)), got shape {tuple(packed.shape)}"
            )
    lengths = trajectory_lengths(packed)
    if "length" in data if isinstance(data, Mapping) else False:
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


def _check_steps(
    packed: Tensor, lengths: Tensor, num_states: int, num_actions: int
) -> tuple[Tensor, Tensor]:
    """Refuse values out of range; how often every state (S,) and action (A,) occurs.

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
    """Say what the data say nothing of: steps that follow, and values ("states", "actions") that
    were never seen (n,) bool.
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
            shown = ", ".join(map(str, values[:10])) + (
                f" and {len(values) - 10} more" if len(values) > 10 else ""
            )
            text = f"{name} that never occur: {shown}; what is estimated for them is the prior's"
            warnings.warn(text, UnvisitedWarning, stacklevel=stacklevel + 1)


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
    """A data frame of steps with its columns of places: all rows are one sequence where none is
    named, and steps in their order where no time is.
    """
    names = list(map(str, frame.columns))
    if "sequence" not in names:
        frame = frame.assign(sequence=0)
    return (
        frame
        if "time" in names
        else frame.assign(time=frame.groupby("sequence", sort=False).cumcount())
    )


def _from_frame(frame: Any) -> Tensor:
    """One row a step -> packed; sequences in order of their first row."""
    names = [str(name) for name in frame.columns]
    absent, others = (
        [name for name in own if name not in known]
        for own, known in ((COLUMNS, names), (names, COLUMNS))
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
    frame = with_places(frame)
    check_present(frame, COLUMNS[:2])
    columns = {}
    for name in COLUMNS[1:]:
        try:
            columns[name] = _whole(
                name, frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
            ).numpy()
        except (TypeError, ValueError) as error:
            remedy = (
                f"number its values, as in data[{name!r}] = pandas.factorize(data[{name!r}])[0]"
            )
            raise ValueError(
                f"data: column {name!r}: whole numbers were expected ({error}): {remedy}"
            ) from error
    keys = frame["sequence"].to_numpy()
    order_of: dict[Any, int] = {}
    sequence = np.array(
        [order_of.setdefault(key, len(order_of)) for key in keys.tolist()], dtype=np.int64
    )
    if not len(sequence):
        raise ValueError("data: at least one row was expected, got none")
    order = np.lexsort((columns["time"], sequence))
    sequence, time = sequence[order], columns["time"][order]
    follows = sequence[1:] == sequence[:-1]
    gap = np.flatnonzero(follows & (np.diff(time) != 1))
    if len(gap):
        at = int(gap[0])
        key = list(order_of)[sequence[at]]
        raise ValueError(
            f"data: times of a sequence must follow each other by 1; sequence {key!r} goes from"
            f" {time[at]} to {time[at + 1]}: cut it there, or give the steps between with an empty"
            " action"
        )
    missing = np.flatnonzero(columns["state"][order] < 0)
    if len(missing):
        at = int(missing[0])
        raise ValueError(
            f"data['state']: missing or negative in sequence {list(order_of)[sequence[at]]!r} at"
            f" time {time[at]}; a missing state cannot be summed out: cut the sequence there (a"
            " missing action can)"
        )
    lengths = np.bincount(sequence)
    step = np.arange(len(sequence)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    packed = np.full((len(lengths), int(lengths.max()), 2), -1, dtype=np.int64)
    packed[sequence, step, 0], packed[sequence, step, 1] = (
        columns["state"][order],
        columns["action"][order],
    )
    return torch.from_numpy(packed)
