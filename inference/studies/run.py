"""Many jobs of one kind, each done once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from inference.base.progress import NoProgress, RichProgress
from inference.fitting.storage import unpack
from inference.studies.cluster import check_scheduler, on_cluster
from inference.studies.folder import StudyFolder
from inference.studies.processes import in_processes
from inference.studies.records import JobResult, JobResults, in_short
from inference.studies.work import Finished, Task, tasks_of, work
from ppl_models.parts.validation import check_flag, check_size


def run_jobs(
    function: Callable[..., Any],
    jobs: Sequence[Mapping[str, Any]],
    folder: str | Path | None = None,
    workers: int = 1,
    scheduler: Any = None,
    progress: bool = False,
) -> JobResults:
    """Run a function once for each of many sets of arguments, with the same numbers anywhere.

    On one core, in several processes, or on a cluster.

    With a folder, each job that is finished is a file there, so that a study may be killed at any
    moment: the same call then does what is left. What was done is done again only if the code of
    the function, its arguments or torch's default dtype have changed; a job that failed is run
    again by the next call.

    Each job runs on one thread of torch. Random numbers of torch and of ``np.random`` that it draws
    without a seed of its own come from one that its arguments decide (so do those of Python's
    ``random``, except on a cluster, whose threads draw from it too).

    Args:
        function: returns numbers, texts, None, tensors, arrays, fits and other records of this
            library, and tuples, lists and dicts of such. They are handed back as a file holds them,
            with a folder or without: lists come back as tuples.
        jobs: the arguments of each call, by name, such as ``[{"seed": 0}, {"seed": 1}]``. Jobs with
            equal arguments are done once.
        folder: where finished jobs are kept; None keeps nothing.
        workers: processes on this machine; 1 runs all jobs in this one. A process that dies is
            replaced, and its job is run again.
        scheduler: of a dask cluster in the place of ``workers``: its address, such as
            ``"tcp://host:8786"``, or a ``dask.distributed.Client``.
        progress: show a bar on standard error.

    Returns:
        The results in the order of the jobs. A job that raised an error is among them with its
        error, and ends nothing.

    Raises:
        ValueError: before any work: for jobs that are no arguments of the function, with a folder,
            arguments whose contents cannot be read, or another call that is at work in it; or
            settings out of range; later, for a function that other processes cannot read.
        RuntimeError: where processes die whatever they run.
    """
    jobs = _checked(function, jobs)
    check_size("run_jobs", "workers", workers)
    check_flag("run_jobs", "progress", progress)
    if scheduler is not None:
        if workers != 1:
            raise ValueError(
                f"run_jobs: workers = {workers} are processes of this machine, and scheduler a"
                " cluster: give one of them"
            )
        check_scheduler(scheduler)
    store = None if folder is None else StudyFolder(folder)
    tasks = tasks_of(function, jobs, must_be_read=store is not None)
    with nullcontext() if store is None else store.held():
        earlier = {task.name: store.find(task) for task in tasks} if store is not None else {}
        done = {name: finished for name, finished in earlier.items() if finished is not None}
        old = set(done)
        new = list({task.name: task for task in tasks if task.name not in done}.values())
        named = {task.name: task for task in new}
        with RichProgress("jobs", len(new)) if progress else NoProgress() as bar:
            for finished in _working(function, new, workers, scheduler):
                if store is not None:
                    store.keep(named[finished.name], finished)
                done[finished.name] = finished
                bar.update(len(done) - len(old), objective=0.0, active=1)
    return JobResults(tuple(_result(task, done[task.name], task.name in old) for task in tasks))


def _checked(
    function: Callable[..., Any], jobs: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    if not callable(function):
        raise ValueError(f"run_jobs: function must be callable, got {type(function).__name__}")
    if isinstance(jobs, Mapping | str) or not isinstance(jobs, Sequence):
        raise ValueError(
            'run_jobs: jobs must be a list of dicts of arguments, such as [{"seed": 0},'
            f' {{"seed": 1}}], got {type(jobs).__name__}'
        )
    try:
        signature = inspect.signature(function)
    except ValueError:  # of functions written in C
        signature = None
    for i, job in enumerate(jobs):
        if not isinstance(job, Mapping) or not all(isinstance(name, str) for name in job):
            raise ValueError(
                f"run_jobs: jobs[{i}] must be a dict of arguments by name, got {job!r}"[:300]
            )
        try:
            if signature is not None:
                signature.bind(**job)
        except TypeError as error:
            raise ValueError(
                f"run_jobs: jobs[{i}], {in_short(job)}, are not the arguments of the function,"
                f" which takes {signature}: {error}"
            ) from error
    return [dict(job) for job in jobs]


def _working(
    function: Callable[..., Any], tasks: list[Task], workers: int, scheduler: Any
) -> Iterator[Finished]:
    dtype = torch.get_default_dtype()
    if not tasks:
        return iter(())
    if scheduler is not None:
        return on_cluster(function, tasks, dtype, scheduler)
    if workers > 1:
        return in_processes(function, tasks, dtype, workers)
    return (work(function, task, dtype) for task in tasks)


def _result(task: Task, finished: Finished, was_done: bool) -> JobResult:
    tensors: dict[str, Any] = {
        name: value.numpy() if name in finished.arrays else value
        for name, value in finished.tensors.items()
    }
    value = None if finished.error is not None else unpack(finished.value, tensors)
    return JobResult(
        task.arguments,
        value,
        finished.error,
        finished.traceback,
        finished.seconds,
        finished.warnings,
        task.name,
        was_done,
    )
