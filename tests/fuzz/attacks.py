"""The kinds of attack; each builds one case from a draw, runs it, and says whether it had an
answer.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz import causes, files, oracle, programs, questions, records, tables
from fuzz.draw import Draw
from typer.testing import CliRunner

from inference import EM, Fit, fit
from inference.base.checkpoint import read_tensors, write_tensors
from inference.cli.main import app
from inference.programs.data import checked
from inference.programs.program import Program

Case = Callable[[Draw], bool]


def constructor(draw: Draw) -> bool:
    """A public record with a setting that nobody should give."""
    name = draw.choice(sorted(records.RECORDS))
    if name in ("Fit", "Restarts", "Trace"):
        name = "DeepDiscreteEncoder"
    made = records.record(draw, name, hostile=0.9)
    oracle.require(repr(made) == repr(made), "repr changes")
    return True


def fitting(draw: Draw) -> bool:
    """A family, an engine, data, a start: most of them sound, some not."""
    model = records.family(draw, hostile=0.05)
    is_slow = (
        type(model).__name__ == "DeepNoisyOr"
    )  # whose recommended engine searches for half a minute
    method = (
        None if draw.chance(0.06) and not is_slow else records.engine(draw, model, hostile=0.05)
    )
    if records.is_endless(method) or records.is_endless(model):
        return True  # a billion draws may be asked for, but not here
    data = tables.plain(draw, model)
    if draw.chance(0.5):
        data = tables.attacked(draw, data)
    call: dict[str, Any] = {"method": method, "seed": draw.integer(0, 5)}
    if draw.chance(0.5):
        call["num_restarts"] = draw.choice((1, 2, 3))
    if draw.chance(0.4):
        call["init"] = "random"
    if draw.chance(0.05):
        call[draw.choice(("init", "num_restarts", "seed", "method", "checkpoint"))] = draw.hostile()
    if "checkpoint" in call and isinstance(call["checkpoint"], str):
        del call["checkpoint"]  # a name of a file in the folder where the tests run
    result = fit(model, data, **call)
    oracle.sound(result, _program(model, data))
    questions.rows(result, data, draw)
    return True


def _program(model: Any, data: Any) -> Program | None:
    try:
        return Program(model, checked(model, data)[0])
    except (ValueError, TypeError):
        return None  # data that can be read once only


def program(draw: Draw) -> bool:
    """A program of the user's own, sound or not."""
    model, data = programs.any_program(draw)
    if draw.chance(0.3):
        data = (
            tables.attacked(draw, data)
            if not isinstance(data, torch.Tensor)
            else data.masked_fill(torch.rand(data.shape) < 0.1, math.nan)
        )
    result = fit(
        model, data, records.engine(draw, model, hostile=0.0), num_restarts=draw.choice((1, 2))
    )
    oracle.sound(result, Program(model, data))
    return True


@functools.cache
def example(name: str) -> tuple[Fit, Any]:
    """A small sound fit of a family, and its data."""
    for seed in range(200):
        draw = Draw(seed)
        try:
            model = records.record(draw, name, 0.0, {"num_items": 4})
            data = tables.plain(draw, model)
            if len(data["state"] if isinstance(data, dict) else data) < 6:
                continue
            return fit(model, data, None if "Usage" in name else _quick(name)), data
        except (ValueError, OSError):
            continue
    raise AssertionError(f"no example of {name}")


def _quick(name: str) -> Any:
    if "Factorization" in name or "Sparse" in name or "Or" in name:
        return None
    if name == "InClassNet":
        return records.RECORDS["TrainClassifiers"](max_epochs=2)
    return EM(max_iterations=3)


def question(draw: Draw) -> bool:
    """A sound fit, and questions with odd data or settings."""
    result, data = example(draw.choice(records.FAMILIES))
    if draw.chance(0.6):
        data = tables.attacked(draw, data)
    return questions.ask(draw, result, data)


def table_file(draw: Draw) -> bool:
    """A damaged or odd file of data."""
    from ppl_models.datasets import read_table

    with tempfile.TemporaryDirectory() as folder:
        path = files.written(draw, Path(folder))
        table = read_table(path)
        oracle.require(
            table.values.ndim == 2 and table.values.shape[1] == len(table.names), "shape of a table"
        )
        oracle.require(len(set(table.names)) == len(table.names), "names of a table")
    return True


