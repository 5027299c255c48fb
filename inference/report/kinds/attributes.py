"""Attribute models: attributes, profiles, causes, items and absolute fit."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from inference.causal.of_fit import AttributeReport, profile_posterior, report_of_table
from inference.fitting.columns import checked_as_fitted, labels_of
from inference.inspection.attributes import Reversal, all_bernoulli, reversals
from inference.inspection.classification import Classification, classify_rows
from inference.inspection.item_curves import ItemCurves, ProfileShares, item_curves, profile_shares
from inference.inspection.item_fit import (
    ItemFit,
    LimitedInformationFit,
    LocalDependence,
    item_fit,
    limited_information_fit,
    local_dependence,
)
from inference.inspection.item_rules import ItemRules, item_rules
from inference.inspection.q_validation import QValidation, validate_q
from inference.plots.attributes import plot_item_curves, plot_profiles, plot_q_matrix
from inference.report.causal import causal_parts, verdict_in_words
from inference.report.kinds.layers import graph_choice
from inference.report.odds_ratios import odds_ratios
from inference.report.page import number, picture, texts, with_error
from inference.report.parts import Finding, Note, Paragraph, Part, Section, Table, Verdict
from inference.report.sections import (
    NEEDS_DATA,
    Refused,
    Subject,
    cut,
    estimates,
    fitted,
    middle,
    of_rows,
    told,
    tried,
    without_rows,
)
from inference.report.verdicts import beside_rows, on_convergence, record_of, verdict
from inference.report.words import entry, finding, percent, say, verdict_of
from inference.structures.layers.attributes import AttributeStructure
from inference.structures.layers.free_table import table_gain
from inference.structures.layers.structure import LayeredStructure
from ppl_models.descriptions.layers import GeneralizedLinearLayer
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.repr import counted, listed, profile_name, together

MOST_ITEMS, MOST_PROFILES, MOST_FALLS, MOST_PAIRS, MOST_CURVES = 80, 16, 20, 12, 200
MOST_LISTED = 14  # attributes whose profiles are listed
MOST_ERROR = 0.5  # of a share: no number between 0 and 1 has a larger standard deviation
MOST_GRAPHED = 8  # attributes among which a graph is looked for on a page
MOST_FREED = 10  # whose free table is tried
# rows times profiles times items, beyond which fit of items is left to a call of its own
MOST_CELLS = 2**27
MOST_MOMENTS = 2**23  # profiles times items squared, likewise for M2
LARGE_FALL = 0.1  # of a chance
LEAST_EXPECTED = 0.8
GOOD_RMSEA, FAIR_RMSEA, GOOD_SRMSR = 0.03, 0.045, 0.05
CLEAR_GAIN = 10.0  # fall of BIC that is called clear
LEAST_P = 0.05
ABSENT = 1e-5  # a profile's share below it is zero
T = TypeVar("T")


# -------------------------------------------------------------------- what sections share


def structure_of_page(subject: Subject) -> AttributeStructure:
    """Return the attribute structure of a page's fit."""
    structure = subject.fit.structure
    if not isinstance(structure, AttributeStructure):
        raise TypeError("an attribute model was expected")
    return structure


def layer_of(subject: Subject) -> GeneralizedLinearLayer:
    """Return the layer of the items."""
    return structure_of_page(subject).layers[0]


def attributes_of(subject: Subject) -> list[str]:
    """Return the names of the attributes."""
    size = layer_of(subject).num_parents
    labels = labels_of(subject.fit, "attribute", size, subject.names)
    return [f"attribute {label}" if str(label).isdigit() else str(label) for label in labels]


def items_of(subject: Subject) -> list[str]:
    """Return the names of the items."""
    size = layer_of(subject).num_items
    return list(map(str, labels_of(subject.fit, "item", size, subject.names)))


def is_scaled(subject: Subject) -> bool:
    """Return whether some items are no right-wrong ones, where a fall may be right."""
    return not all_bernoulli(structure_of_page(subject))


def is_free(subject: Subject) -> bool:
    """Return whether the table of profiles is free, its dependences those of the data."""
    structure, size = structure_of_page(subject), layer_of(subject).num_parents
    return structure.covariates is None and structure.root.num_free >= 2.0**size - 1


def is_slow(subject: Subject) -> bool:
    """Return whether rows times profiles times items are many."""
    layer = layer_of(subject)
    cells = float(subject.fit.num_rows) * 2.0**layer.num_parents * layer.num_items
    return cells > MOST_CELLS


