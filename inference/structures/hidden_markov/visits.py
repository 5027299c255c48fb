r"""Forward-backward of hidden semi-Markov chains: posteriors of visits, states and durations.

Beside the forward sums of :mod:`ppl_models.sequences.semi_markov_chain`, with :math:`C_t(k)` the
log-density of the first t steps in state k, and n = T - t + 1 steps left,

.. math::

    \text{in}^*_t(k) = \sum_{n' < n} d_k(n') \, e^{C_{t+n'-1} - C_{t-1}} \, \text{out}^*_{t+n'-1}(k)
    + S_k(n) \, e^{C_T - C_{t-1}}, \qquad

    \text{out}^*_t(k) = \sum_l A_{kl} \, \text{in}^*_{t+1}(l) .

A visit to k begins at t with chance :math:`\text{in}_t \text{in}^*_t / p(x)` and ends there with
:math:`\text{out}_t \text{out}^*_t / p(x)`: the chance of the state is the sum of all beginnings so
far less that of the ends before. The terms of :math:`\text{in}^*_t` share the beginnings at t among
durations: of visits that end, and of the last one, which is still open (Y. Guédon 2003,
doi:10.1198/1061860032030). Sequences of unequal length end together, so that all steps left are
those of one T. Every step takes some K D operations, D being the most steps of a visit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ppl_models.parts.durations import NEVER, DurationTables
from ppl_models.sequences.semi_markov_chain import log_chances

NUMBERS = 2**22  # of a table of sequences by states and steps that are worked on together


@dataclass(frozen=True, eq=False)
class SemiMarkov:
    """Parameters of a hidden semi-Markov chain.

    Args:
        initial: (R, K); transitions: (R, K, K), zero on the diagonal.
        tables: (R, K, D).
    """

    initial: Tensor
    transitions: Tensor
    tables: DurationTables

    def double(self) -> SemiMarkov:
        """The same in double precision."""
        tables = DurationTables(*(part.double() for part in self.tables))
        return SemiMarkov(self.initial.double(), self.transitions.double(), tables)


@dataclass(frozen=True, eq=False)
class Visits:
    """Posterior of the visits of sequences.

    Args:
        state: P(state | the whole sequence), (R, B, T, K); zero after the end.
        first: first states, (R, K); moves: from visit to visit, (R, K, K).
        ended: visits by their duration, (R, K, D); open: last visits, by their steps so far.
        log_likelihood: (R, B).

    All but the first and the last are sums over sequences.
    """

    state: Tensor
    first: Tensor
    moves: Tensor
    ended: Tensor
    open: Tensor
    log_likelihood: Tensor


@dataclass(frozen=True, eq=False)
class _Forward:
    """Forward sums, (R, B, K, T) each, of sequences that end together.

    ``total`` is the log-density of the steps up to one, (R, B, K, T + 1), less its offset (R, B).
    """

    place: Tensor  # of every step of the data among these, (B, T)
    start: Tensor  # (B,)
    total: Tensor
    begun: Tensor
    ended: Tensor
    last: Tensor  # (R, B, K)
    offset: Tensor

    @property
    def evidence(self) -> Tensor:
        """Log-likelihood less the offset, (R, B)."""
        return self.last.logsumexp(-1)


def blocks_of(num_sequences: int, numbers_each: int) -> Iterator[slice]:
    """Slices of sequences that are worked on together."""
    size = max(1, NUMBERS // max(1, numbers_each))
    for first in range(0, num_sequences, size):
        yield slice(first, first + size)


def _forward(chain: SemiMarkov, densities: Tensor, lengths: Tensor) -> _Forward:
    """Forward sums of log-densities (R, B, T, K), of sequences of these lengths (B,)."""
    restarts, num, steps, size = densities.shape
    most, start = chain.tables.durations.shape[-1], steps - lengths
    place = torch.arange(steps, device=densities.device) + start.unsqueeze(-1)  # (B, T)
    # later steps than the last come first, where nothing was seen
    source = (torch.arange(steps, device=densities.device) - start.unsqueeze(-1)) % steps
    own = densities.double().permute(0, 1, 3, 2)
    own = own.gather(-1, source[None, :, None].expand_as(own))
    seen = torch.arange(steps, device=densities.device) >= start.unsqueeze(-1)
    own = own.masked_fill(~seen[None, :, None], 0.0)
    peak = own.amax(2, keepdim=True)
    peak = torch.where(peak.isfinite(), peak, 0.0)
    total = torch.nn.functional.pad((own - peak).clamp(min=NEVER).cumsum(-1), (1, 0))
    moves, first = log_chances(chain.transitions).unsqueeze(1), log_chances(chain.initial)
    first = first.unsqueeze(1).expand(-1, num, -1)
    begun, ended = torch.empty_like(own), torch.empty_like(own)
    relative = torch.empty_like(own)  # begun, less the log-density of the steps before
    backward, survival = (
        part.flip(-1).unsqueeze(1) for part in (chain.tables.durations, chain.tables.survival)
    )
    together = not bool(start.any())  # sequences of one length
    for t in range(steps):
        here = first if t == 0 else (ended[..., t - 1].unsqueeze(-1) + moves).logsumexp(-2)
        if not together:
            here = torch.where((start == t).unsqueeze(-1), first, here)
            here = here.masked_fill((start > t).unsqueeze(-1), NEVER)
        begun[..., t] = here
        n = min(most, t + 1)
        torch.sub(here, total[..., t], out=relative[..., t])
        window = relative[..., t + 1 - n : t + 1] + backward[..., most - n :]
        torch.add(total[..., t + 1], window.logsumexp(-1), out=ended[..., t])
    n = min(most, steps)
    window = relative[..., steps - n :] + survival[..., most - n :]
    last = total[..., -1] + window.logsumexp(-1)
    return _Forward(place, start, total, begun, ended, last, peak.sum((2, 3)))


def smoothed_visits(
    chain: SemiMarkov, densities: Tensor, lengths: Tensor, weights: Tensor | None = None
) -> Visits:
    """Posterior of the visits.

    Args:
        chain: the parameters.
        densities: log-densities of every step in every state, (R, B, T, K).
        lengths: steps of every sequence, (B,), T at most.
        weights: how often each sequence counts in sums, (B,); None for once.
    """
    chain = chain.double()
    sums = _forward(chain, densities, lengths)
    moves = log_chances(chain.transitions).unsqueeze(1)
    steps, total, evidence = sums.begun.shape[-1], sums.total, sums.evidence
    offset = evidence[..., None, None]
    often = None if weights is None else weights.double()[:, None, None]
    most = chain.tables.durations.shape[-1]
    by_length, survival = (part.unsqueeze(1) for part in chain.tables)
    ended = torch.zeros_like(chain.tables.durations)
    still_open = torch.zeros_like(ended)
    # log-density of a visit's steps and of all after it, less that of those before it
    ahead = torch.empty_like(sums.begun)
    ahead[..., -1] = total[..., -1]
    # of visits that begin: the density of what lies before, then that of what follows, then chances
    before = sums.begun - total[..., :-1] - offset
    after = torch.empty_like(ahead)
    for t in range(steps - 1, -1, -1):
        n = min(most, steps - t)
        window = ahead[..., t : t + n] + by_length[..., :n]
        reaches_end = t + n == steps
        if reaches_end:
            torch.add(ahead[..., -1], survival[..., n - 1], out=window[..., -1])
        found = window.logsumexp(-1, keepdim=True)
        after[..., t] = found[..., 0]
        begins = (before[..., t, None] + found).exp_()
        counted = begins if often is None else begins * often
        share = (window.sub_(found).exp_() * counted).sum(1)  # (R, K, n)
        if reaches_end:
            still_open[..., n - 1] += share[..., -1]
            share = share[..., :-1]
        ended[..., : share.shape[-1]] += share
        if t > 0:
            begin = after[..., t] - total[..., t]  # (R, B, K)
            out = (moves + begin.unsqueeze(-2)).logsumexp(-1)
            torch.add(total[..., t], out, out=ahead[..., t - 1])
    begins = (before + after).exp_()
    change = begins.clone()
    if steps > 1:
        left = sums.ended[..., :-1] - offset
        change[..., 1:] -= (left + ahead[..., :-1] - total[..., 1:-1]).exp_()
        begin = after[..., 1:] - total[..., 1:-1]
        pairs = (left.unsqueeze(3) + begin.unsqueeze(2) + moves.unsqueeze(-1)).exp_().sum(-1)
        moved = (pairs if often is None else pairs * often).sum(1)
    else:
        moved = torch.zeros_like(chain.transitions)
    where = sums.start[None, :, None, None].expand(len(begins), -1, begins.shape[2], 1)
    at_start = begins.gather(-1, where)
    first = (at_start if often is None else at_start * often).sum((1, 3))
    state = change.cumsum(-1).clamp(0.0, 1.0)
    inside = sums.place < steps
    index = sums.place.clamp(max=steps - 1)[None, :, None].expand_as(state)
    state = state.gather(-1, index).masked_fill(~inside[None, :, None], 0.0).permute(0, 1, 3, 2)
    value = torch.where(evidence < NEVER / 2, -torch.inf, evidence) + sums.offset
    state, first, moved, ended, still_open = (
        part.to(densities) for part in (state, first, moved, ended, still_open)
    )
    return Visits(state, first, moved, ended, still_open, value)


# ---------------------------------------------------------------- one set of parameters, NumPy


def _numbers(part: Tensor) -> np.ndarray:
    """Array of a table of one restart."""
    numbers: np.ndarray = part[0].detach().double().cpu().numpy()
    return numbers


def _log_sum(logs: np.ndarray, axis: int = -1) -> np.ndarray:
    peak = logs.max(axis, keepdims=True)
    found: np.ndarray = np.log(np.exp(logs - peak).sum(axis)) + peak.squeeze(axis)
    return found


@dataclass(frozen=True, eq=False)
class Ages:
    """States by the steps since they were entered, and how they go on from step to step.

    Args:
        initial: logs (K,); moves: logs (K, K).
        leave, stay: logs of P(a visit ends, or not | it has lasted so long), (K, D).
    """

    initial: np.ndarray
    moves: np.ndarray
    leave: np.ndarray
    stay: np.ndarray

    @classmethod
    def of(cls, chain: SemiMarkov) -> Ages:
        """The same of one restart."""
        by_length, survival = _numbers(chain.tables.durations), _numbers(chain.tables.survival)
        chance = np.exp(np.minimum(by_length - survival, 0.0))
        with np.errstate(divide="ignore"):
            leave, stay = (np.maximum(np.log(part), NEVER) for part in (chance, 1 - chance))
        initial, moves = log_chances(chain.initial), log_chances(chain.transitions)
        return cls(_numbers(initial), _numbers(moves), leave, stay)

    def begin(self, num: int, entered: bool = False) -> np.ndarray:
        """Logs of the chances of states and ages at a first step, (num, K, D).

        ``entered``: state k is entered in line k for certain, num = K.
        """
        ages = np.full((num, *self.leave.shape), NEVER)
        ages[..., 0] = np.where(np.eye(num) > 0, 0.0, NEVER) if entered else self.initial
        return ages

    def ahead(self, ages: np.ndarray) -> np.ndarray:
        """The same one step later."""
        out = np.full_like(ages, NEVER)
        out[..., 1:] = (ages + self.stay)[..., :-1]
        out[..., 0] = _log_sum(_log_sum(ages + self.leave)[..., None] + self.moves, -2)
        return out

    def filtered(
        self, densities: np.ndarray, inside: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Filtered states, states before every step (B, T, K), log-likelihoods (B, T), last ages.

        Args:
            densities: (B, T, K); inside: (B, T) bool.
        """
        state, before = np.zeros_like(densities), np.zeros_like(densities)
        value = np.zeros(inside.shape)
        ages = self.begin(len(densities))
        for t in range(densities.shape[1]):
            here = self.ahead(ages) if t else ages
            logs = _log_sum(here)
            before[:, t] = np.exp(logs)
            value[:, t] = _log_sum(logs + densities[:, t])
            here = here + (densities[:, t] - value[:, t, None])[..., None]
            state[:, t] = np.exp(_log_sum(here))
            ages = np.where(inside[:, t, None, None], here, ages)
        return state, before, value, ages


