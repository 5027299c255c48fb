"""Exact moments of the windows of a chain of options, from its parameters."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import torch

from inference.structures.options.moments import MomentEstimate, OptionMoments, count_moments
from ppl_models.datasets import options_chain, simulate_options

Truth = dict[str, torch.Tensor]
SIZES = [(4, 2, 2), (5, 3, 3), (3, 4, 2)]


def exact_moments(truth: Truth) -> OptionMoments:
    """The population's windows: past (state, option) from ``initial``, then two steps of the
    chain.
    """
    initial, low, high, env = (
        truth[name].numpy() for name in ("initial", "low", "high", "environment")
    )
    windows = np.einsum(
        "xo,xob,bxs,sop,spa,ast,tpq,tqc->asxtc",
        initial,
        low,
        env,
        high,
        low,
        env,
        high,
        low,
        optimize=True,
    )
    return OptionMoments(windows, env, 10**6)


def error(estimate: MomentEstimate, truth: Truth) -> float:
    """Frobenius norm over both policies, after one permutation of the options shared by all
    states.
    """
    low, high = truth["low"].numpy(), truth["high"].numpy()
    return min(
        math.sqrt(
            ((estimate.low[:, list(p)] - low) ** 2).sum()
            + ((estimate.high[:, list(p)][:, :, list(p)] - high) ** 2).sum()
        )
        for p in itertools.permutations(range(low.shape[1]))
    )


@functools.cache
def chain_moments(num_steps: int, seed: int) -> OptionMoments:
    return count_moments(simulate_options(options_chain(), 1, num_steps, seed).packed, 4, 2)
