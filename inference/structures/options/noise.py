"""Noise of hidden options, for ACDC: actions, memory and durations on a known scale.

Paths of options are drawn from their exact posterior. Given a path, every step and every visit to
an option has noise that is uniform if the model is right:

- *action*: the randomised probability integral transform of the action under the option's policy in
  the state;
- *memory*: the same with the actions of each step in another order: those first that, in the other
  half of the data, came more often than the policy says after the same past (the state and action
  before) in the same state. Any order that is not looked up in the action itself gives uniform
  noise. A table of probabilities matches the share of every action whatever the truth is; what two
  options merged into one, or a memory that the model lacks, leave behind is that the past predicts
  the action, and then this noise gathers near zero;
- *duration*: the transform of a visit's length under the chances of leaving in the states passed
  through (geometric where they are all the same), or as durations say; a visit cut off by the end
  of its sequence is completed by the model.

A component of a mixture is drawn once a row; an option is drawn once a visit, and goes on for as
many steps as the visit lasts. Discrepancies are therefore in nats a *visit*, as they are in nats a
row elsewhere: the same prices and widths mean the same. Steps that are hard to separate one by
one are separated by visits that are long enough. An option that is (nearly) always on has too few
visits to count by, and is taken for at least fifty: the more steps a visit, the larger is also what
chance alone leaves of the estimate, which must stay below the width of a segment.

Source: Nguyen, Li, Lai, Paschalidis and Huggins, *Beyond Predictive Accuracy* (thesis), chapter 3,
which names hidden Markov models as an open direction; randomised transforms: Brockwell (2007),
doi:10.1016/j.spl.2007.02.008.
"""

from __future__ import annotations

import numpy as np
import torch

from inference.base.component_noise import LEAST_VISITS, NoiseDraws, duration_noise, numpy_generator
from inference.structures.options.forward_backward import Along, sample_paths

COLUMNS = ("action", "memory", "duration")


def option_noise(
    along: Along,
    actions: np.ndarray,
    contexts: np.ndarray,
    generator: torch.Generator,
    num_draws: int,
    goes_on: np.ndarray | None = None,
) -> NoiseDraws:
    """Draws of the noise of every option; rows are steps, NaN where a step has no noise.

    ``along``: the steps under the parameters; ``actions``: (B, T), -1 where missing and after the
    end; ``contexts``: (B, T), a code of state and past of every step, -1 where there is none;
    ``num_draws``: paths of options; ``goes_on``: with durations, P(a visit does not end | the steps
    that it has lasted), (O, m), the steps being of pairs of an option and these steps.
    """
    from scipy.special import ndtri

    rng = numpy_generator(generator)
    ages = along.num_ages
    inside, num, low = along.inside, along.num_options // ages, along.low()[:, :, ::ages]
    steps = inside.shape[1]
    # (M, B, T)
    paths = sample_paths(along, num_draws, int(rng.integers(2**31))).numpy()[..., :steps]
    option = np.maximum(paths, 0)
    half = _halves(inside)
    uniform = np.full((*paths.shape, len(COLUMNS)), np.nan)
    known = actions >= 0
    for m in range(num_draws):
        own = np.take_along_axis(low, option[m][:, :, None, None], 2)[:, :, 0]  # (B, T, A)
        uniform[m, ..., 0] = np.where(
            known, _transform(own, np.zeros_like(own), actions, rng), np.nan
        )
        code = np.where(known & (contexts >= 0), contexts * num + option[m], -1)
        uniform[m, ..., 1] = np.where(
            code >= 0, _transform(own, _excess(own, actions, code, half), actions, rng), np.nan
        )
    if goes_on is None:
        stay = np.diagonal(along.before(), axis1=-2, axis2=-1)
    else:
        stay = np.broadcast_to(goes_on, (*inside.shape, *goes_on.shape))
    uniform[..., 2] = duration_noise(stay, along.lengths, option, rng)
    kept, chosen = uniform[:, inside], option[:, inside]  # (M, N, D), (M, N)
    used = chosen[..., None] == np.arange(num)
    scores = np.full((*used.shape, len(COLUMNS)), np.nan)
    place = np.nonzero(used)
    scores[place] = ndtri(np.clip(kept[place[:2]], 1e-300, 1 - 1e-16))
    visits = (used & ~np.isnan(kept[..., 2:])).sum(1)  # (M, K): a visit has one duration
    return NoiseDraws(scores, used, used.mean((0, 1)), visits=np.maximum(visits, LEAST_VISITS))


def _halves(inside: np.ndarray) -> np.ndarray:
    """Mask (B, T) of every second sequence, or the later half of a single one."""
    rows, steps = inside.shape
    late = np.arange(steps) >= int(inside.sum(1).max()) // 2
    half: np.ndarray = np.broadcast_to(
        late if rows == 1 else (np.arange(rows) % 2 == 1)[:, None], inside.shape
    )
    return half


def _transform(
    chances: np.ndarray, score: np.ndarray, actions: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Uniforms (B, T) of the action's share, actions in falling order of ``score`` (B, T, A)."""
    action = np.maximum(actions, 0)[..., None]
    rank = np.argsort(np.argsort(-score, axis=-1, kind="stable"), axis=-1, kind="stable")
    own = np.take_along_axis(rank, action, -1)
    below = np.where(rank < own, chances, 0.0).sum(-1)
    value: np.ndarray = (
        below + rng.random(actions.shape) * np.take_along_axis(chances, action, -1)[..., 0]
    )
    return value


def _excess(
    chances: np.ndarray, actions: np.ndarray, code: np.ndarray, half: np.ndarray
) -> np.ndarray:
    """Ratio of each action's count to its expectation in the other half, by code, (B, T, A)."""
    out = np.ones_like(chances)
    for side in (False, True):
        learn, apply = (code >= 0) & (half == side), (code >= 0) & (half != side)
        seen, place = np.unique(code[learn], return_inverse=True)
        if not len(seen):
            continue
        count = np.ones((len(seen), chances.shape[-1]))
        expected = np.ones((len(seen), chances.shape[-1]))
        np.add.at(count, (place, actions[learn]), 1.0)
        np.add.at(expected, place, chances[learn])
        at = np.minimum(np.searchsorted(seen, code[apply]), len(seen) - 1)
        out[apply] = np.where((seen[at] == code[apply])[:, None], (count / expected)[at], 1.0)
    return out
