"""A study of many small fits: on one core, in processes (joblib) and on a local dask cluster; with
a worker killed, and with the whole study killed and called again.

Each job draws a data set and fits a mixture of two groups to it. ``same`` says whether every number
is that of the run on one core, bit for bit. ``begun_twice`` counts jobs that were begun more than
once: where a process was killed, those that it (and, with joblib, the others) had not finished, and
no more. ``lost`` counts jobs without an answer, ``done_twice`` jobs that a call ran although an
earlier one had kept their answer. Seconds are on the clock, the start of processes among them. One
JSON line a way.

Run: ``python benchmarks/studies.py [--fits 200] [--processes 2]``; the lines about dask need the
extra ``cluster``.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from _bench import Lines, command_line, run

from inference import EM, fit
from inference.studies import JobResults, run_jobs
from ppl_models import Mixture, Normal


def job(seed: int, log: str, num_rows: int) -> dict[str, Any]:
    """One data set and its fit; that it was begun is written down, for the count."""
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{seed} {os.getpid()}\n")
    generator = torch.Generator().manual_seed(seed)
    group = torch.randint(2, (num_rows, 1), generator=generator)
    x = 3.0 * group + torch.randn(num_rows, 3, generator=generator, dtype=torch.float64)
    result = fit(Mixture(2, Normal(), 3), x, EM(), num_restarts=4, seed=seed)
    return {"log_likelihood": result.log_likelihood, "params": result.params}


def study(folder: Path, args: argparse.Namespace, **settings: Any) -> JobResults:
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [
        {"seed": seed, "log": str(folder / "begun"), "num_rows": args.rows}
        for seed in range(args.fits)
    ]
    return run_jobs(job, jobs, folder / "study", **settings)


def numbers(results: JobResults) -> list[Any]:
    return [
        (
            None
            if one.error is not None
            else (
                one.value["log_likelihood"],
                {name: value.tolist() for name, value in one.value["params"].items()},
            )
        )
        for one in results.jobs
    ]


def line(
    way: str, results: JobResults, folder: Path, expected: list[Any] | None, seconds: float
) -> dict[str, Any]:
    begun = Counter(
        text.split()[0] for text in (folder / "begun").read_text(encoding="utf-8").splitlines()
    )
    found = numbers(results)
    return {
        "way": way,
        "fits": len(found),
        "seconds": round(seconds, 1),
        "same": expected is None or found == expected,
        "lost": found.count(None),
        "begun_twice": sum(count > 1 for count in begun.values()),
    }


def num_kept(folder: Path) -> int:
    return len(list((folder / "study").glob("*.safetensors")))


@contextmanager
def killing(folder: Path, at: int, victim: Callable[[], int]) -> Iterator[None]:
    """kill -9 of a process once so many jobs are finished."""

    def wait() -> None:
        while num_kept(folder) < at:
            time.sleep(0.02)
        os.kill(victim(), signal.SIGKILL)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    yield
    thread.join()


def last_begun(folder: Path) -> int:
    """The process that began a job last."""
    return int((folder / "begun").read_text(encoding="utf-8").split()[-1])


def timed(call: Callable[[], JobResults]) -> tuple[JobResults, float]:
    began = time.perf_counter()
    return call(), time.perf_counter() - began


def measure(args: argparse.Namespace) -> Lines:
    if args.child is not None:
        study(args.child, args, workers=args.processes)
        return
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        results, seconds = timed(lambda: study(place / "serial", args))
        expected = numbers(results)
        yield line("one core", results, place / "serial", None, seconds)
        results, seconds = timed(lambda: study(place / "joblib", args, workers=args.processes))
        yield line("joblib", results, place / "joblib", expected, seconds)
        with killing(
            place / "joblib killed", args.fits // 2, lambda: last_begun(place / "joblib killed")
        ):
            results, seconds = timed(
                lambda: study(place / "joblib killed", args, workers=args.processes)
            )
        yield line("joblib, a worker killed", results, place / "joblib killed", expected, seconds)
        yield from killed_and_called_again(args, place / "called again", expected)
        yield from on_dask(args, place, expected)


def killed_and_called_again(args: argparse.Namespace, folder: Path, expected: list[Any]) -> Lines:
    """The study in a process of its own, killed with all its workers when a half is done."""
    command = [
        sys.executable,
        __file__,
        "--child",
        str(folder),
        "--fits",
        str(args.fits),
        "--rows",
        str(args.rows),
        "--processes",
        str(args.processes),
    ]
    began = time.perf_counter()
    child = subprocess.Popen(command, start_new_session=True)
    while num_kept(folder) < args.fits // 2 and child.poll() is None:
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    kept = num_kept(folder)
    results = study(folder, args, workers=args.processes)
    found = line(
        "the study killed and called again", results, folder, expected, time.perf_counter() - began
    )
    yield found | {"kept": kept, "done_twice": kept - sum(one.was_done for one in results.jobs)}


def on_dask(args: argparse.Namespace, place: Path, expected: list[Any]) -> Lines:
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        yield {"way": "dask", "skipped": 'dask is not installed: pip install "ppl-models[cluster]"'}
        return
    began = time.perf_counter()
    here = {
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        )
    }
    os.environ.update(here)  # dask's workers read the jobs' function from this folder
    with (
        LocalCluster(
            n_workers=args.processes, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        start = round(time.perf_counter() - began, 1)
        results, seconds = timed(lambda: study(place / "dask", args, scheduler=client))
        yield line("dask", results, place / "dask", expected, seconds) | {"seconds_of_start": start}
        with killing(
            place / "dask killed", args.fits // 2, lambda: last_begun(place / "dask killed")
        ):
            results, seconds = timed(
                lambda: study(place / "dask killed", args, scheduler=cluster.scheduler_address)
            )
        yield line("dask, a worker killed", results, place / "dask killed", expected, seconds)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, threads=1)
    parser.add_argument("--fits", type=int, default=200, help="jobs of the study")
    parser.add_argument("--rows", type=int, default=400, help="of each data set")
    parser.add_argument("--processes", type=int, default=2, help="that share the study")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    run(parser, measure, argv, {"fits": 8, "rows": 50})


if __name__ == "__main__":
    main()
