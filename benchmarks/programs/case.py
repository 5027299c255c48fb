"""One published program, its source, and small simulated data for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Case:
    """Published program.

    Args:
        name: of the program; source: where its shape is from.
        program: the callable.
        data: makes what ``fit`` takes as data; kwargs: its settings.
        refused: whether no engine can fit it, and a refusal is the right answer.
    """

    name: str
    source: str
    program: Callable[..., Any]
    data: Callable[[], Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    refused: bool = False


def seeded(number: int) -> None:
    torch.manual_seed(number)
