"""Background knowledge of a causal graph: required and forbidden edges, and tiers.

A class of DAGs, some of whose members agree with the knowledge, is drawn as its maximally oriented
graph (MPDAG): an arrow where all those members agree, else a line. Meek's four rules find it from
the CPDAG and what is known (Meek 1995, UAI 11, theorem 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference.causal.pdags import (
    Pdag,
    class_of,
    extension_of,
    mask_of,
    meek_closure,
    members,
    order_of,
    parents_reversed,
)
from ppl_models.descriptions.attribute_distribution import Pair, cycle_of, pairs_of, place_of
from ppl_models.parts.validation import is_integer, plain_fields

OWNER = "BackgroundKnowledge"


@dataclass(frozen=True)
class BackgroundKnowledge:
    """Edges that a causal graph must have, edges that it must lack, and an order in time.

    Args:
        required: arrows (cause, effect) of every graph. Attributes by name, or number from 0.
        forbidden: arrows (cause, effect) of no graph; an edge the other way is not excluded.
        tiers: groups of attributes, the earliest first: no arrow leads from a later group to an
            earlier one. Attributes in no group are free.

    Raises:
        ValueError: for what are no pairs or groups, an attribute in two tiers, an edge that is both
            required and forbidden, or required against the tiers, a cycle of required edges; and
            where it is used, for an attribute that is not there.

    Source: C. Meek (1995), Causal inference and causal explanation with background knowledge, UAI
    11, arXiv:1302.4972.
    """

    required: tuple[Pair, ...] = ()
    forbidden: tuple[Pair, ...] = ()
    tiers: tuple[tuple[Any, ...], ...] = ()

    def __post_init__(self) -> None:
        plain_fields(self)
        for name in ("required", "forbidden"):
            object.__setattr__(self, name, pairs_of(OWNER, name, getattr(self, name)))
        object.__setattr__(self, "tiers", _groups(self.tiers))
        if both := set(self.required) & set(self.forbidden):
            a, b = min(both, key=str)
            raise ValueError(f"{OWNER}: {a} -> {b} is both required and forbidden")

    def on(self, owner: str, names: Sequence[str]) -> Constraints:
        """Sets of required and excluded parents among named attributes.

        Args:
            owner: whose argument this is, for messages.
            names: of the attributes, in order.

        Raises:
            ValueError: for an attribute that is not among them; for edges that contradict each
                other, whether called by name or by number.
        """
        size = len(names)

        def place(member: Any) -> int:
            return place_of(f"{owner}: {OWNER}", member, size, names)

        def shown(i: int, j: int) -> str:
            return f"{names[i]} -> {names[j]}"

        required, excluded = [0] * size, [0] * size
        tier: dict[int, int] = {}
        for level, group in enumerate(self.tiers):
            for k in map(place, group):
                if k in tier:
                    raise ValueError(
                        f"{owner}: {names[k]} is in tiers {tier[k] + 1} and {level + 1} of the"
                        " background knowledge; it cannot come before itself"
                    )
                tier[k] = level
        for i, first in tier.items():
            excluded[i] |= mask_of(j for j, second in tier.items() if second > first)
        for a, b in self.required:
            i, j = place(a), place(b)
            if excluded[j] >> i & 1:
                raise ValueError(
                    f"{owner}: {shown(i, j)} is required, and the tiers put {names[j]} before"
                    f" {names[i]}"
                )
            required[j] |= 1 << i
        for a, b in self.forbidden:
            i, j = place(a), place(b)
            if required[j] >> i & 1:
                raise ValueError(f"{owner}: {shown(i, j)} is both required and forbidden")
            excluded[j] |= 1 << i
        order = order_of(required)
        if order is None:
            cycle = cycle_of((i, j) for j, mask in enumerate(required) for i in members(mask))
            raise ValueError(
                f"{owner}: required edges run in a cycle, {' -> '.join(names[k] for k in cycle)}"
            )
        above = [0] * size  # ancestors by required edges: an edge back to them would close a cycle
        for j in order:
            for i in members(required[j]):
                above[j] |= above[i] | 1 << i
            for i in members(above[j]):
                excluded[i] |= 1 << j
        for j, mask in enumerate(required):
            if against := members(mask & excluded[j]):
                raise ValueError(
                    f"{owner}: {shown(against[0], j)} is required, and the rest of the background"
                    " knowledge excludes it"
                )
        return Constraints(tuple(required), tuple(excluded))


def _groups(tiers: Any) -> tuple[tuple[Any, ...], ...]:
    """Tiers as tuples of names or numbers."""
    wanted = f"{OWNER}: tiers must be groups of attributes, by number from 0 or by name"
    if isinstance(tiers, str) or not isinstance(tiers, Sequence):
        raise ValueError(f"{wanted}, got {tiers!r}")
    seen: dict[Any, int] = {}
    for level, group in enumerate(tiers):
        if isinstance(group, str) or not isinstance(group, Sequence):
            raise ValueError(f"{wanted}, got {group!r} among them")
        for member in group:
            if not (isinstance(member, str) or is_integer(member, least=0)):
                raise ValueError(f"{wanted}, got {member!r} in {group!r}")
            if member in seen:
                raise ValueError(
                    f"{OWNER}: {member!r} is in tiers {seen[member] + 1} and {level + 1}; it cannot"
                    " come before itself"
                )
            seen[member] = level
    return tuple(tuple(group) for group in tiers)


@dataclass(frozen=True)
class Constraints:
    """Background knowledge on numbered attributes.

    Args:
        required: for each attribute the set of parents that it has in every graph.
        excluded: for each attribute the set of those that are its parent in none.
    """

    required: tuple[int, ...]
    excluded: tuple[int, ...]

    @classmethod
    def none(cls, num_attributes: int) -> Constraints:
        """No knowledge of so many attributes."""
        return cls((0,) * num_attributes, (0,) * num_attributes)

    def __bool__(self) -> bool:
        return any(self.required) or any(self.excluded)

    def allow(self, parents: Sequence[int]) -> bool:
        """Agreement of a DAG, given by the parents of each attribute."""
        return all(
            not (need & ~own or own & out)
            for own, need, out in zip(parents, self.required, self.excluded, strict=True)
        )

    def parent_sets(self, attribute: int, masks: np.ndarray) -> np.ndarray:
        """Agreement of each of several sets of parents of one attribute, bool."""
        need, out = self.required[attribute], self.excluded[attribute]
        agree: np.ndarray = (masks & need == need) & (masks & out == 0)
        return agree

    def pointed(self, graph: Pdag) -> Pdag | None:
        """Graph whose lines of known direction are arrows; None where an edge is against it."""
        adjacent, parents = graph.adjacent, list(graph.parents)
        reverse = parents_reversed(self.excluded)  # i -> j is excluded for each of these j
        for j, around in enumerate(graph.neighbours):
            if self.required[j] & ~adjacent[j] or parents[j] & self.excluded[j]:
                return None
            if around & self.excluded[j] & reverse[j]:
                return None
            parents[j] |= around & (self.required[j] | reverse[j])
        children = parents_reversed(parents)
        lines = tuple(
            own & ~p & ~c for own, p, c in zip(graph.neighbours, parents, children, strict=True)
        )
        return Pdag(tuple(parents), lines)

    def restrict(self, graph: Pdag) -> Pdag | None:
        """MPDAG of a CPDAG: what its members that agree have in common; None where none agrees.

        A DAG with the arrows that are known and no v-structure but those drawn is looked for (Dor
        and Tarsi 1992); it is a member where it has the same class.
        """
        if not self:
            return graph
        pointed = self.pointed(graph)
        parents = None if pointed is None else extension_of(pointed)
        if pointed is None or parents is None or class_of(parents) != graph:
            return None
        return meek_closure(pointed)

    def graph_of(self, parents: Sequence[int]) -> Pdag:
        """MPDAG of the class of a DAG that agrees."""
        found = self.restrict(class_of(parents))
        if found is None:
            raise RuntimeError("a DAG within the background knowledge has a class outside it")
        return found


def constraints_of(owner: str, knowledge: Any, names: Sequence[str]) -> Constraints:
    """Constraints of an argument ``knowledge``; none for None, a ValueError for another object."""
    if knowledge is None:
        return Constraints.none(len(names))
    if not isinstance(knowledge, BackgroundKnowledge):
        raise ValueError(
            f"{owner}: knowledge must be BackgroundKnowledge(...) or None, got {knowledge!r}"
        )
    return knowledge.on(owner, names)
