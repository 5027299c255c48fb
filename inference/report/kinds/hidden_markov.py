"""Hidden Markov models: equations, states, decoded path, residuals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import norm, poisson

from inference.base.structure import Structure
from inference.fitting.repr import rows_in_words
from inference.inspection.hidden_markov import chain_times, pseudo_residuals, viterbi_states
from inference.plots.hidden_markov import (
    plot_decoded_path,
    plot_dwell_times,
    plot_transitions,
    state_names,
)
from inference.report.mixture_findings import meanings_of
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
    NEEDS_DATA,
    Subject,
    estimates,
    fitted,
    middle,
    parameters,
    predictive,
)
from inference.report.verdicts import (
    on_convergence,
    on_determination,
    on_latents,
    on_prediction,
    verdict,
    what_was_fitted,
)
from inference.report.words import entry, finding, say, verdict_of
from inference.structures.hidden_markov.structure import HiddenMarkovStructure
from ppl_models.parts.repr import counted

MOST_NAMED = 5  # items whose residuals are named in the verdict
OUTLYING = 3.5  # size of a residual that stands out among thousands
CLEAR = 0.1  # of a spread from 1, or of a correlation from 0: less is not worth words
BY_CHANCE = 0.01  # probability that a right model shows any misfit of residuals


@dataclass(frozen=True)
class Residuals:
    """Mean, spread, correlation with the step before, and outliers of an item's residuals."""

    item: str
    mean: float
    spread: float
    memory: float
    num: int
    num_far: int

    def faults(self, num_items: int) -> list[str]:
        r"""Misfits that a right model of so many items rarely has, in words.

        Any of the 3 J statistics is called a misfit by a right model with a probability of at most
        .01 (Bonferroni: .01 / (3 J) each). Standard errors are :math:`1 / \sqrt{2 n}` of the
        spread and :math:`1 / \sqrt{n}` of the correlation; the number of far steps is Poisson.
        """
        level, out = BY_CHANCE / (3 * num_items), []
        reach = float(norm.isf(level / 2))
        if abs(self.spread - 1) > max(CLEAR, reach / math.sqrt(2 * self.num)):
            out.append(f"spread {self.spread:.2f} (1 is right)")
        if abs(self.memory) > max(CLEAR, reach / math.sqrt(self.num)):
            out.append(f"correlation {self.memory:.2f} with the step before (0 is right)")
        expected = 2 * float(norm.sf(OUTLYING)) * self.num
        if poisson.sf(self.num_far - 1, expected) < level:
            out.append(f"{counted(self.num_far, 'step')} far from all predictions")
        return out


def _off(found: list[Residuals]) -> list[str]:
    """Items whose residuals are off, with their faults."""
    faults = {own.item: own.faults(len(found)) for own in found}
    return [f"{item}: {', '.join(own)}" for item, own in faults.items() if own]


def _far_first(off: list[str]) -> str:
    """Advice to look at steps far out, where there are any."""
    is_far = any("far from" in text for text in off)
    return say("hidden_markov.far_first") if is_far else ""


def residuals_of(subject: Subject) -> list[Residuals] | str:
    """Item by item; or why there are none."""
    try:
        values = pseudo_residuals(subject.fit, subject.data, discrete="random").numpy()
    except ValueError as error:
        return str(error)
    out = []
    for j, name in enumerate(subject.fit.item_names):
        own = values[..., j][~np.isnan(values[..., j])]
        if len(own) < 2:
            continue
        first, second = values[:, :-1, j].ravel(), values[:, 1:, j].ravel()
        both = ~(np.isnan(first) | np.isnan(second))
        steady = both.sum() > 2 and first[both].std() > 0 and second[both].std() > 0
        memory = float(np.corrcoef(first[both], second[both])[0, 1]) if steady else math.nan
        num_far = int((np.abs(own) > OUTLYING).sum())
        moments = float(own.mean()), float(own.std()), memory
        out.append(Residuals(name, *moments, len(own), num_far))
    return out


@verdict.register
def _(structure: HiddenMarkovStructure, subject: Subject) -> Verdict:
    about, fit = structure.about, subject.fit
    words = say(
        "hidden_markov.description",
        rows=rows_in_words(fit),
        items=counted(about.emission.num_items, "item"),
        num_states=about.num_states,
    )
    if about.durations is not None:
        words += say("hidden_markov.semi", title=about.durations.title)
    asked = (on_convergence, on_determination, on_latents, _on_residuals, on_prediction)
    return verdict_of(
        [what_was_fitted(words), *(ask(subject) for ask in asked)],
        *subject.number_step(say("hidden_markov.number_step")),
    )