def _asked(subject: Subject, name: str, ask: Callable[[Any, Any], T], slow: bool) -> T | Refused:
    """Answer to a question about fit and rows, where it is quick."""
    if slow and without_rows(subject) is None:
        return Refused(say("attributes.slow", name=name))
    return of_rows(subject, ask)


def classified(subject: Subject) -> Classification | Refused:
    """Return how surely rows are classified."""
    if subject.data is None:
        return Refused("how surely rows are classified needs the data")
    return tried(lambda: classify_rows(subject.fit, subject.data))


def absolute(subject: Subject) -> LimitedInformationFit | Refused:
    """Return limited-information fit statistics."""
    layer, name = layer_of(subject), "limited_information_fit"
    is_large = 2.0**layer.num_parents * layer.num_items**2 > MOST_MOMENTS
    return _asked(subject, name, limited_information_fit, is_large)


def fit_of_items(subject: Subject) -> ItemFit | Refused:
    """Return item fit."""
    return _asked(subject, "item_fit", item_fit, is_slow(subject))


def dependence(subject: Subject) -> LocalDependence | Refused:
    """Return local dependence of pairs of items."""
    return _asked(subject, "local_dependence", local_dependence, is_slow(subject))


def curves(subject: Subject) -> ItemCurves | Refused:
    """Return item curves."""
    return _asked(subject, "item_curves", item_curves, is_slow(subject))


def shares(subject: Subject) -> ProfileShares | Refused:
    """Return shares of profiles."""
    return _asked(subject, "profile_shares", profile_shares, is_slow(subject))


def rules(subject: Subject) -> ItemRules | Refused:
    """Return tests of simpler item rules."""
    return _asked(subject, "item_rules", item_rules, is_slow(subject))


def q_validation(subject: Subject) -> QValidation | Refused:
    """One round of validation, without fitting again."""
    if layer_of(subject).num_parents > MOST_GRAPHED:
        return Refused(say("attributes.slow", name="validate_q"))
    one_round = functools.partial(validate_q, max_rounds=1)
    return _asked(subject, "validate_q", one_round, is_slow(subject))


def undetermined(subject: Subject) -> list[str]:
    """Attributes whose share of the population the answers do not determine."""
    found = subject.once(shares)
    if isinstance(found, Refused) or not np.isfinite(found.standard_errors).any():
        return []
    pairs = zip(attributes_of(subject), found.mastery_errors, strict=True)
    return [name for name, error in pairs if not error < MOST_ERROR]


def falls(subject: Subject) -> list[Reversal] | Refused:
    """Return items that fall where they should rise."""
    return tried(lambda: reversals(subject.fit))


def fall_errors(subject: Subject, fallen: list[Reversal]) -> list[float]:
    """Return standard errors of falls, of ends taken as independent; NaN where unknown."""
    found = subject.once(curves)
    if isinstance(found, Refused):
        return [math.nan] * len(fallen)
    places = zip(found.item.tolist(), found.profiles, found.standard_errors, strict=True)
    errors = {(found.items[j], frozenset(own)): float(error) for j, own, error in places}
    ends = [(fall.having, (*fall.having, fall.attribute)) for fall in fallen]
    return [
        math.hypot(*(errors.get((fall.item, frozenset(own)), math.nan) for own in profiles))
        for fall, profiles in zip(fallen, ends, strict=True)
    ]


def clear_falls(subject: Subject) -> list[str]:
    """Return right-wrong items that an attribute more clearly lowers (a tenth, 3 errors)."""
    fallen = subject.once(falls)
    if isinstance(fallen, Refused) or is_scaled(subject):
        return []
    pairs = zip(fallen, fall_errors(subject, fallen), strict=True)
    return list(
        dict.fromkeys(own.item for own, error in pairs if own.fall > max(LARGE_FALL, 3 * error))
    )


def _fallen_items(subject: Subject) -> list[str]:
    found = subject.once(falls)
    return [] if isinstance(found, Refused) else list(dict.fromkeys(own.item for own in found))


