"""ACDC: noise has its law under the model, estimators and nulls, exact loss curves, choices, rivals, metrics, data."""

from __future__ import annotations

import itertools
import os
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import adjusted_rand_score

from inference import fit
from inference.acdc import (
    KDE,
    KNN,
    AcdcResult,
    Bootstrap,
    Histogram,
    NoNull,
    PlugIn,
    Table,
    acdc,
    best_segments,
    clear_step,
    discrepancy_left,
    loss,
    null_moments,
    shares_taken,
    taken_beyond,
)
from inference.base.component_noise import gaussian_split, poisson_scores, poisson_split
from inference.metrics import f_measure, match_components, soft_adjusted_rand_index
from inference.plots import plot_discrepancies, plot_scree, plot_signatures
from inference.report import why
from inference.selection import (
    bic_thesis,
    compare_criteria,
    cophenetic_correlation,
    fit_grid,
    held_out_log_likelihood,
    parallel_analysis,
)
from ppl_models import (
    Bernoulli,
    DeepDiscreteEncoder,
    Mixture,
    MultivariateNormal,
    Normal,
    Poisson,
    PoissonFactorization,
)
from ppl_models.datasets import (
    load_breast,
    negative_binomial_mixture,
    simulate_mutations,
    skew_normal_mixture,
    skew_normal_mixture_50d,
    thresholded_normals,
)

needs_data = pytest.mark.skipif(
    not os.path.exists(os.path.join(os.environ.get("PPL_MODELS_DATA", ""), "mutational_signatures.npz")),  # noqa: PTH110, PTH118
    reason="mutational_signatures.npz is not in the folder PPL_MODELS_DATA names",
)


# ---------------------------------------------------------------- noise


def test_splits_sum_to_the_counts_and_follow_the_rates():
    rng = np.random.default_rng(0)
    counts, rates = np.full((20_000, 1), 12.0), np.array([[[1.0], [0.0], [3.0], [2.0]]]).repeat(20_000, 0)
    y = poisson_split(counts, rates, rng)
    assert (y.sum(1) == counts).all()
    assert (y[:, 1] == 0).all()
    for k, p in ((0, 1 / 6), (2, 1 / 2), (3, 1 / 3)):
        observed = np.bincount(y[:, k, 0].astype(int), minlength=13)
        expected = 20_000 * stats.binom.pmf(np.arange(13), 12, p)
        kept = expected > 5
        assert (((observed - expected) ** 2 / expected)[kept]).sum() < stats.chi2.isf(1e-6, kept.sum())


@pytest.mark.parametrize("rate", [1e-3, 0.7, 5.0, 1e4])
def test_poisson_scores_are_normal_under_the_model(rate):
    rng = np.random.default_rng(1)
    scores = poisson_scores(rng.poisson(rate, 10_000).astype(float), np.full(10_000, rate), rng)
    assert stats.kstest(scores, "norm").pvalue > 1e-5


def test_far_tails_have_no_atoms():
    rng = np.random.default_rng(2)
    far = poisson_scores(np.full(100, 200.0), np.ones(100), rng)
    assert np.isfinite(far).all()
    assert far.min() > 8.2  # beyond what a double can say as a probability
    assert len(np.unique(far)) == 100
    assert np.isfinite(poisson_scores(np.zeros(10), np.full(10, 1e4), rng)).all()
    assert stats.kstest(poisson_scores(np.zeros(5000), np.zeros(5000), rng), "norm").pvalue > 1e-5  # no rate, no information


def test_gaussian_split_equals_the_sequential_one():
    """Mean and covariance of the components given their sum, from the joint normal."""
    scales, residual = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64), 1.7
    draws = gaussian_split(torch.tensor([[residual]], dtype=torch.float64), scales, torch.Generator().manual_seed(0), 200_000)
    y = (draws[:, 0, :, 0] * scales[:, 0]).numpy()
    assert np.allclose(y.sum(1), residual)
    variances = np.array([0.25, 1.0, 4.0])
    share = variances / variances.sum()
    covariance = np.diag(variances) - np.outer(variances, variances) / variances.sum()
    # the sequential recipe of the first component, then of the second given the first
    first = (residual / variances[1:].sum()) / (1 / variances[0] + 1 / variances[1:].sum())
    assert first == pytest.approx(share[0] * residual)
    assert np.allclose(y.mean(0), share * residual, atol=0.02)
    assert np.allclose(np.cov(y.T), covariance, atol=0.02)


