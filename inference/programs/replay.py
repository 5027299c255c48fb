"""Replay of a function of one tensor: the tensor operations without the Python.

A log-density of a probabilistic program is the same list of tensor operations at every point;
tracing the program, building distributions and eliminating latents is Python that need not be
repeated. What does not depend on the input (sums over the data, enumerated supports) is computed
once and kept. Where a program asks whether something is true, the answer is noted, and a replay is
used as long as the answers are the same.

The list is shortened before it is used: what nobody reads goes, a view of a view is one view of the
first tensor, what is computed twice is computed once, also where all rows have the same value, and
tensors are given back after their last use. While it is recorded all tensors are held; where these
are large, the function is used as it is, for then its tensor operations are nearly all of its cost.
A function of one row is recorded for many rows by ``torch.vmap``, in about as many operations.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

Function = Callable[[Tensor], tuple[Tensor, ...]]
TOLERANCE = 1e-9
MOST_COURSES = 3  # of a function that goes different ways at different points, that are recorded
MOST_HELD = 2**30  # bytes of all tensors of a recording; of longer ones calls are the lesser part
MOST_TOGETHER = 2**26  # likewise, of rows that are evaluated at once
LEAST_REPEATED, FEWER = 2**8, 4  # entries, and of them in a tensor that is repeated to so many
aten = torch.ops.aten
ALONG_DIMS = (aten.sum.dim_IntList, aten.max.dim, aten.amax.default)
KEPT_DIMS = (*ALONG_DIMS, aten.clone.default)
OF_SHAPES = (  # operations whose result depends on the shape of their tensor alone
    aten.zeros_like.default,
    aten.ones_like.default,
    aten.full_like.default,
    aten.new_zeros.default,
    aten.new_ones.default,
    aten.new_full.default,
)
NOTHING = {  # second arguments with which an operation gives its first
    aten.add.Tensor: 0,
    aten.sub.Tensor: 0,
    aten.mul.Tensor: 1,
    aten.mul.Scalar: 1,
    aten.div.Tensor: 1,
    aten.pow.Tensor_Scalar: 1,
}
SAME_IN_TORCH = (  # operations that torch offers with the same arguments and half the way to them
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.mul.Tensor,
    aten.div.Tensor,
    aten.neg.default,
    aten.reciprocal.default,
    aten.exp.default,
    aten.expm1.default,
    aten.log.default,
    aten.log1p.default,
    aten.sqrt.default,
    aten.rsqrt.default,
    aten.sigmoid.default,
    aten.digamma.default,
    aten.lgamma.default,
    aten.pow.Tensor_Scalar,
    aten.clamp.default,
    aten.bmm.default,
    aten.mm.default,
    aten.sum.dim_IntList,
    aten.max.dim,
    aten.amax.default,
    aten.cat.default,
    aten.where.self,
    aten.ge.Scalar,
    aten.ge.Tensor,
    aten.le.Scalar,
    aten.le.Tensor,
    aten.gt.Scalar,
    aten.gt.Tensor,
    aten.lt.Scalar,
    aten.lt.Tensor,
    aten.eq.Scalar,
    aten.eq.Tensor,
    aten.bitwise_and.Tensor,
    aten.logical_and.default,
    aten.tanh.default,
    aten.abs.default,
)


class _ControlFlow(BaseException):
    """Error: control flow depends on a value that is no boolean.

    Outside Exception, so that no handler takes it for an error of the program.
    """


class _TooLarge(BaseException):
    """Error: tensors of a recording, which holds all of them, take too much memory."""


class _Elsewhere(Exception):
    """Error: an answer differs from the recorded one."""


@dataclass(frozen=True)
class _Name:
    """Name of a value in the replay."""

    word: str


@dataclass(frozen=True)
class _View:
    """View of a tensor's memory in other dims: sizes, strides and offset."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, value: Tensor) -> _View:
        return cls(tuple(value.shape), value.stride(), int(value.storage_offset()))


