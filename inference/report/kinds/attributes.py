"""Attribute models: what the items ask for, who has what, how sure that is, items in words, and whether the model fits."""

from __future__ import annotations

import math

import torch

from inference.fitting.names import labels_of
from inference.inspection.attributes import classify_rows, reversals
from inference.inspection.limited_information import limited_information_fit
from inference.plots.attributes import plot_profiles, plot_q_matrix
from inference.report.page import note, number, paragraph, picture, table
from inference.report.sections import Section, Subject, estimates, fitted, middle
from inference.structures.layers.attributes import AttributeStructure
from inference.structures.layers.structure import LayeredStructure
from ppl_models.parts.distributions import binary_configurations

__all__: list[str] = []

MOST_ITEMS, MOST_PROFILES, MOST_FALLS, MOST_NAMED = 80, 16, 20, 12
MOST_LISTED = 14  # attributes whose profiles are listed
LEAST_EXPECTED = 0.8


@fitted.register
def _(structure: AttributeStructure, subject: Subject) -> str:
    layer = structure.layers[0]
    names = _attributes(subject, structure)
    asked = "are asked for as the Q-matrix says" if layer.graph is not None else "may each be used by every item"
    text = paragraph(
        f"Each row has or lacks {layer.num_parents} attributes ({', '.join(names)}), which {asked}; {layer.num_children} items are "
        "independent once the attributes are known."
    )
    text += fitted.dispatch(LayeredStructure)(structure, subject)
    forms = {
        "acdm": "each attribute adds to the chance of a right answer: P = (e^b + Σ a_k e^W_k) / (e^b + Σ e^W_k + 1)",
        "rrum": "each lacking attribute multiplies the chance of a right answer: P = σ(b) Π σ(-W_k)^(1 - a_k)",
    }
    items = [str(name) for name in labels_of(subject.fit, "item", layer.num_children, subject.names)]
    for curve, form in forms.items():
        own = [items[j] for group in layer.curved if group.curve == curve for j in group.items.tolist()]
        if own:
            shown = ", ".join(own[:MOST_NAMED]) + (f" and {len(own) - MOST_NAMED} more" if len(own) > MOST_NAMED else "")
            text += paragraph(f"Otherwise for {shown}: {form}. Read their chances in the table of items, not their loadings.")
    return text


@middle.register
def _(structure: AttributeStructure, subject: Subject) -> list[Section]:
    return [
        ("attributes", "Attributes", _prevalence(structure, subject)),
        ("profiles", "Profiles", _profiles(structure, subject)),
        ("items", "Items", _items(structure, subject)),
        ("absolute_fit", "Absolute fit", _absolute_fit(subject)),
        estimates(subject),
    ]


def _attributes(subject: Subject, structure: AttributeStructure) -> list[str]:
    return [str(name) for name in labels_of(subject.fit, "attribute", structure.layers[0].num_parents, subject.names)]


def _prevalence(structure: AttributeStructure, subject: Subject) -> str:
    """One line an attribute: how common it is, and how well rows are told apart."""
    names, chances = _attributes(subject, structure), structure.root.marginals(subject.fit.params)
    edges = structure.layers[0].edges
    counts = ["" if edges is None else str(int(edges[:, k].sum())) for k in range(len(names))]
    head = ["attribute", "items that ask for it", "share of the population that has it"]
    rows = [[name, count, number(float(chance), 3)] for name, count, chance in zip(names, counts, chances, strict=True)]
    if subject.data is None:
        return table(head, rows) + note("How surely rows are classified needs the data.")
    if 2.0 ** len(names) > 2.0**MOST_LISTED and structure.root.profiles is None:
        return table(head, rows) + note("The profiles are too many to list, so that the accuracy of the classification is not worked out.")
    found = classify_rows(subject.fit, subject.data)
    head += ["expected share of rows classified rightly", "agreement of two draws"]
    for k, row in enumerate(rows):
        row += [number(float(found.attribute_accuracy[k]), 3), number(float(found.attribute_consistency[k]), 3)]
    text = table(head, rows) + paragraph(
        f"The whole profile of a row is expected to be right in {100 * found.accuracy:.1f} % of the rows, if the model is right."
    )
    doubtful = [name for name, share in zip(names, found.attribute_accuracy, strict=True) if share < LEAST_EXPECTED]
    if doubtful:
        text += paragraph(
            f"Do not report single rows on {', '.join(doubtful)}: fewer than four rows in five are expected to be classified rightly. "
            "More items that ask for it alone would help most."
        )
    return text


