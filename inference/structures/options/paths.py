"""What the data say of the options of every step: filtering, smoothing, most probable paths, draws,
prediction.

Functions on arrays take :class:`~inference.structures.options.forward_backward.Along`, those for
users a fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from inference.structures.options.forward_backward import Along


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
    """The most probable path of options.

    Args:
        option: (B, T), -1 after the end.
        log_joint: (B,), log p(path, actions | states) with the first state's probability.
    """

    option: Tensor
    log_joint: Tensor


def filter_(steps: Along) -> tuple[Tensor, Tensor]:
    """P(option | the sequence up to this step) (B, T, O), and log-likelihood (B,) with the first
    state's, without moves.
    """
    alpha, log_scale = steps.forward()
    total = np.bincount(
        steps.row, log_scale.sum(0), minlength=len(steps.lengths)
    )  # 0 after the end
    return steps.pad(steps.by_sequence(alpha), 0.0), torch.from_numpy(total)


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
    return Smoothed(
        steps.pad(steps.by_sequence(gamma), 0.0),
        None if both is None else steps.pad(steps.by_sequence(both), 0.0),
    )


def _best_starts(steps: Along, log_table: np.ndarray) -> np.ndarray:
    """(P, O), the log-probability of the best path to each option before a piece; before a sequence
    all is in entry 0.
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
    """The most probable path; ties go to the smaller index."""
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
        steps.pad(steps.by_sequence(own).astype(np.int64), -1),
        torch.from_numpy(score[steps.is_last].max(-1)),
    )


def sample_paths(steps: Along, num_draws: int, seed: int) -> Tensor:
    """Exact joint draws of the options, (num_draws, B, T); -1 after the end."""
    alpha, _ = steps.forward()
    (pieces, length), size = steps.words.shape, steps.num_options
    generator = np.random.default_rng(seed)
    alone = steps.is_last.all()
    following = np.ones(
        (pieces, 1 if alone else size, size)
    )  # by the first option of the next piece, one after the other
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
    return torch.stack(
        [steps.pad(steps.by_sequence(drawn[:, m]).astype(np.int64), -1) for m in range(num_draws)]
    )


def predict(steps: Along) -> Tensor:
    """P(action | this state, everything before), (B, T, A); zero after the end."""
    alpha = steps.by_sequence(steps.forward()[0])
    before = steps.before()
    option = np.empty((*steps.shape, steps.num_options))
    option[:, 0] = before[:, 0, 0] / before[:, 0, 0].sum(-1, keepdims=True)
    option[:, 1:] = np.einsum("bto,btop->btp", alpha[:, :-1], before[:, 1:])
    return steps.pad(np.einsum("bto,btoa->bta", option, steps.low()), 0.0)


# ---------------------------------------------------------------- for users
