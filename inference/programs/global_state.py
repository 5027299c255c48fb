"""One thread at a time where libraries keep state for the whole process.

Pyro's handlers and parameter store, torch's random state and Python's warning filters belong to the
process, not to a thread: two threads that trace a program at once read each other's sites. Whatever
enters one of them does so through a context of this file, under one lock. A thread may enter again
what it has entered, so fits may be made inside fits; another thread waits.
"""

from __future__ import annotations

import os
import random
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyro
import torch


class _Turn:
    """Lock that a forked process begins with free."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.lock = threading.RLock()


_TURN = _Turn()


@contextmanager
def isolated(seed: int | None = None) -> Iterator[None]:
    """Run without touching the random state or the parameter store of the caller.

    Args:
        seed: of the random state inside; None to go on from the caller's.
    """
    store = pyro.get_param_store()
    with _TURN.lock:
        with torch.random.fork_rng(devices=[]), store.scope():
            if seed is not None:
                seeded = torch if torch.cuda.is_available() else torch.default_generator
                # torch's own formats the stack for every kind of accelerator, which takes a
                # millisecond
                seeded.manual_seed(int(seed))
            yield
        for name in store.keys():  # noqa: SIM118 (a store is no dict)
            # the scope took away the marks by which an optimiser that is at work finds its
            # parameters
            store[name]


@contextmanager
def reproducible(seed: int, dtype: torch.dtype) -> Iterator[None]:
    """Run with fixed random numbers, one thread, and a default dtype; restore the caller's.

    Args:
        seed: below 2 ** 32.
        dtype: of numbers without a dtype of their own.
    """
    with isolated(seed), in_dtype(dtype):
        threads, plain = torch.get_num_threads(), random.getstate()
        arrays = np.random.get_state()  # noqa: NPY002 (a user's own code may draw from it)
        torch.set_num_threads(1)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            random.setstate(plain)
            np.random.set_state(arrays)  # noqa: NPY002


@contextmanager
def in_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Run with a default dtype; restore the caller's."""
    with _TURN.lock:
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


@contextmanager
def quiet(category: type[Warning] = Warning) -> Iterator[None]:
    """Run without warnings of a category."""
    with _TURN.lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", category)
        yield


@contextmanager
def listening() -> Iterator[list[warnings.WarningMessage]]:
    """Collect this thread's warnings in a list; those of other threads pass."""
    with _TURN.lock, warnings.catch_warnings():
        thread, heard, say = (
            threading.get_ident(),
            list[warnings.WarningMessage](),
            warnings.showwarning,
        )

        def show(
            message: Any,
            category: Any,
            filename: str,
            lineno: int,
            file: Any = None,
            line: str | None = None,
        ) -> None:
            if threading.get_ident() == thread:
                heard.append(
                    warnings.WarningMessage(message, category, filename, lineno, file, line)
                )
            else:
                say(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        warnings.simplefilter("always")
        yield heard
