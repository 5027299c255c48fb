"""Factorization of overdispersed counts: updates by hand, oracle, recovery, noise; and
factorizations that resume.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats

from inference import Fit, fit
from inference.acdc import acdc
from inference.metrics import match_components
from inference.programs.program import Program
from inference.structures.factorization import factorize
from inference.structures.factorization.factorize import Course, Factorize
from inference.structures.factorization.updates import (
    Counts,
    DispersedCounts,
    LinearlyDispersedCounts,
    accelerated,
)
from ppl_models import GaussianFactorization, NegativeBinomialFactorization, PoissonFactorization

F64 = torch.float64


def case(seed=0, n=40, j=8, k=3, dispersion=0.2, missing=0.0, distribution="quadratic"):
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(j, 0.3), size=k)
    z = rng.gamma(1.0, 60.0, size=(n, k)) + 1
    mu = z @ phi
    rate = (
        mu
        if not dispersion
        else (
            mu * rng.gamma(1 / dispersion, dispersion, (n, j))
            if distribution == "quadratic"
            else rng.gamma(mu / dispersion, dispersion)
        )
    )
    x = rng.poisson(rate).astype(float)
    x[:, 0] += 1  # no empty row
    x[rng.random(x.shape) < missing] = np.nan
    return torch.tensor(x), torch.tensor(z), torch.tensor(phi)


def start(seed, n=40, j=8, k=3, restarts=2, dispersion=0.3):
    g = torch.Generator().manual_seed(seed)
    z = 20 * torch.rand(restarts, n, k, generator=g, dtype=F64) + 0.1
    phi = torch.rand(restarts, k, j, generator=g, dtype=F64)
    delta = torch.full((restarts, 1), dispersion, dtype=F64)
    return z, phi / phi.sum(-1, keepdim=True), delta


DISTRIBUTIONS = {"quadratic": DispersedCounts, "linear": LinearlyDispersedCounts}
both_distributions = pytest.mark.parametrize("distribution", list(DISTRIBUTIONS))


def updates_of(x, delta, distribution="quadratic"):
    return DISTRIBUTIONS[distribution].of_params(x, {"dispersion": delta})


def sizes(distribution, mu, delta):
    """The distribution's number of successes, for SciPy."""
    return 1 / delta if distribution == "quadratic" else mu / delta


def test_the_weight_is_the_posterior_mean_of_the_factor():
    """E[a | x] of one cell, a ~ Gamma(1/d, 1/d), x | a ~ Poisson(a mu), by quadrature."""
    x, mu, delta = 7.0, 3.2, 0.4

    def joint(a):
        return stats.gamma.pdf(a, 1 / delta, scale=delta) * stats.poisson.pmf(x, a * mu)

    total = integrate.quad(joint, 0, 30)[0]
    by_hand = integrate.quad(lambda a: a * joint(a), 0, 30)[0] / total
    updates = DispersedCounts(
        torch.tensor([[x]], dtype=F64), None, size=torch.tensor([[1 / delta]], dtype=F64)
    )
    z, phi = torch.full((1, 1, 1), mu, dtype=F64), torch.ones(1, 1, 1, dtype=F64)
    assert float(updates._parts(z, phi)[1]) == pytest.approx(by_hand, rel=1e-8)
    assert float(updates.log_likelihood_rows(z, phi)) == pytest.approx(np.log(total), rel=1e-8)


