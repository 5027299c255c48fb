"""Independent classifiers: whether to believe them first, then components, what each variate says,
and the model in equations.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from inference.identifiability.classifiers import ClassifierIdentifiability
from inference.inspection.classifiers import read_classifiers, variate_names
from inference.plots.classifiers import plot_certainty, plot_classifiers, plot_component_densities
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
from inference.report.sections import Subject, determined, fitted, middle, predictive, shape_text
from inference.report.verdicts import on_convergence, verdict, what_was_fitted
from inference.report.words import verdict_of
from inference.structures.classifiers.structure import ClassifierStructure
from ppl_models.parts.repr import counted

MOST_CURVES = 6  # variates that are drawn
AGREEMENT = 0.05  # mean difference of marginals below which variates are said to agree


MARKS = {"supported": "good", "open": "care", "refuted at this resolution": "bad"}


@verdict.register
def _(structure: ClassifierStructure, subject: Subject) -> Verdict:
    about, fit = structure.about, subject.fit
    words = (
        f"{counted(fit.num_rows, 'row')} of {about.num_variates} variates, as"
        f" {about.num_components} components within which the variates are independent, by"
        " networks."
    )
    step = (
        "See how much the components change from fit to fit before you build on them:"
        " inference.inspection.classifier_ensemble(fit, data)."
    )
    steps = (step,) if fit.draws is None else ()
    return verdict_of(
        [
            what_was_fitted(words),
            on_convergence(subject),
            _on_belief(subject),
            _on_agreement(subject),
        ],
        *steps,
        nothing="Nothing stands in the way.",
    )


def _on_belief(subject: Subject) -> Finding:
    found, question = subject.once(determined), "Can these components be believed?"
    if not isinstance(found, ClassifierIdentifiability):
        return Finding("", question, "That was not looked at: it needs the data.")
    step = (
        ""
        if found.verdict == "supported"
        else (
            "Do not interpret single components before that is settled: other components may"
            " describe these rows as well."
        )
    )
    return Finding(MARKS[found.verdict], question, " ".join(found.sentences()), step)


def _on_agreement(subject: Subject) -> Finding | None:
    """How far the marginals that the fit implies are those of the data."""
    if subject.data is None:
        return None
    sizes, question = (
        read_classifiers(subject.fit, subject.data).inconsistency,
        "Does the fit give back the marginals of the data?",
    )
    worst = int(sizes.argmax())
    size, name = float(sizes[worst]), variate_names(subject.fit)[worst]
    if size < AGREEMENT:
        return Finding(
            "good",
            question,
            "The variates agree: the marginals that the fit implies differ from those of the data"
            f" by {size:.1%} at most on the average (variate {name}).",
        )
    words = (
        f"The variates do not agree: the marginal that the fit implies for variate {name} differs"
        f" from that of the data by {size:.1%} on the average."
    )
    return Finding(
        "care",
        question,
        words,
        "Train longer or with larger networks; if that does not help, the rows are no such"
        " mixture.",
    )


@fitted.register
def _(structure: ClassifierStructure, subject: Subject) -> Iterator[Part]:
    about = structure.about
    names = variate_names(subject.fit)
    yield Paragraph(
        f"Every row belongs to one of {about.num_components} components z, within which its"
        f" {about.num_variates} variates"
        f" ({', '.join(names[:12])}{', ...' if len(names) > 12 else ''}) are independent. No law is"
        " named: a component's density is that of the rows, reweighted by a network β."
    )
    yield Equations(
        ("z ~ Categorical(w)", "f_{v}(x | z = i) = P*_{v}(x) β_{v}^{(i)}(x) / φ_{v}^{(i)}")
    )
    yield Paragraph(
        "The log-likelihood is a ratio: that of this mixture to that of independent variates with"
        " the same marginals. It compares fits to the same rows of the same variates, and never"
        " with the log-likelihood of a density."
    )
    rows = [
        [name, shape_text(subject.fit.params[name].shape)] for name in ("weights", "pseudo_weights")
    ]
    size = sum(subject.fit.params[name].numel() for name in about.network_sites)
    yield Table(
        ("estimate", "size"), [*rows, ["weights of the networks", f"{size:,} numbers in all"]]
    )


@middle.register
def _(structure: ClassifierStructure, subject: Subject) -> list[Section]:
    return [
        Section("components", "Components", _components(subject)),
        Section(
            "curves",
            "What each variate says",
            () if subject.data is None else _curves(structure, subject),
        ),
    ]


@predictive.register
def _(structure: ClassifierStructure, subject: Subject) -> list[Part]:
    return [
        Note(
            "The marginals of the fit are those of the data by construction, so that a comparison"
            " of simulated columns would say nothing."
        )
    ]


def _components(subject: Subject) -> Iterator[Part]:
    fit = subject.fit
    names = variate_names(fit)
    head = ["component", "weight", *(f"by variate {name} alone" for name in names[:MOST_CURVES])]
    weights, pseudo = (
        fit.params["weights"].tolist(),
        fit.params["pseudo_weights"][:MOST_CURVES].T.tolist(),
    )
    rows = [
        [str(i), number(w, 3), *(number(phi, 3) for phi in own)]
        for i, (w, own) in enumerate(zip(weights, pseudo, strict=True))
    ]
    yield Table(head, rows)
    if fit.draws is None:
        yield Note(
            "Without intervals: classifier_ensemble(fit, data) trains on halves of the rows and"
            " gives them."
        )
        return
    spread = fit.draws["weights"].double().flatten(0, 1).std(0).tolist()
    said = ", ".join(f"component {i} {value:.3f}" for i, value in enumerate(spread))
    yield Paragraph(f"Standard deviation of the weights over the members of the ensemble: {said}.")


def _curves(structure: ClassifierStructure, subject: Subject) -> Iterator[Part]:
    fit, data = subject.fit, subject.data
    names = variate_names(fit)
    one_column = [v for v, shape in enumerate(structure.about.shapes) if shape == (1,)]
    for v in one_column[:MOST_CURVES]:
        yield picture(
            lambda v=v: plot_classifiers(fit, data, v),  # type: ignore[misc]
            f"chance of every component along variate {names[v]}",
        )
        yield picture(
            lambda v=v: plot_component_densities(fit, data, v),  # type: ignore[misc]
            f"densities of the components along variate {names[v]}",
        )
    for v in range(min(len(names), MOST_CURVES)):
        if len(names) == 2:
            yield picture(
                lambda v=v: plot_certainty(fit, data, v),  # type: ignore[misc]
                f"how sure variate {names[v]} is where it is surest",
            )
    if len(one_column) < len(names):
        yield Note("Variates of several columns are not drawn.")
    alphas = read_classifiers(fit, data).variates.cpu().numpy()
    rows = [
        [names[v], number(float(np.nanmean(own.max(-1))), 3)]
        for v, own in enumerate(alphas[:MOST_CURVES])
    ]
    yield Table(("variate", "mean chance of the component that it finds most probable"), rows)
