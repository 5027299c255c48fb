"""Mixtures: closed-form EM against the generic route and against scikit-learn; full covariances; labels; bad input."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp
from sklearn.mixture import GaussianMixture
from zoo.table import F64, ZOO, close, data_of, near, params_of, program_of

from inference import EM, Fit, fit
from inference.base.steps import GenericSteps
from inference.fitting.problem import problem_of
from inference.programs.program import Program
from inference.structures.mixture import MixtureSteps
from ppl_models import Bernoulli, Mixture, MultivariateNormal, Normal, Poisson

ROWS = [row for row in ZOO if row.name.startswith("mixture-")]


def steps_of(row, chunk_elements=2**18):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps = EM(chunk_elements=chunk_elements).steps(problem_of(row.model, data_of(row), 0))
    assert isinstance(steps, MixtureSteps)
    return steps


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_e_step_equals_the_program(row):
    posteriors = program_of(row).factor_posteriors(params_of(row))
    _, log_likelihood, log_prior = steps_of(row, chunk_elements=24).e_step(params_of(row))  # several chunks
    close(log_likelihood, posteriors.log_marginal)
    close(log_prior, posteriors.log_prior)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_m_step_is_the_generic_optimum(row):
    program, start = program_of(row), {name: value[:1] for name, value in params_of(row).items()}
    steps = steps_of(row)
    best = steps.m_step(steps.e_step(start)[0], start)
    posteriors = program.factor_posteriors(start)

    def objective(params):
        return program.expected_complete_log_density(params, posteriors) + program.log_prior(params)

    generic = GenericSteps(program, 60).m_step(posteriors, start)
    assert float(objective(generic)) <= float(objective(best)) + 1e-8
    close(objective(generic), objective(best), 1e-6)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_em_never_loses(row):
    steps, params, values = steps_of(row), near(row, 4, seed=6, size=1.0), []
    for _ in range(15):
        statistics, log_likelihood, log_prior = steps.e_step(params)
        values.append(log_likelihood + log_prior)
        params = steps.m_step(statistics, params)
    values = torch.stack(values)
    assert bool((values.diff(dim=0) >= -1e-9 * values[:-1].abs()).all())


def full_case(seed=0, num_rows=60):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(2, 3, 3))
    data = np.concatenate([rng.normal(size=(num_rows // 2, 3)) @ mixing[k] + 4 * k for k in range(2)])
    return torch.tensor(data)


def test_full_covariances_by_hand():
    data = full_case()
    model = Mixture(2, MultivariateNormal(1e-3), num_items=3)
    result = fit(model, data, method=EM(max_iterations=300), init="random", num_restarts=3, seed=1)
    params = {name: value.numpy() for name, value in result.params.items()}
    covariances = np.linalg.inv(params["precisions"])
    terms = [
        np.log(w) + stats.multivariate_normal.logpdf(data.numpy(), m, c)
        for w, m, c in zip(params["weights"], params["means"], covariances, strict=True)
    ]
    close(result.log_likelihood_rows(data), logsumexp(terms, axis=0), 1e-8)
    close(result.log_likelihood, logsumexp(terms, axis=0).sum(), 1e-8)
    history = result.trace.objective
    assert bool((history.diff() >= -1e-9 * history[:-1].abs()).all())
    # stationary: the weighted scatter, with the floor, is the covariance
    resp = result.posterior_latents(data)["assignments"].numpy()
    for k in range(2):
        gap = data.numpy() - params["means"][k]
        scatter = (resp[:, k, None] * gap).T @ gap + 1e-3 * np.eye(3)
        np.testing.assert_allclose(scatter / resp[:, k].sum(), covariances[k], rtol=1e-3, atol=1e-3)
    assert params["weights"][0] >= params["weights"][1]
    assert result.num_parameters == 1 + 6 + 12


@pytest.mark.parametrize("seed", [0, 1])
def test_as_good_as_scikit_learn(seed):
    data = full_case(seed, 400)
    ours = fit(Mixture(2, MultivariateNormal(), num_items=3, concentration=1.0), data, seed=seed)
    theirs = GaussianMixture(2, n_init=5, random_state=seed, reg_covar=1e-9, tol=1e-8, max_iter=500).fit(data.numpy())
    assert ours.log_likelihood >= theirs.score(data.numpy()) * len(data) - 1e-2


def test_saved_and_loaded(tmp_path):
    data = full_case()
    result = fit(Mixture(2, MultivariateNormal(1e-3), num_items=3), data, num_restarts=1)
    result.save(tmp_path / "fit")
    again = Fit.load(tmp_path / "fit")
    assert again.model == result.model
    assert torch.equal(again.log_likelihood_rows(data), result.log_likelihood_rows(data))


def test_precision_and_seed_are_kept():
    data = torch.tensor(np.random.default_rng(0).poisson(3, (50, 2)), dtype=torch.float32)
    model = Mixture(2, Poisson(), num_items=2)
    first, second = (fit(model, data, EM(max_iterations=20, tolerance=1e-4, parameter_tolerance=1e-2), seed=4) for _ in range(2))
    assert first.params["predictors"].dtype == torch.float32
    assert all(torch.equal(first.params[name], second.params[name]) for name in first.params)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Mixture(0), "num_components must be a positive integer"),
        (lambda: Mixture(2, component="normal"), "component must be a response family"),
        (lambda: Mixture(2, concentration=0.5), "concentration must be at least 1"),
        (lambda: Mixture(2, bound=-1.0), "bound must be positive"),
        (lambda: MultivariateNormal(0.0), "regularization must be positive"),
        (lambda: fit(Mixture(2, Poisson()), torch.tensor([[1.5], [2.0], [3.0]])), "whole counts"),
        (lambda: fit(Mixture(2, Bernoulli()), torch.tensor([[2.0], [1.0]])), "values 0 and 1"),
        (lambda: fit(Mixture(5, Normal()), torch.tensor([[2.0], [1.0]])), "at least num_components = 5 rows"),
        (
            lambda: fit(Mixture(2, MultivariateNormal(), 2), torch.tensor([[1.0, torch.nan], [0.0, 2.0], [1.0, 1.0]])),
            "multivariate normal components need complete rows",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_lonely_start_does_not_break(recwarn):
    """More components than distinct rows: empty components keep their parameters, nothing is NaN."""
    data = torch.tensor([[0.0], [0.0], [5.0], [5.0], [5.0]], dtype=F64)
    result = fit(Mixture(4, Poisson()), data, EM(max_iterations=30), num_restarts=3)
    assert all(bool(value.isfinite().all()) for value in result.params.values())


def test_a_mixture_of_one_has_a_sure_assignment():
    x = np.random.default_rng(0).normal(size=(30, 2))
    result = fit(Mixture(1, Normal(), num_items=2), x)
    assert result.posterior_latents(x)["assignments"].tolist() == [[1.0]] * 30
    drawn = Program(result.model, torch.tensor(x)).sample_latents(result.params, 2)["assignments"]
    assert drawn.tolist() == [[0] * 30] * 2
    by_hand = stats.norm.logpdf(x, x.mean(0), x.std(0)).sum(1)
    assert np.allclose(result.log_likelihood_rows(x), by_hand, atol=1e-4)


# ---------------------------------------------------------------- noise of the components


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