def graph(subject: Subject) -> AttributeReport | Refused:
    """Return the causal graph among the attributes."""
    size, names = layer_of(subject).num_parents, attributes_of(subject)
    if (without := without_rows(subject)) is not None:
        return without
    if structure_of_page(subject).covariates is not None:
        return Refused(say("attributes.attributes_apart"))
    if not is_free(subject):
        return Refused(say("attributes.graph_refused"))
    if not 2 <= size <= MOST_GRAPHED:
        return Refused(say("attributes.graph_limits", MOST_GRAPHED=MOST_GRAPHED))
    return of_rows(subject, lambda fit, data: report_of_table(fit, data, names=names))


@dataclass(frozen=True)
class Freed:
    """Gain of a free table of profiles in nats, and its further parameters."""

    gain: float
    more: int


def freed(subject: Subject) -> Freed | None:
    """Return the gain of a free table of profiles; None where it is not worked out."""
    structure, fit, size = structure_of_page(subject), subject.fit, layer_of(subject).num_parents
    root, params = structure.root, fit.params
    has_shape = structure.covariates is not None or root.profiles is not None
    is_large = size > MOST_FREED or is_slow(subject)
    if without_rows(subject) is not None or is_free(subject) or has_shape or is_large:
        return None
    like = next(iter(params.values()))
    profiles = binary_configurations(size, like.dtype, like.device)
    posterior = torch.as_tensor(profile_posterior(fit, subject.data).posterior).to(like)
    chances = root.distribution(params).log_prob(profiles).exp().detach()
    return Freed(table_gain(posterior, profiles, chances).gain, 2**size - 1 - root.num_free)


# -------------------------------------------------------------------- the verdict


@verdict.register
def _(structure: AttributeStructure, subject: Subject) -> Verdict:
    questions = (
        _on_model,
        on_convergence,
        _on_identifiability,
        _on_fit,
        _on_items,
        _on_q,
        _on_distribution,
        _on_classification,
        _on_graph,
    )
    nothing = say("attributes.no_doubt_step")
    return verdict_of((ask(subject) for ask in questions), nothing=nothing)


def _on_model(subject: Subject) -> Finding:
    names, kinds = attributes_of(subject), dict.fromkeys(structure_of_page(subject).rule_names())
    several = [rule for rule in kinds if rule != "one attribute"]
    return finding(
        "attributes.model.text",
        rows=counted(subject.fit.num_rows, "row"),
        items=counted(layer_of(subject).num_items, "item"),
        attributes=counted(len(names), "attribute"),
        names=listed(names),
        shown=f"; items that require several attributes are {' or '.join(several)}"
        if several
        else "",
        missing="" if subject.data is None else _missing(subject),
    )


def _missing(subject: Subject) -> str:
    answers = checked_as_fitted(subject.fit, subject.data)[0][:, : layer_of(subject).num_items]
    gone = int(answers.isnan().sum())
    return say("attributes.missing", gone=gone, all=answers.numel()) if gone else ""


def _on_identifiability(subject: Subject) -> Finding:
    record = record_of(subject)
    said, alike = record.get("verdict"), record.get("alike")
    if said not in entry("conditions"):
        return finding("attributes.identifiability.unknown")
    mark, words, theory = entry("conditions")[said]
    if said in ("strict", "generic"):
        sure = finding("attributes.identifiability.verdict", mark=mark, words=words)
        return beside_rows(subject, sure, theory)
    more = say("attributes.confounded_profiles") if alike else ""
    more = f"{more} {' '.join(record.get('reasons', ())[:2])}".rstrip()
    mark = "bad" if alike else mark
    unsure = finding("attributes.identifiability.all", mark=mark, words=words + more)
    return beside_rows(subject, unsure, theory + more)


def _is_well(found: LimitedInformationFit, most: float) -> bool:
    return found.rmsea2 < most and found.srmsr < GOOD_SRMSR


def _on_fit(subject: Subject) -> Finding:
    found, pairs = subject.once(absolute), subject.once(dependence)
    more = "" if isinstance(pairs, Refused) else f" {_on_pairs(pairs)}"
    if isinstance(found, Refused) or not math.isfinite(found.m2):
        if isinstance(pairs, Refused):
            step = say("attributes.write_again") if subject.data is None else ""
            return finding("attributes.fit.unknown", step=step)
        step = say("attributes.look_pairs") if pairs.dependent else ""
        mark = "care" if pairs.dependent else "good"
        return finding("attributes.fit.pairs", mark=mark, words=more.strip(), step=step)
    low, high = found.rmsea2_interval
    numbers = f"RMSEA2 {found.rmsea2:.3f} (90 %: {low:.3f} to {high:.3f})"
    numbers += f", SRMSR {found.srmsr:.3f}" if np.isfinite(found.srmsr) else ""
    numbers += f", M2 p = {found.p_value:.2g}"
    if _is_well(found, GOOD_RMSEA):
        kind = "found" if layer_of(subject).estimated else "good"
        return finding(f"attributes.fit.{kind}", numbers=numbers, more=more)
    mark, word = ("care", "Fairly") if _is_well(found, FAIR_RMSEA) else ("bad", "Not well")
    return finding("attributes.fit.all", mark=mark, word=word, numbers=numbers, more=more)


