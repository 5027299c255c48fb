r"""Noise of hidden states, for ACDC: scores of rows, of pairs of rows, and of durations.

Paths of states are drawn from their exact posterior. Given a path, these are standard normal if the
model is right:

- *rows*: the scores :math:`e_t` of every row with entries under the distribution of its state, a
  column an item;
- *pairs*: :math:`(e_{t-1} + e_t) / \sqrt 2` of the first and second, third and fourth, ... row of a
  visit to a state: its variance is one plus the correlation that two rows of a visit still have.
  States have to explain it all; where they do not, more states are taken for it;
- *duration*: of every visit, by its length, geometric under the model or as durations say
  (:func:`~inference.base.component_noise.duration_noise`).

As with options (:mod:`inference.structures.options.noise`), discrepancies are in nats a visit. What
is judged here, the distribution of the rows, their independence within a state and the geometric
durations, is what makes criteria choose too many states where it does not hold (J. Pohle et al.
2017, doi:10.1007/s13253-017-0283-8).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from inference.base.component_distributions.dispatch import distribution_of
from inference.base.component_noise import LEAST_VISITS, NoiseDraws, duration_noise, numpy_generator
from inference.programs.program import Params
from inference.structures.hidden_markov.em_steps import emission_of
from inference.structures.hidden_markov.paths import path_draws
from ppl_models.data.sequences import inside_of
from ppl_models.descriptions.hidden_markov import HiddenMarkovDescription


def state_noise(
    about: HiddenMarkovDescription,
    params: Params,
    packed: Tensor,
    generator: torch.Generator,
    num_draws: int,
) -> NoiseDraws:
    """Draws of the noise of every state; rows are steps, NaN where a step has no noise.

    ``params``: without restarts; ``packed``: (B, T, J); ``num_draws``: M, paths of states.
    """
    from scipy.special import ndtri

    distribution, rng = distribution_of(about.emission), numpy_generator(generator)
    inside, seen = inside_of(packed).cpu().numpy(), packed.isfinite().any(-1).cpu().numpy()
    # (M, B, T)
    paths = path_draws(about, params, packed, num_draws, int(rng.integers(2**31))).numpy()
    state = np.maximum(paths, 0)
    rows = packed[torch.from_numpy(seen).to(packed.device)].to(params["transitions"]).cpu()
    own = {name: value.cpu() for name, value in emission_of(params).items()}
    width = distribution.num_scores
    scores = np.full((*paths.shape, 2 * width + 1), np.nan)
    for m in range(num_draws):
        scores[m, seen, :width] = np.take_along_axis(
            distribution.scores(own, rows, rng), state[m, seen][:, None, None], 1
        )[:, 0]
    second = _second_of_pairs(paths)[..., None]
    before = np.concatenate(
        [np.full_like(scores[:, :, :1, :width], np.nan), scores[:, :, :-1, :width]], 2
    )
    scores[..., width:-1] = np.where(second, (before + scores[..., :width]) / math.sqrt(2), np.nan)
    if about.durations is None:
        chances = params["transitions"].diagonal().cpu().numpy()
    else:
        tables = about.durations.tables(params, inside.shape[1])
        chances = 1 - (tables.durations - tables.survival).exp().cpu().numpy()  # by age
    stay = np.broadcast_to(chances, (*inside.shape, *chances.shape))
    duration = duration_noise(stay, inside.sum(1), state, rng)
    scores[..., -1] = ndtri(np.clip(duration, 1e-300, 1 - 1e-16))
    kept, chosen = scores[:, inside], state[:, inside]  # (M, N, D), (M, N)
    used = chosen[..., None] == np.arange(about.num_states)
    every = np.where(used[..., None], kept[:, :, None], np.nan)
    visits = (used & ~np.isnan(kept[..., -1:])).sum(1)  # (M, K): a visit has one duration
    return NoiseDraws(every, used, used.mean((0, 1)), visits=np.maximum(visits, LEAST_VISITS))


def _second_of_pairs(paths: np.ndarray) -> np.ndarray:
    """Mark the second, fourth, ... step of every visit, (M, B, T)."""
    step = np.arange(paths.shape[2])
    starts = np.concatenate(
        [np.ones_like(paths[..., :1], dtype=bool), paths[..., 1:] != paths[..., :-1]], -1
    )
    since = step - np.maximum.accumulate(np.where(starts, step, 0), -1)
    found: np.ndarray = since % 2 == 1
    return found
