"""The effective number of rows, and draws of the table, against simulation and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from support.small_graphs import REFERENCES, mutual_information, structure

from inference.causal.rows import (
    _inflation,
    _information,
    dirichlet_tables,
    effective_rows,
    imputed_tables,
    resampled_tables,
)
from inference.causal.tables import profiles


def design() -> tuple[np.ndarray, np.ndarray]:
    """Means (2^5, 20) of the manuscript's items and their table under structure 3."""
    own = np.eye(5)
    band = own + np.eye(5, k=1) + np.eye(5, k=-1)
    q = np.concatenate([own, own, own, band])
    means = -1 + profiles(5) @ (3 * q / q.sum(1, keepdims=True)).T
    return means, structure("3")[1]


def posterior_of(table: np.ndarray, likelihoods: np.ndarray) -> np.ndarray:
    joint = likelihoods * table
    return joint / joint.sum(1, keepdims=True)


def fitted(table: np.ndarray, likelihoods: np.ndarray, num_iterations: int = 400) -> np.ndarray:
    """The table by EM, the items known."""
    for _ in range(num_iterations):
        table = posterior_of(table, likelihoods).mean(0)
    return table


def noisy(rng: np.random.Generator, table: np.ndarray, num_rows: int, sd: float) -> np.ndarray:
    """Likelihoods (N, 2^K) of one Normal item an attribute."""
    bits = profiles(len(table).bit_length() - 1)
    rows = bits[rng.choice(len(table), num_rows, p=table)] + sd * rng.standard_normal(
        (num_rows, bits.shape[1])
    )
    return np.exp(-0.5 * ((rows[:, None] - bits) ** 2).sum(-1) / sd**2)


def test_known_profiles_are_worth_every_row() -> None:
    rng = np.random.default_rng(0)
    found = effective_rows(np.eye(8)[rng.integers(0, 8, 500)])
    assert found.num_rows == pytest.approx(500)
    np.testing.assert_allclose(found.inflation_pairs, 1.0)
    assert (found.undetermined, found.dropped_profiles) == (0, 0)
    assert "(100 %)" in found.text()
    assert "upper bound" in found.text()


def test_a_profile_that_em_has_all_but_left_is_no_fault_of_the_items() -> None:
    rng = np.random.default_rng(0)
    table = np.array([0.3, 1e-10, 0.3, 0.4 - 1e-10])
    likelihoods = noisy(rng, np.array([0.3, 0.0, 0.3, 0.4]), 400, 0.3)
    found = effective_rows(posterior_of(table, likelihoods), table)
    assert (found.undetermined, found.dropped_profiles) == (0, 1)
    whole = np.where(table < 1e-9, 0.0, table)
    without = effective_rows(posterior_of(whole, likelihoods), whole)
    assert found.num_rows == pytest.approx(without.num_rows, rel=1e-6)


def test_the_manuscripts_design() -> None:
    """Variance inflation 1.009 of attributes and 1.012 of pairs, the reference's numbers (items
    known).
    """
    means, table = design()
    rng = np.random.default_rng(1)
    chosen = rng.choice(32, 20_000, p=table)
    rows = means[chosen] + rng.standard_normal((20_000, 20))
    distances = -0.5 * (means**2).sum(1) + rows @ means.T
    posterior = posterior_of(table, np.exp(distances - distances.max(1, keepdims=True)))
    found, known = effective_rows(posterior), REFERENCES["own_efficiency"]
    assert found.inflation_mains.mean() == pytest.approx(
        known["variance_inflation_main"], abs=0.004
    )
    shares = posterior.mean(0)
    values, vectors = np.linalg.eigh(_information(posterior, shares, shares > 0, None))
    bits = profiles(5).astype(float)
    products = [
        _inflation(bits[:, i] * bits[:, j], shares, values, vectors)
        for i in range(5)
        for j in range(i)
    ]
    assert np.mean(products) == pytest.approx(
        known["variance_inflation_pairs"], abs=0.004
    )  # products as they are; ours are centred
    pairs = found.inflation_pairs[np.triu_indices(5, 1)].mean()
    assert 1.0 < pairs < 1.03
    assert found.num_rows == pytest.approx(20_000 / pairs)
    assert posterior.argmax(1)[chosen == posterior.argmax(1)].size / 20_000 == pytest.approx(
        known["profile_accuracy"], abs=0.004
    )


