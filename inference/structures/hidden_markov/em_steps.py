"""EM steps and starts of hidden Markov models, many restarts at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor

from inference.base.assigned_starts import centres
from inference.base.component_distributions.base import ComponentDistribution
from inference.base.component_distributions.dispatch import distribution_of
from inference.base.durations import geometric_means, maximise_durations
from inference.base.steps import SET, EStep, RunningSum, Steps, without_set
from inference.programs.program import Params, Program
from inference.structures.hidden_markov.forward_backward import (
    Cut,
    Densities,
    cut_of,
    smoothed_blocks,
)
from inference.structures.hidden_markov.visits import SemiMarkov, blocks_of, smoothed_visits
from ppl_models.data.sequences import inside_of
from ppl_models.descriptions.hidden_markov import HiddenMarkovDescription
from ppl_models.parts.durations import FreeDurations, GeometricDurations
from ppl_models.sequences.hidden_chain import stationary_distribution

DURATION_SITES = ("mean_durations", "duration_sizes", "duration_chances")
CHAIN_SITES = ("initial", "transitions", *DURATION_SITES)
# of a step towards transitions whose stationary distribution is that of the first states
ROUNDS, HALVINGS = (3, 40)
# blocks than those of a mixture: a block takes as many operations one after the other, however
# small it is, and large ones leave the cache
LARGER = (2, 8)
AT_A_STEP = 2**13  # numbers that an operation has at least, where the larger blocks have as many
NEAREST = 0.95  # of the way to the end of the simplex


@dataclass(frozen=True)
class MoveCounts:
    """Expected sufficient statistics: counts of moves and first states, emission sums.

    Args:
        first: sequences that begin in each state, (R, K).
        moves: moves between states, (R, K, K).
        counts: steps with entries in each state, (R, K).
        of_distribution: what the distribution of a row sums up, a record.
        ended: visits by their duration, (R, K, D), and ``open`` ones at the end of a sequence by
            their steps so far; None of geometric durations, where moves count stays.
    """

    first: Tensor
    moves: Tensor
    counts: Tensor
    of_distribution: Any
    ended: Tensor | None = None
    open: Tensor | None = None


def emission_of(params: Params) -> Params:
    """Parameters of the emission distribution."""
    return {name: value for name, value in params.items() if name not in CHAIN_SITES}


def initial_of(about: HiddenMarkovDescription, params: Params) -> Tensor:
    """The distribution of the first state, (R, K) or (K,)."""
    transitions = params["transitions"]
    if about.initial == "free":
        return params["initial"]
    if about.initial == "stationary":
        return stationary_distribution(transitions)
    if about.initial == "uniform":
        return torch.full_like(transitions[..., 0], 1.0 / about.num_states)
    return torch.tensor(about.initial).to(transitions).expand(transitions.shape[:-1])


def excess_of(about: HiddenMarkovDescription, like: Tensor) -> tuple[Tensor, Tensor]:
    """Prior counts of moves, (K, K), and which moves are possible, bool (K, K)."""
    graph = about.graph.to(like.device)
    excess = about.concentration - 1 + about.stickiness * torch.eye(about.num_states).to(like)
    return excess * graph, graph


def is_plain(about: HiddenMarkovDescription) -> bool:
    """Tell whether the states are a plain chain, visits lasting geometrically without a limit."""
    return about.durations is None or about.durations == GeometricDurations()


def plain_chain(
    about: HiddenMarkovDescription, params: Params
) -> tuple[HiddenMarkovDescription, Params]:
    r"""The plain chain of geometric durations, :math:`A_{kk} = 1 - 1 / \mu_k`, without a limit."""
    if about.durations is None:
        return about, params
    end = params["mean_durations"].reciprocal()
    moves = end.unsqueeze(-1) * params["transitions"] + torch.diag_embed(1 - end)
    given = {name: value for name, value in params.items() if name not in DURATION_SITES}
    return replace(about, durations=None), given | {"transitions": moves}


def semi_markov(about: HiddenMarkovDescription, params: Params, num_steps: int) -> SemiMarkov:
    """Chain of visits, of parameters (R, ...), for sequences of so many steps."""
    assert about.durations is not None
    tables = about.durations.tables(params, num_steps)
    return SemiMarkov(initial_of(about, params), params["transitions"], tables)


def densities_at_steps(densities: Densities, params: Params, packed: Tensor) -> Tensor:
    """Log-density of every step in every state, (R, B, T, K); zero where nothing was seen.

    ``packed``: sequences with what ``densities`` reads.
    """
    seen, transitions = packed.isfinite().any(-1), params["transitions"]
    out = transitions.new_zeros(*transitions.shape[:1], *seen.shape, transitions.shape[-1])
    if bool(seen.any()):
        out[:, seen] = densities(emission_of(params), packed[seen]).to(out)
    return out


@dataclass(frozen=True, eq=False)
class HiddenMarkovSteps(Steps[MoveCounts]):
    r"""EM steps of hidden Markov models (Baum et al. 1970, doi:10.1214/aoms/1177697196).

    With :math:`\gamma` the posterior of states and :math:`\xi` the expected moves, initial and
    transitions are counts over counts, and the distribution of a row is maximised as that of a
    mixture with :math:`\gamma` for its responsibilities. Where the first state has the stationary
    distribution :math:`\delta(A)`, transitions climb

    .. math:: \sum_{kl} (\xi_{kl} + a_{kl}) \log A_{kl} + \sum_k \gamma_{1k} \log \delta_k(A)

    along :math:`A_{kl} (g_{kl} - \sum_m A_{km} g_{km}) / \sum_m (\xi_{km} + a_{km})`, g the slope,
    which leads to the counts over counts but for the second term; a step is halved until the sum
    does not fall.

    Of durations :mod:`~inference.structures.hidden_markov.visits` has the posteriors and
    :mod:`~inference.base.durations` the M-step.

    Args:
        about: the model's description.
        program: the program, for the prior; one sequence will do.
        data: packed sequences, (B, T, J).
        chunk_elements: steps times states times restarts in memory at once.
        given_centre: about which sums of the distribution are taken, (J,); the mean of these rows
            if None.
        given_floor: least variances; those that these rows suggest if None.
        weights: how often each sequence counts, (B,); None for once.
        labels: log p(label | state) of each step, (B, T, K); None where nothing is known.
    """

    about: HiddenMarkovDescription
    program: Program
    data: Tensor
    chunk_elements: int
    given_centre: Tensor | None = None
    given_floor: Tensor | None = None
    weights: Tensor | None = None
    labels: Tensor | None = None

    def on(self, data: Tensor, weights: Tensor | None = None) -> HiddenMarkovSteps:
        """Steps on other rows without labels, sums about the same centre so that they add up."""
        return replace(
            self,
            data=data,
            given_centre=self.centre,
            given_floor=self.floor,
            weights=weights,
            labels=None,
        )

    @cached_property
    def packed(self) -> Tensor:
        """Sequences with their labels behind the items; see :func:`beside_labels`."""
        return beside_labels(self.data, self.labels)

    @property
    def cut(self) -> Cut:
        """Sequences cut into pieces; their rows hold the items alone."""
        cut = self._whole_cut
        return cut if self.labels is None else replace(cut, rows=self._items(cut.rows))

    @property
    def _whole_cut(self) -> Cut:
        return cut_of(self.packed, self.about.num_states)

    def _items(self, rows: Tensor) -> Tensor:
        return rows[..., : self.data.shape[-1]]

    def _densities(self, params: Params, rows: Tensor) -> Tensor:
        return densities_with_labels(self.distribution, self.data.shape[-1])(params, rows)

    @cached_property
    def distribution(self) -> ComponentDistribution:
        """Distribution of a row, states as components."""
        return distribution_of(self.about.emission)

    @cached_property
    def floor(self) -> Tensor:
        """Least variance of every item that has one, (D,)."""
        if self.given_floor is not None:
            return self.given_floor
        return self.distribution.floor(self.cut.rows, weights_of_steps(self.packed, self.weights))

    @cached_property
    def centre(self) -> Tensor:
        """Centre of the sums: the overall mean, (P,)."""
        if self.given_centre is None:
            return self.distribution.centre(self.cut.rows)
        return self.given_centre

    def e_step(self, params: Params) -> EStep[MoveCounts]:
        """Posteriors of the states, summed over blocks of pieces."""
        if not is_plain(self.about):
            return self._visits(params)
        prior = self.program.log_prior(params)
        about, params = plain_chain(self.about, params)
        own = emission_of(params)
        initial = initial_of(about, params)
        transitions = params["transitions"]
        restarts = len(transitions)
        least, largest = (times * self.chunk_elements for times in LARGER)
        numbers = min(max(least, AT_A_STEP * self.cut.length), largest)  # of a block
        most = max(
            1,
            min(
                numbers // (restarts * self.about.num_states),
                self.chunk_elements // max(1, self.distribution.width - 1),
            ),
        )
        parts = RunningSum[MoveCounts]()
        total = torch.zeros(restarts, dtype=torch.float64, device=transitions.device)
        often = (
            None
            if self.weights is None
            else self.weights.double().repeat_interleave(self.cut.num_each)
        )  # of every piece
        for smoothed in smoothed_blocks(
            self._whole_cut, initial, transitions, self._densities, own, most, self.weights
        ):
            block = smoothed.block
            share = smoothed.of_rows
            items = self._items(block.rows)
            statistics = self.distribution.statistics(items, share, self.centre, own)
            parts.add(MoveCounts(smoothed.first, smoothed.moves, share.sum(-2), statistics))
            values = smoothed.log_likelihood
            total = total + (values.sum(-1) if often is None else values @ often[block.pieces])
        return EStep(parts.total(), total.to(transitions), prior)

    def _visits(self, params: Params) -> EStep[MoveCounts]:
        """Posteriors of the visits, summed over blocks of sequences."""
        own, transitions = emission_of(params), params["transitions"]
        chain = semi_markov(self.about, params, self.data.shape[1])
        parts = RunningSum[MoveCounts]()
        total = torch.zeros(len(transitions), dtype=torch.float64, device=transitions.device)
        lengths = inside_of(self.data).sum(1)
        for part in blocks_of(len(self.data), transitions[..., 0].numel() * self.data.shape[1]):
            packed, weights = (
                self.packed[part],
                None if self.weights is None else self.weights[part],
            )
            densities = densities_at_steps(self._densities, params, packed)
            found = smoothed_visits(chain, densities, lengths[part], weights)
            seen = packed.isfinite().any(-1)
            rows, share = self._items(packed[seen]), found.state[:, seen]
            often = weights_of_steps(packed, weights)
            share = share if often is None else share * often.to(share).unsqueeze(-1)
            statistics = self.distribution.statistics(rows, share, self.centre, own)
            sums = found.first, found.moves, share.sum(-2), statistics, found.ended, found.open
            parts.add(MoveCounts(*sums))
            values = found.log_likelihood
            total += values.sum(-1) if weights is None else values @ weights.double()
        return EStep(parts.total(), total.to(transitions), self.program.log_prior(params))

    def relax(self) -> HiddenMarkovSteps | None:
        """Steps with geometric durations of the same mean, as quick as those of a plain chain."""
        if is_plain(self.about) or isinstance(self.about.durations, FreeDurations):
            return None
        return replace(self, about=replace(self.about, durations=GeometricDurations()))

    def m_step(self, statistics: MoveCounts, params: Params) -> Params:
        """Maximise: moves and first states by counts, emissions as in a mixture."""
        new = params | self.distribution.m_step(
            statistics.of_distribution, statistics.counts, emission_of(params), self.floor
        )
        if self.about.initial == "free":
            new["initial"] = _shares(
                statistics.first + self.about.concentration - 1, params["initial"]
            )
        excess, graph = excess_of(self.about, params["transitions"])
        counts = statistics.moves * graph + excess
        if statistics.ended is not None and statistics.open is not None:
            assert self.about.durations is not None
            visits = statistics.ended, statistics.open
            concentration = self.about.concentration
            new |= maximise_durations(self.about.durations, *visits, params, concentration)
        elif self.about.durations is not None:
            means = geometric_means(statistics.moves, params["mean_durations"])
            new["mean_durations"] = means
        if self.about.initial == "stationary":
            return new | {
                "transitions": _stationary_step(counts, statistics.first, params["transitions"])
            }
        return new | {"transitions": _shares(counts, params["transitions"])}

    def pooled(self, statistics: MoveCounts, ties: Mapping[str, Tensor]) -> MoveCounts:
        """Counts with the statistics of tied entries of the emissions pooled."""
        own = self.distribution.pooled(statistics.of_distribution, ties)
        return replace(statistics, of_distribution=own)

    def first(self, share: Tensor, blank: Params) -> Params:
        """Starting parameters, (R, ...).

        Args:
            share: states of the rows with entries, (R, N, K), as chances.
            blank: any values, (R, ...).
        """
        rows = weights_of_steps(self.packed, self.weights)
        share = share if rows is None else share * rows.unsqueeze(-1)
        emissions = self.distribution.first(
            self.cut.rows, share, self.centre, emission_of(blank), self.floor
        )
        inside, place = self.cut.step_places
        flat = self.cut.at_steps(share)
        steps = share.new_zeros(len(share), *inside.shape, share.shape[-1])
        steps[:, inside] = flat[:, place]
        moves = torch.einsum("rbtk,rbtl->rkl", steps[:, :, :-1], steps[:, :, 1:])
        _, graph = excess_of(self.about, moves)
        even = graph.to(moves) / graph.sum(-1, keepdim=True)
        if self.about.durations is not None:
            stays = moves.diagonal(dim1=-2, dim2=-1) / moves.sum(-1).clamp(min=1e-12)
            stays = 0.9 * stays + 0.1 / self.about.num_states
            blank = blank | self.about.durations.first(1 / (1 - stays), blank)
        transitions = 0.9 * _shares(moves * graph, even.expand_as(moves)) + 0.1 * even
        new = blank | emissions | {"transitions": transitions}
        if self.about.initial == "free":
            new["initial"] = (
                0.5 * _shares(steps[:, :, 0].sum(1), new["initial"]) + 0.5 / self.about.num_states
            )
        return new


@dataclass(frozen=True, eq=False)
class _OwnRows(HiddenMarkovSteps):
    """Steps whose restarts have rows of their own.

    Args:
        own: the rows that have entries, (R, N, J).
        packed: their numbers in the place of the rows, (B, T, 1).
    """

    own: Tensor = field(kw_only=True)
    packed: Tensor = field(kw_only=True)

    def _items(self, rows: Tensor) -> Tensor:
        return self.own[:, rows[:, 0].long()]

    def _densities(self, params: Params, rows: Tensor) -> Tensor:
        return self.distribution.log_densities(params, self._items(rows))


@dataclass(frozen=True, eq=False)
class HiddenMarkovSetSteps(Steps[MoveCounts]):
    """EM steps where restarts differ in their data; see :mod:`inference.base.steps`.

    Args:
        base: steps on the first of the data sets.
        sets: (S, B, T, J), of the same lengths and gaps.
        given: centres of the sums (S, 1, P) and least variances (S, 1, D); those of these rows if
            None.
    """

    base: HiddenMarkovSteps
    sets: Tensor
    given: tuple[Tensor, Tensor] | None = None

    def on(self, data: Tensor, weights: Tensor | None = None) -> HiddenMarkovSetSteps:
        """Steps on other sequences of every data set, about the same centres."""
        self.refuse_weights(weights)
        return HiddenMarkovSetSteps(replace(self.base, data=data[0]), data, self._about)

    @cached_property
    def _rows(self) -> Tensor:
        """Rows that have entries, (S, N, J)."""
        return self.sets[:, self.base.data.isfinite().any(-1)]

    @cached_property
    def _about(self) -> tuple[Tensor, Tensor]:
        if self.given is not None:
            return self.given
        distribution = self.base.distribution
        centres = torch.stack([distribution.centre(rows) for rows in self._rows])
        floors = torch.stack([distribution.floor(rows) for rows in self._rows])
        return centres.unsqueeze(1), floors.unsqueeze(1)

    @cached_property
    def _numbers(self) -> Tensor:
        """Numbers of these rows in their places, (B, T, 1)."""
        seen, rows = self.base.data.isfinite().any(-1), self._rows
        numbers = torch.where(inside_of(self.base.data), torch.nan, torch.inf).to(rows)
        numbers[seen] = torch.arange(rows.shape[1]).to(rows)
        return numbers.unsqueeze(-1)

    def _of(self, params: Params) -> HiddenMarkovSteps:
        base, at = self.base, params[SET].long()
        return _OwnRows(
            base.about,
            base.program,
            base.data,
            base.chunk_elements,
            *(part[at] for part in self._about),
            own=self._rows[at],
            packed=self._numbers,
        )

    def e_step(self, params: Params) -> EStep[MoveCounts]:
        """E-step of every restart on its own data set."""
        return self._of(params).e_step(without_set(params))

    def m_step(self, statistics: MoveCounts, params: Params) -> Params:
        return self._of(params).m_step(statistics, without_set(params)) | {SET: params[SET]}


def beside_labels(packed: Tensor, labels: Tensor | None) -> Tensor:
    """Sequences (B, T, J) with log p(label | state), (B, T, K), behind the items.

    Steps of which nothing is seen nor known have NaN there, and infinity after the end.
    """
    if labels is None:
        return packed
    told = (labels != labels[..., :1]).any(-1) | packed.isfinite().any(-1)
    empty = torch.where(inside_of(packed), torch.nan, torch.inf).to(labels).unsqueeze(-1)
    return torch.cat([packed, torch.where(told.unsqueeze(-1), labels, empty).to(packed)], -1)


def densities_with_labels(distribution: ComponentDistribution, num_items: int) -> Densities:
    """Log-densities of rows whose columns behind the items are log p(label | state)."""

    def densities(params: Params, rows: Tensor) -> Tensor:
        found = distribution.log_densities(params, rows[..., :num_items])
        return found if rows.shape[-1] == num_items else found + rows[..., num_items:]

    return densities


def weights_of_steps(packed: Tensor, weights: Tensor | None) -> Tensor | None:
    """Weight of each step with entries, (N,), from its sequence's, (B,); None for once."""
    return None if weights is None else weights[packed.isfinite().any(-1).nonzero()[:, 0]]


