"""Data of any kind as tensors, for programs that do not check it themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["as_tensors", "checked", "checks_data", "first_tensor", "map_tensors"]


def as_tensors(data: Any) -> Any:
    """Arrays and data frames, alone or in a dict, as tensors; for programs that do not check their data themselves."""
    if isinstance(data, dict):
        return {name: as_tensors(value) for name, value in data.items()}
    if isinstance(data, Tensor) or not hasattr(data, "__array__"):
        return data
    return torch.from_numpy(np.array(data.to_numpy() if hasattr(data, "to_numpy") else data))  # frames lend read-only arrays


def map_tensors(change: Callable[[Tensor], Tensor], data: Any) -> Any:
    """``change`` applied to a tensor, or to every tensor of a dict."""
    return {name: change(value) for name, value in data.items()} if isinstance(data, dict) else change(data)


def first_tensor(data: Any) -> Any:
    """The table, or the first tensor of a dict: its length is the number of rows."""
    return next(iter(data.values())) if isinstance(data, Mapping) else data


def checks_data(model: Callable[..., Any]) -> bool:
    """Whether a model checks its data itself, row by row; others take whatever they take."""
    return callable(getattr(model, "check_data", None))


def checked(model: Callable[..., Any], data: Any, for_fit: bool = False) -> tuple[Any, tuple[str, ...]]:
    """Data as tensors, by the model's own rules where it has them, and the names of its items, () where it is no table.

    Args:
        model: the program; data: what it takes.
        for_fit: whether a fit is to follow, which asks more of the data than a question to a fit.

    Raises:
        ValueError: if the model refuses the data.
    """
    if not checks_data(model):
        return as_tensors(data), ()
    tensors, names = model.check_data(data) if for_fit else model.check_data(data, for_fit=False)  # type: ignore[attr-defined]
    return tensors, tuple(names)
