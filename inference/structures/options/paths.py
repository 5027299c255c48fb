"""What the data say of the options of every step: filtering, smoothing, most probable paths, draws, prediction.

Functions on arrays take :class:`~inference.structures.options.forward_backward.Along`, those for users a fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from inference.structures.options.forward_backward import Along, parts_of, steps_along, steps_of
from ppl_models.sequences.chain_plan import plan_of
from ppl_models.sequences.policy_chain import draw_along

if TYPE_CHECKING:
    from inference.fitting.result import Fit

__all__ = [
    "LikelihoodParts",
    "MostProbable",
    "Smoothed",
    "filter_options",
    "log_likelihood_parts",
    "predict_actions",
    "sample_options",
    "simulate_actions",
    "smooth_options",
    "viterbi_options",
]


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Posterior of the options.

    Args:
        option: (B, T, O), P(option | the whole sequence); zero after the end.
        pair: (B, T, O, O), P(option at the step before, option); zero at the first step. None where not asked for.
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


@dataclass(frozen=True, eq=False)
class LikelihoodParts:
    """Log-likelihood of every sequence in parts, each (B,); their sum is the program's.

    Args:
        actions: of the actions given the states, options summed out: the one to compare with other codes; where an
            action is missing, of the next state.
        first_state: of the first state.
        moves: of the next states given states and actions.
    """

    actions: Tensor
    first_state: Tensor
    moves: Tensor


def filter_(steps: Along) -> tuple[Tensor, Tensor]:
    """P(option | the sequence up to this step) (B, T, O), and log-likelihood (B,) with the first state's, without moves."""
    alpha, log_scale = steps.forward()
    total = np.bincount(steps.row, log_scale.sum(0), minlength=len(steps.lengths))  # 0 after the end
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
    return Smoothed(steps.pad(steps.by_sequence(gamma), 0.0), None if both is None else steps.pad(steps.by_sequence(both), 0.0))


def _best_starts(steps: Along, log_table: np.ndarray) -> np.ndarray:
    """(P, O), the log-probability of the best path to each option before a piece; before a sequence all is in entry 0."""
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
    ends = found[:, None] if steps.is_last.all() else np.broadcast_to(np.arange(size), (pieces, size))  # all that could be
    paths = np.empty((length, *ends.shape), dtype=back.dtype)
    for t in range(length - 1, -1, -1):
        paths[t] = ends
        ends = np.take_along_axis(back[t], ends, -1)
    for p in np.flatnonzero(~steps.is_last)[::-1]:
        found[p] = ends[p + 1, found[p + 1]]
    own = paths[:, np.arange(pieces), found if paths.shape[-1] > 1 else 0]
    return MostProbable(steps.pad(steps.by_sequence(own).astype(np.int64), -1), torch.from_numpy(score[steps.is_last].max(-1)))


def sample_paths(steps: Along, num_draws: int, seed: int) -> Tensor:
    """Exact joint draws of the options, (num_draws, B, T); -1 after the end."""
    alpha, _ = steps.forward()
    (pieces, length), size = steps.words.shape, steps.num_options
    generator = np.random.default_rng(seed)
    alone = steps.is_last.all()
    following = np.ones((pieces, 1 if alone else size, size))  # by the first option of the next piece, one after the other
    if not alone:
        following[:-1] = np.where(steps.is_last[:-1, None, None], 1.0, steps.factors(0)[1:].swapaxes(-1, -2))
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
    return torch.stack([steps.pad(steps.by_sequence(drawn[:, m]).astype(np.int64), -1) for m in range(num_draws)])


def predict(steps: Along) -> Tensor:
    """P(action | this state, everything before), (B, T, A); zero after the end."""
    alpha = steps.by_sequence(steps.forward()[0])
    before = steps.before()
    option = np.empty((*steps.shape, steps.num_options))
    option[:, 0] = before[:, 0, 0] / before[:, 0, 0].sum(-1, keepdims=True)
    option[:, 1:] = np.einsum("bto,btop->btp", alpha[:, :-1], before[:, 1:])
    return steps.pad(np.einsum("bto,btoa->bta", option, steps.low()), 0.0)


# ---------------------------------------------------------------- for users


