"""Hidden Markov models for engines: starts, labels by share of time, degeneracy."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor

from inference.base.align import Alignment, Labels
from inference.base.assigned_starts import split_share
from inference.base.component_distributions.base import ComponentDistribution
from inference.base.component_distributions.dispatch import distribution_of
from inference.base.component_distributions.units import measured, mixed_sizes, standard
from inference.base.component_noise import NoiseDraws
from inference.base.degenerate import shared_words, value_sums
from inference.base.starts import StartSearch, enough_rows
from inference.base.steps import Steps
from inference.base.structure import (
    Capability,
    LabelledLatent,
    NamedEstimate,
    Problem,
    Recommendation,
    Standard,
    Structure,
    as_numbers,
    candidate_families,
    category_chances,
    check_labels,
    component_noise,
    dispersion_items,
    drawn_together,
    labelled_latents,
    means_given_labels,
    more_starts,
    named_estimates,
    normal_scales,
    num_counted,
    num_density_items,
    numeric_items,
    pools,
    separates,
    set_steps,
    split_starts,
)
from inference.programs.coordinates import NormalScales
from inference.programs.data import checked
from inference.programs.fixed import Fixed
from inference.programs.labelled import NEVER
from inference.programs.posterior_predictive import replicate
from inference.programs.program import Params, Program
from inference.structures.hidden_markov.em_steps import (
    DURATION_SITES,
    HiddenMarkovSetSteps,
    HiddenMarkovSteps,
    emission_of,
    excess_of,
    initial_of,
    is_plain,
    near_rows,
    near_windows,
    weights_of_steps,
)
from inference.structures.hidden_markov.noise import state_noise
from inference.structures.hidden_markov.paths import most_probable_path, smoothed_states
from ppl_models.data.sequences import inside_of
from ppl_models.descriptions.hidden_markov import HiddenMarkovDescription
from ppl_models.descriptions.row_distributions import RowDistribution
from ppl_models.sequences.hidden_chain import limiting_distribution

LEAST_SEQUENCES = 10  # that starts are looked for in
SEARCH = StartSearch(batch=24, rungs=((40, 10), (100, 4)), cap=96, budget=3e8)
MOST_STATES = 7  # whose renamings are listed where some moves are impossible
# second singular value of the transitions, below which a state says next to nothing of the next one
NO_MEMORY = 0.05
MOST_CUT = 1e-3  # of the visits to a state may be longer than a limit of durations
CHUNK = 2**18


class HiddenMarkovStructure(Structure):
    """Structure of models that offer ``hidden_chain()``."""

    row_columns = ("sequence", "time")

    @cached_property
    def about(self) -> HiddenMarkovDescription:
        """The model's description."""
        about: HiddenMarkovDescription = self.model.hidden_chain()
        return about

    @cached_property
    def distribution(self) -> ComponentDistribution:
        """Distribution of a row."""
        return distribution_of(self.about.emission)

    @property
    def capabilities(self) -> frozenset[Capability]:  # type: ignore[override]
        """Capabilities: row blocks, unless emissions or durations need all sequences together.

        Negative binomial sizes of items ask for the rows again; durations without a limit are
        counted up to the longest of all sequences.
        """
        durations = self.about.durations
        counted = is_plain(self.about) or (durations and durations.max_duration) is not None
        blocks = {Capability.BLOCKS} if self.distribution.of_sums and counted else set()
        return frozenset({Capability.WEIGHTS, Capability.LABELS} | blocks)

    @classmethod
    def of(cls, model: Callable[..., Any]) -> HiddenMarkovStructure | None:
        if isinstance(getattr(model, "hidden_chain", lambda: None)(), HiddenMarkovDescription):
            return cls(model)
        return None

    def observed_sites(self) -> tuple[str, ...]:
        return ("sequences",)

    # ---------------------------------------------------------------- fitting

    def bind(self, data: Any, weights: Tensor | None = None) -> Any:
        return measured(
            self.model,
            self.distribution,
            data[data.isfinite().any(-1)],
            weights_of_steps(data, weights),
        )

    def standard(self, problem: Problem) -> Standard | None:
        return standard(problem, self.distribution, type(self))

    def steps(self, problem: Problem, chunk_elements: int, num_inner: int) -> HiddenMarkovSteps:
        def build() -> HiddenMarkovSteps:
            return HiddenMarkovSteps(
                self.about,
                problem.program_of_one_row(),
                problem.data,
                chunk_elements,
                weights=problem.weights,
                labels=(problem.labels or {}).get("states"),
            )

        return problem.once(f"steps {chunk_elements}", build)  # they keep what they work out

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Start near K rows by k-means++, every second from time windows, or at random."""
        num = 0 if init != "spectral" else num_restarts // 2
        return self._starts(problem, [num_restarts - num, num], init == "spectral")

    def _starts(self, problem: Problem, numbers: Sequence[int], spread: bool) -> Params:
        steps, k = self.steps(problem, CHUNK, 1), self.about.num_states
        generator = torch.Generator().manual_seed(problem.seed)
        parts = (
            [near_rows(self.distribution, steps.cut, k, numbers[0], spread, generator)]
            if numbers[0]
            else []
        )
        parts += (
            [near_windows(self.distribution, steps.cut, k, numbers[1], generator)]
            if numbers[1]
            else []
        )
        return self.start_from(problem, torch.cat(parts))

    def start_from(self, problem: Problem, share: Tensor) -> Params:
        """Parameters (R, ...) from chances of states at steps with entries, (R, N, K)."""
        blank = {
            name: value.expand(len(share), *value.shape[1:])
            for name, value in problem.program_of_one_row().draw_prior(1, 0).items()
        }
        return self.steps(problem, CHUNK, 1).first(share, blank)

    def split_starts(self, problem: Problem, smaller: Params) -> Params:
        """Starts by splitting each state of a smaller model across its largest spread."""
        k, seen = self.about.num_states - 1, problem.data.isfinite().any(-1)
        before = replace(
            self.about,
            emission=replace(self.about.emission, num_components=k),
            durations=None if k == 1 else self.about.durations,
        )
        share = smoothed_states(before, smaller, problem.data)[seen]
        statistic, mask = self.distribution.statistic(problem.data[seen])
        return self.start_from(
            problem, torch.stack([split_share(share, one, statistic, mask) for one in range(k)])
        )

    def complete_start(self, problem: Problem, params: Params) -> Params:
        """Raise variances to their floor, where the objective of EM is defined."""
        if "dispersion" not in params:
            return params
        return params | {
            "dispersion": torch.maximum(params["dispersion"], self.steps(problem, CHUNK, 1).floor)
        }

    def recommended(self, problem: Problem) -> Recommendation:
        """Recommend EM; of several states, from enough starts to meet the best optimum twice."""
        from inference.engines.em import EM

        if self.about.num_states == 1:
            return Recommendation(EM(), "spectral", 1)
        length, items = problem.data.shape[1:]
        steps = enough_rows(items * self.about.num_states)
        rows = max(LEAST_SEQUENCES, -(-steps // length))
        return Recommendation(EM(), "spectral", 10, replace(SEARCH, rows=rows))

    def degenerate(self, problem: Problem, params: Params) -> list[tuple[str, ...]]:
        """Degenerate states: empty, copies of each other, or shrunk onto a few rows."""
        num = max(1, CHUNK // (problem.data[..., 0].numel() * self.about.num_states))
        restarts = len(params["transitions"])
        return [
            words
            for first in range(0, restarts, num)
            for words in self._degenerate(
                problem, {name: value[first : first + num] for name, value in params.items()}
            )
        ]

    def _degenerate(self, problem: Problem, params: Params) -> list[tuple[str, ...]]:
        """The same of a few restarts."""
        steps = self.steps(problem, CHUNK, 1)
        often = weights_of_steps(self.steps(problem, CHUNK, 1).packed, problem.weights)

        def sums(packed: Tensor, weights: Tensor | None) -> Tensor:
            return value_sums(
                smoothed_states(self.about, params, packed)[:, packed.isfinite().any(-1)],
                weights_of_steps(packed, weights),
            )

        found = problem.summed(sums)
        names = problem.item_names or [str(j) for j in range(self.about.emission.num_items)]
        spikes = self.distribution.faults(
            lambda: problem.once(
                "spread", lambda: self.distribution.spread_of(steps.cut.rows, often)
            ),
            emission_of(params),
            found[..., 0],
            steps.floor,
            names,
        )
        return [
            (*(text.replace("component", "state") for text in words), *shared_words(own, "state"))
            for words, own in zip(spikes, found, strict=True)
        ]

    def concerns(self, problem: Problem, params: Params) -> list[str]:
        """Sentence on a chain without memory, or on visits that a limit of durations cuts."""
        durations = self.about.durations
        if durations is not None:
            cut = durations.left_out(params)
            if float(cut.max()) < MOST_CUT:
                return []
            return [
                f"visits of more than max_duration = {durations.max_duration} steps are left out of"
                f" the durations, {100 * float(cut.max()):.2g} % of those to state"
                f" {int(cut.argmax())}: raise max_duration, or leave it out"
            ]
        if self.about.num_states == 1 or self.about.allowed is not None:
            return []
        second = float(torch.linalg.svdvals(params["transitions"])[1])
        if second > NO_MEMORY:
            return []
        return [
            "the rows of the transition matrix are nearly equal (second singular value"
            f" {second:.2g}): a state says next to nothing of the one that follows, so a mixture of"
            " as many components, which takes the steps for independent, describes the sequences"
            " as well with fewer parameters. Compare the two by BIC"
        ]

    # ---------------------------------------------------------------- labels

    def labels(self) -> tuple[Labels, ...]:
        """Labels of states; those that possible moves or a start tell apart are of other kinds.

        None where none may be renamed, or not without others (three in a circle): see
        :meth:`align`.
        """
        orders, kinds = renamings(self.about), None
        if orders is not None:
            kinds = torch.tensor(orders).amin(0)  # the first state that has its name in some order
            sizes = torch.bincount(kinds).tolist()
            if len(orders) == 1 or len(orders) < math.prod(map(math.factorial, sizes)):
                return ()

        def features(params: Params) -> Tensor:
            return _features(self.about, self.distribution, params)

        def rename(params: Params, order: Tensor, flips: Tensor) -> Params:
            return _renamed(
                {name: value.transpose(0, 1) for name, value in params.items()}, order, True
            )

        return (Labels("states", features, rename, kinds=kinds),)

    def align(
        self, params: Params, reference: Mapping[str, Tensor], signs: bool = True
    ) -> Alignment | None:
        orders = renamings(self.about)
        if orders is None:
            return super().align(params, reference, signs)
        target = _features(
            self.about,
            self.distribution,
            {name: reference[name].unsqueeze(0).to(value) for name, value in params.items()},
        )[0]
        own = _features(
            self.about,
            self.distribution,
            {name: value.unsqueeze(0) for name, value in params.items()},
        )[0]
        costs = [float((own[list(order)] - target).square().sum()) for order in orders]
        best = torch.tensor(orders[min(range(len(orders)), key=costs.__getitem__)])
        return Alignment(
            _renamed(params, best),
            {"states": best},
            {"states": torch.zeros(len(best), dtype=torch.bool)},
            min(costs),
        )

    def canonical(self, params: Params) -> Params:
        """Order states by falling share of time, as far as impossible moves allow it."""
        weights = [round(w, 9) for w in shares_of_time(self.about, params).tolist()]
        orders = renamings(self.about)
        if orders is None:
            order = sorted(range(len(weights)), key=lambda k: -weights[k])
        else:
            order = list(max(orders, key=lambda own: [weights[k] for k in own]))
        return _renamed(params, torch.tensor(order, device=params["transitions"].device))

    # ---------------------------------------------------------------- counts

    def num_free(self, params: Params, problem: Problem | None = None) -> int:
        """Number of free rows of possible moves, of the first state, and of the emissions."""
        about = self.about
        first = about.num_states - 1 if about.initial == "free" else 0
        moves = int(about.graph.sum()) - about.num_states
        visits = 0 if about.durations is None else about.durations.num_free(about.num_states)
        return first + moves + visits + self.distribution.num_free(emission_of(params))

    def num_observations(self, problem: Problem) -> float:
        """Number of steps that have entries, weighted by their sequences."""

        def counted(packed: Tensor, weights: Tensor | None) -> Tensor:
            often = weights_of_steps(packed, weights)
            return (
                packed.isfinite().any(-1).sum().double() if often is None else often.double().sum()
            )

        return num_counted(problem.summed(counted))

    def category_names(self, items: Sequence[str]) -> dict[str, tuple[str, ...]]:
        if len(items) == self.about.emission.num_items:
            return self.distribution.category_names(items)
        return {}

    def at_bound(self, params: Params) -> list[str]:
        return self.distribution.at_bound(emission_of(params))

    # ---------------------------------------------------------------- sequences

    def latent_means(self, program: Program, params: Params) -> Params:
        """Smoothed P(state | the whole sequence), (B, T, K); zero after the end."""
        return {"states": smoothed_states(self.about, params, program.args[0])}

    def latent_modes(self, program: Program, params: Params) -> Params:
        """Most probable path of states, (B, T); -1 after the end."""
        return {"states": most_probable_path(self.about, params, program.args[0]).state}

    def expected_rows(self, program: Program, params: Params) -> Tensor:
        """Expected values of every step, (B, T, J); NaN after the end of a sequence."""
        expected = self.distribution.expected_rows(
            emission_of(params), self.latent_means(program, params)["states"]
        )
        return expected.masked_fill(~inside_of(program.args[0]).unsqueeze(-1), torch.nan)

    def simulate_like(self, params: Params, data: Any, seed: int) -> Params:
        """Simulate sequences with the lengths and missing entries of the data."""
        packed = checked(self.model, data)[0]
        drawn = replicate(Program(self.model, packed), params, seed)["sequences"].to(packed)
        return {"sequences": torch.where(packed.isfinite(), drawn, packed)}

    def as_tables(self, program: Program, values: Params) -> dict[str, Tensor]:
        """Tables of steps, and of products of every step and the one before it, by item."""
        given = program.args[0].double()
        inside = inside_of(given)
        rows, seen = (
            as_numbers(self, torch.where(part.isfinite(), part, torch.nan))
            for part in (values["sequences"], given)
        )
        centre = seen.flatten(0, 1).nanmean(0)
        pairs = ((rows[:, 1:] - centre) * (rows[:, :-1] - centre))[inside[:, 1:]]
        beside = (
            {"products of an item's deviations from its mean, one step apart": pairs}
            if len(pairs)
            else {}
        )
        return {"items": rows[inside]} | beside


def shares_of_time(about: HiddenMarkovDescription, params: Params) -> Tensor:
    """Share of time in each state in the long run, (K,): of visits times their mean durations."""
    shares = limiting_distribution(params["transitions"])
    if about.durations is None:
        return shares
    shares = shares * about.durations.means(params)
    return shares / shares.sum(-1, keepdim=True)


def _features(
    about: HiddenMarkovDescription, distribution: ComponentDistribution, params: Params
) -> Tensor:
    """Features of states (D, K, F): those of their emissions, and durations."""
    stays = params["transitions"].diagonal(dim1=-2, dim2=-1)
    if about.durations is not None:
        stays = 1 - about.durations.means(params).reciprocal()
    return torch.cat([distribution.features(params), stays.unsqueeze(-1)], -1)


def _renamed(params: Params, order: Tensor, with_draws: bool = False) -> Params:
    """Rename states so that new l is old ``order[l]``; (K, ...), or draws (D, K, ...)."""
    if with_draws:
        out = {name: value[order].transpose(0, 1) for name, value in params.items()}
        out["transitions"] = out["transitions"][..., order]
        return out
    return {
        name: value[order][:, order] if name == "transitions" else value[order]
        for name, value in params.items()
    }


def renamings(about: HiddenMarkovDescription) -> tuple[tuple[int, ...], ...] | None:
    """Renamings of states that keep possible moves and a given start; None where all do."""
    return _renamings(
        about.num_states, about.allowed, about.initial if isinstance(about.initial, tuple) else None
    )


@functools.lru_cache(maxsize=64)
def _renamings(
    size: int, allowed: tuple[tuple[bool, ...], ...] | None, initial: tuple[float, ...] | None
) -> tuple[tuple[int, ...], ...] | None:
    free = allowed is None or all(all(row) for row in allowed)
    if free and (initial is None or len(set(initial)) == 1):
        return None
    same = tuple(range(size))
    if size > MOST_STATES:
        return (same,)
    found = []
    for order in itertools.permutations(same):
        fits = allowed is None or all(
            allowed[order[k]][order[m]] == allowed[k][m] for k in same for m in same
        )
        if fits and (initial is None or all(initial[order[k]] == initial[k] for k in same)):
            found.append(order)
    return tuple(found)


@named_estimates.register(HiddenMarkovStructure)
def _(structure: HiddenMarkovStructure) -> dict[str, NamedEstimate]:
    return structure.distribution.named_estimates()


@more_starts.register(HiddenMarkovStructure)
def _(
    structure: HiddenMarkovStructure, problem: Problem, init: str, num_starts: int, batch: int
) -> Params:
    """Starts of one batch: a third from rows, from windows, and from random rows."""
    third = num_starts // 3
    first = structure._starts(problem, [num_starts - 2 * third, third], True)
    if not third:
        return first
    second = structure._starts(problem, [third, 0], False)
    return {name: torch.cat([value, second[name]]) for name, value in first.items()}


@split_starts.register(HiddenMarkovStructure)
def _(structure: HiddenMarkovStructure, problem: Problem, smaller: Params) -> Params | None:
    """Starts from states split in turn; None where some moves are impossible."""
    k = structure.about.num_states
    if structure.about.allowed is not None or len(smaller["transitions"]) != k - 1:
        return None
    return structure.split_starts(problem, smaller)


@set_steps.register(HiddenMarkovStructure)
def _(
    structure: HiddenMarkovStructure,
    problem: Problem,
    sets: Tensor,
    chunk_elements: int,
    num_inner: int,
) -> Steps[Any]:
    program = problem.program_of_one_row()
    base = HiddenMarkovSteps(structure.about, program, sets[0], chunk_elements)
    return HiddenMarkovSetSteps(base, sets)


@drawn_together.register(HiddenMarkovStructure)
def _(structure: HiddenMarkovStructure, problem: Problem, params: Params, apart: float) -> Params:
    """Parameters with state probabilities, and possible moves, mixed with even ones."""
    share = smoothed_states(structure.about, params, problem.data)[problem.data.isfinite().any(-1)]
    share = apart * share + (1 - apart) / structure.about.num_states
    blank = {name: value.unsqueeze(0) for name, value in mixed_sizes(params, apart).items()}
    new = {
        name: value[0]
        for name, value in (
            structure.steps(problem, CHUNK, 1).first(share.unsqueeze(0), blank).items()
        )
    }
    moves = params["transitions"]
    even = structure.about.graph.to(moves)
    kept = {"transitions": apart * moves + (1 - apart) * even / even.sum(-1, keepdim=True)}
    return (
        new | kept | {name: params[name] for name in ("initial", *DURATION_SITES) if name in params}
    )


@num_density_items.register(HiddenMarkovStructure)
def _(structure: HiddenMarkovStructure, num_items: int) -> int:
    return structure.distribution.num_densities(num_items)


@normal_scales.register(HiddenMarkovStructure)
def _(structure: HiddenMarkovStructure, params: Params) -> NormalScales | None:
    return structure.distribution.normal_scales(params)


@dispersion_items.register(HiddenMarkovStructure)
def _(structure: HiddenMarkovStructure, items: Sequence[str]) -> list[str]:
    return structure.distribution.dispersed_items(items)


@numeric_items.register(HiddenMarkovStructure)
def _(structure: HiddenMarkovStructure, items: Sequence[str]) -> list[str]:
    if len(items) == structure.about.emission.num_items:
        return structure.distribution.numeric_items(items)
    return []


@category_chances.register(HiddenMarkovStructure)
def _(structure: HiddenMarkovStructure, params: Params) -> Tensor:
    return structure.distribution.category_chances(emission_of(params))


@as_numbers.register(HiddenMarkovStructure)
def _(structure: HiddenMarkovStructure, table: Tensor) -> Tensor:
    return structure.distribution.as_numbers(table)


@candidate_families.register(HiddenMarkovStructure)
def _(structure: HiddenMarkovStructure) -> tuple[Any, ...]:
    if structure.distribution.knows_noise:
        return tuple(structure.model.candidate_distributions())
    return ()


@component_noise.register(HiddenMarkovStructure)
def _(
    structure: HiddenMarkovStructure,
    params: Params,
    data: Tensor,
    generator: Generator,
    num_draws: int,
) -> NoiseDraws:
    return state_noise(structure.about, params, data, generator, num_draws)


@separates.register(HiddenMarkovStructure)
def _(structure: HiddenMarkovStructure, fixed: Fixed) -> bool:
    """First states and moves, if not stationary, and what separates in the emission."""
    if structure.about.initial == "stationary" and "transitions" in fixed.values:
        return False
    return structure.distribution.separates(fixed.values.keys() - {"initial", "transitions"})


@labelled_latents.register(HiddenMarkovStructure)
def _(structure: HiddenMarkovStructure, problem: Problem) -> dict[str, LabelledLatent]:
    shape = tuple(problem.data.shape[:2])
    inside = inside_of(problem.data)
    return {"states": LabelledLatent(shape, structure.about.num_states, inside=inside)}


@check_labels.register(HiddenMarkovStructure)
def _(structure: HiddenMarkovStructure, problem: Problem, tables: Mapping[str, Tensor]) -> None:
    """Refuse labels of unseen rows, and paths that no allowed moves lead along."""
    if "states" not in tables:
        return
    table, inside = tables["states"], inside_of(problem.data)
    told = (table != table[..., :1]).any(-1)
    unseen = told & ~problem.data.isfinite().any(-1)
    if isinstance(structure.about.emission.component, RowDistribution) and bool(unseen.any()):
        row, step = unseen.nonzero()[0].tolist()
        raise ValueError(
            "labels of 'states': distributions of whole rows take labels of steps that have"
            f" entries, and step {step} of sequence {row} has none: give -1 there"
        )
    possible = table > NEVER / 2
    _, graph = excess_of(structure.about, table)
    first = torch.ones_like(table[0, 0])
    if isinstance(structure.about.initial, tuple):
        first = initial_of(structure.about, {"transitions": graph.to(table)})
    reached = possible[:, 0] & (first > 0)
    durations = structure.about.durations
    # states by the steps that a visit has lasted, where these have a limit, (B, K, m)
    ages = torch.zeros(*reached.shape, (durations and durations.max_duration) or 1).bool()
    ages = ages.to(reached.device)
    ages[..., 0] = reached
    for step in range(table.shape[1]):
        if step:
            moved = (reached.to(table) @ graph.to(table) > 0) & possible[:, step]
            older = ages & possible[:, step, :, None]
            if durations is not None and durations.max_duration is not None:
                older = torch.nn.functional.pad(older[..., :-1], (1, 0))
            elif durations is None:
                older = torch.zeros_like(older)
            older[..., 0] |= moved
            ages = torch.where(inside[:, step, None, None], older, ages)
            reached = ages.any(-1)
        for row in (~reached.any(-1)).nonzero()[:1, 0].tolist():
            raise ValueError(
                "labels of 'states': a path of allowed moves was expected, and none of them"
                f" leads to the label at step {step} of sequence {row}"
            )


@means_given_labels.register(HiddenMarkovStructure)
def _(structure: HiddenMarkovStructure, problem: Problem, params: Params) -> Params:
    labels = (problem.labels or {}).get("states")
    return {"states": smoothed_states(structure.about, params, problem.data, labels)}


@pools.register(HiddenMarkovStructure)
def _(structure: HiddenMarkovStructure, ties: Mapping[str, Tensor]) -> bool:
    of_items = ties.keys() <= {"predictors", "probabilities", "dispersion"}
    return of_items and structure.distribution.pools(ties)
