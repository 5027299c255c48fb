"""Checks of a constructor's and a function's arguments, and their messages."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

LARGEST = 2**63 - 1  # of a count or a seed
MOST_DRAWN = 2**31 - 1  # of a seed that is drawn, which offsets are added to

Seed = int | np.random.Generator | torch.Generator | None


def is_integer(value: Any, least: int = 1) -> bool:
    """Tell whether a value is an integer, Python's or NumPy's, of at least ``least``."""
    return (
        isinstance(value, int | np.integer)
        and not isinstance(value, bool)
        and bool(least <= value <= LARGEST)
    )


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite number, Python's or NumPy's; True and False are not."""
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


def as_seed(owner: str, seed: Seed) -> int:
    """Seed as a number: itself, drawn from a generator, or, of None, fresh from the system.

    Args:
        owner: the caller, for the message.
        seed: an integer of at least 0, a generator of NumPy or torch, or None.
    """
    if seed is None:
        return int(np.random.default_rng().integers(MOST_DRAWN))
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(MOST_DRAWN))
    if isinstance(seed, torch.Generator):
        drawn = torch.randint(MOST_DRAWN, (), generator=seed, device=seed.device)
        return int(drawn)
    if not is_integer(seed, least=0):
        raise ValueError(
            f"{owner}: seed must be a non-negative integer below 2**63, a generator of NumPy or"
            f" torch, or None for a fresh one, got {seed!r}"
        )
    return int(seed)


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
    """Check ``length`` numbers by :func:`check_number`; a tuple of them."""
    numbers = value.tolist() if isinstance(value, np.ndarray | Tensor) else value
    if not isinstance(numbers, list | tuple) or len(numbers) != length:
        raise ValueError(f"{owner}: {name} must {must}, got {value!r}")
    for number in numbers:
        check_number(owner, name, number, must, **limits)
    return tuple(float(number) for number in numbers)


def check_kind(
    owner: str, name: str, value: Any, kinds: type | tuple[type, ...] | types.UnionType, wanted: str
) -> None:
    """Check that a value is an instance of one of ``kinds``, and not the class itself."""
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


PLAIN = (bool, int, float, str, type(None))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray | Tensor):
        return _plain(value.tolist())  # a number where it has no dims
    if isinstance(value, list) or type(value) is tuple:
        parts = tuple(part if type(part) in PLAIN else _plain(part) for part in value)
        if isinstance(value, tuple) and all(a is b for a, b in zip(parts, value, strict=True)):
            return value
        return parts
    return value


@contextmanager
def installed(owner: str, extra: str) -> Iterator[None]:
    """Imports of an optional library; where it is missing, the error names the extra it is of."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        raise ValueError(
            f'{owner} needs {name}, which is not installed: pip install "ppl-models[{extra}]"'
        ) from error


def check_flag(owner: str, name: str, value: Any) -> None:
    """Check that a value is True or False."""
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
