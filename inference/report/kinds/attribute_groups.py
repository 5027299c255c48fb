"""Attributes in several groups: differences, items, classification."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from inference.inspection.classification import Classification, classify_rows
from inference.plots.attribute_groups import plot_group_mastery, plot_item_scores
from inference.programs.data import checked
from inference.report.attribute_findings import Refused, tried, without_rows
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
from inference.report.sections import Subject, cut_table, estimates, fitted, middle
from inference.report.verdicts import on_convergence, on_determination, verdict
from inference.report.words import finding, listed, say, verdict_of
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
from ppl_models.parts.repr import counted
from ppl_models.parts.responses import Bernoulli

MOST_FREED = 3  # items that are fitted apart, to say by how much they differ
MOST_PROFILES, MOST_ITEMS = 16, 80
LEAST_ACCURACY = 0.8


def compared(subject: Subject) -> GroupComparison | Refused:
    """Return the comparison of the groups."""
    without = without_rows(subject)
    return tried(lambda: compare_groups(subject.fit, subject.data)) if without is None else without


def scored(subject: Subject) -> ItemScores | Refused:
    """Return score tests of the items."""
    without = without_rows(subject)
    return tried(lambda: item_scores(subject.fit, subject.data)) if without is None else without


def apart(subject: Subject) -> DifferentialItems | Refused:
    """Fit the clearest items with a version for each group."""
    found = subject.once(scored)
    if isinstance(found, Refused) or not found.different:
        return Refused("no item functions differently")
    model = groups_of_fit(subject.fit, "apart").model
    labels = model.model.item_names or tuple(str(j) for j in range(model.num_items))
    return tried(
        lambda: differential_items(
            subject.fit, subject.data, [labels.index(name) for name in found.different[:MOST_FREED]]
        )
    )


def classified(subject: Subject) -> list[Classification] | Refused:
    """Rows of each group under its own distribution."""
    if subject.data is None:
        return Refused("it needs the data")
    structure = groups_of_fit(subject.fit, "classified")
    data = checked(structure.model, subject.data)[0]

    def ask() -> list[Classification]:
        out = []
        for g in range(len(structure.model.groups)):
            model, params = structure.of_group(subject.fit.params, g)
            rows = data[data[:, -1] == g][:, :-1]
            out.append(
                classify_rows(
                    dataclasses.replace(subject.fit, model=model, params=params, item_names=()),
                    rows,
                    num_replicates=0,
                )
            )
        return out

    return tried(ask)


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


def _on_model(subject: Subject) -> Finding | None:
    model = groups_of_fit(subject.fit, "verdict").model
    names = _names(subject)
    sizes = _sizes(subject)
    groups = (
        ", ".join(
            f"{label} ({counted(size, 'row')})"
            for label, size in zip(model.groups, sizes, strict=True)
        )
        if sizes
        else ", ".join(model.groups)
    )
    labels = _labels(subject)
    free = (
        f"; {listed([labels[j] for j in model.free_items])}"
        f" {'has' if len(model.free_items) == 1 else 'have'} parameters of their own in each group"
        if model.free_items
        else ""
    )
    words = (
        f"{len(model.groups)} groups, {groups}, answered {model.num_items} items that require"
        f" {len(names)} attributes ({listed(names)}). Items have the same parameters in every"
        f" group{free}."
    )
    return finding("attribute_groups.model.all", words=words)


def _on_groups(subject: Subject) -> Finding | None:
    found = subject.once(compared)
    if isinstance(found, Refused):
        return finding("attribute_groups.groups.unknown", reason=found.reason)
    worth = (
        "BIC prefers a distribution for each group."
        if found.bic_gain > 0
        else "BIC prefers one distribution for all groups."
    )
    return finding("attribute_groups.groups.all", found=found.text(), worth=worth)


def _on_items(subject: Subject) -> Finding | None:
    found = subject.once(scored)
    if isinstance(found, Refused):
        return finding("attribute_groups.items.unknown", reason=found.reason)
    if not found.different:
        return finding("attribute_groups.items.fine", words=found.text())
    first = found.different[0]
    step = say("attribute_groups.items_step", different=listed(found.different), first=first)
    return finding("attribute_groups.items.all", words=found.text(), step=step)


def _on_classification(subject: Subject) -> Finding | None:
    found = subject.once(classified)
    if isinstance(found, Refused):
        return None
    model, names = groups_of_fit(subject.fit, "verdict").model, _names(subject)
    words = "; ".join(
        f"{label}: {100 * own.accuracy:.0f} %"
        for label, own in zip(model.groups, found, strict=True)
    )
    doubtful = [
        f"{names[k]} in {label}"
        for label, own in zip(model.groups, found, strict=True)
        for k in np.flatnonzero(own.attribute_accuracy < LEAST_ACCURACY)
    ]
    text = f"Rows whose whole profile is expected to be classified correctly, {words}."
    if not doubtful:
        return finding("attribute_groups.classification.fine", text=text)
    return finding("attribute_groups.classification.doubtful", text=text, doubtful=listed(doubtful))


def _names(subject: Subject) -> list[str]:
    given = (subject.names or {}).get("attribute")
    model = groups_of_fit(subject.fit, "names").model
    return [str(name) for name in given or model.entry_names["attribute"]]


def _labels(subject: Subject) -> list[str]:
    model = groups_of_fit(subject.fit, "labels").model
    return list(model.model.item_names or [str(j) for j in range(model.num_items)])


def _sizes(subject: Subject) -> list[int]:
    if without_rows(subject) is not None:
        return []
    model = groups_of_fit(subject.fit, "sizes").model
    number = checked(model, subject.data)[0][:, -1]
    return [int((number == g).sum()) for g in range(len(model.groups))]


@fitted.register
def _(structure: AttributeGroupsStructure, subject: Subject) -> list[Part]:
    words = say("attribute_groups.group_model")
    lines = (
        "α | g ~ P_{g}, a distribution for each group g",
        "x_{j} | α ~ F_{j}(η_{j}(α)), the same for all groups; F_{jg}(η_{jg}(α)) for free items",
    )
    return [Paragraph(words), Equations(lines)]


@middle.register
def _(structure: AttributeGroupsStructure, subject: Subject) -> list[Section]:
    return [
        Section("groups", "Attributes by group", _groups(subject)),
        Section("profiles", "Profiles by group", _profiles(subject)),
        Section("differential", "Items that function differently", _differential(subject)),
        Section("items", "Items", _items(structure, subject)),
        Section("classification", "How surely rows are classified", _classification(subject)),
        estimates(subject),
    ]


def _groups(subject: Subject) -> Iterator[Part]:
    found = subject.once(compared)
    if isinstance(found, Refused):
        yield Note(f"Not worked out: {found.reason}.")
        return
    rows = [
        [
            name,
            *(
                _with_error(found.mastery[g, k], found.errors[g, k])
                for g in range(len(found.groups))
            ),
            _chance(found.p_adjusted[k]),
        ]
        for k, name in enumerate(_names(subject))
    ]
    yield Table(("attribute", *found.groups, "p of no difference, all attributes (Holm)"), rows)
    yield Note("Shares of each group that have the attribute; standard errors in brackets.")
    yield picture(lambda: plot_group_mastery(found), "shares that have each attribute, by group")


def _profiles(subject: Subject) -> Iterator[Part]:
    found = subject.once(compared)
    if isinstance(found, Refused):
        yield Note(f"Not worked out: {found.reason}.")
        return
    names = _names(subject)
    order = np.argsort(-found.shares.max(0), kind="stable")[:MOST_PROFILES]
    rows = []
    for c in order:
        has = [name for name, bit in zip(names, found.profiles[c], strict=True) if bit]
        rows.append(
            [
                "none" if not has else "all" if len(has) == len(names) else ", ".join(has),
                *(f"{share:.3f}" for share in found.shares[:, c]),
            ]
        )
    yield Table(("attributes that a row has", *found.groups), rows)
    if len(order) < found.shares.shape[1]:
        yield Note(f"The {len(order)} most common of {found.shares.shape[1]:,} profiles.")


def _differential(subject: Subject) -> Iterator[Part]:
    found = subject.once(scored)
    if isinstance(found, Refused):
        yield Note(f"Not worked out: {found.reason}.")
        return
    yield Paragraph(found.text())
    order = np.argsort(np.nan_to_num(found.p_value, nan=1.0), kind="stable")
    lines = [
        [
            found.items[i],
            number(float(found.statistic[i]), 1),
            f"{found.degrees[i]:.0f}",
            _chance(found.p_value[i]),
            _chance(found.p_adjusted[i]),
        ]
        for i in order[:MOST_PROFILES]
    ]
    yield Table(
        ("item", "score statistic", "degrees of freedom", "p", "p, all items (Holm)"), lines
    )
    yield picture(lambda: plot_item_scores(found), "evidence that items function differently")
    tests = subject.once(apart)
    if isinstance(tests, Refused):
        return
    yield Paragraph(say("attribute_groups.effects_note"))
    lines = [
        [
            name,
            _chance(tests.p_value[i]),
            _chance(tests.uniform_p[i]),
            _chance(tests.non_uniform_p[i]),
            f"{tests.effect[i]:.3f}",
        ]
        for i, name in enumerate(tests.items)
    ]
    yield Table(
        (
            "item",
            "p (likelihood ratio)",
            "p, equally for all profiles",
            "p, in what attributes do",
            "effect",
        ),
        lines,
    )


def _items(structure: AttributeGroupsStructure, subject: Subject) -> Iterator[Part]:
    model, layer, names = structure.model, structure.model.layer(), _names(subject)
    corners = (
        next(iter(subject.fit.params.values()))
        .new_tensor([[0.0], [1.0]])
        .expand(2, layer.num_parents)
    )
    none, everything = model.expected_responses(subject.fit.params, corners)
    labels = model.entry_names["item"]
    rows = []
    for v, (j, _) in enumerate(model.versions):
        asked = ", ".join(
            name for name, bit in zip(names, model.model.q_matrix[j], strict=True) if bit
        )
        rows.append([labels[v], asked, f"{float(none[v]):.3f}", f"{float(everything[v]):.3f}"])
    if all(
        isinstance(family, Bernoulli) for family, _, _ in layer.response.blocks(layer.num_children)
    ):
        yield Paragraph(say("attribute_groups.guessing_note"))
    yield from cut_table(
        ("item (group)", "requires", "expected with none of it", "with all of it"), rows, MOST_ITEMS
    )


def _classification(subject: Subject) -> Iterator[Part]:
    found = subject.once(classified)
    if isinstance(found, Refused):
        yield Note(f"Not worked out: {found.reason}.")
        return
    groups = groups_of_fit(subject.fit, "page").model.groups
    rows = [
        [name, *(f"{own.attribute_accuracy[k]:.3f}" for own in found)]
        for k, name in enumerate(_names(subject))
    ]
    yield Table(
        ("attribute", *groups),
        [*rows, ["whole profile", *(f"{own.accuracy:.3f}" for own in found)]],
    )
    yield Note(say("attribute_groups.accuracy_note"))


def _with_error(value: float, error: float) -> str:
    return f"{value:.3f} ({error:.3f})" if np.isfinite(error) else f"{value:.3f} (not determined)"


def _chance(p_value: float) -> str:
    return f"{p_value:.2g}" if np.isfinite(p_value) else ""
