"""Fits side by side on one self-contained page: the table, the picture, and where two numbers are not comparable."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.plots.comparison import plot_comparison
from inference.report.page import number, picture, write_page
from inference.report.parts import Note, Paragraph, Part, Section, Table

if TYPE_CHECKING:
    from inference.comparison import Comparison

__all__ = ["write_comparison_report"]

COLUMNS = {
    "family": "family", "engine": "engine", "elpd": "elpd", "elpd_diff": "behind the best", "diff_se": "standard error",
    "weight": "weight in a stack", "how": "found by", "bad_rows": "rows not to be trusted", "p_eff": "effective parameters",
    "num_parameters": "free parameters", "likelihood": "likelihood", "log_likelihood": "log-likelihood", "bic": "BIC", "test_log_likelihood": "test rows",
    "discrepancy": "largest misfit of a component", "misfitting": "components that misfit", "identifiability": "identifiability",
    "converged": "converged", "seconds": "seconds",
}  # fmt: skip


def write_comparison_report(comparison: Comparison, path: str | Path) -> Path:
    """Write the page: one file, the picture inside, nothing fetched from elsewhere, every text escaped.

    Args:
        comparison: of :func:`inference.comparison.compare`.
        path: the file, replaced if it exists.
    """
    file = Path(path)
    shown = [key for key in COLUMNS if any(_is_known(record[key]) for record in comparison.records)]
    rows = [
        [name, *(_cell(record[key]) for key in shown)]
        for name, record in zip(comparison.names, comparison.records, strict=True)
    ]
    notes: list[Part] = [Note(text) for text in comparison.warnings]
    sections = [
        Section("best", "Which predicts best?", map(Paragraph, in_words(comparison))),
        Section("picture", "Side by side", [picture(lambda: plot_comparison(comparison), "fits side by side")]),
        Section("table", "Numbers", [Table(["fit", *(COLUMNS[key] for key in shown)], rows)]),
        Section("care", "What is not comparable", notes or [Paragraph("Every column can be compared from line to line.")]),
    ]
    return write_page(file, f"{len(comparison.names)} fits compared", sections)


def in_words(comparison: Comparison) -> list[str]:
    """The first of the ranking, how sure that is, and what a rank does not say."""
    ranked = [(n, r) for n, r in zip(comparison.names, comparison.records, strict=True) if r["how"] != "none"]
    if not ranked:
        return ["No fit here predicts rows it has not seen: their likelihoods are conditional on activities of the rows."]
    words = [f"{ranked[0][0]} predicts unseen rows best."]
    if len(ranked) > 1:
        name, record = ranked[1]
        gap, error = number(record["elpd_diff"], 1), number(record["diff_se"], 1)
        sure = record["elpd_diff"] > 2 * record["diff_se"]
        words.append(
            f"{name} is {gap} nats behind, with a standard error of {error}: "
            + ("more than chance in which rows were drawn." if sure else "too close to call.")
        )
    off = [name for name, record in zip(comparison.names, comparison.records, strict=True) if record["misfitting"] > 0]
    if off:
        words.append(
            f"A rank is no check of a model: in {', '.join(off)}, some component's noise is farther from what the model says than exact noise is "
            "with the estimates held as known. That is a reason to look closer (acdc with calibrate=Bootstrap(refit=True)), and shows no law to be wrong by itself."
        )
    return words


def _is_known(value: Any) -> bool:
    return not (isinstance(value, float) and math.isnan(value))


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:,.3g}" if abs(value) < 1 else f"{value:,.1f}"
    return str(value)