def saved(draw: Draw) -> bool:
    """A saved fit with bytes or fields changed: refused, or what it was, or at least sound."""
    result, data = example(draw.choice(records.FAMILIES))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "fit"
        result.save(folder)
        file = folder / "fit.safetensors"
        if draw.chance(0.5):
            changed = files.damaged(draw, file.read_bytes())
            file.write_bytes(changed)
            again = Fit.load(folder)
            difference = oracle.same(result, again)
            oracle.require(
                difference is None, f"a damaged file was loaded as another fit: {difference}"
            )
            return True
        tensors, record = read_tensors(file)
        tensors, record = dict(tensors), json.loads(json.dumps(record))
        for _ in range(draw.integer(1, 2)):
            if draw.chance(0.5):
                files.change_record(draw, record)
            else:
                files.change_tensors(draw, tensors)
        write_tensors(file, tensors, record)
        again = Fit.load(folder)
        _consistent(again, data, draw)
    return True


def _consistent(result: Fit, data: Any, draw: Draw) -> None:
    try:
        program = _program(result.model, data)
    except Exception as error:
        raise oracle.SilentNaN(f"loaded a model that cannot run: {error!r}") from error
    oracle.sound(result, program)
    questions.rows(result, data, draw)


def checkpoint(draw: Draw) -> bool:
    """A damaged checkpoint: refused, or the answer is that of a run without."""
    model = records.RECORDS["DeepDiscreteEncoder"](4, (2,))
    data = (np.random.default_rng(draw.integer(0, 3)).random((12, 4)) < 0.5).astype(float)
    method = draw.choice(
        (EM(max_iterations=4), records.RECORDS["SAEM"](max_iterations=3, num_burn_in=1))
    )
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "running"
        whole = fit(model, data, method, checkpoint=path)
        path.write_bytes(files.damaged(draw, path.read_bytes()))
        difference = oracle.same(whole, fit(model, data, method, checkpoint=path))
        oracle.require(difference is None, f"a damaged checkpoint changed the answer: {difference}")
    return True


def command(draw: Draw) -> bool:
    """The command line: an exit code and a line."""
    with (
        tempfile.TemporaryDirectory() as name,
        contextlib.chdir(name),
    ):  # a word may be the name of a file to write
        arguments = files.command(draw, Path(name))
        answer = CliRunner().invoke(app, arguments, catch_exceptions=True)
        error = answer.exception
        if error is not None and not isinstance(error, SystemExit):
            raise error
        oracle.require("Traceback" not in answer.output, f"a traceback: {answer.output[-500:]}")
        oracle.require(answer.exit_code in (0, 1, 2), f"exit code {answer.exit_code}")
        if answer.exit_code == 2 and "Usage:" not in answer.output:
            lines = [line for line in answer.stderr.splitlines() if line.startswith("error:")]
            oracle.require(len(lines) == 1, f"one line was expected, got {answer.stderr[-800:]!r}")
        oracle.require(
            "nan" not in answer.stdout.lower().replace("nan-", "").split(),
            f"NaN without a word: {answer.stdout[-500:]}",
        )
    return answer.exit_code == 0


KINDS: dict[str, tuple[Case, float]] = {
    "constructor": (constructor, 20),
    "fit": (fitting, 38),
    "program": (program, 5),
    "question": (question, 12),
    "file": (table_file, 8),
    "saved": (saved, 8),
    "checkpoint": (checkpoint, 3),
    "command": (command, 6),
    "causes": (causes.causes, 6),
}


def run_case(seed: int) -> oracle.Verdict:
    """The case of a seed."""
    draw = Draw(seed)
    kind = draw.weighted({name: weight for name, (_, weight) in KINDS.items()})
    torch.manual_seed(seed)
    return oracle.judge(kind, lambda: KINDS[kind][0](draw))


def block(seeds: Sequence[int]) -> list[tuple[int, float, oracle.Verdict]]:
    """Some cases in this process, each with its seconds."""
    out = []
    for seed in seeds:
        began = time.perf_counter()
        verdict = run_case(seed)
        out.append((seed, time.perf_counter() - began, verdict))
    return out
