"""Noisy-OR networks: what every latent switches on, and what the filter says of it."""

from __future__ import annotations

from collections.abc import Iterator

from inference.inspection.noisy_or import filter_latents
from inference.plots.noisy_or import plot_failures, plot_latents
from inference.report.page import number, picture
from inference.report.parts import Equations, Paragraph, Part, Section, Table
from inference.report.sections import Subject, estimates, fitted, middle, shape_text
from inference.structures.noisy_or.structure import NoisyOrStructure

__all__: list[str] = []

MOST_LATENTS = 60


@fitted.register
def _(structure: NoisyOrStructure, subject: Subject) -> Iterator[Part]:
    about, fit = structure.causes, subject.fit
    yield Paragraph(
        f"{about.num_items} yes-no items x rest on {about.num_causes} binary latents a, each of which may switch every item on; "
        "an item stays off only if its leak and every latent that is on fail to switch it on."
    )
    yield Equations(("a_{k} ~ Bernoulli(π_{k})", "P(x_{j} = 0 | a) = (1 - l_{j}) Π_{k: a_{k} = 1} f_{kj}"))
    rows = [
        ["π", about.prior, shape_text(fit.params[about.prior].shape), "how often the latent is on"],
        ["f", about.failure, shape_text(fit.params[about.failure].shape), "chance that the latent, being on, does not switch the item on"],
        ["l", about.leak, shape_text(fit.params[about.leak].shape), "chance that the item is on without any latent"],
    ]
    yield Table(("symbol", "name", "size", "meaning"), rows)


@middle.register
def _(structure: NoisyOrStructure, subject: Subject) -> list[Section]:
    return [Section("loadings", "Latents and what they switch on", _switches(structure, subject)), estimates(subject)]


def _switches(structure: NoisyOrStructure, subject: Subject) -> Iterator[Part]:
    about, fit, shape = structure.causes, subject.fit, subject.image_shape
    params = {"prior": fit.params[about.prior], "failure": fit.params[about.failure]}
    verdict = filter_latents(params)
    if shape is not None:
        yield picture(lambda: plot_latents(params, shape, verdict), "each latent as an image of what it switches on")
    else:
        yield picture(lambda: plot_failures(params, fit.item_names), "heat map of 1 - failure")
    rows = []
    for i, (prior, failure) in enumerate(zip(params["prior"], params["failure"], strict=True)):
        word = "discarded" if i in verdict.discarded else f"double of {verdict.doubles[i]}" if i in verdict.doubles else "kept"
        strong = failure.argsort()[: int((failure < 0.5).sum())].tolist()
        shown = ", ".join(fit.item_names[j] if fit.item_names else str(j) for j in strong[:12])
        rows.append([str(i), number(float(prior), 4), str(len(strong)), shown + (", ..." if len(strong) > 12 else ""), word])
    yield Paragraph("Black: the latent, being on, always switches the item on; white: never.")
    yield Table(("latent", "prior", "items with failure below 0.5", "the surest first", "by the filter"), rows[:MOST_LATENTS])
