"""Forward-backward along sequences under given policies: posteriors, paths, predictions.

The steps of a sequence come one after another, so a single long one would be slow. It is cut into
pieces of about the square root of its length. What a piece does to the options is a matrix, and its
rows are had by going through all pieces side by side, once for each option they could begin with;
then the pieces are tied together, and gone through again from where they really begin. The numbers
are those of the plain recursion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ppl_models.descriptions.options import ChainDescription, PolicyDescription, tables_of
from ppl_models.sequences.chain_plan import ChainPlan, plan_of
from ppl_models.sequences.codes import small_integers
from ppl_models.sequences.policy_chain import PolicyPlan, log_policies, policy_plan_of

FEW_OPTIONS = 8  # more options than this: not cut, as that costs so many times as much
SHORTEST = 256  # steps of a piece


@dataclass(frozen=True, eq=False)
class Parts:
    """Parameters of one chain, without names: (S, O), (S, O, A), (S, O, O), (A, S, S).

    With ``num_ages`` m above one its options are pairs of option and age, O times m.
    """

    initial: Tensor
    low: Tensor
    high: Tensor
    environment: Tensor
    num_ages: int = 1


def parts_of(chain: ChainDescription, params: Mapping[str, Tensor]) -> Parts:
    """Parameters of a chain by the model's description."""
    initial, low, high = (value.detach() for value in tables_of(chain, params))
    environment = params[chain.environment].detach()
    return Parts(initial, low, high, environment, chain.num_ages)


