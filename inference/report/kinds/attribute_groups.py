"""Attributes in several groups: differences, items, classification."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator

import numpy as np

from inference.base.structure import Structure
from inference.inspection.classification import Classification, classify_rows
from inference.plots.attributes import plot_group_mastery, plot_item_scores
from inference.programs.data import checked
from inference.report.page import number, picture, texts, with_error
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
    cut,
    estimates,
    fitted,
    middle,
    of_rows,
    predictive,
    told,
    tried,
    without_rows,
)
from inference.report.verdicts import on_convergence, on_determination, verdict
from inference.report.words import finding, percent, say, verdict_of
from inference.selection.attribute_groups import (
    DifferentialItems,
    GroupComparison,
    ItemScores,
    compare_groups,
    differential_items,
    groups_of_fit,
    item_scores,
)
from inference.structures.attribute_groups import AttributeGroupsStructure
from ppl_models.parts.repr import counted, listed, profile_name
from ppl_models.parts.responses import Bernoulli

MOST_FREED = 3  # items that are fitted apart, to say by how much they differ
MOST_PROFILES, MOST_ITEMS = 16, 80
LEAST_ACCURACY = 0.8


def compared(subject: Subject) -> GroupComparison | Refused:
    """Return the comparison of the groups."""
    return of_rows(subject, compare_groups)


def scored(subject: Subject) -> ItemScores | Refused:
    """Return score tests of the items."""
    return of_rows(subject, item_scores)


def apart(subject: Subject) -> DifferentialItems | Refused:
    """Fit the clearest items with a version for each group."""
    found = subject.once(scored)
    if isinstance(found, Refused) or not found.different:
        return Refused("no item functions differently")
    labels = _labels(subject)
    items = [labels.index(name) for name in found.different[:MOST_FREED]]
    return tried(lambda: differential_items(subject.fit, subject.data, items))


def classified(subject: Subject) -> list[Classification] | Refused:
    """Rows of each group under its own distribution."""
    fit, structure = subject.fit, _structure(subject)
    if subject.data is None:
        return Refused("it needs the data")
    data = checked(structure.model, subject.data)[0]

    def of_group(g: int) -> Classification:
        model, params = structure.of_group(fit.params, g)
        own = dataclasses.replace(fit, model=model, params=params, item_names=())
        return classify_rows(own, data[data[:, -1] == g][:, :-1], num_replicates=0)

    return tried(lambda: list(map(of_group, range(len(structure.model.groups)))))


def _structure(subject: Subject) -> AttributeGroupsStructure:
    return groups_of_fit(subject.fit, "page")


def _names(subject: Subject) -> list[str]:
    given = (subject.names or {}).get("attribute")
    return list(map(str, given or _structure(subject).model.entry_names["attribute"]))


def _labels(subject: Subject) -> list[str]:
    model = _structure(subject).model
    return list(model.model.item_names or map(str, range(model.num_items)))


# -------------------------------------------------------------------- the verdict


@verdict.register
def _(structure: AttributeGroupsStructure, subject: Subject) -> Verdict:
    questions = (
        _on_model,
        on_convergence,
        on_determination,
        _on_groups,
        _on_items,
        _on_classification,
    )
    step = say("attribute_groups.fit_step")
    return verdict_of((ask(subject) for ask in questions), step)


def _on_model(subject: Subject) -> Finding:
    model, names, labels = _structure(subject).model, _names(subject), _labels(subject)
    groups = list(model.groups)
    if without_rows(subject) is None:
        numbers = checked(model, subject.data)[0][:, -1]
        sizes = [counted(int((numbers == g).sum()), "row") for g in range(len(groups))]
        groups = [f"{label} ({size})" for label, size in zip(groups, sizes, strict=True)]
    free, has = [labels[j] for j in model.free_items], "has" if len(model.free_items) == 1 else ""
    return finding(
        "attribute_groups.model.all",
        num=len(groups),
        groups=", ".join(groups),
        items=model.num_items,
        attributes=len(names),
        names=listed(names),
        free=say("attribute_groups.free", items=listed(free), has=has or "have") if free else "",
    )


def _on_groups(subject: Subject) -> Finding:
    found = subject.once(compared)
    if isinstance(found, Refused):
        return finding("attribute_groups.groups.unknown", reason=found.reason)
    worth = say(f"attribute_groups.bic_{'own' if found.bic_gain > 0 else 'one'}")
    return finding("attribute_groups.groups.all", found=found.text(), worth=worth)


def _on_items(subject: Subject) -> Finding:
    found = subject.once(scored)
    if isinstance(found, Refused):
        return finding("attribute_groups.items.unknown", reason=found.reason)
    names, kind = found.different, "all" if found.different else "fine"
    values = {"different": listed(names), "first": names[0]} if names else {}
    return finding(f"attribute_groups.items.{kind}", words=found.text(), **values)


def _on_classification(subject: Subject) -> Finding | None:
    found = subject.once(classified)
    if isinstance(found, Refused):
        return None
    names = _names(subject)
    groups = list(zip(_structure(subject).model.groups, found, strict=True))
    doubtful = [
        f"{names[k]} in {label}"
        for label, own in groups
        for k in np.flatnonzero(own.attribute_accuracy < LEAST_ACCURACY)
    ]
    words = "; ".join(f"{label}: {percent(own.accuracy)}" for label, own in groups)
    kind = "doubtful" if doubtful else "fine"
    values = {"words": words, "doubtful": listed(doubtful)}
    return finding(f"attribute_groups.classification.{kind}", **values)


# -------------------------------------------------------------------- the sections


@fitted.register
def _(structure: AttributeGroupsStructure, subject: Subject) -> list[Part]:
    lines = (
        "α | g ~ P_{g}, a distribution for each group g",
        "x_{j} | α ~ F_{j}(η_{j}(α)), the same for all groups; F_{jg}(η_{jg}(α)) for free items",
    )
    return [Paragraph(say("attribute_groups.group_model")), Equations(lines)]


@middle.register
def _(structure: AttributeGroupsStructure, subject: Subject) -> list[Section]:
    surely = told(subject, classified, _classification)
    return [
        Section("groups", "Attributes by group", told(subject, compared, _groups)),
        Section("profiles", "Profiles by group", told(subject, compared, _profiles)),
        Section(
            "differential", "Items that function differently", told(subject, scored, _differential)
        ),
        Section("items", "Items", _items(structure, subject)),
        Section("classification", "How surely rows are classified", surely),
        estimates(subject),
    ]


@predictive.register
def _(structure: AttributeGroupsStructure, subject: Subject) -> Iterator[Part]:
    yield from predictive.dispatch(Structure)(structure, subject)
    yield Note(say("attribute_groups.pooled"))


def _groups(subject: Subject, found: GroupComparison) -> Iterator[Part]:
    errors = np.where(np.isfinite(found.errors), found.errors, math.inf)
    columns = [
        [with_error(*pair) for pair in zip(mastery, own, strict=True)]
        for mastery, own in zip(found.mastery, errors, strict=True)
    ]
    head = ("attribute", *found.groups, "p of no difference, all attributes (Holm)")
    yield Table.of(head, _names(subject), *columns, texts(found.p_adjusted, ".2g"))
    yield Note("Shares of each group that have the attribute; standard errors in brackets.")
    yield picture(lambda: plot_group_mastery(found), "shares that have each attribute, by group")


def _profiles(subject: Subject, found: GroupComparison) -> Iterator[Part]:
    names, shares = _names(subject), found.shares
    order = np.argsort(-shares.max(0), kind="stable")[:MOST_PROFILES]
    profiles = [profile_name(names, found.profiles[c]) for c in order]
    head = ("attributes that a row has", *found.groups)
    yield Table.of(head, profiles, *map(texts, shares[:, order]))
    if len(order) < shares.shape[1]:
        yield Note(f"The {len(order)} most common of {shares.shape[1]:,} profiles.")


def _differential(subject: Subject, found: ItemScores) -> Iterator[Part]:
    yield Paragraph(found.text())
    order = np.argsort(np.nan_to_num(found.p_value, nan=1.0), kind="stable")[:MOST_PROFILES]
    columns = {
        "item": [found.items[i] for i in order],
        "score statistic": [number(float(found.statistic[i]), 1) for i in order],
        "degrees of freedom": [f"{found.degrees[i]:.0f}" for i in order],
        "p": texts(found.p_value[order], ".2g"),
        "p, all items (Holm)": texts(found.p_adjusted[order], ".2g"),
    }
    yield Table.of(columns)
    yield picture(lambda: plot_item_scores(found), "evidence that items function differently")
    tests = subject.once(apart)
    if isinstance(tests, Refused):
        return
    yield Paragraph(say("attribute_groups.effects_note"))
    columns = {
        "item": list(tests.items),
        "p (likelihood ratio)": texts(tests.p_value, ".2g"),
        "p, equally for all profiles": texts(tests.uniform_p, ".2g"),
        "p, in what attributes do": texts(tests.non_uniform_p, ".2g"),
        "effect": [f"{effect:.3f}" for effect in tests.effect],
        "lowest for": list(tests.lowest),
    }
    yield Table.of(columns)


def _items(structure: AttributeGroupsStructure, subject: Subject) -> Iterator[Part]:
    model, layer, names = structure.model, structure.model.layer(), np.array(_names(subject))
    like = next(iter(subject.fit.params.values()))
    corners = like.new_tensor([[0.0], [1.0]]).expand(2, layer.num_parents)
    none, everything = model.expected_responses(subject.fit.params, corners)
    asked = [np.asarray(model.model.q_matrix[j], dtype=bool) for j, _ in model.versions]
    columns = {
        "item (group)": model.entry_names["item"],
        "requires": [", ".join(names[own]) for own in asked],
        "expected with none of it": [f"{value:.3f}" for value in none.tolist()],
        "with all of it": [f"{value:.3f}" for value in everything.tolist()],
    }
    blocks = layer.response.blocks(layer.num_children)
    if all(isinstance(family, Bernoulli) for family, _, _ in blocks):
        yield Paragraph(say("attributes.guessing_note", words="").strip())
    yield from cut(Table.of(columns), MOST_ITEMS)


def _classification(subject: Subject, found: list[Classification]) -> Iterable[Part]:
    head = ("attribute", *_structure(subject).model.groups)
    columns = [texts([*own.attribute_accuracy, own.accuracy]) for own in found]
    table = Table.of(head, [*_names(subject), "whole profile"], *columns)
    return [table, Note(say("attribute_groups.accuracy_note"))]
