"""Attribute models: attributes, profiles, causes, items and absolute fit."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from inference.fitting.columns import checked_as_fitted
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
    clear_falls,
    curves,
    dependence,
    falls,
    fit_of_items,
    freed,
    graph,
    is_free,
    is_scaled,
    items_of,
    q_validation,
    rules,
    shares,
    structure_of_page,
    undetermined,
)
from inference.report.causal import causal_parts, verdict_in_words
from inference.report.odds_ratios import odds_ratios
from inference.report.page import number, picture
from inference.report.parts import Finding, Note, Paragraph, Part, Section, Table, Verdict
from inference.report.sections import NEEDS_DATA, Subject, cut_table, estimates, fitted, middle
from inference.report.verdicts import beside_rows, on_convergence, record_of, verdict
from inference.report.words import entry, finding, listed, say, verdict_of
from inference.structures.layers.attributes import AttributeStructure
from inference.structures.layers.structure import LayeredStructure
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.repr import counted

MOST_ITEMS, MOST_PROFILES, MOST_FALLS, MOST_PAIRS = 80, 16, 20, 12
MOST_LISTED = 14  # attributes whose profiles are listed
LEAST_EXPECTED = 0.8
GOOD_RMSEA, FAIR_RMSEA, GOOD_SRMSR = 0.03, 0.045, 0.05
CLEAR_GAIN = 10.0  # fall of BIC that is called clear
LEAST_P = 0.05
ABSENT = 1e-5  # a profile's share below it is zero


@verdict.register
def _(structure: AttributeStructure, subject: Subject) -> Verdict:
    questions = (
        _on_model,
        on_convergence,
        _on_identifiability,
        _on_fit,
        _on_items,
        _on_q,
        _on_law,
        _on_classification,
        _on_graph,
    )
    nothing = say("attributes.no_doubt_step")
    return verdict_of((ask(subject) for ask in questions), nothing=nothing)


def _on_model(subject: Subject) -> Finding | None:
    layer, names = structure_of_page(subject).layers[0], attributes_of(subject)
    rules = [
        rule
        for rule in dict.fromkeys(structure_of_page(subject).rule_names())
        if rule != "one attribute"
    ]
    shown = f"; items that require several attributes are {' or '.join(rules)}" if rules else ""
    missing = "" if subject.data is None else _missing(subject)
    return finding(
        "attributes.model.text",
        rows=counted(subject.fit.num_rows, "row"),
        items=counted(layer.num_items, "item"),
        attributes=counted(len(names), "attribute"),
        names=listed(names),
        shown=shown,
        missing=missing,
    )


def _missing(subject: Subject) -> str:
    table = checked_as_fitted(subject.fit, subject.data)[0][
        :, : structure_of_page(subject).layers[0].num_items
    ]
    gone = int(table.isnan().sum())
    return (
        f"; {gone:,} of {table.numel():,} answers are missing and left out of the likelihood"
        if gone
        else ""
    )


def _on_identifiability(subject: Subject) -> Finding | None:
    record = record_of(subject)
    said = record.get("verdict")
    if said not in entry("conditions"):
        return finding("attributes.identifiability.unknown")
    mark, words, theory = entry("conditions")[said]
    if said in ("strict", "generic"):
        return beside_rows(
            subject, finding("attributes.identifiability.verdict", mark=mark, words=words), theory
        )
    reasons = " ".join(record.get("reasons", ())[:2])
    alike, more = record.get("alike"), ""
    if alike:
        more = say("attributes.confounded_profiles")
    step = say("attributes.pure_items_step")
    more = f"{more} {reasons}".rstrip()
    return beside_rows(
        subject,
        finding(
            "attributes.identifiability.all",
            mark="bad" if alike else mark,
            words=words + more,
            step=step,
        ),
        theory + more,
    )


def _on_fit(subject: Subject) -> Finding | None:
    found = subject.once(absolute)
    pairs = subject.once(dependence)
    more = f" {_on_pairs(pairs)}" if isinstance(pairs, LocalDependence) else ""
    if isinstance(found, Refused) or not math.isfinite(found.m2):
        if isinstance(pairs, Refused):
            step = (
                "Write the page again with the data of the fit: fit.report(path, data)."
                if subject.data is None
                else ""
            )
            return finding("attributes.fit.unknown", step=step)
        step = (
            "Look at the pairs of items that are associated beyond what the attributes explain."
            if pairs.dependent
            else ""
        )
        return finding(
            "attributes.fit.pairs",
            mark="care" if pairs.dependent else "good",
            words=more.strip(),
            step=step,
        )
    low, high = found.rmsea2_interval
    numbers = (
        f"RMSEA2 {found.rmsea2:.3f} ({low:.3f} to {high:.3f}), SRMSR {found.srmsr:.3f}, M2 p ="
        f" {found.p_value:.2g}"
    )
    if found.rmsea2 < GOOD_RMSEA and found.srmsr < GOOD_SRMSR:
        return finding("attributes.fit.good", numbers=numbers, more=more)
    fair = found.rmsea2 < FAIR_RMSEA and found.srmsr < GOOD_SRMSR
    step = say("attributes.misfit_step")
    return finding(
        "attributes.fit.all",
        mark="care" if fair else "bad",
        word="Fairly" if fair else "Not well",
        numbers=numbers,
        more=more,
        step=step,
    )


def _on_pairs(pairs: LocalDependence) -> str:
    if not pairs.dependent:
        return "No pair of items is associated beyond what the attributes explain."
    one, other = pairs.dependent[0]
    return say(
        "attributes.dependent_pairs",
        num=len(pairs.dependent),
        num_2=len(pairs.pairs),
        one=one,
        other=other,
    )


def _on_items(subject: Subject) -> Finding | None:
    found, fallen = subject.once(fit_of_items), clear_falls(subject)
    if isinstance(found, Refused) and not fallen:
        return None
    off = () if isinstance(found, Refused) else found.misfitting
    words = []
    if off:
        words.append(
            f"{len(off)} of {subject.fit.structure.layers[0].num_items} items misfit:"
            f" {listed(off)}."
        )
    elif not isinstance(found, Refused):
        words.append("No item misfits, as far as these rows can tell.")
    if fallen:
        words.append(say("attributes.falls", fallen=listed(fallen)))
    which = list(dict.fromkeys([*off, *fallen]))
    many = len(which) > subject.fit.structure.layers[0].num_items / 3
    step = (
        say("attributes.items_step")
        if many
        else (
            f"Look at {listed(which)}: wording and key, and their rows of the Q-matrix."
            if which
            else ""
        )
    )
    return finding(
        "attributes.items.all", mark="care" if which else "good", words=" ".join(words), step=step
    )


def _on_q(subject: Subject) -> Finding | None:
    found = subject.once(q_validation)
    if isinstance(found, Refused):
        return None
    clear = [
        change.item
        for change in sorted(found.changes, key=lambda change: -change.gain)
        if change.gain > CLEAR_GAIN
    ]
    if not clear:
        return finding("attributes.q.accepted")
    words = say(
        "attributes.contradicted_rows", num=len(clear), num_2=len(found.items), clear=listed(clear)
    )
    step = say("attributes.q_matrix_step")
    return finding("attributes.q.all", words=words, step=step)


def _on_law(subject: Subject) -> Finding | None:
    fit, structure = subject.fit, structure_of_page(subject)
    size = structure.layers[0].num_parents
    if is_free(subject):
        if 2.0**size <= fit.num_rows / 2:
            return None
        step = say("attributes.root_step")
        return finding(
            "attributes.law.large_table", size=2**size, rows=counted(fit.num_rows, "row"), step=step
        )
    found = subject.once(freed)
    if found is None:
        return None
    worth = 2 * found.gain - found.more * math.log(fit.num_rows)
    words = say(
        "attributes.table_gain",
        gain=found.gain,
        more=found.more,
        word="number" if found.more == 1 else "numbers",
    )
    if worth <= 0:
        return finding("attributes.law.accepted", words=words)
    return finding("attributes.law.rejected", words=words)


def _on_classification(subject: Subject) -> Finding | None:
    found = subject.once(classified)
    if isinstance(found, Refused):
        return None
    names = attributes_of(subject)
    worst = int(np.argmin(found.attribute_accuracy))
    words = say(
        "attributes.accuracy",
        accuracy=100 * found.accuracy,
        attribute_accuracy=100 * found.attribute_accuracy[worst],
        names=names[worst],
        attribute_accuracy_2=100 * found.attribute_accuracy.max(),
    )
    unknown = subject.once(undetermined)
    if unknown:
        words += say("attributes.unknown_attributes", unknown=listed(unknown))
    doubtful = [
        name
        for name, share in zip(names, found.attribute_accuracy, strict=True)
        if share < LEAST_EXPECTED or name in unknown
    ]
    if not doubtful:
        return finding("attributes.classification.reliable", words=words)
    low = [name for name in doubtful if name not in unknown]
    words += f" Below four in five: {', '.join(low)}." if low else ""
    step = say("attributes.classification_step", doubtful=", ".join(doubtful))
    return finding("attributes.classification.all", words=words, step=step)


def _on_graph(subject: Subject) -> Finding | None:
    found = subject.once(graph)
    if isinstance(found, Refused):
        return None
    return finding(
        "attributes.graph.all",
        mark="" if found.determined else "care",
        words=" ".join(verdict_in_words(found)[:3]),
    )


@fitted.register
def _(structure: AttributeStructure, subject: Subject) -> Iterator[Part]:
    layer = structure.layers[0]
    names = attributes_of(subject)
    asked = (
        "are required by items as the Q-matrix says"
        if layer.graph is not None
        else "may each be required by every item"
    )
    yield Paragraph(
        say(
            "attributes.model_note",
            num_parents=layer.num_parents,
            names=", ".join(names),
            asked=asked,
            num_items=layer.num_items,
        )
    )
    yield from fitted.dispatch(LayeredStructure)(structure, subject)
    forms = {
        "acdm": (say("attributes.additive_rule")),
        "rrum": (say("attributes.multiplicative_rule")),
    }
    items = items_of(subject)
    for curve, form in forms.items():
        own = [
            items[j] for group in layer.curved if group.curve == curve for j in group.items.tolist()
        ]
        if own:
            yield Paragraph(say("attributes.item_rules", own=listed(own), form=form))


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
    yield Paragraph(say("attributes.odds_ratios"))
    yield odds_ratios(subject, str)


def _q_matrix(subject: Subject) -> Iterator[Part]:
    """The Q-matrix as a picture, and the rows that the answers speak against."""
    yield picture(
        lambda: plot_q_matrix(subject.fit, names=subject.names),
        "the Q-matrix, coloured by what attributes add",
    )
    found = subject.once(q_validation)
    if isinstance(found, Refused):
        yield Note(f"Whether the answers contradict rows of it is not worked out: {found.reason}.")
        return
    if not found.changes:
        yield Paragraph("The answers contradict no row of it.")
        return
    yield Paragraph(say("attributes.q_matrix_note", num=len(found.changes), num_2=len(found.items)))
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
            "requires",
            "suggested",
            "variance of its answers explained",
            "by the suggested",
            "fall of BIC",
        ),
        lines,
        MOST_PAIRS,
    )


def _prevalence(structure: AttributeStructure, subject: Subject) -> Iterator[Part]:
    """Lines of attributes: prevalence, and accuracy of classification."""
    names, chances = attributes_of(subject), structure.root.marginals(subject.fit.params)
    edges = structure.layers[0].item_edges
    counts = ["" if edges is None else str(int(edges[:, k].sum())) for k in range(len(names))]
    head = ["attribute", "items that require it", "share of the population that has it"]
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
        "expected share of rows classified correctly",
        "consistency: agreement of two posterior draws",
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
        yield Note("Standard errors in brackets.")
    yield Paragraph(say("attributes.profile_accuracy", accuracy=100 * found.accuracy))
    yield Note(_how_sure(found))
    if open_ones:
        yield Paragraph(say("attributes.undetermined_shares", open_ones=listed(open_ones)))
    doubtful = [
        name
        for name, share in zip(names, found.attribute_accuracy, strict=True)
        if share < LEAST_EXPECTED
    ]
    if doubtful:
        yield Paragraph(say("attributes.doubtful_note", doubtful=", ".join(doubtful)))


def _report(share: float, is_open: bool) -> str:
    return (
        "no: not determined by the answers"
        if is_open
        else "yes"
        if share >= LEAST_EXPECTED
        else "no: below .8"
    )


def _how_sure(found: Classification) -> str:
    """Accuracies allow for parameters estimated from the same rows, or do not."""
    if found.note:
        return say("attributes.uncorrected_shares", note=found.note)
    said = 100 * (found.accuracy + found.overstated)
    return say("attributes.corrected_shares", said=said)


def _share(value: float, error: float) -> str:
    """Return a share with its standard error, where that says something."""
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
        yield Paragraph(
            "Correlations of the attributes in the population, under the fitted distribution:"
        )
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
    """Return expected answers without and with an item's attributes, (2, J), and errors."""
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
        words = say("attributes.guessing_note", words=words)
    yield Paragraph(words)
    yield from cut_table(
        ("item", "requires", "rule", "expected with none of it", "with all of it", "difference"),
        rows,
        MOST_ITEMS,
    )
    if layer.tabled:
        yield Paragraph(say("attributes.categories_note"))
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
        yield Note(
            "Whether expected answers fall where an attribute is added is not worked out:"
            f" {fallen.reason}."
        )
        return
    if not fallen:
        yield Paragraph(
            "No item's expected answer falls where an attribute is added (monotonicity)."
        )
        return
    yield Paragraph(say("attributes.falling_items"))
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
            yield Paragraph(say("attributes.significance_note"))
            yield Table(
                (
                    "item",
                    "X2",
                    "degrees of freedom",
                    "p",
                    "p, all items (Holm)",
                    "attribute with the largest departure (z)",
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
        yield Note(f"M2 was not computed: {found.reason}.")
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
    words = say("attributes.good_fit") if good else say("attributes.poor_fit")
    yield Table(("statistic", "value", ""), rows)
    yield Paragraph(words)
