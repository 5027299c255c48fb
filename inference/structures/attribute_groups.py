"""Attributes in several groups: steps of each group, shared statistics of the items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from inference.base.steps import EStep, Steps, add_statistics
from inference.base.structure import (
    Capability,
    Problem,
    Recommendation,
    Structure,
    column_levels,
    more_starts,
    num_density_items,
)
from inference.engines.em import EM
from inference.engines.saem import SAEM
from inference.programs.program import Params, Program
from inference.structures.layers.align import signed_inside
from inference.structures.layers.em_steps import LayeredSteps, TowerStatistics
from inference.structures.layers.glm import LayerStatistics, maximise_layer
from inference.structures.layers.spectral import random_start, spectral_start
from inference.structures.layers.structure import FEW_STARTS, MAX_ENUMERATED, PRODUCT_SEARCH
from ppl_models.descriptions.layers import GeneralizedLinearLayer, Root
from ppl_models.parts.responses import dispersed_items, filled, num_densities


@dataclass(frozen=True)
class GroupedStatistics:
    """Expected sufficient statistics of the groups and of shared items.

    Args:
        layer: of the versions of the items, over all rows.
        roots: of the attributes of each group, (R, G, S).
    """

    layer: LayerStatistics
    roots: Tensor


@dataclass(frozen=True, eq=False)
class GroupedSteps(Steps[GroupedStatistics]):
    """Halves of EM: E-step by group, one M-step of items, one of attributes by group.

    Args:
        model: the model of all groups.
        program: of all groups, with one row, for the prior.
        one: steps of the model of one group; its data do not matter.
        data: (N, J + 1).
        with_mask: whether an answer is missing, or an item free.
    """

    model: Any
    program: Program
    one: LayeredSteps
    data: Tensor
    with_mask: bool

    @classmethod
    def build(cls, model: Any, data: Tensor, chunk_elements: int, num_newton: int) -> GroupedSteps:
        """Steps of a model of groups, on a table whose last column is the group's number."""
        items, _ = model.split(data)
        own = model.of_versions()
        one = LayeredSteps.build(own, items.nan_to_num(nan=1.0)[:1], chunk_elements, num_newton)
        if one is None:
            raise ValueError("GroupedSteps: a model that describes its layers was expected")
        return cls(model, Program(model, data[:1]), one, data, bool(items.isnan().any()))

    @property
    def layer(self) -> GeneralizedLinearLayer:
        """Layer of the item versions."""
        return self.one.layers[0]

    @property
    def root(self) -> Root:
        """Root of one group."""
        return self.one.root

    def on(self, data: Tensor, weights: Tensor | None = None) -> GroupedSteps:
        self.refuse_weights(weights)
        return replace(self, data=data)

    def _of_group(self, params: Params, group: int) -> Params:
        roots = self.root.sites()
        return {name: value[:, group] if name in roots else value for name, value in params.items()}

    def e_step(self, params: Params) -> EStep[GroupedStatistics]:
        items, number = self.model.split(self.data)
        layers: list[LayerStatistics] = []
        roots: list[Tensor] = []
        total = items.new_zeros(len(params[self.layer.loadings]))
        for g in range(len(self.model.groups)):
            complete, mask = filled(
                self.layer.response, items[number == g], with_mask=self.with_mask
            )
            own = replace(self.one, data=complete, mask=mask if self.with_mask else None)
            found, log_likelihood, _ = own.e_step(self._of_group(params, g))
            statistics: TowerStatistics = found
            layers.append(statistics.layers[self.layer.loadings])
            roots.append(statistics.root)
            total = total + log_likelihood
        return EStep(
            GroupedStatistics(add_statistics(layers), torch.stack(roots, 1)),
            total,
            self.program.log_prior(params),
        )

    def m_step(self, statistics: GroupedStatistics, params: Params) -> Params:
        new = params | maximise_layer(self.layer, statistics.layer, params, self.one.num_newton)
        group_params = [
            self.root.maximise(statistics.roots[:, g], self._of_group(params, g))
            for g in range(len(self.model.groups))
        ]
        return new | {
            name: torch.stack([params_g[name] for params_g in group_params], 1)
            for name in self.root.sites()
        }


