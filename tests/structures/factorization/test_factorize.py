"""Matrix factorization: updates by hand, monotone objectives, oracles, local estimates in fits, bad
input.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from sklearn.decomposition import NMF

from inference import EM, Fit, fit
from inference.base.structure import conditional_log_likelihoods
from inference.programs.program import Program
from inference.structures.factorization.factorize import Factorize
from inference.structures.factorization.updates import Counts, LeastSquares, accelerated
from ppl_models import GaussianFactorization, PoissonFactorization

F64 = torch.float64


def counts_case(seed=0, n=30, j=8, k=3, missing=0.0):
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(j, 0.3), size=k)
    z = rng.gamma(1.0, 20.0, size=(n, k))
    x = rng.poisson(z @ phi).astype(float)
    x[:, 0] += 1  # no empty row
    x[rng.random(x.shape) < missing] = np.nan
    return torch.tensor(x), torch.tensor(z), torch.tensor(phi)


def pair(seed, n=30, j=8, k=3, restarts=2):
    g = torch.Generator().manual_seed(seed)
    z = 20 * torch.rand(restarts, n, k, generator=g, dtype=F64) + 0.1
    phi = torch.rand(restarts, k, j, generator=g, dtype=F64)
    return z, phi / phi.sum(-1, keepdim=True)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_updates_are_em_by_hand(missing):
    """E[y | x] cell by cell, then the closed-form M-step of both factors."""
    x, _, _ = counts_case(missing=missing)
    model = PoissonFactorization(8, 3, concentration=1.5, activity_prior=(2.0, 0.1))
    updates = Counts.of(x, model.factorization())
    z, phi = pair(1)
    for r in range(2):
        mu = z[r] @ phi[r]
        filled = torch.where(x.isnan(), mu, x)  # a missing count is missing data too
        y = filled.unsqueeze(1) * z[r].unsqueeze(-1) * phi[r] / mu.unsqueeze(1)  # (N, K, J)
        new_z = (y.sum(-1) + 1.0) / 1.1
        new_phi = y.sum(0) + 0.5
        torch.testing.assert_close(updates.activities(z, phi)[r], new_z, rtol=1e-10, atol=1e-10)
        moved = updates.moved(z, phi, updates.pulls(z, phi))[1][r]
        torch.testing.assert_close(
            moved, new_phi / new_phi.sum(-1, keepdim=True), rtol=1e-10, atol=1e-10
        )


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("prior", [None, (1.5, 0.05)])
def test_counts_never_lose(missing, prior):
    x, _, _ = counts_case(1, missing=missing)
    model = PoissonFactorization(8, 3, concentration=1.2 if prior else 1.0, activity_prior=prior)
    updates = Counts.of(x, model.factorization())
    z, phi = pair(2)
    last = updates.varying(z, phi)
    for step in range(20):
        z, phi = (
            updates.sweep(z, phi)
            if step < 10
            else accelerated(updates, updates.sweep, z, phi, updates.varying(z, phi))[:2]
        )
        value = updates.varying(z, phi)
        assert bool((value >= last - 1e-9 * last.abs()).all())
        last = value
    torch.testing.assert_close(phi.sum(-1), torch.ones(2, 3, dtype=F64))


def test_least_squares_never_loses():
    x = counts_case(2)[0]
    updates, (z, phi) = LeastSquares(x), pair(3)
    last = updates.varying(z, phi)
    for _ in range(30):
        z, phi = updates.sweep(z, phi)
        value = updates.varying(z, phi)
        assert bool((value >= last - 1e-9 * last.abs()).all())
        last = value


def nearly_collinear(seed):
    """Columns that share a trend, so that sweeps creep."""
    rng = np.random.default_rng(seed)
    x = rng.gamma(0.5, 1.0, (60, 4)) @ (1 + 0.3 * rng.random((4, 9)))
    return torch.tensor(np.maximum(x + 0.05 * rng.normal(size=x.shape), 0))


@pytest.mark.parametrize("seed", range(3))
def test_extrapolated_sweeps_lose_nothing_and_reach_in_a_third(seed):
    """Explained squares are those of the iterate, never fall, and outrun plain sweeps."""
    x = nearly_collinear(seed)
    updates, (z, phi) = LeastSquares(x), pair(seed, 60, 9, 4)
    plain, course = (z, phi), updates.begin(z, phi)
    for sweep in range(600):
        last = course["explained"]
        z, phi, course = updates.extrapolated(z, phi, course)
        assert bool((course["explained"] >= last).all())
        if not sweep % 20:
            left = x.square().sum() - course["explained"]
            torch.testing.assert_close(-updates.varying(z, phi), left, rtol=1e-9, atol=1e-9)
        plain = updates.sweep(*plain)
        if sweep == 199:
            early = updates.varying(z, phi)
    assert float(z.min()) >= 0
    assert float(phi.min()) >= 0
    torch.testing.assert_close(phi.norm(dim=-1), torch.ones(2, 4, dtype=F64))
    assert bool((early >= updates.varying(*plain) * (1 + 1e-6)).any())
    stays = updates.sweep(z, phi)  # a stationary point of the sweep
    torch.testing.assert_close(updates.varying(*stays), updates.varying(z, phi), rtol=1e-5, atol=0)


@pytest.mark.parametrize(("missing", "prior"), [(0.0, None), (0.15, None), (0.0, (1.5, 0.05))])
def test_the_reported_numbers_are_the_programs(missing, prior):
    x, _, _ = counts_case(3, missing=missing)
    model = PoissonFactorization(8, 3, activity_prior=prior)
    result = fit(model, x, num_restarts=3, seed=2)
    rates = (result.local["activities"] @ result.params["signatures"]).numpy()
    by_hand = np.where(
        np.isnan(x.numpy()),
        0.0,
        stats.poisson.logpmf(np.nan_to_num(x.numpy()), np.maximum(rates, 1e-12)),
    )
    assert result.log_likelihood == pytest.approx(by_hand.sum(), rel=1e-10)
    joint = Program(model, x).log_joint(result.params | result.local, {})
    assert result.objective == pytest.approx(float(joint), rel=1e-9)
    assert result.num_parameters == 3 * 7 + 30 * 3
    assert "activities" not in result.params
    assert "activities" not in result.restarts.params
    totals = result.local["activities"].sum(0)
    assert bool((totals.diff() <= 0).all())
    if prior is None and not missing:
        torch.testing.assert_close(result.local["activities"].sum(-1), x.sum(-1), rtol=1e-3, atol=0)


def test_as_good_as_scikit_learn():
    x, _, _ = counts_case(4, n=60, j=12)
    result = fit(PoissonFactorization(12, 3), x, num_restarts=10, seed=0)
    best = -math.inf
    for seed in range(5):
        nmf = NMF(
            3,
            solver="mu",
            beta_loss="kullback-leibler",
            init="random",
            random_state=seed,
            max_iter=5000,
            tol=1e-9,
        )
        mu = np.maximum(nmf.fit_transform(x.numpy()) @ nmf.components_, 1e-12)
        best = max(best, stats.poisson.logpmf(x.numpy(), mu).sum())
    assert result.log_likelihood >= best - 0.05


def test_new_rows_are_solved_for():
    """The activities of a new row are the maximum of a concave function: compared with scipy's
    optimizer.
    """
    x, _, _ = counts_case(5)
    result = fit(PoissonFactorization(8, 3), x, num_restarts=3, seed=1)
    new = counts_case(6, n=4)[0]
    phi = result.params["signatures"].numpy()
    rows = result.log_likelihood_rows(new)
    for i in range(4):
        row = new[i].numpy()

        def minus(z, row=row):
            return -stats.poisson.logpmf(row, np.maximum(z @ phi, 1e-12)).sum()

        found = optimize.minimize(
            minus, np.full(3, row.sum() / 3), bounds=[(1e-10, None)] * 3, method="L-BFGS-B"
        )
        assert float(rows[i]) == pytest.approx(-found.fun, abs=1e-4)


@pytest.mark.parametrize("nonnegative", [None, False, True])
def test_rows_are_rebuilt_from_their_best_activities(nonnegative):
    """Against the activities of the fit, and against a numerical maximum where an entry is
    missing.
    """
    x = counts_case(seed=3, n=25, j=6, k=2)[0]
    model = (
        PoissonFactorization(6, 2)
        if nonnegative is None
        else GaussianFactorization(6, 2, nonnegative=nonnegative)
    )
    result = fit(model, x, seed=1)
    phi = result.params["signatures"]
    torch.testing.assert_close(
        result.reconstruct(x), result.local["activities"] @ phi, rtol=2e-3, atol=2e-2
    )
    if nonnegative is not None:
        return
    gaps = x.clone()
    gaps[4, 2] = torch.nan
    seen = [0, 1, 3, 4, 5]

    def minus(z):
        rate = z @ phi.numpy()[:, seen] + 1e-300
        return rate.sum() - (x[4, seen].numpy() * np.log(rate)).sum()

    best = optimize.minimize(
        minus,
        np.full(2, float(x[4].sum()) / 2),
        bounds=[(1e-10, None)] * 2,
        method="L-BFGS-B",
        options={"ftol": 1e-14},
    ).x
    filled = result.fill_missing(gaps.numpy())
    assert filled[4, 2] == pytest.approx(float(best @ phi.numpy()[:, 2]), rel=1e-3)
    assert np.array_equal(np.delete(filled, 4, 0), np.delete(np.asarray(x), 4, 0))


@pytest.mark.parametrize("nonnegative", [False, True])
def test_gaussian(nonnegative, tmp_path):
    rng = np.random.default_rng(0)
    z, phi = rng.gamma(1.0, 1.0, size=(40, 2)), rng.gamma(1.0, 1.0, size=(2, 6))
    x = torch.tensor(z @ phi + 0.05 * rng.normal(size=(40, 6)))
    result = fit(GaussianFactorization(6, 2, nonnegative=nonnegative), x, seed=1)
    mean = result.local["activities"] @ result.params["signatures"]
    residual = float((x - mean).square().sum())
    s = torch.linalg.svdvals(x)
    if nonnegative:
        assert float(result.params["signatures"].min()) >= 0
        assert residual < 1.3 * float(s[2:].square().sum())
        theirs = NMF(2, init="nndsvda", max_iter=2000, tol=1e-8).fit(x.clamp(min=0).numpy())
        assert residual**0.5 <= theirs.reconstruction_err_ * 1.02
    else:
        assert residual == pytest.approx(float(s[2:].square().sum()), rel=1e-8)
    scale = (residual / x.numel()) ** 0.5
    assert float(result.params["scales"]) == pytest.approx(scale, rel=1e-6)
    by_hand = stats.norm.logpdf(x.numpy(), mean.numpy(), scale).sum()
    assert result.log_likelihood == pytest.approx(by_hand, rel=1e-8)
    assert float(result.log_likelihood_rows(x).sum()) == pytest.approx(by_hand, rel=1e-3)
    result.save(tmp_path / "fit")
    again = Fit.load(tmp_path / "fit")
    assert torch.equal(again.local["activities"], result.local["activities"])
    assert again.simulate(40, seed=1)["items"].shape == (40, 6)


def test_start_from_a_fit_and_export(tmp_path):
    x, _, _ = counts_case(7)
    first = fit(PoissonFactorization(8, 3), x, num_restarts=4, seed=3)
    again = fit(PoissonFactorization(8, 3), x, method=Factorize(), init=first)
    assert again.log_likelihood >= first.log_likelihood - 0.05
    idata = first.to_arviz(x)
    assert idata["posterior"]["signatures"].shape == (1, 1, 3, 8)
    assert "activities" not in idata["posterior"]


def test_rows_and_columns_may_be_permuted():
    """The same optimum from the same signatures, whatever the order of the rows."""
    x, _, _ = counts_case(8)
    first = fit(PoissonFactorization(8, 3), x, num_restarts=3, seed=3)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    again = fit(PoissonFactorization(8, 3), x[order], method=Factorize(), init=first)
    assert again.log_likelihood == pytest.approx(first.log_likelihood, abs=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PoissonFactorization(4, 5), "exceeds num_items"),
        (lambda: PoissonFactorization(4, 0), "num_components must be a positive integer"),
        (lambda: PoissonFactorization(4, 2, concentration=0.5), "concentration must be at least 1"),
        (lambda: PoissonFactorization(4, 2, activity_prior=(0.5, 1.0)), "activity_prior must be"),
        (lambda: GaussianFactorization(4, 2, bound=0.0), "bound must be positive"),
        (lambda: Factorize(max_sweeps=0), "max_sweeps must be a positive integer"),
        (lambda: Factorize(tolerance=-1.0), "tolerance must be positive"),
        (lambda: fit(PoissonFactorization(2, 1), [[1.0, -2.0], [3.0, 1.0]]), "negative value"),
        (lambda: fit(PoissonFactorization(2, 1), [[1.0, 2.5], [3.0, 1.0]]), "whole counts"),
        (
            lambda: fit(PoissonFactorization(2, 1), [[0.0, 0.0], [3.0, 1.0]]),
            "row 0 holds no counts",
        ),
        (
            lambda: fit(PoissonFactorization(3, 3), [[1.0, 2.0, 0.0], [3.0, 1.0, 1.0]]),
            "at least as many rows",
        ),
        (
            lambda: fit(GaussianFactorization(2, 1), [[1.0, math.nan], [3.0, 1.0]]),
            "needs complete rows",
        ),
        (
            lambda: fit(PoissonFactorization(3, 1), [[1.0, 2.0], [3.0, 1.0]]),
            "num_items = 3 columns",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("family", [PoissonFactorization, GaussianFactorization])
def test_what_em_calls_a_log_likelihood_is_that_of_the_rows(family):
    """The distribution of the activities is a prior of estimates: it belongs to the objective,
    under its own name.
    """
    x, _, _ = counts_case(1, n=20, j=5, k=2)
    found = fit(
        family(5, 2),
        x,
        EM(max_iterations=150, tolerance=1e-4, parameter_tolerance=1e3),
        init="random",
        seed=1,
    )
    assert found.local is not None
    own = float(conditional_log_likelihoods(found.structure, found.params | found.local, x).sum())
    assert found.log_likelihood == pytest.approx(own, abs=1e-8)
    by_rows = float(found.log_likelihood_rows(x).sum())
    assert found.log_likelihood == pytest.approx(
        by_rows, abs=0.5
    )  # activities of the rows are solved for anew, to the end
    assert float(found.trace.log_likelihood[-1]) == pytest.approx(found.log_likelihood, abs=0.1)
    assert found.bic == pytest.approx(
        -2 * found.log_likelihood + found.num_parameters * math.log(20)
    )
    program = Program(found.model, x)
    joint = float(
        program.log_marginal(found.params | found.local) + program.log_prior(found.params)
    )
    assert found.objective == pytest.approx(joint, abs=1e-8)
    assert found.objective < found.log_likelihood - 50
    assert found.objective_name == "log-posterior of parameters and activities"
