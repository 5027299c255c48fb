"""The page of a choice or a test, whatever is said of it in ``choices.py`` and
``differences.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.report import differences  # noqa: F401  (registers its records)
from inference.report.choices import choice
from inference.report.page import cell, picture, write_page
from inference.report.parts import Bullets, Part, Section, Table

if TYPE_CHECKING:
    import pandas as pd


HEADINGS = {
    "log_likelihood": "log-likelihood",
    "num_parameters": "free parameters",
    "held_out_cost": "held-out cost",
    "behind_best": "behind the best",
    "behind_error": "standard error of that",
    "pvaf_given": "variance explained, given",
    "pvaf_suggested": "variance explained, suggested",
    "gain": "fall of BIC",
}


def write_choice_report(record: Any, path: str | Path) -> Path:
    """Write the page: one file, the picture inside, nothing fetched from elsewhere, every text
    escaped.

    Args:
        record: of :func:`inference.selection.select_dimension`,
            :func:`~inference.selection.saturation`, :func:`~inference.selection.compare_roots`,
            :func:`~inference.selection.penalty_path`, :func:`~inference.selection.compare_groups`,
            :func:`~inference.selection.item_scores`,
            :func:`~inference.selection.differential_items`,
            :func:`~inference.selection.likelihood_ratio_test`,
            :func:`inference.relations.regress_classes`,
            :func:`~inference.relations.compare_outcomes` or
            :func:`inference.inspection.validate_q`, or the ``choice`` of a fit that found its
            penalty.
        path: the file, replaced if it exists.

    Raises:
        ValueError: for another kind of record.
    """
    own = choice(record)
    drawn: list[Part] = (
        []
        if own.draw is None
        else [picture(own.draw, "the figure that decided, by what was compared")]
    )
    sections = [
        Section("verdict", "Verdict", [own.verdict]),
        *own.more,
        Section("picture", "Picture", drawn),
        Section("table", "Numbers", _explained(own.table, own.meanings)),
        *(
            Section(f"table-{number}", title, _explained(table, meanings))
            for number, (title, table, meanings) in enumerate(own.others, 1)
        ),
    ]
    return write_page(Path(path), own.title, sections)


def _explained(frame: pd.DataFrame, meanings: Mapping[str, str]) -> Iterator[Part]:
    frame = frame.reset_index() if frame.index.name or frame.index.nlevels > 1 else frame
    yield _table(frame)
    explained = [
        f"{_heading(name)}: {meaning}."
        for name, meaning in meanings.items()
        if name in frame.columns
    ]
    if explained:
        yield Bullets(explained)


def _heading(name: Any) -> str:
    return (
        str(name).upper()
        if name in ("aic", "bic", "ebic")
        else HEADINGS.get(str(name), str(name).replace("_", " "))
    )


def _table(frame: pd.DataFrame) -> Table:
    head = [_heading(name) for name in frame.columns]
    return Table(head, [[cell(value) for value in row] for row in frame.itertuples(index=False)])
