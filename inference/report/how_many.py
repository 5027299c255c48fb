"""Why this K? The page of a rule that chooses law and number together: its three sentences, what they rest on, and the figures of every law."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from inference.fitting.showing import rows_in_words
from inference.plots.components import plot_discrepancies
from inference.plots.selection import plot_how_many, plot_how_many_groups
from inference.report.page import number, picture, write_page
from inference.report.parts import Bullets, Note, Paragraph, Part, Section, Table
from inference.selection.how_many.mixture_answer import HowManyGroups

if TYPE_CHECKING:
    from inference.acdc.criterion import AcdcResult
    from inference.selection.how_many.answer import HowMany

__all__ = ["how_many_sections", "write_how_many_report"]

COLUMNS = {
    "log_likelihood": "log-likelihood", "strict": "strict", "bic": "BIC", "lenient": "lenient", "gain_in_edges": "gain, noise edges", "icl": "ICL",
    "num_parameters": "parameters",
}  # fmt: skip


def how_many_sections(answer: HowMany) -> list[Section]:
    """The answer in words, its pictures, and the figures of every law and number.

    Args:
        answer: of :func:`inference.selection.select_components`.
    """
    return [
        Section("answer", f"How many? {answer.num_components}, {answer.word}", _words(answer)),
        Section("laws", "Laws and numbers", _laws(answer)),
        Section("groups", "Groups and overlap", _groups(answer) if isinstance(answer, HowManyGroups) else ()),
    ]


def write_how_many_report(answer: HowMany, path: str | Path, result: AcdcResult | None = None) -> Path:
    """Write the page: one file, pictures inside, nothing fetched from elsewhere, every text escaped.

    Args:
        answer: of :func:`inference.selection.select_components`.
        path: the file, replaced if it exists.
        result: discrepancies of the chosen fit's components, by :func:`inference.acdc.criterion.acdc`.
    """
    sections = how_many_sections(answer)
    if result is not None:
        k = answer.fit.model.num_components  # type: ignore[attr-defined]
        drawn = picture(lambda: plot_discrepancies(result, k), "misfit of each component beside exact noise")
        sections.append(Section("components", "Noise of each component", [drawn, Note("A component far above its band has noise that its law does not know.")]))
    return write_page(Path(path), f"How many components? {answer.num_components}, for {rows_in_words(answer.fit)}", sections)


def _words(answer: HowMany) -> Iterator[Part]:
    yield from map(Paragraph, answer.sentences)
    if answer.reasons:
        yield Paragraph("Why one cannot be sure:")
        yield Bullets(answer.reasons)


def _laws(answer: HowMany) -> Iterator[Part]:
    draw = plot_how_many_groups if isinstance(answer, HowManyGroups) else plot_how_many
    frame = answer.table.reset_index()
    shown = [name for name in COLUMNS if name in frame]
    rows = [
        [str(row["law"]), str(row["num_components"]), *(number(float(row[name]), 2 if name == "gain_in_edges" else 0 if name == "num_parameters" else 1) for name in shown),
         "chosen" if row["chosen"] else ""]
        for _, row in frame.iterrows()
    ]  # fmt: skip
    yield picture(lambda: draw(answer), "penalised likelihood of every law and number")  # type: ignore[arg-type]
    yield Table(("law", "K", *(COLUMNS[name] for name in shown), ""), rows)


def _groups(answer: HowManyGroups) -> list[Part]:
    groups = answer.groups
    lines = [
        f"group {i + 1}: component{'' if len(group) == 1 else 's'} {', '.join(str(k + 1) for k in group)}" for i, group in enumerate(groups.separated)
    ]
    words = (
        f"{groups.num_fitted} components make {groups.num_separated} groups of rows if two of which one is taken for the other in 5 % of its rows are one, and "
        f"{groups.num_clear} if it takes 10 %."
    )
    return [Paragraph(words), Bullets(lines)]
