"""Modules of a folder that register themselves by kind of description."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping


@functools.cache
def load_modules(package: str) -> None:
    """Import every module of a package, once."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")


def load_kind(package: str, kind: type, renamed: Mapping[str, str] | None = None) -> None:
    """Import the modules named like parts of a class's or a base's module.

    For a class of ``inference.structures.layers.attributes`` these are ``layers`` and
    ``attributes``, where the package has them.

    Args:
        package: name of the package.
        kind: class whose files are imported.
        renamed: part -> name of its module, where that is another.
    """
    parts = [part for base in kind.__mro__[::-1] for part in base.__module__.split(".")[2:]]
    for part in dict.fromkeys((renamed or {}).get(part, part) for part in parts):
        if importlib.util.find_spec(f"{package}.{part}") is not None:
            importlib.import_module(f"{package}.{part}")