@dataclass(frozen=True)
class _Line:
    """Recorded operation.

    Args:
        func: an operation, a :class:`_View`, or a truth value, which is what the first argument was
            found to be.
        args, kwargs: with names in place of tensors that depend on the input.
        outputs: names, one of them unless ``several``; changed: the name that is overwritten.
    """

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    several: bool = False
    changed: str | None = None

    @cached_property
    def read(self) -> frozenset[str]:
        return frozenset(
            leaf.word for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, _Name)
        )

    def with_words(self, words: dict[str, str]) -> _Line:
        """Copy of the line that reads other names."""
        if self.changed not in words and self.read.isdisjoint(words):
            return self

        def other(leaf: Any) -> Any:
            return (
                _Name(words[leaf.word]) if isinstance(leaf, _Name) and leaf.word in words else leaf
            )

        changed = None if self.changed is None else words.get(self.changed, self.changed)
        return replace(
            self,
            args=tree_map(other, self.args),
            kwargs=tree_map(other, self.kwargs),
            changed=changed,
        )


class _Recorder(TorchDispatchMode):
    """Recorder of every operation that depends on the input.

    Args:
        point: the input; of_row: whether it is one of many rows, each of which gets its own of what
            depends on shapes alone.
    """

    def __init__(self, point: Tensor, of_row: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.constant = () if of_row else OF_SHAPES
        self.words = {id(point): "v0"}
        self.values: dict[str, Tensor] = {
            "v0": point
        }  # an id is only one as long as its object lives
        self.memory = {point.untyped_storage()._cdata: "v0"}  # whose memory it is
        self.owner = {"v0": "v0"}
        self.loose: set[str] = set()  # names whose size depends on values
        self.lines: list[_Line] = []
        self.held = 0  # bytes
        self.outputs: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Answer torch's question; True would import its compiler, seconds of a first fit."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        depends = any(
            id(leaf) in self.words
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, Tensor)
        )
        if func in self.constant and self.words.get(id(args[0])) not in self.loose:
            depends = False
        changed = (
            args[0] if func._schema.is_mutable and args and isinstance(args[0], Tensor) else None
        )
        if depends and func is aten._local_scalar_dense.default:
            answer = func(*args)
            if not isinstance(answer, bool):
                raise _ControlFlow
            self.lines.append(_Line(answer, (self._named(args[0]),)))
            return answer
        if changed is not None and depends and id(changed) not in self.words:
            kept = (
                changed.clone()
            )  # a constant about to be overwritten: every replay needs it fresh
            self.lines.append(_Line(aten.clone.default, (kept,), outputs=(self._name(changed),)))
        named = tree_map(self._named, (args, kwargs)) if depends else None
        out = func(*args, **kwargs)
        if named is not None:
            several = isinstance(out, list | tuple)
            words = tuple(
                self._name(value) if isinstance(value, Tensor) else "_"
                for value in (out if several else [out])
            )
            line = _Line(
                func,
                named[0],
                named[1],
                words,
                several,
                None if changed is None else self.words[id(changed)],
            )
            if line.read & self.loose or _has_open_size(func, args):
                self.loose |= set(words)
            self.lines.extend(self._as_views(line))
        return out

    def _named(self, value: Any) -> Any:
        return (
            _Name(self.words[id(value)])
            if isinstance(value, Tensor) and id(value) in self.words
            else value
        )

    def _name(self, value: Tensor) -> str:
        if id(value) not in self.words:
            word = f"v{len(self.words)}"
            self.words[id(value)], self.values[word] = word, value
            self.owner[word] = self.memory.setdefault(value.untyped_storage()._cdata, word)
            if self.owner[word] == word:
                self.held += value.untyped_storage().nbytes()
                if self.held > MOST_HELD:
                    raise _TooLarge
        return self.words[id(value)]

    def _as_views(self, line: _Line) -> Iterator[_Line]:
        """Rewrite views as views of the base tensor; any other line as it is."""
        owners = {self.owner.get(word) for word in line.outputs}
        first = self.values.get(next(iter(owners)) or "") if len(owners) == 1 else None
        if (
            first is None
            or line.changed is not None
            or owners <= set(line.outputs)
            or self.loose & {*line.outputs, *owners}
            or any(
                self.values[word].dtype != first.dtype
                or self.values[word].is_neg()
                or self.values[word].is_conj()
                for word in line.outputs
            )
        ):
            yield line
            return
        for word in line.outputs:
            yield _Line(_View.of(self.values[word]), (_Name(self.owner[word]),), outputs=(word,))

    # ------------------------------------------------------------ shortening

    def shortened(self, outputs: list[str]) -> tuple[list[_Line], list[str]]:
        """Lines needed for ``outputs``, each once, and the names these then have."""
        self.lines, words = self._without_overwriting()
        outputs = [words.get(word, word) for word in outputs]
        lines, words = self._each_once(self._needed(self.lines, outputs))
        outputs = [words.get(word, word) for word in outputs]
        lines = self._needed(self._cheaper(lines, outputs), outputs)
        return self._needed(list(self._narrowed(lines)), outputs), outputs

    def _without_overwriting(self) -> tuple[list[_Line], dict[str, str]]:
        """Lines in which a tensor without views that is written to again is a new tensor."""
        sharers = collections.Counter(self.owner.values())
        words: dict[str, str] = {}  # of the last tensor
        out = []
        for original in self.lines:
            line = original.with_words(words)
            func = None if line.changed is None else _not_in_place(line.func)
            if func is not None and sharers[self.owner[original.changed or ""]] == 1:
                (word,) = line.outputs
                new = f"{line.changed}n"
                self.values[new], self.owner[new] = self.values[word], new
                sharers[new], words[word] = 1, new
                line = replace(line, func=func, outputs=(new,), changed=None)
            out.append(line)
        return out, words

    @property
    def _overwritten(self) -> set[str]:
        """Names of tensors whose memory is written to again."""
        return {self.owner[line.changed] for line in self.lines if line.changed is not None}

    def _needed(self, lines: list[_Line], outputs: list[str]) -> list[_Line]:
        """Lines that outputs and answers depend on, in order, without draws summed out."""
        wanted, kept = set(outputs), []
        for line in reversed(lines):
            overwrites = line.changed is not None and self.owner[line.changed] in {
                self.owner[word] for word in wanted
            }
            if overwrites or isinstance(line.func, bool) or wanted & set(line.outputs):
                wanted |= line.read
                kept.append(line)
        return kept[::-1]

    def _each_once(self, lines: list[_Line]) -> tuple[list[_Line], dict[str, str]]:
        """Deduplicated lines, by name of the first; overwritten tensors stay separate."""
        overwritten = self._overwritten
        words: dict[str, str] = {}
        seen: dict[Any, tuple[str, ...]] = {}
        out = []
        for original in lines:
            line = original.with_words(words)
            if isinstance(line.func, _View) and line.func == _View.of(
                self.values[line.args[0].word]
            ):
                words[line.outputs[0]] = line.args[0].word
                continue
            if self._gives_its_first(line) and not (
                {self.owner[word] for word in line.read | set(line.outputs)} & overwritten
            ):
                words[line.outputs[0]] = line.args[0].word
                continue
            owners = {self.owner[word] for word in (line.read | set(line.outputs)) - {"_"}}
            key = None
            if isinstance(line.func, _View) or not (
                owners & overwritten
                or line.changed
                or torch.Tag.nondeterministic_seeded in getattr(line.func, "tags", ())
            ):
                key = (
                    line.func,
                    *map(_key, tree_leaves((line.args, line.kwargs))),
                    str(tree_map(lambda _: 0, (line.args, line.kwargs))),
                )
            if key is not None and key in seen:
                words |= dict(zip(line.outputs, seen[key], strict=True))
                continue
            if key is not None:
                seen[key] = line.outputs
            out.append(line)
        return out, words

    def _gives_its_first(self, line: _Line) -> bool:
        """Tell whether an operation gives its first argument, as a sum with 0 does."""
        if line.func not in NOTHING or line.kwargs or not isinstance(line.args[0], _Name):
            return False
        other, first, out = (
            line.args[1],
            *(self.values[word] for word in (line.args[0].word, line.outputs[0])),
        )
        return (
            isinstance(other, int | float)
            and other == NOTHING[line.func]
            and (out.dtype, _View.of(out)) == (first.dtype, _View.of(first))
        )

    def _narrowed(self, lines: list[_Line]) -> Iterator[_Line]:
        """Lines in which what is the same along a dim is computed once, and then repeated."""
        twins: dict[str, str] = {}  # with size 1 in the dims along which a tensor only repeats
        overwritten = self._overwritten

        def narrow(value: Any) -> Any:
            return (
                _Name(twins[value.word])
                if isinstance(value, _Name) and value.word in twins
                else value
            )

        def tensor(value: Any) -> Any:
            return self.values[value.word] if isinstance(value, _Name) else value

        def add(line: _Line, result: Any) -> Iterator[_Line]:
            """Line of narrow outputs, and those in their full size for whoever asks."""
            words = tuple(f"{word}_" for word in line.outputs)
            yield replace(line, outputs=words)
            for word, name, value in zip(line.outputs, words, result, strict=True):
                twins[word], self.values[name], self.owner[name] = name, value, name
                if not isinstance(line.func, _View):
                    size = list(self.values[word].shape)
                    yield _Line(aten.expand_copy.default, (_Name(name), size), outputs=(word,))

        for line in lines:
            words = line.read | set(line.outputs)
            outs = [self.values[word] for word in line.outputs if word in self.values]
            if (
                words & self.loose
                or {self.owner.get(word) for word in words} & overwritten
                or not outs
                or len(outs) < len(line.outputs)
                or any(out.numel() < LEAST_REPEATED for out in outs)
            ):
                yield line
            elif isinstance(line.func, _View):
                yield line
                sizes = zip(line.func.size, line.func.stride, strict=True)
                small = tuple(1 if stride == 0 else size for size, stride in sizes)
                base = self.values[line.args[0].word]
                if small != line.func.size:
                    view = replace(line.func, size=small)
                    narrowed = base.as_strided(small, view.stride, view.offset)
                    yield from add(replace(line, func=view), [narrowed])
                elif (moved := _permuted(line, base, twins, self.values)) is not None:
                    narrowed = self.values[moved.args[0].word].as_strided(
                        moved.func.size, moved.func.stride, moved.func.offset
                    )
                    yield from add(moved, [narrowed])
            elif line.func in KEPT_DIMS or torch.Tag.pointwise in line.func.tags:
                other = replace(
                    line, args=tree_map(narrow, line.args), kwargs=tree_map(narrow, line.kwargs)
                )
                if not (other.read - line.read) or not all(out.is_contiguous() for out in outs):
                    yield line
                    continue
                out = other.func(*tree_map(tensor, other.args), **tree_map(tensor, other.kwargs))
                result = list(out) if line.several else [out]
                if all(
                    small.shape == out.shape and small.stride() == out.stride()
                    for small, out in zip(result, outs, strict=True)
                ):
                    yield other
                elif all(
                    small.dim() == out.dim() and out.numel() >= FEWER * small.numel()
                    for small, out in zip(result, outs, strict=True)
                ) and _reduces_what_varies(line, other, self.values):
                    yield from add(other, result)
                else:
                    yield line
            else:
                yield line

    def _cheaper(self, lines: list[_Line], outputs: list[str]) -> list[_Line]:
        """Lines of the same results at less cost.

        Sums of zero-padded slices are those of the slices, and of slopes scattered over categories
        those slopes times how often each is met; maxima come without places.
        """
        padded: dict[str, _Line] = {}
        made: dict[str, _Line] = {}
        read = set(outputs).union(*(line.read for line in lines))
        overwritten = self._overwritten
        out = []
        for line in lines:
            if line.func is aten.slice_backward.default and line.outputs[0] not in overwritten:
                padded[line.outputs[0]] = line
            if (
                line.func is aten.sum.dim_IntList
                and isinstance(line.args[0], _Name)
                and line.args[0].word in padded
            ):
                whole = padded[line.args[0].word]
                ndim = len(whole.args[1])
                if whole.args[2] % ndim in {dim % ndim for dim in line.args[1] or range(ndim)}:
                    line = replace(line, args=(whole.args[0], *line.args[1:]))
            if (
                line.func is aten.select_backward.default
                and line.args[1][line.args[2]] == 1
                and self._whole(line.args[0])
            ):
                line = replace(line, func=aten.unsqueeze.default, args=line.args[::2])
            made |= dict.fromkeys(line.outputs, line)
            if line.func is aten.sum.dim_IntList and isinstance(line.args[0], _Name):
                out.extend(self._counted(line, made))
                continue
            if line.func is aten.max.dim and line.outputs[1] not in read:
                x, dim, *keep = line.args
                line = _Line(aten.amax.default, (x, [dim], *keep), outputs=line.outputs[:1])
            out.append(line)
        return out

    def _whole(self, value: Any) -> bool:
        """Tell whether a tensor is all of its memory, in order, and never written to again."""
        if not isinstance(value, _Name) or self.owner[value.word] in self._overwritten:
            return False
        tensor = self.values[value.word]
        return tensor.is_contiguous() and tensor.storage_offset() == 0

    def _counted(self, line: _Line, made: Mapping[str, _Line]) -> list[_Line]:
        r"""Sum of slopes that are scattered along a dim, those repeated in others but once.

        With slopes g and known categories y, where g is the same for all a,

        .. math:: \sum_a g_n \, [y_{na} = l] = g_n \sum_a [y_{na} = l] .
        """
        scatter = made.get(line.args[0].word)
        if scatter is None or scatter.func is not aten.scatter_add.default:
            return [line]
        nought, along, index, slope = scatter.args
        source = made.get(slope.word) if isinstance(slope, _Name) else None
        words = line.read | scatter.read | {*line.outputs, *scatter.outputs}
        if (
            source is None
            or not isinstance(source.func, _View)
            or not isinstance(nought, Tensor)
            or not isinstance(index, Tensor)
            or bool(nought.any())
            or index.shape != source.func.size
            or {self.owner[word] for word in words | source.read} & self._overwritten
        ):
            return [line]
        ndim, view = nought.dim(), source.func
        summed = {dim % ndim for dim in line.args[1] or range(ndim)} - {along % ndim}
        repeated = [dim for dim in summed if view.stride[dim] == 0 and view.size[dim] > 1]
        if not repeated:
            return [line]
        same = [dim for dim in range(ndim) if index.stride(dim) == 0 and dim not in repeated]
        few = index[tuple(slice(1) if dim in same else slice(None) for dim in range(ndim))]
        sizes = [
            few.shape[dim] if dim != along % ndim else nought.shape[dim] for dim in range(ndim)
        ]
        counts = nought.new_zeros(sizes).scatter_add(along, few, nought.new_ones(few.shape))
        counts = counts.sum(repeated, keepdim=True)
        narrow = tuple(1 if dim in repeated else size for dim, size in enumerate(view.size))
        first, product = (f"{line.outputs[0]}{end}" for end in ("s", "p"))
        (base,) = source.args
        lines = [
            _Line(replace(view, size=narrow), (base,), outputs=(first,)),
            _Line(aten.mul.Tensor, (_Name(first), counts), outputs=(product,)),
            replace(line, args=(_Name(product), *line.args[1:])),
        ]
        value = self.values[base.word].as_strided(narrow, view.stride, view.offset)
        self.values[first], self.owner[first] = value, self.owner[base.word]
        self.values[product], self.owner[product] = value * counts, product
        total = aten.sum.dim_IntList(self.values[product], *line.args[1:], **line.kwargs)
        whole = self.values[line.outputs[0]]
        same_view = (total.dtype, _View.of(total)) == (whole.dtype, _View.of(whole))
        return lines if same_view else [line]


