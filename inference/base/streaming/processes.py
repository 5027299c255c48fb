"""Collective operations of a distributed fit (torch.distributed); no-ops in one process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from inference.programs.program import Params


class LostProcessError(ConnectionError):
    """Error: another process of the fit has ended, or cannot be reached."""


@dataclass(frozen=True, eq=False)
class Processes:
    """Process group of one shared fit.

    Args:
        group: of ``torch.distributed``; None for this process alone.
    """

    group: Any = None

    @property
    def size(self) -> int:
        """Number of processes."""
        return 1 if self.group is None else int(torch.distributed.get_world_size(self.group))

    @property
    def rank(self) -> int:
        """Rank of this process, from 0."""
        return 0 if self.group is None else int(torch.distributed.get_rank(self.group))

    @property
    def _device(self) -> torch.device:
        is_nccl = self.group is not None and torch.distributed.get_backend(self.group) == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if is_nccl else torch.device("cpu")

    @property
    def _first(self) -> int:
        """Global rank of process 0 of the group."""
        return (
            int(torch.distributed.get_global_rank(self.group, 0)) if self.group is not None else 0
        )

    def gathered(self, value: Any) -> list[Any]:
        """Gather values of all processes, in the order of their ranks."""
        if self.group is None:
            return [value]
        out: list[Any] = [None] * self.size
        self._told(lambda: torch.distributed.all_gather_object(out, value, group=self.group))
        return out

    def from_first(self, value: Any) -> Any:
        """Broadcast a value from process 0."""
        if self.group is None:
            return value
        held = [value]
        self._told(
            lambda: torch.distributed.broadcast_object_list(held, src=self._first, group=self.group)
        )
        return held[0]

    def total(self, message: Tensor) -> Tensor:
        """Sum of one flat double-precision message over processes."""
        if self.group is None:
            return message
        sent = message.to(self._device)
        self._told(lambda: torch.distributed.all_reduce(sent, group=self.group))
        return sent.to(message.device)

    def params_of_first(self, params: Params) -> Params:
        """Broadcast parameters from process 0, so that processes cannot diverge."""
        if self.group is None:
            return params
        flat = torch.cat(
            [value.detach().double().flatten().to(self._device) for value in params.values()]
        )
        self._told(lambda: torch.distributed.broadcast(flat, src=self._first, group=self.group))
        parts = flat.split([value.numel() for value in params.values()])
        return {
            name: part.reshape(value.shape).to(value)
            for (name, value), part in zip(params.items(), parts, strict=True)
        }

    def refuse(self, errors: Sequence[str | None], is_input: bool = True) -> None:
        """Raise the first of the errors of all processes, in each of them.

        Args:
            errors: by process, None where all is well.
            is_input: whether it is the data's or the caller's fault.
        """
        for rank, words in enumerate(errors):
            if words is not None:
                text = words if self.size == 1 else f"process {rank} of {self.size}: {words}"
                raise ValueError(text) if is_input else RuntimeError(text)

    def agree(self, what: str, value: str) -> None:
        """Refuse processes whose value is not that of the first.

        Args:
            what: it is, in words; value: a digest or description of it.
        """
        values = self.gathered(value)
        for rank, other in enumerate(values):
            if other != values[0]:
                raise ValueError(
                    f"RowBlocks: {what} must be the same in all {self.size} processes, and process"
                    f" {rank} has another than process 0"
                )

    def _told(self, tell: Any) -> None:
        try:
            tell()
        except RuntimeError as error:
            raise LostProcessError(
                f"process {self.rank} of {self.size} lost another process of this fit: it was"
                " killed, ran out of memory, or its machine cannot be reached. Look at what the"
                " others printed; called again with the same checkpoint, the fit goes on from its"
                f" last one ({str(error).splitlines()[0]})"
            ) from error


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
    """Flatten all sums of a record into one vector in double precision.

    Raises:
        ValueError: for a record that holds rows and not only sums.
    """
    tensors = list(_tensors(statistics))
    if tensors:
        return torch.cat([value.detach().double().flatten() for value in tensors])
    return torch.zeros(0, dtype=torch.float64)


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
    """Replace the sums of a record by numbers listed as by :func:`numbers_of`."""
    filled, rest = _filled(like, numbers)
    if len(rest):
        raise ValueError(
            f"a message of {len(numbers) - len(rest)} numbers was expected, got {len(numbers)}"
        )
    return cast("S", filled)


def _filled(like: Any, numbers: Tensor) -> tuple[Any, Tensor]:
    if isinstance(like, Tensor):
        return numbers[: like.numel()].reshape(like.shape).to(like), numbers[like.numel() :]
    entries: dict[str, Any] = {}
    for name, value in (
        like.items() if isinstance(like, dict) else _summed(like) if is_dataclass(like) else ()
    ):
        entries[name], numbers = _filled(value, numbers)
    if isinstance(like, dict):
        return entries, numbers
    return (replace(like, **entries) if entries else like), numbers