def test_inflation_is_that_of_estimates_over_samples() -> None:
    """Noisy items: the variance of the fitted shares over 300 samples, against known profiles, is
    what the information says.
    """
    table, num_rows, sd = np.array([0.35, 0.15, 0.15, 0.35]), 400, 0.7
    rng = np.random.default_rng(2)
    estimates = np.stack([fitted(table, noisy(rng, table, num_rows, sd), 100) for _ in range(300)])
    centred = profiles(2) - 0.5
    functions = np.stack([centred[:, 0], centred[:, 0] * centred[:, 1]])
    variances = (estimates @ functions.T).var(0) * num_rows
    known = np.array([f @ (table * f) - (f @ table) ** 2 for f in functions])
    found = effective_rows(posterior_of(table, noisy(rng, table, 50_000, sd)), table)
    expected = np.array([found.inflation_mains[0], found.inflation_pairs[0, 1]])
    assert expected.min() > 1.5  # the items do hide something here
    np.testing.assert_allclose(variances / known, expected, rtol=0.25)


def test_the_statistic_of_independence_has_its_distribution_at_the_effective_rows() -> None:
    """Independent attributes behind noisy items: 2 n I averages one at the effective number of
    rows, more than two at the observed one.
    """
    table, num_rows, sd = np.full(4, 0.25), 1000, 0.5
    rng = np.random.default_rng(7)
    large = noisy(rng, table, 50_000, sd)
    found = effective_rows(posterior_of(fitted(table, large, 60), large))
    share = found.num_rows / found.observed_rows
    assert share < 0.35
    informations = [
        mutual_information(fitted(table, noisy(rng, table, num_rows, sd), 60), 0, 1)
        for _ in range(200)
    ]
    assert np.mean(informations) * 2 * num_rows * share == pytest.approx(
        1.0, abs=0.3
    )  # three standard errors
    assert np.mean(informations) * 2 * num_rows > 2.0


def test_estimated_items_cost_rows() -> None:
    """Two Normal items an attribute with unknown means: their scores projected out leave less, and
    as much as brute force says.
    """
    rng = np.random.default_rng(3)
    table = np.array([0.4, 0.1, 0.2, 0.3])
    bits, num_rows = profiles(2), 5000
    rows = np.repeat(bits[rng.choice(4, num_rows, p=table)], 2, axis=1) + 0.6 * rng.standard_normal(
        (num_rows, 4)
    )
    centres = np.repeat(bits, 2, axis=1)
    posterior = posterior_of(table, np.exp(-0.5 * ((rows[:, None] - centres) ** 2).sum(-1) / 0.36))
    # by the mean of item j where its attribute is 0, and where it is 1
    on = posterior @ bits
    scores = np.concatenate(
        [np.repeat(1 - on, 2, 1) * rows / 0.36, np.repeat(on, 2, 1) * (rows - 1) / 0.36], 1
    )
    without, within = effective_rows(posterior, table), effective_rows(posterior, table, scores)
    assert within.items_estimated
    assert within.num_rows < without.num_rows
    assert "upper bound" not in within.text()
    basis = np.linalg.svd(np.ones((1, 4)))[2][1:].T  # changes that keep the sum
    own = np.concatenate([(posterior / table) @ basis, scores], 1)
    covariance = np.linalg.inv(own.T @ own / num_rows)[:3, :3]
    centred = bits - table @ bits
    product = centred[:, 0] * centred[:, 1]
    pair = product @ basis
    known = table @ product**2 - (table @ product) ** 2
    assert within.inflation_pairs[0, 1] == pytest.approx(pair @ covariance @ pair / known, rel=0.02)


def test_what_the_items_cannot_tell() -> None:
    """Profiles that no item tells apart, and profiles of probability zero."""
    posterior = np.zeros((90, 8))
    posterior[:30, [0, 1]] = 0.5
    posterior[30:60, 2] = posterior[60:75, 3] = posterior[75:, 4:7] = 1.0
    posterior[75:, 4:7] = np.tile(np.eye(3), (5, 1))
    found = effective_rows(posterior)
    assert found.dropped_profiles == 1
    assert found.undetermined == 1
    assert "hardly determined" in found.text()
    assert "1 profile has probability zero" in found.text()


