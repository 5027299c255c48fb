"""Free coordinates of probability matrices and of positive definite matrices, Laplace's
approximation in them, and their names.
"""

from __future__ import annotations

import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from scipy.stats import binomtest
from torch.distributions import biject_to, constraints

from inference import EM, Laplace, fit
from inference.bootstrap import bootstrap
from inference.programs.coordinates import Coordinates, entry_names
from inference.programs.curvature import minus_hessian
from inference.programs.program import Program
from inference.uncertainty import standard_errors
from ppl_models import Mixture, MultivariateNormal, Normal, OptionsHMM
from ppl_models.datasets import simulate_options
from ppl_models.parts.precisions import LogCholesky, LowerCholesky, PositiveDefinite, Precision

F64 = torch.float64


def sequences_and_truth():
    params = {
        "initial": torch.full((2, 2), 0.25, dtype=F64),
        "low": torch.tensor(
            [[[0.8, 0.1, 0.1], [0.1, 0.3, 0.6]], [[0.1, 0.8, 0.1], [0.6, 0.1, 0.3]]], dtype=F64
        ),
        "high": torch.tensor([[[0.95, 0.05], [0.1, 0.9]], [[0.9, 0.1], [0.05, 0.95]]], dtype=F64),
        "environment": torch.tensor(
            [[[0.7, 0.3], [0.4, 0.6]], [[0.3, 0.7], [0.5, 0.5]], [[0.5, 0.5], [0.2, 0.8]]],
            dtype=F64,
        ),
    }
    return simulate_options(params, 60, 60, 0).packed


def correlated_clusters():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 3, generator=generator, dtype=F64)
    x[:150] += 4
    x[:150, 0] += x[:150, 1]
    return x


@pytest.mark.parametrize(
    ("model", "draw_data", "site"),
    [
        (OptionsHMM(2, 3, 2, concentration=2.0), sequences_and_truth, "initial"),
        (
            Mixture(2, component=MultivariateNormal(), num_items=3),
            correlated_clusters,
            "precisions",
        ),
    ],
    ids=["matrix simplex", "positive definite"],
)
def test_laplace_knows_probability_matrices_and_covariances(model, draw_data, site):
    data = draw_data()
    result = fit(model, data, Laplace(600))
    # nearly normal in these coordinates; a wrong Jacobian or curvature spreads the ratios by far
    # more
    assert float(result.sample_stats["log_importance"].std()) < 0.8
    value = result.draws[site]
    assert torch.allclose(value.mean(1)[0], result.params[site], atol=0.15)
    if site == "initial":
        assert torch.allclose(value.sum((-1, -2)), torch.ones((), dtype=F64))
    else:
        assert float(torch.linalg.eigvalsh(value).min()) > 0
        assert torch.allclose(value, value.mT)


def test_the_bijection_of_precisions_has_its_jacobian():
    move = LogCholesky(3)
    point = torch.randn(6, generator=torch.Generator().manual_seed(1), dtype=F64)
    rows, columns = torch.tril_indices(3, 3)
    slopes = torch.autograd.functional.jacobian(lambda x: move(x)[rows, columns], point)
    assert float(move.log_abs_det_jacobian(point, move(point))) == pytest.approx(
        float(torch.linalg.slogdet(slopes)[1]), rel=1e-10
    )
    assert torch.allclose(move.inv(move(point)), point)
    assert biject_to(Precision(torch.tensor(4.0), torch.eye(3)).support).size == 3


def test_cholesky_factors_have_a_bijection_and_its_jacobian():
    move = biject_to(LowerCholesky(3))
    point = torch.randn(6, generator=torch.Generator().manual_seed(1), dtype=F64)
    rows, columns = torch.tril_indices(3, 3)
    slopes = torch.autograd.functional.jacobian(lambda x: move(x)[rows, columns], point)
    assert float(move.log_abs_det_jacobian(point, move(point))) == pytest.approx(
        float(torch.linalg.slogdet(slopes)[1]), rel=1e-10
    )
    assert torch.allclose(move.inv(move(point)), point)
    assert bool(LowerCholesky(3).check(move(point)))


def factors_as_params(data):
    loc = pyro.param("loc", torch.zeros(2))
    factor = pyro.param("factor", torch.eye(2), constraint=constraints.lower_cholesky)
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.MultivariateNormal(loc, scale_tril=factor), obs=data)


