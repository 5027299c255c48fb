r"""What the data say of the options of every step: filtering, smoothing, most probable paths, draws, prediction.

One time step after another, all sequences side by side. Functions on arrays take :class:`Parts`, those for users a fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ppl_models.option_chain import ChainDescription, ChainPlan, plan_of

if TYPE_CHECKING:
    from inference.result import Fit

__all__ = [
    "LikelihoodParts",
    "MostProbable",
    "Parts",
    "Smoothed",
    "filter_options",
    "log_likelihood_parts",
    "parts_of",
    "predict_actions",
    "sample_options",
    "smooth_options",
    "viterbi_options",
]


@dataclass(frozen=True, eq=False)
class Parts:
    """One set of parameters, without names: (S, O), (S, O, A), (S, O, O), (A, S, S)."""

    initial: Tensor
    low: Tensor
    high: Tensor
    environment: Tensor


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


def parts_of(chain: ChainDescription, params: Mapping[str, Tensor]) -> Parts:
    """The parameters of a model that describes its chain."""
    return Parts(*(params[name].detach() for name in (chain.initial, chain.low, chain.high, chain.environment)))


class _Steps:
    """The factors of every step, as arrays.

    ``first`` (B, O) and ``factor(t)`` (B, O, O) = high * emission; after the end of a sequence the factor is the
    identity, so that everything passes through it.
    """

    def __init__(self, parts: Parts, data: Tensor) -> None:
        num_actions, num_states = parts.environment.shape[0], parts.environment.shape[-1]
        self.plan: ChainPlan = plan_of(data, num_states, num_actions)
        one = [value[None] for value in (parts.initial, parts.low, parts.high, parts.environment)]
        leaves = self.plan.leaves(*one)[0].cpu().numpy()
        self.num_options = leaves.shape[-1]
        self.table = np.concatenate([leaves, np.eye(self.num_options)[None]])
        self.lengths = self.plan.lengths
        self.shape = (len(self.lengths), int(self.lengths.max()))
        self.inside = np.arange(self.shape[1]) < self.lengths[:, None]
        self.words = np.full(self.shape, len(leaves))
        self.words[self.inside] = self.plan.words
        self.first = self.table[self.words[:, 0], 0]
        self.width = data.shape[1]

    def forward(self) -> tuple[np.ndarray, np.ndarray]:
        """Filtered (T, B, O) and the log of each step's normaliser (T, B)."""
        rows, steps = self.shape
        alpha = np.empty((steps, rows, self.num_options))
        scale = np.empty((steps, rows))
        for t in range(steps):
            if t == 0:
                value = self.first
            else:
                value = (alpha[t - 1][:, None, :] @ self.table[self.words[:, t]])[:, 0]
            total = value.sum(-1)
            if not (total > 0).all():
                row = int((~(total > 0)).argmax())
                raise ValueError(f"data: sequence {row} is impossible under the parameters from step {t} on")
            scale[t] = total
            alpha[t] = value / total[:, None]
        return alpha, np.log(scale)

    def backward(self) -> np.ndarray:
        """Scaled P(what comes later | option), (T, B, O)."""
        rows, steps = self.shape
        beta = np.empty((steps, rows, self.num_options))
        beta[-1] = 1.0
        for t in range(steps - 2, -1, -1):
            value = (self.table[self.words[:, t + 1]] @ beta[t + 1][:, :, None])[:, :, 0]
            beta[t] = value / value.max(-1, keepdims=True)
        return beta

    def pad(self, value: np.ndarray, fill: float) -> Tensor:
        """(B, T, ...) with ``fill`` after the ends, as wide as the data."""
        value = np.where(self.inside.reshape(self.shape + (1,) * (value.ndim - 2)), value, fill)
        if self.width > self.shape[1]:
            more = np.full((len(value), self.width - self.shape[1], *value.shape[2:]), fill, dtype=value.dtype)
            value = np.concatenate([value, more], 1)
        return torch.from_numpy(np.ascontiguousarray(value))


def filter_(parts: Parts, data: Tensor) -> tuple[Tensor, Tensor]:
    """P(option | the sequence up to this step) (B, T, O), and log-likelihood (B,) with the first state's, without moves."""
    steps = _Steps(parts, data)
    alpha, log_scale = steps.forward()
    return steps.pad(alpha.swapaxes(0, 1), 0.0), torch.from_numpy(log_scale.sum(0))


def smooth(parts: Parts, data: Tensor, pairs: bool = False) -> Smoothed:
    """Posterior of the options given whole sequences."""
    steps = _Steps(parts, data)
    alpha, _ = steps.forward()
    beta = steps.backward()
    gamma = alpha * beta
    gamma /= gamma.sum(-1, keepdims=True)
    pair = None
    if pairs:
        both = np.zeros((*steps.shape, steps.num_options, steps.num_options))
        for t in range(1, steps.shape[1]):
            value = alpha[t - 1][:, :, None] * steps.table[steps.words[:, t]] * beta[t][:, None, :]
            both[:, t] = value / value.sum((-2, -1), keepdims=True)
        pair = steps.pad(both, 0.0)
    return Smoothed(steps.pad(gamma.swapaxes(0, 1), 0.0), pair)


