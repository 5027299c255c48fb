"""Lazy imports of pictures, tables and pages by name, and of modules that register themselves."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppl_models.parts.repr import Told

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure

PACKAGE = __name__.partition(".")[0]


PICTURES = {  # picture of a record -> module of inference.plots that draws it
    "plot_causal_graph": "causal",
    "plot_choice": "components",
    "plot_comparison": "selection",
    "plot_estimates": "estimates",
    "plot_fit": "overview",
    "plot_group_mastery": "attributes",
    "plot_how_many": "selection",
    "plot_how_many_groups": "selection",
    "plot_item_scores": "attributes",
    "plot_lower_limit": "selection",
    "plot_mesa": "attributes",
    "plot_ranks": "selection",
    "plot_saturation": "classifiers",
    "plot_selection": "selection",
}


def draw(picture: str, *args: Any, **settings: Any) -> Any:
    """Draw a record as a picture of :mod:`inference.plots`, such as ``plot_comparison``."""
    return ask(f"plots.{PICTURES[picture]}", picture, *args, **settings)


def ask(module: str, question: str, *args: Any, **settings: Any) -> Any:
    """Call a function of a public module by name: ``ask("report", "write_report", fit, ...)``."""
    return getattr(importlib.import_module(f"{PACKAGE}.{module}"), question)(*args, **settings)


class Answer(Told):
    """Protocol of a record with an answer in text and on a page of its own."""

    def report(self, path: str | Path) -> Path:
        """Write one page in HTML; see :func:`inference.report.write_choice_report`.

        The file is replaced if it exists.
        """
        page: Path = ask("report", "write_choice_report", self, path)
        return page
