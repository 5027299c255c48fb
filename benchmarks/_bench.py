"""What the benchmarks share: their command line, the lines of JSON they print, clocks
and memory.

A script is its docstring, a function that yields one dict a measurement, and ``main``:
``command_line`` with the options of its own, then ``run``.
"""

from __future__ import annotations

import argparse
import json
import resource
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from inference.studies import run_jobs
from ppl_models import Bernoulli, Normal, Poisson

FAMILIES = {"Bernoulli": Bernoulli(), "Poisson": Poisson(), "Normal": Normal()}
Lines = Iterable[Mapping[str, Any]]


def command_line(
    file: str,
    doc: str | None,
    replicates: int | None = None,
    threads: int | None = None,
    seeded: bool = True,
    jobs: bool = False,
) -> argparse.ArgumentParser:
    """The options that every benchmark has.

    Args:
        file: the script's ``__file__``; its name without the ending goes into every line.
        doc: the script's docstring, which ``--help`` shows.
        replicates: how often it repeats itself unless told otherwise; None for a script that does
            not.
        threads: of PyTorch, unless told otherwise; None for as many as PyTorch takes.
        seeded: whether its replicates are the seeds from ``--first-seed`` on.
        jobs: whether its replicates are jobs of :func:`values_of`, each on one thread.
    """
    parser = argparse.ArgumentParser(
        Path(file).name, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if replicates is not None:
        parser.add_argument(
            "--replicates",
            "--seeds",
            type=int,
            default=replicates,
            metavar="N",
            help=f"repetitions (by default {replicates})",
        )
        if seeded:
            parser.add_argument(
                "--first-seed",
                type=int,
                default=0,
                metavar="SEED",
                help="of the first replicate; the next one counts on",
            )
    if jobs:
        parser.add_argument(
            "--workers",
            type=int,
            default=1,
            metavar="N",
            help="processes that share the replicates",
        )
        parser.add_argument(
            "--scheduler",
            metavar="ADDRESS",
            help=(
                "of a dask cluster that shares the replicates; its workers need this folder on"
                " PYTHONPATH"
            ),
        )
        parser.add_argument(
            "--folder",
            type=Path,
            metavar="FOLDER",
            help="keeps every finished replicate: the same call, ended and made again, goes on",
        )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a small run that shows whether everything works; its numbers mean little",
    )
    parser.add_argument(
        "--threads", type=int, default=threads, metavar="N", help="threads of PyTorch"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the lines into this file too"
    )
    return parser


def seeds(args: argparse.Namespace) -> range:
    """The seeds of the replicates asked for."""
    return range(args.first_seed, args.first_seed + args.replicates)


def values_of(
    args: argparse.Namespace, function: Callable[..., Any], jobs: Sequence[Mapping[str, Any]]
) -> list[Any]:
    """What a function gives for each of many sets of arguments, as the options of
    ``command_line(jobs=True)`` say.
    """
    return run_jobs(function, jobs, args.folder, args.workers, args.scheduler).values


def run(
    parser: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace], Lines],
    argv: Sequence[str] | None = None,
    quick: Mapping[str, Any] | None = None,
) -> None:
    """Read the command line, print one JSON line a measurement; where data are absent, one line
    that says so.

    Args:
        parser: from ``command_line``.
        measure: yields the lines; the script's name and the number of threads are added to each.
        argv: the arguments, by default the command line's.
        quick: what ``--quick`` puts in the place of the defaults; options that are given win over
            it.
    """
    args = parser.parse_args(argv)
    if unknown := set(quick or {}) - set(vars(args)):
        raise ValueError(f"quick must name options of {parser.prog}, got {sorted(unknown)}")
    if args.quick:
        parser.set_defaults(**(quick or {}))
        args = parser.parse_args(argv)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    written = []

    def say(line: Mapping[str, Any]) -> None:
        text = json.dumps(
            {"benchmark": Path(parser.prog).stem, **line, "threads": torch.get_num_threads()}
        )
        print(text, flush=True)
        written.append(text + "\n")
        if args.out is not None:
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text("".join(written), encoding="utf-8")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits that stop early, and say so in their line
        try:
            for line in measure(args):
                say(line)
        except FileNotFoundError as absent:
            say({"skipped": str(absent)})


def timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What a call returns, and its seconds on the clock and of the processor: on a busy machine
    only the latter compare.
    """
    began, cpu = time.perf_counter(), time.process_time()
    value = call()
    return value, {
        "clock": round(time.perf_counter() - began, 2),
        "processor": round(time.process_time() - cpu, 2),
    }


def fastest(call: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest of several calls."""
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - began)
    return best


def resident() -> int:
    """Bytes of this process in memory now."""
    return (
        int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        * resource.getpagesize()
    )


class Peak:
    """Largest resident memory while it runs, above that at the start."""

    def __enter__(self) -> Peak:
        self.start = self.most = resident()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.stop.wait(0.002):
            self.most = max(self.most, resident())

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        self.thread.join()

    @property
    def extra(self) -> int:
        return self.most - self.start
