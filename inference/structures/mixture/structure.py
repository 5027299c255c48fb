"""Mixtures as engines see them: starts, labels by falling weight, what makes a solution no proper optimum, noise of the components."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Generator, Tensor

from inference.base.assigned_starts import centres
from inference.base.component_laws.law import ComponentLaw
from inference.base.component_laws.laws import law_of
from inference.base.component_laws.units import measured, standard
from inference.base.component_noise import NoiseDraws, numpy_generator
from inference.base.relabelling import Labels
from inference.base.shared_values import shared_values
from inference.base.starts import StartSearch
from inference.base.steps import Steps
from inference.base.structure import Recommendation, Standard, Structure
from inference.programs.program import Params, Program
from inference.structures.mixture.steps import MixtureSetSteps, MixtureSteps
from inference.structures.mixture.tables import most_classes, table_too_small
from ppl_models.descriptions.components import MixtureComponents

if TYPE_CHECKING:
    from inference.base.structure import Problem

__all__ = ["MixtureStructure", "mixture_noise"]

SEARCH = StartSearch()


class MixtureStructure(Structure):
    """A model that offers ``components()``."""

    takes_weights = True

    @property
    def about(self) -> MixtureComponents:
        """The model's description."""
        about: MixtureComponents = self.model.components()
        return about

    @cached_property
    def law(self) -> ComponentLaw:
        """Of the components."""
        return law_of(self.about)

    @classmethod
    def of(cls, model: Callable[..., Any]) -> MixtureStructure | None:
        return cls(model) if isinstance(getattr(model, "components", lambda: None)(), MixtureComponents) else None

    def measured(self, data: Any, weights: Tensor | None = None) -> Any:
        return measured(self.model, self.law, data, weights)

    def standard(self, problem: Problem) -> Standard | None:
        return standard(problem, self.law, type(self))

    def steps(self, problem: Problem, chunk_elements: int, num_inner: int) -> MixtureSteps:
        return MixtureSteps(self.about, problem.program_of_one_row(), problem.data, chunk_elements, weights=problem.weights)

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Centres by k-means++ (Arthur and Vassilvitskii 2007) on standardised columns for "spectral", else random rows."""
        about = self.about
        generator = torch.Generator().manual_seed(problem.seed)
        statistic, mask = self.law.statistic(problem.data)
        seen = torch.ones_like(statistic) if mask is None else mask
        mean = (statistic * seen).sum(0) / seen.sum(0)
        x = (statistic - mean) * seen
        x = (x / self.law.variances_at_start(x.square().mean(0)).sqrt().clamp(min=1e-12)).double().cpu()
        picked = torch.stack([centres(x, about.num_components, init == "spectral", generator) for _ in range(num_restarts)])
        distance = torch.cdist(x, picked).square()  # (R, N, K)
        owner = torch.nn.functional.one_hot(distance.argmin(-1), about.num_components).to(problem.data)
        share = 0.9 * owner + 0.1 / about.num_components
        return self.start_from(problem, share)

    def start_from(self, problem: Problem, share: Tensor) -> Params:
        """Parameters (R, ...) where every row has these chances of being of each component, (R, N, K)."""
        program = problem.program_of_one_row()
        blank = {name: value.expand(len(share), *value.shape[1:]) for name, value in program.draw_prior(1, 0).items()}
        return self.steps(problem, 2**18, 1).first(share, blank)

    def more_starts(self, problem: Problem, init: str, num_starts: int, batch: int) -> Params:
        """Every other start from random rows: k-means++ spreads the centres, and misses components that lie inside another."""
        first, second = self.start(problem, init, num_starts), self.start(problem, "random", num_starts)
        return {name: torch.cat([value[: (num_starts + 1) // 2], second[name][: num_starts // 2]]) for name, value in first.items()}

    def complete_start(self, problem: Problem, params: Params) -> Params:
        """Variances at or above their floor, below which the objective of EM is not defined."""
        if "dispersion" not in params:
            return params
        floor = self.steps(problem, 2**18, 1).floor
        return params | {"dispersion": torch.maximum(params["dispersion"], floor)}

    def degenerate(self, problem: Problem, params: Params) -> tuple[str, ...]:
        """Components that are empty, copies of each other, or have shrunk onto a few rows or equal values."""
        about, data = self.about, problem.data
        parts = []
        for rows in data.split(max(1, 2**22 // (about.num_components * about.num_items))):
            parts.append((self.law.log_densities(params, rows) + params["weights"].log()).softmax(-1))
        shares = torch.cat(parts)
        floor, weights = self.steps(problem, 2**18, 1).floor, problem.weights
        names = problem.item_names or [str(j) for j in range(about.num_items)]
        counts = shares.sum(0) if weights is None else weights @ shares
        spikes = self.law.faults(data, params, counts, floor, names, weights)
        return (*spikes, *shared_values(shares, "component", weights=weights))

    def concerns(self, problem: Problem, params: Params) -> list[str]:
        """Classes of answers in a table with too few cells for them."""
        sizes = self.law.answers()
        small = "" if sizes is None or self.about.num_components == 1 else table_too_small(self.num_free(params), sizes)
        if not small:
            return []
        return [
            f"the answers cannot determine these {self.about.num_components} classes: {small} Other classes describe the data exactly as well, so their shares and "
            f"chances mean nothing: take fewer classes (by that count at most {most_classes(sizes or ())} from these items), or more items or categories"
        ]

    def set_steps(self, problem: Problem, sets: Tensor, chunk_elements: int, num_inner: int) -> Steps:
        return MixtureSetSteps(MixtureSteps(self.about, problem.program_of_one_row(), sets[0], chunk_elements), sets)

    def split_start(self, problem: Problem, smaller: Params) -> Params | None:
        """The component of the largest weight cut in two across the direction in which its rows spread most, and an M-step from there."""
        if len(smaller["weights"]) + 1 != self.about.num_components:
            return None
        return self.split_starts(problem, smaller, [int(smaller["weights"].argmax())])

    def split_starts(self, problem: Problem, smaller: Params, which: Sequence[int] | None = None) -> Params:
        """As :meth:`split_start`, from one start for each of these components of the smaller mixture, of all if None."""
        k = self.about.num_components - 1
        joint = law_of(replace(self.about, num_components=k)).log_densities(smaller, problem.data) + smaller["weights"].log()
        share = joint.softmax(-1)  # (N, K - 1)
        return self.start_from(problem, torch.stack([self._split(share, one, problem.data) for one in (range(k) if which is None else which)]))

    def _split(self, share: Tensor, which: int, data: Tensor) -> Tensor:
        statistic, mask = self.law.statistic(data)
        own = share[:, which : which + 1]
        seen = own if mask is None else own * mask
        mean = (statistic * seen).sum(0) / seen.sum(0).clamp(min=1e-12)
        x = (statistic - mean) * (1.0 if mask is None else mask)
        x = x / ((x.square() * own).sum(0) / own.sum()).sqrt().clamp(min=1e-12)
        axis = torch.linalg.eigh((x * own).mT @ x).eigenvectors[:, -1]
        side = (x @ axis).unsqueeze(-1)
        half = torch.where(side > 0, 0.9, 0.1).to(share)  # about the component's own mean
        return torch.cat([share[:, :which], own * half, own * (1 - half), share[:, which + 1 :]], 1)

    def laws(self) -> tuple[Any, ...]:
        """None where the noise of the components is not known, so that no law could be checked."""
        return tuple(self.model.laws()) if self.law.knows_noise else ()

    def expected_rows(self, program: Program, params: Params) -> Tensor:
        return self.law.expected_rows(params, self.latent_means(program, params)["assignments"])

    def labels(self) -> tuple[Labels, ...]:
        def rename(params: Params, order: Tensor, flips: Tensor) -> Params:
            return {name: value if name in self.law.shared else value[:, order] for name, value in params.items()}

        return (Labels("assignments", self.law.features, rename),)

    def canonical(self, params: Params) -> Params:
        """Components in the order of falling weight."""
        order = params["weights"].argsort(descending=True, stable=True)
        return {name: value if name in self.law.shared else value[order] for name, value in params.items()}

    def num_free(self, params: Params) -> int:
        """Weights without their sum, and what the law counts."""
        own = {name: value for name, value in params.items() if name != "weights"}
        return self.law.num_free(own) + len(params["weights"]) - 1

    def dispersed_items(self, items: Sequence[str]) -> list[str]:
        return self.law.dispersed_items(items)

    def category_names(self, items: Sequence[str]) -> dict[str, tuple[str, ...]]:
        return self.law.category_names(items) if len(items) == self.about.num_items else {}

    def numeric_items(self, items: Sequence[str]) -> list[str]:
        return self.law.numeric_items(items) if len(items) == self.about.num_items else []

    def threshold_names(self, items: Sequence[str]) -> list[str]:
        return self.law.threshold_names(items) if len(items) == self.about.num_items else []

    def category_chances(self, params: Params) -> Tensor:
        return self.law.category_chances(params)

    def as_numbers(self, table: Tensor) -> Tensor:
        return self.law.as_numbers(table)

    def num_densities(self, num_items: int) -> int:
        return self.law.num_densities(num_items)

    def at_bound(self, params: Params) -> list[str]:
        return self.law.at_bound(params)

    def recommended(self, problem: Problem) -> Recommendation:
        from inference.engines.em import EM

        if self.about.num_components == 1:
            return Recommendation(EM(), "spectral", 1)
        return Recommendation(EM(), "spectral", 10, SEARCH)

    def component_noise(self, params: Params, data: Tensor, generator: Generator, num_draws: int) -> NoiseDraws:
        data = data.to(params["weights"])
        joint = self.law.log_densities(params, data) + params["weights"].log()
        return mixture_noise(self.about, params, data, joint.softmax(-1), generator, num_draws)


def mixture_noise(
    about: MixtureComponents, params: Params, data: Tensor, responsibilities: Tensor, generator: Generator, num_draws: int
) -> NoiseDraws:
    """Draws of the noise of every component.

    Args:
        params: without restarts; data: (N, J); responsibilities: (N, K).
        num_draws: M.

    Raises:
        ValueError: for a response family without a known distribution function.
    """
    law = law_of(about)
    labels = torch.multinomial(responsibilities, num_draws, replacement=True, generator=generator).mT  # (M, N)
    used = torch.nn.functional.one_hot(labels, about.num_components).bool().numpy()
    rng = numpy_generator(generator)
    scores = np.stack([law.scores(params, data, rng) for _ in range(num_draws)])
    return NoiseDraws(scores, used, responsibilities.mean(0).numpy(), law.cells(params, data, responsibilities))