MIXTURES = [
    (Normal(), 2, {"predictors": [[-2.0, 0.0], [2.0, 1.0]], "dispersion": [[1.0, 0.3], [0.5, 2.0]]}),
    (Poisson(), 2, {"predictors": [[0.0, 2.0], [2.0, 0.5]]}),
    (Bernoulli(), 3, {"predictors": [[1.0, -1.0, 0.5], [-1.0, 1.0, -2.0]]}),
    (MultivariateNormal(), 2, {"means": [[0.0, 0.0], [2.0, 3.0]], "precisions": [[[1.0, 0.4], [0.4, 2.0]], [[2.0, -0.9], [-0.9, 1.0]]]}),
]


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize(("component", "num_items", "values"), MIXTURES, ids=lambda v: type(v).__name__)
def test_mixture_noise_is_normal_at_the_truth(component, num_items, values, missing):
    from inference.programs.program import simulate
    from inference.structures.registry import structure_of

    if missing and isinstance(component, MultivariateNormal):
        pytest.skip("multivariate normals take complete rows")
    model = Mixture(2, component, num_items)
    truth = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
    truth["weights"] = torch.tensor([0.6, 0.4], dtype=torch.float64)
    data = simulate(model, truth, 3, None, 6000)["items"].double()
    data = data.masked_fill(torch.rand(data.shape, generator=torch.Generator().manual_seed(0)) < missing, torch.nan)
    noise = structure_of(model).component_noise(truth, data, torch.Generator().manual_seed(1), 1)
    for k in range(2):
        used = noise.scores[0, :, k][noise.used[0, :, k]]
        for d in range(num_items):
            assert stats.kstest(used[:, d], "norm").pvalue > 1e-5
        assert np.abs(np.corrcoef(used.T) - np.eye(num_items)).max() < 0.09
    assert noise.used.sum(-1).min() == noise.used.sum(-1).max() == 1


# ---------------------------------------------------------------- estimators


@pytest.mark.parametrize(("n", "mean"), [(214, 0.4427), (1000, 0.1494), (5000, 0.0471)])
def test_kde_null_equals_the_published_one(n, mean):
    """tests/references: sum over 96 columns of exactly uniform noise, by an independent implementation."""
    rng = np.random.default_rng(n)
    values = [KDE(periodic=True).columns(rng.standard_normal((n, 96))).sum() for _ in range(4)]
    sd = {214: 0.037, 1000: 0.012, 5000: 0.002}[n]
    assert abs(np.mean(values) - mean) < 3 * sd / 2 + 0.01 * mean


def test_knn_is_near_zero_on_exact_noise_and_near_truth_off_it():
    rng = np.random.default_rng(0)
    assert abs(KNN().columns(rng.standard_normal((5000, 1)))[0]) < 0.02
    shifted = rng.standard_normal((5000, 1)) + 0.7
    assert KNN().columns(shifted)[0] == pytest.approx(0.245, abs=0.06)
    both = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 5000)
    assert KNN(jointly=True).columns(both)[0] == pytest.approx(-0.5 * np.log(1 - 0.64), abs=0.08)  # what marginals miss
    assert abs(KNN().columns(both).sum()) < 0.06
    column = both[:500, :1]  # sorting and trees find the same neighbours
    assert KNN().columns(column)[0] == pytest.approx(KNN(jointly=True).columns(column)[0], abs=1e-10)


@pytest.mark.parametrize("estimator", [KDE(), Histogram()])
def test_a_known_divergence_on_the_unit_interval(estimator):
    """Density 2u: the divergence from uniform is log 2 - 1/2."""
    u = np.sqrt(np.random.default_rng(1).random((20_000, 1)))
    assert estimator.columns(stats.norm.ppf(u))[0] == pytest.approx(np.log(2) - 0.5, abs=0.01)


@pytest.mark.parametrize("estimator", [KDE(), Histogram(10), KNN(), KDE(mean=True)])
@pytest.mark.parametrize("n", [20, 147, 2000])
def test_the_null_table_is_the_estimators_own_mean(estimator, n):
    mean, sd = null_moments(estimator, n, 12)
    rng = np.random.default_rng(n)
    reduce = np.mean if estimator.mean else np.sum
    values = [reduce(estimator.columns(rng.standard_normal((n, 12)))) for _ in range(60)]
    assert abs(np.mean(values) - mean) < 5 * sd / 60**0.5 + 0.02 * abs(mean)
    assert np.std(values) == pytest.approx(sd, rel=0.5)


