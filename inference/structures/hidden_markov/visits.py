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
from ppl_models.sequences.semi_markov_chain import log_chances, log_semi_markov_chain

NUMBERS = 2**22  # of a table of sequences by states and steps that are worked on together
NEGLIGIBLE = 1e-60  # chance of a visit being on, below which its beginning is left out
PRUNED = 16  # steps after which that is looked at
LEAST = 1e-200  # chance taken for none: processors take a hundred times as long for smaller ones
AGREES = 1e-8  # difference of two log-likelihoods of one sequence by rounding


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

    ``total`` is the log-density of the steps up to one, (R, B, K, T + 1), each step's over that of
    its best state.
    """

    start: Tensor  # (B,)
    total: Tensor
    begun: Tensor
    ended: Tensor
    last: Tensor  # (R, B, K)


def blocks_of(num_sequences: int, numbers_each: int) -> Iterator[slice]:
    """Slices of sequences that are worked on together."""
    size = max(1, NUMBERS // max(1, numbers_each))
    for first in range(0, num_sequences, size):
        yield slice(first, first + size)


def _forward(chain: SemiMarkov, densities: Tensor, lengths: Tensor) -> _Forward:
    """Forward sums of log-densities (R, B, T, K), of sequences of these lengths (B,)."""
    restarts, num, steps, size = densities.shape
    most, start = chain.tables.durations.shape[-1], steps - lengths
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
    return _Forward(start, total, begun, ended, last)


def smoothed_visits(
    chain: SemiMarkov, densities: Tensor, lengths: Tensor, weights: Tensor | None = None
) -> Visits:
    """Posterior of the visits: scaled chances, or derivatives of the log-density where these fail.

    Args:
        chain: the parameters.
        densities: log-densities of every step in every state, (R, B, T, K).
        lengths: steps of every sequence, (B,), T at most.
        weights: how often each sequence counts in sums, (B,); None for once.
    """
    chain, own = chain.double(), densities.detach().double()
    often = lengths.new_ones(len(lengths)).double() if weights is None else weights.double()
    with np.errstate(all="ignore"):
        scaled = _Scaled.of(chain, own, lengths)
        found = scaled.visits(scaled.back(), often)
    if found is None:
        found = _by_gradients(chain, own, lengths, often)
    value = found.log_likelihood.to(densities.device)
    sums = {name: part.to(densities) for name, part in vars(found).items()}
    return Visits(**sums | {"log_likelihood": value})


@dataclass(frozen=True, eq=False)
class _Behind:
    """Chances of what follows, (T, R, B, K) each, scaled at every step.

    Args:
        out: of all after a step, given that a visit to a state ends there.
        begun: of a step and all after it, given that a visit to a state begins there.
        scale: logs of the scales from a step on, (T + 1, R, B).
    """

    out: np.ndarray
    begun: np.ndarray
    scale: np.ndarray


@dataclass(frozen=True, eq=False)
class _Scaled:
    """A chain and its sequences as chances.

    Tables of visits have a column for each step at which one may begin; ages rise from right to
    left, so that those of step t are the last columns of ``leave`` and ``stay``.

    Args:
        initial: (R, 1, K); moves: (R, K, K).
        leave, stay: P(a visit ends, or not | it has lasted so long), (R, 1, K, D).
        densities: of every step over that of its best state, (T, R, B, K); 0 after the end.
        peak: logs of the latter, (R, B), summed over steps.
        lengths: (B,).
    """

    initial: np.ndarray
    moves: np.ndarray
    leave: np.ndarray
    stay: np.ndarray
    densities: np.ndarray
    peak: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, chain: SemiMarkov, densities: Tensor, lengths: Tensor) -> _Scaled:
        """Scale a chain and the log-densities (R, B, T, K) of its sequences."""
        by_length, survival = (part.detach().cpu().numpy() for part in chain.tables)
        later = np.concatenate([survival[..., 1:], np.full_like(survival[..., :1], NEVER)], -1)
        possible = survival > NEVER / 2
        leave = np.where(possible, np.exp(np.minimum(by_length - survival, 0.0)), 0.0)
        stay = np.where(possible, np.exp(np.minimum(later - survival, 0.0)), 0.0)
        own, ends = densities.cpu().numpy().transpose(2, 0, 1, 3), lengths.cpu().numpy()
        peak = own.max(-1, keepdims=True)
        peak = np.where(np.isfinite(peak), peak, 0.0)
        inside = np.arange(len(own))[:, None] < ends
        values = np.where(inside[:, None, :, None], np.exp(own - peak), 0.0)
        initial, moves = chain.initial.cpu().numpy(), chain.transitions.cpu().numpy()
        leave, stay = (np.ascontiguousarray(part[:, None, :, ::-1]) for part in (leave, stay))
        total = (peak[..., 0] * inside[:, None]).sum(0)
        return cls(initial[:, None], moves, leave, stay, values, total, ends)

    def back(self) -> _Behind:
        """Chances of what follows, from the last step to the first."""
        steps, restarts, num, size = self.densities.shape
        most, turned = self.leave.shape[-1], self.moves.swapaxes(-1, -2)
        out, begun = np.zeros((2, *self.densities.shape))
        scale = np.zeros((steps + 1, restarts, num))
        ahead = np.ones((restarts, num, size, steps))  # given that a visit is still on
        through = self.densities[-1]
        for t in range(steps - 1, -1, -1):
            if t < steps - 1:
                first = max(0, t - most + 1)
                ages = slice(most - 1 - (t - first), most)
                np.matmul(begun[t + 1], turned, out=out[t])
                own = ahead[..., first : t + 1]
                own *= self.stay[..., ages]
                own *= through[..., None]
                own += self.leave[..., ages] * out[t][..., None]
            if (ends := self.lengths == t + 1).any():
                ahead[:, ends, :, : t + 1] = 1.0
            here = self.densities[t] * ahead[..., t]
            total = (here if t else here * self.initial).sum(-1, keepdims=True)
            total = np.where(t < self.lengths[:, None], total, 1.0)
            begun[t], through = here / total, self.densities[t] / total
            scale[t] = scale[t + 1] + np.log(total[..., 0])
        return _Behind(out, begun, scale)

    def visits(self, behind: _Behind, often: Tensor) -> Visits | None:
        """Posterior from the first step to the last; None where chances got lost.

        Both ways must come to one likelihood. Beginnings are left out once they are impossible.
        """
        steps, restarts, num, size = self.densities.shape
        most, evidence = self.leave.shape[-1], behind.scale[0]
        on = np.zeros((restarts, num, size, steps))  # P(a visit that began then is on | the past)
        ended, still_open = np.zeros((2, restarts, num, size, most))
        begins, ends = np.zeros((2, steps, restarts, num, size))
        moved = np.zeros((restarts, num, size, size))
        scale, first, entered = np.zeros((restarts, num)), 0, self.initial
        for t in range(steps):
            first = max(first, t - most + 1)
            if t > first:
                on[..., first:t] *= self.stay[..., most - (t - first) : most]
            on[..., t] = entered
            own = on[..., first : t + 1]
            inside = t < self.lengths
            total = (self.densities[t] * own.sum(-1)).sum(-1)
            total = np.where(inside, total, 1.0)
            own *= (self.densities[t] / total[..., None])[..., None]
            before = np.exp(scale + behind.scale[t] - evidence)[..., None]
            begins[t] = entered * behind.begun[t] * before
            scale = scale + np.log(total)
            after = np.exp(scale + behind.scale[t + 1] - evidence)[..., None]
            ages = slice(most - 1 - (t - first), most)
            left = np.einsum("rbkn,rqkn->rbk", own, self.leave[..., ages])
            entered = left @ self.moves
            if t < steps - 1:
                out = behind.out[t] * after
                ends[t] = left * out
                moved += left[..., :, None] * (behind.begun[t + 1] * after)[..., None, :]
                ended[..., ages] += own * out[..., None]
            if (last := self.lengths == t + 1).any():
                still_open[:, last, :, ages] = own[:, last]
            if t % PRUNED == PRUNED - 1:
                own *= own > LEAST
                seen = (own > NEGLIGIBLE).any((0, 1, 2))
                first += int(seen.argmax()) if seen.any() else 0
        if not np.allclose(scale, evidence, rtol=1e-12, atol=AGREES):
            return None
        ended *= self.leave
        state = np.clip(np.cumsum(begins - np.concatenate([ends[:1] * 0, ends[:-1]]), 0), 0.0, 1.0)
        state *= (np.arange(steps)[:, None] < self.lengths)[:, None, :, None]
        weights = often.cpu().numpy()
        sums = (
            np.einsum("rbk,b->rk", begins[0], weights),
            self.moves * np.einsum("rbkl,b->rkl", moved, weights),
            *(np.einsum("rbkn,b->rkn", part, weights)[..., ::-1] for part in (ended, still_open)),
        )
        parts = state.transpose(1, 2, 0, 3), *sums, evidence + self.peak
        names = Visits.__dataclass_fields__
        found = (torch.from_numpy(np.ascontiguousarray(part)) for part in parts)
        return Visits(**dict(zip(names, found, strict=True)))


def _by_gradients(chain: SemiMarkov, densities: Tensor, lengths: Tensor, often: Tensor) -> Visits:
    """Posterior by differentiation of the log-density, one sequence after the other."""
    state, parts, values = torch.zeros_like(densities), [], []
    tables = chain.initial, chain.transitions, *chain.tables
    for b, length in enumerate(lengths.tolist()):
        own = densities[:, b : b + 1, :length]
        with torch.enable_grad():
            leaves = [part.detach().clone().requires_grad_() for part in (*tables, own)]
            visits = DurationTables(leaves[2], leaves[3])
            value = log_semi_markov_chain(leaves[0], leaves[1], visits, leaves[4])
            slopes = torch.autograd.grad(value.sum(), leaves, allow_unused=True)
        first, moves, ended, still_open, share = (
            torch.zeros_like(leaf) if slope is None else slope.nan_to_num(0.0, 0.0, 0.0)
            for leaf, slope in zip(leaves, slopes, strict=True)
        )
        state[:, b, :length] = share[:, 0]
        counts = first * chain.initial, moves * chain.transitions, ended, still_open
        parts.append([often[b] * part for part in counts])
        values.append(value.detach()[:, 0])
    first, moves, ended, still_open = (torch.stack(own).sum(0) for own in zip(*parts, strict=True))
    return Visits(state, first, moves, ended, still_open, torch.stack(values, -1))


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

    def given_others(self, densities: np.ndarray) -> np.ndarray:
        """P(state | all other steps), (B, T, K), of log-densities that are 0 behind an end."""
        found = np.empty_like(densities)
        for out, own in zip(found, densities, strict=True):
            before = [self.begin(1)[0]]
            for here in own[:-1]:
                logs = before[-1] + here[:, None]
                before.append(self.ahead(logs - logs.max()))
            behind = np.zeros_like(self.leave)
            for t in range(len(own) - 1, -1, -1):
                logs = _log_sum(before[t] + behind)
                out[t] = np.exp(logs - _log_sum(logs))
                through = own[t][:, None] + behind
                left = self.leave + _log_sum(self.moves + through[:, 0])[:, None]
                on = np.pad(through[:, 1:], ((0, 0), (0, 1)), constant_values=NEVER)
                behind = np.logaddexp(self.stay + on, left)
        return found


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
