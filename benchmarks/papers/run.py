"""Runs what is missing of the papers' tables, what is most unsure for its cost first.

A setting is run until each of its cells is decided: until our standard error is below a third of
the difference to the published number or of that number's error (after five replicates at least),
or until the published number of replicates is reached. What is run first is what lacks most for the
seconds of the processor that its next replicate takes. Ended at any moment and called again, it
goes on; several processes may fill one store. Prints one JSON line a replicate.

Run: ``python benchmarks/papers/run.py [--hours 1] [--paper deep_discrete_encoder] [--table S.3]
[--workers 2 | --scheduler tcp://host:8786]``, or ``make papers HOURS=1 PAPER= TABLE=``. Workers of
a cluster need ``benchmarks`` on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started as a file: its package is found beside it
    sys.path[0] = str(Path(__file__).parents[1])

from inference.studies import run_jobs
from papers.cells import Estimate, Setting, Study, estimate, need
from papers.store import Record, Store, by_setting, current, values
from papers.studies import STUDIES

AT_ONCE, SECONDS_AT_ONCE = 5, 60.0  # runs of a setting, and their seconds, between two looks
FOR_A_CLUSTER = 64  # jobs handed to a scheduler at once


def replicate(study: str, arguments: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """One replicate: its numbers and seconds of the processor."""
    began = time.process_time()
    numbers = {own.name: own for own in STUDIES}[study].replicate(**arguments, seed=seed)
    return {"numbers": dict(numbers), "seconds": time.process_time() - began}


def absent_file(setting: Setting) -> str | None:
    """The file that the setting needs, where it is not in the folder of data."""
    if setting.file is None:
        return None
    folder = os.environ.get("PPL_MODELS_DATA")
    return None if folder and (Path(folder) / setting.file).exists() else setting.file


def cost(setting: Setting, records: Mapping[int, Record]) -> float:
    """Seconds of the processor of one more replicate: the mean of those run, else as declared."""
    if not records:
        return setting.seconds
    return max(sum(record.seconds for record in records.values()) / len(records), 1e-3)


def estimated(records: Mapping[int, Record], number: str, summary: str) -> Estimate | None:
    """Our number of a cell, None where nothing was run."""
    return estimate(values(records, number), summary) if records else None


def lacking(
    study: Study, records: Mapping[str, list[Record]], table: str | None
) -> dict[str, float]:
    """By setting of a table (or of all): how much the cell that lacks most lacks."""
    out = dict.fromkeys(study.settings(table), 0.0)
    for own in study.tables:
        for cell in own.cells:
            for protocol, setting in cell.settings.items():
                if setting.key in out:
                    number = cell.number_of(protocol)
                    ours = estimated(current(records, setting), number, cell.summary)
                    own_need = need(cell, ours, setting.replicates, protocol)
                    out[setting.key] = max(out[setting.key], own_need)
    return out


def queue(
    studies: Sequence[Study],
    store: Store,
    table: str | None,
    dropped: set[str],
    unrun: bool = False,
) -> list[tuple[float, Setting, float]]:
    """Settings that lack something (or those without a run), most unsure for its cost first.

    Returns:
        Gain a second, setting and seconds of its next replicate. The gain is what the setting lacks
        times the share that the replicate takes from its standard errors, which fall like one over
        the root of the runs.
    """
    out = []
    for study in studies:
        records = by_setting(store.records(study.name))
        needs = lacking(study, records, table)
        for key, setting in study.settings(table).items():
            if not needs[key] or key in dropped or absent_file(setting) is not None:
                continue
            own = current(records, setting)
            if unrun and own:
                continue
            seconds = cost(setting, own)
            share = 1 - math.sqrt(len(own) / (len(own) + 1))
            out.append((needs[key] * share / seconds, setting, seconds))
    return sorted(out, key=lambda entry: (-entry[0], entry[1].key))


def fill(
    studies: Sequence[Study],
    store: Store,
    hours: float,
    table: str | None = None,
    workers: int = 1,
    scheduler: str | None = None,
    unrun: bool = False,
    say: Callable[[Mapping[str, Any]], None] = lambda line: None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run what is missing until the hours are over, and return how many replicates were run.

    ``unrun`` leaves settings alone that have a run: breadth before depth.
    A replicate is not begun if it is expected to take more than what is left. One that fails is
    said, and its setting is left for the next call.
    """
    end, dropped, num_run = clock() + 3600 * hours, set[str](), 0
    alone = workers == 1 and scheduler is None
    size = 1 if alone else FOR_A_CLUSTER if scheduler is not None else AT_ONCE * workers
    while True:
        with ExitStack() as claims:
            jobs: list[tuple[Setting, int]] = []
            for _, setting, seconds in queue(studies, store, table, dropped, unrun):
                if len(jobs) < size and seconds <= end - clock():
                    most = max(1, min(AT_ONCE // setting.runs, int(SECONDS_AT_ONCE / seconds)))
                    jobs += free(setting, store, most, claims)
            if not jobs:
                return num_run
            for some in [[job] for job in jobs] if alone else [jobs]:
                if clock() >= end:
                    return num_run
                results = run_jobs(
                    replicate,
                    [
                        {"study": setting.study, "arguments": dict(setting.arguments), "seed": seed}
                        for setting, seed in some
                    ],
                    workers=workers,
                    scheduler=scheduler,
                )
                for (setting, seed), result in zip(some, results.jobs, strict=True):
                    line = {"paper": setting.study, **setting.arguments, "seed": seed}
                    error = result.error
                    if error is None:
                        numbers, seconds = result.value["numbers"], result.value["seconds"]
                        try:
                            store.append(setting, seed, numbers, seconds)
                        except ValueError as refused:  # numbers that are not finite
                            error = str(refused)
                    if error is not None:
                        dropped.add(setting.key)
                        say(line | {"failed": error})
                        continue
                    num_run += 1
                    say(line | {"seconds": round(seconds, 2)})


def free(setting: Setting, store: Store, most: int, claims: ExitStack) -> list[tuple[Setting, int]]:
    """The first replicates of a setting that nobody has run or runs, claimed for this process."""
    done, out = store.done(setting), list[tuple[Setting, int]]()
    for seed in range(-(-setting.replicates // setting.runs)):
        if seed in done:
            continue
        if claims.enter_context(store.claimed(setting, seed)):
            out.append((setting, seed))
        if len(out) == most:
            break
    return out


def chosen(paper: str | None) -> list[Study]:
    """The study of a name, or all of them.

    Raises:
        ValueError: for another name.
    """
    names = [study.name for study in STUDIES]
    if paper not in (None, *names):
        raise ValueError(f"PAPER must be one of {', '.join(names)}, got {paper!r}")
    return [study for study in STUDIES if paper in (None, study.name)]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=1.0, help="on the clock")
    parser.add_argument("--paper", help="one of them: " + ", ".join(own.name for own in STUDIES))
    parser.add_argument("--table", help="one table of the paper, such as S.3")
    parser.add_argument("--workers", type=int, default=1, help="processes of this machine")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a dask cluster")
    parser.add_argument("--unrun", action="store_true", help="only settings that have no run yet")
    args = parser.parse_args(argv)
    if args.table and not args.paper:
        parser.error("--table needs the --paper that it is in")
    import torch

    torch.set_num_threads(1)

    def say(line: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    try:
        studies = chosen(args.paper)
        fill(
            studies,
            Store(),
            args.hours,
            args.table or None,
            args.workers,
            args.scheduler,
            args.unrun,
            say,
        )
    except ValueError as error:
        parser.exit(2, f"papers: {error}\n")


if __name__ == "__main__":
    import papers.run

    papers.run.main()  # of the module by its name, which other processes import
