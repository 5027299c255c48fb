"""Inspection of hidden options: filtering, smoothing, paths, draws and prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inference.fitting.columns import checked_as_fitted
from inference.programs.global_state import isolated
from inference.structures.options.forward_backward import (
    Along,
    MostProbable,
    Smoothed,
    filter_,
    parts_of,
    predict,
    sample_paths,
    smooth,
    steps_along,
    steps_of,
    viterbi,
)
from ppl_models.descriptions.options import ChainDescription, PolicyDescription
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_size
from ppl_models.sequences.chain_plan import plan_of
from ppl_models.sequences.policy_chain import draw_along

if TYPE_CHECKING:
    from inference.fitting.result import Fit


@shows_briefly
@dataclass(frozen=True, eq=False)
class LikelihoodParts:
    """Log-likelihood of every sequence in parts, each (B,); their sum is the program's.

    Args:
        actions: of the actions given the states, options summed out: the one to compare with other
            codes; where an action is missing, of the next state.
        first_state: of the first state.
        moves: of the next states given states and actions.
    """

    actions: Tensor
    first_state: Tensor
    moves: Tensor


def _checked(fit: Fit, data: Any, caller: str) -> Tensor:
    if not isinstance(fit.structure.about, ChainDescription | PolicyDescription):
        raise ValueError(
            f"{caller}: a model of hidden options was expected, got {type(fit.model).__name__}"
        )
    packed: Tensor = checked_as_fitted(fit, data)[0]
    return packed


def _of_fit(fit: Fit, data: Any, caller: str) -> Along:
    packed, about = _checked(fit, data, caller), fit.structure.about
    if isinstance(about, PolicyDescription):
        return steps_along(about, fit.params, packed)
    return steps_of(parts_of(about, fit.params), packed)


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


def sample_options(fit: Fit, data: Any, num_draws: int = 1, seed: Seed = 0) -> Tensor:
    """Exact joint draws of whole paths of options, (num_draws, B, T); -1 after the end.

    Args:
        fit: of a model with options.
        data: sequences, as for the fit.
        num_draws: paths of each sequence.
        seed: of the draws.

    Raises:
        ValueError: if the model has no options, ``data`` does not fit it, or ``num_draws`` is not
            positive.
    """
    seed = as_seed("sample_options", seed)
    check_size("sample_options", "num_draws", num_draws)
    return sample_paths(_of_fit(fit, data, "sample_options"), num_draws, seed)


def predict_actions(fit: Fit, data: Any) -> Tensor:
    """P(action | this state and all before it), (B, T, A), one step ahead; zero after the end.

    Raises:
        ValueError: if the model has no options, or ``data`` does not fit it.
    """
    return predict(_of_fit(fit, data, "predict_actions"))


def simulate_actions(fit: Fit, data: Any, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw options and actions along the continuous states of ``data``.

    The actions of ``data`` are not looked at.

    Returns:
        Options and actions, (B, T) each, -1 after the end.
    """
    about = fit.structure.about
    if not isinstance(about, PolicyDescription):
        raise ValueError(
            "simulate_actions: a model along continuous states was expected; fit.simulate draws"
            " states too"
        )
    checked = _checked(fit, data, "simulate_actions")
    with isolated(seed), torch.no_grad():
        drawn = draw_along(
            {name: value[None] for name, value in fit.params.items()},
            checked[..., :-1],
            about.policy,
        )
    after = checked[..., 0].isnan()
    return drawn[0].masked_fill(after, -1), drawn[1].masked_fill(after, -1)


def log_likelihood_parts(fit: Fit, data: Any) -> LikelihoodParts:
    """Log-likelihood of every sequence in parts: actions, first states, moves.

    Along continuous states, which have no distribution of their own here, the last two are zero.

    Raises:
        ValueError: if the model has no options, or ``data`` does not fit it.
    """
    checked, about = _checked(fit, data, "log_likelihood_parts"), fit.structure.about
    if isinstance(about, PolicyDescription):
        actions = fit.log_likelihood_rows(data)
        return LikelihoodParts(actions, torch.zeros_like(actions), torch.zeros_like(actions))
    parts = parts_of(about, fit.params)
    num_actions, num_states = parts.environment.shape[0], parts.environment.shape[-1]
    plan = plan_of(checked, num_states, num_actions)
    one = [value[None] for value in (parts.initial, parts.low, parts.high, parts.environment)]
    first = parts.initial.sum(-1).log()[checked[:, 0, 0]]
    return LikelihoodParts(plan.log_actions(*one)[0] - first, first, plan.log_moves(one[3])[0])