# ---------------------------------------------------------------- loss curves


@pytest.mark.parametrize("seed", range(5))
def test_segments_equal_a_fine_grid(seed):
    rng = np.random.default_rng(seed)
    d = {k: rng.gamma(1.0, 2.0 / k, size=k) * (rng.random(k) < 0.8) for k in (1, 2, 3, 5, 8)}
    w = {k: rng.dirichlet(np.ones(k)) if seed % 2 else np.ones(k) for k in d}
    segments = best_segments(d, w, 0.01)
    assert segments[0].start == 0.0
    assert segments[-1].end == pytest.approx(max(v.max() for v in d.values()) + 1)
    assert all(a.end == b.start and a.num_components != b.num_components for a, b in itertools.pairwise(segments))
    grid = np.linspace(0, segments[-1].end, 10_000, endpoint=False)
    curves = np.array([loss(d[k], w[k], 0.01, grid) for k in d])
    place = np.array([next(s for s in segments if s.start <= r < s.end).num_components for r in grid])
    own = np.array([curves[list(d).index(k), i] for i, k in enumerate(place)])
    assert np.abs(own - curves.min(0)).max() < 1e-9


def test_ties_take_the_smaller_number():
    d = {2: np.zeros(2), 3: np.zeros(3), 4: np.zeros(4)}
    w = {k: np.ones(k) for k in d}
    assert [s.num_components for s in best_segments(d, w, 0.0)] == [2]


def result_of(d: dict[int, np.ndarray], sd: float = 0.01) -> AcdcResult:
    nothing, spread = {k: np.zeros(k) for k in d}, {k: np.full(k, sd) for k in d}
    ones = {k: np.ones(k) for k in d}
    segments = best_segments(d, ones, 0.01)
    return AcdcResult(d, nothing, spread, d, ones, ones, dict.fromkeys(d), 0.01, 0.5, segments, "by hand", {})


def test_choices_by_width_and_by_cutoff():
    result = result_of({1: np.array([3.0]), 2: np.array([0.3, 0.2]), 3: np.array([0.04, 0.0, 0.0])})
    assert result.left == pytest.approx({1: 3.0, 2: 0.5, 3: 0.04 + 2 * 0.01645})
    assert result.shares == pytest.approx({2: 5 / 6, 3: 1 - (0.04 + 2 * 0.01645) / 0.5})
    assert result.select(rho=0.0).num_components == 3
    assert result.select(rho=0.5).num_components == 2
    assert result.select(rho=50.0).num_components == 1
    assert (result.chosen, result.select().stable) == (3, False)  # the largest compared
    assert result.select(0.835).num_components == 3
    assert result.select(0.9).num_components == 1
    assert result.select(min_width=0.1).num_components == 3
    assert result.select(min_width=1.0).num_components == 2
    assert result.select(rho=0.6).stable
    assert not result.select(rho=0.29).stable  # half of it chooses three
    loose = result.select(min_width=100.0)  # none so wide: the widest bounded one, flagged
    assert (loose.num_components, loose.stable) == (2, False)
    assert result.sensitivity() == dict.fromkeys((0.4, 0.45, 0.5, 0.55, 0.6), 3)
    assert list(result.table.index) == [1, 2, 3]
    assert result.table.chosen.tolist() == [False, False, True]
    assert len(result.to_frame()) == 6


def test_a_slow_descent_beyond_the_choice_is_told():
    d = {2: np.array([9.0, 9.0]), 3: np.array([2.0, 2.0, 2.0]), 4: np.array([2.0, 2.0, 0.1, 0.1])}
    d |= {5: np.array([2.0, 0.3, 0.3, 0.1, 0.1]), 6: np.full(6, 0.3)}
    slow = result_of(d)
    assert slow.chosen == 3
    assert taken_beyond(slow.left, 3) == (6, pytest.approx(1 - 1.8 / 6))
    assert taken_beyond(slow.left, 6) == (6, 0.0)
    words = " ".join(why(slow, 3))
    assert "up to K = 6, take away 70% of it" in words
    assert "K = 6 from 0.00 to 1.99" in words
    plain = result_of({2: np.array([9.0, 9.0]), 3: np.array([2.0, 2.0, 2.0]), 4: np.array([2.0, 2.0, 1.5, 0.1])})
    assert "more components would only mend it" in " ".join(why(plain, 3))


