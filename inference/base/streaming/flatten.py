"""Sums over rows as one flat message, which processes add up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

S = TypeVar("S")


def _summed(record: Any) -> Iterator[tuple[str, Any]]:
    for field in fields(record):
        value = getattr(record, field.name)
        if "join" in field.metadata and value is not None:
            raise ValueError(
                f"{type(record).__name__}.{field.name} holds every row, and no sum over rows"
            )
        if field.metadata.get("sum", True):
            yield field.name, value


def numbers_of(statistics: Any) -> Tensor:
    """All sums of a record as one vector in double precision; see
    :func:`inference.base.steps.add_statistics`.

    Raises:
        ValueError: for a record that holds rows and not only sums.
    """
    found = list(_tensors(statistics))
    return (
        torch.cat([value.detach().double().flatten() for value in found])
        if found
        else torch.zeros(0, dtype=torch.float64)
    )


def _tensors(statistics: Any) -> Iterator[Tensor]:
    if isinstance(statistics, Tensor):
        yield statistics
    elif isinstance(statistics, dict):
        for value in statistics.values():
            yield from _tensors(value)
    elif is_dataclass(statistics):
        for _, value in _summed(statistics):
            yield from _tensors(value)


def with_numbers(like: S, numbers: Tensor) -> S:
    """The record with other sums, as :func:`numbers_of` lists them."""
    filled, rest = _filled(like, numbers)
    if len(rest):
        raise ValueError(
            f"a message of {len(numbers) - len(rest)} numbers was expected, got {len(numbers)}"
        )
    return cast("S", filled)


def _filled(like: Any, numbers: Tensor) -> tuple[Any, Tensor]:
    if isinstance(like, Tensor):
        return numbers[: like.numel()].reshape(like.shape).to(like), numbers[like.numel() :]
    found: dict[str, Any] = {}
    for name, value in (
        like.items() if isinstance(like, dict) else _summed(like) if is_dataclass(like) else ()
    ):
        found[name], numbers = _filled(value, numbers)
    if isinstance(like, dict):
        return found, numbers
    return (replace(like, **found) if found else like), numbers
