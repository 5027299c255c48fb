"""A study on disk: one file a finished job, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from inference.base.checkpoint import read_tensors, usable_path, write_tensors, write_whole
from inference.studies.records import in_short
from inference.studies.work import Finished, Task

FORMAT = 1


class StudyFolder:
    """Files named by the digests of their jobs.

    ``<name>.json`` holds what a job returned, ``<name>.safetensors`` the same where it has tensors,
    ``<name>.failed.json`` the error of a job that failed. The calling process alone writes, so that
    workers need not share a disk with it.

    Args:
        path: of the folder, which is made if there is none.

    Raises:
        ValueError: for a path that cannot be written, or is a file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = usable_path("run_jobs", path, is_folder=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other calls out, which would do the same jobs; a process that dies lets go.

        Raises:
            ValueError: if another call is at work in the folder.
        """
        from filelock import FileLock, Timeout

        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise ValueError(
                f"run_jobs: another call is at work in the folder {self.path}: wait until it has"
                " ended, or name another folder"
            ) from error
        try:
            yield
        finally:
            lock.release()

    def find(self, task: Task) -> Finished | None:
        """Return the result of an earlier call, None if the job was not finished.

        Raises:
            ValueError: for a file that is not as it was written.
        """
        plain, rich = self.path / f"{task.name}.json", self.path / f"{task.name}.safetensors"
        if rich.exists():
            tensors, record = read_tensors(rich)
        elif plain.exists():
            tensors = {}
            try:
                record = json.loads(plain.read_text(encoding="utf-8"))
            except ValueError as error:
                raise ValueError(
                    f"run_jobs: {plain} is damaged ({error}): remove it, and the job is run again"
                ) from error
        else:
            return None
        try:
            if record["format"] != FORMAT or record["name"] != task.name:
                raise KeyError("format")
            return Finished(
                task.name,
                record["value"],
                tensors,
                tuple(record["arrays"]),
                None,
                None,
                record["seconds"],
                tuple(record["warnings"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"run_jobs: {rich if rich.exists() else plain} was not written by this version of"
                " the library: remove it, and the job is run again"
            ) from error

    def keep(self, task: Task, done: Finished) -> None:
        """Write what a job gave.

        Raises:
            OSError: where the disk does not take it.
        """
        failed = self.path / f"{task.name}.failed.json"
        record: dict[str, Any] = {
            "format": FORMAT,
            "name": task.name,
            "arguments": in_short(task.arguments),
            "torch": torch.__version__,
        }
        record |= {"seconds": done.seconds, "warnings": done.warnings}
        if done.error is not None:
            write_whole(
                failed,
                json.dumps(record | {"error": done.error, "traceback": done.traceback}, indent=1),
            )
            return
        record |= {"value": done.value, "arrays": done.arrays}
        if done.tensors:
            write_tensors(self.path / f"{task.name}.safetensors", done.tensors, record)
        else:
            write_whole(self.path / f"{task.name}.json", json.dumps(record, indent=1))
        failed.unlink(missing_ok=True)