@pytest.mark.parametrize(
    ("left", "chosen", "finished"),
    [
        ({1: 9.5, 2: 3.5, 3: 0.75, 4: 0.36, 5: 0.17}, 3, True),  # one run of clear steps: its steepest
        ({1: 48.0, 2: 13.0, 3: 3.0, 4: 1.9, 5: 1.1, 6: 0.25, 7: 0.22}, 6, True),  # two runs: the last
        ({1: 48.0, 2: 13.0, 3: 3.0, 4: 1.9, 5: 1.1, 6: 0.25}, 3, False),  # the last is not finished
        ({1: 4.0, 2: 1.5, 3: 0.1}, 3, False),
        ({1: 1.0, 2: 0.9, 3: 0.7}, None, True),
        ({1: 1.0, 2: 3.0, 3: 0.9, 4: 0.8}, None, True),  # a poor fit on the way makes no step
        ({1: 1.0, 2: 3.0, 3: 0.1, 4: 0.1}, 3, True),
        ({2: 1.0, 4: 0.3, 6: 0.3}, None, True),  # two components between them: each takes less than half
        ({2: 1.0, 4: 0.2, 6: 0.2}, 4, True),
        ({4: 0.3}, None, True),
    ],
)
def test_the_last_clear_step(left, chosen, finished):
    assert clear_step(shares_taken(left)) == (chosen, finished)


def test_what_cannot_be_told_from_noise_makes_no_step():
    d = {k: np.full(k, value) for k, value in ((1, 1.0), (2, 0.3), (3, 0.01), (4, 0.0))}
    assert result_of(d, sd=0.0025).chosen == 3
    assert result_of(d, sd=0.2).chosen == 1
    many = result_of({k: np.zeros(k) for k in (1, 2, 3)}, sd=0.05)
    assert (many.chosen, many.select().stable) == (1, True)
    stuck = result_of({1: np.ones(1), 2: np.full(2, 0.4)})
    assert (stuck.chosen, stuck.select().stable) == (1, False)
    nan = {1: np.array([0.01]), 2: np.array([0.015, np.nan])}  # too few rows to judge: as uncertain as the others
    left = discrepancy_left({1: np.ones(1), 2: np.array([0.5, 0.0])}, nan, {1: np.ones(1), 2: np.ones(2)})
    assert left == pytest.approx({1: 1.0, 2: 0.5 + 1.645 * 0.015})


@pytest.mark.parametrize("truth", [1, 2, 4])
def test_exact_noise_beyond_the_truth_makes_no_clear_step(truth):
    """Large values below the truth, normal errors of the size of the null beyond it: the truth, in every one of many draws."""
    rng = np.random.default_rng(truth)
    for _ in range(200):
        d = {k: np.full(k, 5.0 / k) if k < truth else np.maximum(0.0, rng.normal(0, 0.05, k)) for k in range(1, 8)}
        assert result_of(d, sd=0.05).chosen == truth


# ---------------------------------------------------------------- end to end


def small_counts(seed=0):
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(48, 0.2), size=3)
    z = rng.gamma(1.0, 300.0, size=(150, 3)) * (rng.random((150, 3)) < 0.8) + 20
    return simulate_mutations(phi, z, seed=seed), phi, z


@pytest.fixture(scope="module")
def grid():
    x, phi, z = small_counts()
    return x, phi, z, fit_grid(lambda k: PoissonFactorization(48, k), x, range(1, 6), num_restarts=5, seed=1)


def test_the_true_number_of_signatures(grid):
    x, phi, z, fits = grid
    result = acdc(fits, x, seed=3)
    assert result.chosen == 3
    match = match_components(fits[3].params["signatures"], phi, fits[3].local["activities"], z)
    assert match.cosine_error.max() < 0.02
    again = acdc(fits, x, seed=3)
    assert all(np.array_equal(result.raw[k], again.raw[k]) for k in fits)
    assert sum(result.agreement.values()) == pytest.approx(1)
    raw = acdc(fits, x, seed=3, calibrate=NoNull())
    assert all((raw.component_discrepancy[k] >= result.component_discrepancy[k]).all() for k in fits)
    boot = acdc({3: fits[3]}, x, seed=3, calibrate=Bootstrap(8))
    assert np.abs(boot.null_mean[3] - result.null_mean[3]).max() < 6 * result.null_sd[3].max()
    again = acdc({3: fits[3]}, x, seed=3, calibrate=Bootstrap(3, refit=True))
    assert np.abs(again.raw[3] - again.null_mean[3]).max() < 5 * result.null_sd[3].max()  # the fit's optimism is in the null


