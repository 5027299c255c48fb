"""Independent classifiers: belief, components, variates, equations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from inference.report.sections import (
    Subject,
    cut,
    determined,
    fitted,
    middle,
    predictive,
    shape_text,
)
from inference.report.verdicts import on_convergence, verdict, what_was_fitted
from inference.report.words import finding, say, verdict_of
from inference.structures.classifiers.structure import ClassifierStructure
from ppl_models.parts.repr import counted

MOST_CURVES = 6  # variates that are drawn
MOST_VARIATES = 40  # in the table
SHARES_SHOWN = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the rows, by rising chance
AGREEMENT = 0.05  # mean difference of marginals below which variates are said to agree


MARKS = {"supported": "good", "open": "care", "refuted at this resolution": "bad"}


@verdict.register
def _(structure: ClassifierStructure, subject: Subject) -> Verdict:
    about, fit = structure.about, subject.fit
    words = say(
        "classifiers.description",
        rows=counted(fit.num_rows, "row"),
        num_variates=about.num_variates,
        num_components=about.num_components,
    )
    step = say("classifiers.ensemble_step")
    steps = (step,) if fit.draws is None else ()
    return verdict_of(
        [
            what_was_fitted(words),
            on_convergence(subject),
            _on_belief(subject),
            _on_agreement(subject),
        ],
        *steps,
        nothing="No check speaks against it.",
    )


def _on_belief(subject: Subject) -> Finding:
    found = subject.once(determined)
    if not isinstance(found, ClassifierIdentifiability):
        return finding("classifiers.belief.unknown")
    step = "" if found.verdict == "supported" else say("classifiers.interpretation_step")
    first, *others = found.sentences()
    doubts = [sentence for sentence in others if sentence.startswith("But")]
    return finding(
        "classifiers.belief.all",
        mark=MARKS[found.verdict],
        words=" ".join([first, *doubts, say("classifiers.more")]),
        step=step,
    )


def _on_agreement(subject: Subject) -> Finding | None:
    """Agreement of the fitted marginals with those of the data."""
    if subject.data is None:
        return None
    sizes = read_classifiers(subject.fit, subject.data).inconsistency
    worst = int(sizes.argmax())
    size, name = float(sizes[worst]), variate_names(subject.fit)[worst]
    if size < AGREEMENT:
        return finding("classifiers.agreement.fine", size=f"{100 * size:.1f} %", name=name)
    words = say("classifiers.disagreement", name=name, size=f"{100 * size:.1f} %")
    return finding("classifiers.agreement.misfit", words=words)


@fitted.register
def _(structure: ClassifierStructure, subject: Subject) -> Iterator[Part]:
    about = structure.about
    names = variate_names(subject.fit)
    yield Paragraph(
        say(
            "classifiers.model",
            num_components=about.num_components,
            num_variates=about.num_variates,
            names=", ".join(names[:12]),
            word=", ..." if len(names) > 12 else "",
        )
    )
    yield Equations(
        ("z ~ Categorical(w)", "f_{v}(x | z = i) = P*_{v}(x) β_{v}^{(i)}(x) / φ_{v}^{(i)}")
    )
    yield Paragraph(say("classifiers.likelihood_note"))
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
    return [Note(say("classifiers.marginals_note"))]


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
    yield from _rest(names)
    found = None if subject.data is None else subject.once(determined)
    if isinstance(found, ClassifierIdentifiability) and found.possible_weights is not None:
        low, high = found.possible_weights
        yield Paragraph(say("classifiers.possible_weights", low=low, high=high))
    if fit.draws is None:
        yield Note(say("classifiers.intervals_note"))
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
    yield from _rest(names)
    alphas = read_classifiers(fit, data).variates.cpu().numpy()
    rows = [[names[v], number(float(np.nanmean(own.max(-1))), 3)] for v, own in enumerate(alphas)]
    head = ("variate", "mean chance of the component that it finds most probable")
    yield from cut(Table(head, rows), MOST_VARIATES)
    yield from _equal_mixtures(subject, alphas, names)


def _rest(names: Sequence[str]) -> Iterator[Part]:
    if len(names) > MOST_CURVES:
        yield Note(say("classifiers.rest", most=MOST_CURVES, size=len(names)))


def _equal_mixtures(subject: Subject, alphas: np.ndarray, names: tuple[str, ...]) -> Iterator[Part]:
    """Chance of component 0 at a few rows, and its ends over all equally good mixtures."""
    found = subject.once(determined)
    if not isinstance(found, ClassifierIdentifiability) or not found.corners:
        return
    rows = []
    for v, name in enumerate(names):
        own = alphas[v, :, 0]
        points = np.nanquantile(own, SHARES_SHOWN)
        low, high = found.bounds(v, points) or (points, points)
        rows += [
            [name, f"{share:.0%}", *(number(float(x), 3) for x in ends)]
            for share, *ends in zip(SHARES_SHOWN, points, low, high, strict=True)
        ]
    head = ("variate", "share of rows below", "chance of component 0", "at least", "at most")
    yield Paragraph(say("classifiers.equal_mixtures"))
    yield Table(head, rows)
