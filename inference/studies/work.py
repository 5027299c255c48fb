"""One job: its name, its seeds, and what it gave, in a form that a file holds."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.base.hashing import digest_of
from inference.fitting.storage import pack
from inference.programs.global_state import listening, reproducible


@dataclass(frozen=True)
class Task:
    """A job that is still to be done.

    Args:
        name: digest of the function, the arguments and the default dtype.
        arguments: of the function.
    """

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Finished:
    """Result of a job.

    Args:
        name: of the task.
        value: what the function returned, as JSON; tensors: the tensors and arrays in it; arrays:
            names of those that are NumPy's.
        error, traceback: of a job that failed.
        seconds: on the clock; warnings: what it warned of.
    """

    name: str
    value: Any = None
    tensors: dict[str, Tensor] = field(default_factory=dict)
    arrays: tuple[str, ...] = ()
    error: str | None = None
    traceback: str | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()


def tasks_of(
    function: Callable[..., Any], jobs: list[Mapping[str, Any]], must_be_read: bool
) -> list[Task]:
    """Return one task a job.

    Its name is that of the same job in any other process and at any other time, unless the
    function's code has changed.

    Args:
        function: as the user gave it.
        jobs: as the user gave them.
        must_be_read: refuse what has no name of that kind; else such jobs are named by their place.
    """
    dtype = str(torch.get_default_dtype())
    try:
        code = digest_of(function, "the function")
        digests = [
            digest_of((code, dtype, dict(sorted(job.items()))), f"job {i}")
            for i, job in enumerate(jobs)
        ]
    except ValueError as error:
        if not must_be_read:
            return [
                Task(hashlib.sha256(str(i).encode()).hexdigest()[:32], job)
                for i, job in enumerate(jobs)
            ]
        what = str(error).removeprefix("checkpoint: ").partition(", whose contents")[0]
        raise ValueError(
            f"run_jobs: {what}, whose contents cannot be read, so that no file could be named after"
            " it: hand it over as numbers, arrays or a record of such"
        ) from error
    return [Task(digest[:32], job) for digest, job in zip(digests, jobs, strict=True)]


def work(function: Callable[..., Any], task: Task, dtype: torch.dtype) -> Finished:
    """Run a job on one thread, with random numbers that its name decides.

    So it gives the same wherever and whenever it runs.
    """
    began = time.perf_counter()
    with reproducible(int(task.name[:8], 16), dtype), listening() as heard:
        try:
            packed, tensors, arrays = _packed(function(**task.arguments))
        except Exception as error:  # noqa: BLE001 (a job that fails is recorded, whatever it raised, and the others go on)
            words = f"{type(error).__name__}: {error}".strip()
            return Finished(
                task.name,
                error=words,
                traceback=traceback.format_exc(),
                seconds=time.perf_counter() - began,
                warnings=_texts(heard),
            )
    return Finished(
        task.name,
        packed,
        tensors,
        arrays,
        seconds=time.perf_counter() - began,
        warnings=_texts(heard),
    )


def _texts(heard: list[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{entry.category.__name__}: {entry.message}" for entry in heard))


def _packed(value: Any) -> tuple[Any, dict[str, Tensor], tuple[str, ...]]:
    numpy_tensors: list[Tensor] = []  # tensors that stand for NumPy's arrays
    tensors: dict[str, Tensor] = {}
    try:
        packed = pack(_plain(value, numpy_tensors), "value", tensors)
    except ValueError as error:
        raise ValueError(
            f"the job returned what no file can hold ({str(error).removeprefix('save: ')}); it may"
            " return numbers, texts, None, tensors, arrays, fits and other records of this"
            " library, and tuples, lists and dicts of such"
        ) from error
    arrays = tuple(
        name for name, tensor in tensors.items() if any(tensor is entry for entry in numpy_tensors)
    )
    return packed, {name: tensor.detach().cpu() for name, tensor in tensors.items()}, arrays


def _plain(value: Any, numpy_tensors: list[Tensor]) -> Any:
    """The value with NumPy's numbers as Python's, and its arrays as tensors."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        try:
            numpy_tensors.append(torch.from_numpy(np.array(value, order="C")))
        except TypeError as error:
            raise ValueError(f"value holds an array of {value.dtype}") from error
        return numpy_tensors[-1]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("value holds a dict with keys that are no texts")
        return {key: _plain(part, numpy_tensors) for key, part in value.items()}
    if type(value) in (tuple, list):
        return tuple(_plain(part, numpy_tensors) for part in value)
    return value
