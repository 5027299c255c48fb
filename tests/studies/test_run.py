"""Many jobs of one kind: the same numbers wherever they run, each once, whatever dies."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import signal
import threading
import time
import types
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inference import EM, fit
from inference.studies import JobResults, run_jobs
from ppl_models import Mixture, Normal

JOBS = [{"seed": seed, "size": size} for seed in range(2) for size in (2, 3)]


def everything(seed: int, size: int) -> dict[str, Any]:
    """A fit, and random numbers from all states that a job can draw from without a seed."""
    rows = torch.randn(30, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    result = fit(Mixture(size, Normal(), 2), rows, EM(max_iterations=3), seed=seed)
    own = {
        "torch": torch.rand(3),
        "numpy": np.random.rand(2),  # noqa: NPY002
        "python": random.random(),
    }
    return own | {
        "fit": result,
        "seed": seed,
        "size": np.int64(size),
        "gap": math.nan,
        "list": [1, 2.5, "x", None],
        "threads": torch.get_num_threads(),
    }


def numbers(results: JobResults) -> list[Any]:
    return [
        (
            one["torch"].tolist(),
            one["numpy"].tolist(),
            one["fit"].objective,
            {n: v.tolist() for n, v in one["fit"].params.items()},
        )
        for one in results.values
    ]


@pytest.mark.filterwarnings("ignore")
def test_the_same_numbers_on_one_core_in_processes_on_a_cluster_and_from_the_folder(
    tmp_path: Path,
) -> None:
    threads, default = torch.get_num_threads(), torch.get_rng_state()
    here = run_jobs(by_value(everything), JOBS, tmp_path)
    assert torch.get_num_threads() == threads
    torch.testing.assert_close(torch.get_rng_state(), default, rtol=0, atol=0)
    expected = numbers(here)
    assert len({str(one) for one in expected}) == len(JOBS)
    value = here.values[3]
    assert (value["list"], value["size"], type(value["size"]), value["threads"]) == (
        (1, 2.5, "x", None),
        3,
        int,
        1,
    )
    assert math.isnan(value["gap"])
    assert isinstance(value["numpy"], np.ndarray)
    assert isinstance(value["torch"], torch.Tensor)
    again = run_jobs(by_value(everything), JOBS, tmp_path)
    assert all(job.was_done for job in again.jobs)
    assert [job.seconds for job in again.jobs] == [job.seconds for job in here.jobs]
    assert numbers(again) == expected
    in_processes = run_jobs(by_value(everything), JOBS[::-1], workers=2)
    assert numbers(in_processes) == expected[::-1]
    assert [one["python"] for one in in_processes.values] == [
        one["python"] for one in here.values[::-1]
    ]
    distributed = pytest.importorskip(
        "distributed", reason="jobs on a cluster need the extra [cluster]"
    )
    with distributed.Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as client:
        assert numbers(run_jobs(by_value(everything), JOBS, scheduler=client)) == expected


def by_value(function: Any) -> Any:
    """The function as one of a script, which other processes read by its code: they cannot import
    the tests.
    """
    names = {**function.__globals__, "__name__": "__main__"}
    return types.FunctionType(function.__code__, names, function.__name__, function.__defaults__)


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def job(seed: int) -> int:
        with log.open("a") as file:
            file.write(f"{seed} ")
        return seed**2

    folder = tmp_path / "study"
    assert run_jobs(job, [{"seed": 1}, {"seed": 2}, {"seed": 1}], folder).values == [1, 4, 1]
    assert log.read_text() == "1 2 "
    assert run_jobs(job, [{"seed": 3}, {"seed": 2}], folder).values == [9, 4]
    assert log.read_text() == "1 2 3 "

    def other(seed: int) -> int:
        return seed**3

    assert run_jobs(other, [{"seed": 2}], folder).values == [
        8
    ]  # another function: nothing of the first is taken for it
    assert run_jobs(job, [], folder).values == []


def test_a_failed_job_is_recorded_and_ends_nothing(tmp_path: Path) -> None:
    switch = tmp_path / "mended"

    def job(seed: int) -> Any:
        warnings.warn(f"job {seed} is small", UserWarning, stacklevel=2)
        if seed == 1 and not switch.exists():
            raise KeyError("no such thing")
        return object() if seed == 2 else {"half": seed / 2}

    results = run_jobs(job, [{"seed": seed} for seed in range(4)], tmp_path / "study")
    assert [job.error is None for job in results.jobs] == [True, False, False, True]
    assert results.jobs[1].error == "KeyError: 'no such thing'"
    assert "raise KeyError" in (results.jobs[1].traceback or "")
    assert "holds a object" in (results.jobs[2].error or "")
    assert results.jobs[3].warnings == ("UserWarning: job 3 is small",)
    assert (
        repr(results)
        == "4 jobs: 2 finished, 2 failed; the first of these, seed=1, with KeyError: 'no such"
        " thing'"
    )
    assert list(results.table["half"].dropna()) == [0.0, 1.5]
    with pytest.raises(
        ValueError, match="2 of 4 jobs failed, the first of these, seed=1, with KeyError"
    ):
        results.values  # noqa: B018
    record = json.loads((tmp_path / "study" / f"{results.jobs[1].name}.failed.json").read_text())
    assert (record["arguments"], record["error"]) == ("seed=1", "KeyError: 'no such thing'")
    switch.touch()
    mended = run_jobs(job, [{"seed": seed} for seed in (0, 1)], tmp_path / "study")
    assert [job.was_done for job in mended.jobs] == [True, False]
    assert not (tmp_path / "study" / f"{results.jobs[1].name}.failed.json").exists()


@pytest.mark.slow
def test_processes_that_are_killed_lose_no_job(tmp_path: Path) -> None:
    """kill -9 of a worker: joblib ends all its processes, the study goes on; a job that ends its
    process every time is recorded.
    """

    def job(seed: int, folder: str) -> int:
        import os
        import pathlib

        mark = pathlib.Path(folder, f"{seed}")
        if seed == 2 or (seed == 4 and not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), 9)
        return seed

    marks = tmp_path / "marks"
    marks.mkdir()
    results = run_jobs(
        by_value(job),
        [{"seed": seed, "folder": str(marks)} for seed in range(6)],
        tmp_path / "study",
        workers=2,
    )
    assert [job.value for job in results.jobs] == [0, 1, None, 3, 4, 5]
    assert "ended 4 times before the job did" in (results.jobs[2].error or "")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks beside threads
@pytest.mark.skipif(
    not hasattr(os, "fork"),
    reason="a study is killed in a forked process, which this system does not have",
)
def test_a_study_that_is_killed_goes_on(tmp_path: Path) -> None:
    log, folder, jobs = tmp_path / "log", tmp_path / "study", [{"seed": seed} for seed in range(12)]
    interrupt = tmp_path / "interrupt"

    def job(seed: int) -> float:
        with log.open("a") as file:
            file.write(f"{seed} ")
        if interrupt.exists() and seed == 8:
            interrupt.unlink()
            raise KeyboardInterrupt
        time.sleep(0.05)
        return float(torch.rand(()))

    study = multiprocessing.get_context("fork").Process(target=run_jobs, args=(job, jobs, folder))
    study.start()
    while len(list(folder.glob("*.json"))) < 3:
        time.sleep(0.01)
    os.kill(study.pid, signal.SIGKILL)  # type: ignore[arg-type]
    study.join()
    assert 3 <= len(list(folder.glob("*.json"))) < 8
    interrupt.touch()
    with pytest.raises(KeyboardInterrupt):
        run_jobs(job, jobs, folder)
    last = run_jobs(job, jobs, folder)
    begun = Counter(log.read_text().split())
    assert [begun[str(seed)] for seed in range(12)].count(
        1
    ) >= 10  # all but those that were running when the study was ended
    assert sum(begun.values()) <= 14
    assert sum(job.was_done for job in last.jobs) == 8
    assert last.values == run_jobs(job, jobs).values


def test_bad_input(tmp_path: Path) -> None:
    def job(seed: int) -> int:
        return seed

    for jobs, words in (
        ({"seed": 1}, "jobs must be a list of dicts"),
        ([3], r"jobs\[0\] must be a dict of arguments by name, got 3"),
        (
            [{"seed": 1}, {"sed": 1}],
            r"jobs\[1\], sed=1, are not the arguments of the function, which takes \(seed: 'int'\)",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            run_jobs(job, jobs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="function must be callable, got int"):
        run_jobs(3, [{"seed": 1}])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="workers"):
        run_jobs(job, [{"seed": 1}], workers=0)
    with pytest.raises(ValueError, match="give one of them"):
        run_jobs(job, [{"seed": 1}], workers=2, scheduler="tcp://localhost:8786")
    pytest.importorskip("distributed", reason="jobs on a cluster need the extra [cluster]")
    with pytest.raises(ValueError, match='scheduler must be an address such as "tcp://host:8786"'):
        run_jobs(job, [{"seed": 1}], scheduler="localhost")


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    def job(seed: int) -> int:
        return seed

    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match="run_jobs"):
        run_jobs(job, [{"seed": 1}], file)
    study = tmp_path / "study"
    results = run_jobs(job, [{"seed": 1}], study)
    kept = study / f"{results.jobs[0].name}.json"
    kept.write_text(kept.read_text()[:-5])
    with pytest.raises(ValueError, match="is damaged .* remove it, and the job is run again"):
        run_jobs(job, [{"seed": 1}], study)
    kept.write_text("{}")
    with pytest.raises(ValueError, match="not written by this version"):
        run_jobs(job, [{"seed": 1}], study)
    lock = threading.Lock()
    with pytest.raises(ValueError, match="lock.* whose contents cannot be read"):
        run_jobs(lambda seed: lock, [{"seed": 1}], study)

    def inner(seed: int) -> str:
        return str(run_jobs(job, [{"seed": 5}], study).values)

    nested = run_jobs(inner, [{"seed": 1}], study)
    assert "another call is at work in the folder" in (nested.jobs[0].error or "")
