"""Noisy-OR networks: what every latent switches on, and what the filter says of it."""

from __future__ import annotations

from collections.abc import Iterator

from inference.inspection.noisy_or import LatentFilter, filter_latents
from inference.plots.noisy_or import plot_failures, plot_latents
from inference.report.page import number, picture
from inference.report.parts import Equations, Finding, Paragraph, Part, Section, Table, Verdict
from inference.report.sections import Subject, estimates, fitted, middle, shape_text
from inference.report.verdicts import (
    on_convergence,
    on_determination,
    on_latents,
    on_prediction,
    verdict,
    what_was_fitted,
)
from inference.report.words import entry, finding, say, verdict_of
from inference.structures.noisy_or.structure import NoisyOrStructure
from ppl_models.descriptions.noisy_or import IndependentCauses
from ppl_models.parts.repr import counted, listed

MOST_LATENTS = 60


def _causes(subject: Subject) -> IndependentCauses:
    structure = subject.fit.structure
    if not isinstance(structure, NoisyOrStructure):
        raise TypeError("a noisy-OR network was expected")
    return structure.causes


def filtered(subject: Subject) -> LatentFilter:
    """Return which latents the filter keeps."""
    about, params = _causes(subject), subject.fit.params
    sites = {"prior": about.prior, "failure": about.failure, "spared": about.spared}
    return filter_latents({key: params[name] for key, name in sites.items() if name is not None})


@verdict.register
def _(structure: NoisyOrStructure, subject: Subject) -> Verdict:
    about = structure.causes
    words = say(
        "noisy_or.description",
        rows=counted(subject.fit.num_rows, "row"),
        num_items=about.num_items,
        latents=counted(about.num_causes, "latent"),
    )
    asked = (on_convergence, on_determination, _on_filter, on_latents, on_prediction)
    return verdict_of(
        [what_was_fitted(words), *(ask(subject) for ask in asked)],
        *subject.number_step(say("noisy_or.number_step")),
    )


def _on_filter(subject: Subject) -> Finding:
    found = subject.once(filtered)
    lost = [str(i) for i in found.discarded]
    doubles = [f"{i} (as {other})" for i, other in found.doubles.items()]
    words = f"{len(found.kept)} of {_causes(subject).num_causes} do."
    words += f" On in hardly any row, or switching nothing on: {listed(lost)}." if lost else ""
    words += f" Switching on what another does: {listed(doubles)}." if doubles else ""
    if not lost and not doubles:
        return finding("noisy_or.filter.fine", words=words)
    return finding("noisy_or.filter.redundant", words=words)


@fitted.register
def _(structure: NoisyOrStructure, subject: Subject) -> Iterator[Part]:
    about, fit = structure.causes, subject.fit
    items, causes = about.num_items, about.num_causes
    yield Paragraph(
        say("noisy_or.model", num_items=items, num_causes=causes)
        if about.spared is None
        else say("noisy_or.model_inhibition", num_items=items, num_causes=causes)
    )
    off = "(1 - l_{j}) Π_{k: a_{k} = 1} f_{kj}"
    names, rule = (
        {"π": about.prior, "f": about.failure, "l": about.leak},
        f"P(x_{{j}} = 0 | a) = {off}",
    )
    if about.spared is not None:
        names["g"] = about.spared
        rule = f"P(x_{{j}} = 1 | a) = (1 - {off}) Π_{{k: a_{{k}} = 1}} g_{{kj}}"
    yield Equations(("a_{k} ~ Bernoulli(π_{k})", rule))
    columns = {
        "symbol": names,
        "name": names.values(),
        "size": [shape_text(fit.params[name].shape) for name in names.values()],
        "meaning": [*entry("noisy_or.meanings").values()][: len(names)],
    }
    yield Table.of(columns)


@middle.register
def _(structure: NoisyOrStructure, subject: Subject) -> list[Section]:
    return [
        Section("loadings", "Latents and what they switch on", _switches(structure, subject)),
        estimates(subject),
    ]


def _switches(structure: NoisyOrStructure, subject: Subject) -> Iterator[Part]:
    about, fit, shape = structure.causes, subject.fit, subject.image_shape
    params = {"prior": fit.params[about.prior], "failure": fit.params[about.failure]}
    found = subject.once(filtered)
    if shape is not None:
        yield picture(
            lambda: plot_latents(params, shape, found),
            "each latent as an image of what it switches on",
        )
    else:
        yield picture(lambda: plot_failures(params, fit.item_names), "heat map of 1 - failure")
    rows = []
    for i, (prior, failure) in enumerate(zip(params["prior"], params["failure"], strict=True)):
        double = f"double of {found.doubles[i]}" if i in found.doubles else "kept"
        word = "discarded" if i in found.discarded else double
        strong = failure.argsort()[: int((failure < 0.5).sum())].tolist()
        shown = ", ".join(fit.item_names[j] if fit.item_names else str(j) for j in strong[:12])
        shown += ", ..." if len(strong) > 12 else ""
        rows.append([str(i), number(float(prior), 4), str(len(strong)), shown, word])
    yield Paragraph("Black: the latent, being on, always switches the item on; white: never.")
    yield Paragraph(say("noisy_or.filter_note"))
    spared = None if about.spared is None else fit.params[about.spared]
    if spared is not None:
        off = {"prior": params["prior"], "failure": spared}
        yield picture(lambda: plot_failures(off, fit.item_names), "heat map of 1 - spared")
        yield Paragraph(say("noisy_or.inhibition"))
        for row, own in zip(rows, spared, strict=True):
            row.append(str(int((own < 0.5).sum())))
    head = ["latent", "prior", "items with failure below 0.5", "the surest first", "by the filter"]
    head += [] if spared is None else ["items with spared below 0.5"]
    yield Table(head, rows[:MOST_LATENTS])
