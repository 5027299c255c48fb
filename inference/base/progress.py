"""Progress of long work, on standard error: a bar on a terminal, one line a minute in a file."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from inference.base.streaming.processes import Processes
from ppl_models.parts.validation import installed

LINE_EVERY, BAR_EVERY = (
    60.0,
    0.1,
)  # seconds between two lines of a file, and between two looks of a bar
REMEMBERED = 200  # latest iterations from which the rest is foreseen
LEAST_REMEMBERED = 5


@dataclass(frozen=True)
class Iteration:
    """Iteration of an engine, as the function ``on_iteration`` of :func:`inference.fit` gets it.

    Args:
        engine: its class, such as "EM"; of an engine that begins with another one, that one first.
        iteration: how many are done: of EM, steps; of OnlineEM, batches; of SVI, gradient steps; of
            NUTS, transitions of the slowest chain, those of the warm-up first.
        objective: of the best restart, by the engine's own measure: where it works in standard
            units, off by a constant.
        num_running: restarts (chains) that still run.
        gap: how far the slowest of them is from convergence, which it reaches below 1; None where
            the engine's rule is no such ratio.
        batch: of a search over starts, whose iterations go on counting: 0, 1, ...; None elsewhere.
    """

    engine: str
    iteration: int
    objective: float
    num_running: int
    gap: float | None = None
    batch: int | None = None


OnIteration = Callable[[Iteration], bool | None]


class Progress(Protocol):
    """Progress of an engine: its protocol.

    An engine that finds ``stopped`` true ends after the iteration at hand, of which it does one at
    least, with what it has by then.

    ``gap`` is how far the slowest restart is from stopping by the engine's own rule: its change
    over the change at which it stops, so that it stops below 1; None where a rule cannot be said
    so.
    """

    @property
    def stopped(self) -> bool: ...

    def update(
        self,
        iteration: int,
        objective: float,
        active: int,
        gap: float | None = None,
        engine: str = "",
        batch: int | None = None,
    ) -> None: ...

    def __enter__(self) -> Progress: ...

    def __exit__(self, *error: object) -> None: ...


class NoProgress:
    """Progress that reports nothing."""

    stopped = False

    def update(self, *_: Any, **__: Any) -> None: ...

    def doing(self, what: str) -> None: ...

    def __enter__(self) -> NoProgress:
        return self

    def __exit__(self, *error: object) -> None: ...


class CalledProgress:
    """Progress that calls a function after every iteration, which may stop the fit.

    Args:
        shown: progress that is told the same.
        on_iteration: the function; True stops.
        engine: of the fit.
        processes: of a shared fit, of which the first decides for all.
    """

    def __init__(
        self, shown: Progress, on_iteration: OnIteration, engine: str, processes: Processes
    ) -> None:
        self.shown, self.on_iteration, self.engine = shown, on_iteration, engine
        self.processes, self.stopped = processes, False

    def update(
        self,
        iteration: int,
        objective: float,
        active: int,
        gap: float | None = None,
        engine: str = "",
        batch: int | None = None,
    ) -> None:
        self.shown.update(iteration, objective, active, gap)
        if self.stopped:
            return
        own = Iteration(engine or self.engine, iteration, objective, active, gap, batch)
        answer = self.on_iteration(own)
        if not (answer is None or isinstance(answer, bool | np.bool_)):
            raise ValueError(
                "on_iteration: a function that returns True, False or None was expected, got"
                f" {answer!r}"
            )
        self.stopped = bool(self.processes.from_first(bool(answer)))

    def __enter__(self) -> CalledProgress:
        self.shown.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.shown.__exit__(*error)


class TimeLeft:
    r"""Time left of iterative work, from the rate of convergence.

    Engines that stop when a change is small shrink it by about the same factor in every iteration,
    so that :math:`\log` gap falls along a line; the line through the latest iterations says where
    it reaches 0. Where there is none, the largest number of iterations says when it ends at the
    latest.

    Args:
        total: the most iterations there can be, None if unknown.
    """

    def __init__(self, total: int | None) -> None:
        self.total = total
        # iteration, log gap, time
        self._seen: deque[tuple[int, float, float]] = deque(maxlen=REMEMBERED)
        self._active = 0

    def saw(self, iteration: int, active: int, gap: float | None, now: float) -> None:
        """Record an iteration; one that falls, or has more restarts, begins a new run."""
        if self._seen and (iteration <= self._seen[-1][0] or active > self._active):
            self._seen.clear()
        self._active = active
        self._seen.append(
            (
                iteration,
                math.log(gap) if gap is not None and 0.0 < gap < math.inf else math.nan,
                now,
            )
        )

    def last_iteration(self) -> tuple[int | None, bool]:
        """Last iteration of the run, None if unknown, and whether it was foreseen."""
        points = [
            (float(iteration), gap) for iteration, gap, _ in self._seen if not math.isnan(gap)
        ]
        # the end of the course is straighter than its beginning
        points = points[-max(LEAST_REMEMBERED, len(points) // 2) :]
        if len(points) >= LEAST_REMEMBERED:
            middle, height = (sum(part) / len(points) for part in zip(*points, strict=True))
            spread = sum((x - middle) ** 2 for x, _ in points)
            slope = sum((x - middle) * (y - height) for x, y in points) / spread
            if slope < 0.0:
                end = max(points[-1][0] + 1.0, middle - height / slope)
                if self.total is None or end < self.total:
                    return math.ceil(min(end, 1e12)), True
        return self.total, False

    def seconds(self) -> float | None:
        """Seconds to the last iteration at the speed of the latest ones; None if unknown."""
        last, _ = self.last_iteration()
        if last is None or len(self._seen) < 2:
            return None
        (first, _, began), (now, _, ended) = self._seen[0], self._seen[-1]
        return max(0.0, (last - now) * (ended - began) / (now - first))

    def text(self) -> str:
        """Time left in words; "" if unknown."""
        seconds = self.seconds()
        if seconds is None:
            return ""
        return f"{'about' if self.last_iteration()[1] else 'at most'} {in_words(seconds)} left"


def in_words(seconds: float) -> str:
    """Duration in words, in one unit that suits it."""
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 3 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


class RichProgress:
    """Progress bar on a terminal; elsewhere one line a minute and one at the end.

    Args:
        label: what is being done.
        total: the most iterations there can be, None if unknown; of several pieces of work, their
            number.
        in_iterations: whether an engine iterates (iteration, objective, restarts still running), or
            pieces of work are done one by one.
        remark: what the time left is about, where that is not all of the work.
    """

    stopped = False

    def __init__(
        self,
        label: str,
        total: int | None,
        in_iterations: bool = False,
        remark: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        with installed("progress=True", "cli"):
            from rich.console import Console

        self.label, self.total, self.in_iterations, self.remark, self._clock = (
            label,
            total,
            in_iterations,
            remark,
            clock,
        )
        self._console = Console(stderr=True, soft_wrap=True)
        self._left = TimeLeft(total)
        self._began = self._said = clock()
        self._latest: tuple[int, float, int] | None = None
        self._bar: Any = None
        self._piece = ""
        if not in_iterations:
            self._left.saw(0, 0, None, self._began)
        if self._console.is_terminal or self._console.is_jupyter:
            from rich.progress import BarColumn, Progress as Bar, TextColumn, TimeElapsedColumn

            columns = [
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[status]}"),
                TimeElapsedColumn(),
            ]
            self._bar = Bar(*columns, console=self._console)
            self._task = self._bar.add_task(label, total=total, status="")

    def update(
        self,
        iteration: int,
        objective: float,
        active: int,
        gap: float | None = None,
        engine: str = "",
        batch: int | None = None,
    ) -> None:
        now = self._clock()
        self._left.saw(iteration, active if self.in_iterations else 0, gap, now)
        self._latest = iteration, objective, active
        if now - self._said >= (LINE_EVERY if self._bar is None else BAR_EVERY):
            self._said = now
            self._show()

    def doing(self, what: str) -> None:
        """Say which piece of work begins, the one before it being done."""
        self._piece = f", now: {what[:1].lower()}{what[1:]}"
        self.update(0 if self._latest is None else self._latest[0] + 1, math.nan, 0)
        if self._bar is not None:
            self._show()

    def _show(self) -> None:
        iteration, objective, active = self._latest or (0, math.nan, 0)
        if self.in_iterations:
            status = f"iteration {iteration:,}, objective {objective:.4f}, {active:,} running"
        else:
            status = (
                f"{iteration:,} done"
                if self.total is None
                else f"{iteration:,} of {self.total:,} done"
            )
        status += self._piece
        left = self._left.text()
        left = left if self.in_iterations else left.replace("at most", "about")
        status = f"{status}, {left}{self.remark}" if left else status
        if self._bar is None:
            self._console.print(f"{self.label}: {status}", markup=False, highlight=False)
        else:
            self._bar.update(
                self._task, completed=iteration, total=self._left.last_iteration()[0], status=status
            )

    def __enter__(self) -> RichProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._latest is None:
            return
        iteration, objective, _ = self._latest
        took = in_words(self._clock() - self._began)
        done = (
            f"iteration {iteration:,}, objective {objective:.4f}"
            if self.in_iterations
            else f"{iteration:,} done"
        )
        if self._bar is None:
            self._console.print(
                f"{self.label}: {done}, {took} in all", markup=False, highlight=False
            )
        else:
            self._bar.update(self._task, completed=iteration, total=iteration, status=done)
            self._bar.stop()