def correlations(data):
    factor = pyro.sample("factor", dist.LKJCholesky(2, 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample(
            "x", dist.MultivariateNormal(torch.zeros(2).to(data), scale_tril=factor), obs=data
        )


def test_a_cholesky_factor_without_a_prior_is_that_of_the_sample_covariance():
    rows = torch.randn(400, 2, generator=torch.Generator().manual_seed(2), dtype=F64)
    rows = rows @ torch.tensor([[2.0, 0.0], [1.2, 0.5]], dtype=F64).mT
    result = fit(factors_as_params, rows)
    covariance = torch.cov(rows.mT, correction=0)
    expected = torch.linalg.cholesky(covariance)
    torch.testing.assert_close(result.params["factor"], expected, atol=1e-4, rtol=0)
    errors = standard_errors(result, rows).standard_errors["factor"]
    assert bool(errors[0, 1].isnan())
    # of a standard deviation, s / sqrt(2 N), as a textbook has it
    torch.testing.assert_close(errors[0, 0], expected[0, 0] / (2 * 400) ** 0.5, rtol=1e-3, atol=0)
    torch.testing.assert_close(errors[1, 1], expected[1, 1] / (2 * 400) ** 0.5, rtol=1e-3, atol=0)


def test_a_correlation_has_its_textbook_error():
    rows = torch.randn(900, 2, generator=torch.Generator().manual_seed(3), dtype=F64)
    rows = rows @ torch.linalg.cholesky(torch.tensor([[1.0, 0.6], [0.6, 1.0]], dtype=F64)).mT
    result = fit(correlations, rows)
    rho = float(result.params["factor"][1, 0])
    error = float(standard_errors(result, rows).standard_errors["factor"][1, 0])
    # known unit variances: the expected information of one row is (1 + rho^2) / (1 - rho^2)^2
    assert error == pytest.approx((1 - rho**2) / (900 * (1 + rho**2)) ** 0.5, rel=0.05)
    drawn = fit(correlations, rows, Laplace(400))
    assert float(drawn.draws["factor"][..., 1, 0].std()) == pytest.approx(error, rel=0.15)
    assert float(drawn.sample_stats["log_importance"].std()) < 0.3


def effects(data):
    """Random intercepts of rows, beside two normal answers each."""
    mean = pyro.sample("mean", dist.Normal(torch.zeros(()).to(data), 10.0))
    spread = pyro.sample("spread", dist.HalfNormal(torch.ones(()).to(data)))
    with pyro.plate("rows", len(data)):
        own = pyro.sample("own", dist.Normal(mean, spread))
        pyro.sample("x", dist.Normal(own[..., None], 1.0).to_event(1), obs=data)


@pytest.mark.filterwarnings("ignore:Laplace. k-hat")  # the logarithm of the spread is skew
def test_a_spread_that_runs_to_zero_has_no_errors_and_is_drawn():
    """Failed before: singular information, and Laplace's draws ran to infinity."""
    rows = torch.randn(60, 2, generator=torch.Generator().manual_seed(4), dtype=F64)
    rows = rows - rows.mean(1, keepdim=True)  # less alike in a row than by chance
    rows = rows + 0.3
    result = fit(effects, rows)
    errors = standard_errors(result, rows, hold_bounds=True).standard_errors
    assert bool(errors["spread"].isnan())
    assert float(errors["mean"]) == pytest.approx(120**-0.5, rel=1e-3)  # of 120 independent answers
    with pytest.raises(ValueError, match="on the bound of their interval: spread"):
        standard_errors(result, rows)
    with pytest.warns(UserWarning, match="the optimum of spread is zero or near it"):
        drawn = fit(effects, rows, Laplace(4000))
    # the mean's variance is that of 60 rows, each of spread**2 + 1/2, over the spread's posterior
    logs = torch.linspace(-12, 2, 4001, dtype=F64)
    variance = (2 * logs).exp() + 0.5
    of_rows = rows.mean(1).var(correction=0) * len(rows)
    density = -0.5 * ((len(rows) - 1) * variance.log() + of_rows / variance) + logs
    weights = (density - 0.5 * (2 * logs).exp()).softmax(0)
    exact = float((weights * variance).sum() / len(rows)) ** 0.5
    assert float(drawn.draws["mean"].std()) == pytest.approx(exact, rel=0.05)


def test_the_density_of_precisions_is_that_of_the_wishart_distribution() -> None:
    generator = torch.Generator().manual_seed(0)
    for size in (1, 3):
        root, draws = (
            torch.randn(*shape, size + 3, generator=generator, dtype=F64)
            for shape in ((size,), (2, 4, size))
        )
        inverse_scale, value = root @ root.mT, draws @ draws.mT
        freedom = torch.tensor(size + 1.5, dtype=F64)
        own, torchs = (
            kind(freedom, precision_matrix=inverse_scale).expand([4]).to_event(1).log_prob(value)
            for kind in (Precision, dist.Wishart)
        )
        by_scipy = stats.wishart(float(freedom), torch.linalg.inv(inverse_scale).numpy())
        expected = [
            sum(float(by_scipy.logpdf(x.numpy() if size > 1 else float(x))) for x in matrices)
            for matrices in value
        ]
        torch.testing.assert_close(own, torchs, rtol=1e-12, atol=0)
        torch.testing.assert_close(own, torch.tensor(expected, dtype=F64), rtol=1e-8, atol=0)


def test_matrices_are_checked_one_by_one_for_symmetry_and_finiteness() -> None:
    value = torch.eye(2, dtype=F64).expand(6, 2, 2).clone()
    value[1, 0, 1] = 1e-7  # by rounding
    value[2, 0, 1] = 1e-3
    value[3, 0, 0] = torch.inf
    value[4, 1, 0] = torch.nan
    value[5, 1, 1] = -1.0
    assert PositiveDefinite(2).check(value).tolist() == [True, True, False, False, False, False]


# ---------------------------------------------------------------- names


def test_entry_names() -> None:
    params = {"loadings": torch.zeros(2, 2), "scale": torch.zeros(())}
    assert entry_names(params) == (
        "loadings[0,0]",
        "loadings[0,1]",
        "loadings[1,0]",
        "loadings[1,1]",
        "scale",
    )
    free = {"loadings": torch.tensor([[True, False], [False, True]])}
    assert entry_names(params, free) == ("loadings[0,0]", "loadings[1,1]", "scale")
    with pytest.raises(ValueError, match=r"free\['loadings'\] must match \(2, 2\)"):
        entry_names(params, {"loadings": torch.tensor([True])})
    with pytest.raises(ValueError, match="one of the sites"):
        entry_names(params, {"weights": torch.tensor([True])})


# ---------------------------------------------------------------- probabilities at zero


@pytest.mark.parametrize("empty", [0.0, 1e-9])
@pytest.mark.parametrize("place", [0, 2], ids=["first", "last"])
def test_a_class_without_weight_confounds_nothing(empty, place):
    """Log-ratios are taken to an entry that is there, and one at zero is held: what is left has
    full rank.
    """
    weights = torch.full((3,), empty, dtype=F64)
    others = [k for k in range(3) if k != place]
    weights[others] = torch.tensor([0.6, 0.4], dtype=F64) * (1 - empty)
    model = pyro_classes(weights)
    x = torch.cat([torch.zeros(60), torch.ones(40)]).to(F64)
    program = Program(model, x)
    coordinates = Coordinates.of(program, {"weights": weights})
    assert len(coordinates.names) == 1
    assert coordinates.at_bound() == [f"weights[{place}]"]
    free = coordinates.vector()
    assert torch.allclose(coordinates.params(free)["weights"], weights, atol=1e-15)
    moved = coordinates.params(free + 0.3)["weights"]
    assert float(moved.sum()) == pytest.approx(1.0)
    assert float(moved[place]) <= 2 * empty
    curvature = minus_hessian(lambda point: program.log_marginal(coordinates.params(point)), free)
    assert float(curvature) == pytest.approx(
        100 * 0.6 * 0.4, rel=1e-6
    )  # of a binomial share on the logit scale
    errors = coordinates.spread(free, curvature.inverse())["weights"]
    assert errors[place].isnan()
    assert torch.allclose(errors[others], torch.full((2,), (0.24 / 100) ** 0.5, dtype=F64))


@pytest.mark.parametrize("vector", [True, False], ids=["probability vector", "chance"])
@pytest.mark.parametrize("hits", [1, 4, 8, 17])
def test_limits_of_a_chance_are_wilsons_where_few_rows_speak(hits, vector):
    """k hits of 20 rows: with 5 or more on both sides the logit's limits, else those of scipy's
    Wilson interval.
    """
    share = torch.tensor(hits / 20, dtype=F64)
    x = torch.arange(20) >= hits  # a hit is 0

    def model(data):
        if vector:
            hit = pyro.sample("p", dist.Dirichlet(torch.ones(2, dtype=F64)))[..., :1]
        else:
            hit = pyro.sample("p", dist.Uniform(torch.zeros((), dtype=F64), 1.0)).unsqueeze(-1)
        with pyro.plate("rows", len(data)):
            pyro.sample("x", dist.Bernoulli(1 - hit), obs=data.to(F64))

    program = Program(model, x)
    coordinates = Coordinates.of(
        program, {"p": torch.stack([share, 1 - share]) if vector else share}
    )
    free = coordinates.vector()
    curvature = minus_hessian(lambda point: program.log_marginal(coordinates.params(point)), free)
    low, high = (
        float(limit.reshape(-1)[0])
        for limit in coordinates.limits(free, curvature.inverse(), 1.959964)["p"]
    )
    if 5 <= hits <= 15:
        step = 1.959964 / (20 * share * (1 - share)).sqrt()
        expected = [float(torch.sigmoid(torch.logit(share) + sign * step)) for sign in (-1, 1)]
    else:
        expected = binomtest(hits, 20).proportion_ci(0.95, method="wilson")
    assert [low, high] == pytest.approx(list(expected), abs=1e-6)


def pyro_classes(weights):
    """Two values seen directly, a third class of any value: only the shares of the first two are
    read off.
    """
    lows = [k for k in range(3) if float(weights[k]) > 1e-6]

    def model(data):
        shares = pyro.sample("weights", dist.Dirichlet(torch.ones(3, dtype=F64)))
        with pyro.plate("rows", len(data)):
            value = dist.Categorical(shares)
            pyro.sample("x", value, obs=torch.tensor(lows)[data.long()])

    return model


def two_turned_groups(num_rows: int) -> np.ndarray:
    """Rows of two normal groups of one shape, in volumes and orientations of their own."""
    rng = np.random.default_rng(0)
    turn = np.array([[math.cos(0.7), -math.sin(0.7)], [math.sin(0.7), math.cos(0.7)]])
    first = rng.normal(size=(num_rows, 2)) * [1, 0.4] @ turn.T
    second = rng.normal(size=(num_rows, 2)) * [2.0, 0.8] + [4, 1]
    return np.where(rng.random((num_rows, 1)) < 0.4, first, second)


@pytest.mark.parametrize("letters", ["EEE", "VEV", "EVE", "VVE", "EEV", "EVV", "VEE"])
def test_one_component_of_any_family_has_the_errors_of_a_full_covariance(letters: str) -> None:
    x = np.random.default_rng(0).normal(size=(300, 3)) @ [[1, 0.5, 0], [0, 1, 0.3], [0.2, 0, 0.8]]
    full = standard_errors(fit(Mixture(1, MultivariateNormal()), x), x).standard_errors
    model = Mixture(1, MultivariateNormal(covariance=letters))
    own = standard_errors(fit(model, x, EM(tolerance=1e-13)), x)
    assert own.names[-1] == "precisions.orientation[2]"
    for site, errors in full.items():
        torch.testing.assert_close(own.standard_errors[site], errors, rtol=1e-6, atol=1e-8)


def test_diagonal_families_have_the_errors_of_independent_items() -> None:
    x, tight = two_turned_groups(400), EM(tolerance=1e-13)
    for letters, ties in (("VVI", None), ("EEI", {"dispersion": 0})):
        items = standard_errors(fit(Mixture(2, Normal()), x, tight, tied=ties), x)
        family = Mixture(2, MultivariateNormal(covariance=letters))
        own = standard_errors(fit(family, x, tight), x)
        errors = items.standard_errors
        torch.testing.assert_close(
            own.standard_errors["means"], errors["predictors"], rtol=1e-4, atol=0
        )
        variances, spread = own.delta(
            lambda params: params["precisions"].diagonal(dim1=-2, dim2=-1).reciprocal()
        )
        torch.testing.assert_close(spread, errors["dispersion"], rtol=1e-4, atol=0)
        low, high = own.intervals()["precisions"]
        off = ~torch.eye(2, dtype=torch.bool)
        assert bool(low[:, off].isnan().all())
        inside = 1 / variances
        assert bool(((low[:, ~off] < inside) & (inside < high[:, ~off])).all())


def test_errors_of_a_family_agree_with_a_bootstrap_and_with_draws() -> None:
    x = two_turned_groups(800)
    model = Mixture(2, MultivariateNormal(covariance="VEV"))
    found = fit(model, x, EM(tolerance=1e-12))
    errors = standard_errors(found, x)
    assert len(errors.names) == found.num_parameters == 10
    resampled = bootstrap(found, x, num_replicates=200, seed=1)
    drawn = fit(model, x, Laplace(num_draws=2000), init=found)
    for site, own in errors.standard_errors.items():
        spread = resampled.draws[site].reshape(-1, *own.shape).std(0)
        ratios = own / spread
        assert bool(((ratios > 0.8) & (ratios < 1.25)).all())  # 200 replicates: 5 % each
        torch.testing.assert_close(drawn.draws[site][0].std(0), own, rtol=0.12, atol=0)
