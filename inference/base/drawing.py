"""The one door from a record's ``.plot()`` up to the pictures: it knows their name, and opens when a picture is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["draw"]

PACKAGE = __name__.partition(".")[0]


def draw(picture: str, *args: Any, **settings: Any) -> Any:
    """A picture of :mod:`inference.plots` by its name, such as ``plot_comparison``."""
    return getattr(import_module(f"{PACKAGE}.plots"), picture)(*args, **settings)