def viterbi(parts: Parts, data: Tensor) -> MostProbable:
    """The most probable path; ties go to the smaller index."""
    steps = _Steps(parts, data)
    rows, length = steps.shape
    with np.errstate(divide="ignore"):
        log_table, score = np.log(steps.table), np.log(steps.first)
    back = np.empty((length, rows, steps.num_options), dtype=np.int32)
    for t in range(1, length):
        candidates = score[:, :, None] + log_table[steps.words[:, t]]
        back[t] = candidates.argmax(1)
        score = candidates.max(1)
    path = np.empty((rows, length), dtype=np.int64)
    path[:, -1] = score.argmax(-1)
    for t in range(length - 1, 0, -1):
        path[:, t - 1] = back[t][np.arange(rows), path[:, t]]
    return MostProbable(steps.pad(path, -1), torch.from_numpy(score.max(-1)))


def sample_paths(parts: Parts, data: Tensor, num_draws: int, seed: int) -> Tensor:
    """Exact joint draws of the options, (num_draws, B, T); -1 after the end."""
    steps = _Steps(parts, data)
    alpha, _ = steps.forward()
    rows, length = steps.shape
    generator = np.random.default_rng(seed)
    out = np.empty((num_draws, rows, length), dtype=np.int64)
    for t in range(length - 1, -1, -1):
        weight = np.broadcast_to(alpha[t], (num_draws, rows, steps.num_options))
        if t + 1 < length:
            later = steps.table[steps.words[:, t + 1]].swapaxes(-1, -2)  # (B, next, option)
            weight = weight * later[np.arange(rows), out[:, :, t + 1]]
        total = weight.cumsum(-1)
        uniform = generator.random((num_draws, rows, 1)) * total[..., -1:]
        out[:, :, t] = np.minimum((uniform >= total).sum(-1), steps.num_options - 1)
    return torch.stack([steps.pad(draw, -1) for draw in out])


def predict(parts: Parts, data: Tensor) -> Tensor:
    """P(action | this state, everything before), (B, T, A); zero after the end."""
    alpha, _ = filter_(parts, data)
    state = data[..., 0].clamp(min=0).cpu()
    low, high, initial = parts.low.cpu(), parts.high.cpu(), parts.initial.cpu()
    first = initial[state[:, :1]]
    ahead = torch.einsum("bto,btop->btp", alpha[:, :-1], high[state[:, 1:]])
    option = torch.cat([first / first.sum(-1, keepdim=True).clamp(min=1e-300), ahead], 1)
    out = torch.einsum("bto,btoa->bta", option, low[state])
    return out * (data[..., :1] >= 0).cpu()


# ---------------------------------------------------------------- for users


def _of_fit(fit: Fit, data: Any, caller: str) -> tuple[Parts, Tensor]:
    if not hasattr(fit.model, "chain"):
        raise ValueError(f"{caller}: a model of hidden options was expected, got {type(fit.model).__name__}")
    checked, _ = fit.model.check_data(data, for_fit=False)  # type: ignore[attr-defined]
    return parts_of(fit.model.chain(), fit.params), checked


def filter_options(fit: Fit, data: Any) -> Tensor:
    """P(option | the sequence up to and with this step), (B, T, O): which option is on now.

    Where the action is missing the next state is used too, as it says something of that action.

    Raises:
        ValueError: if the model has no options, or ``data`` does not fit it.
    """
    return filter_(*_of_fit(fit, data, "filter_options"))[0]


def smooth_options(fit: Fit, data: Any, pairs: bool = False) -> Smoothed:
    """P(option | the whole sequence), and of pairs of successive options if asked for.

    Raises:
        ValueError: if the model has no options, or ``data`` does not fit it.
    """
    return smooth(*_of_fit(fit, data, "smooth_options"), pairs)


def viterbi_options(fit: Fit, data: Any) -> MostProbable:
    """The most probable path of options of every sequence; ties go to the smaller index.

    Raises:
        ValueError: if the model has no options, or ``data`` does not fit it.
    """
    return viterbi(*_of_fit(fit, data, "viterbi_options"))


def sample_options(fit: Fit, data: Any, num_draws: int = 1, seed: int = 0) -> Tensor:
    """Exact joint draws of whole paths of options, (num_draws, B, T); -1 after the end.

    Raises:
        ValueError: if the model has no options, ``data`` does not fit it, or ``num_draws`` is not positive.
    """
    if isinstance(num_draws, bool) or not isinstance(num_draws, int) or num_draws < 1:
        raise ValueError(f"sample_options: num_draws must be a positive integer, got {num_draws!r}")
    return sample_paths(*_of_fit(fit, data, "sample_options"), num_draws, seed)


def predict_actions(fit: Fit, data: Any) -> Tensor:
    """P(action | this state and all before it), (B, T, A), one step ahead; zero after the end.

    Raises:
        ValueError: if the model has no options, or ``data`` does not fit it.
    """
    return predict(*_of_fit(fit, data, "predict_actions"))


def log_likelihood_parts(fit: Fit, data: Any) -> LikelihoodParts:
    """The log-likelihood of every sequence, told apart: actions given states, first states, moves.

    Raises:
        ValueError: if the model has no options, or ``data`` does not fit it.
    """
    parts, checked = _of_fit(fit, data, "log_likelihood_parts")
    num_actions, num_states = parts.environment.shape[0], parts.environment.shape[-1]
    plan = plan_of(checked, num_states, num_actions)
    one = [value[None] for value in (parts.initial, parts.low, parts.high, parts.environment)]
    first = parts.initial.sum(-1).log()[checked[:, 0, 0]]
    return LikelihoodParts(plan.log_actions(*one)[0] - first, first, plan.log_moves(one[3])[0])
