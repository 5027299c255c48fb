"""Options by moments: identities and recovery from exact moments, refusals, and starts of EM."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from papers.joint_moments import all_states_at_once
from papers.options import random_options
from support.option_moments import SIZES, Truth, chain_moments, error, exact_moments

from inference.structures.options.moments import (
    MomentEstimate,
    count_moments,
    project_rows,
    state_by_state,
)
from ppl_models.data.sequences import pack
from ppl_models.datasets import options_chain, simulate_options
from ppl_models.datasets.options import stationary_distribution

ROUTES = [state_by_state, all_states_at_once]


def banded(truth: Truth) -> Truth:
    """The same with an environment that only leads to neighbours."""
    size = truth["low"].shape[0]
    near = torch.tensor([[abs(i - j) <= 1 for j in range(size)] for i in range(size)])
    env = truth["environment"] * near
    new = {**truth, "environment": env / env.sum(-1, keepdim=True)}
    return {**new, "initial": stationary_distribution(new)}


# ---------------------------------------------------------------- exact moments


@pytest.mark.parametrize("sizes", SIZES)
def test_the_identities_hold(sizes: tuple[int, int, int]) -> None:
    """K and the windows are the products the method takes them for."""
    truth = random_options(*sizes, seed=1)
    moments = exact_moments(truth)
    initial, low, high, env = (
        truth[name].numpy() for name in ("initial", "low", "high", "environment")
    )
    joint = np.einsum("xo,xob,bxs->sxo", initial, low, env)  # P(s1, o1, s2 = s), [s, s1, o1]
    for s in range(sizes[0]):
        past = joint[s] @ high[s]
        np.testing.assert_allclose(moments.pairs[s], past @ low[s], atol=1e-14)
        for a, t in itertools.product(range(sizes[1]), range(sizes[0])):
            expected = env[a, s, t] * past @ np.diag(low[s, :, a]) @ high[t] @ low[t]
            np.testing.assert_allclose(moments.windows[a, s, :, t], expected, atol=1e-14)
    np.testing.assert_allclose(moments.windows.sum(), 1, atol=1e-12)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sizes", SIZES)
def test_exact_moments_give_the_truth(route, sizes: tuple[int, int, int], seed: int) -> None:
    truth = random_options(*sizes, seed=seed)
    estimate = route(exact_moments(truth), sizes[2])
    assert error(estimate, truth) < 1e-8
    assert estimate.diagnostics.matching < 1e-10
    assert estimate.diagnostics.num_complex == 0


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("sizes", [(4, 2, 2), (7, 3, 2), (3, 4, 2)])
def test_exact_moments_of_an_environment_with_zeros(route, sizes: tuple[int, int, int]) -> None:
    truth = banded(random_options(*sizes, seed=2))
    assert error(route(exact_moments(truth), sizes[2]), truth) < 1e-8


@pytest.mark.parametrize("route", ROUTES)
def test_a_start_that_is_not_stationary_does_no_harm(route) -> None:
    truth = options_chain()
    truth["initial"] = torch.tensor(
        [[0.5, 0.1], [0.3, 0.05], [0.03, 0.01], [0.005, 0.005]], dtype=torch.float64
    )
    assert error(route(exact_moments(truth), 2), truth) < 1e-8


def test_the_reference_numbers_of_the_chain() -> None:
    """Measured beforehand with another program, from the same parameters."""
    truth = options_chain()
    expected = [
        [0.12684805, 0.13506729],
        [0.13002294, 0.10352342],
        [0.10577569, 0.12930866],
        [0.13949946, 0.12995447],
    ]
    np.testing.assert_allclose(truth["initial"], expected, atol=1e-8)
    diagnostics = state_by_state(exact_moments(truth), 2).diagnostics
    np.testing.assert_allclose(
        diagnostics.singular_pairs, [0.00212739, 0.0055242, 0.00514943, 0.00195056], atol=1e-8
    )
    np.testing.assert_allclose(
        diagnostics.singular_low, [0.47330533, 0.54144975, 0.49671384, 0.52762517], atol=1e-8
    )
    np.testing.assert_allclose(
        diagnostics.singular_high, [0.50044365, 0.71881117, 0.71881117, 0.50044365], atol=1e-8
    )
    assert diagnostics.unsupported == 0
    constant = MomentEstimate(np.full((4, 2, 2), 0.5), np.full((4, 2, 2), 0.5), diagnostics)
    assert abs(error(constant, truth) - 1.70529) < 1e-5


# ---------------------------------------------------------------- samples


@pytest.mark.parametrize("seed", [1, 2])
def test_samples_come_near_the_truth(seed: int) -> None:
    """The constant policy has error 1.71."""
    few, many = (
        state_by_state(chain_moments(num_steps, seed), 2) for num_steps in (100_000, 500_000)
    )
    assert error(few, options_chain()) < 1.4
    assert error(many, options_chain()) < 0.8
    assert few.diagnostics.information < 2 * many.diagnostics.information
    for estimate in (few, many):
        for rows in (estimate.low, estimate.high):
            assert rows.min() >= 0
            np.testing.assert_allclose(rows.sum(-1), 1, atol=1e-12)
    assert error(all_states_at_once(chain_moments(500_000, seed), 2), options_chain()) < 0.9


def test_sequences_of_three_steps_suffice() -> None:
    truth = options_chain()
    truth["initial"] = torch.tensor(
        [[0.5, 0.1], [0.2, 0.05], [0.04, 0.05], [0.05, 0.01]], dtype=torch.float64
    )
    moments = count_moments(simulate_options(truth, 100_000, 3, 5).packed, 4, 2)
    assert moments.num_windows == 100_000
    np.testing.assert_allclose(
        moments.windows, exact_moments(truth).windows, atol=6 * 0.5 / math.sqrt(100_000)
    )


def test_projection_is_the_nearest_probability() -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(50, 4))
    projected = project_rows(rows)
    np.testing.assert_allclose(projected.sum(-1), 1, atol=1e-12)
    assert projected.min() >= 0
    for _ in range(200):
        other = generator.dirichlet(np.full(4, 0.5), size=50)
        assert (((rows - projected) ** 2).sum(-1) <= ((rows - other) ** 2).sum(-1) + 1e-12).all()
    inside = generator.dirichlet(np.ones(4), size=5)
    np.testing.assert_allclose(project_rows(inside), inside, atol=1e-15)


# ---------------------------------------------------------------- refusals


def test_what_moments_cannot_do_is_refused_with_the_number() -> None:
    moments = exact_moments(options_chain())
    for route in ROUTES:
        with pytest.raises(ValueError, match="num_options = 3 exceeds num_actions = 2"):
            route(moments, 3)
        same = options_chain()
        same["low"][1] = same["low"][1, :1]
        with pytest.raises(ValueError, match="rank below num_options = 2 in state 1"):
            route(exact_moments(same), 2)
    with pytest.raises(ValueError, match="num_options = 3 exceeds num_states = 2"):
        state_by_state(exact_moments(random_options(2, 3, 2, 0)), 3)
    telling = options_chain()
    telling["environment"] = torch.eye(4, dtype=torch.float64)[
        torch.tensor([[1, 2, 3, 0], [0, 1, 2, 3]])
    ]
    with pytest.raises(
        ValueError,
        match="no next state that each of the actions 0, 1, taken in state 0, can lead to",
    ):
        state_by_state(exact_moments(telling), 2)
    with pytest.raises(ValueError, match="coupling must be positive"):
        all_states_at_once(moments, 2, 0.0)
    with pytest.raises(ValueError, match="windows of three successive steps"):
        count_moments(pack([[0, 1]], [[0, 1]]), 2, 2)
    with pytest.raises(ValueError, match="is too large; code fewer states"):
        count_moments(pack([[0, 1]], [[0, 1]]), 3000, 4)
    blocked = options_chain()
    blocked["environment"][0, 0] = torch.tensor([0.0, 0.0, 0.5, 0.5])
    blocked["environment"][1, 0] = torch.tensor([0.5, 0.5, 0.0, 0.0])
    blocked["initial"] = stationary_distribution(blocked)
    with pytest.raises(ValueError, match="has rank below 4"):
        all_states_at_once(exact_moments(blocked), 2)


def test_an_unvisited_state_is_left_uniform() -> None:
    truth = options_chain()
    wider = {
        "initial": torch.cat([truth["initial"], torch.zeros(1, 2, dtype=torch.float64)]),
        "low": torch.cat([truth["low"], truth["low"][:1]]),
        "high": torch.cat([truth["high"], truth["high"][:1]]),
        "environment": torch.nn.functional.pad(truth["environment"], (0, 1, 0, 1)),
    }
    wider["environment"][:, 4, 0] = 1.0
    estimate = state_by_state(exact_moments(wider), 2)
    assert (estimate.low[4] == 0.5).all()
    assert (
        error(MomentEstimate(estimate.low[:4], estimate.high[:4], estimate.diagnostics), truth)
        < 1e-8
    )
    with pytest.raises(ValueError, match="use state_by_state"):
        all_states_at_once(exact_moments(wider), 2)
