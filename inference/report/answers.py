"""Pages of answers: one page maker for the record of every question, the verdict first.

A record registers with :func:`answer_of` in the module of this package that :data:`MODULES` names
for the package of its question; it is imported when such a record is first written.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.report.page import cell, picture, write_page
from inference.report.parts import Bullets, Part, Section, Table, Verdict
from inference.report.words import entry, say

if TYPE_CHECKING:
    import pandas as pd


MODULES = {  # package of a question -> module with its answers
    "base": "choices",
    "causal": "causal",
    "comparison": "comparison",
    "inspection": "choices",
    "relations": "choices",
    "selection": "choices",
}


@dataclass(frozen=True)
class Answer:
    """Title, verdict, pictures and tables of a page.

    Args:
        title: of the page.
        verdict: findings and next steps.
        draw: gives the picture of the record; None for a record without one.
        tables: title -> frame and name of its columns' meanings in the catalogue of words.
        more: sections of a kind of its own, after the verdict.
    """

    title: str
    verdict: Verdict
    draw: Any = None
    tables: Mapping[str, tuple[pd.DataFrame, str]] = field(default_factory=dict)
    more: Sequence[Section] = ()

    @property
    def sections(self) -> list[Section]:
        """Sections in the order of the page, some without parts."""
        drawn: list[Any] = [] if self.draw is None else [picture(self.draw, say("answer.picture"))]
        tables = [
            Section(f"table-{i}" if i else "table", title, _explained(*table))
            for i, (title, table) in enumerate(self.tables.items())
        ]
        verdict = Section("verdict", "Verdict", [self.verdict])
        return [verdict, *self.more, Section("picture", "Picture", drawn), *tables]


@functools.singledispatch
def answer_of(record: Any) -> Answer:
    """Return what the page of a record says.

    Raises:
        ValueError: for a record of no question.
    """
    module = MODULES.get((type(record).__module__.split(".") + [""])[1], "choices")
    import_module(f"inference.report.{module}")
    own = answer_of.dispatch(type(record))
    if own is not answer_of.dispatch(object):
        return own(record)
    kinds = ", ".join(kind.__name__ for kind in answer_of.registry if kind is not object)
    raise ValueError(
        f"write_choice_report: a record of a choice was expected ({kinds}), got"
        f" {type(record).__name__}"
    )


def write_choice_report(record: Any, path: str | Path) -> Path:
    """Write the page of a record: one file, pictures inside, every text escaped.

    Args:
        record: of :func:`inference.selection.select_dimension`,
            :func:`~inference.selection.select_components`,
            :func:`~inference.selection.saturation`,
            :func:`~inference.selection.penalty_path`, :func:`~inference.selection.compare_groups`,
            :func:`~inference.selection.item_scores`,
            :func:`~inference.selection.differential_items`,
            :func:`~inference.selection.likelihood_ratio_test`,
            :func:`~inference.selection.at_least`,
            :func:`inference.relations.regress_classes`,
            :func:`~inference.relations.compare_outcomes`, :func:`inference.compare`,
            :func:`inference.causal.discover_attributes` or
            :func:`inference.inspection.validate_q`, or the ``choice`` of a fit that found its
            penalty.
        path: the file, replaced if it exists.

    Raises:
        ValueError: for another kind of record.
    """
    return write_page(answer_of(record), path)


def heading(name: Any) -> str:
    """Return the heading of a column of a record's table."""
    words: str | None = entry("headings").get(str(name))
    short = name in ("aic", "bic", "ebic")
    return words or (str(name).upper() if short else str(name).replace("_", " "))


def _explained(frame: pd.DataFrame, meanings: str) -> Iterator[Part]:
    frame = frame.reset_index() if frame.index.name or frame.index.nlevels > 1 else frame
    rows = [[cell(value) for value in row] for row in frame.itertuples(index=False)]
    yield Table([heading(name) for name in frame.columns], rows)
    words = entry(f"columns.{meanings}") if meanings else {}
    explained = [f"{heading(name)}: {words[name]}." for name in words if name in frame.columns]
    if explained:
        yield Bullets(explained)
