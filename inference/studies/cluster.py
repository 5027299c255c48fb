"""Jobs on the workers of a dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from inference.studies.processes import lost
from inference.studies.work import Finished, Task, work

RETRIES = 2  # of a job whose worker raised what the job did not


def check_scheduler(scheduler: Any) -> None:
    """A scheduler is an address or a ``dask.distributed.Client``.

    Raises:
        ValueError: for something else, or if dask is not installed.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ValueError(
            "run_jobs: scheduler needs dask, which is not installed: pip install"
            ' "ppl-models[cluster]"'
        ) from error
    is_address = isinstance(scheduler, str) and "://" in scheduler
    if not is_address and not isinstance(scheduler, Client):
        raise ValueError(
            'run_jobs: scheduler must be an address such as "tcp://host:8786" or a'
            f" dask.distributed.Client, got {scheduler!r}"
        )


def on_cluster(
    function: Callable[..., Any], tasks: list[Task], dtype: torch.dtype, scheduler: Any
) -> Iterator[Finished]:
    """Run the tasks on a cluster, yielded as they end; a dead worker is replaced by others.

    Raises:
        ValueError: if there is no scheduler at the address.
    """
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
