"""States along sequences: smoothing, filtering, the most probable path, draws of paths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from inference.base.component_distributions.dispatch import distribution_of
from inference.programs.program import Params
from inference.structures.hidden_markov.em_steps import (
    beside_labels,
    densities_at_steps,
    densities_with_labels,
    emission_of,
    initial_of,
    is_plain,
    plain_chain,
    semi_markov,
)
from inference.structures.hidden_markov.forward_backward import Cut, smoothed_blocks
from inference.structures.hidden_markov.visits import (
    Ages,
    best_visits,
    blocks_of,
    smoothed_visits,
    visit_draws,
)
from ppl_models.data.sequences import inside_of
from ppl_models.descriptions.hidden_markov import HiddenMarkovDescription
from ppl_models.parts.repr import shows_briefly

MOST_STEPS = 2**18  # of sequences that are worked on together


@shows_briefly
@dataclass(frozen=True, eq=False)
class Filtered:
    """Filtered posterior of the states as a sequence goes on.

    Args:
        state: P(state | the sequence up to this step), (B, T, K); zero after the end.
        ahead: P(state | the sequence before this step), (B, T, K).
        log_likelihood: of every step given those before it, (B, T).
    """

    state: Tensor
    ahead: Tensor
    log_likelihood: Tensor


@shows_briefly
@dataclass(frozen=True, eq=False)
class MostProbablePath:
    """Most probable path of states.

    Args:
        state: (B, T), -1 after the end.
        log_joint: (B,), log p(path, sequence).
    """

    state: Tensor
    log_joint: Tensor


def densities_of(about: HiddenMarkovDescription, params: Params, packed: Tensor) -> Tensor:
    """Log-density of every step in every state, (B, T, K); zero where nothing was seen.

    ``params``: without leading dims; ``packed``: (B, T, J).
    """
    distribution = distribution_of(about.emission)
    own = {name: value.unsqueeze(0) for name, value in emission_of(params).items()}
    seen = packed.isfinite().any(-1)
    out = params["transitions"].new_zeros(*packed.shape[:2], about.num_states)
    rows = packed[seen]
    if len(rows):
        step = max(1, MOST_STEPS // about.num_states)
        out[seen] = torch.cat(
            [
                distribution.log_densities(own, part).reshape(len(part), -1)
                for part in rows.split(step)
            ]
        ).to(out)
    return out


def _one(params: Params) -> Params:
    """Parameters as those of one restart."""
    return {name: value.unsqueeze(0) for name, value in params.items()}


def smoothed_states(
    about: HiddenMarkovDescription, params: Params, packed: Tensor, labels: Tensor | None = None
) -> Tensor:
    """Smoothed P(state | the whole sequence), ([R], B, T, K); zero after the end.

    ``labels``: log p(label | state) of every step, (B, T, K), on which it is conditional too.
    """
    if params["transitions"].dim() == 2:
        return smoothed_states(about, _one(params), packed, labels)[0]
    if not is_plain(about):
        chain, lengths = semi_markov(about, params, packed.shape[1]), inside_of(packed).sum(1)
        densities = densities_with_labels(distribution_of(about.emission), packed.shape[-1])
        numbers, parts = chain.initial.numel(), []
        for part in blocks_of(len(packed), numbers * packed.shape[1]):
            known = None if labels is None else labels[part]
            own = densities_at_steps(densities, params, beside_labels(packed[part], known))
            parts.append(smoothed_visits(chain, own, lengths[part]).state)
        return torch.cat(parts, 1)
    about, params = plain_chain(about, params)
    whole, transitions = beside_labels(packed, labels), params["transitions"]
    cut = Cut.build(whole, about.num_states, all_steps=True)
    blocks = smoothed_blocks(
        cut,
        initial_of(about, params),
        transitions,
        densities_with_labels(distribution_of(about.emission), packed.shape[-1]),
        emission_of(params),
        max(1, MOST_STEPS // (len(transitions) * about.num_states)),
    )
    flat = torch.cat([block.state for block in blocks], 1)
    inside, place = cut.step_places
    out = flat.new_zeros(len(flat), *packed.shape[:2], about.num_states)
    out[:, :, : inside.shape[1]][:, inside] = flat[:, place]
    return out


def filtered_states(about: HiddenMarkovDescription, params: Params, packed: Tensor) -> Filtered:
    """Filter the states: posteriors from the steps up to each one, and before it.

    One step at a time, with logarithms, so that impossible moves do no harm.
    """
    if not is_plain(about):
        return filtered_visits(about, params, packed, packed.shape[1])[0]
    log_ahead, densities, _ = _filtered_logs(about, params, packed)
    ahead, logs = np.exp(log_ahead), log_ahead + densities
    value = np.logaddexp.reduce(logs, axis=-1)
    state = np.exp(logs - value[..., None])
    kept = np.where(inside_of(packed).cpu().numpy(), 1.0, 0.0)
    return Filtered(
        torch.from_numpy(state * kept[..., None]),
        torch.from_numpy(ahead * kept[..., None]),
        torch.from_numpy(value * kept),
    )


def _filtered_logs(
    about: HiddenMarkovDescription, params: Params, packed: Tensor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logs of P(state | steps before), of densities (B, T, K) and of moves, of a plain chain."""
    about, params = plain_chain(about, params)
    with np.errstate(divide="ignore"):
        log_initial, moves = (
            np.log(value.double().cpu().numpy())
            for value in (initial_of(about, params), params["transitions"])
        )
    densities = densities_of(about, params, packed).double().cpu().numpy()
    ahead = np.empty_like(densities)
    alpha = np.broadcast_to(log_initial, densities[:, 0].shape)
    for t in range(densities.shape[1]):
        if t > 0:
            alpha = np.logaddexp.reduce(alpha[:, :, None] + moves, axis=1)
        ahead[:, t] = alpha - np.logaddexp.reduce(alpha, axis=1, keepdims=True)
        alpha = ahead[:, t] + densities[:, t]
    return ahead, densities, moves