def _not_in_place(func: Any) -> Any:
    """Operation that gives as a new tensor what another writes to its first; None if unknown."""
    name = func._schema.name.removeprefix("aten::").removesuffix("_")
    return getattr(getattr(aten, name, None), func._overloadname, None)


def _permuted(
    line: _Line, base: Tensor, twins: Mapping[str, str], values: Mapping[str, Tensor]
) -> _Line | None:
    """Line with a view of a tensor's dims in another order, of its narrow twin."""
    twin = twins.get(line.args[0].word)
    if twin is None or line.func.offset != base.storage_offset() or not base.is_contiguous():
        return None
    small = values[twin]
    dims = {
        (size, stride): dim
        for dim, (size, stride) in enumerate(zip(base.shape, base.stride(), strict=True))
        if size > 1
    }
    wanted = [pair for pair in zip(line.func.size, line.func.stride, strict=True) if pair[0] > 1]
    if sorted(wanted) != sorted(dims):
        return None
    sizes, strides = [], []
    for pair in zip(line.func.size, line.func.stride, strict=True):
        dim = dims[pair] if pair[0] > 1 else None
        sizes.append(1 if dim is None else small.shape[dim])
        strides.append(1 if dim is None else small.stride(dim))
    view = _View(tuple(sizes), tuple(strides), int(small.storage_offset()))
    return replace(line, func=view, args=(_Name(twin),))


