"""Workers of jobs: processes of one machine, by joblib, or a dask cluster.

A process that dies loses no job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from inference.studies.work import Finished, Task, work
from ppl_models.parts.validation import installed

# deaths of processes that a job may be near to: beside other jobs, and then by itself
TOGETHER, ALONE = 2, 2
RETRIES = 2  # of a job whose worker on a cluster raised what the job did not
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


def check_scheduler(scheduler: Any) -> None:
    """Refuse a scheduler that is neither an address nor a ``dask.distributed.Client``."""
    with installed("run_jobs: scheduler", "cluster"):
        from distributed import Client
    is_address = isinstance(scheduler, str) and "://" in scheduler
    if not is_address and not isinstance(scheduler, Client):
        raise ValueError(
            'run_jobs: scheduler must be an address such as "tcp://host:8786" or a'
            f" dask.distributed.Client, got {scheduler!r}"
        )


def on_cluster(
    function: Callable[..., Any], tasks: list[Task], dtype: torch.dtype, scheduler: Any
) -> Iterator[Finished]:
    """Run the tasks on a cluster, yielded as they end; a dead worker is replaced by others."""
    from distributed import Client, KilledWorker, as_completed

    is_own = isinstance(scheduler, str)
    if is_own:
        try:
            client = Client(scheduler, timeout=30)
        except OSError as error:
            raise ValueError(
                f"run_jobs: no scheduler answers at {scheduler}: start one with `dask scheduler`"
                f" ({error})"
            ) from error
    else:
        client = scheduler
    try:
        futures = client.map(
            _one, tasks, function=function, dtype=dtype, retries=RETRIES, pure=False
        )
        names = {future.key: task.name for future, task in zip(futures, tasks, strict=True)}
        try:
            for future in as_completed(futures):
                failure = future.exception()
                if failure is None:
                    yield future.result()
                elif isinstance(failure, KilledWorker):
                    yield lost(names[future.key], failure.allowed_failures + 1)
                else:
                    yield Finished(names[future.key], error=f"{type(failure).__name__}: {failure}")
                future.release()
        finally:
            client.cancel(futures)
    finally:
        if is_own:
            client.close()


def _one(task: Task, function: Callable[..., Any], dtype: torch.dtype) -> Finished:
    return work(function, task, dtype)
