"""Jobs in processes of one machine, by joblib; a process that dies loses no job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from inference.studies.work import Finished, Task, work

TOGETHER, ALONE = (
    2,
    2,
)  # deaths of processes that a job may be near to: beside other jobs, and then by itself
MOST_LOST = 3  # jobs given up with none finished: then it is not the jobs


def lost(name: str, times: int) -> Finished:
    """A job whose process ended each time."""
    return Finished(
        name,
        error=(
            f"the process that ran this job ended {times} times before the job did: ended by the"
            " system, most often for want of memory, or crashed below Python"
        ),
    )


def in_processes(
    function: Callable[..., Any], tasks: list[Task], dtype: torch.dtype, workers: int
) -> Iterator[Finished]:
    """Run the tasks in processes, yielded as they end.

    joblib ends all its processes where one dies, and does not say which job that one ran. So jobs
    that were running then are run again with the others; those that were running twice when a
    process died are run at the end, each alone, which shows whose fault it is.

    Raises:
        RuntimeError: where processes die whatever they run.
        ValueError: for a function or arguments that no other process can read.
    """
    from joblib.externals.loky.process_executor import BrokenProcessPool, TerminatedWorkerError

    left, deaths = {task.name: task for task in tasks}, Counter[str]()
    num_done = num_lost = 0
    while left:
        some = [task for task in left.values() if deaths[task.name] < TOGETHER] or list(
            left.values()
        )[:1]
        running: set[str] = set()
        try:
            for done in _pool(function, some, dtype, workers, running):
                running.remove(done.name)
                del left[done.name]
                num_done += 1
                yield done
        except TerminatedWorkerError:
            deaths.update(running)
        except BrokenProcessPool as error:
            raise ValueError(
                "run_jobs: the function or its arguments cannot be read in another process, where"
                " what they are made of must be importable: define the function in a module that"
                " is installed or lies on PYTHONPATH, or in the script itself"
                f" ({error.__cause__ or error})"
            ) from error
        for name in [name for name in left if deaths[name] >= TOGETHER + ALONE]:
            del left[name]
            num_lost += 1
            yield lost(name, deaths[name])
        if num_lost >= MOST_LOST and not num_done:
            raise RuntimeError(
                f"run_jobs: the processes of {num_lost} jobs ended before their jobs did,"
                f" {TOGETHER + ALONE} times each, and no job was finished; workers=1 runs the jobs"
                " in this process, and shows what is the matter"
            )


def _pool(
    function: Callable[..., Any],
    tasks: list[Task],
    dtype: torch.dtype,
    workers: int,
    running: set[str],
) -> Iterator[Finished]:
    """Run the tasks in fresh or idle processes; ``running`` takes names of handed-over ones."""
    from joblib import Parallel, delayed

    def handed_over() -> Iterator[Any]:
        for task in tasks:
            running.add(task.name)
            yield delayed(work)(function, task, dtype)

    num = max(2, workers)  # one would be this process itself
    results = Parallel(
        n_jobs=num, backend="loky", return_as="generator_unordered", batch_size=1, pre_dispatch=num
    )(handed_over())
    try:
        yield from results
    finally:
        results.close()