def _profiles(structure: AttributeStructure, subject: Subject) -> str:
    """The most common profiles, and how attributes go together."""
    root, params, names = structure.root, subject.fit.params, _attributes(subject, structure)
    if root.profiles is None and len(names) > MOST_LISTED:
        return note(f"The profiles of {len(names)} attributes are not listed.")
    like = next(iter(params.values()))
    profiles = root.profiles if root.profiles is not None else binary_configurations(len(names), like.dtype, like.device)
    chances = root.distribution(params).log_prob(profiles.to(like)).exp()
    order = chances.argsort(descending=True)[:MOST_PROFILES].tolist()
    rows = []
    for c in order:
        has = [name for name, bit in zip(names, profiles[c].tolist(), strict=True) if bit]
        rows.append(["none" if not has else "all" if len(has) == len(names) else ", ".join(has), number(float(chances[c]), 3)])
    text = table(("attributes that a row has", "share of the population"), rows)
    text += picture(lambda: plot_profiles(subject.fit, names=subject.names), "the most common profiles as bars")
    if len(chances) > len(order):
        text += note(f"The {len(order)} most common of {len(chances):,}; the others hold {number(float(1 - chances[order].sum()), 3)} together.")
    mean = chances @ profiles.to(like)
    centred = profiles.to(like) - mean
    covariance = (centred * chances.unsqueeze(-1)).mT @ centred
    spread = covariance.diagonal().clamp(min=0).sqrt()
    together = covariance / torch.outer(spread, spread)
    if len(names) > 1:
        text += paragraph("Correlations of the attributes in the population, under the fitted law:")
        lines = [[name, *("" if other > k else number(float(together[k, other])) for other in range(len(names)))] for k, name in enumerate(names)]
        text += table(("", *names), lines)
    return text


def _items(structure: AttributeStructure, subject: Subject) -> str:
    """One line an item: what it asks for, and what is expected of those who have none or all of it."""
    fit, layer, names = subject.fit, structure.layers[0], _attributes(subject, structure)
    items = [str(name) for name in labels_of(fit, "item", layer.num_children, subject.names)]
    ends = torch.tensor([[0.0], [1.0]]).expand(2, len(names))
    none, everything = structure.expected_responses(fit.params, ends).unbind(-2)
    edges = layer.edges if layer.edges is not None else fit.params[layer.loadings].cpu() != 0
    rows = []
    for j, item in enumerate(items[:MOST_ITEMS]):
        asked = ", ".join(name for name, edge in zip(names, edges[j].tolist(), strict=True) if edge)
        rows.append([item, asked, *(f"{float(value):.3g}" for value in (none[j], everything[j], everything[j] - none[j]))])
    text = table(("item", "asks for", "expected with none of it", "with all of it", "difference"), rows)
    text += picture(lambda: plot_q_matrix(fit, names=subject.names), "the Q-matrix, coloured by what attributes add")
    if len(items) > MOST_ITEMS:
        text += note(f"The first {MOST_ITEMS} of {len(items)} are shown.")
    try:
        falls = reversals(fit)
    except ValueError as reason:
        return text + note(f"Whether items fall where they should rise is not worked out: {reason}.")
    if not falls:
        return text + paragraph("No item is expected to be done worse by those who have one attribute more.")
    text += paragraph("Where an attribute more lowers what is expected of an item. Small falls are noise; look at large ones.")
    lines = [[fall.item, fall.attribute, ", ".join(fall.having) or "none", f"{fall.fall:.3g}"] for fall in falls[:MOST_FALLS]]
    text += table(("item", "attribute that is added", "beside", "fall"), lines)
    return text + (note(f"The largest {MOST_FALLS} of {len(falls)}.") if len(falls) > MOST_FALLS else "")


def _absolute_fit(subject: Subject) -> str:
    """M2 and its relatives in words, where they can be had."""
    if subject.data is None:
        return note("Needs the data.")
    try:
        found = limited_information_fit(subject.fit, subject.data)
    except ValueError as reason:
        return note(f"M2 is not worked out: {reason}.")
    low, high = found.rmsea2_interval
    rows = [
        ["M2", number(found.m2), f"{found.degrees} degrees of freedom, p = {found.p_value:.3g}"],
        ["RMSEA2", number(found.rmsea2, 4), f"from {low:.4f} to {high:.4f} (90 %)"],
        ["SRMSR", number(found.srmsr, 4), "mean residual correlation of pairs of items"],
    ]
    good = found.rmsea2 < 0.03 and found.srmsr < 0.05
    verdict = (
        "Shares of items and of pairs of items are reproduced well by the usual marks (RMSEA2 below .03, SRMSR below .05)."
        if good
        else "Shares of pairs of items are not reproduced well by the usual marks (RMSEA2 below .03, SRMSR below .05): look at the Q-matrix, "
        "at the rules of the items, and at the law of the attributes."
    )
    return table(("statistic", "value", ""), rows) + paragraph(verdict) if math.isfinite(found.m2) else note("M2 is not a number.")
