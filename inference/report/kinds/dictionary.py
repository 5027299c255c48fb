"""Sparse coding: equations, columns of the dictionary, and their use."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from inference.base.structure import Structure
from inference.fitting.columns import as_matrix
from inference.plots.layers import plot_loadings
from inference.report.page import number, picture
from inference.report.parts import (
    Equations,
    Finding,
    Note,
    Paragraph,
    Part,
    Section,
    Table,
    Verdict,
)
from inference.report.sections import Subject, estimates, fitted, middle, predictive, sizes
from inference.report.verdicts import on_convergence, on_prediction, verdict, what_was_fitted
from inference.report.words import finding, say, verdict_of
from inference.structures.dictionary.structure import DictionaryStructure
from ppl_models.parts.repr import counted, listed

MOST_COLUMNS = 60


@verdict.register
def _(structure: DictionaryStructure, subject: Subject) -> Verdict:
    about = structure.about
    words = (
        f"{counted(subject.fit.num_rows, 'row')} of {about.num_items} columns, each row as a sum of"
        f" at most {about.sparsity} of {about.num_columns} columns of a"
        f" dictionary.{_accounted(subject)}"
    )
    step = say("dictionary.uniqueness_step")
    return verdict_of(
        [
            what_was_fitted(words),
            on_convergence(subject),
            _on_columns(subject),
            _on_noise(subject) or on_prediction(subject),
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
        " They explain"
        f" {100 * (1 - np.nansum((values - made) ** 2) / np.nansum(values**2)):.1f} % of the sum of"
        " squares."
    )


def _is_off(subject: Subject) -> bool:
    """Tell whether residuals contradict the noise that was stated."""
    return any("residuals contradict the model" in text for text in subject.fit.warnings)


def _on_noise(subject: Subject) -> Finding | None:
    return finding("dictionary.noise.contradicted") if _is_off(subject) else None


@predictive.register
def _(structure: DictionaryStructure, subject: Subject) -> Iterator[Part]:
    if _is_off(subject):
        yield Note(say("dictionary.not_compared"))
    else:
        yield from predictive.dispatch(Structure)(structure, subject)


def _on_columns(subject: Subject) -> Finding | None:
    codes = (subject.fit.local or {}).get("codes")
    if codes is None:
        return None
    idle = [str(k) for k in range(codes.shape[1]) if not (codes[:, k] != 0).any()]
    if not idle:
        return finding("dictionary.columns.fine")
    return finding("dictionary.columns.unused", idle=listed(idle))


@fitted.register
def _(structure: DictionaryStructure, subject: Subject) -> Iterator[Part]:
    about = structure.about
    yield Paragraph(say("dictionary.model", sparsity=about.sparsity, num_columns=about.num_columns))
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