def states_given_others(about: HiddenMarkovDescription, params: Params, packed: Tensor) -> Tensor:
    """P(state | all other steps of the sequence), (B, T, K), by logs.

    The smoothed chance over the density of the step is the same, and lost where that is tiny.
    """
    if not is_plain(about):
        densities = densities_of(about, params, packed).double().cpu().numpy()
        ages = Ages.of(semi_markov(about, _one(params), packed.shape[1]))
        return torch.from_numpy(ages.given_others(densities))
    ahead, densities, moves = _filtered_logs(about, params, packed)
    behind = np.zeros_like(ahead)
    for t in range(ahead.shape[1] - 1, 0, -1):  # nothing is seen behind the end, where it stays 0
        own = densities[:, t] + behind[:, t]
        behind[:, t - 1] = np.logaddexp.reduce(moves + own[:, None], axis=2)
    logs = ahead + behind
    return torch.from_numpy(np.exp(logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True)))


def filtered_visits(
    about: HiddenMarkovDescription, params: Params, packed: Tensor, num_steps: int
) -> tuple[Filtered, Ages, np.ndarray]:
    """Filtered states of a semi-Markov chain, how it goes on, and logs of states by age at the end.

    ``num_steps``: least number of ages, where durations have no limit.
    """
    ages = Ages.of(semi_markov(about, _one(params), num_steps))
    inside = inside_of(packed).cpu().numpy()
    densities = densities_of(about, params, packed).double().cpu().numpy()
    *found, last = ages.filtered(densities, inside)
    kept = np.where(inside, 1.0, 0.0)
    state, ahead, value = (
        torch.from_numpy(part * (kept if part.ndim == 2 else kept[..., None])) for part in found
    )
    return Filtered(state, ahead, value), ages, last


def most_probable_path(
    about: HiddenMarkovDescription, params: Params, packed: Tensor
) -> MostProbablePath:
    """Most probable path of every sequence (Viterbi); ties go to the smaller index.

    Source: Viterbi (1967), doi:10.1109/TIT.1967.1054010.
    """
    if not is_plain(about):
        densities = densities_of(about, params, packed).double().cpu().numpy()
        chain, lengths = semi_markov(about, _one(params), packed.shape[1]), inside_of(packed).sum(1)
        found = best_visits(chain, densities, lengths.tolist())
        return MostProbablePath(*map(torch.from_numpy, found))
    about, params = plain_chain(about, params)
    with np.errstate(divide="ignore"):
        score, moves = (
            np.log(value.double().cpu().numpy())
            for value in (initial_of(about, params), params["transitions"])
        )
    densities = densities_of(about, params, packed).double().cpu().numpy()
    inside = inside_of(packed).cpu().numpy()
    num, steps, size = densities.shape
    best = score + densities[:, 0]
    back = np.empty((steps, num, size), dtype=np.min_scalar_type(size))
    for t in range(1, steps):
        candidates = best[:, :, None] + moves
        back[t] = candidates.argmax(1)
        best = np.where(inside[:, t, None], candidates.max(1) + densities[:, t], best)
    path = np.full((num, steps), -1, dtype=np.int64)
    now = best.argmax(1)
    every = np.arange(num)
    for t in range(steps - 1, -1, -1):
        path[:, t] = np.where(inside[:, t], now, -1)
        if t > 0:
            now = np.where(inside[:, t], back[t, every, now], now)
    return MostProbablePath(torch.from_numpy(path), torch.from_numpy(best.max(1)))


def path_draws(
    about: HiddenMarkovDescription, params: Params, packed: Tensor, num_draws: int, seed: int
) -> Tensor:
    """Exact joint draws of the states of every sequence, (M, B, T); -1 after the end."""
    if not is_plain(about):
        densities = densities_of(about, params, packed).double().cpu()
        chain, lengths = semi_markov(about, _one(params), packed.shape[1]), inside_of(packed).sum(1)
        return torch.from_numpy(visit_draws(chain, densities, lengths.cpu(), num_draws, seed))
    about, params = plain_chain(about, params)
    filtered = filtered_states(about, params, packed).state.numpy()
    transitions = params["transitions"].double().cpu().numpy()
    inside = inside_of(packed).cpu().numpy()
    generator = np.random.default_rng(seed)
    out = np.full((num_draws, *inside.shape), -1, dtype=np.int64)
    now = np.zeros((num_draws, len(inside)), dtype=np.int64)
    for t in range(inside.shape[1] - 1, -1, -1):
        goes_on = inside[:, t + 1] if t + 1 < inside.shape[1] else np.zeros(len(inside), dtype=bool)
        weight = filtered[:, t] * np.where(goes_on[:, None], transitions.T[now], 1.0)
        total = weight.cumsum(-1)
        drawn = np.minimum(
            (generator.random((*now.shape, 1)) * total[..., -1:] >= total).sum(-1),
            transitions.shape[0] - 1,
        )
        now = np.where(inside[:, t], drawn, now)
        out[:, :, t] = np.where(inside[:, t], now, -1)
    return torch.from_numpy(out)