def test_permuted_components_change_nothing_but_the_order(grid):
    x, _, _, fits = grid
    order = torch.tensor([2, 0, 1])
    own = fits[3]
    other = replace(
        own, params={"signatures": own.params["signatures"][order]}, local={"activities": own.local["activities"][:, order]}
    )
    first, second = acdc({3: own}, x, num_draws=30), acdc({3: other}, x, num_draws=30)
    assert np.array_equal(first.num_used[3][order.numpy()], second.num_used[3])
    assert np.abs(first.raw[3][order.numpy()] - second.raw[3]).max() < 0.05  # other random splits of the same counts


def test_the_truths_noise_is_called_discrepant_at_about_its_level():
    """At the true parameters of well-specified counts, |D - null| stays within a few null sds."""
    x, phi, z = small_counts(4)
    fits = fit_grid(lambda k: PoissonFactorization(48, k), x, [3], num_restarts=1)
    at_truth = replace(fits[3], params={"signatures": torch.tensor(phi)}, local={"activities": torch.tensor(z)})
    result = acdc({3: at_truth}, x, num_draws=1)
    assert (np.abs(result.raw[3] - result.null_mean[3]) < 4 * result.null_sd[3]).all()
    spread = simulate_mutations(phi, z, "overdispersed", seed=4)
    wrong = acdc({3: at_truth}, spread)
    assert ((wrong.raw[3] - wrong.null_mean[3]) > 4 * wrong.null_sd[3]).any()


def test_skewed_mixture_where_bic_adds_components():
    x, _ = skew_normal_mixture(num_rows=2000, seed=1)
    fits = fit_grid(lambda k: Mixture(k, Normal()), x, range(1, 5), num_restarts=2)
    result = acdc(fits, x, discrepancy=KNN())
    assert result.chosen == 2
    assert acdc(fits, x, discrepancy=KNN(), weighted=True).left[1] == pytest.approx(result.left[1])
    assert min(fits, key=lambda k: bic_thesis(fits[k])) > 2


def test_plug_in_of_counts():
    x, _ = negative_binomial_mixture(num_rows=4000, seed=1)
    fits = fit_grid(lambda k: Mixture(k, Poisson(), bound=15.0), x, (1, 2, 3, 4), num_restarts=2)
    result = acdc(fits, x, discrepancy=PlugIn())
    assert result.chosen == 3
    # by hand: responsibilities against the component's law
    own = fits[2]
    weight = own.posterior_latents(x)["assignments"].numpy()
    rates = own.params["predictors"].exp().numpy()[:, 0]
    for k in range(2):
        values = np.unique(x)
        p = np.array([weight[x[:, 0] == v, k].sum() for v in values])
        p = p / p.sum()
        law = stats.poisson.logpmf(values, rates[k])
        seen = p > 0
        assert result.raw[2][k] == pytest.approx((p[seen] * (np.log(p[seen]) - law[seen])).sum(), rel=1e-8)


def test_rivals_in_one_table(grid):
    x, _, _, fits = grid
    result = acdc(fits, x)
    table = compare_criteria(fits, x, result)
    assert list(table.index) == ["BIC (thesis)", "BIC, log N", "BIC, log NJ", "AIC", "parallel analysis", "ACDC"]
    assert table.loc["ACDC", "chosen"] == 3
    n, p = len(x), 3 * 47 + 3 * len(x)
    assert table.loc["BIC, log N", "3"] == pytest.approx(p * np.log(n) - 2 * fits[3].log_likelihood)
    assert bic_thesis(fits[3]) == pytest.approx(3 * np.log(n) - 2 * fits[3].log_likelihood + 2 * np.log(6))
    assert 0 < cophenetic_correlation(fits[2], x) <= 1
    at = {k: held_out_log_likelihood(lambda k: PoissonFactorization(48, k), x, k, num_restarts=2) for k in (1, 3)}
    assert at[3] > at[1] + 0.5