def _on_pairs(pairs: LocalDependence) -> str:
    if not pairs.dependent:
        return "No pair of items is associated beyond what the attributes explain."
    (one, other), num = pairs.dependent[0], len(pairs.dependent)
    are, size = "is" if num == 1 else "are", len(pairs.pairs)
    return say("attributes.dependent_pairs", num=num, num_2=size, are=are, one=one, other=other)


def _on_items(subject: Subject) -> Finding | None:
    found, fallen = subject.once(fit_of_items), clear_falls(subject)
    if isinstance(found, Refused) and not fallen:
        return None
    off, size = () if isinstance(found, Refused) else found.misfitting, layer_of(subject).num_items
    words = []
    if off:
        words.append(say("attributes.items_off", num=len(off), size=size, off=listed(off)))
    elif not isinstance(found, Refused):
        words.append(say("attributes.items_fine"))
    if fallen:
        words.append(say("attributes.falls", fallen=listed(fallen)))
    slight = [name for name in _fallen_items(subject) if name not in fallen]
    if slight and not is_scaled(subject):
        words.append(say("attributes.slight_falls", slight=listed(slight)))
    which = list(dict.fromkeys([*off, *fallen]))
    key = "items_step" if len(which) > size / 3 else "look_items"
    step = say(f"attributes.{key}", which=listed(which)) if which else ""
    mark = "care" if which else "good"
    return finding("attributes.items.all", mark=mark, words=" ".join(words), step=step)


def _on_q(subject: Subject) -> Finding | None:
    found = subject.once(q_validation)
    if isinstance(found, Refused):
        return None
    if layer_of(subject).estimated:
        return finding("attributes.q.found")
    changes = sorted(found.changes, key=lambda change: -change.gain)
    clear = [change.item for change in changes if change.gain > CLEAR_GAIN]
    if not clear:
        return finding("attributes.q.accepted")
    size = len(found.items)
    return finding("attributes.q.all", num=len(clear), num_2=size, clear=listed(clear))


def _on_distribution(subject: Subject) -> Finding | None:
    fit, size = subject.fit, layer_of(subject).num_parents
    if is_free(subject):
        rows = counted(fit.num_rows, "row")
        is_small = 2.0**size <= fit.num_rows / 2
        return (
            None
            if is_small
            else finding("attributes.distribution.large_table", size=2**size, rows=rows)
        )
    found = subject.once(freed)
    if found is None:
        return None
    words = say("attributes.table_gain", gain=found.gain, more=counted(found.more, "number"))
    is_worth = 2 * found.gain - found.more * math.log(fit.num_rows) > 0
    return finding(f"attributes.distribution.{'rejected' if is_worth else 'accepted'}", words=words)


def _ranging(names: Sequence[str], right: np.ndarray) -> str:
    """Range of shares of single attributes, in words."""
    least, most = percent(right.min()), percent(right.max())
    if least == most:
        return f"for {least} each"
    return f"for {least} ({names[int(np.argmin(right))]}) to {most}"


def _on_classification(subject: Subject) -> Finding | None:
    found = subject.once(classified)
    if isinstance(found, Refused):
        return None
    names, right = attributes_of(subject), found.attribute_accuracy
    words = say(
        "attributes.accuracy",
        accuracy=percent(found.accuracy),
        ranging=_ranging(names, right),
    )
    unknown = subject.once(undetermined)
    if unknown:
        words += say("attributes.unknown_attributes", unknown=listed(unknown))
    low = [name for name in _doubtful(names, found) if name not in unknown]
    doubtful = [name for name in names if name in low or name in unknown]
    if not doubtful:
        return finding("attributes.classification.reliable", words=words)
    words += f" Below four in five: {', '.join(low)}." if low else ""
    return finding("attributes.classification.all", words=words, doubtful=", ".join(doubtful))


