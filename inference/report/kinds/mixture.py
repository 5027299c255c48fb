"""Finite mixtures: a verdict, the groups with their profiles, and the model in equations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from inference.base.structure import Structure
from inference.fitting.columns import labels_of
from inference.inspection.table_fit import TableFit, table_fit
from inference.plots.components import plot_categories, plot_groups
from inference.plots.layers import plot_loadings
from inference.report.latent_use import certainty, classified_in_words, latents
from inference.report.mixture_findings import (
    Groups,
    dependent_items,
    groups_of,
    meanings_of,
    shares_of,
)
from inference.report.odds_ratios import odds_ratios
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
    Refused,
    Subject,
    checks_of,
    estimates,
    fitted,
    middle,
    of_rows,
    parameters,
    predictive,
)
from inference.report.verdicts import on_convergence, on_determination, on_prediction, verdict
from inference.report.words import finding, percent, say, verdict_of
from inference.structures.mixture.structure import MixtureStructure
from ppl_models.parts.categorical import Categorical
from ppl_models.parts.repr import counted, few_digits, listed
from ppl_models.parts.responses import Bernoulli, Normal, ResponseFamily

LEAST_RIGHT = (
    0.8  # expected share of rows in their group, below which single rows are not to be reported
)
ENTROPY = (
    "1 minus the mean entropy of the rows' chances of the groups, as a share of that of even"
    " chances; it is no share of rows"
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
        asked += [
            _on_rows(subject, groups),
            _on_items(subject, groups),
            _on_independence(subject, groups),
        ]
    return verdict_of(asked, *subject.number_step(say("mixture.number_step")))


def _on_groups(structure: MixtureStructure, subject: Subject) -> Finding | None:
    about, shares = structure.about, shares_of(subject)
    many = f"{counted(subject.fit.num_rows, 'row')} of {counted(about.num_items, 'column')}"
    noun = "components, or latent classes" if _is_latent_class(structure) else "components"
    if about.num_components == 1:
        return finding("mixture.groups.baseline", many=many)
    if shares is None:
        return finding(
            "mixture.groups.covariate_groups",
            many=many,
            num_components=about.num_components,
            noun=noun,
        )
    words = say(
        "mixture.description",
        many=many,
        num_components=about.num_components,
        noun=noun,
        shares=_percents(shares.tolist()),
    )
    if structure.regresses:
        words += (
            f" How likely a row is to be in each depends on {listed(list(about.covariates.names))}."  # type: ignore[union-attr]
        )
    small = int((shares * subject.fit.num_rows < about.num_items + 2).sum())
    if not small:
        return finding("mixture.groups.all", words=words)
    words += say(
        "mixture.small_groups",
        small=small,
        word="holds" if small == 1 else "hold",
        word_2="it" if small == 1 else "each",
    )
    return finding("mixture.groups.small_group", words=words)


def _percents(shares: list[float]) -> str:
    shown = [
        percent(share) if share >= 0.01 else f"{100 * share:.2g} %"
        for share in shares[:MOST_GROUPS]
    ]
    if len(shares) > MOST_GROUPS:
        return f"{', '.join(shown)}, ..."
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def _on_rows(subject: Subject, groups: Groups) -> Finding | None:
    if groups.chances.shape[1] == 1:
        return None
    labels, found = _labels(subject, len(groups.means)), subject.once(certainty)
    if found is None:
        right, overall = groups.right, float(groups.chances.max(-1).mean())
        words = say("mixture.accuracy", overall=percent(overall))
    else:
        right, words = found.by_class, classified_in_words(found, "row")
        words = words[0].upper() + words[1:]
    if found is not None and found.worthless:
        return finding("mixture.rows.worthless", words=words)
    doubtful = [
        labels[k] for k in range(len(right)) if np.isnan(right[k]) or right[k] < LEAST_RIGHT
    ]
    if not doubtful:
        is_corrected = found is not None and (found.is_enough or not found.note)
        kind = "reliable" if is_corrected else "uncorrected"
        kind = "contradicted" if on_prediction(subject).mark == "care" else kind
        return finding(f"mixture.rows.{kind}", words=words)
    of = f"group {doubtful[0]}" if len(doubtful) == 1 else f"groups {listed(doubtful)}"
    step = say("mixture.classification_step", of=of)
    return finding("mixture.rows.doubtful", words=words, of=of, step=step)


def is_worthless(subject: Subject) -> bool:
    """Test if the groups classify rows no better than the largest of them alone."""
    found = subject.once(certainty)
    return found is not None and found.worthless


def _on_items(subject: Subject, groups: Groups) -> Finding | None:
    if groups.chances.shape[1] == 1:
        return None
    between = groups.between_by_item()
    order = sorted(between, key=lambda name: -between[name])
    clear = [f"{name} ({percent(between[name])})" for name in order if between[name] >= CLEAR]
    faint = [name for name in order if between[name] < FAINT]
    if clear and is_worthless(subject):
        words = say("mixture.chance_groups", clear=listed(clear))
        return finding("mixture.items.all", mark="", words=words, step="")
    together = " (categories of an item together)" if subject.fit.category_names else ""
    words = (
        f"By share of variance between the groups{together}: {listed(clear)}."
        if clear
        else "Hardly any by its mean: no column has a tenth of its variance between the groups."
    )
    if faint:
        has = "has" if len(faint) == 1 else "have"
        what = "shares" if set(faint) <= set(subject.fit.category_names) else "mean"
        words += f" {listed(faint)} {has} nearly the same {what} in all groups."
    step = say("mixture.separation_step") if not clear else ""
    return finding("mixture.items.all", mark="good" if clear else "care", words=words, step=step)


def _on_independence(subject: Subject, groups: Groups) -> Finding | None:
    about = subject.fit.structure.about
    component = about.component
    if not isinstance(component, ResponseFamily):
        return None  # distributions of whole rows have correlations of their own
    found = dependent_items(groups)
    if found is None:
        return None
    departures = [own for c in subject.once(checks_of).values() for own in c.departures()]
    if not found:
        if any(own.what == "correlation" for own in departures):
            return None  # the answer on the description names the pairs
        mark = "" if is_worthless(subject) else "good"
        return finding("mixture.independence.accepted", mark=mark)
    shown = listed(
        [f"{pair.one} and {pair.other} (correlation {pair.correlation:.2f})" for pair in found]
    )
    others = [] if subject.choice is not None else ["more groups"]
    if all(isinstance(family, Normal) for family, _, _ in component.blocks(about.num_items)):
        others.append("a distribution with correlations (MultivariateNormal())")
    tries = f"try {', '.join(others)}, or " if others else ""
    step = say("mixture.dependence_step", tries=tries)
    faint = "" if departures else say("mixture.faint_dependence")
    return finding("mixture.independence.doubt", shown=shown, faint=faint, step=step)


# -------------------------------------------------------------------- the sections


@fitted.register
def _(structure: MixtureStructure, subject: Subject) -> Iterator[Part]:
    about = structure.about
    kind = "labelled" if subject.fit.labels else "model" if about.num_components > 1 else "one"
    numbers = {"num_components": about.num_components, "num_items": about.num_items}
    yield Paragraph(say(f"mixture.{kind}", **numbers))
    before = (
        "log [P(c = k | z) / P(c = 0 | z)] = coefficients[k, intercept] + coefficients[k] . z"
        if structure.regresses
        else "c ~ Categorical(weights)"
    )
    yield Equations(
        (before, f"x | c = k ~ {structure.distribution.shown.replace('component', 'group')}")
    )
    name = getattr(about.component, "covariance", "")
    if len(name) == 3:
        yield Note(say("mixture.covariance", name=name))
    if structure.regresses:
        yield Paragraph(
            f"The terms z are {listed(list(about.covariates.terms[1:]))}; given its group a"  # type: ignore[union-attr]
            " row's items do not depend on them."
        )
    own = {
        "weights": "share of each group",
        "coefficients": "of each term in the log-odds of each group against group 0",
    }
    yield parameters(
        subject,
        {
            **{name: words for name, words in own.items() if name in subject.fit.params},
            **meanings_of("group"),
        },
    )


@latents.register
def _(structure: MixtureStructure, subject: Subject) -> Iterable[Part]:
    """Nothing that the table of groups has not."""
    return () if subject.data is not None else latents.dispatch(Structure)(structure, subject)


@middle.register
def _(structure: MixtureStructure, subject: Subject) -> list[Section]:
    sections = [estimates(subject)]
    if subject.fit.category_names:
        sections.insert(0, Section("answers", "Answers by group", _answers(subject)))
    if structure.regresses:
        sections.insert(0, Section("covariates", "What the groups depend on", _covariates(subject)))
    if structure.about.num_components > 1 and _is_latent_class(structure):
        sections.append(Section("classes", "Fit to the answers", _fit_of_classes(subject)))
    return [Section("components", "Groups", _groups(structure, subject)), *sections]


@predictive.register
def _(structure: MixtureStructure, subject: Subject) -> Iterator[Part]:
    yield from predictive.dispatch(Structure)(structure, subject)
    if subject.data is not None and subject.fit.category_names:
        yield Paragraph(say("mixture.categories_note"))


def _answers(subject: Subject) -> Iterator[Part]:
    yield picture(
        lambda: plot_categories(subject.fit, subject.names),
        "probability of every answer in every group, one panel an item",
    )
    yield Paragraph(say("mixture.answers_note"))


def _is_latent_class(structure: MixtureStructure) -> bool:
    """Test if all items are yes-no or of categories."""
    component, num_items = structure.about.component, structure.about.num_items
    return isinstance(component, ResponseFamily) and all(
        isinstance(family, Bernoulli | Categorical) for family, _, _ in component.blocks(num_items)
    )


def _fit_of_classes(subject: Subject) -> Iterator[Part]:
    """Criteria, the fit to the table of patterns, separation of the classes."""
    fit, rows = subject.fit, list[list[str]]()
    if fit.why_no_criteria is None:
        rows += [[name.upper(), number(getattr(fit, name)), ""] for name in ("aic", "bic", "sabic")]
    found = subject.once(fit_of_table)
    if isinstance(found, TableFit):
        p = "" if np.isnan(found.p_value) else f", p = {found.p_value:.2g}"
        words = f"{counted(found.degrees, 'degree')} of freedom"
        rows += [["G2", number(found.g2), words + p], ["X2", number(found.x2), words]]
    accuracy = subject.once(certainty)
    if accuracy is not None:
        words = f"1: the groups do not overlap; {ENTROPY}"
        if not accuracy.note:
            words += f"; uncorrected, and {accuracy.entropy_r2:.2f} corrected"
        rows.append(["entropy R2", number(accuracy.said_r2), words])
    yield Table(("", "value", ""), rows)
    if not isinstance(found, TableFit):
        yield Note(f"G2 and X2 were not computed: {found.reason}.")
    elif np.isnan(found.p_value):
        key = "degrees" if found.degrees < 1 else "sparse"
        words = say(f"mixture.table_{key}", seen=found.num_seen, patterns=found.num_patterns)
        yield Note(words)


def fit_of_table(subject: Subject) -> TableFit | Refused:
    """Fit to the table of answer patterns."""
    if subject.fit.structure.num_given:
        return Refused(say("mixture.no_table"))
    return of_rows(subject, table_fit)


def _covariates(subject: Subject) -> Iterator[Part]:
    labels = _labels(subject, subject.fit.structure.about.num_components)
    why = "" if subject.fit.label_names else say("mixture.odds_reference")
    yield Paragraph(say("mixture.odds_ratios", first=labels[0], why=why))
    yield odds_ratios(subject, lambda k: f"group {labels[int(k)]} against {labels[0]}")


def _groups(structure: MixtureStructure, subject: Subject) -> Iterator[Part]:
    groups, site = subject.once(groups_of), structure.distribution.site
    if groups is not None:
        yield from _profiles(structure, subject, groups)
    elif site != "probabilities" and subject.fit.params[site].shape[1] > 1:
        yield picture(
            lambda: plot_loadings(subject.fit, site, names=subject.names),
            f"heat map of {site}, group by group",
        )
        yield Paragraph("Red is above zero, blue below. Groups are in the order of falling weight.")


def _profiles(structure: MixtureStructure, subject: Subject, groups: Groups) -> Iterator[Part]:
    labels = _labels(subject, len(groups.means))
    head = ["", *(f"group {label}" for label in labels[:MOST_GROUPS]), "all rows", "between groups"]
    known = shares_of(subject)
    shares = groups.chances.mean(0) if known is None else known
    rows = [
        [
            "estimated share",
            *(f"{100 * share:.1f} %" for share in shares[:MOST_GROUPS]),
            "100 %",
            "",
        ]
    ]
    put = np.bincount(groups.chances.argmax(-1), minlength=len(shares)) / len(groups.chances)
    modal = [f"{100 * share:.1f} %" for share in put[:MOST_GROUPS]]
    rows.append(["share of rows by most probable group", *modal, "100 %", ""])
    sure = [number(own, 3) if own > 0 else "" for own in groups.right[:MOST_GROUPS]]
    found = subject.once(certainty) if len(labels) > 1 else None
    is_corrected = found is not None and not (found.note or found.is_enough)
    title = "mean probability of the group in these rows" + (
        ", uncorrected" if is_corrected else ""
    )
    rows.append([title, *sure, "", ""])
    for j, name in enumerate(groups.names[:MOST_ITEMS]):
        rows.append(
            [
                name,
                *few_digits(np.append(groups.means[:MOST_GROUPS, j], groups.overall[j])),
                f"{100 * groups.between[j]:.0f} %",
            ]
        )
    yield Paragraph(say("mixture.profiles_note", names=_names_note(subject)))
    yield Table(head, rows)
    if found is not None and not _is_latent_class(structure):  # these have a table
        said, own = f"{found.said_r2:.2f}", f"{found.entropy_r2:.2f}"
        words = " (as the posterior has it)" if found.note else f" (uncorrected: {said})"
        yield Paragraph(
            f"Entropy R2 is {own}{words if found.note or said != own else ''}: {ENTROPY}."
        )
    if len(groups.names) > MOST_ITEMS or len(labels) > MOST_GROUPS:
        yield Paragraph(
            say("mixture.truncation_note", MOST_ITEMS=MOST_ITEMS, MOST_GROUPS=MOST_GROUPS)
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


def _names_note(subject: Subject) -> str:
    """Source of the groups' names, in words."""
    return say(f"mixture.names_of_{'labels' if subject.fit.label_names else 'numbers'}")
