"""Finite mixtures: the model in equations, and what tells the components apart."""

from __future__ import annotations

from inference.plots.layers import plot_loadings
from inference.report.page import paragraph, picture, table
from inference.report.sections import Section, Subject, estimates, fitted, middle, shape_text
from inference.structures.mixture.structure import MixtureStructure
from ppl_models.parts.responses import ResponseFamily

__all__: list[str] = []

MEANINGS = {
    "weights": "share of each component",
    "predictors": "of each item in each component: the mean, or the log of a rate, or the log-odds of a yes",
    "dispersion": "variance of each dispersed item in each component",
    "means": "mean of each item in each component",
    "precisions": "inverse of the covariance in each component",
}


@fitted.register
def _(structure: MixtureStructure, subject: Subject) -> str:
    about, fit = structure.about, subject.fit
    text = paragraph(
        f"Every row belongs to one of {about.num_components} components c; given its component its {about.num_items} items x follow "
        "the component's law."
    )
    named = type(about.component).__name__
    law = f"{named} of item j in component k, independently" if isinstance(about.component, ResponseFamily) else "Normal(μ<sub>k</sub>, covariance Σ<sub>k</sub>)"
    for line in ("c ~ Categorical(weights)", f"x | c = k ~ {law}"):
        text += f'<p class="equation">{line}</p>\n'
    rows = [[name, shape_text(value.shape), MEANINGS.get(name, "")] for name, value in fit.params.items()]
    return text + table(("parameter", "size", "meaning"), rows)


@middle.register
def _(structure: MixtureStructure, subject: Subject) -> list[Section]:
    site = "predictors" if isinstance(structure.about.component, ResponseFamily) else "means"
    sections = [estimates(subject)]
    if structure.about.num_items > 1:
        text = picture(lambda: plot_loadings(subject.fit, site, names=subject.names), f"heat map of {site}, component by component")
        text += paragraph("Red is above zero, blue below. Components are in the order of falling weight.")
        sections.insert(0, ("components", "Components", text))
    return sections
