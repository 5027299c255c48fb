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
from pyro.poutine.subsample_messenger import SubsampleMessenger
from torch.distributions import constraints, transform_to

# of a seed, for other numbers than those of the seed itself: torch's generators of the CPU take no
# more than the lower 32 bits
OTHER_STREAM = 2**31
ONE_THREAD = 1e5  # numbers worked through at a time, up to which a second thread gains nothing


class _Turn:
    """Lock that a forked process begins with free."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.store: Any = None  # state of the caller's parameter store, while it is put aside
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
        outermost = _TURN.store is None
        _TURN.store = store.get_state() if outermost else _TURN.store
        try:
            with torch.random.fork_rng(devices=[]), store.scope():
                if seed is not None:
                    seeded = torch if torch.cuda.is_available() else torch.default_generator
                    # torch's own formats the stack for every kind of accelerator, which takes a
                    # millisecond
                    seeded.manual_seed(int(seed))
                yield
        finally:
            _TURN.store = None if outermost else _TURN.store
        for name in store.keys():  # noqa: SIM118 (a store is no dict)
            # the scope took away the marks by which an optimiser that is at work finds its
            # parameters
            store[name]


def stored_parameter(name: str) -> tuple[torch.Tensor, constraints.Constraint] | None:
    """Value and constraint of a parameter in Pyro's store: the caller's, else the one inside."""
    inside = pyro.get_param_store()
    states = [(inside._params, inside._constraints)]
    if _TURN.store is not None:
        states.insert(0, (_TURN.store["params"], _TURN.store["constraints"]))
    for params, bounds in states:
        if name in params:
            return transform_to(bounds[name])(params[name].detach()), bounds[name]
    return None


@contextmanager
def reproducible(seed: int, dtype: torch.dtype) -> Iterator[None]:
    """Run with fixed random numbers, one thread, and a default dtype; restore the caller's.

    Args:
        seed: below 2 ** 32.
        dtype: of numbers without a dtype of their own.
    """
    with isolated(seed), in_dtype(dtype), threads_for(0):
        plain = random.getstate()
        arrays = np.random.get_state()  # noqa: NPY002 (a user's own code may draw from it)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(arrays)  # noqa: NPY002


@contextmanager
def threads_for(numbers: float) -> Iterator[None]:
    """Run small work on one thread of torch; restore the caller's number of threads.

    Two threads that wait for each other at every operation gain nothing where operations are short,
    and on busy cores each of them waits for the other's turn (``benchmarks/threads.py``).

    Args:
        numbers: worked through at a time, such as entries of the data times latent classes.
    """
    threads = torch.get_num_threads()
    if numbers > ONE_THREAD or threads == 1:
        yield
        return
    with _TURN.lock:
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


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
def whole_plates(drawn: dict[str, tuple[int, int]]) -> Iterator[None]:
    """Run with all rows of plates that would draw some of them at random.

    Args:
        drawn: filled with the rows that each of them would draw, and with its size.
    """
    plain = SubsampleMessenger._subsample

    def whole(
        name: str,
        size: int | None = None,
        subsample_size: int | None = None,
        subsample: Any = None,
        *others: Any,
    ) -> Any:
        if size is not None and subsample is None and subsample_size not in (None, size):
            drawn[name], subsample_size = (int(subsample_size or 0), int(size)), None
        return plain(name, size, subsample_size, subsample, *others)

    with _TURN.lock:
        SubsampleMessenger._subsample = staticmethod(whole)  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            SubsampleMessenger._subsample = staticmethod(plain)  # type: ignore[method-assign]


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
