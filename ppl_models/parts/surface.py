"""Public names of a module, as ``dir`` lists them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType


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
