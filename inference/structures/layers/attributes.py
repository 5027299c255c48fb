"""One layer of named attributes whose items have expected responses: what such a model is asked beyond its layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.layers.structure import LayeredStructure
from ppl_models.parts.item_curves import ACDM, RRUM
from ppl_models.parts.measurement import Additive, ExpDINA, ExpDINO, ExpGDM

if TYPE_CHECKING:
    from inference.base.structure import Problem
    from ppl_models.parts.measurement import Bottom

__all__ = ["AttributeStructure", "ItemRule"]

MOST_NAMED = 8
PAIR = (0, 1)
ItemRule = Literal["additive", "conjunctive", "disjunctive", "saturated"]
RULE_NAMES: dict[type, str] = {Additive: "additive", ACDM: "ACDM", RRUM: "R-RUM", ExpDINA: "DINA", ExpDINO: "DINO", ExpGDM: "saturated"}


def _rule_of(bottom: Bottom) -> ItemRule:
    """What a rule makes of two attributes."""
    subsets = bottom.subsets(PAIR)
    if bottom.curve is not None:
        return "saturated"
    if subsets is None or PAIR not in subsets:
        return "additive"
    if len(subsets) > 1:
        return "saturated"
    return "disjunctive" if bottom.disjunctive else "conjunctive"


class AttributeStructure(LayeredStructure):
    """A model that offers ``expected_responses(params, profiles)`` beside ``layers()`` and ``root_law()``."""

    @classmethod
    def of(cls, model: Callable[..., Any]) -> AttributeStructure | None:
        return cls(model) if hasattr(model, "expected_responses") and LayeredStructure.of(model) is not None else None

    def expected_responses(self, params: Params, profiles: Tensor) -> Tensor:
        """E[item | profile], (..., C, J), of profiles (C, K)."""
        expected: Tensor = self.model.expected_responses(params, profiles)
        return expected

    def item_rules(self) -> tuple[ItemRule, ...]:
        """How each item depends on its attributes, however many it asks for; items of a curve are taken as saturated."""
        bottoms = getattr(self.model, "rules", None)
        if bottoms is None:
            own: ItemRule = "saturated"
            return (own,) * self.layers[0].num_children
        return tuple(_rule_of(bottom) for bottom in bottoms)

    def rule_names(self) -> list[str]:
        """The rule of each item, as a table shows it; "one attribute" where all rules are the same."""
        layer, rules = self.layers[0], getattr(self.model, "rules", None)
        if layer.edges is None or rules is None:
            return ["additive" if layer.edges is None else "of its own"] * layer.num_children
        asked = layer.edges.sum(-1).tolist()
        return ["one attribute" if count == 1 else RULE_NAMES[type(rule)] for rule, count in zip(rules, asked, strict=True)]

    def concerns(self, problem: Problem, params: Params) -> list[str]:
        """Items that those with all of the attributes are expected to do worse on than those with none."""
        size = self.layers[0].num_parents
        none, everything = self.expected_responses(params, torch.tensor([[0.0], [1.0]]).expand(2, size)).unbind(-2)
        wrong = (everything < none).nonzero().ravel().tolist()
        if not wrong:
            return []
        items = problem.item_names
        labels = list(items) if len(items) == len(none) else [str(j) for j in range(len(none))]
        shown = ", ".join(f"{labels[j]} ({float(everything[j]):.3g} against {float(none[j]):.3g})" for j in wrong[:MOST_NAMED])
        more = f" and {len(wrong) - MOST_NAMED} more" if len(wrong) > MOST_NAMED else ""
        return [
            f"rows with all attributes are expected to score lower than rows with none on: {shown}{more} (for right-wrong items, "
            "guessing and slipping sum to more than 1); check how these items are coded, and their rows of the Q-matrix"
        ]
