"""Noisy-OR models for engines: starts, steps, labels, the recommended engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from inference.base.align import Labels
from inference.base.steps import Steps
from inference.base.structure import (
    Capability,
    Problem,
    Recommendation,
    Structure,
    can_sum_out,
    check_start,
    marginal_rows,
    num_possible_free,
    num_settled,
)
from inference.programs.program import Params, Program
from inference.structures.noisy_or.em_steps import NO_EDGE, CauseRows, CauseSteps
from inference.structures.noisy_or.grow_and_prune import GrowAndPrune
from inference.structures.noisy_or.likelihood import (
    MAX_CAUSES,
    latent_means,
    latent_modes,
    log_likelihood_rows,
    total_log_likelihood,
)
from ppl_models.descriptions.noisy_or import PROBABILITY_LIMIT, IndependentCauses
from ppl_models.parts.distributions import binary_configurations


def check_enumerable(num_causes: int, num_rows: int) -> None:
    """Refuse exact enumeration over too many latents before any work."""
    if num_causes > MAX_CAUSES:
        needed = num_rows * 2.0**num_causes * 8 / 2**30
        raise ValueError(
            f"num_latents = {num_causes} asks exact EM for 2^{num_causes} configurations a row"
            f" ({needed:.3g} GiB of responsibilities, in chunks); it stops at {MAX_CAUSES}: use"
            " GrowAndPrune, which enumerates the likely ones only"
        )


class NoisyOrStructure(Structure):
    """Structure of models that offer ``causes()``."""

    capabilities = frozenset({Capability.WEIGHTS, Capability.BLOCKS})

    @classmethod
    def of(cls, model: Callable[..., Any]) -> NoisyOrStructure | None:
        return cls(model) if hasattr(model, "causes") and not hasattr(model, "layers") else None

    @cached_property
    def about(self) -> IndependentCauses:
        return self.causes

    @cached_property
    def causes(self) -> IndependentCauses:
        """Description of the network."""
        described: IndependentCauses = self.model.causes()
        return described

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Start from large failures 0.88 to 0.98 and small leaks (Buhai et al. 2020), at random."""
        generator = torch.Generator().manual_seed(problem.seed)
        like = (
            problem.data
            if isinstance(problem.data, Tensor)
            else torch.zeros(1, dtype=torch.float64)
        )
        causes = self.causes

        def uniform(low: float, high: float, *shape: int) -> Tensor:
            return low + (high - low) * torch.rand(
                num_restarts, *shape, generator=generator, dtype=torch.float64
            )

        m, items = causes.num_causes, causes.num_items
        wide = (torch.arange(num_restarts) % 2 == 1).to(torch.float64)
        prior = torch.lerp(uniform(2, 4, m).sigmoid(), uniform(0.1, 0.4, m), wide.reshape(-1, 1))
        failure = torch.lerp(
            uniform(2, 4, m, items).sigmoid(), uniform(0.3, 0.9, m, items), wide.reshape(-1, 1, 1)
        )
        leak = torch.lerp(
            1 - uniform(2, 4, items).sigmoid(),
            torch.full((num_restarts, items), 0.05, dtype=torch.float64),
            wide.reshape(-1, 1),
        )
        return {
            name: v.to(like)
            for name, v in zip(
                (causes.prior, causes.failure, causes.leak), (prior, failure, leak), strict=True
            )
        }

    def complete_start(self, problem: Problem, params: Params) -> Params:
        """Complete a start; failures near one on the logit scale are no edges again."""
        failure = params[self.causes.failure]
        return {**params, self.causes.failure: torch.where(failure > NO_EDGE, 1.0, failure)}

    def steps(self, problem: Problem, chunk_elements: int, num_inner: int) -> Steps[Any] | None:
        if not isinstance(problem.data, Tensor):
            return None
        check_enumerable(self.causes.num_causes, len(problem.data))
        rows = CauseRows.merge(problem.data, problem.weights)
        every = binary_configurations(
            self.causes.num_causes, problem.data.dtype, problem.data.device
        )
        return CauseSteps(self.causes, rows, every, 2 * num_inner, chunk_elements)

    def exact_objective(self, problem: Problem, params: Params) -> tuple[Tensor, Tensor] | None:
        """Exact objective, also of many latents where each row's log-likelihood is known."""
        if problem.weights is not None:
            return super().exact_objective(problem, params)
        one_each = (
            {name: value[r] for name, value in params.items()}
            for r in range(len(params[self.causes.prior]))
        )
        found = torch.tensor(
            [total_log_likelihood(self.causes, problem.data, own)[0] for own in one_each],
            dtype=torch.float64,
        )
        if bool(found.isnan().any()):
            return None
        return found, found + problem.program_of_one_row().log_prior(params).detach().double().cpu()

    def latent_means(self, program: Program, params: Params) -> Params:
        return {self.causes.latent: latent_means(self.causes, program.args[0], params)}

    def latent_modes(self, program: Program, params: Params) -> Params:
        return {self.causes.latent: latent_modes(self.causes, program.args[0], params)}

    def recommended(self, problem: Problem) -> Recommendation:
        """Recommend one search: EM alone finds every latent less than half of the time."""
        return Recommendation(GrowAndPrune(), "random", 1)

    def labels(self) -> tuple[Labels, ...]:
        causes = self.causes

        def rename(params: Params, order: Tensor, flips: Tensor) -> Params:
            return params | {
                name: params[name][:, order] for name in (causes.prior, causes.failure)
            }

        return (Labels(causes.latent, lambda params: params[causes.failure], rename),)

    def canonical(self, params: Params) -> Params:
        """Order latents by falling prior probability."""
        order = params[self.causes.prior].argsort(descending=True, stable=True)
        moved = {name: params[name][order] for name in (self.causes.prior, self.causes.failure)}
        return {**params, **moved}

    def graphs(self, params: Params) -> dict[str, Tensor]:
        """Graph by the site of the failures, (items, latents): a failure of one is no edge."""
        return {
            self.causes.failure: (
                (params[self.causes.failure] < 1 - 10 * PROBABILITY_LIMIT).mT.long()
            )
        }

    def num_free(self, params: Params, problem: Problem | None = None) -> int:
        """Number of free priors and edges in use, and leaks; a failure of one is no edge."""
        used = params[self.causes.prior] > 10 * PROBABILITY_LIMIT
        edges = params[self.causes.failure][used] < 1 - 10 * PROBABILITY_LIMIT
        return int(edges.sum()) + num_settled(self, params)


