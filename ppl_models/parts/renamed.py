"""Public names of the last release that have new ones; using one warns until the next release."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from ppl_models.parts.surface import promised


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
