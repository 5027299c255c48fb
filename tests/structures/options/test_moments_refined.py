"""Refinement climbs the composite likelihood and comes nearer to the truth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from papers.options import random_options
from scipy.optimize import minimize_scalar
from support.option_moments import SIZES, chain_moments, error, exact_moments

from inference.structures.options.moments import (
    MomentEstimate,
    OptionMoments,
    refine_moments,
    state_by_state,
)
from ppl_models.datasets import options_chain
from ppl_models.datasets.options import stationary_distribution


@pytest.mark.parametrize("sizes", SIZES)
def test_the_truth_makes_exact_windows_most_probable(sizes: tuple[int, int, int]) -> None:
    """The refinement stays where it is, but for the last of what is not yet known of the
    distribution of past and option.
    """
    truth = random_options(*sizes, seed=0)
    truth |= {name: 0.9 * truth[name] + 0.1 / truth[name].shape[-1] for name in ("low", "high")}
    truth["initial"] = stationary_distribution(truth)
    moments = exact_moments(truth)
    moments = OptionMoments(moments.windows, moments.environment, 10**12)
    exact = state_by_state(moments, sizes[2])
    refined = refine_moments(moments, exact, 100)
    assert error(refined, truth) < 5e-3
    np.testing.assert_allclose(
        refined.diagnostics.singular_low, np.linalg.svd(refined.low)[1][:, -1], atol=1e-12
    )


def composite_log_likelihood(moments: OptionMoments, estimate: MomentEstimate) -> float:
    """Of the windows, the free joint distribution of past, middle state and option at its best, by
    a general optimiser.
    """
    window = np.einsum(
        "soa,ast,top,tpc->soatc", estimate.low, moments.environment, estimate.high, estimate.low
    )
    total = 0.0
    for s, x in itertools.product(range(moments.num_states), repeat=2):
        counts, by_option = moments.windows[:, s, x], window[s]  # (A, S, A), (O, A, S, A)

        def loss(
            share: float, counts: np.ndarray = counts, by_option: np.ndarray = by_option
        ) -> float:
            mixed = share * by_option[0] + (1 - share) * by_option[1]
            return -float((counts[counts > 0] * np.log(mixed[counts > 0])).sum())

        total += -minimize_scalar(
            loss, bounds=(0, 1), method="bounded", options={"xatol": 1e-9}
        ).fun
        total += float(counts.sum() * np.log(counts.sum()))
    return total * moments.num_windows


def test_refinement_climbs_and_is_nearer_to_the_truth() -> None:
    """Three samples of 100,000 steps: the composite likelihood rises with the iterations, and the
    error falls.
    """
    raw, refined = [], []
    for seed in (1, 2, 3):
        moments = chain_moments(100_000, seed)
        estimate = state_by_state(moments, 2)
        values = [
            composite_log_likelihood(moments, refine_moments(moments, estimate, n))
            for n in (2, 20, 200, 2000)
        ]
        assert (np.diff(values) > -1e-3).all()
        assert values[-1] > composite_log_likelihood(moments, truth_as_estimate(estimate)) - 1e-3
        raw.append(error(estimate, options_chain()))
        refined.append(error(refine_moments(moments, estimate), options_chain()))
    assert np.median(refined) < np.median(raw) / 2


def truth_as_estimate(estimate: MomentEstimate) -> MomentEstimate:
    truth = options_chain()
    return MomentEstimate(truth["low"].numpy(), truth["high"].numpy(), estimate.diagnostics)


def test_refinement_refuses_other_sizes() -> None:
    moments = chain_moments(100_000, 1)
    estimate = state_by_state(moments, 2)
    with pytest.raises(ValueError, match="policies of 4 states and 2 actions were expected"):
        refine_moments(
            moments, MomentEstimate(estimate.low[:3], estimate.high[:3], estimate.diagnostics)
        )
    with pytest.raises(ValueError, match="max_iterations must be a positive integer"):
        refine_moments(moments, estimate, 0)