def _shares(weights: Tensor, otherwise: Tensor) -> Tensor:
    """Normalise rows to sum to one; rows without weight stay as given."""
    total = weights.sum(-1, keepdim=True)
    return torch.where(total > 0, weights / torch.where(total > 0, total, 1.0), otherwise)


def _stationary_step(counts: Tensor, first: Tensor, transitions: Tensor) -> Tensor:
    """Transitions (R, K, K) that raise the bound under stationary first states."""

    def bound(moves: Tensor) -> Tensor:
        distribution = stationary_distribution(moves).clamp(
            min=1e-300 if moves.dtype == torch.float64 else 1e-38
        )
        return torch.special.xlogy(counts, moves).sum((-2, -1)) + torch.special.xlogy(
            first, distribution
        ).sum(-1)

    total = counts.sum(-1, keepdim=True)
    own = transitions
    for _ in range(ROUNDS):
        with torch.enable_grad():
            leaf = own.detach().clone().requires_grad_()
            distribution = stationary_distribution(leaf)
            (slope,) = torch.autograd.grad((first * distribution.log()).sum(), leaf)
        ahead = counts + own * (slope - (own * slope).sum(-1, keepdim=True))
        way = torch.where(total > 0, ahead / torch.where(total > 0, total, 1.0) - own, 0.0)
        room = (-way / own.clamp(min=1e-300 if own.dtype == torch.float64 else 1e-38)).amax(
            (-2, -1)
        )
        size = (NEAREST / room.clamp(min=NEAREST)).clamp(max=1.0)  # (R,)
        before = bound(own)
        for _ in range(HALVINGS):
            moved = own + size[:, None, None] * way
            fine = bound(moved) >= before
            if bool(fine.all()):
                break
            size = torch.where(fine, size, size / 2)
        moved = own + size[:, None, None] * way
        own = torch.where(
            (bound(moved) >= before)[:, None, None], moved / moved.sum(-1, keepdim=True), own
        )
    return own