def _reduces_what_varies(line: _Line, other: _Line, values: Mapping[str, Tensor]) -> bool:
    """Tell whether a reduction leaves out no dim along which its argument repeats."""
    if line.func not in ALONG_DIMS:
        return True
    whole, small = values[line.args[0].word], values[other.args[0].word]
    dims = line.args[1] if isinstance(line.args[1], list) else [line.args[1]]
    return bool(dims) and all(whole.shape[dim] == small.shape[dim] for dim in dims)


def _has_open_size(func: Any, args: tuple[Any, ...]) -> bool:
    """Tell whether a result's size depends on values, as of entries chosen by a mask."""
    if torch.Tag.dynamic_output_shape not in func.tags:
        return False
    return func is not aten.index.Tensor or any(
        part is not None and part.dtype in (torch.bool, torch.uint8) for part in args[1]
    )


def _key(leaf: Any) -> Any:
    """Key of an argument for comparison: tensors by identity, numbers with type."""
    return (
        ("tensor", id(leaf))
        if isinstance(leaf, Tensor)
        else (type(leaf), repr(leaf) if isinstance(leaf, float) else leaf)
    )


def recorded(function: Function, point: Tensor) -> Function:
    """Record ``function`` as tensor operations; return it as it is where that fails.

    Args:
        function: tensors of one tensor. What it does may depend on shapes, and on questions of yes
            or no about values: for every set of answers it is recorded anew, a few times. It must
            not be random.
        point: an input to record at; the replay is for inputs of this shape, and is compared with
            the function at another point before it is used.
    """
    first = _course(function, point)
    if first is None:
        return function
    courses = [first]
    more = True

    def replayed(value: Tensor) -> tuple[Tensor, ...]:
        nonlocal more
        for course in courses:
            try:
                return _replayed(course, value)
            except _Elsewhere:
                continue
        if more:
            new = _course(function, value)
            courses.extend([] if new is None else [new])
            more = new is not None and len(courses) < MOST_COURSES
        return function(value)

    return replayed


