"""Pairs of neighbouring steps of sequences, which show one move of a loop for all times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ppl_models.data.tables import Columns, map_tensors


@dataclass(frozen=True)
class Layout:
    """Layout of sequences and time in the data of a program.

    Tensors of both axes are sequences; those of one value a sequence, or one a step for all
    sequences, stand beside them; all others are constants.

    Args:
        has_rows: whether there is a plate over sequences; one sequence alone has an axis of time
            and no other.
        time: the axis of time, 0 or 1; that of sequences is the other one.
        counts_steps: whether whole numbers of one value a sequence count steps, as lengths do: seen
            from step t there are t fewer.
    """

    has_rows: bool
    time: int
    counts_steps: bool

    def sizes(self, data: Any) -> tuple[int, int] | None:
        """Numbers of sequences (1 without a plate) and steps; None where data have no such axes."""
        for table in _tensors(data):
            if table.dim() > int(self.has_rows):
                return (table.shape[1 - self.time] if self.has_rows else 1), table.shape[self.time]
        return None

    def begin(self, data: Any, num_steps: int) -> Any:
        """First steps of all sequences."""
        return self._each(
            data, lambda x: x.narrow(self.time, 0, num_steps), lambda x: x, lambda x: x[:num_steps]
        )

    def first(self, data: Any) -> Any:
        """First step of all sequences, laid out as :meth:`pairs`."""
        return self._each(
            data,
            lambda x: x.narrow(self.time, 0, 1) if self.has_rows else x[:1].unsqueeze(1),
            lambda x: x,
            lambda x: x[:1],
        )

    def pairs(self, data: Any) -> Any:
        """Pairs of neighbouring steps in the place of sequences; data of two steps."""
        sizes = self.sizes(data)
        assert sizes is not None
        num_rows, num_moves = sizes[0], sizes[1] - 1
        row, step = (
            torch.arange(num_rows).repeat_interleave(num_moves),
            torch.arange(num_moves).repeat(num_rows),
        )

        def of_sequences(x: Tensor) -> Tensor:
            if not self.has_rows:
                return torch.stack([x[:-1], x[1:]])
            return torch.stack(
                [x[row, step + k] if self.time == 1 else x[step + k, row] for k in (0, 1)],
                self.time,
            )

        def of_rows(x: Tensor) -> Tensor:
            window = x[row]
            if not self.counts_steps or x.is_floating_point() or x.dtype is torch.bool:
                return window
            return window - step.to(window.device).reshape(-1, *(1,) * (window.dim() - 1))

        return self._each(
            data, of_sequences, of_rows, lambda x: torch.stack([x[step], x[step + 1]])
        )

    def _each(
        self,
        data: Any,
        of_sequences: Callable[[Tensor], Tensor],
        of_rows: Callable[[Tensor], Tensor],
        of_steps: Callable[[Tensor], Tensor],
    ) -> Any:
        sizes = self.sizes(data)

        def change(x: Tensor) -> Tensor:
            if sizes is None or x.dim() == 0:
                return x
            if not self.has_rows:
                return of_sequences(x) if len(x) == sizes[1] else x
            if x.dim() > 1 and (x.shape[1 - self.time], x.shape[self.time]) == sizes:
                return of_sequences(x)
            return of_rows(x) if len(x) == sizes[0] else of_steps(x) if len(x) == sizes[1] else x

        return map_tensors(change, data)


def layouts(data: Any, num_rows: int | None) -> Iterator[Layout]:
    """Layouts that data may have, of latents in a plate of so many sequences, or of none."""
    for time in (0,) if num_rows is None else (1, 0):
        for counts_steps in (
            (False, True) if num_rows is not None and _has_counts(data, num_rows) else (False,)
        ):
            layout = Layout(num_rows is not None, time, counts_steps)
            sizes = layout.sizes(data)
            if sizes is not None and sizes[0] == (num_rows or 1):
                yield layout


def _has_counts(data: Any, num_rows: int) -> bool:
    return any(
        x.dim() > 0
        and len(x) == num_rows
        and not x.is_floating_point()
        and x.dtype is not torch.bool
        for x in _tensors(data)
    )


def _tensors(data: Any) -> list[Tensor]:
    if isinstance(data, Tensor):
        return [data]
    return (
        [x for x in data.values() if isinstance(x, Tensor)]
        if isinstance(data, dict | Columns)
        else []
    )
