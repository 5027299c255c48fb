"""Sparse coding: the model in equations, the columns of the dictionary, and how often each is used."""

from __future__ import annotations

from inference.plots.layers import plot_loadings
from inference.report.page import equations, number, paragraph, picture, table
from inference.report.sections import Section, Subject, estimates, fitted, middle, shape_text
from inference.structures.dictionary.structure import DictionaryStructure

__all__: list[str] = []

MOST_COLUMNS = 60


@fitted.register
def _(structure: DictionaryStructure, subject: Subject) -> str:
    about = structure.about
    text = paragraph(
        f"Every row is a sum of at most {about.sparsity} of {about.num_columns} columns of a dictionary, in amounts h of its own, with normal noise."
    )
    text += equations("x<sub>n</sub> = Σ<sub>i</sub> h<sub>ni</sub> a<sub>i</sub> + noise, h ≥ 0")
    rows = [[name, shape_text(value.shape)] for name, value in subject.fit.params.items()]
    rows += [[f"{name}, of the rows", shape_text(value.shape)] for name, value in (subject.fit.local or {}).items()]
    return text + table(("estimate", "size"), rows)


@middle.register
def _(structure: DictionaryStructure, subject: Subject) -> list[Section]:
    fit = subject.fit
    text = picture(lambda: plot_loadings(fit, "dictionary", names=subject.names), "heat map of the dictionary")
    codes = (fit.local or {}).get("codes")
    if codes is not None:
        used, sizes = (codes != 0).double().mean(0), codes.sum(0) / (codes != 0).sum(0).clamp(min=1)
        rows = [[str(k), number(float(used[k]), 3), number(float(sizes[k]), 3)] for k in range(codes.shape[1])]
        text += paragraph("Columns are in the order of falling total amount.")
        text += table(("column", "share of rows that use it", "mean amount where it is used"), rows[:MOST_COLUMNS])
    return [("columns", "Columns", text), estimates(subject)]
