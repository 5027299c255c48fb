r"""What the data say of the options of every step: filtering, smoothing, most probable paths, draws, prediction.

One time step after another, all sequences side by side. Functions on arrays take :class:`Parts`, those for users a fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ppl_models.chain_plan import ChainPlan, plan_of
from ppl_models.option_chain import ChainDescription, with_high
from ppl_models.policy_chain import PolicyDescription, PolicyPlan, draw_along, log_policies, policy_plan_of
from ppl_models.word_codes import small_integers

if TYPE_CHECKING:
    from inference.result import Fit

__all__ = [
    "Along",
    "LikelihoodParts",
    "MostProbable",
    "Parts",
    "Smoothed",
    "filter_options",
    "log_likelihood_parts",
    "parts_of",
    "predict_actions",
    "sample_options",
    "simulate_actions",
    "smooth_options",
    "steps_along",
    "steps_of",
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
    params = with_high(chain, params)
    return Parts(*(params[name].detach() for name in (chain.initial, chain.low, chain.high, chain.environment)))


@dataclass(frozen=True, eq=False)
class Along:
    """The factors of every step of some sequences, as arrays; made by :func:`steps_of` or :func:`steps_along`.

    Args:
        table: (L + 1, O, O), transition times emission of the distinct steps, the identity last, which stands for a step
            after the end: everything passes through it; a step that begins a sequence has its factors in row 0.
        words: (B, T), the step of every time; lengths: (B,).
        width: of the data, at least T.
        before: (B, T, O, O), P(option | state, option before), the first options' law in row 0 at the first step; and
            low: (B, T, O, A), as functions, for prediction alone needs them.
    """

    table: np.ndarray
    words: np.ndarray
    lengths: np.ndarray
    width: int
    before: Callable[[], np.ndarray]
    low: Callable[[], np.ndarray]

    @property
    def num_options(self) -> int:
        return self.table.shape[-1]

    @property
    def shape(self) -> tuple[int, int]:
        return self.words.shape[0], self.words.shape[1]

    @property
    def inside(self) -> np.ndarray:
        inside: np.ndarray = np.arange(self.shape[1]) < self.lengths[:, None]
        return inside

    @property
    def first(self) -> np.ndarray:
        first: np.ndarray = self.table[self.words[:, 0], 0]
        return first

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

    def at_steps(self, flat: np.ndarray) -> np.ndarray:
        """(N, ...), one entry a step, sequences one after another -> (B, T, ...), zero after the ends."""
        out = np.zeros((*self.shape, *flat.shape[1:]), dtype=flat.dtype)
        out[self.inside] = flat
        return out

    def pad(self, value: np.ndarray, fill: float) -> Tensor:
        """(B, T, ...) with ``fill`` after the ends, as wide as the data."""
        value = np.where(self.inside.reshape(self.shape + (1,) * (value.ndim - 2)), value, fill)
        if self.width > self.shape[1]:
            more = np.full((len(value), self.width - self.shape[1], *value.shape[2:]), fill, dtype=value.dtype)
            value = np.concatenate([value, more], 1)
        return torch.from_numpy(np.ascontiguousarray(value))


def _along(
    leaves: Tensor, plan: ChainPlan | PolicyPlan, width: int, before: Callable[[], Tensor], low: Callable[[], Tensor]
) -> Along:
    """From the matrices of the distinct steps (L, O, O), and both policies at every step, (N, O, O) and (N, O, A)."""
    table = leaves.detach().cpu().numpy()
    size = table.shape[-1]
    steps = plan.tree.steps()
    words = np.full((len(plan.lengths), int(plan.lengths.max())), len(table), dtype=small_integers(len(table)))
    words[np.arange(words.shape[1]) < plan.lengths[:, None]] = steps
    whole = np.concatenate([table, np.eye(size, dtype=table.dtype)[None]])

    def laid_out(policy: Callable[[], Tensor]) -> np.ndarray:
        return along.at_steps(policy().detach().cpu().numpy())

    along = Along(whole, words, plan.lengths, width, lambda: laid_out(before), lambda: laid_out(low))
    return along


def _begun(high: Tensor, initial: Tensor, lengths: np.ndarray) -> Tensor:
    """(N, O, O), the law of the first options (B, O) put into row 0 where a sequence begins."""
    starts = torch.from_numpy(np.cumsum(lengths) - lengths).to(high.device)
    first = torch.zeros_like(high[starts])
    first[:, 0] = initial
    return high.index_copy(0, starts, first)


def steps_of(parts: Parts, data: Tensor) -> Along:
    """The steps of packed sequences (B, T, 2) under tabular policies."""
    plan = plan_of(data, parts.environment.shape[-1], parts.environment.shape[0])
    one = [value[None] for value in (parts.initial, parts.low, parts.high, parts.environment)]
    state = data[..., 0][data[..., 0] >= 0]
    return _along(
        plan.leaves(*one)[0], plan, data.shape[1],
        lambda: _begun(parts.high[state], parts.initial[data[:, 0, 0]], plan.lengths), lambda: parts.low[state],
    )  # fmt: skip


def steps_along(about: PolicyDescription, params: Mapping[str, Tensor], data: Tensor) -> Along:
    """The steps of packed sequences (B, T, D + 1) under policies that are functions of the state."""
    plan = policy_plan_of(data)
    one = {name: value.detach()[None] for name, value in params.items()}

    def policies(which: int) -> Tensor:
        return log_policies(one, plan.states, about.policy)[which][0].exp()

    return _along(
        plan.log_leaves(one, about.policy)[0].exp(), plan, data.shape[1],
        lambda: _begun(policies(1), one["initial"].expand(len(plan.lengths), -1), plan.lengths), lambda: policies(0),
    )  # fmt: skip


def filter_(steps: Along) -> tuple[Tensor, Tensor]:
    """P(option | the sequence up to this step) (B, T, O), and log-likelihood (B,) with the first state's, without moves."""
    alpha, log_scale = steps.forward()
    return steps.pad(alpha.swapaxes(0, 1), 0.0), torch.from_numpy(log_scale.sum(0))


def smooth(steps: Along, pairs: bool = False) -> Smoothed:
    """Posterior of the options given whole sequences."""
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


def viterbi(steps: Along) -> MostProbable:
    """The most probable path; ties go to the smaller index."""
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


def sample_paths(steps: Along, num_draws: int, seed: int) -> Tensor:
    """Exact joint draws of the options, (num_draws, B, T); -1 after the end."""
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


def predict(steps: Along) -> Tensor:
    """P(action | this state, everything before), (B, T, A); zero after the end."""
    alpha, _ = steps.forward()
    before = steps.before()
    option = np.empty((*steps.shape, steps.num_options))
    option[:, 0] = before[:, 0, 0] / before[:, 0, 0].sum(-1, keepdims=True)
    option[:, 1:] = np.einsum("tbo,btop->btp", alpha[:-1], before[:, 1:])
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