def _doubtful(names: list[str], found: Classification) -> list[str]:
    """Attributes of which too few rows are expected to be classified rightly."""
    pairs = zip(names, found.attribute_accuracy, strict=True)
    return [name for name, share in pairs if share < LEAST_EXPECTED]


def _on_graph(subject: Subject) -> Finding | None:
    found = subject.once(graph)
    if isinstance(found, Refused):
        return None
    mark, words = "" if found.determined else "care", " ".join(verdict_in_words(found)[:3])
    return finding("attributes.graph.all", mark=mark, words=words)


# -------------------------------------------------------------------- the sections


@fitted.register
def _(structure: AttributeStructure, subject: Subject) -> Iterator[Part]:
    layer, items = structure.layers[0], items_of(subject)
    asked = "freely" if layer.graph is None else "found" if layer.estimated else "q_matrix"
    yield Paragraph(
        say(
            "attributes.model_note",
            num_parents=layer.num_parents,
            names=", ".join(attributes_of(subject)),
            asked=say(f"attributes.asked_{asked}"),
            num_items=layer.num_items,
        )
    )
    yield from fitted.dispatch(LayeredStructure)(structure, subject)
    for curve, key in (("acdm", "additive_rule"), ("rrum", "multiplicative_rule")):
        places = [group.items.tolist() for group in layer.curved if group.curve == curve]
        own = [items[j] for group in places for j in group]
        if own:
            form = say(f"attributes.{key}")
            yield Paragraph(say("attributes.item_rules", own=listed(own), form=form))


@middle.register
def _(structure: AttributeStructure, subject: Subject) -> list[Section]:
    own, causes = [], told(subject, graph, _causes, "Not looked for: {reason}.")
    if structure.covariates is not None:
        parts = [Paragraph(say("attributes.odds_ratios")), odds_ratios(subject, str)]
        own = [Section("covariates", "Who has which attribute", parts)]
    return [
        *own,
        Section("attributes", "Attributes", _prevalence(structure, subject)),
        Section("profiles", "Profiles", _profiles(structure, subject)),
        Section("graph", "What may cause what", causes),
        Section("q_matrix", "Q-matrix", _q_matrix(subject)),
        Section("items", "Items", _items(structure, subject)),
        Section("item_fit", "Fit of items and pairs", _fit_of_items(subject)),
        Section("absolute_fit", "Absolute fit", _absolute_fit(subject)),
        estimates(subject),
    ]


def _causes(subject: Subject, found: AttributeReport) -> Iterable[Part]:
    return causal_parts(found)


def _q_matrix(subject: Subject) -> Iterator[Part]:
    """The Q-matrix as a picture, and the rows that the answers speak against."""
    words = "the Q-matrix, coloured by what attributes add"
    yield picture(lambda: plot_q_matrix(subject.fit, names=subject.names), words)
    if layer_of(subject).estimated:
        yield from graph_choice(subject.fit)
        return
    yield from told(subject, q_validation, _changes, say("attributes.q_unknown"))


def _changes(subject: Subject, found: QValidation) -> Iterator[Part]:
    if not found.changes:
        yield Paragraph("The answers contradict no row of it.")
        return
    yield Paragraph(say("attributes.q_matrix_note", num=len(found.changes), num_2=len(found.items)))
    changes = sorted(found.changes, key=lambda change: -change.gain)
    columns = {
        "item": [change.item for change in changes],
        "requires": [", ".join(change.given) for change in changes],
        "suggested": [", ".join(change.suggested) for change in changes],
        "variance of its answers explained": [f"{change.pvaf_given:.2f}" for change in changes],
        "by the suggested": [f"{change.pvaf_suggested:.2f}" for change in changes],
        "fall of BIC": [f"{change.gain:+.1f}" for change in changes],
    }
    yield from cut(Table.of(columns), MOST_PAIRS)


def _share(value: float, error: float, form: str = ".3f") -> str:
    """Return a share with its standard error, where that says something."""
    return with_error(value, math.inf if error >= MOST_ERROR else error, form)


def _expected(subject: Subject, value: float, error: float) -> str:
    """Return an expected answer, or a fall of one, with its standard error."""
    if math.isnan(value):
        return "in no order"
    scaled = is_scaled(subject)
    return with_error(value, error, "") if scaled else _share(value, error)


