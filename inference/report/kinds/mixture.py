"""Finite mixtures: the model in equations, and what tells the components apart."""

from __future__ import annotations

from inference.plots.layers import plot_loadings
from inference.report.page import paragraph, picture, table
from inference.report.sections import Section, Subject, estimates, fitted, middle, shape_text
from inference.structures.mixture.structure import MixtureStructure

__all__: list[str] = []

MEANINGS = {
    "weights": "share of each component",
    "predictors": "of each item in each component: the mean, or the log of a rate, or the log-odds of a yes",
    "dispersion": "variance of each dispersed item in each component",
    "means": "mean of each item in each component",
    "locations": "of each item in each component, where the half-normal part is zero",
    "skews": "how far each item leans to one side in each component, in its own unit",
    "precisions": "inverse of the covariance (of a Student t law: of its scale matrix) in each component",
    "freedom": "degrees of freedom of each component: few for heavy tails, 200 for a normal law",
}


@fitted.register
def _(structure: MixtureStructure, subject: Subject) -> str:
    about, fit = structure.about, subject.fit
    text = paragraph(
        f"Every row belongs to one of {about.num_components} components c; given its component its {about.num_items} items x follow "
        "the component's law."
    )
    for line in ("c ~ Categorical(weights)", f"x | c = k ~ {structure.law.equation}"):
        text += f'<p class="equation">{line}</p>\n'
    rows = [[name, shape_text(value.shape), MEANINGS.get(name, "")] for name, value in fit.params.items()]
    return text + table(("parameter", "size", "meaning"), rows)


@middle.register
def _(structure: MixtureStructure, subject: Subject) -> list[Section]:
    site = structure.law.site
    sections = [estimates(subject)]
    if structure.about.num_items > 1:
        text = picture(lambda: plot_loadings(subject.fit, site, names=subject.names), f"heat map of {site}, component by component")
        text += paragraph("Red is above zero, blue below. Components are in the order of falling weight.")
        sections.insert(0, ("components", "Components", text))
    return sections
