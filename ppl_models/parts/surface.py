"""Public names of a module, as ``dir`` lists them, and the names that it had before."""

from __future__ import annotations

import ast
import functools
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar


def promised(module: str) -> Callable[[], list[str]]:
    """Return the ``__dir__`` of a public module: ``__all__``, or else what its face imports."""

    def names() -> list[str]:
        found = vars(sys.modules[module])
        return sorted(
            found.get("__all__")
            or (
                name
                for name, value in found.items()
                if not name.startswith("_") and not isinstance(value, ModuleType)
            )
        )

    return names


class _Face(ModuleType):
    """Public module whose function keeps its name beside a file of the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in self._first_use):
            super().__setattr__(name, value)


def on_first_use(module: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a public module that imports names when asked.

    Args:
        module: name of the module, ``__name__`` in it, whose names stand as ``from x import y as
            y`` under ``if TYPE_CHECKING``, so that type checkers and editors see them.
    """
    face = sys.modules[module]
    tree = ast.parse(Path(str(face.__file__)).read_text(encoding="utf-8"))
    places = {
        alias.name: str(node.module)
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module not in (None, module)
        for alias in node.names
    }
    face.__dict__["_first_use"] = places
    face.__dict__.setdefault("__all__", sorted(places))  # for ``from module import *``
    face.__class__ = _Face

    def get(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value: object = getattr(import_module(places[name]), name)
        face.__dict__[name] = value
        return value

    return get, lambda: sorted(places)


T = TypeVar("T")


def warn_renamed(old: str, new: str, depth: int = 2) -> None:
    """Warn that a public name has a new one.

    Args:
        old: name of the last release.
        new: name today.
        depth: number of calls between the user's line and this function.
    """
    message = f"{old} is deprecated: write {new}; the next version has the new name alone"
    warnings.warn(message, DeprecationWarning, stacklevel=depth + 1)


def with_old_names(
    module: str, **names: str
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a public module that had other names.

    Args:
        module: name of the module, ``__name__`` in it.
        names: its names today, by those of the last release.
    """

    def get(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_renamed(f"{module}.{name}", names[name])
        return getattr(sys.modules[module], names[name])

    return get, promised(module)


class Renamed:
    """Attribute or method of the last release that reads the one of today, with a warning.

    Args:
        new: name of the attribute today.
    """

    def __init__(self, new: str) -> None:
        self.new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self.old = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is not None:
            warn_renamed(f"{owner.__name__}.{self.old}", self.new)
        return getattr(owner if instance is None else instance, self.new)


def with_old_fields(**names: str) -> Callable[[type[T]], type[T]]:
    """Decorate a record whose fields had other names, as which they are still given and read.

    Args:
        names: of the fields today, by those of the last release; ``old_fields`` of the record.
    """

    def decorate(kind: type[T]) -> type[T]:
        record: Any = kind
        plain = record.__init__

        @functools.wraps(plain)
        def init(self: Any, *args: Any, **fields: Any) -> None:
            for old in [name for name in names if name in fields]:
                warn_renamed(f"{kind.__name__}({old}=...)", f"{names[old]}=...")
                fields[names[old]] = fields.pop(old)
            plain(self, *args, **fields)

        record.__init__, record.old_fields = init, names
        for old, new in names.items():
            setattr(record, old, Renamed(new))
            vars(record)[old].__set_name__(record, old)
        return kind

    return decorate