def _prevalence(structure: AttributeStructure, subject: Subject) -> Iterator[Part]:
    """Lines of attributes: prevalence, and accuracy of classification."""
    names, known = attributes_of(subject), subject.once(shares)
    edges, open_ones = structure.layers[0].item_edges, subject.once(undetermined)
    errors = np.full(len(names), np.nan) if isinstance(known, Refused) else known.mastery_errors
    chances = structure.root.marginals(subject.fit.params).tolist()
    pairs = zip(names, chances, errors.tolist(), strict=True)
    key = "population" if structure.covariates is None else "covariates"
    columns = {
        "attribute": names,
        "items that require it": [
            "" if edges is None else str(int(edges[:, k].sum())) for k in range(len(names))
        ],
        say(f"attributes.share_{key}"): [
            _share(chance, math.inf if name in open_ones else error)
            for name, chance, error in pairs
        ],
    }
    found = subject.once(classified)
    if isinstance(found, Refused):
        yield Table.of(columns)
        yield Note(f"{found.reason[0].upper()}{found.reason[1:]}.")
        return
    doubtful = _doubtful(names, found)
    columns["expected share of rows classified correctly"] = [
        number(float(share), 3) for share in found.attribute_accuracy
    ]
    columns["consistency: agreement of two posterior draws"] = [
        number(float(share), 3) for share in found.attribute_consistency
    ]
    columns["report single rows (0.8 or more)?"] = [
        "no: not determined by the answers"
        if name in open_ones
        else "no: below .8"
        if name in doubtful
        else "yes"
        for name in names
    ]
    yield Table.of(columns)
    if np.isfinite(errors).any():
        yield Note("Standard errors in brackets.")
    if found.note:  # parameters estimated from the same rows are not allowed for
        yield Note(say("attributes.uncorrected_shares", note=found.note))
    else:
        said = 100 * (found.accuracy + found.overstated)
        accuracy = 100 * found.accuracy
        yield Note(say("attributes.corrected_shares", said=said, accuracy=accuracy))
    if open_ones:
        yield Paragraph(say("attributes.undetermined_shares", open_ones=listed(open_ones)))
    if doubtful:
        yield Paragraph(say("attributes.doubtful_note", doubtful=", ".join(doubtful)))


def _profiles(structure: AttributeStructure, subject: Subject) -> Iterator[Part]:
    """The most common profiles, and how attributes go together."""
    root, params, names = structure.root, subject.fit.params, attributes_of(subject)
    if structure.covariates is not None:
        covariates = listed(list(structure.covariates.names))
        yield Note(f"How common a profile is depends on the covariates of a row: {covariates}.")
        return
    if root.profiles is None and len(names) > MOST_LISTED:
        yield Note(f"The profiles of {len(names)} attributes are not listed.")
        return
    like, profiles = next(iter(params.values())), root.profiles
    if profiles is None:
        profiles = binary_configurations(len(names), like.dtype, like.device)
    chances = root.distribution(params).log_prob(profiles.to(like)).exp()
    order = chances.argsort(descending=True)[:MOST_PROFILES].tolist()
    known = subject.once(shares)
    errors = np.full(len(chances), math.nan)
    if not isinstance(known, Refused):
        is_open = np.isnan(known.standard_errors) & (chances.detach().cpu().numpy() > ABSENT)
        errors = np.where(is_open, MOST_ERROR, known.standard_errors)
    columns = {
        "attributes that a row has": [profile_name(names, profiles[c].tolist()) for c in order],
        "share of the population": [_share(float(chances[c]), float(errors[c])) for c in order],
    }
    yield Table.of(columns)
    bars = "the most common profiles as bars"
    yield picture(lambda: plot_profiles(subject.fit, names=subject.names), bars)
    if len(chances) > len(order):
        rest = number(float(1 - chances[order].sum()), 3)
        yield Note(say("attributes.others", shown=len(order), all=len(chances), rest=rest))
    centred = profiles.to(like) - chances @ profiles.to(like)
    covariance = (centred * chances.unsqueeze(-1)).mT @ centred
    spread = covariance.diagonal().clamp(min=0).sqrt()
    together = (covariance / torch.outer(spread, spread)).tolist()
    if len(names) > 1:
        yield Paragraph(
            "Correlations of the attributes (phi) in the population, under the fitted distribution:"
        )
        lower = [
            [name, *map(number, line[: k + 1]), *[""] * (len(names) - k - 1)]
            for k, (name, line) in enumerate(zip(names, together, strict=True))
        ]
        yield Table(("", *names), lower)