def _replayed(course: Function, value: Tensor) -> tuple[Tensor, ...]:
    with torch.inference_mode():  # the least work for each operation
        out = course(value)
    return tuple(part.clone() for part in out)  # which may be differentiated and overwritten


def recorded_by_rows(function: Function, points: Tensor) -> Function:
    """Record a function of one row as operations on many rows at once.

    Every operation is recorded as it is for one row, and then as torch vectorises it. Where that
    cannot be, where rows answer a question differently, or where tensors are large, so that
    operations cost as much as their numbers, the rows are taken one by one.

    Args:
        function: of a row (1, P), its outputs (1, ...); as in :func:`recorded`.
        points: (R, P), to record at; the replay is for as many rows.
    """
    alone = recorded(function, points[:1])

    def one_by_one(rows: Tensor) -> tuple[Tensor, ...]:
        return tuple(map(torch.cat, zip(*map(alone, rows.split(1)), strict=True)))

    course = None if len(points) == 1 else _course_by_rows(function, one_by_one, points)
    if course is None:
        return one_by_one

    def replayed(rows: Tensor) -> tuple[Tensor, ...]:
        try:
            return _replayed(course, rows)
        except _Elsewhere:
            return one_by_one(rows)

    return replayed


def _course_by_rows(function: Function, one_by_one: Function, points: Tensor) -> Function | None:
    recording = _recording(function, points[:1], of_row=True)
    if recording is None or recording.held * len(points) > MOST_TOGETHER:
        return None
    count = len(recording.outputs)
    lines, words = recording.shortened(recording.outputs)
    asked = [line for line in lines if isinstance(line.func, bool)]
    answers = torch.tensor([line.func for line in asked], device=points.device)
    row = _as_function(
        [line for line in lines if not isinstance(line.func, bool)],
        words + [line.args[0].word for line in asked],
    )

    def of_row(point: Tensor) -> tuple[Tensor, ...]:
        out = row(point.unsqueeze(0))
        return (*(value[0] for value in out[:count]), *(value.reshape(()) for value in out[count:]))

    def together(rows: Tensor) -> tuple[Tensor, ...]:
        out = torch.vmap(of_row, randomness="different")(rows)  # of draws that change nothing
        if asked and not bool((torch.stack(out[count:], 1) == answers).all()):
            raise _Elsewhere
        return tuple(out[:count])

    try:
        course = _course(together, points)
        if course is None or not _agree(one_by_one(points), course(points)):
            return None
    except (_Elsewhere, RuntimeError, NotImplementedError):  # no rule for rows of an operation
        return None
    return course