def test_parallel_analysis_counts_factors():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 10)) * 1.5 + rng.normal(size=(400, 10))
    analysis = parallel_analysis(x)
    assert (analysis.chosen, analysis.matrix) == (2, "correlation")
    assert parallel_analysis(rng.normal(size=(400, 10))).chosen <= 1
    assert parallel_analysis(rng.poisson(3, (50, 4))).matrix == "covariance of square roots"
    assert plot_scree(analysis).axes[0].lines


def test_pictures_show_what_they_should(grid):
    x, _, _, fits = grid
    result = acdc(fits, x)
    steps, curves = result.plot().axes
    assert steps.lines[0].get_ydata().tolist() == list(result.left.values())
    assert "K = 3" in steps.get_title()
    assert len(curves.lines) == len(fits)
    assert curves.patches
    assert plot_discrepancies(result).axes[0].lines
    figure = plot_signatures(fits[3].params["signatures"], [f"channel {j}" for j in range(48)])
    heights = [patch.get_height() for patch in figure.axes[0].patches]
    assert sorted(heights) == pytest.approx(sorted(fits[3].params["signatures"][0].tolist()))


# ---------------------------------------------------------------- metrics and data


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_soft_rand_index_is_the_ordinary_one_on_labels(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 4, 60), rng.integers(0, 3, 60)
    b[:30] = a[:30] % 3
    assert soft_adjusted_rand_index(np.eye(4)[a], np.eye(3)[b]) == pytest.approx(adjusted_rand_score(a, b), abs=1e-12)
    soft = rng.dirichlet(np.ones(3), 60)
    assert soft_adjusted_rand_index(soft, soft) < 1


@pytest.mark.parametrize("num", [2, 3, 5])
def test_matching_fewer_as_many_and_more(num):
    truth = np.eye(3) + 0.01
    estimate = np.concatenate([truth[[2, 0, 1]], np.full((2, 3), 1.0)])[:num]
    match = match_components(estimate, truth)
    assert match.cosine_error.max() < 1e-12
    assert match.true.tolist() == ([0, 2] if num == 2 else [0, 1, 2])
    assert match.estimated.tolist() == ([1, 0] if num == 2 else [1, 2, 0])
    assert len(match.unmatched_estimates) == max(0, num - 3)
    assert len(match.unmatched_truths) == max(0, 3 - num)


def test_f_measure_by_hand():
    assert f_measure([0, 0, 1, 1], [5, 5, 7, 7]) == 1.0
    assert f_measure([0, 0, 0, 1], [5, 5, 7, 7]) == pytest.approx((0.8 * 2 + 2 / 3 * 2) / 4)
    assert f_measure([0, 0, 1, 9], [5, 5, 7, 0], unlabelled=0) == 1.0


@needs_data
@pytest.mark.parametrize(
    ("variant", "dispersion"), [("well_specified", 0.988), ("contaminated", 1.428), ("overdispersed", 2.004), ("perturbed", 1.979)]
)
def test_published_sets_and_our_generators_agree(variant, dispersion):
    data = load_breast(variant)
    assert data.counts.shape == (214, 96)
    mean = data.activities @ data.signatures
    assert ((data.counts - mean) ** 2 / mean).mean() == pytest.approx(dispersion, abs=2e-3)
    ours = simulate_mutations(data.signatures, data.activities, variant, seed=5)
    assert ((ours - mean) ** 2 / mean).mean() == pytest.approx(dispersion, rel=0.12)
    assert load_breast().counts.sum() == 1515569


def test_mixture_generators():
    x, labels = skew_normal_mixture((0.0,), (-10.0,), (1.0,), 40_000, 1)
    law = stats.skewnorm(-10)
    assert x.mean() == pytest.approx(law.mean(), abs=0.02)
    assert stats.skew(x[:, 0]) == pytest.approx(float(law.stats("s")), abs=0.1)
    counts, labels = negative_binomial_mixture(30_000, 0)
    for k, (size, chance) in enumerate([(55, 0.5), (75, 0.3), (100, 0.5)]):
        assert counts[labels == k].mean() == pytest.approx(stats.nbinom.mean(size, chance), rel=0.02)
    wide, labels = skew_normal_mixture_50d(2000, 0)
    assert wide.shape == (2000, 50)
    assert abs(stats.skew((wide[labels == 2])[:, :]).mean()) > 0.02  # not Normal, as in the published script
    bits, labels = thresholded_normals(5000, 0)
    assert set(np.unique(bits)) == {0.0, 1.0}
    assert len(np.unique(labels)) == 4


