"""Lazy imports of pictures, tables and pages by name, and of modules that register themselves."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from pathlib import Path
from typing import Any

from ppl_models.parts.repr import Told

PACKAGE = __name__.partition(".")[0]


def draw(picture: str, *args: Any, **settings: Any) -> Any:
    """A picture of :mod:`inference.plots` by its name, such as ``plot_comparison``."""
    return ask("plots", picture, *args, **settings)


def ask(module: str, question: str, *args: Any, **settings: Any) -> Any:
    """Ask a public module by name, as in ``ask("report", "write_report", fit, data, path)``."""
    return getattr(importlib.import_module(f"{PACKAGE}.{module}"), question)(*args, **settings)


class Answer(Told):
    """A record that says its answer at a prompt, and on a page of its own."""

    def report(self, path: str | Path) -> Path:
        """One page in HTML, the verdict first; see :func:`inference.report.write_choice_report`.

        The file is replaced if it exists.
        """
        page: Path = ask("report", "write_choice_report", self, path)
        return page


@functools.cache
def load_modules(package: str) -> None:
    """Import every module of a package, once."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")