def best_visits(
    chain: SemiMarkov, densities: np.ndarray, lengths: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Most probable visits of every sequence: states (B, T), -1 after the end, and log-joint (B,).

    Args:
        chain: of one restart.
        densities: (B, T, K).
        lengths: (B,).
    """
    with np.errstate(divide="ignore"):
        first, moves = (np.log(_numbers(part)) for part in (chain.initial, chain.transitions))
    by_length, survival = _numbers(chain.tables.durations), _numbers(chain.tables.survival)
    most = by_length.shape[-1]
    path, best = np.full(densities.shape[:2], -1), np.zeros(len(densities))
    for b, length in enumerate(lengths):
        total = np.concatenate([np.zeros((1, len(first))), densities[b, :length].cumsum(0)])
        relative = np.empty((length, len(first)))
        before, duration = np.zeros((2, length, len(first)), dtype=int)
        ended = first
        for t in range(length):
            if t > 0:
                options = ended[:, None] + moves
                before[t], begun = options.argmax(0), options.max(0)
            else:
                begun = first
            relative[t] = begun - total[t]
            n = min(most, t + 1)
            table = survival if t == length - 1 else by_length
            window = relative[t - n + 1 : t + 1][::-1] + table[:, :n].T
            duration[t] = window.argmax(0) + 1
            ended = total[t + 1] + window.max(0)
        state, t, best[b] = int(ended.argmax()), length - 1, ended.max()
        while t >= 0:
            n = duration[t, state]
            path[b, t - n + 1 : t + 1] = state
            t -= n
            if t >= 0:
                state = before[t + 1, state]
    return path, best


def visit_draws(
    chain: SemiMarkov, densities: Tensor, lengths: Tensor, num_draws: int, seed: int
) -> np.ndarray:
    """Exact joint draws of the states of every sequence, (M, B, T); -1 after the end.

    Args:
        chain: of one restart.
        densities: (B, T, K).
        lengths: (B,).
        num_draws: M.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    sums = _forward(chain.double(), densities.unsqueeze(0), lengths)
    total, begun, ended, last = (
        _numbers(part) for part in (sums.total, sums.begun, sums.ended, sums.last)
    )
    moves = _numbers(log_chances(chain.transitions))
    by_length, survival = _numbers(chain.tables.durations), _numbers(chain.tables.survival)
    steps, most = begun.shape[-1], by_length.shape[-1]
    out = np.full((num_draws, len(begun), steps), -1)
    for b, start in enumerate(sums.start.tolist()):
        relative = begun[b] - total[b, :, :-1]
        for m in range(num_draws):
            t, weights, table = steps - 1, last[b], survival
            while True:
                state = _drawn(weights, rng)
                n = min(most, t - start + 1)
                back = relative[state, t - n + 1 : t + 1][::-1] + table[state, :n]
                n = _drawn(back, rng) + 1
                out[m, b, t - n + 1 - start : t + 1 - start] = state
                t -= n
                if t < start:
                    break
                weights, table = ended[b, :, t] + moves[:, state], by_length
    return out


def _drawn(logs: np.ndarray, rng: np.random.Generator) -> int:
    chances = np.exp(logs - logs.max()).cumsum()
    return int(min((rng.random() * chances[-1] >= chances).sum(), len(chances) - 1))