@check_start.register(NoisyOrStructure)
def _(structure: NoisyOrStructure, params: Params) -> None:
    """Refuse probabilities of exactly zero or one, which never move, but failures of one."""
    causes = structure.causes
    for name in (causes.prior, causes.failure, causes.leak):
        value = params[name]
        stuck = (value <= 0) if name == causes.failure else (value <= 0) | (value >= 1)
        if bool(stuck.any()):
            place = stuck.nonzero()[0].tolist()
            allowed = (
                "in (0, 1], one for no edge,"
                if name == causes.failure
                else "strictly between 0 and 1"
            )
            raise ValueError(
                f"init: {name!r} must lie {allowed} but is {float(value[tuple(place)]):g} at"
                f" {place}"
            )


@can_sum_out.register(NoisyOrStructure)
def _(structure: NoisyOrStructure, program: Program) -> bool:
    """True: latents can be summed out, however many; see :mod:`.likelihood`."""
    return True


@num_possible_free.register(NoisyOrStructure)
def _(structure: NoisyOrStructure, params: Params) -> int:
    """Number of possible edges, one for every latent and item, and of what is no edge."""
    return params[structure.causes.failure].numel() + num_settled(structure, params)


@num_settled.register(NoisyOrStructure)
def _(structure: NoisyOrStructure, params: Params) -> int:
    """Number of priors in use, and of leaks."""
    used = params[structure.causes.prior] > 10 * PROBABILITY_LIMIT
    return int(used.sum()) + params[structure.causes.leak].numel()


@marginal_rows.register(NoisyOrStructure)
def _(structure: NoisyOrStructure, program: Program, params: Params) -> Tensor:
    return log_likelihood_rows(structure.causes, program.args[0], params)