@both_distributions
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_updates_follow_the_gradient(missing, distribution):
    """EM multiplies by (a / b) where a - b is in proportion to the gradient of the log-likelihood:
    Fisher's identity.
    """
    x, _, _ = case(missing=missing)
    z, phi, delta = start(1)
    updates = updates_of(x, delta, distribution)
    unit = 1.0 if distribution == "quadratic" else np.log1p(0.3) / 0.3
    z.requires_grad_()
    gradient = torch.autograd.grad(updates.log_likelihood_rows(z, phi).sum(), z)[0]
    with torch.no_grad():
        ratio, weight = updates._parts(z, phi)
        gains, costs = ratio @ phi.mT, weight @ phi.mT
        torch.testing.assert_close(unit * (gains - costs), gradient, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(updates.activities(z, phi), z * gains / costs)


@both_distributions
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_no_step_loses(missing, distribution):
    x, _, _ = case(1, missing=missing)
    z, phi, delta = start(2)
    updates = updates_of(x, delta, distribution)
    last = updates.varying(z, phi)
    for step in range(25):
        if step % 3 == 2:
            updates, value = updates.dispersed(z, phi)
            torch.testing.assert_close(value, updates.varying(z, phi))
        else:
            z, phi = (
                updates.sweep(z, phi)
                if step < 10
                else accelerated(updates, updates.sweep, z, phi, updates.varying(z, phi))[:2]
            )
            value = updates.varying(z, phi)
        assert bool((value >= last - 1e-9 * last.abs()).all())
        last = value
    torch.testing.assert_close(phi.sum(-1), torch.ones(2, 3, dtype=F64))


def test_near_poisson_counts_the_linear_distribution_is_that_of_lee_and_seung():
    x, _, _ = case(4, dispersion=0)
    z, phi, _ = start(3)
    near = updates_of(x, torch.full((2, 1), 1e-6, dtype=F64), "linear")
    poisson = Counts(x, None)
    torch.testing.assert_close(
        near.activities(z, phi), poisson.activities(z, phi), rtol=1e-3, atol=0
    )  # the next term is of the size of theta x over mu
    rows = near.log_likelihood_rows(z, phi)
    torch.testing.assert_close(rows, poisson.log_likelihood_rows(z, phi), rtol=1e-3, atol=0)


@both_distributions
def test_the_dispersion_is_the_best_for_its_means(distribution):
    x, z, phi = case(2)
    updates = updates_of(x, torch.full((1, 1), 3.0, dtype=F64), distribution)
    for _ in range(30):
        updates, _ = updates.dispersed(z[None], phi[None])
    mu = (z @ phi).numpy()

    def minus(log_delta):
        size = sizes(distribution, mu, np.exp(log_delta))
        return -stats.nbinom.logpmf(x.numpy(), size, size / (size + mu)).sum()

    best = optimize.minimize_scalar(
        minus, bounds=(-8, 4), method="bounded", options={"xatol": 1e-10}
    )
    assert float(updates.size.log()) == pytest.approx(-best.x, abs=1e-4)


@both_distributions
@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_the_reported_numbers_are_the_programs(missing, distribution, tmp_path):
    x, _, _ = case(3, missing=missing)
    result = fit(
        NegativeBinomialFactorization(8, 3, variance=distribution), x, num_restarts=3, seed=2
    )
    mu = np.maximum((result.local["activities"] @ result.params["signatures"]).numpy(), 1e-12)
    size = sizes(distribution, mu, float(result.params["dispersion"]))
    cells = stats.nbinom.logpmf(np.nan_to_num(x.numpy()), size, size / (size + mu))
    by_hand = cells[~np.isnan(x.numpy())].sum()
    assert result.log_likelihood == pytest.approx(by_hand, rel=1e-9)
    joint = Program(result.model, x).log_joint(result.params | result.local, {})
    assert result.objective == pytest.approx(float(joint), rel=1e-9)
    assert float(result.trace.objective[-1]) == pytest.approx(result.objective, rel=1e-9)
    assert result.num_parameters == 3 * 7 + 40 * 3 + 1
    assert float(result.log_likelihood_rows(x).sum()) == pytest.approx(by_hand, abs=0.05)
    result.save(tmp_path / "fit")
    again = Fit.load(tmp_path / "fit")
    assert torch.equal(again.params["dispersion"], result.params["dispersion"])
    assert again.simulate(40, seed=1)["items"].shape == (40, 8)


@pytest.mark.parametrize(
    ("distribution", "dispersion"),
    [("quadratic", 0.15), pytest.param("linear", 1.0, marks=pytest.mark.slow)],
)
def test_recovery_and_rivalry_with_poisson(distribution, dispersion):
    x, _, phi = case(4, n=200, j=60, dispersion=dispersion, distribution=distribution)
    result = fit(
        NegativeBinomialFactorization(60, 3, variance=distribution), x, num_restarts=6, seed=0
    )
    assert match_components(result.params["signatures"], phi).cosine_error.max() < 0.03
    assert float(result.params["dispersion"]) == pytest.approx(
        dispersion, rel=0.3
    )  # low: activities are fitted too
    other = "linear" if distribution == "quadratic" else "quadratic"
    assert (
        result.bic
        < fit(NegativeBinomialFactorization(60, 3, variance=other), x, num_restarts=6, seed=0).bic
        - 50
    )
    plain = fit(PoissonFactorization(60, 3), x, num_restarts=6, seed=0)
    assert result.bic < plain.bic - 500
    counts = case(4, n=200, j=20, dispersion=0.0)[0]
    assert (
        float(
            fit(
                NegativeBinomialFactorization(20, 3, variance=distribution), counts, num_restarts=3
            ).params["dispersion"]
        )
        < 0.01
    )


@pytest.mark.parametrize(("distribution", "dispersion"), [("quadratic", 0.2), ("linear", 0.9)])
def test_the_truths_noise_is_exact_only_under_its_own_distribution(distribution, dispersion):
    """Parts of a negative binomial sum, split at random, are themselves negative binomial."""
    x, z, phi = case(5, n=250, j=24, dispersion=dispersion, distribution=distribution)
    own = {
        3: fit(
            NegativeBinomialFactorization(24, 3, variance=distribution),
            x,
            Factorize(max_sweeps=3000),
            num_restarts=1,
        )
    }
    truth = {"signatures": phi, "dispersion": torch.tensor([dispersion], dtype=F64)}
    at_truth = acdc({3: replace(own[3], params=truth, local={"activities": z})}, x)
    assert (np.abs(at_truth.raw[3] - at_truth.null_mean[3]) < 5 * at_truth.null_sd[3]).all()
    poisson = fit(PoissonFactorization(24, 3), x, num_restarts=1)
    wrong = acdc({3: replace(poisson, params={"signatures": phi}, local={"activities": z})}, x)
    assert ((wrong.raw[3] - wrong.null_mean[3]) > 4 * wrong.null_sd[3]).all()


@pytest.mark.filterwarnings("ignore:the best restart did not converge")
@pytest.mark.parametrize(
    "family", [PoissonFactorization, NegativeBinomialFactorization, GaussianFactorization]
)
def test_an_interrupted_fit_goes_on_where_it_stopped(family, tmp_path, monkeypatch):
    x, _, _ = case(6)
    model = family(8, 3, **({"nonnegative": True} if family is GaussianFactorization else {}))
    method = Factorize(tolerance=1e-300, max_sweeps=90)  # six iterations, if all of them gain
    monkeypatch.setattr(factorize, "CHECKPOINT_EVERY", 2)
    whole = fit(model, x, method, num_restarts=3, seed=1)
    original, calls = Course.advance, []

    def interrupted(self, *args):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(Course, "advance", interrupted)
    path = tmp_path / "fit.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(model, x, method, num_restarts=3, seed=1, checkpoint=path)
    resumed = fit(model, x, method, num_restarts=3, seed=1, checkpoint=path)
    assert whole.num_iterations >= 5
    assert len(calls) == 5 + whole.num_iterations - 4  # those on disk are not done again
    assert torch.equal(resumed.params["signatures"], whole.params["signatures"])
    torch.testing.assert_close(
        resumed.trace.objective, whole.trace.objective, rtol=0, atol=0, equal_nan=True
    )
    assert torch.equal(resumed.restarts.objective, whole.restarts.objective)
    with pytest.raises(ValueError, match="another fit"):
        fit(model, x, method, num_restarts=3, seed=2, checkpoint=path)


def test_bad_input():
    for call, message in (
        (lambda: NegativeBinomialFactorization(4, 5), "exceeds num_items"),
        (lambda: NegativeBinomialFactorization(4, 2, bound=0.0), "bound must be positive"),
        (
            lambda: NegativeBinomialFactorization(4, 2, variance="cubic"),
            "variance must be 'quadratic' or 'linear', got 'cubic'",
        ),
        (
            lambda: fit(NegativeBinomialFactorization(2, 1), [[1.0, 2.5], [3.0, 1.0]]),
            "whole counts",
        ),
        (lambda: NegativeBinomialFactorization(4, 2)(), "give data, or num_rows"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
