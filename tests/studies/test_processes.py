"""Which jobs are run again, and which are given up, when processes die."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from joblib.externals.loky.process_executor import BrokenProcessPool, TerminatedWorkerError

from inference.studies import run as workers
from inference.studies.work import Finished, Task

TASKS = [Task(f"{i}", {}) for i in range(7)]


class Pool:
    """Hands three tasks over at a time; those of ``killers`` end the pool as often as is said
    there.
    """

    def __init__(self, killers: dict[str, int]) -> None:
        self.killers, self.begun, self.alone = Counter(killers), Counter[str](), set[str]()

    def __call__(
        self, function: Any, tasks: list[Task], dtype: torch.dtype, workers: int, running: set[str]
    ) -> Iterator[Finished]:
        left = list(tasks)
        if len(left) == 1:
            self.alone.add(left[0].name)
        handed: list[Task] = []
        while left or handed:
            while left and len(handed) < 3:
                handed.append(left.pop(0))
                running.add(handed[-1].name)
                self.begun[handed[-1].name] += 1
            for task in handed:
                if self.killers[task.name]:
                    self.killers[task.name] -= 1
                    raise TerminatedWorkerError("killed")
            yield Finished(handed.pop(0).name)


def run(monkeypatch: pytest.MonkeyPatch, pool: Pool) -> list[Finished]:
    monkeypatch.setattr(workers, "_pool", pool)
    return list(workers.in_processes(lambda: None, TASKS, torch.float64, 3))


def test_one_death_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool({"3": 1})
    done = run(monkeypatch, pool)
    assert sorted(one.name for one in done) == [task.name for task in TASKS]
    assert all(one.error is None for one in done)
    assert pool.begun == {
        "0": 1,
        "1": 2,
        "2": 2,
        "3": 2,
        "4": 1,
        "5": 1,
        "6": 1,
    }  # those that ran beside it, and no other, again


def test_the_job_that_ends_its_process_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool({"3": 100})
    done = {one.name: one for one in run(monkeypatch, pool)}
    assert len(done) == len(TASKS)
    assert [name for name, one in done.items() if one.error is not None] == ["3"]
    assert "ended 4 times before the job did" in (done["3"].error or "")
    assert pool.begun["3"] == 4
    assert "3" in pool.alone


def test_processes_that_die_whatever_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        RuntimeError,
        match=(
            "the processes of 3 jobs ended before their jobs did, 4 times each, and no job was"
            " finished"
        ),
    ):
        run(monkeypatch, Pool({task.name: 100 for task in TASKS}))


def test_a_function_that_no_process_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def pool(*arguments: Any) -> Iterator[Finished]:
        raise BrokenProcessPool("A task has failed to un-serialize") from ModuleNotFoundError(
            "No module named 'mine'"
        )
        yield

    monkeypatch.setattr(workers, "_pool", pool)
    with pytest.raises(
        ValueError, match="cannot be read in another process.*No module named 'mine'"
    ):
        list(workers.in_processes(lambda: None, TASKS, torch.float64, 3))
