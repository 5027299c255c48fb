"""Negative binomial items: their distribution and its limits, the maximiser of sizes, and the
models that have them under several engines.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.special
import scipy.stats
import torch
from torch import Tensor

from inference import EM, SAEM, fit
from inference.programs.program import Program
from inference.uncertainty import standard_errors
from ppl_models import DeepDiscreteEncoder, LatentAttributeModel, Mixture, NegativeBinomial, Poisson
from ppl_models.parts.distributions import Dispersions
from ppl_models.parts.item_response import ItemResponse
from ppl_models.parts.sizes import MISSING, maximise_sizes, tally

F64 = torch.float64
Q = ((1, 0), (0, 1)) * 3 + ((1, 1),) * 2


def counts(num_rows: int, size: float, seed: int = 0) -> Tensor:
    """Answers to eight additive items of one size."""
    model = LatentAttributeModel(Q, NegativeBinomial())
    loadings = torch.tensor([[1.5, 0.0], [0.0, 1.5]] * 3 + [[0.8, 0.8]] * 2, dtype=F64)
    truth = {
        "profiles": torch.tensor([0.3, 0.2, 0.15, 0.35], dtype=F64),
        "loadings": loadings,
        "intercepts": torch.full((8,), 0.5, dtype=F64),
        "dispersion": torch.full((8,), size, dtype=F64),
    }
    return Program(model, None, num_rows).simulate(truth, seed)["items"]


def test_moments_of_draws_and_the_distribution_of_scipy() -> None:
    eta, size = torch.tensor([0.5, 1.5, 3.0], dtype=F64), torch.tensor([0.7, 3.0, 40.0], dtype=F64)
    distribution = ItemResponse(NegativeBinomial(), eta, size)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x = distribution.sample(torch.Size([40_000]))
    mean = eta.exp()
    torch.testing.assert_close(x.mean(0), mean, rtol=0.04, atol=0.0)
    torch.testing.assert_close(x.var(0), mean + mean.square() / size, rtol=0.08, atol=0.0)
    by_scipy = scipy.stats.nbinom.logpmf(
        x[:50].numpy(), size.numpy(), (size / (size + mean)).numpy()
    ).sum(-1)
    np.testing.assert_allclose(distribution.log_prob(x[:50]).numpy(), by_scipy, rtol=1e-10)


def test_a_large_size_is_poisson() -> None:
    x, eta = torch.arange(12, dtype=F64).reshape(4, 3), torch.tensor([0.5, 1.5, 2.0], dtype=F64)
    near = ItemResponse(NegativeBinomial(), eta, torch.full((3,), 1e8, dtype=F64)).log_prob(x)
    torch.testing.assert_close(near, ItemResponse(Poisson(), eta).log_prob(x), rtol=1e-5, atol=1e-5)


def test_the_prior_of_a_size_is_a_density() -> None:
    distribution = Dispersions(
        torch.tensor([True]), torch.tensor(1e-6, dtype=F64), torch.tensor(1e6, dtype=F64)
    )

    def density(t: float) -> float:
        return float(
            distribution.log_prob(torch.tensor([math.exp(t)], dtype=F64)).exp()
        ) * math.exp(t)

    assert scipy.integrate.quad(density, math.log(1e-6), math.log(1e6), limit=200)[
        0
    ] == pytest.approx(1.0, abs=1e-6)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = distribution.sample(torch.Size([4000])).log()[:, 0]
    share = scipy.integrate.quad(density, math.log(1e-6), 9.0, limit=200)[0]
    assert float((draws < 9).double().mean()) == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("size", [0.4, 8.0])
def test_the_size_is_that_of_a_general_optimiser(size: float) -> None:
    """Three configurations of known means, fractional rows, missing answers."""
    rng = np.random.default_rng(0)
    mean = np.array([1.0, 4.0, 9.0])
    place = rng.integers(0, 3, 300)
    x = rng.negative_binomial(size, size / (size + mean[place])).astype(float)
    shares = np.full((300, 3), 0.1)
    shares[np.arange(300), place] = 0.8
    seen = rng.random(300) < 0.8

    def loss(t: float) -> float:
        s = math.exp(t)
        each = scipy.stats.nbinom.logpmf(x[:, None], s, s / (s + mean))
        return float(-(shares * each)[seen].sum() + t**2 / 18)

    best = scipy.optimize.minimize_scalar(
        loss, bounds=(-4, 6), method="bounded", options={"xatol": 1e-9}
    )
    values = torch.tensor(np.where(seen, x, MISSING)).unsqueeze(0)
    own = torch.tensor(shares * seen[:, None])
    sums, rows = (own * torch.tensor(x)[:, None]).sum(0), own.sum(0)
    eta = torch.tensor(np.log(mean))
    for start in (0.05, 2.0, 500.0):
        found = torch.full((1, 1), start, dtype=F64)
        for _ in range(3):
            found = maximise_sizes(
                *tally(values), sums[None, None], rows[None, None], eta[None, None], found
            )
        assert float(found.log()) == pytest.approx(best.x, abs=1e-5)


def test_engines_agree_and_intervals_are_given() -> None:
    data = counts(600, 2.0)
    data[::5, ::3] = math.nan
    model = LatentAttributeModel(Q, NegativeBinomial())
    exact = fit(model, data, EM(tolerance=1e-8), num_restarts=1)
    generic = fit(
        model, data, EM(accelerate=False, max_iterations=500, tolerance=1e-8), init=exact.params
    )
    assert generic.log_likelihood == pytest.approx(exact.log_likelihood, abs=1e-3)
    sampled = fit(model, data, SAEM(), seed=1)
    assert float(Program(model, data).log_marginal(sampled.params)) == pytest.approx(
        exact.log_likelihood, abs=1.0
    )
    low, high = standard_errors(exact, data).intervals()["dispersion"]
    assert float(((low < 2.0) & (high > 2.0)).double().mean()) >= 0.75
    assert exact.num_parameters == 3 + 8 + 10 + 8


def test_poisson_counts_have_a_large_finite_size() -> None:
    data = counts(400, 1e5)
    found = fit(
        LatentAttributeModel(Q, NegativeBinomial()), data, EM(tolerance=1e-7), num_restarts=1
    )
    plain = fit(LatentAttributeModel(Q, Poisson()), data, EM(tolerance=1e-7), num_restarts=1)
    assert float(found.params["dispersion"].min()) > 5
    assert bool(torch.isfinite(standard_errors(found, data).standard_errors["dispersion"]).all())
    assert abs(found.log_likelihood - plain.log_likelihood) < 8


def test_overdispersed_counts_prefer_sizes() -> None:
    data = counts(400, 1.5)
    sized = fit(
        LatentAttributeModel(Q, NegativeBinomial()), data, EM(tolerance=1e-7), num_restarts=1
    )
    plain = fit(LatentAttributeModel(Q, Poisson()), data, EM(tolerance=1e-7), num_restarts=1)
    assert sized.bic < plain.bic - 100


def test_a_plain_fit_of_an_encoder_finds_the_graph() -> None:
    found = fit(DeepDiscreteEncoder(8, (2,), NegativeBinomial()), counts(800, 3.0)).graphs[
        "loadings_1"
    ]
    assert any(int((found[:, order] != torch.tensor(Q)).sum()) <= 1 for order in ([0, 1], [1, 0]))


@pytest.mark.parametrize(
    ("value", "match"), [(-1.0, "negative value -1"), (0.5, "whole counts, found 0.5")]
)
@pytest.mark.parametrize(
    "model",
    [
        LatentAttributeModel(Q, NegativeBinomial()),
        Mixture(2, NegativeBinomial(), 8),
        DeepDiscreteEncoder(8, (2,), NegativeBinomial()),
    ],
    ids=["attributes", "mixture", "encoder"],
)
def test_other_values_are_refused(model: object, value: float, match: str) -> None:
    data = counts(20, 2.0)
    data[3, 2] = value
    with pytest.raises(ValueError, match=f"column '2': NegativeBinomial items are .*{match}"):
        fit(model, data)