def _recording(function: Function, point: Tensor, of_row: bool = False) -> _Recorder | None:
    """Operations of a function at a point; None where they are not the same everywhere."""
    point = point.detach().clone(memory_format=torch.contiguous_format)
    recorder = _Recorder(point, of_row)
    try:
        with recorder:
            outputs = function(point)
    except (_ControlFlow, _TooLarge):
        return None
    if any(id(value) not in recorder.words for value in outputs):
        return None
    recorder.outputs = [recorder.words[id(value)] for value in outputs]
    return recorder


def _agree(expected: tuple[Tensor, ...], found: tuple[Tensor, ...]) -> bool:
    return all(
        torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
        for one, other in zip(expected, found, strict=True)
    )


def _course(function: Function, point: Tensor) -> Function | None:
    """Recorded operations at one point as a function; None where they differ from it."""
    recorder = _recording(function, point)
    if recorder is None:
        return None
    replay = _as_function(*recorder.shortened(recorder.outputs))
    point = recorder.values["v0"]
    aside = torch.cos(torch.arange(point.numel(), dtype=point.dtype, device=point.device)).reshape(
        point.shape
    )
    for other in (point, point + 1e-3 * aside, point + 1e-6 * aside):
        try:
            with torch.no_grad():
                again = replay(other)
        except _Elsewhere:
            continue  # the answers change nearby
        except (
            RuntimeError,
            TypeError,
            IndexError,
        ):  # an operation that asks for more than its arguments
            return None
        if not _agree(function(other), again):
            return None
        if other is not point:
            return replay
    return None


