"""Independent classifiers: whether to believe them first, then components, what each variate says, and the model in equations."""

from __future__ import annotations

from html import escape

import numpy as np

from inference.identifiability.classifiers import ClassifierIdentifiability
from inference.identifiability.of_fit import identifiability_of
from inference.inspection.classifier_curves import variate_names
from inference.inspection.classifiers import read_classifiers
from inference.plots.classifiers import plot_certainty, plot_classifiers, plot_component_densities
from inference.report.page import bullets, equations, note, number, paragraph, picture, table
from inference.report.sections import Section, Subject, fitted, middle, predictive, shape_text
from inference.structures.classifiers.structure import ClassifierStructure

__all__: list[str] = []

MOST_CURVES = 6  # variates that are drawn
AGREEMENT = 0.05  # mean difference of marginals below which variates are said to agree


@fitted.register
def _(structure: ClassifierStructure, subject: Subject) -> str:
    about = structure.about
    names = variate_names(subject.fit)
    text = paragraph(
        f"Every row belongs to one of {about.num_components} components z, within which its {about.num_variates} variates ({', '.join(map(escape, names[:12]))}"
        f"{', ...' if len(names) > 12 else ''}) are independent. No law is named: a component's density is that of the rows, reweighted by a network β."
    )
    text += equations("z ~ Categorical(w)", "f<sub>v</sub>(x | z = i) = P*<sub>v</sub>(x) β<sub>v</sub><sup>(i)</sup>(x) / φ<sub>v</sub><sup>(i)</sup>")
    text += paragraph(
        "The log-likelihood is a ratio: that of this mixture to that of independent variates with the same marginals. It compares fits to the same rows of the same "
        "variates, and never with the log-likelihood of a density."
    )
    rows = [[name, shape_text(subject.fit.params[name].shape)] for name in ("weights", "pseudo_weights")]
    size = sum(subject.fit.params[name].numel() for name in about.network_sites)
    return text + table(("estimate", "size"), [*rows, ["weights of the networks", f"{size:,} numbers in all"]])


@middle.register
def _(structure: ClassifierStructure, subject: Subject) -> list[Section]:
    out = [("verdict", "Can these components be believed?", _verdict(subject)), ("components", "Components", _components(subject))]
    if subject.data is not None:
        out.append(("curves", "What each variate says", _curves(structure, subject)))
    return out


@predictive.register
def _(structure: ClassifierStructure, subject: Subject) -> str:
    return note("The marginals of the fit are those of the data by construction, so that a comparison of simulated columns would say nothing.")


def _verdict(subject: Subject) -> str:
    if subject.data is None:
        return note("Needs the data.")
    report = identifiability_of(subject.fit, subject.data)
    agreement = _agreement(subject)
    if not isinstance(report, ClassifierIdentifiability):
        return paragraph(escape(agreement))
    return bullets([*report.sentences(), agreement])


def _agreement(subject: Subject) -> str:
    """How far the marginals that the fit implies are those of the data."""
    sizes = read_classifiers(subject.fit, subject.data).inconsistency
    worst = int(sizes.argmax())
    size, name = float(sizes[worst]), variate_names(subject.fit)[worst]
    if size < AGREEMENT:
        return f"The variates agree: the marginals that the fit implies differ from those of the data by {size:.1%} at most on the average (variate {name})."
    return (
        f"The variates do not agree: the marginal that the fit implies for variate {name} differs from that of the data by {size:.1%} on the average. "
        "Train longer or with larger networks, or the rows are no such mixture."
    )


def _components(subject: Subject) -> str:
    fit = subject.fit
    names = variate_names(fit)
    head = ["component", "weight", *(f"by variate {name} alone" for name in names[:MOST_CURVES])]
    weights, pseudo = fit.params["weights"].tolist(), fit.params["pseudo_weights"][:MOST_CURVES].T.tolist()
    rows = [[str(i + 1), number(w, 3), *(number(phi, 3) for phi in own)] for i, (w, own) in enumerate(zip(weights, pseudo, strict=True))]
    text = table(head, rows)
    if fit.draws is None:
        return text + note("Without intervals: classifier_ensemble(fit, data) trains on halves of the rows and gives them.")
    spread = fit.draws["weights"].double().flatten(0, 1).std(0).tolist()
    said = ", ".join(f"component {i + 1} {value:.3f}" for i, value in enumerate(spread))
    return text + paragraph(f"Standard deviation of the weights over the members of the ensemble: {said}.")


def _curves(structure: ClassifierStructure, subject: Subject) -> str:
    fit, data, text = subject.fit, subject.data, ""
    names = variate_names(fit)
    one_column = [v for v, shape in enumerate(structure.about.shapes) if shape == (1,)]
    for v in one_column[:MOST_CURVES]:
        text += picture(lambda v=v: plot_classifiers(fit, data, v), f"chance of every component along variate {names[v]}")  # type: ignore[misc]
        text += picture(lambda v=v: plot_component_densities(fit, data, v), f"densities of the components along variate {names[v]}")  # type: ignore[misc]
    for v in range(min(len(names), MOST_CURVES)):
        if len(names) == 2:
            text += picture(lambda v=v: plot_certainty(fit, data, v), f"how sure variate {names[v]} is where it is surest")  # type: ignore[misc]
    if len(one_column) < len(names):
        text += note("Variates of several columns are not drawn.")
    alphas = read_classifiers(fit, data).variates.cpu().numpy()
    rows = [[names[v], number(float(np.nanmean(own.max(-1))), 3)] for v, own in enumerate(alphas[:MOST_CURVES])]
    return text + table(("variate", "mean chance of the component that it finds most probable"), rows)
