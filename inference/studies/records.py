"""Records of jobs and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inference.base.frames import pd
from ppl_models.parts.repr import shown, shows_briefly


def in_short(arguments: Mapping[str, Any]) -> str:
    """Arguments of a job on one line, such as ``seed=3, size=8``."""
    return ", ".join(f"{name}={shown(value)}" for name, value in arguments.items())


@shows_briefly
@dataclass(frozen=True, eq=False)
class JobResult:
    """One job.

    Args:
        arguments: what the function was called with.
        value: what it returned; None where it failed.
        error: what went wrong, in a line; None where nothing did. traceback: where in the code.
        seconds: on the clock.
        warnings: what the job warned of.
        name: of its file, a digest of the function and its arguments.
        was_done: whether an earlier call had finished it, so that it was read from the folder.
    """

    arguments: Mapping[str, Any]
    value: Any
    error: str | None
    traceback: str | None
    seconds: float
    warnings: tuple[str, ...]
    name: str
    was_done: bool


@dataclass(frozen=True, eq=False, repr=False)
class JobResults:
    """All jobs of a study, in the order in which they were asked for.

    Args:
        jobs: one result a job.
    """

    jobs: tuple[JobResult, ...]

    def __repr__(self) -> str:
        failed, old = len(self.failed), sum(job.was_done for job in self.jobs)
        text = f"{len(self.jobs)} jobs: {len(self.jobs) - failed} finished"
        text += f" ({old} of them by an earlier call)" if old else ""
        if not failed:
            return f"{text}, none failed"
        first = self.failed[0]
        return (
            f"{text}, {failed} failed; the first of these, {in_short(first.arguments)}, with"
            f" {first.error}"
        )

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def failed(self) -> tuple[JobResult, ...]:
        """The jobs that raised an error."""
        return tuple(job for job in self.jobs if job.error is not None)

    @property
    def values(self) -> list[Any]:
        """Values that the jobs returned.

        Raises:
            ValueError: if a job failed; ``jobs`` has what the others returned.
        """
        if self.failed:
            first = self.failed[0]
            raise ValueError(
                f"values: {len(self.failed)} of {len(self.jobs)} jobs failed, the first of these,"
                f" {in_short(first.arguments)}, with {first.error}; .jobs has what the others"
                " returned, and the same call runs the failed ones again"
            )
        return [job.value for job in self.jobs]

    @property
    def table(self) -> pd.DataFrame:
        """One line a job: arguments, returned value, seconds and error.

        One column an entry where a dict was returned.
        """
        lines = []
        for job in self.jobs:
            entries = {} if job.value is None else {"value": job.value}
            entries = job.value if isinstance(job.value, dict) else entries
            lines.append({**job.arguments, **entries, "seconds": job.seconds, "error": job.error})
        return pd.DataFrame(lines)
