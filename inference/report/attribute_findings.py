"""Findings that several sections of an attribute model's page share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from inference.causal.of_fit import AttributeReport, discover_attributes, profile_posterior
from inference.fitting.names import labels_of
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
from inference.report.sections import NEEDS_ALL, Subject
from inference.report.words import say
from inference.structures.layers.attributes import AttributeStructure
from inference.structures.layers.free_table import table_gain
from ppl_models.parts.distributions import binary_configurations

MOST_ERROR = 0.5  # of a share: no number between 0 and 1 has a larger standard deviation
LARGE_FALL = 0.1  # of a chance
MOST_GRAPHED = 8  # attributes among which a graph is looked for on a page
MOST_FREED = 10  # whose free table is tried
MOST_CELLS = (
    2**27
)  # rows times profiles times items, beyond which fit of items is left to a call of its own
T = TypeVar("T")


@dataclass(frozen=True)
class Refused:
    """Why something was not worked out."""

    reason: str


def without_rows(subject: Subject) -> Refused | None:
    """Why what needs all rows of the fit is not worked out; None where they are there."""
    if subject.data is None:
        return Refused("it needs the data")
    return (
        None if subject.num_sampled is None else Refused(NEEDS_ALL.replace("they need", "it needs"))
    )


def tried(ask: Callable[[], T]) -> T | Refused:
    """Return an answer, or why it was refused."""
    try:
        return ask()
    except (
        ValueError,
        RuntimeError,
    ) as reason:  # RuntimeError: an operation of the program without second derivatives
        return Refused(str(reason).rstrip("."))


def size_of_work(subject: Subject) -> float:
    """Return rows times profiles times items."""
    layer = structure_of_page(subject).layers[0]
    return float(subject.fit.num_rows) * 2.0**layer.num_parents * layer.num_items


def structure_of_page(subject: Subject) -> AttributeStructure:
    """Return the attribute structure of a page's fit."""
    structure = subject.fit.structure
    if not isinstance(structure, AttributeStructure):
        raise TypeError("an attribute model was expected")
    return structure


def classified(subject: Subject) -> Classification | Refused:
    """Return how surely rows are classified."""
    if subject.data is None:
        return Refused("how surely rows are classified needs the data")
    return tried(lambda: classify_rows(subject.fit, subject.data))


def absolute(subject: Subject) -> LimitedInformationFit | Refused:
    """Return limited-information fit statistics."""
    without = without_rows(subject)
    return (
        tried(lambda: limited_information_fit(subject.fit, subject.data))
        if without is None
        else without
    )


def _asked(subject: Subject, name: str, ask: Callable[[Any, Any], T]) -> T | Refused:
    """Answer to a question about fit and rows, where it is quick."""
    if (without := without_rows(subject)) is not None:
        return without
    if size_of_work(subject) > MOST_CELLS:
        return Refused(
            f"it would take a while; inference.inspection.{name}(fit, data) works it out"
        )
    return tried(lambda: ask(subject.fit, subject.data))


def fit_of_items(subject: Subject) -> ItemFit | Refused:
    """Return item fit."""
    return _asked(subject, "item_fit", item_fit)


def dependence(subject: Subject) -> LocalDependence | Refused:
    """Return local dependence of pairs of items."""
    return _asked(subject, "local_dependence", local_dependence)


def curves(subject: Subject) -> ItemCurves | Refused:
    """Return item curves."""
    return _asked(subject, "item_curves", item_curves)


def shares(subject: Subject) -> ProfileShares | Refused:
    """Return shares of profiles."""
    return _asked(subject, "profile_shares", profile_shares)


def undetermined(subject: Subject) -> list[str]:
    """Attributes whose share of the population the answers do not determine."""
    found = subject.once(shares)
    if isinstance(found, Refused) or not np.isfinite(found.standard_errors).any():
        return []
    return [
        name
        for name, error in zip(attributes_of(subject), found.mastery_errors, strict=True)
        if not error < MOST_ERROR
    ]


def rules(subject: Subject) -> ItemRules | Refused:
    """Return tests of simpler item rules."""
    return _asked(subject, "item_rules", item_rules)


