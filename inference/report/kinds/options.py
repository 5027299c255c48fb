"""Hidden options: what each does, where it ends, and which is on over time."""

from __future__ import annotations

import re
from collections.abc import Iterator

from inference.fitting.columns import labels_of
from inference.fitting.repr import rows_in_words
from inference.plots.options import plot_option_occupancy, plot_option_switches, plot_policy_tables
from inference.programs.data import checked
from inference.report.latent_use import latent_means, latent_use
from inference.report.page import picture
from inference.report.parts import Equations, Finding, Paragraph, Part, Section, Verdict
from inference.report.sections import (
    NEEDS_DATA,
    HasText,
    Subject,
    determined,
    estimates,
    fitted,
    identified,
    middle,
    parameters,
    text_of,
    warned,
)
from inference.report.verdicts import (
    beside_rows,
    on_convergence,
    on_determination,
    on_latents,
    on_prediction,
    record_of,
    verdict,
    what_was_fitted,
)
from inference.report.words import entry, finding, say, verdict_of
from inference.structures.options.continuous import ContinuousOptionsStructure
from inference.structures.options.structure import OptionsStructure
from ppl_models.parts.repr import counted

EQUATIONS = (
    "a_{t} ~ low-level policy of option o_{t} in state s_{t}",
    "o_{t+1} ~ high-level policy of option o_{t} in the new state s_{t+1}",
)


SHORT = 2.0  # steps: options that last less long are hardly options
ALTERNATING = 1.25  # likewise: below, one follows the other at almost every step


@verdict.register(OptionsStructure)
@verdict.register(ContinuousOptionsStructure)
def _(structure: OptionsStructure | ContinuousOptionsStructure, subject: Subject) -> Verdict:
    about, fit = structure.about, subject.fit
    words = say(
        "options.description",
        rows=rows_in_words(fit),
        actions=counted(about.num_actions, "action"),
        options=counted(about.num_options, "hidden option"),
    )
    asked = (on_convergence, _on_theorem, _on_names, on_latents, _on_length, on_prediction)
    choice = "inference.selection.select_dimension"
    if isinstance(structure, OptionsStructure):
        choice = "ppl-models select options-hmm, or inference.selection.select_components"
    return verdict_of(
        [what_was_fitted(words), *(ask(subject) for ask in asked)],
        *subject.number_step(say("options.number_step", choice=choice)),
    )


def _on_theorem(subject: Subject) -> Finding:
    record = record_of(subject)
    if "identified" not in record:
        return on_determination(subject)
    if record["identified"]:
        return beside_rows(
            subject,
            finding("options.theorem.fine"),
            "The distribution of three successive steps would.",
        )
    found = subject.once(determined) or record["reason"]
    words = say("options.theorem_open", record=_with_labels(subject, text_of(found)))
    return beside_rows(subject, finding("options.theorem.all", words=words), words)


def _with_labels(subject: Subject, text: str) -> str:
    """Numbers of states and actions in a text replaced by their names."""
    fit, about = subject.fit, subject.fit.structure.about
    for noun, size in (("state", about.num_states), ("action", about.num_actions)):
        labels = [str(label) for label in labels_of(fit, noun, size, subject.names)]

        def named(found: re.Match[str], labels: list[str] = labels) -> str:
            numbers = [int(number) for number in re.findall(r"\d+", found[2])]
            if max(numbers) >= len(labels):
                return found[0]
            return found[1] + ", ".join(labels[number] for number in numbers)

        text = re.sub(rf"({noun}s? )(\d+(?:, \d+)*)", named, text)
    return text


@identified.register
def _(structure: OptionsStructure, subject: Subject) -> str | HasText | None:
    found = subject.once(determined)
    return found if found is None else _with_labels(subject, text_of(found))


@warned.register
def _(structure: OptionsStructure, subject: Subject) -> list[str]:
    return [_with_labels(subject, text) for text in subject.fit.warnings]


def _on_names(subject: Subject) -> Finding | None:
    """Comparability of options between states."""
    fit, structure = subject.fit, subject.fit.structure
    if subject.data is None or fit.labels or not isinstance(structure, OptionsStructure):
        return None
    labels = labels_of(fit, "state", structure.about.num_states, subject.names)
    words = structure.unlike_names(checked(fit.model, subject.data)[0], labels)
    return finding("options.names.exchangeable", words=words) if words else None


def _on_length(subject: Subject) -> Finding | None:
    """Duration of options on the most probable value of every step."""
    if subject.data is None:
        return None
    (use,) = subject.once(latent_use)
    chances = subject.once(latent_means)[use.site]  # (B, T, O), zero after the end
    seen, most = chances.sum(-1) > 0, chances.argmax(-1)
    changes = int(((most[:, 1:] != most[:, :-1]) & seen[:, 1:]).sum())
    length = int(seen.sum()) / (len(seen) + changes)
    words = say("options.duration", length=length)
    if length < ALTERNATING and most[seen].max() > most[seen].min():
        words += f" {say('options.alternating')}"
    return finding(f"options.length.{'fine' if length >= SHORT else 'short'}", words=words)


@fitted.register(OptionsStructure)
@fitted.register(ContinuousOptionsStructure)
def _(structure: OptionsStructure | ContinuousOptionsStructure, subject: Subject) -> list[Part]:
    first = (
        "joint probability of each state and option at the first step"
        if isinstance(structure, OptionsStructure)
        else "probability of each option at the first step"
    )
    durations = getattr(subject.fit.structure.about, "durations", None)
    equations: tuple[str, ...] = EQUATIONS
    if durations is not None:
        visit = durations.equation.replace("{k}", "{o}").replace("| k", "| o")
        equations = (
            EQUATIONS[0],
            visit,
            "o_{t+1} ~ choice of option o_{t} in the new state s_{t+1}",
        )
    return [
        Equations(equations),
        parameters(subject, {"initial": first, **entry("options.meanings")}),
    ]


@middle.register
def _(structure: OptionsStructure, subject: Subject) -> list[Section]:
    fit, names = subject.fit, subject.names
    pictures = [
        picture(lambda: plot_policy_tables(fit, names or ()), "what every option does"),
        picture(lambda: plot_option_switches(fit, names=names), say("options.switches")),
    ]
    return [
        Section("policies", "Policies", pictures),
        Section("time", "Options over time", _times(subject)),
        estimates(subject),
    ]


@middle.register
def _(structure: ContinuousOptionsStructure, subject: Subject) -> list[Section]:
    names = subject.fit.item_names[:-1]
    drawn = picture(lambda: plot_policy_tables(subject.fit, names), "what every option does")
    return [
        Section("policies", "Policies", [drawn]),
        Section("time", "Options over time", _times(subject)),
        estimates(subject),
    ]


def _times(subject: Subject) -> Iterator[Part]:
    fit, data = subject.fit, subject.data
    if data is None:
        yield NEEDS_DATA
        return
    yield picture(
        lambda: plot_option_occupancy(fit, data, sequence=0), "options over the first sequence"
    )
    if fit.num_rows > 1:
        yield picture(lambda: plot_option_occupancy(fit, data), "share of every option over time")
        yield Paragraph(f"Above the first sequence, below the average over all {fit.num_rows:,}.")