def _on_residuals(subject: Subject) -> Finding | None:
    found = "" if subject.data is None else subject.once(residuals_of)
    if isinstance(found, str):
        return None
    off = _off(found)
    if not off:
        return finding("hidden_markov.residuals.fine")
    named = "; ".join(off[:MOST_NAMED])
    return finding("hidden_markov.residuals.all", off=named, first=_far_first(off))


@fitted.register
def _(structure: HiddenMarkovStructure, subject: Subject) -> Iterator[Part]:
    about = structure.about
    known = "is estimated" if about.initial == "free" else "is given"
    first = entry("hidden_markov.parts").get(str(about.initial), known)
    named = "labels" if subject.fit.labels else "moves" if about.allowed is not None else "share"
    yield Paragraph(
        say(
            "hidden_markov.model",
            num_states=about.num_states,
            num_items=about.emission.num_items,
            word="s" if about.emission.num_items > 1 else "",
            first=first,
            named=say(f"hidden_markov.named_by_{named}"),
        )
    )
    equation = structure.distribution.shown.replace("component", "state")
    moves: tuple[str, ...] = ("s_{t} | s_{t-1} = k ~ Categorical(transitions_{k})",)
    if about.durations is not None:
        yield Paragraph(say("hidden_markov.visits", title=about.durations.title))
        following = "state of the next visit | k ~ Categorical(transitions_{k})"
        moves = (about.durations.equation, following)
    yield Equations((*moves, f"x_{{t}} | s_{{t}} = k ~ {equation}"))
    yield parameters(subject, {**entry("hidden_markov.meanings"), **meanings_of("state")})


@middle.register
def _(structure: HiddenMarkovStructure, subject: Subject) -> list[Section]:
    return [
        Section("states", "States and moves", _states(subject)),
        Section("path", "Decoded path", _path(subject)),
        estimates(subject),
    ]


def _states(subject: Subject) -> Iterator[Part]:
    fit, times = subject.fit, chain_times(subject.fit)
    labels = state_names(fit, subject.names)
    path = None if subject.data is None else viterbi_states(fit, subject.data).state
    rows = []
    for k, label in enumerate(labels):
        dwell = float(times.dwell[k])
        row = [
            label,
            f"{100 * float(times.shares[k]):.1f} %",
            f"{dwell:.3g} steps" if math.isfinite(dwell) else "never left",
        ]
        if path is not None:
            row += [f"{int((path == k).sum()):,}", f"{int(_visits(path, k)):,}"]
        rows.append(row)
    head = ["state", "share of time in the long run", "mean length of a visit"]
    head += [] if path is None else ["steps on the most probable path", "visits on it"]
    yield Table(head, rows)
    yield picture(
        lambda: plot_transitions(fit, subject.names), "chance of every next state from every state"
    )
    yield Paragraph(say("hidden_markov.transitions_note"))
    yield picture(lambda: plot_dwell_times(fit, subject.names), "how long visits last")
    durations = subject.fit.structure.about.durations
    yield Paragraph(
        say("hidden_markov.durations_note")
        if durations is None
        else say("hidden_markov.visits_note", title=durations.title)
    )


def _visits(path: torch.Tensor, state: int) -> int:
    own = path == state
    before = torch.nn.functional.pad(own[:, :-1], (1, 0))
    return int((own & ~before).sum())


def _path(subject: Subject) -> Iterator[Part]:
    if subject.data is None:
        yield NEEDS_DATA
        return
    yield picture(
        lambda: plot_decoded_path(subject.fit, subject.data, names=subject.names),
        "the first sequence and its decoded states",
    )
    yield Paragraph(say("hidden_markov.decoding_note"))


@predictive.register
def _(structure: HiddenMarkovStructure, subject: Subject) -> Iterator[Part]:
    yield from predictive.dispatch(Structure)(structure, subject)
    if subject.data is None:
        return
    found = subject.once(residuals_of)
    if isinstance(found, str):
        yield Note(f"No pseudo-residuals: {found}.")
        return
    yield Paragraph(say("hidden_markov.residuals_note"))
    columns = {
        "item": [own.item for own in found],
        "mean (0)": [number(own.mean, 3) for own in found],
        "standard deviation (1)": [number(own.spread, 3) for own in found],
        "correlation with the step before (0)": [number(own.memory, 3) for own in found],
        f"beyond {OUTLYING:g}": [f"{own.num_far:,}" for own in found],
    }
    yield Table.of(columns)
    off = _off(found)
    if off:
        yield Paragraph(
            say("hidden_markov.residuals_off", off="; ".join(off), first=_far_first(off))
        )
