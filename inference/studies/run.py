"""Many jobs of one kind, each done once: their folder, and the processes that do them."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from inference.base.checkpoint import read_tensors, usable_path, write_tensors, write_whole
from inference.base.progress import NoProgress, RichProgress
from inference.fitting.storage import unpack
from inference.studies.records import JobResult, JobResults, in_short
from inference.studies.work import Finished, Task, tasks_of, work
from ppl_models.parts.validation import check_flag, check_size, installed


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