def test_dirichlet_tables() -> None:
    table = np.array([0.1, 0.2, 0.3, 0.4])
    draws = dirichlet_tables(table, 100.0, 20_000, seed=1)
    concentration = 100 * table + 0.25
    np.testing.assert_allclose(draws.mean(0), concentration / 101, atol=0.002)
    share = concentration / 101
    np.testing.assert_allclose(draws.var(0), share * (1 - share) / 102, rtol=0.05)
    assert np.isfinite(dirichlet_tables([1.0, 0.0, 0.0, 0.0], 1e6, 100, prior_rows=1e-9)).all()


def test_imputed_tables_of_known_profiles_are_the_sample() -> None:
    counts = np.array([10, 0, 25, 15])
    draws = imputed_tables(np.repeat(np.eye(4), counts, axis=0), num_draws=5)
    np.testing.assert_allclose(draws, np.tile(counts / 50, (5, 1)))


def test_imputed_tables_follow_the_posterior() -> None:
    """One attribute: shares of completed rows against the exact posterior, by summing over all
    completions of twelve rows.
    """
    rng = np.random.default_rng(4)
    likelihoods = np.exp(rng.standard_normal((12, 2)) * 1.5)
    table = fitted(np.array([0.5, 0.5]), likelihoods)
    draws = imputed_tables(
        posterior_of(table, likelihoods), table, num_draws=20_000, seed=1, prior_rows=2.0
    )
    completions = profiles(12)
    ones = completions.sum(1)
    weights = np.prod(np.where(completions == 1, likelihoods[:, 1], likelihoods[:, 0]), 1)
    factorial = np.cumprod([1.0, *range(1, 13)])
    beta = (
        factorial * factorial[::-1]
    )  # the table integrated out under a flat prior: k! (12 - k)! but for a constant
    weights = weights * beta[ones]
    exact = np.bincount(ones, weights / weights.sum(), minlength=13)
    drawn = np.bincount(np.rint(draws[:, 1] * 12).astype(int), minlength=13) / 20_000
    np.testing.assert_allclose(drawn, exact, atol=0.015)


def test_resampled_tables_spread_as_the_estimate_does() -> None:
    table, rng, sd = np.array([0.35, 0.15, 0.15, 0.35]), np.random.default_rng(5), 0.5
    likelihoods = noisy(rng, table, 600, sd)
    best = fitted(table, likelihoods)
    posterior = posterior_of(best, likelihoods)
    draws = resampled_tables(posterior, best, 300, seed=1)
    np.testing.assert_allclose(draws.sum(1), 1.0)
    np.testing.assert_allclose(draws.mean(0), best, atol=0.01)
    found = effective_rows(posterior, best)
    centred = profiles(2) - best @ profiles(2)
    product = centred[:, 0] * centred[:, 1]
    expected = (best @ product**2 - (best @ product) ** 2) / 600 * found.inflation_pairs[0, 1]
    assert (draws @ product).var() == pytest.approx(expected, rel=0.3)
    np.testing.assert_array_equal(draws, resampled_tables(posterior, best, 300, seed=1))


def test_bad_input() -> None:
    posterior = np.full((5, 4), 0.25)
    with pytest.raises(ValueError, match="table must hold 4 profiles"):
        effective_rows(posterior, [0.5, 0.5])
    with pytest.raises(ValueError, match=r"other_scores must be finite, with shape \(5, M\)"):
        effective_rows(posterior, other_scores=np.zeros((4, 2)))
    with pytest.raises(ValueError, match="posterior must sum to one"):
        effective_rows(posterior * 2)
    with pytest.raises(ValueError, match="every pair of attributes is constant"):
        effective_rows(np.tile([1.0, 0.0, 0.0, 0.0], (5, 1)))
    with pytest.raises(ValueError, match="num_draws must be a positive integer"):
        dirichlet_tables([0.5, 0.5], 10, 0)
    with pytest.raises(ValueError, match="prior_rows must be a positive number"):
        dirichlet_tables([0.5, 0.5], 10, prior_rows=0.0)
    with pytest.raises(ValueError, match="row 0 of posterior lies on profiles of probability zero"):
        imputed_tables([[1.0, 0.0]], [0.0, 1.0])
    with pytest.raises(ValueError, match="thin must be a positive integer"):
        imputed_tables(posterior, thin=0)
    with pytest.raises(ValueError, match="num_iterations must be a positive integer"):
        resampled_tables(posterior, num_iterations=0)
    with pytest.raises(ValueError, match="seed must be a non-negative integer"):
        resampled_tables(posterior, seed=-1)
