"""A digest of a Python value by its code and contents, the same in another process.

A running fit is resumed only by the program it is of. A ``repr`` does not tell two programs apart:
that of a large tensor is abridged, that of an object is its address, and what a function calls and
reads beside its arguments is not in it. Here a function is its code, its defaults, the variables it
closes over and the globals it reads, each by its own contents; an object is its class and its
attributes; a tensor is its numbers. What Python, installed packages and this library define counts
by name.
"""

from __future__ import annotations

import dataclasses
import dis
import enum
import functools
import hashlib
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ppl_models.data.frames import is_frame

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), range, slice)
KNOWN = {"ppl_models", "inference", "pyro", "torch", "numpy", *sys.stdlib_module_names}
MOVED = {  # modules that had another name in release 0.1.0, whose checkpoints still resume
    "ppl_models.descriptions.attribute_distribution": "ppl_models.descriptions.attribute_law",
    "ppl_models.descriptions.row_distributions": "ppl_models.descriptions.row_laws",
}
UNSAID = {  # of a class: what Python and dataclasses write of themselves
    "__dict__",
    "__weakref__",
    "__doc__",
    "__module__",
    "__qualname__",
    "__annotations__",
    "__abstractmethods__",
    "__slots__",
    "__parameters__",
    "__orig_bases__",
    "__match_args__",
    "__dataclass_fields__",
    "__dataclass_params__",
    "__repr__",
    "__eq__",
    "__hash__",
    "__setattr__",
    "__delattr__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__firstlineno__",
    "__static_attributes__",
    "__annotate__",
}


def digest_of(value: Any, name: str, skip_fitted: bool = False) -> str:
    """Digest of a value, equal for equal code and contents.

    Args:
        value: numbers, texts, arrays, tensors, containers, records, functions, modules and objects
            of such.
        name: what it is called in a message.
        skip_fitted: whether parameters of networks, which a fit changes in place, count by their
            shapes alone.

    Raises:
        ValueError: naming a part whose contents cannot be read, such as an open file or a lock.
    """
    home = getattr(value, "__module__", None) if callable(value) else None
    digest = _Digest(skip_fitted, (home or "").partition(".")[0])
    digest.add(value, name)
    return digest.hash.hexdigest()