def _checked(fit: Fit, data: Any, caller: str) -> Tensor:
    if not (hasattr(fit.model, "chain") or hasattr(fit.model, "policy_chain")):
        raise ValueError(f"{caller}: a model of hidden options was expected, got {type(fit.model).__name__}")
    checked: Tensor = fit.model.check_data(data, for_fit=False)[0]  # type: ignore[attr-defined]
    return checked


def _of_fit(fit: Fit, data: Any, caller: str) -> Along:
    checked, model = _checked(fit, data, caller), fit.model
    if hasattr(model, "policy_chain"):
        return steps_along(model.policy_chain(), fit.params, checked)
    return steps_of(parts_of(model.chain(), fit.params), checked)  # type: ignore[attr-defined]


def filter_options(fit: Fit, data: Any) -> Tensor:
    """P(option | the sequence up to and with this step), (B, T, O): which option is on now.

    Where the action is missing the next state is used too, as it says something of that action.

    Raises:
        ValueError: if the model has no options, or ``data`` does not fit it.
    """
    return filter_(_of_fit(fit, data, "filter_options"))[0]


def smooth_options(fit: Fit, data: Any, pairs: bool = False) -> Smoothed:
    """P(option | the whole sequence), and of pairs of successive options if asked for.

    Raises:
        ValueError: if the model has no options, or ``data`` does not fit it.
    """
    return smooth(_of_fit(fit, data, "smooth_options"), pairs)


def viterbi_options(fit: Fit, data: Any) -> MostProbable:
    """The most probable path of options of every sequence; ties go to the smaller index.

    Raises:
        ValueError: if the model has no options, or ``data`` does not fit it.
    """
    return viterbi(_of_fit(fit, data, "viterbi_options"))


def sample_options(fit: Fit, data: Any, num_draws: int = 1, seed: int = 0) -> Tensor:
    """Exact joint draws of whole paths of options, (num_draws, B, T); -1 after the end.

    Raises:
        ValueError: if the model has no options, ``data`` does not fit it, or ``num_draws`` is not positive.
    """
    if isinstance(num_draws, bool) or not isinstance(num_draws, int) or num_draws < 1:
        raise ValueError(f"sample_options: num_draws must be a positive integer, got {num_draws!r}")
    return sample_paths(_of_fit(fit, data, "sample_options"), num_draws, seed)


def predict_actions(fit: Fit, data: Any) -> Tensor:
    """P(action | this state and all before it), (B, T, A), one step ahead; zero after the end.

    Raises:
        ValueError: if the model has no options, or ``data`` does not fit it.
    """
    return predict(_of_fit(fit, data, "predict_actions"))


def simulate_actions(fit: Fit, data: Any, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Options and actions drawn along the continuous states of ``data``, whose actions are not looked at.

    Returns:
        Options and actions, (B, T) each, -1 after the end.

    Raises:
        ValueError: if the model's states are not continuous, or ``data`` does not fit it.
    """
    if not hasattr(fit.model, "policy_chain"):
        raise ValueError(
            "simulate_actions: a model along continuous states was expected; fit.simulate draws states too"
        )
    checked, about = _checked(fit, data, "simulate_actions"), fit.model.policy_chain()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        drawn = draw_along({name: value[None] for name, value in fit.params.items()}, checked[..., :-1], about.policy)
    after = checked[..., 0].isnan()
    return drawn[0].masked_fill(after, -1), drawn[1].masked_fill(after, -1)


def log_likelihood_parts(fit: Fit, data: Any) -> LikelihoodParts:
    """The log-likelihood of every sequence, told apart: actions given states, first states, moves.

    Along continuous states, which have no law of their own here, the last two are zero.

    Raises:
        ValueError: if the model has no options, or ``data`` does not fit it.
    """
    checked, model = _checked(fit, data, "log_likelihood_parts"), fit.model
    if hasattr(model, "policy_chain"):
        actions = fit.log_likelihood_rows(data)
        return LikelihoodParts(actions, torch.zeros_like(actions), torch.zeros_like(actions))
    parts = parts_of(model.chain(), fit.params)  # type: ignore[attr-defined]
    num_actions, num_states = parts.environment.shape[0], parts.environment.shape[-1]
    plan = plan_of(checked, num_states, num_actions)
    one = [value[None] for value in (parts.initial, parts.low, parts.high, parts.environment)]
    first = parts.initial.sum(-1).log()[checked[:, 0, 0]]
    return LikelihoodParts(plan.log_actions(*one)[0] - first, first, plan.log_moves(one[3])[0])
