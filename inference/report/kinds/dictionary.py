"""Sparse coding: the model in equations, the columns of the dictionary, and how often each is
used.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from inference.fitting.observed import as_matrix
from inference.plots.layers import plot_loadings
from inference.report.page import number, picture
from inference.report.parts import Equations, Finding, Paragraph, Part, Section, Table, Verdict
from inference.report.sections import Subject, estimates, fitted, middle, sizes
from inference.report.verdicts import on_convergence, on_prediction, verdict, what_was_fitted
from inference.report.words import listed, verdict_of
from inference.structures.dictionary.structure import DictionaryStructure
from ppl_models.parts.repr import counted

MOST_COLUMNS = 60


@verdict.register
def _(structure: DictionaryStructure, subject: Subject) -> Verdict:
    about = structure.about
    words = (
        f"{counted(subject.fit.num_rows, 'row')} of {about.num_items} columns, each row as a sum of"
        f" at most {about.sparsity} of {about.num_columns} columns of a"
        f" dictionary.{_accounted(subject)}"
    )
    step = (
        "Whether other dictionaries would do as well is not decided here: fit from several seeds,"
        " and see which columns of the dictionary come again"
        " (inference.inspection.column_recovery)."
    )
    return verdict_of(
        [
            what_was_fitted(words),
            on_convergence(subject),
            _on_columns(subject),
            on_prediction(subject),
        ],
        step,
    )


def _accounted(subject: Subject) -> str:
    codes = (subject.fit.local or {}).get("codes")
    if codes is None or subject.data is None:
        return ""
    values, made = (
        as_matrix(subject.fit, subject.data),
        (codes @ subject.fit.params["dictionary"].mT).detach().cpu().double().numpy(),
    )
    if values.shape != made.shape:
        return ""
    return (
        " They account for"
        f" {100 * (1 - np.nansum((values - made) ** 2) / np.nansum(values**2)):.1f} % of the sum of"
        " squares."
    )


def _on_columns(subject: Subject) -> Finding | None:
    codes = (subject.fit.local or {}).get("codes")
    if codes is None:
        return None
    idle = [str(k) for k in range(codes.shape[1]) if not (codes[:, k] != 0).any()]
    question = "Is every column of the dictionary used?"
    if not idle:
        return Finding("good", question, "Yes, by some row at least.")
    return Finding(
        "care", question, f"No row uses {listed(idle)}.", "Fit fewer columns of the dictionary."
    )


@fitted.register
def _(structure: DictionaryStructure, subject: Subject) -> Iterator[Part]:
    about = structure.about
    yield Paragraph(
        f"Every row is a sum of at most {about.sparsity} of {about.num_columns} columns of a"
        " dictionary, in amounts h of its own, with normal noise."
    )
    yield Equations(("x_{n} = Σ_{i} h_{ni} a_{i} + noise, h ≥ 0",))
    yield sizes(subject)


@middle.register
def _(structure: DictionaryStructure, subject: Subject) -> list[Section]:
    return [Section("columns", "Columns", _columns(subject)), estimates(subject)]


def _columns(subject: Subject) -> Iterator[Part]:
    yield picture(
        lambda: plot_loadings(subject.fit, "dictionary", names=subject.names),
        "heat map of the dictionary",
    )
    codes = (subject.fit.local or {}).get("codes")
    if codes is not None:
        used, amounts = (
            (codes != 0).double().mean(0),
            codes.sum(0) / (codes != 0).sum(0).clamp(min=1),
        )
        rows = [
            [str(k), number(float(used[k]), 3), number(float(amounts[k]), 3)]
            for k in range(codes.shape[1])
        ]
        yield Paragraph("Columns are in the order of falling total amount.")
        yield Table(
            ("column", "share of rows that use it", "mean amount where it is used"),
            rows[:MOST_COLUMNS],
        )