class _Digest:
    """Recursive digest of one value.

    Everything written is a tag and its length, so that no two values write the same.
    """

    def __init__(self, skip_fitted: bool, home: str) -> None:
        self.hash = hashlib.sha256()
        self.skip_fitted = skip_fitted
        self.home = home  # the package of a program: read even where it is installed
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # an id is only one as long as its object lives

    def by_name(self, module: str | None) -> bool:
        """Tell whether definitions of a module count by name, not by code."""
        top = (module or "builtins").partition(".")[0]
        return _is_installed(top) and (top != self.home or top in KNOWN)

    def word(self, *parts: Any) -> None:
        for part in parts:
            data = (
                part
                if isinstance(part, bytes | memoryview)
                else str(part).encode("utf-8", "surrogatepass")
            )
            self.hash.update(f"{len(data)}:".encode())
            self.hash.update(data)

    def add(self, value: Any, where: str) -> None:
        if type(value) in PLAIN:
            self.word(type(value).__name__, repr(value))
        elif isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, np.ndarray | np.generic):
            self._array(value, where)
        elif isinstance(value, torch.dtype | torch.device | torch.layout | torch.Size):
            self.word("torch", value)
        elif type(value) is tuple:
            self._items("tuple", value, where)
        elif id(value) in self.seen:
            self.word("again", self.seen[id(value)])
        else:
            self.seen[id(value)] = len(self.seen)
            self.kept.append(value)
            self._structured(value, where)

    def _structured(self, value: Any, where: str) -> None:
        if isinstance(value, types.ModuleType):
            self.word("module", value.__name__)
        elif isinstance(value, type):
            self._class(value, where)
        elif isinstance(value, types.FunctionType):
            self._function(value, where)
        elif isinstance(value, types.CodeType):
            self._code(value, where)
        elif isinstance(value, types.MethodType):
            self.word("method")
            self.add(value.__func__, where)
            self.add(value.__self__, f"{where}.__self__")
        elif isinstance(
            value,
            types.BuiltinFunctionType | types.MethodDescriptorType | types.WrapperDescriptorType,
        ):
            self.word("built in", getattr(value, "__module__", None), value.__qualname__)
            owner = getattr(value, "__self__", None)
            if owner is not None and not isinstance(owner, types.ModuleType):
                self.add(owner, f"{where}.__self__")
        elif isinstance(value, functools.partial):
            self._items("partial", (value.func, value.args, value.keywords), where)
        elif isinstance(value, staticmethod | classmethod):
            self._items(type(value).__name__, (value.__func__,), where)
        elif isinstance(value, property):
            self._items("property", (value.fget, value.fset, value.fdel), where)
        elif isinstance(value, enum.Enum):
            self.word("enum", type(value).__module__, type(value).__qualname__, value.name)
            self.add(value.value, where)
        elif isinstance(value, torch.Generator):
            self._items("generator", (value.get_state(),), where)
        elif isinstance(value, types.MappingProxyType):
            self._dict(dict(value), where)
        elif isinstance(value, dict):
            self._owner(value, where)
            self._dict(value, where)
        elif isinstance(value, list | tuple):
            self._owner(value, where)
            self._items("items", value, where)
        elif isinstance(value, set | frozenset):
            self.word(
                "set",
                len(value),
                *sorted(digest_of(part, f"{where}: a member", self.skip_fitted) for part in value),
            )
        elif is_frame(value):
            self._items(
                "frame", [np.asarray(value.columns), np.asarray(getattr(value, "index", ()))], where
            )
            self._items("columns", [np.asarray(value[name]) for name in value.columns], where)
        elif hasattr(value, "to_numpy") and hasattr(value, "dtype"):
            parts = [
                np.asarray(value),
                np.asarray(getattr(value, "index", ())),
                getattr(value, "name", None),
            ]
            self._items("series", parts, where)
        elif hasattr(value, "__wrapped__") and not hasattr(value, "__dict__"):
            self.add(value.__wrapped__, where)
        else:
            self._object(value, where)

    # ---------------------------------------------------------------- numbers

    def _tensor(self, value: Tensor) -> None:
        if self.skip_fitted and isinstance(value, nn.Parameter):
            self.word("fitted", value.dtype, tuple(value.shape))
            return
        dense = value.detach().cpu()
        dense = (
            (dense if dense.layout == torch.strided else dense.to_dense())
            .resolve_conj()
            .resolve_neg()
        )
        self.word("tensor", value.dtype, value.layout, tuple(value.shape), plain_bytes(dense))

    def _array(self, value: Any, where: str) -> None:
        self.word("array", value.dtype.str, value.shape)
        if isinstance(value, np.ma.MaskedArray):
            self._array(np.ma.getmaskarray(value), where)
        if value.dtype.hasobject:
            self._items(
                "objects",
                value.ravel().tolist() if isinstance(value, np.ndarray) else [value.item()],
                where,
            )
        else:
            self.word(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)

    # ---------------------------------------------------------------- containers and objects

    def _items(self, kind: str, values: Iterable[Any], where: str) -> None:
        values = list(values)
        self.word(kind, len(values))
        for i, part in enumerate(values):
            self.add(part, f"{where}[{i}]" if kind in ("tuple", "items") else where)

    def _dict(self, value: dict[Any, Any], where: str) -> None:
        self.word("dict", len(value))
        for key, part in value.items():
            self.add(key, f"{where}: a key")
            self.add(part, f"{where}[{key!r}]" if isinstance(key, str | int) else where)

    def _owner(self, value: Any, where: str) -> None:
        """Digest the class of a container, and what a subclass holds beside the items."""
        if type(value) not in (dict, list):
            self.add(type(value), f"{where}: its class")
            attributes = getattr(value, "__dict__", {})
            if attributes:
                self._dict(attributes, where)

    def _object(self, value: Any, where: str) -> None:
        kind: Any = type(value)
        self.word("object")
        self.add(kind, f"{where}: its class")
        if (
            kind.__reduce_ex__ is object.__reduce_ex__
            and kind.__reduce__ is object.__reduce__
            and _holds(kind)
        ):
            later = _added_later(value)
            for name, part in _attributes(value):
                if name not in later:
                    self.word(name)
                    self.add(part, f"{where}.{name}")
            return
        try:
            reduced = value.__reduce_ex__(4)
        except Exception as error:
            raise ValueError(
                f"checkpoint: {where} is a {kind.__name__}, whose contents cannot be read, so that"
                " the checkpoint of another program could be taken for this one: hand it over as"
                " numbers, arrays or a record of such, or fit without a checkpoint"
            ) from error
        if isinstance(reduced, str):
            self.word("global", reduced)
            return
        for part in reduced:
            self.add(list(part) if isinstance(part, Iterator) else part, where)

    # ---------------------------------------------------------------- code

    def _class(self, kind: type, where: str) -> None:
        self.word("class", MOVED.get(kind.__module__, kind.__module__), kind.__qualname__)
        if self.by_name(kind.__module__):
            return
        self._items("bases", kind.__bases__, where)
        made = getattr(kind.__dict__.get("__dataclass_params__"), "init", False)
        for name, part in kind.__dict__.items():
            is_slot = isinstance(part, types.MemberDescriptorType | types.GetSetDescriptorType)
            if not (
                name in UNSAID
                or name.startswith("_abc_")
                or is_slot
                or (made and name == "__init__")
            ):
                self.word(name)
                self.add(part, f"{where}.{name}")
        if dataclasses.is_dataclass(kind):
            self.word(*(field.name for field in dataclasses.fields(kind)))

    def _function(self, value: types.FunctionType, where: str) -> None:
        home = value.__globals__.get("__name__", "__main__")
        installed = self.by_name(home)
        self.word("function", home, value.__code__.co_qualname)
        if not installed:
            self._code(value.__code__, where)
            self._globals(value.__code__, value.__globals__, where)
        self._items("defaults", (value.__defaults__, value.__kwdefaults__), where)
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            self.word(name)
            try:
                content = cell.cell_contents
            except ValueError:  # not assigned yet
                self.word("empty")
            else:
                self.add(content, f"{where}: its variable {name!r}")
        attributes = {name: part for name, part in value.__dict__.items() if name != "__wrapped__"}
        if attributes and not installed:
            self._dict(attributes, where)

    def _code(self, code: types.CodeType, where: str) -> None:
        self.word(
            "code",
            code.co_code,
            *code.co_names,
            "|",
            *code.co_varnames,
            "|",
            *code.co_freevars,
            "|",
            code.co_flags,
            code.co_argcount,
        )
        self.word(
            code.co_posonlyargcount, code.co_kwonlyargcount, getattr(code, "co_exceptiontable", b"")
        )
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(constant, where)
            else:
                self.add(constant, where)

    def _globals(self, code: types.CodeType, names: dict[str, Any], where: str) -> None:
        """Digest the module's variables that code reads, each by its contents."""
        for name in sorted(set(_read_names(code))):
            if name in names:
                self.word("global", name)
                self._named(names[name], code, f"{where}: the global {name!r}")
        for name in sorted(set(_imported(code))):
            if name in sys.modules:
                self._named(sys.modules[name], code, f"{where}: the module {name!r}")

    def _named(self, value: Any, code: types.CodeType, where: str) -> None:
        """Digest a global; of a module of the user's own, what the code takes from it."""
        if not isinstance(value, types.ModuleType) or self.by_name(value.__name__):
            self.add(value, where)
            return
        self.word("module", value.__name__)
        taken = set(_all_names(code))
        for name, part in sorted(vars(value).items()):
            if name in taken and part is not value:
                self.word(name)
                self._named(part, code, f"{where}.{name}")


