"""Attribute models: who has what and how sure that is, what may cause what, items in words, and
whether the model fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from inference.inspection.classification import Classification
from inference.inspection.item_fit import ItemFit, LocalDependence
from inference.inspection.item_rules import ItemRules
from inference.plots.attributes import plot_profiles, plot_q_matrix
from inference.plots.item_curves import plot_item_curves
from inference.report.attribute_findings import (
    MOST_ERROR,
    Refused,
    absolute,
    attributes_of,
    classified,
    curves,
    dependence,
    falls,
    fit_of_items,
    graph,
    is_scaled,
    items_of,
    q_validation,
    rules,
    shares,
    undetermined,
)
from inference.report.causal import causal_parts
from inference.report.odds_ratios import odds_ratios
from inference.report.page import number, picture
from inference.report.parts import Note, Paragraph, Part, Section, Table
from inference.report.sections import NEEDS_DATA, Subject, cut_table, estimates, fitted, middle
from inference.report.words import listed
from inference.structures.layers.attributes import AttributeStructure
from inference.structures.layers.structure import LayeredStructure
from ppl_models.parts.distributions import binary_configurations

MOST_ITEMS, MOST_PROFILES, MOST_FALLS, MOST_PAIRS = 80, 16, 20, 12
MOST_LISTED = 14  # attributes whose profiles are listed
LEAST_EXPECTED = 0.8
GOOD_RMSEA, GOOD_SRMSR = 0.03, 0.05
LEAST_P = 0.05
ABSENT = 1e-5  # a profile's share below it is zero


@fitted.register
def _(structure: AttributeStructure, subject: Subject) -> Iterator[Part]:
    layer = structure.layers[0]
    names = attributes_of(subject)
    asked = (
        "are asked for as the Q-matrix says"
        if layer.graph is not None
        else "may each be used by every item"
    )
    yield Paragraph(
        f"Each row has or lacks {layer.num_parents} attributes ({', '.join(names)}), which {asked};"
        f" {layer.num_items} items are independent once the attributes are known."
    )
    yield from fitted.dispatch(LayeredStructure)(structure, subject)
    forms = {
        "acdm": (
            "each attribute adds to the chance of a right answer: P = (e^b + Σ a_k e^W_k) / (e^b +"
            " Σ e^W_k + 1)"
        ),
        "rrum": (
            "each lacking attribute multiplies the chance of a right answer: P = σ(b) Π σ(-W_k)^(1"
            " - a_k)"
        ),
    }
    items = items_of(subject)
    for curve, form in forms.items():
        own = [
            items[j] for group in layer.curved if group.curve == curve for j in group.items.tolist()
        ]
        if own:
            yield Paragraph(
                f"Otherwise for {listed(own)}: {form}. Read their chances in the table of items,"
                " not their loadings."
            )


@middle.register
def _(structure: AttributeStructure, subject: Subject) -> list[Section]:
    found = subject.once(graph)
    own = (
        []
        if structure.covariates is None
        else [Section("covariates", "Who has which attribute", _covariates(subject))]
    )
    return [
        *own,
        Section("attributes", "Attributes", _prevalence(structure, subject)),
        Section("profiles", "Profiles", _profiles(structure, subject)),
        Section(
            "graph",
            "What may cause what",
            (
                [Note(f"Not looked for: {found.reason}.")]
                if isinstance(found, Refused)
                else causal_parts(found)
            ),
        ),
        Section("q_matrix", "Q-matrix", _q_matrix(subject)),
        Section("items", "Items", _items(structure, subject)),
        Section("item_fit", "Fit of items and pairs", _fit_of_items(subject)),
        Section("absolute_fit", "Absolute fit", _absolute_fit(subject)),
        estimates(subject),
    ]


def _covariates(subject: Subject) -> Iterator[Part]:
    yield Paragraph(
        "How many times larger the odds are to have an attribute where a covariate is larger by one"
        " and all others are the same: an odds ratio of 1 says that the covariate makes no"
        " difference."
    )
    yield odds_ratios(subject, str)


def _q_matrix(subject: Subject) -> Iterator[Part]:
    """The Q-matrix as a picture, and the rows that the answers speak against."""
    yield picture(
        lambda: plot_q_matrix(subject.fit, names=subject.names),
        "the Q-matrix, coloured by what attributes add",
    )
    found = subject.once(q_validation)
    if isinstance(found, Refused):
        yield Note(
            f"Whether the answers speak against rows of it is not worked out: {found.reason}."
        )
        return
    if not found.changes:
        yield Paragraph("The answers speak against no row of it.")
        return
    yield Paragraph(
        f"For {len(found.changes)} of {len(found.items)} items another row describes the answers"
        " better by BIC. Change a row only where that makes sense for the item: read its wording"
        " first. This is one round; inference.inspection.validate_q(fit, data) goes on until"
        " nothing changes."
    )
    lines = [
        [
            change.item,
            ", ".join(change.given),
            ", ".join(change.suggested),
            f"{change.pvaf_given:.2f}",
            f"{change.pvaf_suggested:.2f}",
            f"{change.gain:+.1f}",
        ]
        for change in sorted(found.changes, key=lambda change: -change.gain)
    ]
    yield from cut_table(
        (
            "item",
            "asks for",
            "suggested",
            "variance of its answers explained",
            "by the suggested",
            "fall of BIC",
        ),
        lines,
        MOST_PAIRS,
    )


def _prevalence(structure: AttributeStructure, subject: Subject) -> Iterator[Part]:
    """One line an attribute: how common it is, and how well rows are told apart."""
    names, chances = attributes_of(subject), structure.root.marginals(subject.fit.params)
    edges = structure.layers[0].item_edges
    counts = ["" if edges is None else str(int(edges[:, k].sum())) for k in range(len(names))]
    head = ["attribute", "items that ask for it", "share of the population that has it"]
    known = subject.once(shares)
    errors = np.full(len(names), np.nan) if isinstance(known, Refused) else known.mastery_errors
    open_ones = subject.once(undetermined)
    rows = [
        [
            name,
            count,
            _share(chance, error) if name not in open_ones else f"{chance:.3f} (not determined)",
        ]
        for name, count, chance, error in zip(
            names, counts, chances.tolist(), errors.tolist(), strict=True
        )
    ]
    found = subject.once(classified)
    if structure.covariates is not None:
        head[2] = "chance to have it, covariates at their means"
    if isinstance(found, Refused):
        yield Table(head, rows)
        yield Note(f"{found.reason[0].upper()}{found.reason[1:]}.")
        return
    head += [
        "expected share of rows classified rightly",
        "consistency: agreement of two draws",
        "report single rows?",
    ]
    for k, row in enumerate(rows):
        share = float(found.attribute_accuracy[k])
        row += [
            number(share, 3),
            number(float(found.attribute_consistency[k]), 3),
            _report(share, names[k] in open_ones),
        ]
    yield Table(head, rows)
    if np.isfinite(errors).any():
        yield Note("In brackets standard errors.")
    yield Paragraph(
        f"The whole profile of a row is expected to be right in {100 * found.accuracy:.1f} % of the"
        " rows, if the model is right."
    )
    yield Note(_how_sure(found))
    if open_ones:
        yield Paragraph(
            f"The answers do not determine who has {listed(open_ones)}: other shares of them fit as"
            " well, so what stands here of them rests on where the fit began."
        )
    doubtful = [
        name
        for name, share in zip(names, found.attribute_accuracy, strict=True)
        if share < LEAST_EXPECTED
    ]
    if doubtful:
        yield Paragraph(
            f"Do not report single rows on {', '.join(doubtful)}: fewer than four rows in five are"
            " expected to be classified rightly. More items that ask for it alone would help most."
        )


def _report(share: float, is_open: bool) -> str:
    return (
        "no: not determined by the answers"
        if is_open
        else "yes"
        if share >= LEAST_EXPECTED
        else "no: below .8"
    )


def _how_sure(found: Classification) -> str:
    """Whether the accuracies allow for parameters that were estimated from the same rows."""
    if found.note:
        return (
            "These shares are a little too high where rows are few, because parameters were"
            f" estimated from the same rows. That was not corrected: {found.note}."
        )
    said = 100 * (found.accuracy + found.overstated)
    return (
        "These shares allow for parameters that were estimated from the same rows. The rows' own"
        f" probabilities say {said:.1f} % for the whole profile, as programs that take the"
        " estimates for the truth would report; data sets simulated from this fit, and fitted"
        " again, show by how much that is too high."
    )


def _share(value: float, error: float) -> str:
    """A share with its standard error; one that says nothing comes from a direction along which the
    answers hardly determine the table.
    """
    if error >= MOST_ERROR:
        return f"{value:.3f} (not determined)"
    return f"{value:.3f} ({error:.3f})" if math.isfinite(error) else f"{value:.3f}"


def _profiles(structure: AttributeStructure, subject: Subject) -> Iterator[Part]:
    """The most common profiles, and how attributes go together."""
    root, params, names = structure.root, subject.fit.params, attributes_of(subject)
    if structure.covariates is not None:
        yield Note(
            "How common a profile is depends on the covariates of a row:"
            f" {listed(list(structure.covariates.names))}."
        )
        return
    if root.profiles is None and len(names) > MOST_LISTED:
        yield Note(f"The profiles of {len(names)} attributes are not listed.")
        return
    like = next(iter(params.values()))
    profiles = (
        root.profiles
        if root.profiles is not None
        else binary_configurations(len(names), like.dtype, like.device)
    )
    chances = root.distribution(params).log_prob(profiles.to(like)).exp()
    order = chances.argsort(descending=True)[:MOST_PROFILES].tolist()
    known = subject.once(shares)
    rows = []
    for c in order:
        error = math.nan if isinstance(known, Refused) else float(known.standard_errors[c])
        if not isinstance(known, Refused) and math.isnan(error) and float(chances[c]) > ABSENT:
            error = MOST_ERROR
        has = [name for name, bit in zip(names, profiles[c].tolist(), strict=True) if bit]
        rows.append(
            [
                "none" if not has else "all" if len(has) == len(names) else ", ".join(has),
                _share(float(chances[c]), error),
            ]
        )
    yield Table(("attributes that a row has", "share of the population"), rows)
    yield picture(
        lambda: plot_profiles(subject.fit, names=subject.names), "the most common profiles as bars"
    )
    if len(chances) > len(order):
        yield Note(
            f"The {len(order)} most common of {len(chances):,}; the others hold"
            f" {number(float(1 - chances[order].sum()), 3)} together."
        )
    mean = chances @ profiles.to(like)
    centred = profiles.to(like) - mean
    covariance = (centred * chances.unsqueeze(-1)).mT @ centred
    spread = covariance.diagonal().clamp(min=0).sqrt()
    together = covariance / torch.outer(spread, spread)
    if len(names) > 1:
        yield Paragraph("Correlations of the attributes in the population, under the fitted law:")
        lines = [
            [
                name,
                *(
                    "" if other > k else number(float(together[k, other]))
                    for other in range(len(names))
                ),
            ]
            for k, name in enumerate(names)
        ]
        yield Table(("", *names), lines)


def _ends(structure: AttributeStructure, subject: Subject) -> tuple[Tensor, np.ndarray | None, str]:
    """What is expected of those with none and with all of an item's attributes, (2, J); standard
    errors, and where they are from or why there are none.
    """
    size, count = structure.layers[0].num_parents, structure.layers[0].num_items
    corners = torch.tensor([[0.0], [1.0]]).expand(2, size)
    fit = subject.fit
    values = structure.expected_responses(fit.params, corners)
    if fit.draws is not None:
        drawn = structure.expected_responses(
            {name: value.flatten(0, 1) for name, value in fit.draws.items()}, corners
        )
        return values, drawn.std(0).cpu().numpy(), "standard deviations of the draws"
    found = subject.once(curves)
    if isinstance(found, Refused):
        return values, None, found.reason
    errors = np.full((2, count), np.nan)
    asked = {
        j: max(
            len(profile)
            for place, profile in zip(found.item, found.profiles, strict=True)
            if place == j
        )
        for j in range(count)
    }
    for j, profile, error in zip(
        found.item.tolist(), found.profiles, found.standard_errors, strict=True
    ):
        for end, number_of in ((0, 0), (1, asked[j])):
            if len(profile) == number_of:
                errors[end, j] = error
    return values, errors, "standard errors"


def _items(structure: AttributeStructure, subject: Subject) -> Iterator[Part]:
    """One line an item: what it asks for, and what is expected of those who have none or all of
    it.
    """
    fit, layer, names, items = (
        subject.fit,
        structure.layers[0],
        attributes_of(subject),
        items_of(subject),
    )
    values, errors, source = _ends(structure, subject)
    none, everything = values.unbind(-2)
    edges = (
        layer.item_edges
        if layer.item_edges is not None
        else layer.by_item(fit.params[layer.loadings].cpu() != 0)
    )
    own, form = structure.rule_names(), ".3g" if is_scaled(subject) else ".3f"
    rows = []
    for j, item in enumerate(items):
        asked = ", ".join(name for name, edge in zip(names, edges[j].tolist(), strict=True) if edge)
        ends = [
            _with_error(float(value[j]), math.nan if errors is None else errors[r, j], form)
            for r, value in enumerate((none, everything))
        ]
        rows.append(
            [
                item,
                asked,
                own[j],
                *ends,
                _with_error(float(everything[j] - none[j]), math.nan, form),
            ]
        )
    words = (
        f"In brackets {source}." if errors is not None else f"Without standard errors: {source}."
    )
    if not is_scaled(subject):
        words = (
            "What is expected with none of an item's attributes is its guessing; one minus what is"
            f" expected with all of them is its slipping. {words}"
        )
    yield Paragraph(words)
    yield from cut_table(
        ("item", "asks for", "rule", "expected with none of it", "with all of it", "difference"),
        rows,
        MOST_ITEMS,
    )
    if layer.tabled:
        yield Paragraph(
            "Items that are categories in an order are shown above with their mean code, counted"
            " from 0 for the lowest category; those in no order have none. Each of their"
            " categories:"
        )
        yield from cut_table(
            ("item", "category", "chance with none of its attributes", "with all of them"),
            _categories(structure, subject, items),
            MOST_ITEMS,
        )
    tests = subject.once(rules) if "saturated" in own else None
    if isinstance(tests, ItemRules):
        yield Paragraph(f"Would simpler rules do? {tests.text()}")
    if not isinstance(subject.once(curves), Refused):
        yield picture(
            lambda: plot_item_curves(fit, subject.data),
            "expected answers by profile, with 95 % intervals",
        )
    fallen = subject.once(falls)
    if isinstance(fallen, Refused):
        yield Note(f"Whether items fall where they should rise is not worked out: {fallen.reason}.")
        return
    if not fallen:
        yield Paragraph(
            "No item is expected to be done worse by those who have one attribute more."
        )
        return
    yield Paragraph(
        "Where an attribute more lowers what is expected of an item. Small falls are noise; look at"
        " large ones."
    )
    lines = [
        [fall.item, fall.attribute, ", ".join(fall.having) or "none", f"{fall.fall:.3g}"]
        for fall in fallen
    ]
    yield from cut_table(
        ("item", "attribute that is added", "beside", "fall"), lines, MOST_FALLS, "largest"
    )


def _categories(
    structure: AttributeStructure, subject: Subject, items: list[str]
) -> list[list[str]]:
    """The chance of each category for those with none and with all of the attributes."""
    corners = torch.tensor([[0.0], [1.0]]).expand(2, structure.layers[0].num_parents)
    found, names = (
        structure.model.category_chances(subject.fit.params, corners),
        structure.layers[0].response.category_names(len(items)),
    )
    return [
        [items[j], name, f"{none:.3f}", f"{everything:.3f}"]
        for j, own in found.items()
        for name, (none, everything) in zip(names[j], own.mT.tolist(), strict=True)
    ]


def _with_error(value: float, error: float, form: str) -> str:
    if math.isnan(value):
        return "in no order"
    return f"{value:{form}} ({error:{form}})" if math.isfinite(error) else f"{value:{form}}"


def _fit_of_items(subject: Subject) -> Iterator[Part]:
    """Items that are not answered as the model says, and pairs that share more than the attributes
    explain.
    """
    items, pairs = subject.once(fit_of_items), subject.once(dependence)
    yield (
        Note(f"Fit of items is not worked out: {items.reason}.")
        if isinstance(items, Refused)
        else Paragraph(items.text())
    )
    if isinstance(items, ItemFit):
        order = [
            j
            for j in np.argsort(np.nan_to_num(items.p_value, nan=1.0), kind="stable").tolist()
            if items.p_value[j] < LEAST_P
        ]
        lines = [
            [
                items.items[j],
                f"{items.statistic[j]:.1f}",
                f"{items.degrees[j]:.1f}",
                f"{items.p_value[j]:.2g}",
                f"{items.p_holm[j]:.2g}",
                (
                    f"{items.suspects[j]} ({max(np.nan_to_num(items.z[j]), key=abs):+.1f})"
                    if items.suspects[j]
                    else ""
                ),
            ]
            for j in order[:MOST_PAIRS]
        ]
        if lines:
            yield Paragraph(
                "Items below 5 % one by one; corrected for the number of items, most of such"
                " findings go away."
            )
            yield Table(
                (
                    "item",
                    "X2",
                    "degrees of freedom",
                    "p",
                    "p, all items (Holm)",
                    "attribute whose owners depart most (z)",
                ),
                lines,
            )
    yield (
        Note(f"Local dependence is not worked out: {pairs.reason}.")
        if isinstance(pairs, Refused)
        else Paragraph(pairs.text())
    )
    if isinstance(pairs, LocalDependence) and pairs.dependent:
        strongest = np.argsort(-np.nan_to_num(np.abs(pairs.z)), kind="stable")
        lines = [
            [
                pairs.items[pairs.pairs[c, 0]],
                pairs.items[pairs.pairs[c, 1]],
                f"{pairs.residual_correlation[c]:+.3f}",
                f"{pairs.z[c]:+.1f}",
                f"{pairs.p_holm[c]:.2g}",
            ]
            for c in strongest[:MOST_PAIRS].tolist()
            if pairs.p_holm[c] < LEAST_P
        ]
        yield Table(("item", "item", "residual correlation", "z", "p, all pairs (Holm)"), lines)


def _absolute_fit(subject: Subject) -> Iterator[Part]:
    """M2 and its relatives in words, where they can be had."""
    if subject.data is None:
        yield NEEDS_DATA
        return
    found = subject.once(absolute)
    if isinstance(found, Refused):
        yield Note(f"M2 is not worked out: {found.reason}.")
        return
    if not math.isfinite(found.m2):
        yield Note("M2 is not a number.")
        return
    low, high = found.rmsea2_interval
    rows = [
        ["M2", number(found.m2), f"{found.degrees} degrees of freedom, p = {found.p_value:.3g}"],
        ["RMSEA2", number(found.rmsea2, 4), f"from {low:.4f} to {high:.4f} (90 %)"],
        ["SRMSR", number(found.srmsr, 4), "mean residual correlation of pairs of items"],
    ]
    good = found.rmsea2 < GOOD_RMSEA and found.srmsr < GOOD_SRMSR
    words = (
        "Shares of items and of pairs of items are reproduced well by the usual marks (RMSEA2 below"
        " .03, SRMSR below .05)."
        if good
        else (
            "Shares of pairs of items are not reproduced well by the usual marks (RMSEA2 below .03,"
            " SRMSR below .05): look at the Q-matrix, at the rules of the items, and at the law of"
            " the attributes."
        )
    )
    yield Table(("statistic", "value", ""), rows)
    yield Paragraph(words)
