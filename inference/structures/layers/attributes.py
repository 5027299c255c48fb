"""Layer of named attributes whose items have expected responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from inference.base.structure import Problem
from inference.programs.program import Params
from inference.structures.layers.structure import LayeredStructure
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.item_curves import ACDM, RRUM
from ppl_models.parts.measurement import Additive, Bottom, ExpDINA, ExpDINO, ExpGDM

MOST_NAMED = 8
ON_EDGE = 1e-9  # a step of the predictor that is no more is zero
PAIR = (0, 1)
ItemRule = Literal["additive", "conjunctive", "disjunctive", "saturated"]
RULE_NAMES: dict[type, str] = {
    Additive: "additive",
    ACDM: "ACDM",
    RRUM: "R-RUM",
    ExpDINA: "DINA",
    ExpDINO: "DINO",
    ExpGDM: "saturated",
}


def _rule_of(bottom: Bottom) -> ItemRule:
    """Item rule of two attributes."""
    subsets = bottom.subsets(PAIR)
    if bottom.curve is not None:
        return "saturated"
    if subsets is None or PAIR not in subsets:
        return "additive"
    if len(subsets) > 1:
        return "saturated"
    return "disjunctive" if bottom.disjunctive else "conjunctive"


class AttributeStructure(LayeredStructure):
    """Structure of models with ``expected_responses``, ``layers()`` and ``root_layer()``."""

    @classmethod
    def of(cls, model: Callable[..., Any]) -> AttributeStructure | None:
        """Structure of a model that offers ``expected_responses`` and layers, or None."""
        if hasattr(model, "expected_responses") and LayeredStructure.of(model) is not None:
            return cls(model)
        return None

    def expected_responses(self, params: Params, profiles: Tensor) -> Tensor:
        """Expected response E[item | profile], (..., C, J), of profiles (C, K)."""
        expected: Tensor = self.model.expected_responses(params, profiles)
        return expected

    def allowed(self, attributes: Sequence[int]) -> Tensor:
        """Value combinations of some attributes that the root allows, (L, q), in order."""
        profiles = self.root.profiles
        if profiles is None:
            return binary_configurations(len(attributes))
        return profiles[:, list(attributes)].cpu().unique(dim=0)

    def item_rules(self) -> tuple[ItemRule, ...]:
        """Rule of each item, however many attributes it has; curves count as saturated."""
        bottoms = getattr(self.model, "rules", None)
        if bottoms is None:
            own: ItemRule = "saturated"
            return (own,) * self.layers[0].num_items
        return tuple(_rule_of(bottom) for bottom in bottoms)

    def rule_names(self) -> list[str]:
        """Rule of each item as a table shows it, or "one attribute"."""
        layer, rules = self.layers[0], getattr(self.model, "rules", None)
        if layer.edges is None or rules is None:
            return ["additive" if layer.edges is None else "of its own"] * layer.num_items
        asked = layer.by_item(layer.edges).sum(-1).tolist()
        return [
            "one attribute" if count == 1 else RULE_NAMES[type(rule)]
            for rule, count in zip(rules, asked, strict=True)
        ]

    def _held(self, params: Params) -> list[tuple[int, bool]]:
        """Items with steps held at zero, and whether such a step sums several coefficients."""
        out = []
        for group in self.layers[0].rising:
            own = params[self.layers[0].loadings][group.items.unsqueeze(-1), group.columns]
            zero = own @ group.steps.mT.to(own) <= ON_EDGE
            # a sum of coefficients that are not zero themselves
            several = ((own.unsqueeze(-2) * group.steps.to(own)) != 0).any(-1)
            for item, edges, together in zip(group.items.tolist(), zero, several, strict=True):
                if bool(edges.any()):
                    out.append((item, bool((edges & together).any())))
        return sorted(out)

    def why_no_standard_errors(self, params: Params) -> str | None:
        """Reason why there are no standard errors: estimates on an edge of monotone items."""
        held = [str(item) for item, together in self._held(params) if together]
        if held:
            return (
                f"monotone=True holds sums of coefficients of items {', '.join(held[:MOST_NAMED])}"
                " at zero, and an estimate on such an edge has no normal distribution; Bootstrap()"
                " gives intervals"
            )
        return super().why_no_standard_errors(params)

    def _labels(self, problem: Problem) -> list[str]:
        size = self.layers[0].num_items
        if len(problem.item_names) == size + self.num_given:
            return list(problem.item_names[:size])
        return [str(j) for j in range(size)]

    def concerns(self, problem: Problem, params: Params) -> list[str]:
        """Sentences on falling items, separation, and unseen categories."""
        return [
            *self._falling(problem, params),
            *self._on_separation(problem, params),
            *self._never_given(problem),
        ]

    def _falling(self, problem: Problem, params: Params) -> list[str]:
        held = [item for item, _ in self._held(params)]
        if held:
            labels = self._labels(problem)
            shown = ", ".join(labels[j] for j in held[:MOST_NAMED]) + (
                f" and {len(held) - MOST_NAMED} more" if len(held) > MOST_NAMED else ""
            )
            return [
                f"monotone=True holds effects at zero on: {shown}. Without it an attribute would"
                " lower the answers there, or leave them; look at these items' rows of the"
                " Q-matrix"
            ]
        size = self.layers[0].num_parents
        none, everything = self.expected_responses(
            params, torch.tensor([[0.0], [1.0]]).expand(2, size)
        ).unbind(-2)
        wrong = (everything < none).nonzero().ravel().tolist()
        if not wrong:
            return []
        labels = self._labels(problem)
        shown = ", ".join(
            f"{labels[j]} ({float(everything[j]):.3g} against {float(none[j]):.3g})"
            for j in wrong[:MOST_NAMED]
        )
        more = f" and {len(wrong) - MOST_NAMED} more" if len(wrong) > MOST_NAMED else ""
        return [
            "rows with all attributes are expected to score lower than rows with none on:"
            f" {shown}{more} (for right-wrong items, guessing and slipping sum to more than 1);"
            " check how these items are coded, and their rows of the Q-matrix"
        ]