def q_validation(subject: Subject) -> QValidation | Refused:
    """One round of validation, without fitting again."""
    if structure_of_page(subject).layers[0].num_parents > MOST_GRAPHED:
        return Refused(
            "it would take a while; inference.inspection.validate_q(fit, data) works it out"
        )
    return _asked(subject, "validate_q", lambda fit, data: validate_q(fit, data, max_rounds=1))


def clear_falls(subject: Subject) -> list[str]:
    """Return right-wrong items that an attribute more clearly lowers (a tenth, 3 errors)."""
    fallen, found = subject.once(falls), subject.once(curves)
    if isinstance(fallen, Refused) or isinstance(found, Refused) or is_scaled(subject):
        return []
    errors = {
        (found.items[j], frozenset(profile)): float(error)
        for j, profile, error in zip(
            found.item.tolist(), found.profiles, found.standard_errors, strict=True
        )
    }
    names = []
    for fall in fallen:
        ends = [
            errors.get((fall.item, frozenset(own)), math.nan)
            for own in (fall.having, (*fall.having, fall.attribute))
        ]
        if fall.fall > max(LARGE_FALL, 3 * math.hypot(*ends)):
            names.append(fall.item)
    return list(dict.fromkeys(names))


def falls(subject: Subject) -> list[Reversal] | Refused:
    """Return items that fall where they should rise."""
    return tried(lambda: reversals(subject.fit))


def is_free(subject: Subject) -> bool:
    """Return whether the table of profiles is free, its dependences those of the data."""
    structure = structure_of_page(subject)
    return (
        structure.covariates is None
        and structure.root.num_free >= 2.0 ** structure.layers[0].num_parents - 1
    )


def graph(subject: Subject) -> AttributeReport | Refused:
    """Return the causal graph among the attributes."""
    size = structure_of_page(subject).layers[0].num_parents
    if (without := without_rows(subject)) is not None:
        return without
    if structure_of_page(subject).covariates is not None:
        return Refused(
            "given its covariates, the attributes of a row are independent in this model"
        )
    if not is_free(subject):
        return Refused(say("attributes.graph_refused"))
    if not 2 <= size <= MOST_GRAPHED:
        return Refused(say("attributes.graph_limits", MOST_GRAPHED=MOST_GRAPHED))
    names = attributes_of(subject)
    return tried(
        lambda: discover_attributes(
            subject.fit,
            subject.data,
            names=None if names == [str(k) for k in range(size)] else names,
        )
    )


@dataclass(frozen=True)
class Freed:
    """Gain of a free table of profiles in nats, and its further parameters."""

    gain: float
    more: int


def freed(subject: Subject) -> Freed | None:
    """Return the gain of a free table of profiles; None where it is not worked out."""
    structure = structure_of_page(subject)
    size, root, params = structure.layers[0].num_parents, structure.root, subject.fit.params
    if (
        without_rows(subject) is not None
        or is_free(subject)
        or structure.covariates is not None
        or root.profiles is not None
        or size > MOST_FREED
        or size_of_work(subject) > MOST_CELLS
    ):
        return None
    like = next(iter(params.values()))
    profiles = binary_configurations(size, like.dtype, like.device)
    posterior = torch.as_tensor(
        profile_posterior(subject.fit, subject.data).posterior, dtype=like.dtype, device=like.device
    )
    found = table_gain(
        posterior, profiles, root.distribution(params).log_prob(profiles).exp().detach()
    )
    return Freed(found.gain, 2**size - 1 - root.num_free)


def attributes_of(subject: Subject) -> list[str]:
    """Return the names of the attributes."""
    return [
        str(name)
        for name in labels_of(
            subject.fit,
            "attribute",
            structure_of_page(subject).layers[0].num_parents,
            subject.names,
        )
    ]


def items_of(subject: Subject) -> list[str]:
    """Return the names of the items."""
    return [
        str(name)
        for name in labels_of(
            subject.fit, "item", structure_of_page(subject).layers[0].num_items, subject.names
        )
    ]


def is_scaled(subject: Subject) -> bool:
    """Return whether some items are no right-wrong ones, where a fall may be right."""
    return not all_bernoulli(structure_of_page(subject))
