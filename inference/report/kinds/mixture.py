"""Finite mixtures: a verdict, the groups with their profiles, and the model in equations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from inference.base.structure import Structure
from inference.fitting.names import labels_of
from inference.plots.categories import plot_categories
from inference.plots.components import plot_groups
from inference.plots.layers import plot_loadings
from inference.report.latent_use import certainty, classified_in_words
from inference.report.mixture_findings import (
    Groups,
    dependent_items,
    groups_of,
    meanings_of,
    shares_of,
)
from inference.report.odds_ratios import odds_ratios
from inference.report.page import picture
from inference.report.parts import Equations, Finding, Paragraph, Part, Section, Table, Verdict
from inference.report.sections import Subject, estimates, fitted, middle, parameters, predictive
from inference.report.verdicts import on_convergence, on_determination, on_prediction, verdict
from inference.report.words import listed, verdict_of
from inference.structures.mixture.structure import MixtureStructure
from ppl_models.parts.repr import counted, few_digits
from ppl_models.parts.responses import ResponseFamily

LEAST_RIGHT = (
    0.8  # expected share of rows in their group, below which single rows are not to be reported
)
CLEAR, FAINT = 0.1, 0.01  # shares of an item's variance between groups
MOST_ITEMS, MOST_GROUPS = 60, 12  # of the table of profiles


# -------------------------------------------------------------------- the verdict


@verdict.register
def _(structure: MixtureStructure, subject: Subject) -> Verdict:
    asked = [
        _on_groups(structure, subject),
        on_convergence(subject),
        on_determination(subject),
        on_prediction(subject),
    ]
    groups = subject.once(groups_of)
    if groups is not None:
        asked += [_on_rows(subject, groups), _on_items(groups), _on_independence(structure, groups)]
    number_step = (
        "Ask whether this is the right number of groups: fit several numbers and compare them"
        " (ppl-models fit mixture --choose 1..6, or inference.selection)."
    )
    return verdict_of(asked, number_step)


def _on_groups(structure: MixtureStructure, subject: Subject) -> Finding | None:
    about, shares = structure.about, shares_of(subject)
    many = f"{counted(subject.fit.num_rows, 'row')} of {counted(about.num_items, 'column')}"
    if about.num_components == 1:
        return Finding(
            "",
            "What was fitted?",
            f"{many}, as one group: what other numbers of groups are compared with.",
        )
    if shares is None:
        return Finding(
            "",
            "What was fitted?",
            f"{many}, as {about.num_components} groups (components) whose shares depend on"
            " covariates.",
        )
    words = (
        f"{many}, as {about.num_components} groups (components) that hold"
        f" {_percents(shares.tolist())} of the rows."
    )
    if structure.regresses:
        words += (
            f" How likely a row is to be in each depends on {listed(list(about.covariates.names))}."  # type: ignore[union-attr]
        )
    small = int((shares * subject.fit.num_rows < about.num_items + 2).sum())
    if not small:
        return Finding("", "What was fitted?", words)
    words += (
        f" {small} of them {'holds' if small == 1 else 'hold'} fewer rows than it takes to describe"
        f" {'it' if small == 1 else 'each'}."
    )
    return Finding(
        "care",
        "What was fitted?",
        words,
        "Fit fewer groups, or look at the rows of the smallest one by one: it may be a handful of"
        " odd rows.",
    )


def _percents(shares: list[float]) -> str:
    shown = [
        f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.2g} %"
        for share in shares[:MOST_GROUPS]
    ]
    if len(shares) > MOST_GROUPS:
        return f"{', '.join(shown)}, ..."
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def _on_rows(subject: Subject, groups: Groups) -> Finding | None:
    question = "How surely are rows classified?"
    if groups.chances.shape[1] == 1:
        return None
    labels, found = _labels(subject, len(groups.means)), subject.once(certainty)
    if found is None:
        right, overall = groups.right, float(groups.chances.max(-1).mean())
        words = (
            f"{100 * overall:.0f} % of the rows are expected to be classified correctly, if the"
            " estimates are the truth."
        )
    else:
        right, words = found.by_class, classified_in_words(found, "row")
    if found is not None and found.worthless:
        return Finding(
            "bad",
            question,
            words,
            "Report no single row, and doubt the groups: compare with one group, or take more rows"
            " or items that differ more.",
        )
    doubtful = [
        labels[k] for k in range(len(right)) if np.isnan(right[k]) or right[k] < LEAST_RIGHT
    ]
    if not doubtful:
        return Finding("good", question, f"{words} That supposes that the model is right.")
    of = f"group {doubtful[0]}" if len(doubtful) == 1 else f"groups {listed(doubtful)}"
    step = (
        f"Do not report single rows of {of}; work with the chances of all groups instead (the"
        " columns P(...) of posterior.csv, or fit.predict_proba(data))."
    )
    return Finding(
        "care",
        question,
        f"{words} Fewer than four in five of the rows put into it belong there, or no row is put"
        f" there, in {of}.",
        step,
    )


def _on_items(groups: Groups) -> Finding | None:
    if groups.chances.shape[1] == 1:
        return None
    between = groups.between_by_item()
    order = sorted(between, key=lambda name: -between[name])
    clear = [f"{name} ({100 * between[name]:.0f} %)" for name in order if between[name] >= CLEAR]
    faint = [name for name in order if between[name] < FAINT]
    words = (
        f"By the share of its variance that lies between the groups: {listed(clear)}."
        if clear
        else "No column much: none has a tenth of its variance between the groups."
    )
    if faint:
        words += (
            f" {listed(faint)} {'says' if len(faint) == 1 else 'say'} next to nothing of the"
            " groups."
        )
    step = (
        "Doubt the groups: they may only be a way to write a law of one group that has heavy tails"
        " or leans to one side."
        if not clear
        else ""
    )
    return Finding("good" if clear else "care", "What tells the groups apart?", words, step)


def _on_independence(structure: MixtureStructure, groups: Groups) -> Finding | None:
    if not isinstance(structure.about.component, ResponseFamily):
        return None  # laws of whole rows have correlations of their own
    found, question = (
        dependent_items(groups),
        "Are columns independent inside the groups, as the model says?",
    )
    if found is None:
        return None
    if not found:
        return Finding(
            "good",
            question,
            "As far as these rows can tell: no two columns clearly go together inside the groups.",
        )
    shown = listed(
        [f"{pair.one} and {pair.other} (correlation {pair.correlation:.2f})" for pair in found]
    )
    step = (
        "Columns that go together inside groups make up groups of their own: try more groups, a law"
        " with correlations (MultivariateNormal()) where columns are measurements, or leave one of"
        " the two out."
    )
    return Finding("care", question, f"No: {shown}.", step)


# -------------------------------------------------------------------- the sections


@fitted.register
def _(structure: MixtureStructure, subject: Subject) -> Iterator[Part]:
    about = structure.about
    yield Paragraph(
        f"Every row belongs to one of {about.num_components} components (groups) c, and nobody has"
        f" seen which; given its component its {about.num_items} items x follow the component's"
        " law."
    )
    before = (
        "log P(c = k | z) / P(c = 0 | z) = coefficients[k, intercept] + coefficients[k] . z"
        if structure.regresses
        else "c ~ Categorical(weights)"
    )
    yield Equations((before, f"x | c = k ~ {structure.law.equation}"))
    if structure.regresses:
        yield Paragraph(
            f"The terms z are {listed(list(about.covariates.terms[1:]))}; given its component a"  # type: ignore[union-attr]
            " row's items do not depend on them."
        )
    own = {
        "weights": "share of each component",
        "coefficients": "of each term in the log-odds of each component against component 0",
    }
    yield parameters(
        subject,
        {
            **{name: words for name, words in own.items() if name in subject.fit.params},
            **meanings_of("component"),
        },
    )


@middle.register
def _(structure: MixtureStructure, subject: Subject) -> list[Section]:
    sections = [estimates(subject)]
    if subject.fit.category_names:
        sections.insert(0, Section("answers", "Answers by class", _answers(subject)))
    if structure.regresses:
        sections.insert(0, Section("covariates", "What the groups depend on", _covariates(subject)))
    return [Section("components", "Groups", _groups(structure, subject)), *sections]


@predictive.register
def _(structure: MixtureStructure, subject: Subject) -> Iterator[Part]:
    yield from predictive.dispatch(Structure)(structure, subject)
    if subject.data is not None and subject.fit.category_names:
        yield Paragraph(
            "Every category of an item but its first is a column of its own here, 1 in the rows"
            " that have it; its mean is the share of these rows."
        )


def _answers(subject: Subject) -> Iterator[Part]:
    yield picture(
        lambda: plot_categories(subject.fit, subject.names),
        "probability of every answer in every class, one panel an item",
    )
    yield Paragraph(
        "Each bar is one class (component), cut into the probabilities of the answers; it fills up"
        " to one. An item whose bars look alike tells the classes apart badly; one whose bars"
        " differ tells them apart well. The names 0, 1, ... of the classes carry no meaning of"
        " their own: name them by the answers that are typical of them."
    )


def _covariates(subject: Subject) -> Iterator[Part]:
    yield Paragraph(
        "How many times larger the odds of a group against group 0 are where a covariate is larger"
        " by one and all others are the same: an odds ratio of 1 says that the covariate makes no"
        " difference. Group 0 is the most probable one where all covariates are at their means."
    )
    yield odds_ratios(subject, lambda group: f"group {group} against 0")


def _groups(structure: MixtureStructure, subject: Subject) -> Iterator[Part]:
    groups, site = subject.once(groups_of), structure.law.site
    if groups is not None:
        yield from _profiles(subject, groups)
    elif site != "probabilities" and subject.fit.params[site].shape[1] > 1:
        yield picture(
            lambda: plot_loadings(subject.fit, site, names=subject.names),
            f"heat map of {site}, component by component",
        )
        yield Paragraph(
            "Red is above zero, blue below. Components are in the order of falling weight."
        )


def _profiles(subject: Subject, groups: Groups) -> Iterator[Part]:
    labels = _labels(subject, len(groups.means))
    head = ["", *(f"group {label}" for label in labels[:MOST_GROUPS]), "all rows", "between groups"]
    shares = groups.chances.mean(0)
    rows = [
        [
            "share of the rows",
            *(f"{100 * share:.1f} %" for share in shares[:MOST_GROUPS]),
            "100 %",
            "",
        ]
    ]
    for j, name in enumerate(groups.names[:MOST_ITEMS]):
        rows.append(
            [
                name,
                *few_digits(np.append(groups.means[:MOST_GROUPS, j], groups.overall[j])),
                f"{100 * groups.between[j]:.0f} %",
            ]
        )
    yield Paragraph(
        "The mean of every column in every group, each row counted by its chance to be in the group"
        " (of a column of 0 and 1, and of a category, that is a share), and the share of the"
        " column's variance that lies between the groups. The names 0, 1, ... of the groups are"
        " those of all files and pictures."
    )
    yield Table(head, rows)
    found = subject.once(certainty) if len(labels) > 1 else None
    if found is not None:
        yield Paragraph(
            f"{classified_in_words(found, 'row')} Entropy R2 is {found.entropy_r2:.2f}"
            + (
                " as the posterior has it."
                if found.note
                else f" (the posterior alone says {found.said_r2:.2f})."
            )
        )
    if len(groups.names) > MOST_ITEMS or len(labels) > MOST_GROUPS:
        yield Paragraph(
            f"The first {MOST_ITEMS} columns and {MOST_GROUPS} groups are shown; summary.json and"
            " fit.frames have all."
        )
    if len(labels) > 1:
        yield picture(
            lambda: plot_groups(groups.means, groups.overall, groups.spread, groups.names, labels),
            "profiles of the groups",
        )
        yield Paragraph(
            "Red is above the mean of all rows, blue below, in standard deviations of the column."
        )


def _labels(subject: Subject, num_components: int) -> list[str]:
    return [
        str(label) for label in labels_of(subject.fit, "component", num_components, subject.names)
    ]
