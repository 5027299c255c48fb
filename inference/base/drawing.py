"""The one door from a record's ``.plot()`` up to the pictures; opened when a picture is asked for, and only then."""

from __future__ import annotations

from typing import Any

__all__ = ["draw"]


def draw(picture: str, *args: Any, **settings: Any) -> Any:
    """A picture of :mod:`inference.plots` by its name, such as ``plot_comparison``."""
    import inference.plots

    return getattr(inference.plots, picture)(*args, **settings)