def _corners(subject: Subject) -> Tensor:
    """Profiles of rows that have none and all of the attributes, (2, K)."""
    return torch.tensor([[0.0], [1.0]]).expand(2, layer_of(subject).num_parents)


def _ends(structure: AttributeStructure, subject: Subject) -> tuple[Tensor, np.ndarray, str]:
    """Return expected answers without and with an item's attributes, (2, J), and errors."""
    fit, corners = subject.fit, _corners(subject)
    values = structure.expected_responses(fit.params, corners)
    if fit.draws is not None:
        flat = {name: value.flatten(0, 1) for name, value in fit.draws.items()}
        spread = structure.expected_responses(flat, corners).std(0).cpu().numpy()
        return values, spread, "In brackets standard deviations of the draws."
    found, errors = subject.once(curves), np.full(values.shape, np.nan)
    if isinstance(found, Refused):
        return values, errors, f"Without standard errors: {found.reason}."
    places = list(zip(found.item.tolist(), found.profiles, found.standard_errors, strict=True))
    most = {j: max(len(own) for i, own, _ in places if i == j) for j in set(found.item.tolist())}
    for j, profile, error in places:
        for end, size in ((0, 0), (1, most[j])):
            if len(profile) == size:
                errors[end, j] = np.inf if math.isnan(error) else error
    return values, errors, "Standard errors in brackets."


def _items(structure: AttributeStructure, subject: Subject) -> Iterator[Part]:
    fit, layer, items = subject.fit, structure.layers[0], items_of(subject)
    values, errors, words = _ends(structure, subject)
    edges = layer.item_edges
    if edges is None:
        edges = layer.by_item(fit.params[layer.loadings].cpu() != 0)
    names = np.array(attributes_of(subject))
    none, everything = (
        [_expected(subject, value, error) for value, error in zip(*end, strict=True)]
        for end in zip(values.tolist(), errors.tolist(), strict=True)
    )
    gains = (values[1] - values[0]).tolist()
    columns = {
        "item": items,
        "requires": [", ".join(names[edge.bool().cpu().numpy()]) for edge in edges],
        "rule": structure.rule_names(),
        "expected with none of it": none,
        "with all of it": everything,
        "difference": [_expected(subject, gain, math.nan) for gain in gains],
    }
    yield Paragraph(words if is_scaled(subject) else say("attributes.guessing_note", words=words))
    yield from cut(Table.of(columns), MOST_ITEMS)
    if layer.tabled:
        yield Paragraph(say("attributes.categories_note"))
        yield from cut(_categories(structure, subject, items), MOST_ITEMS)
    tests = subject.once(rules) if "saturated" in structure.rule_names() else None
    if isinstance(tests, ItemRules):
        yield Paragraph(f"Would simpler rules do? {tests.text()}")
    found = subject.once(curves)
    if not isinstance(found, Refused):
        errors = np.nan_to_num(found.standard_errors, nan=np.inf)  # not determined
        shares = zip(found.expected.tolist(), errors.tolist(), strict=True)
        places = zip(found.item.tolist(), found.profiles, shares, strict=True)
        two = ("one attribute", "DINA", "DINO")  # rules whose two answers stand above
        rows = [
            [items[j], together(has), _expected(subject, *share)]
            for j, has, share in places
            if structure.rule_names()[j] not in two
        ]
        head = (
            "item",
            "attributes that it requires and the row has",
            say(f"attributes.{'expected_answer' if is_scaled(subject) else 'chance_right'}"),
        )
        yield from cut(Table(head, rows), MOST_CURVES) if rows else ()
        bars = "expected answers by profile, with 95 % intervals"
        yield picture(lambda: plot_item_curves(fit, subject.data), bars)
    yield from told(subject, falls, _fallen, say("attributes.falls_unknown"))


