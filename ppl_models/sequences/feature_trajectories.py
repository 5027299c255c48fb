"""Sequences of continuous states and actions: what a user may pass, and the one packed tensor that
programs see.

Packed: (B, T, D + 1) float64, the state and then the action; an action of NaN is missing, and all
is NaN after the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppl_models.parts.frames import as_frame
from ppl_models.parts.validation import with_nan
from ppl_models.sequences.trajectories import check_present, warn_unvisited, with_places

COLUMNS = ("sequence", "time", "action")
SCALES = (0.01, 100.0)  # standard deviations of a feature for which the priors of weights are meant


class FeatureScaleWarning(UserWarning):
    """A column of the state is constant, or on a scale for which the priors of the weights are not
    meant.
    """


def feature_lengths(packed: Tensor) -> Tensor:
    """(B,), the steps of every packed sequence."""
    return (~packed[..., 0].isnan()).sum(-1)


def as_feature_trajectories(
    data: Any, num_features: int, num_actions: int, for_fit: bool = True
) -> tuple[Tensor, tuple[str, ...]]:
    """Check sequences, and pack them.

    Args:
        data: a dict ``{"state": (B, T, D), "action": (B, T), "length": (B,)}`` (without a length
            all are T long; -1 or NaN for a missing action), packed sequences, or a data frame with
            columns sequence, time, action and one for each entry of the state, one row a step.
        num_features: D; num_actions: actions start at 0.
        for_fit: whether a fit is to follow.

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
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        packed, names = _from_frame(data, num_features)
    elif isinstance(data, Mapping):
        if not {"state", "action"} <= set(data) <= {"state", "action", "length"}:
            raise ValueError(
                "data: a dict of 'state', 'action' and 'length' was expected, got"
                f" {sorted(map(str, data))}"
            )
        packed = _packed(data["state"], data["action"], data.get("length"), num_features)
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
        _warn_scale(packed, names)
    return packed, names


def _floats(name: str, value: Any) -> Tensor:
    try:
        numbers = None if isinstance(value, Tensor) else with_nan(np.array(value))
        array = (
            value.detach()
            if numbers is None
            else torch.from_numpy(
                numbers.astype(np.float64) if numbers.dtype.kind == "O" else numbers
            )
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"data[{name!r}]: numbers were expected ({error})") from error
    if array.is_complex() or array.dtype == torch.bool:
        raise ValueError(f"data[{name!r}]: real numbers were expected, got dtype {array.dtype}")
    if array.dtype == torch.float64:
        return array  # the same object, so that plans are kept
    return array.to(torch.float64)


def _packed(state: Any, action: Any, length: Any, num_features: int) -> Tensor:
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
    ends = (
        torch.full((rows,), float(steps), dtype=torch.float64)
        if length is None
        else _floats("length", length)
    )
    if tuple(ends.shape) != (rows,):
        raise ValueError(
            f"data['length']: shape ({rows},), one length a sequence, was expected, got"
            f" {tuple(ends.shape)}"
        )
    wrong = ~((ends >= 1) & (ends <= steps) & (ends == ends.round()))
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"data['length']: 1 to {steps} was expected, got {float(ends[row]):g} for sequence"
            f" {row}"
        )
    inside = torch.arange(steps, device=states.device) < ends[:, None].to(states.device)
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
        found = float(packed[row, step, column])
        what = "missing" if np.isnan(found) else f"{found:g}"
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


def _warn_scale(packed: Tensor, names: tuple[str, ...]) -> None:
    states = packed[..., :-1][~packed[..., 0].isnan()]
    spread = states.std(0, correction=0)
    odd = ~((spread >= SCALES[0]) & (spread <= SCALES[1]))
    if odd.any():
        shown = ", ".join(
            f"{names[int(i)]} ({float(spread[i]):.2g})" for i in odd.nonzero().ravel()[:10]
        )
        warnings.warn(
            "columns of the state with a standard deviation outside "
            f"{SCALES[0]:g} to {SCALES[1]:g}: {shown}; the priors of the "
            "weights are meant for standardised columns",
            FeatureScaleWarning,
            stacklevel=5,
        )


def _from_frame(frame: Any, num_features: int) -> tuple[Tensor, tuple[str, ...]]:
    """One row a step -> packed; sequences in order of their first row."""
    given = [str(name) for name in frame.columns]
    features = [name for name in frame.columns if str(name) not in COLUMNS]
    if "action" not in given or len(features) != num_features or len(set(given)) != len(given):
        raise ValueError(
            f"data: columns sequence, time, action and {num_features} of the state were expected,"
            f" got {', '.join(given)}"
        )
    frame = with_places(frame)
    if not len(frame):
        raise ValueError("data: at least one row was expected, got none")
    check_present(frame, COLUMNS[:2])
    columns = {}
    for name in (*COLUMNS[1:], *features):
        try:
            columns[name] = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"data: column {str(name)!r}: numbers were expected ({error})"
            ) from error
    order_of: dict[Any, int] = {}
    sequence = np.array(
        [order_of.setdefault(key, len(order_of)) for key in frame["sequence"].tolist()],
        dtype=np.int64,
    )
    order = np.lexsort((columns["time"], sequence))
    sequence, time = sequence[order], columns["time"][order]
    gap = np.flatnonzero((sequence[1:] == sequence[:-1]) & (np.diff(time) != 1))
    if len(gap):
        at = int(gap[0])
        raise ValueError(
            "data: times of a sequence must follow each other by 1; sequence"
            f" {list(order_of)[sequence[at]]!r} goes from {time[at]:g} to {time[at + 1]:g}: cut it"
            " there, or give the steps between with an empty action"
        )
    lengths = np.bincount(sequence)
    step = np.arange(len(sequence)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    state = np.zeros((len(lengths), int(lengths.max()), num_features))
    action = np.full(state.shape[:2], np.nan)
    state[sequence, step] = np.stack([columns[name] for name in features], -1)[order]
    action[sequence, step] = columns["action"][order]
    return _packed(state, action, lengths, num_features), (
        *(str(name) for name in features),
        "action",
    )