# ---------------------------------------------------------------- bad input


def test_bad_input(grid):
    x, _, _, fits = grid
    cases = [
        (lambda: acdc({}, x), "non-empty mapping"),
        (lambda: acdc({2: fits[3]}, x), "has num_components = 3"),
        (lambda: acdc({3: fits[3]}, x[:50]), "fitted to 150 rows"),
        (lambda: acdc({3: fits[3]}, x[:, :5]), "num_items = 48 columns"),
        (lambda: acdc({3: "fit"}, x), "must be a Fit"),
        (lambda: acdc(fits, x, num_draws=0), "num_draws must be a positive integer"),
        (lambda: acdc(fits, x, calibrate=None), "calibrate must be"),
        (lambda: acdc(fits, x, penalty=-1.0), "penalty must not be negative"),
        (lambda: acdc(fits, x, discrepancy=PlugIn()), "needs a mixture of discrete items"),
        (lambda: acdc(fits, x).select(rho=-1.0), "rho must not be negative"),
        (lambda: acdc(fits, x).select(rho=1.0, min_width=1.0), "give one of"),
        (lambda: acdc(fits, x).select(1.0), "min_share must lie between"),
        (lambda: acdc(fits, x, min_share=0.0), "min_share must lie between"),
        (lambda: KDE(mean="yes"), "mean must be True or False"),
        (lambda: Histogram(1), "num_bins"),
        (lambda: Bootstrap(1), "num_data_sets"),
        (lambda: PlugIn(0), "num_null"),
        (lambda: fit_grid(lambda k: PoissonFactorization(48, k), x, [2, 2]), "different numbers"),
        (lambda: parallel_analysis([[1.0, np.nan]] * 4), "complete finite table"),
        (lambda: match_components(np.ones((2, 3)), np.ones((2, 4))), "were expected, got shapes"),
        (lambda: match_components(np.zeros((1, 3)), np.ones((1, 3))), "is zero"),
        (lambda: soft_adjusted_rand_index(-np.ones((2, 2)), np.ones((2, 2))), "not negative"),
        (lambda: f_measure([1], [1, 2]), "one length"),
        (lambda: load_breast("real"), "variant must be"),
        (lambda: simulate_mutations(np.ones((2, 3)), np.ones((4, 2))), "simplex"),
        (lambda: skew_normal_mixture(weights=(0.5, 0.6)), "sum to 1"),
        (lambda: plot_signatures(np.ones((2, 3)), ["a"]), "signatures"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
    assert Table() == Table()


def test_a_family_without_noise_is_refused_by_name():
    model = DeepDiscreteEncoder(4, (1,))
    data = torch.randint(0, 2, (40, 4), generator=torch.Generator().manual_seed(0)).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(model, data, num_restarts=1, init="random")
    with pytest.raises(ValueError, match=r"num_components = None"):
        acdc({1: result}, data)


def test_draws_are_added_until_the_choice_is_settled():
    """Where the choice hangs on single draws, more of them; where it does not, no more than asked for."""
    rng = np.random.default_rng(0)
    phi, z = 0.9 * np.kron(np.eye(3), np.full(4, 0.25)) + 0.1 / 12, rng.gamma(1.0, [120.0, 100.0, 40.0], (150, 3))
    x = rng.poisson(z @ phi).astype(float) + np.eye(12)[0]
    fits = fit_grid(lambda k: PoissonFactorization(12, k), x, (1, 2, 3, 4), 3)
    clear = acdc(fits, x)
    assert clear.num_draws == 4
    assert set(clear.agreement) == {3}
    edge = clear.shares[3]  # single draws pass it or not, and choose 3 or a smaller number
    unclear = acdc(fits, x, min_share=edge)
    assert unclear.num_draws > 4
    assert len(unclear.agreement) > 1
    assert acdc(fits, x, min_share=edge, max_draws=4).num_draws == 4
    np.testing.assert_array_equal(acdc(fits, x, max_draws=4).raw[3], clear.raw[3])
    one = acdc(fits, x, num_draws=8, max_draws=8, seed=1)
    assert one.raw[3].shape == (3,)
    assert np.allclose(one.num_used[3], clear.num_used[3])
    with pytest.raises(ValueError, match="max_draws must be an integer of at least num_draws = 4"):
        acdc(fits, x, max_draws=3)
