"""Sampling errors of moment estimates: against finite differences and simulation, and advice."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from papers.options import random_options
from support.option_moments import error

from inference.structures.options.moment_errors import (
    MomentErrors,
    blocks_of_moments,
    moment_errors,
    pooled,
)
from inference.structures.options.moments import (
    OptionMoments,
    count_moments,
    refine_moments,
    state_by_state,
)
from ppl_models.data.sequences import pack
from ppl_models.datasets import options_chain, simulate_options


def estimated(data: torch.Tensor, num_blocks: int = 50) -> MomentErrors:
    whole = count_moments(data, 4, 2, past_actions=True)
    blocks = blocks_of_moments(data, 4, 2, num_blocks, past_actions=True)
    start = state_by_state(whole, 2)
    together = pooled(blocks, whole.environment)
    return moment_errors(blocks, refine_moments(together, start, 5_000, 1e-6))


def test_pasts_are_counted_one_by_one() -> None:
    state, action = [0, 1, 2, 1, 0, 2, 1], [0, 1, -1, 0, 1, 1, 0]
    data = pack([state], [action])
    for lag in (1, 2, 3):
        expected = np.zeros((2, 3, 6, 3, 2))
        for t in range(7 - lag - 1):
            acts = action[t], action[t + lag], action[t + lag + 1]
            if min(acts) >= 0:
                past = state[t] * 2 + acts[0]
                expected[acts[1], state[t + lag], past, state[t + lag + 1], acts[2]] += 1
        moments = count_moments(data, 3, 2, lag=lag, past_actions=True)
        assert moments.num_windows == expected.sum() > 0
        np.testing.assert_allclose(moments.windows * moments.num_windows, expected)
        pieces = [data[:, :3], data[:, 3:5], data[:, 5:]]
        streamed = count_moments(pieces, 3, 2, continued=True, lag=lag, past_actions=True)
        np.testing.assert_allclose(streamed.windows, moments.windows)
        np.testing.assert_allclose(streamed.environment, moments.environment)
    with pytest.raises(ValueError, match="windows of 8 steps"):
        count_moments(data, 3, 2, lag=6)


@pytest.mark.parametrize("sizes", [(4, 2, 2), (2, 3, 3)])
def test_wider_pasts_identify_exactly_even_more_options_than_states(
    sizes: tuple[int, int, int],
) -> None:
    truth = random_options(*sizes, seed=1)
    initial, low, high, env = (truth[n].numpy() for n in ("initial", "low", "high", "environment"))
    windows = np.einsum(
        "xo,xob,bxs,sop,spa,ast,tpq,tqc->asxbtc",
        initial, low, env, high, low, env, high, low, optimize=True,
    )  # fmt: skip
    s, a, _ = sizes
    exact = OptionMoments(windows.reshape(a, s, s * a, s, a), env, 10**6)
    assert error(state_by_state(exact, sizes[2]), truth) < 1e-7


def test_the_action_of_the_step_before_makes_estimates_better() -> None:
    truth, errors = options_chain(), []
    for seed in range(3):
        data = simulate_options(truth, 1, 50_000, seed).packed
        own = []
        for past_actions in (False, True):
            moments = count_moments(data, 4, 2, past_actions=past_actions)
            own.append(error(refine_moments(moments, state_by_state(moments, 2)), truth))
        errors.append(own)
    without, with_actions = np.array(errors).T
    assert (with_actions < without).all()
    assert with_actions.mean() < 0.6 * without.mean()


def test_errors_are_those_of_refits_with_a_block_weighed_more_and_less() -> None:
    """The infinitesimal jackknife by brute force."""
    data = simulate_options(options_chain(), 200, 400, 3).packed
    whole = count_moments(data, 4, 2, past_actions=True)
    blocks = blocks_of_moments(data, 4, 2, 8, past_actions=True)
    start = state_by_state(whole, 2)
    base = refine_moments(pooled(blocks, whole.environment), start, 20_000, 1e-8)
    changes, step = [], 0.2
    for b in range(len(blocks)):
        more = [*blocks]
        heavier = round(blocks[b].num_windows * (1 + step))
        more[b] = dataclasses.replace(blocks[b], num_windows=heavier)
        less = [*blocks]
        lighter = round(blocks[b].num_windows * (1 - step))
        less[b] = dataclasses.replace(blocks[b], num_windows=lighter)
        up, down = (
            refine_moments(pooled(part, whole.environment), base, 20_000, 1e-8)
            for part in (more, less)
        )
        change = [
            (one - other).ravel() / (2 * step)
            for one, other in ((up.low, down.low), (up.high, down.high))
        ]
        changes.append(np.concatenate(change))
    spread = np.stack(changes)
    expected = np.sqrt((spread**2).sum(0) * len(blocks) / (len(blocks) - 1))
    found = np.sqrt(np.diagonal(moment_errors(blocks, base).covariance))
    np.testing.assert_allclose(found, expected, rtol=0.1)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    truth, within = options_chain(), []
    for seed in range(10):
        own = estimated(simulate_options(truth, 1, 50_000, 50 + seed).packed)
        for low, high in ((own.intervals()[0], truth["low"]),):
            order = min(
                ([0, 1], [1, 0]),
                key=lambda p: float(np.abs(own.estimate.low[:, p] - truth["low"].numpy()).sum()),
            )
            ends = low[:, order]
            within.append(((ends[..., 0] <= high.numpy()) & (ends[..., 1] >= high.numpy())).mean())
        assert own.advice == ()
    assert np.mean(within) > 0.8


def test_what_nearly_fails_is_advised() -> None:
    truth = options_chain()
    truth["low"][1] = torch.tensor([[0.6, 0.4], [0.59, 0.41]], dtype=torch.float64)
    words = " ".join(estimated(simulate_options(truth, 1, 20_000, 0).packed).advice)
    assert "options act alike in state 1" in words
    assert "record finer actions" in words
    own = estimated(simulate_options(options_chain(), 1, 20_000, 0).packed)
    bad = dataclasses.replace(own.estimate.diagnostics, drift=5.0, unsupported=0.25)
    advice = dataclasses.replace(
        own, estimate=dataclasses.replace(own.estimate, diagnostics=bad)
    ).advice
    assert "25% of the moves" in " ".join(advice)
    assert "5.0 times as much as chance" in " ".join(advice)


def test_bad_input() -> None:
    data = simulate_options(options_chain(), 1, 2_000, 0).packed
    own = estimated(data)
    with pytest.raises(ValueError, match="level must lie in"):
        own.intervals(1.0)
    with pytest.raises(ValueError, match="two blocks or more"):
        moment_errors([], own.estimate)
    with pytest.raises(ValueError, match="num_blocks must be"):
        blocks_of_moments(data, 4, 2, 1)
    with pytest.raises(ValueError, match="lag must be"):
        count_moments(data, 4, 2, lag=0)
