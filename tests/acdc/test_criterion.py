"""ACDC from fits to a choice: the true number, nulls, invariances, pictures, and what is
refused.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from support.counts import small_counts, small_grid

from inference import fit
from inference.acdc import KDE, KNN, Bootstrap, Histogram, NoNull, PlugIn, Table, acdc
from inference.metrics import f_measure, match_components, soft_adjusted_rand_index
from inference.plots import plot_discrepancies, plot_signatures
from inference.selection import fit_grid, parallel_analysis, select_components
from inference.selection.factorization_criteria import bic_thesis
from ppl_models import (
    Bernoulli,
    DeepDiscreteEncoder,
    HiddenMarkov,
    Mixture,
    Normal,
    Poisson,
    PoissonFactorization,
)
from ppl_models.datasets import (
    load_breast,
    negative_binomial_mixture,
    simulate_mutations,
    skew_normal_mixture,
)

# ---------------------------------------------------------------- end to end


@pytest.fixture(scope="module")
def grid():
    return small_grid()


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
    assert all(
        (raw.component_discrepancy[k] >= result.component_discrepancy[k]).all() for k in fits
    )
    boot = acdc({3: fits[3]}, x, seed=3, calibrate=Bootstrap(8))
    assert np.abs(boot.null_mean[3] - result.null_mean[3]).max() < 6 * result.null_sd[3].max()
    again = acdc({3: fits[3]}, x, seed=3, calibrate=Bootstrap(3, refit=True))
    assert (
        np.abs(again.raw[3] - again.null_mean[3]).max() < 5 * result.null_sd[3].max()
    )  # the fit's optimism is in the null


def test_permuted_components_change_nothing_but_the_order(grid):
    x, _, _, fits = grid
    order = torch.tensor([2, 0, 1])
    own = fits[3]
    other = replace(
        own,
        params={"signatures": own.params["signatures"][order]},
        local={"activities": own.local["activities"][:, order]},
    )
    first, second = acdc({3: own}, x, num_draws=30), acdc({3: other}, x, num_draws=30)
    assert np.array_equal(first.num_used[3][order.numpy()], second.num_used[3])
    assert (
        np.abs(first.raw[3][order.numpy()] - second.raw[3]).max() < 0.05
    )  # other random splits of the same counts


def test_the_truths_noise_is_called_discrepant_at_about_its_level():
    """At the true parameters of well-specified counts, |D - null| stays within a few null sds."""
    x, phi, z = small_counts(4)
    fits = fit_grid(lambda k: PoissonFactorization(48, k), x, [3], num_restarts=1)
    at_truth = replace(
        fits[3], params={"signatures": torch.tensor(phi)}, local={"activities": torch.tensor(z)}
    )
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


def test_states_of_too_few_steps_leave_no_less_than_one_that_is_judged():
    x = np.random.default_rng(0).normal(size=(60, 1))  # no states at all
    fits = fit_grid(lambda k: HiddenMarkov(k, Normal()), [x], (1, 2, 3), num_restarts=3)
    result = acdc(fits, [x])
    assert (result.num_used[3] < 50).all()
    assert np.isnan(result.null_sd[3]).all()
    # the floor of the one state that is judged, for each of three
    assert result.left[3] == pytest.approx(3 * result.left[1])
    assert result.chosen == 1


def test_a_column_of_one_value_says_nothing_of_the_number():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2)) + 4 * rng.integers(0, 2, (200, 1))
    for rows in (x, np.c_[x, np.full(200, 2.0)]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # names the column
            fits = fit_grid(lambda k: Mixture(k, Normal()), rows, (1, 2), num_restarts=3)
            result = acdc(fits, rows)
            answer = select_components(Mixture(2), pd.DataFrame(rows), (1, 2, 3), num_restarts=3)
        assert result.chosen == 2
        assert result.left[2] < 0.1
        assert (answer.num_components, answer.status) == (2, "confident")


def test_fits_may_have_their_columns_in_orders_of_their_own():
    rng = np.random.default_rng(0)
    means = rng.gamma(1, 8, (120, 1)) * [1.0, 2.0, 4.0, 0.5]
    frame = pd.DataFrame(1 + rng.poisson(means), columns=list("abcd"))
    turned = fit(PoissonFactorization(4, 1), frame[list("dcba")])
    fits = {k: fit(PoissonFactorization(4, k), frame, num_restarts=2) for k in (1, 2)}
    one, other = acdc(fits, frame), acdc({1: turned, 2: fits[2]}, frame)
    assert abs(one.raw[1] - other.raw[1])[0] < 0.1  # of other draws of the noise
    np.testing.assert_array_equal(one.raw[2], other.raw[2])


def test_null_of_plug_in_counts_patterns_not_seen():
    num, chance = 300, np.full(8, 0.4)
    rng = np.random.default_rng(0)

    def drawn():
        return (rng.random((num, 8)) < chance).astype(float)

    def divergence(x):  # by hand, of the patterns from the chances known
        patterns, counts = np.unique(x, axis=0, return_counts=True)
        logs = np.where(patterns == 1, np.log(chance), np.log(1 - chance)).sum(1)
        return (counts / num * (np.log(counts / num) - logs)).sum()

    x = drawn()
    one = fit(Mixture(1, Bernoulli()), x, fixed={"predictors": np.log(chance / (1 - chance))[None]})
    result = acdc({1: one}, x, discrepancy=PlugIn())
    assert result.raw[1][0] == pytest.approx(divergence(x), abs=1e-9)
    values = [divergence(drawn()) for _ in range(200)]
    assert result.null_mean[1][0] == pytest.approx(np.mean(values), abs=0.03)  # of 0.5


def test_plug_in_of_counts():
    x, _ = negative_binomial_mixture(num_rows=4000, seed=1)
    fits = fit_grid(lambda k: Mixture(k, Poisson(), bound=15.0), x, (1, 2, 3, 4), num_restarts=2)
    result = acdc(fits, x, discrepancy=PlugIn())
    assert result.chosen == 3
    # by hand: responsibilities against the component's distribution
    own = fits[2]
    weight = own.posterior_latents(x)["assignments"].numpy()
    rates = own.params["predictors"].exp().numpy()[:, 0]
    for k in range(2):
        values = np.unique(x)
        p = np.array([weight[x[:, 0] == v, k].sum() for v in values])
        p = p / p.sum()
        distribution = stats.poisson.logpmf(values, rates[k])
        seen = p > 0
        assert result.raw[2][k] == pytest.approx(
            (p[seen] * (np.log(p[seen]) - distribution[seen])).sum(), rel=1e-8
        )


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
    """Where the choice hangs on single draws, more of them; where it does not, no more than asked
    for.
    """
    rng = np.random.default_rng(0)
    phi, z = (
        0.9 * np.kron(np.eye(3), np.full(4, 0.25)) + 0.1 / 12,
        rng.gamma(1.0, [120.0, 100.0, 40.0], (150, 3)),
    )
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