SURE = 0.9  # of a row for the state of the nearest centre


def near_rows(
    distribution: ComponentDistribution,
    cut: Cut,
    num_states: int,
    num: int,
    spread: bool,
    generator: Generator,
) -> Tensor:
    """State probabilities (R, N, K) by the nearest of K rows picked as in k-means++."""
    return _assigned(_standardised(distribution, cut.rows), num_states, num, spread, generator).to(
        cut.rows
    )


def near_windows(
    distribution: ComponentDistribution, cut: Cut, num_states: int, num: int, generator: Generator
) -> Tensor:
    """State probabilities by windows of three steps, their means and distances.

    The distances separate states of equal means and other widths.
    """
    x = _standardised(distribution, cut.rows)
    size = cut.num_pieces * cut.length
    flat, seen = x.new_zeros(size + 2, 2 * x.shape[1]), x.new_zeros(size + 2, 1)
    place = cut.place.cpu() + 1
    # pieces of a sequence stand one after the other
    flat[place], seen[place] = (torch.cat([x, x.abs()], 1), 1.0)
    total = flat[place - 1] + flat[place] + flat[place + 1]
    return _assigned(
        total / (seen[place - 1] + 1.0 + seen[place + 1]), num_states, num, True, generator
    ).to(cut.rows)


def _standardised(distribution: ComponentDistribution, rows: Tensor) -> Tensor:
    statistic, mask = distribution.statistic(rows)
    seen = torch.ones_like(statistic) if mask is None else mask
    x = (statistic - (statistic * seen).sum(0) / seen.sum(0).clamp(min=1)) * seen
    return (
        (x / distribution.variances_at_start(x.square().mean(0)).sqrt().clamp(min=1e-12))
        .double()
        .cpu()
    )


def _assigned(x: Tensor, num_states: int, num: int, spread: bool, generator: Generator) -> Tensor:
    picked = torch.stack([centres(x, num_states, spread, generator) for _ in range(num)])
    owner = torch.nn.functional.one_hot(torch.cdist(x, picked).argmin(-1), num_states).to(x)
    return SURE * owner + (1 - SURE) / num_states
