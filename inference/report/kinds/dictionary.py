"""Sparse coding: the model in equations, the columns of the dictionary, and how often each is used."""

from __future__ import annotations

from collections.abc import Iterator

from inference.plots.layers import plot_loadings
from inference.report.page import number, picture
from inference.report.parts import Equations, Paragraph, Part, Section, Table
from inference.report.sections import Subject, estimates, fitted, middle, sizes
from inference.structures.dictionary.structure import DictionaryStructure

__all__: list[str] = []

MOST_COLUMNS = 60


@fitted.register
def _(structure: DictionaryStructure, subject: Subject) -> Iterator[Part]:
    about = structure.about
    yield Paragraph(f"Every row is a sum of at most {about.sparsity} of {about.num_columns} columns of a dictionary, in amounts h of its own, with normal noise.")
    yield Equations(("x_{n} = Σ_{i} h_{ni} a_{i} + noise, h ≥ 0",))
    yield sizes(subject)


@middle.register
def _(structure: DictionaryStructure, subject: Subject) -> list[Section]:
    return [Section("columns", "Columns", _columns(subject)), estimates(subject)]


def _columns(subject: Subject) -> Iterator[Part]:
    yield picture(lambda: plot_loadings(subject.fit, "dictionary", names=subject.names), "heat map of the dictionary")
    codes = (subject.fit.local or {}).get("codes")
    if codes is not None:
        used, amounts = (codes != 0).double().mean(0), codes.sum(0) / (codes != 0).sum(0).clamp(min=1)
        rows = [[str(k), number(float(used[k]), 3), number(float(amounts[k]), 3)] for k in range(codes.shape[1])]
        yield Paragraph("Columns are in the order of falling total amount.")
        yield Table(("column", "share of rows that use it", "mean amount where it is used"), rows[:MOST_COLUMNS])