def _as_function(lines: list[_Line], outputs: list[str]) -> Function:
    """Compile lines to a Python function that frees each value after its last use."""
    scope: dict[str, Any] = {"_Elsewhere": _Elsewhere, "as_strided": torch.as_strided}
    kept: dict[Any, str] = {}

    def constant(value: Any) -> str:
        word = kept.setdefault((type(value), id(value)), f"c{len(kept)}")
        scope[word] = value
        return word

    def word(value: Any) -> str:
        if isinstance(value, _Name):
            return value.word
        if isinstance(value, list | tuple):
            return "[" + ", ".join(map(word, value)) + "]"
        return repr(value) if value is None or isinstance(value, bool | int) else constant(value)

    last = {name: at for at, line in enumerate(lines) for name in line.read | set(line.outputs)}
    body = []
    for at, line in enumerate(lines):
        if isinstance(line.func, bool):
            body.append(f"if {word(line.args[0])}.item() is not {line.func}: raise _Elsewhere")
        elif isinstance(line.func, _View):
            body.append(
                f"{line.outputs[0]} = as_strided({word(line.args[0])}, {line.func.size},"
                f" {line.func.stride}, {line.func.offset})"
            )
        else:
            func = (
                getattr(torch, line.func._schema.name[6:])
                if line.func in SAME_IN_TORCH
                else line.func._op
            )
            words = [*map(word, line.args), *(f"{k}={word(v)}" for k, v in line.kwargs.items())]
            body.append(
                f"{', '.join(line.outputs)}{',' * line.several} ="
                f" {constant(func)}({', '.join(words)})"
            )
        over = sorted(
            name
            for name in (line.read | set(line.outputs)) - {"_", "v0", *outputs}
            if last[name] == at
        )
        if over:
            body.append(f"del {', '.join(over)}")
    text = "\n".join(f"    {line}" for line in body)
    exec(
        "def replay(v0):\n    v0 = v0.contiguous()\n    v0 = v0.clone() if v0.storage_offset()"
        f" else v0\n{text}\n    return ({', '.join(outputs)},)\n",
        scope,
    )  # built from operations alone
    replay: Function = scope["replay"]
    return replay
