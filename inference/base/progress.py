"""Progress of long work, on standard error."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["NoProgress", "Progress", "RichProgress"]


class Progress(Protocol):
    """What engines tell while they run."""

    def update(self, iteration: int, objective: float, active: int) -> None: ...

    def __enter__(self) -> Progress: ...

    def __exit__(self, *error: object) -> None: ...


class NoProgress:
    """Says nothing."""

    def update(self, iteration: int, objective: float, active: int) -> None: ...

    def __enter__(self) -> NoProgress:
        return self

    def __exit__(self, *error: object) -> None: ...


class RichProgress:
    """A bar with iteration, objective and the number of restarts still running.

    Args:
        label: what is being done.
        total: the most iterations there can be, None if unknown.
    """

    def __init__(self, label: str, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}"), TimeElapsedColumn()]
        self._bar = Bar(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task(label, total=total, status="")

    def update(self, iteration: int, objective: float, active: int) -> None:
        status = f"iteration {iteration}, objective {objective:.4f}, {active} running"
        self._bar.update(self._task, completed=iteration, status=status)

    def __enter__(self) -> RichProgress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
