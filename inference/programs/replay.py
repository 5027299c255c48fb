"""A function of one tensor run once and replayed: the tensor operations without the Python around them.

A log-density of a probabilistic program is the same list of tensor operations at every point; tracing the program,
building distributions and eliminating latents is Python that need not be repeated. What does not depend on the input
(sums over the data, enumerated supports) is computed once and kept. Where a program asks whether something is true, the answer is noted, and a
replay is used as long as the answers are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["recorded"]

Function = Callable[[Tensor], tuple[Tensor, ...]]
TOLERANCE = 1e-9
MOST_COURSES = 3  # of a function that goes different ways at different points, that are recorded


class _ControlFlow(Exception):
    """What comes next depends on a value that is no answer of yes or no."""


class _Elsewhere(Exception):
    """An answer is another than when this was recorded."""


class _Recorder(TorchDispatchMode):
    """Writes down every operation that depends on the input, as a line of Python."""

    def __init__(self, point: Tensor) -> None:
        super().__init__()
        self.names = {id(point): "v0"}
        self.kept: list[Any] = [point]  # an id is only one as long as its object lives
        self.constants: dict[str, Any] = {}
        self.lines: list[tuple[set[str], set[str], str]] = []  # names written, names read, the line

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        depends = any(id(leaf) in self.names for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        changed = args[0] if func._schema.is_mutable and args and isinstance(args[0], Tensor) else None
        if depends and func is torch.ops.aten._local_scalar_dense.default:
            answer = func(*args)
            if not isinstance(answer, bool):
                raise _ControlFlow
            asked = self._word(args[0])
            self.lines.append((set(), {asked}, f"if {asked}.item() is not {answer}: raise {self._constant(_Elsewhere)}"))
            return answer
        if changed is not None and depends and id(changed) not in self.names:
            name = self._name(changed)  # a constant about to be overwritten: every replay needs it fresh
            self.lines.append(({name}, set(), f"{name} = {self._constant(changed.clone())}.clone()"))
        out = func(*args, **kwargs)
        if depends:
            words = [self._word(value) for value in args] + [f"{k}={self._word(v)}" for k, v in kwargs.items()]
            outputs = list(out) if isinstance(out, list | tuple) else [out]
            names = [self._name(value) if isinstance(value, Tensor) else "_" for value in outputs]
            left = ", ".join(names) + ("," if isinstance(out, list | tuple) else "")
            read = {self.names[id(leaf)] for leaf in tree_leaves((args, kwargs)) if id(leaf) in self.names}
            written = set(names) | ({self.names[id(changed)]} if changed is not None else set())
            self.lines.append((written, read, f"{left} = {self._constant(func)}({', '.join(words)})"))
        return out

    def needed(self, outputs: list[str]) -> list[str]:
        """The lines that the outputs and the answers rest on, in order; draws of latents that are summed out are not among them."""
        wanted, kept = set(outputs), []
        for written, read, line in reversed(self.lines):
            if written & wanted or not written:
                wanted |= read
                kept.append(line)
        return kept[::-1]

    def _name(self, value: Tensor) -> str:
        if id(value) not in self.names:
            self.names[id(value)] = f"v{len(self.names)}"
            self.kept.append(value)
        return self.names[id(value)]

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def _word(self, value: Any) -> str:
        if isinstance(value, Tensor) and id(value) in self.names:
            return self.names[id(value)]
        if isinstance(value, list | tuple):
            return "[" + ", ".join(self._word(part) for part in value) + "]"
        return repr(value) if value is None or isinstance(value, bool | int) else self._constant(value)


def recorded(function: Function, point: Tensor) -> Function:
    """``function`` as a replay of its tensor operations; ``function`` itself where that is not possible.

    Args:
        function: tensors of one tensor. What it does may depend on shapes, and on questions of yes or no about values: for every set of answers it is recorded
            anew, a few times. It must not be random.
        point: an input to record at; the replay is for inputs of this shape, and is compared with the function at
            another point before it is used.
    """
    first = _course(function, point)
    if first is None:
        return function
    courses = [first]
    more = True

    def replayed(value: Tensor) -> tuple[Tensor, ...]:
        nonlocal more
        with torch.no_grad():
            for course in courses:
                try:
                    return course(value)
                except _Elsewhere:
                    continue
        if more:
            new = _course(function, value)
            courses.extend([] if new is None else [new])
            more = new is not None and len(courses) < MOST_COURSES
        return function(value)

    return replayed


def _course(function: Function, point: Tensor) -> Function | None:
    """The operations at one point as a function; None where they cannot be written down, or give something else than the function."""
    point = point.detach().clone()
    recorder = _Recorder(point)
    try:
        with recorder:
            outputs = function(point)
    except _ControlFlow:
        return None
    if any(id(value) not in recorder.names for value in outputs):
        return None
    names = [recorder.names[id(value)] for value in outputs]
    body = "\n".join(f"    {line}" for line in recorder.needed(names))
    scope, answer = dict(recorder.constants), ", ".join(names)
    exec(f"def replay(v0):\n{body}\n    return ({answer},)\n", scope)  # built from operations alone
    replay: Function = scope["replay"]
    aside = torch.cos(torch.arange(point.numel(), dtype=point.dtype, device=point.device)).reshape(point.shape)
    for other in (point, point + 1e-3 * aside, point + 1e-6 * aside):
        try:
            with torch.no_grad():
                again = replay(other)
        except _Elsewhere:
            continue  # the answers change nearby
        expected = outputs if other is point else function(other)
        if not all(torch.allclose(one, two, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True) for one, two in zip(expected, again, strict=True)):
            return None
        if other is not point:
            return replay
    return None