def _fallen(subject: Subject, found: list[Reversal]) -> Iterator[Part]:
    if not found:
        yield Paragraph(say("attributes.no_falls"))
        return
    yield Paragraph(say("attributes.falling_items"))
    pairs = sorted(
        zip(found, fall_errors(subject, found), strict=True),
        key=lambda pair: -pair[0].fall / (pair[1] if pair[1] > 0 else 1.0),
    )
    columns = {
        "item": [fall.item for fall, _ in pairs],
        "attribute that is added": [fall.attribute for fall, _ in pairs],
        "beside": [together(fall.having) for fall, _ in pairs],
        "fall": [_expected(subject, fall.fall, error) for fall, error in pairs],
    }
    yield from cut(Table.of(columns), MOST_FALLS, "clearest")


def _categories(structure: AttributeStructure, subject: Subject, items: list[str]) -> Table:
    """The chance of each category for those with none and with all of the attributes."""
    found = structure.model.category_chances(subject.fit.params, _corners(subject))
    names = structure.layers[0].response.category_names(len(items))
    lines = [
        [items[j], name, *texts(ends)]
        for j, own in found.items()
        for name, ends in zip(names[j], own.mT.tolist(), strict=True)
    ]
    return Table(
        ("item", "category", "chance with none of its attributes", "with all of them"), lines
    )


def _fit_of_items(subject: Subject) -> Iterator[Part]:
    yield from told(subject, fit_of_items, _items_off, "Fit of items was not computed: {reason}.")
    words = "Local dependence was not computed: {reason}."
    yield from told(subject, dependence, _pairs_off, words)


def _items_off(subject: Subject, found: ItemFit) -> Iterator[Part]:
    yield Paragraph(found.text())
    order = np.argsort(np.nan_to_num(found.p_value, nan=1.0), kind="stable")
    shown = [j for j in order.tolist() if found.p_value[j] < LEAST_P][:MOST_PAIRS]
    if not shown:
        return
    names = attributes_of(subject)
    suspects = [
        f"{names[int(np.abs(np.nan_to_num(found.z[j])).argmax())]}"
        f" ({max(np.nan_to_num(found.z[j]), key=abs):+.1f})"
        if found.suspects[j]
        else ""
        for j in shown
    ]
    clear = int((found.p_holm < LEAST_P).sum())
    left = f"{clear} of them {'remains' if clear == 1 else 'remain'}" if clear else "none remains"
    yield Paragraph(say("attributes.significance_note", left=left))
    columns = {
        "item": [found.items[j] for j in shown],
        "X2": [f"{found.statistic[j]:.1f}" for j in shown],
        "degrees of freedom": [f"{found.degrees[j]:.1f}" for j in shown],
        "p": [f"{found.p_value[j]:.2g}" for j in shown],
        "p, all items (Holm)": [f"{found.p_holm[j]:.2g}" for j in shown],
        "attribute with the largest departure (z)": suspects,
    }
    yield Table.of(columns)


def _pairs_off(subject: Subject, found: LocalDependence) -> Iterator[Part]:
    yield Paragraph(found.text())
    if not found.dependent:
        return
    strongest = np.argsort(-np.nan_to_num(np.abs(found.z)), kind="stable")[:MOST_PAIRS].tolist()
    lines = [
        [
            *(found.items[j] for j in found.pairs[c]),
            f"{found.residual_correlation[c]:+.3f}",
            f"{found.z[c]:+.1f}",
            f"{found.p_holm[c]:.2g}",
        ]
        for c in strongest
        if found.p_holm[c] < LEAST_P
    ]
    yield Table(("item", "item", "residual correlation", "z", "p, all pairs (Holm)"), lines)


def _absolute_fit(subject: Subject) -> Iterable[Part]:
    if subject.data is None:
        return [NEEDS_DATA]
    return told(subject, absolute, _statistics, "M2 was not computed: {reason}.")


def _statistics(subject: Subject, found: LimitedInformationFit) -> Iterator[Part]:
    """M2 and its relatives in words, where they can be had."""
    if not math.isfinite(found.m2):
        yield Note("M2 is not a number.")
        return
    low, high = found.rmsea2_interval
    degrees = f"{found.degrees} degrees of freedom, p = {found.p_value:.3g}"
    rows = [
        ["M2", number(found.m2), degrees],
        ["RMSEA2", number(found.rmsea2, 4), f"from {low:.4f} to {high:.4f} (90 %)"],
        ["SRMSR", number(found.srmsr, 4), "root mean square residual correlation of items"],
    ]
    yield Table(("statistic", "value", ""), rows)
    yield Paragraph(say(f"attributes.{'good' if _is_well(found, GOOD_RMSEA) else 'poor'}_fit"))
