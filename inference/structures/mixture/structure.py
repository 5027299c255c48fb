"""Mixtures for engines: starts, labels by falling weight, degeneracy, noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from inference.base.align import Labels
from inference.base.assigned_starts import (
    AT_ONCE,
    centres,
    labelled_centres,
    labelled_owners,
    nearest,
    split_share,
)
from inference.base.component_distributions.base import ComponentDistribution
from inference.base.component_distributions.dispatch import distribution_of
from inference.base.component_distributions.units import measured, mixed_sizes, standard
from inference.base.component_noise import NoiseDraws, numpy_generator
from inference.base.covariates import listed_terms, open_coefficients, standard_covariates
from inference.base.degenerate import shared_words
from inference.base.starts import StartSearch, enough_rows
from inference.base.steps import Steps
from inference.base.structure import (
    Capability,
    NamedEstimate,
    Problem,
    Recommendation,
    Standard,
    Structure,
    as_numbers,
    candidate_families,
    category_chances,
    column_levels,
    component_noise,
    dispersion_items,
    drawn_together,
    latent_posteriors,
    marginal_rows,
    more_starts,
    named_estimates,
    normal_scales,
    num_density_items,
    numeric_items,
    pools,
    separates,
    set_steps,
    split_start,
    split_starts,
    threshold_labels,
)
from inference.programs.coordinates import NormalScales
from inference.programs.fixed import Fixed
from inference.programs.global_state import OTHER_STREAM
from inference.programs.program import Params, Program
from inference.structures.mixture.steps import (
    MixtureSetSteps,
    MixtureSteps,
    items_of,
    joined,
    log_chances,
    renamed_coefficients,
)
from inference.structures.mixture.tables import most_classes, table_too_small
from ppl_models.descriptions.components import MixtureComponents
from ppl_models.descriptions.covariates import Covariates

SEARCH = StartSearch()
LLOYD_STEPS = 20
# components of which k-means++ often leaves a cluster out: more starts then take Lloyd steps, and
# every second one of the others is drawn greedily; of fewer components such starts are too alike
MANY, MOST_LLOYD = 8, 3
# where a batch of 30 alone exceeds the budget
FEW_AT_ONCE = StartSearch(batch=12, rungs=((40, 6), (100, 3)), replicates=3)


class MixtureStructure(Structure):
    """Structure of models that offer ``components()``."""

    @property
    def capabilities(self) -> frozenset[Capability]:  # type: ignore[override]
        """Capabilities: no blocks where sizes or coefficients are read from rows."""
        is_summed = self.about.covariates is None and self.distribution.of_sums
        blocks = {Capability.BLOCKS} if is_summed else set()
        return frozenset({Capability.WEIGHTS, Capability.LABELS} | blocks)

    @cached_property
    def about(self) -> MixtureComponents:
        about: MixtureComponents = self.model.components()
        return about

    @cached_property
    def distribution(self) -> ComponentDistribution:
        """Component distributions."""
        return distribution_of(self.about)

    @classmethod
    def of(cls, model: Callable[..., Any]) -> MixtureStructure | None:
        if isinstance(getattr(model, "components", lambda: None)(), MixtureComponents):
            return cls(model)
        return None

    def bind(self, data: Any, weights: Tensor | None = None) -> Any:
        about = self.about
        known = measured(self.model, self.distribution, items_of(about, data), weights)
        if about.covariates is None or about.covariates.units is not None:
            return known
        return replace(
            known, covariates=about.covariates.measured(data[:, about.num_items :], weights)
        )

    def standard(self, problem: Problem) -> Standard | None:
        about = self.about
        own = standard(
            replace(problem, data=items_of(about, problem.data)), self.distribution, type(self)
        )
        if about.covariates is None:
            return own
        return standard_covariates(problem, own, about.covariates, type(self))

    def steps(self, problem: Problem, chunk_elements: int, num_inner: int) -> MixtureSteps:
        def build() -> MixtureSteps:
            return MixtureSteps(
                self.about,
                problem.program_of_one_row(),
                problem.data,
                chunk_elements,
                weights=problem.weights,
                labels=(problem.labels or {}).get("assignments"),
            )

        return problem.once(f"steps {chunk_elements}", build)  # they keep what they work out

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Start from k-means++ centres (Arthur and Vassilvitskii 2007), or random rows.

        The first start takes steps of k-means from greedily drawn centres; where components are
        many, so do up to half of the starts and three, and every second one of the others is drawn
        greedily.
        """
        about, spread = self.about, init == "spectral"
        many = about.num_components >= MANY
        num_lloyd = min((num_restarts + 1) // 2, MOST_LLOYD if many else 1)
        generator = torch.Generator().manual_seed(problem.seed)
        statistic, mask = self.distribution.statistic(items_of(about, problem.data))
        if mask is None:
            x = statistic - statistic.sum(0) / len(statistic)
        else:
            x = (statistic - (statistic * mask).sum(0) / mask.sum(0)).mul_(mask)
        del statistic, mask
        variances = torch.cat(
            [part.square().mean(0) for part in x.split(max(1, AT_ONCE // len(x)), -1)]
        )
        x = (
            x.div_(self.distribution.variances_at_start(variances).sqrt().clamp(min=1e-12))
            .double()
            .cpu()
        )
        table = (problem.labels or {}).get("assignments")
        picked = [
            centres(
                x,
                about.num_components,
                spread,
                generator,
                LLOYD_STEPS if spread and r < num_lloyd else 0,
                spread and (r < num_lloyd or many and (r - num_lloyd) % 2 == 0),
            )
            for r in range(num_restarts)
        ]
        if table is not None:
            picked[0] = labelled_centres(x, table.cpu(), picked[0])
        owner = torch.stack([nearest(x, own) for own in picked]).to(problem.data.device)  # (R, N)
        owner = owner if table is None else labelled_owners(owner, table)
        del x
        share = problem.data.new_full(
            (*owner.shape, about.num_components), 0.1 / about.num_components
        )
        return self.start_from(
            problem, share.scatter_(-1, owner.unsqueeze(-1), 0.9 + 0.1 / about.num_components)
        )

    def start_from(self, problem: Problem, share: Tensor) -> Params:
        """Parameters (R, ...) from chances of the components of every row, (R, N, K)."""
        program = problem.program_of_one_row()
        blank = {
            name: value.expand(len(share), *value.shape[1:])
            for name, value in program.draw_prior(1, 0).items()
        }
        return self.steps(problem, 2**18, 1).first(share, blank)

    def complete_start(self, problem: Problem, params: Params) -> Params:
        """Raise variances to their floor, where the objective of EM is defined."""
        if "dispersion" not in params:
            return params
        return params | {"dispersion": torch.maximum(params["dispersion"], self.floor(problem))}

    def floor(self, problem: Problem) -> Tensor:
        """Least variance of every item that has one, (D,)."""
        return problem.once("floor", lambda: self.steps(problem, 2**18, 1).floor)

    def degenerate(self, problem: Problem, params: Params) -> list[tuple[str, ...]]:
        """Degenerate components: empty, copies of each other, or shrunk onto a few rows."""
        about, steps = self.about, self.steps(problem, 2**18, 1)

        def sums(data: Tensor, weights: Tensor | None) -> Tensor:
            own = steps if data is problem.data else steps.on(data, weights)
            return own.value_sums(params)

        found = problem.summed(sums)
        names = problem.item_names[: about.num_items] or [str(j) for j in range(about.num_items)]
        items = items_of(about, problem.data)
        spikes = self.distribution.faults(
            lambda: problem.once(
                "spread", lambda: self.distribution.spread_of(items, problem.weights)
            ),
            params,
            found[..., 0],
            self.floor(problem),
            names,
        )
        return [
            (*words, *shared_words(own, "component"))
            for words, own in zip(spikes, found, strict=True)
        ]

    def concerns(self, problem: Problem, params: Params) -> list[str]:
        """Sentences on classes with too few cells, and covariates that separate components."""
        sizes = self.distribution.answers()
        if self.regresses:
            return self._on_separation(problem, params)
        small = (
            ""
            if sizes is None or self.about.num_components == 1
            else table_too_small(self.num_free(params), sizes)
        )
        if not small:
            return []
        return [
            f"the answers cannot determine these {self.about.num_components} classes: {small} Other"
            " classes describe the data exactly as well, so their shares and chances mean nothing:"
            f" take fewer classes (by that count at most {most_classes(sizes or ())} from these"
            " items), or more items or categories"
        ]

    def _on_separation(self, problem: Problem, params: Params) -> list[str]:
        known = self.about.covariates
        assert known is not None
        found = open_coefficients(
            known,
            params["coefficients"],
            problem.data[:, self.about.num_items :],
            problem.weights,
            apart=False,
        )
        if not found:
            return []
        shown = listed_terms(
            [f"{term} (component {k + 1} against 0: {value:.3g})" for k, term, value in found]
        )
        return [
            f"the rows hardly bound the coefficients of {shown}: a component seems to have all or"
            " none of the rows with certain values of these covariates, or hardly any rows at all,"
            " and the sizes of these numbers come from the prior. Join categories, leave a"
            " covariate out, or fit fewer components"
        ]

    @property
    def regresses(self) -> bool:
        """Tell whether the components depend on covariates."""
        return self.about.covariates is not None and self.about.num_components > 1

    @property
    def covariates(self) -> Covariates | None:
        return self.about.covariates

    @property
    def num_given(self) -> int:
        """Number of covariates, the last columns of the data."""
        return 0 if self.about.covariates is None else len(self.about.covariates.names)

    def observed_sites(self) -> tuple[str, ...]:
        return ("items",) if self.regresses else ()

    def stand_in(self) -> Tensor | None:
        if self.regresses:
            return torch.zeros(1, self.about.num_items + self.num_given, dtype=torch.float64)
        return None

    def shares(self, params: Params, data: Tensor) -> Tensor:
        """Posterior probabilities of the components of every row, ([R], N, K)."""
        return (
            self.distribution.log_densities(params, items_of(self.about, data))
            + log_chances(self.about, params, data)
        ).softmax(-1)

    def simulate_like(self, params: Params, data: Any, seed: int) -> Params | None:
        """Simulate items beside the covariates of the data, with their gaps, or None."""
        about = self.about
        if about.covariates is None:
            return None
        table = self.model.check_data(data, for_fit=False)[0]
        program = Program(replace(self.model, covariates=None), None, len(table))
        chances = log_chances(about, params, table.to(next(iter(params.values())))).exp()
        # not the numbers that the items are drawn with
        generator = torch.Generator().manual_seed(seed ^ OTHER_STREAM)
        assigned = (
            torch.multinomial(chances.expand(len(table), -1).cpu(), 1, generator=generator)
            .squeeze(-1)
            .to(table.device)
        )
        own = {name: value for name, value in params.items() if name != "coefficients"}
        weights = torch.full_like(chances[0], 1 / about.num_components)
        drawn = program.simulate(own | {"weights": weights, "assignments": assigned}, seed)["items"]
        return {
            "items": joined(
                about, drawn.masked_fill(items_of(about, table).isnan(), torch.nan), table
            )
        }

    def as_tables(self, program: Program, values: Params) -> dict[str, Tensor]:
        """Tables of the items alone; covariates are given."""
        if not self.regresses:
            return super().as_tables(program, values)
        return {
            name: self.distribution.as_numbers(items_of(self.about, value))
            for name, value in values.items()
        }

    def split_starts(
        self, problem: Problem, smaller: Params, which: Sequence[int] | None = None
    ) -> Params:
        """Starts by splitting each given component of a smaller mixture, of all if None."""
        k = self.about.num_components - 1
        before, items = replace(self.about, num_components=k), items_of(self.about, problem.data)
        share = (
            distribution_of(before).log_densities(smaller, items)
            + log_chances(before, smaller, problem.data)
        ).softmax(-1)  # (N, K - 1)
        statistic, mask = self.distribution.statistic(items)
        return self.start_from(
            problem,
            torch.stack(
                [
                    split_share(share, one, statistic, mask)
                    for one in (range(k) if which is None else which)
                ]
            ),
        )

    def expected_rows(self, program: Program, params: Params) -> Tensor:
        data = program.args[0]
        expected = self.distribution.completed_rows(
            params, self.latent_means(program, params)["assignments"], items_of(self.about, data)
        )
        return joined(self.about, expected, data)

    def labels(self) -> tuple[Labels, ...]:
        def rename(params: Params, order: Tensor, flips: Tensor) -> Params:
            return self._renamed(params, order)

        return (Labels("assignments", self.distribution.features, rename),)

    def canonical(self, params: Params) -> Params:
        """Order components by falling weight, or chance at the means of the covariates."""
        if "weights" in params:
            weights = params["weights"]
        else:
            assert self.about.covariates is not None
            weights = torch.nn.functional.pad(
                self.about.covariates.standardised(params["coefficients"])[:, 0], (1, 0)
            )
        order = weights.argsort(descending=True, stable=True)
        renamed = self._renamed({n: value.unsqueeze(0) for n, value in params.items()}, order)
        return {name: value[0] for name, value in renamed.items()}

    def _renamed(self, params: Params, order: Tensor) -> Params:
        """Permute the components of parameters (R, ...)."""
        shared = self.distribution.shared
        return {
            name: renamed_coefficients(value, order)
            if name == "coefficients"
            else value
            if name in shared
            else value[:, order]
            for name, value in params.items()
        }

    def num_free(self, params: Params, problem: Problem | None = None) -> int:
        """Number of free parameters: weights less their sum or coefficients, components."""
        own = {
            name: value for name, value in params.items() if name not in ("weights", "coefficients")
        }
        before = (
            len(params["weights"]) - 1 if "weights" in params else params["coefficients"].numel()
        )
        return self.distribution.num_free(own) + before

    def _drawn(self, items: Sequence[str]) -> Sequence[str]:
        """Names of the items, without covariates where all columns are named."""
        if len(items) == self.about.num_items + self.num_given:
            return items[: self.about.num_items]
        return items

    def category_names(self, items: Sequence[str]) -> dict[str, tuple[str, ...]]:
        items = self._drawn(items)
        return self.distribution.category_names(items) if len(items) == self.about.num_items else {}

    def at_bound(self, params: Params) -> list[str]:
        return self.distribution.at_bound(params)

    def recommended(self, problem: Problem) -> Recommendation:
        from inference.engines.em import EM

        if self.about.num_components == 1:
            return Recommendation(EM(), "spectral", 1)
        rows = enough_rows(problem.data.shape[-1] * self.about.num_components)
        numbers = min(len(problem.data), rows) * problem.data.shape[-1] * self.about.num_components
        search = SEARCH if SEARCH.first_work * numbers <= SEARCH.budget else FEW_AT_ONCE
        return Recommendation(EM(), "spectral", 10, replace(search, rows=rows))


def mixture_noise(
    about: MixtureComponents,
    params: Params,
    data: Tensor,
    responsibilities: Tensor,
    generator: Generator,
    num_draws: int,
) -> NoiseDraws:
    """Draws of the noise of every component.

    Args:
        params: without restarts; data: (N, J); responsibilities: (N, K).
        num_draws: M.

    Raises:
        ValueError: for a response family without a known distribution function.
    """
    distribution = distribution_of(about)
    labels = torch.multinomial(
        responsibilities, num_draws, replacement=True, generator=generator
    ).mT  # (M, N)
    used = torch.nn.functional.one_hot(labels, about.num_components).bool().numpy()
    rng = numpy_generator(generator)
    scores = np.stack([distribution.scores(params, data, rng) for _ in range(num_draws)])
    return NoiseDraws(
        scores,
        used,
        responsibilities.mean(0).numpy(),
        distribution.cells(params, data, responsibilities),
    )


@latent_posteriors.register(MixtureStructure)
def _(structure: MixtureStructure, program: Program, params: Params) -> Params:
    return {"assignments": structure.shares(params, program.args[0])}


@marginal_rows.register(MixtureStructure)
def _(structure: MixtureStructure, program: Program, params: Params) -> Tensor:
    data = program.args[0]
    joint = structure.distribution.log_densities(params, items_of(structure.about, data))
    return (joint + log_chances(structure.about, params, data)).logsumexp(-1).detach()


@drawn_together.register(MixtureStructure)
def _(structure: MixtureStructure, problem: Problem, params: Params, apart: float) -> Params:
    """M-step from probabilities mixed with even ones, which keeps all rows' moments."""
    share = (
        apart * structure.shares(params, problem.data)
        + (1 - apart) / structure.about.num_components
    )
    blank = {name: value.unsqueeze(0) for name, value in mixed_sizes(params, apart).items()}
    return {
        name: value[0]
        for name, value in (
            structure.steps(problem, 2**18, 1).first(share.unsqueeze(0), blank).items()
        )
    }


@named_estimates.register(MixtureStructure)
def _(structure: MixtureStructure) -> dict[str, NamedEstimate]:
    return structure.distribution.named_estimates()


@more_starts.register(MixtureStructure)
def _(
    structure: MixtureStructure, problem: Problem, init: str, num_starts: int, batch: int
) -> Params:
    """Starts of one batch, half from random rows, for components inside another."""
    first = structure.start(problem, init, (num_starts + 1) // 2)
    if num_starts < 2:
        return first
    second = structure.start(problem, "random", num_starts // 2)
    return {name: torch.cat([value, second[name]]) for name, value in first.items()}


@set_steps.register(MixtureStructure)
def _(
    structure: MixtureStructure, problem: Problem, sets: Tensor, chunk_elements: int, num_inner: int
) -> Steps[Any] | None:
    if structure.about.covariates is not None:
        return None
    return MixtureSetSteps(
        MixtureSteps(structure.about, problem.program_of_one_row(), sets[0], chunk_elements), sets
    )


@split_start.register(MixtureStructure)
def _(structure: MixtureStructure, problem: Problem, smaller: Params) -> Params | None:
    """M-step from the largest component cut across the direction of its largest spread."""
    before = replace(structure.about, num_components=structure.about.num_components - 1)
    if len(smaller[structure.distribution.site]) != before.num_components:
        return None
    weights = log_chances(before, smaller, problem.data).exp().mean(0)
    return structure.split_starts(problem, smaller, [int(weights.argmax())])


@split_starts.register(MixtureStructure)
def _(structure: MixtureStructure, problem: Problem, smaller: Params) -> Params | None:
    if len(smaller[structure.distribution.site]) != structure.about.num_components - 1:
        return None
    return structure.split_starts(problem, smaller)


@candidate_families.register(MixtureStructure)
def _(structure: MixtureStructure) -> tuple[Any, ...]:
    """Candidate families for order selection; none where component noise is unknown."""
    if structure.distribution.knows_noise:
        return tuple(structure.model.candidate_distributions())
    return ()


@normal_scales.register(MixtureStructure)
def _(structure: MixtureStructure, params: Params) -> NormalScales | None:
    return structure.distribution.normal_scales(params)


@dispersion_items.register(MixtureStructure)
def _(structure: MixtureStructure, items: Sequence[str]) -> list[str]:
    return structure.distribution.dispersed_items(structure._drawn(items))


@column_levels.register(MixtureStructure)
def _(structure: MixtureStructure, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    known = structure.about.covariates
    given = (
        () if known is None else zip(names[structure.about.num_items :], known.levels, strict=False)
    )
    return structure.category_names(names) | {name: own for name, own in given if own}


@numeric_items.register(MixtureStructure)
def _(structure: MixtureStructure, items: Sequence[str]) -> list[str]:
    items = structure._drawn(items)
    if len(items) == structure.about.num_items:
        return structure.distribution.numeric_items(items)
    return []


@threshold_labels.register(MixtureStructure)
def _(structure: MixtureStructure, items: Sequence[str]) -> list[str]:
    items = structure._drawn(items)
    if len(items) == structure.about.num_items:
        return structure.distribution.threshold_names(items)
    return []


@category_chances.register(MixtureStructure)
def _(structure: MixtureStructure, params: Params) -> Tensor:
    return structure.distribution.category_chances(params)


@as_numbers.register(MixtureStructure)
def _(structure: MixtureStructure, table: Tensor) -> Tensor:
    return structure.distribution.as_numbers(table)


@num_density_items.register(MixtureStructure)
def _(structure: MixtureStructure, num_items: int) -> int:
    return structure.distribution.num_densities(num_items)


@component_noise.register(MixtureStructure)
def _(
    structure: MixtureStructure, params: Params, data: Tensor, generator: Generator, num_draws: int
) -> NoiseDraws:
    data = data.to(params[structure.distribution.site])
    return mixture_noise(
        structure.about,
        params,
        items_of(structure.about, data),
        structure.shares(params, data),
        generator,
        num_draws,
    )


@separates.register(MixtureStructure)
def _(structure: MixtureStructure, fixed: Fixed) -> bool:
    """Weights, variances, and chances or rates of items without a dispersion."""
    return structure.distribution.separates(fixed.values.keys() - {"weights"})


@pools.register(MixtureStructure)
def _(structure: MixtureStructure, ties: Mapping[str, Tensor]) -> bool:
    return not {"weights", "coefficients"} & ties.keys() and structure.distribution.pools(ties)