@dataclass(frozen=True, eq=False)
class Along:
    """Factors of every step of some sequences, as arrays.

    Args:
        table: (L + 1, O, O), transition times emission of the distinct steps, the identity last,
            which stands for a step after the end: everything passes through it; a step that begins
            a sequence has its factors in row 0.
        words: (P, C), the step of every time, in P pieces, those of a sequence one after another.
        row, begin: (P,), the sequence of each piece, and the time of its first step.
        lengths: (B,); width: of the data, at least the longest of them, T.
        before: (B, T, O, O), P(option | state, option before), the first options' distribution in
            row 0 at the first step; and low: (B, T, O, A), as functions, for prediction alone needs
            them.
    """

    table: np.ndarray
    words: np.ndarray
    row: np.ndarray
    begin: np.ndarray
    lengths: np.ndarray
    width: int
    before: Callable[[], np.ndarray]
    low: Callable[[], np.ndarray]
    num_ages: int = 1

    @property
    def num_options(self) -> int:
        """Number of options, O; of pairs of option and age where ages count."""
        return self.table.shape[-1]

    def of_options(self, chances: Tensor) -> Tensor:
        """Chances of options from those of pairs of option and age, along the last dim."""
        if self.num_ages == 1:
            return chances
        return chances.unflatten(-1, (-1, self.num_ages)).sum(-1)

    def options_of(self, path: Tensor) -> Tensor:
        """Options of a path of pairs of option and age; -1 after the end."""
        return path if self.num_ages == 1 else path.div(self.num_ages, rounding_mode="floor")

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of sequences and steps, (B, T)."""
        return len(self.lengths), int(self.lengths.max())

    @property
    def inside(self) -> np.ndarray:
        """Mask of steps before the ends, (B, T)."""
        inside: np.ndarray = np.arange(self.shape[1]) < self.lengths[:, None]
        return inside

    @property
    def is_last(self) -> np.ndarray:
        """Mask of last pieces of their sequences, (P,)."""
        return np.append(self.begin[1:] == 0, True)

    def factors(self, step: int) -> np.ndarray:
        """Factors of one step of every piece, (P, O, O)."""
        factors: np.ndarray = self.table[self.words[:, step]]
        return factors

    @cached_property
    def _pieces(self) -> tuple[np.ndarray, np.ndarray]:
        """Matrix of each piece, rows divided by their sums (P, O, O), and log-sums (P, O)."""
        size = self.num_options
        product = np.broadcast_to(np.eye(size), (len(self.words), size, size))
        scale = np.zeros(product.shape[:2])
        with np.errstate(divide="ignore"):
            for step in range(self.words.shape[1]):
                product = product @ self.factors(step)
                total = product.sum(-1)
                product = product / np.where(total > 0, total, 1.0)[..., None]
                scale += np.log(total)
        return product, scale

    def starts(self) -> np.ndarray:
        """Forward probabilities P(option before the piece | past), (P, O).

        Before a sequence all is in entry 0, as its first step wants.
        """
        out = np.zeros((len(self.words), self.num_options))
        out[:, 0] = 1.0
        if self.is_last.all():
            return out
        product, scale = self._pieces
        with np.errstate(divide="ignore", invalid="ignore"):
            for p in np.flatnonzero(~self.is_last):
                weight = np.log(out[p]) + scale[p]
                if weight.max() > -np.inf:
                    value = np.exp(weight - weight.max()) @ product[p]
                else:
                    value = np.zeros(self.num_options)
                out[p + 1] = value / value.sum() if value.any() else value
        return out

    def ends(self) -> np.ndarray:
        """Backward weights P(what follows the piece | option at its end), (P, O).

        Zero where the past rules the option out.
        """
        out = np.ones((len(self.words), self.num_options))
        if self.is_last.all():
            return out
        (product, scale), possible = self._pieces, self.starts() > 0
        with np.errstate(divide="ignore"):
            for p in np.flatnonzero(~self.is_last)[::-1]:
                weight = np.where(
                    possible[p + 1], np.log(product[p + 1] @ out[p + 1]) + scale[p + 1], -np.inf
                )
                out[p] = np.exp(weight - weight.max())
        return out

    def forward(self) -> tuple[np.ndarray, np.ndarray]:
        """Forward probabilities at every step, (C, P, O), and log-normalisers (C, P)."""
        pieces, steps = self.words.shape
        alpha = np.empty((steps, pieces, self.num_options))
        scale = np.empty((steps, pieces))
        value = self.starts()
        for step in range(steps):
            value = (value[:, None, :] @ self.factors(step))[:, 0]
            scale[step] = value.sum(-1)
            value = value / np.where(scale[step] > 0, scale[step], 1.0)[:, None]
            alpha[step] = value
        if not (scale > 0).all():
            p = int((~(scale > 0)).any(0).argmax())
            step = int(self.begin[p]) + int((~(scale[:, p] > 0)).argmax())
            raise ValueError(
                f"data: sequence {int(self.row[p])} is impossible under the parameters from step"
                f" {step} on"
            )
        return alpha, np.log(scale)

    def by_sequence(self, values: np.ndarray) -> np.ndarray:
        """Lay out pieces (C, P, ...) by sequence, (B, T, ...), zero after the ends."""
        inside = np.arange(self.words.shape[1]) < (self.lengths[self.row] - self.begin)[:, None]
        return self.at_steps(values.swapaxes(0, 1)[inside])

    def at_steps(self, flat: np.ndarray) -> np.ndarray:
        """Lay out (N, ...), one entry a step, as (B, T, ...), zero after the ends."""
        if len(self.lengths) == 1:
            return flat[None]
        out = np.zeros((*self.shape, *flat.shape[1:]), dtype=flat.dtype)
        out[self.inside] = flat
        return out

    def pad(self, value: np.ndarray, fill: float) -> Tensor:
        """Pad to (B, T, ...) with ``fill`` after the ends, as wide as the data."""
        if len(self.lengths) > 1:
            value = np.where(self.inside.reshape(self.shape + (1,) * (value.ndim - 2)), value, fill)
        if self.width > self.shape[1]:
            more = np.full(
                (len(value), self.width - self.shape[1], *value.shape[2:]), fill, dtype=value.dtype
            )
            value = np.concatenate([value, more], 1)
        return torch.from_numpy(np.ascontiguousarray(value))


def _along(
    leaves: Tensor,
    plan: ChainPlan | PolicyPlan,
    width: int,
    before: Callable[[], Tensor],
    low: Callable[[], Tensor],
    num_ages: int = 1,
) -> Along:
    """Steps from distinct matrices (L, O, O) and both policies, (N, O, O) and (N, O, A)."""
    table, lengths = leaves.detach().cpu().numpy(), plan.lengths
    size = table.shape[-1]
    longest = int(lengths.max())
    if size > FEW_OPTIONS:
        piece = longest
    else:
        piece = min(longest, max(SHORTEST, math.isqrt(int(lengths.sum()))))
    num = -(-lengths // piece)
    row = np.repeat(np.arange(len(lengths)), num)
    begin = (np.arange(len(row)) - np.repeat(np.cumsum(num) - num, num)) * piece
    words = np.full((len(row), piece), len(table), dtype=small_integers(len(table)))
    words[np.arange(piece) < (lengths[row] - begin)[:, None]] = plan.tree.steps()
    whole = np.concatenate([table, np.eye(size, dtype=table.dtype)[None]])

    def laid_out(policy: Callable[[], Tensor]) -> np.ndarray:
        return along.at_steps(policy().detach().cpu().numpy())

    along = Along(
        whole,
        words,
        row,
        begin,
        lengths,
        width,
        lambda: laid_out(before),
        lambda: laid_out(low),
        num_ages,
    )
    return along


def _begun(high: Tensor, initial: Tensor, lengths: np.ndarray) -> Tensor:
    """First options' distribution (B, O) put into row 0 where sequences begin, (N, O, O)."""
    starts = torch.from_numpy(np.cumsum(lengths) - lengths).to(high.device)
    first = torch.zeros_like(high[starts])
    first[:, 0] = initial
    return high.index_copy(0, starts, first)