def plain_bytes(value: Tensor) -> memoryview:
    """Bytes of a dense CPU tensor's numbers in order, whatever its strides."""
    if value.is_contiguous():
        # a dim of size one may have any stride, and is called contiguous
        flat = value.as_strided((value.numel(),), (1,))
    else:
        flat = value.clone(memory_format=torch.contiguous_format).reshape(-1)
    return flat.view(torch.uint8).numpy().data


# ---------------------------------------------------------------- what belongs to whom


@functools.cache
def _is_installed(top: str) -> bool:
    """Tell whether a package is Python's, this library's or otherwise installed."""
    # a user's code, though an installed program (pytest, a kernel) may have started it
    if top == "__main__":
        return False
    if top in KNOWN:
        return True
    file = getattr(sys.modules.get(top), "__file__", None) or next(
        iter(getattr(sys.modules.get(top), "__path__", ())), ""
    )
    return "site-packages" in file or "dist-packages" in file


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _read_names(code: types.CodeType) -> Iterator[str]:
    for part in _codes(code):
        yield from (
            i.argval for i in dis.get_instructions(part) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        )


def _imported(code: types.CodeType) -> Iterator[str]:
    for part in _codes(code):
        yield from (i.argval for i in dis.get_instructions(part) if i.opname == "IMPORT_NAME")


def _all_names(code: types.CodeType) -> Iterator[str]:
    for part in _codes(code):
        yield from part.co_names


def _holds(kind: type) -> bool:
    """Tell whether objects of a class keep their contents in attributes that Python shows."""
    return kind.__dictoffset__ != 0 or any("__slots__" in base.__dict__ for base in kind.__mro__)


def _added_later(value: Any) -> set[str]:
    """Fields at their default that a release added to a record, whose digest stays what it was."""
    if not dataclasses.is_dataclass(value):
        return set()
    return {
        field.name
        for field in dataclasses.fields(value)
        if "since" in field.metadata and getattr(value, field.name) == field.default
    }


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of an object's own attributes, cached ones left out."""
    kind = type(value)
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)
    if isinstance(value, torch.distributions.Distribution) and isinstance(
        getattr(kind, "logits", None), torch.distributions.utils.lazy_property
    ):
        yield "logits", getattr(value, "logits")  # noqa: B009, given as either of two, and the other computed when asked for
    kept = (functools.cached_property, torch.distributions.utils.lazy_property)
    for name, part in getattr(value, "__dict__", {}).items():
        if not isinstance(getattr(kind, name, None), kept):
            yield name, part
