"""Finite mixtures: the model in equations, and what tells the components apart."""

from __future__ import annotations

from inference.base.structure import Structure
from inference.plots.categories import plot_categories
from inference.plots.layers import plot_loadings
from inference.report.page import paragraph, picture, table
from inference.report.sections import Section, Subject, estimates, fitted, middle, predictive, shape_text
from inference.structures.mixture.structure import MixtureStructure

__all__: list[str] = []

MEANINGS = {
    "weights": "share of each component",
    "predictors": "of each item in each component: the mean, or the log of a rate, or the log-odds of a yes",
    "probabilities": "of each category of each item, component by component: they add up to one within an item",
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
    sections, fit = [estimates(subject)], subject.fit
    if fit.category_names:
        text = picture(lambda: plot_categories(fit, subject.names), "probability of every answer in every class, one panel an item")
        text += paragraph(
            "Each bar is one class (component), cut into the probabilities of the answers; it fills up to one. An item whose bars look alike tells the "
            "classes apart badly; one whose bars differ tells them apart well. Classes are in the order of falling share, and their names 0, 1, ... carry no "
            "meaning of their own: name them by the answers that are typical of them."
        )
        sections.insert(0, ("answers", "Answers by class", text))
    if site != "probabilities" and fit.params[site].shape[1] > 1:
        text = picture(lambda: plot_loadings(subject.fit, site, names=subject.names), f"heat map of {site}, component by component")
        text += paragraph("Red is above zero, blue below. Components are in the order of falling weight.")
        sections.insert(0, ("components", "Components", text))
    return sections


@predictive.register
def _(structure: MixtureStructure, subject: Subject) -> str:
    text = predictive.dispatch(Structure)(structure, subject)
    if subject.data is not None and subject.fit.category_names:
        text += paragraph("Every category of an item but its first is a column of its own here, 1 in the rows that have it; its mean is the share of these rows.")
    return text