def steps_of(parts: Parts, data: Tensor, labels: Tensor | None = None) -> Along:
    """The steps of packed sequences (B, T, 2) under tabular policies.

    ``labels``: log p(label | option) of every step, (B, T, O), on which they are conditional too.
    """
    if labels is not None and parts.num_ages > 1:
        labels = labels.repeat_interleave(parts.num_ages, -1)
    plan = plan_of(data, parts.environment.shape[-1], parts.environment.shape[0], labels)
    one = [value[None] for value in (parts.initial, parts.low, parts.high, parts.environment)]

    def states() -> Tensor:
        return data[..., 0][data[..., 0] >= 0]

    return _along(
        plan.leaves(*one)[0],
        plan,
        data.shape[1],
        lambda: _begun(parts.high[states()], parts.initial[data[:, 0, 0]], plan.lengths),
        lambda: parts.low[states()],
        parts.num_ages,
    )


def steps_along(
    about: PolicyDescription,
    params: Mapping[str, Tensor],
    data: Tensor,
    labels: Tensor | None = None,
) -> Along:
    """Steps of packed sequences (B, T, D + 1) under policies that are functions.

    ``labels``: as for :func:`steps_of`.
    """
    plan = policy_plan_of(data, labels)
    one = {name: value.detach()[None] for name, value in params.items()}

    def policies(which: int) -> Tensor:
        return log_policies(one, plan.states, about.policy)[which][0].exp()

    return _along(
        plan.log_leaves(one, about.policy)[0].exp(),
        plan,
        data.shape[1],
        lambda: _begun(policies(1), one["initial"].expand(len(plan.lengths), -1), plan.lengths),
        lambda: policies(0),
    )


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Posterior of the options.

    Args:
        option: (B, T, O), P(option | the whole sequence); zero after the end.
        pair: (B, T, O, O), P(option at the step before, option); zero at the first step. None where
            not asked for.
    """

    option: Tensor
    pair: Tensor | None


@dataclass(frozen=True, eq=False)
class MostProbable:
    """Most probable path of options.

    Args:
        option: (B, T), -1 after the end.
        log_joint: (B,), log p(path, actions | states) with the first state's probability.
    """

    option: Tensor
    log_joint: Tensor


def filter_(steps: Along) -> tuple[Tensor, Tensor]:
    """Filtered P(option | past and present) (B, T, O), and log-likelihood (B,)."""
    alpha, log_scale = steps.forward()
    # 0 after the end
    total = np.bincount(steps.row, log_scale.sum(0), minlength=len(steps.lengths))
    option = steps.of_options(steps.pad(steps.by_sequence(alpha), 0.0))
    return option, torch.from_numpy(total)


def smooth(steps: Along, pairs: bool = False) -> Smoothed:
    """Posterior of the options given whole sequences."""
    gamma, _ = steps.forward()
    beta, starts = steps.ends(), steps.starts() if pairs else None
    both = np.zeros((*gamma.shape, steps.num_options)) if pairs else None
    for t in range(len(gamma) - 1, -1, -1):
        factors = steps.factors(t)
        if both is not None and starts is not None:
            value = (gamma[t - 1] if t > 0 else starts)[:, :, None] * factors * beta[:, None, :]
            both[t] = value / value.sum((-2, -1), keepdims=True)
        gamma[t] *= beta
        gamma[t] /= gamma[t].sum(-1, keepdims=True)
        if t > 0:  # options that the past rules out must not set the scale
            beta = np.where(gamma[t - 1] > 0, (factors @ beta[:, :, None])[:, :, 0], 0.0)
            beta /= beta.max(-1, keepdims=True)
    if both is not None:
        both[0, steps.begin == 0] = 0.0
    option, pair = steps.of_options(steps.pad(steps.by_sequence(gamma), 0.0)), None
    if both is not None:
        pair = steps.of_options(steps.pad(steps.by_sequence(both), 0.0))
        pair = steps.of_options(pair.mT).mT
    return Smoothed(option, pair)


def _best_starts(steps: Along, log_table: np.ndarray) -> np.ndarray:
    """Log-probability of the best path to each option before a piece, (P, O).

    Before a sequence all is in entry 0.
    """
    out = np.full((len(steps.words), steps.num_options), -np.inf)
    out[:, 0] = 0.0
    if steps.is_last.all():
        return out
    with np.errstate(divide="ignore"):
        best = np.broadcast_to(np.log(np.eye(steps.num_options)), (len(out), *log_table.shape[1:]))
    for t in range(steps.words.shape[1]):
        best = (best[:, :, :, None] + log_table[steps.words[:, t]][:, None]).max(2)
    for p in np.flatnonzero(~steps.is_last):
        out[p + 1] = (out[p][:, None] + best[p]).max(0)
    return out


def viterbi(steps: Along) -> MostProbable:
    """Most probable path (Viterbi); ties go to the smaller index."""
    (pieces, length), size = steps.words.shape, steps.num_options
    with np.errstate(divide="ignore"):
        log_table = np.log(steps.table)
    score = _best_starts(steps, log_table)
    back = np.empty((length, pieces, size), dtype=np.min_scalar_type(size))
    for t in range(length):
        candidates = score[:, :, None] + log_table[steps.words[:, t]]
        back[t] = candidates.argmax(1)
        score = candidates.max(1)
    found = score.argmax(-1)  # of last pieces
    ends = (
        found[:, None] if steps.is_last.all() else np.broadcast_to(np.arange(size), (pieces, size))
    )  # all that could be
    paths = np.empty((length, *ends.shape), dtype=back.dtype)
    for t in range(length - 1, -1, -1):
        paths[t] = ends
        ends = np.take_along_axis(back[t], ends, -1)
    for p in np.flatnonzero(~steps.is_last)[::-1]:
        found[p] = ends[p + 1, found[p + 1]]
    own = paths[:, np.arange(pieces), found if paths.shape[-1] > 1 else 0]
    return MostProbable(
        steps.options_of(steps.pad(steps.by_sequence(own).astype(np.int64), -1)),
        torch.from_numpy(score[steps.is_last].max(-1)),
    )


def sample_paths(steps: Along, num_draws: int, seed: int) -> Tensor:
    """Exact joint draws of the options, (num_draws, B, T); -1 after the end."""
    alpha, _ = steps.forward()
    (pieces, length), size = steps.words.shape, steps.num_options
    generator = np.random.default_rng(seed)
    alone = steps.is_last.all()
    # by the first option of the next piece, one after the other
    following = np.ones((pieces, 1 if alone else size, size))
    if not alone:
        following[:-1] = np.where(
            steps.is_last[:-1, None, None], 1.0, steps.factors(0)[1:].swapaxes(-1, -2)
        )
    out = np.empty((length, num_draws, pieces, following.shape[1]), dtype=np.min_scalar_type(size))
    weight = alpha[-1][:, None, :] * following
    each = np.arange(pieces)[:, None]
    for t in range(length - 1, -1, -1):
        total = np.broadcast_to(weight.cumsum(-1), (*out.shape[1:], size))
        uniform = generator.random((num_draws, pieces, 1, 1)) * total[..., -1:]
        out[t] = np.minimum((uniform >= total).sum(-1), size - 1)
        if t > 0:
            weight = alpha[t - 1][:, None, :] * steps.factors(t).swapaxes(-1, -2)[each, out[t]]
    chosen = np.zeros((pieces, num_draws), dtype=np.int64)
    every = np.arange(num_draws)
    for p in np.flatnonzero(~steps.is_last)[::-1]:
        chosen[p] = out[0, every, p + 1, chosen[p + 1]]
    drawn = np.take_along_axis(out, chosen.T[None, :, :, None], -1)[..., 0]  # (C, M, P)
    paths = [
        steps.pad(steps.by_sequence(drawn[:, m]).astype(np.int64), -1) for m in range(num_draws)
    ]
    return steps.options_of(torch.stack(paths))


def predict(steps: Along) -> Tensor:
    """Predictive P(action | this state, everything before), (B, T, A); zero after the end."""
    alpha = steps.by_sequence(steps.forward()[0])
    before = steps.before()
    option = np.empty((*steps.shape, steps.num_options))
    option[:, 0] = before[:, 0, 0] / before[:, 0, 0].sum(-1, keepdims=True)
    option[:, 1:] = np.einsum("bto,btop->btp", alpha[:, :-1], before[:, 1:])
    return steps.pad(np.einsum("bto,btoa->bta", option, steps.low()), 0.0)


# ---------------------------------------------------------------- for users