class AttributeGroupsStructure(Structure):
    """Structure of models that offer ``of_versions()`` and ``split(data)``."""

    @classmethod
    def of(cls, model: Callable[..., Any]) -> AttributeGroupsStructure | None:
        return cls(model) if hasattr(model, "of_versions") and hasattr(model, "split") else None

    @property
    def num_given(self) -> int:
        return 1

    @property
    def capabilities(self) -> frozenset[Capability]:  # type: ignore[override]
        """Capabilities: row blocks where items are read from sums alone."""
        is_summed = self.model.layer().response.is_canonical
        return frozenset({Capability.BLOCKS} if is_summed else set())

    def observed_sites(self) -> tuple[str, ...]:
        return (str(self.model.layer().child),)

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Start from all rows as one group, copied to each version and group."""
        model = self.model.model
        layer, root = model.layers()[0], model.root_layer()
        build = spectral_start if init == "spectral" else random_start
        found = build((layer,), root, problem.data[:, :-1], num_restarts, problem.seed)
        signed = [
            signed_inside({name: value[r] for name, value in found.items()}, (layer,), root)
            for r in range(num_restarts)
        ]
        found = {name: torch.stack([own[name] for own in signed]) for name in found}
        items = [j for j, _ in self.model.versions]
        out = {
            layer.loadings: found[layer.loadings][:, items],
            layer.intercepts: found[layer.intercepts][:, items],
        }
        if layer.dispersion is not None:
            place = {
                name: d
                for d, name in enumerate(
                    dispersed_items(layer.response, [str(j) for j in range(layer.num_children)])
                )
            }
            out[layer.dispersion] = found[layer.dispersion][
                :, [place[str(j)] for j in items if str(j) in place]
            ]
        num_groups = len(self.model.groups)
        return out | {
            name: found[name].unsqueeze(1).repeat_interleave(num_groups, 1) for name in root.sites()
        }

    def steps(self, problem: Problem, chunk_elements: int, num_inner: int) -> Steps[Any]:
        return GroupedSteps.build(self.model, problem.data, chunk_elements, num_inner)

    def exact_objective(self, problem: Problem, params: Params) -> tuple[Tensor, Tensor] | None:
        steps = GroupedSteps.build(self.model, problem.data, 2**18, 1)
        _, log_likelihood, log_prior = steps.e_step(params)
        return log_likelihood.double().cpu(), (log_likelihood + log_prior).double().cpu()

    def canonical(self, params: Params) -> Params:
        """Name values of attributes by a positive sum of effects, in every group alike."""
        layer, root = self.model.layer(), self.model.model.root_layer()
        group_params = []
        for g in range(len(self.model.groups)):
            group_params.append(signed_inside(self.params_of(params, g), (layer,), root))
        return group_params[0] | {
            name: torch.stack([params_g[name] for params_g in group_params])
            for name in root.sites()
        }

    def params_of(self, params: Params, group: int) -> Params:
        """Parameters of one group: its attribute distribution and item versions."""
        roots = self.model.model.root_layer().sites()
        return {name: value[group] if name in roots else value for name, value in params.items()}

    def of_group(self, params: Params, group: int) -> tuple[Any, Params]:
        """Model of one group, and its parameters."""
        layer, params_g = self.model.layer(), self.params_of(params, group)
        items = [v for v, (_, own) in enumerate(self.model.versions) if own in (None, group)]
        out = params_g | {
            name: params_g[name][items] for name in (layer.loadings, layer.intercepts)
        }
        if layer.dispersion is not None:
            place = {
                int(v): d
                for d, v in enumerate(
                    dispersed_items(layer.response, [str(v) for v in range(layer.num_children)])
                )
            }
            out[layer.dispersion] = params_g[layer.dispersion][
                [place[v] for v in items if v in place]
            ]
        return self.model.model, out

    def simulate_like(self, params: Params, data: Any, seed: int) -> Params:
        """Simulate a table with the groups and gaps of the data, the group's number last."""
        table = self.model.check_data(data, for_fit=False)[0]
        items, number = self.model.split(table)
        own, out = self.model.of_versions(), torch.full_like(items, torch.nan)
        for g in range(len(self.model.groups)):
            rows = (number == g).nonzero().ravel()
            if len(rows):
                drawn = Program(own, None, len(rows)).simulate(self.params_of(params, g), seed + g)
                out[rows] = drawn[self.observed_sites()[0]].to(out)
        joined = self._joined(out.masked_fill(items.isnan(), torch.nan))
        return {self.observed_sites()[0]: torch.cat([joined, table[:, -1:].to(joined)], -1)}

    def _joined(self, versions: Tensor) -> Tensor:
        """Answers to the versions (N, V) from answers to the items (N, J)."""
        columns = [
            [v for v, (item, _) in enumerate(self.model.versions) if item == j]
            for j in range(self.model.num_items)
        ]
        seen = [versions[:, own] for own in columns]
        return torch.stack(
            [own.nan_to_num().sum(-1).masked_fill(own.isnan().all(-1), torch.nan) for own in seen],
            -1,
        )

    def as_tables(self, program: Program, values: Params) -> dict[str, Tensor]:
        """Tables of the items, from their versions or a table with the group last."""
        site = self.observed_sites()[0]
        found, number = values[site], program.args[0][..., -1]
        is_table = found.shape[-1] == self.model.num_items + 1 and bool(
            (found[..., -1] == number).all()
        )
        return {site: found[..., :-1] if is_table else self._joined(found)}

    def num_free(self, params: Params, problem: Problem | None = None) -> int:
        """Number of free parameters; loadings of exactly zero are not counted.

        With a problem, parameters of versions that nobody answered are not counted either.
        """
        layer, root = self.model.layer(), self.model.model.root_layer()
        asked = torch.ones(layer.num_children, dtype=torch.bool)
        if problem is not None:
            asked = (~self.model.split(problem.data)[0].isnan()).any(0).cpu()
        others = int(asked.sum())  # intercepts
        if layer.dispersion is not None:
            names = [str(v) for v in range(layer.num_children)]
            others += sum(bool(asked[int(v)]) for v in dispersed_items(layer.response, names))
        return (
            int((params[layer.loadings].cpu()[asked] != 0).sum())
            + others
            + len(self.model.groups) * root.num_free
        )

    def recommended(self, problem: Problem) -> Recommendation:
        allowed = self.model.model.root_layer().profiles
        if allowed is None and self.model.layer().num_parents > MAX_ENUMERATED:
            return Recommendation(SAEM(), num_restarts=FEW_STARTS)
        return Recommendation(EM(), num_restarts=FEW_STARTS, search=PRODUCT_SEARCH)


@more_starts.register(AttributeGroupsStructure)
def _(
    structure: AttributeGroupsStructure, problem: Problem, init: str, num_starts: int, batch: int
) -> Params:
    """Starts of one batch; later batches go without the first spectral start."""
    found = structure.start(problem, init, num_starts + (batch > 0))
    return {name: value[-num_starts:] for name, value in found.items()}


@column_levels.register(AttributeGroupsStructure)
def _(structure: AttributeGroupsStructure, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    return {structure.model.column: structure.model.groups}


@num_density_items.register(AttributeGroupsStructure)
def _(structure: AttributeGroupsStructure, num_items: int) -> int:
    return num_densities(structure.model.model.response, structure.model.num_items)
