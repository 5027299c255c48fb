"""Mixtures: closed-form EM against the generic route and against scikit-learn; full covariances;
labels; bad input.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp
from sklearn.mixture import GaussianMixture
from zoo.table import F64, ZOO, close, data_of, near, params_of, program_of

from inference import EM, BoundWarning, DegenerateWarning, EstimateWarning, Fit, fit
from inference.base.steps import GenericSteps
from inference.base.structure import component_noise
from inference.fitting.problem import problem_of
from inference.programs.program import Program
from inference.structures.mixture.steps import MixtureSteps
from ppl_models import (
    Bernoulli,
    Mixture,
    MultivariateNormal,
    MultivariateT,
    NegativeBinomial,
    Normal,
    Poisson,
    SkewNormal,
)
from ppl_models.parts.responses import ResponseFamily

ROWS = [row for row in ZOO if row.name.startswith("mixture-")]


def steps_of(row, chunk_elements=2**18):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps = EM(chunk_elements=chunk_elements).steps(problem_of(row.model, data_of(row), 0))
    assert isinstance(steps, MixtureSteps)
    return steps


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_e_step_equals_the_program(row):
    steps = steps_of(row, chunk_elements=24)  # several chunks
    posteriors = steps.program.with_data(data_of(row)).factor_posteriors(params_of(row))
    _, log_likelihood, log_prior = steps.e_step(params_of(row))
    close(log_likelihood, posteriors.log_marginal)
    close(log_prior, posteriors.log_prior)


CLOSED = [
    row for row in ROWS if isinstance(row.model.component, ResponseFamily)
]  # the others have latents of their own, or matrices that ten rows leave open


@pytest.mark.parametrize("row", CLOSED, ids=lambda row: row.name)
def test_m_step_is_the_generic_optimum(row):
    program, start = program_of(row), {name: value[:1] for name, value in params_of(row).items()}
    steps = steps_of(row)
    best = steps.m_step(steps.e_step(start)[0], start)
    posteriors = program.factor_posteriors(start)

    def objective(params):
        return program.expected_complete_log_density(params, posteriors) + program.log_prior(params)

    generic = GenericSteps(program, 200).m_step(posteriors, start)
    assert float(objective(generic)) <= float(objective(best)) + 1e-8
    close(objective(generic), objective(best), 1e-6)


def test_weights_are_the_mode_of_their_posterior_under_a_prior_that_outweighs_the_rows():
    """Dirichlet(c): counts + c - 1 over N + K (c - 1), for twenty rows and c = 50."""
    x = torch.linspace(-2, 2, 20, dtype=F64).unsqueeze(1)
    problem = problem_of(Mixture(3, Normal(), 1, concentration=50.0), x, 0)
    steps, params = EM().steps(problem), problem.structure.start(problem, "random", 2)
    statistics = steps.e_step(params).statistics
    expected = (statistics.counts + 49) / (20 + 3 * 49)
    torch.testing.assert_close(steps.m_step(statistics, params)["weights"], expected)


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
    data = np.concatenate(
        [rng.normal(size=(num_rows // 2, 3)) @ mixing[k] + 4 * k for k in range(2)]
    )
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
    theirs = GaussianMixture(
        2, n_init=5, random_state=seed, reg_covar=1e-9, tol=1e-8, max_iter=500
    ).fit(data.numpy())
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
    first, second = (
        fit(model, data, EM(max_iterations=20, tolerance=1e-4, parameter_tolerance=1e-2), seed=4)
        for _ in range(2)
    )
    assert first.params["predictors"].dtype == torch.float32
    assert all(torch.equal(first.params[name], second.params[name]) for name in first.params)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Mixture(0), "num_components must be a positive integer"),
        (
            lambda: Mixture(2, component="normal"),
            "component must be a response family such as Normal",
        ),
        (lambda: Mixture(2, concentration=0.5), "concentration must be at least 1"),
        (lambda: Mixture(2, bound=-1.0), "bound must be positive"),
        (lambda: Mixture(2, variance_floor=1.5), "variance_floor must lie in"),
        (lambda: MultivariateNormal(0.0), "regularization must be positive"),
        (lambda: fit(Mixture(2, Poisson()), torch.tensor([[1.5], [2.0], [3.0]])), "whole counts"),
        (lambda: fit(Mixture(2, Bernoulli()), torch.tensor([[2.0], [1.0]])), "values 0 and 1"),
        (
            lambda: fit(Mixture(5, Normal()), torch.tensor([[2.0], [1.0]])),
            "at least num_components = 5 rows",
        ),
        (
            lambda: fit(
                Mixture(2, MultivariateNormal(), 2),
                torch.tensor([[1.0, torch.nan], [0.0, 2.0], [torch.nan, 1.0]]),
            ),
            "columns '0' and '1' are both there in 1 rows",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_lonely_start_does_not_break(recwarn):
    """More components than distinct rows: empty components keep their parameters, nothing is
    NaN.
    """
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


# ---------------------------------------------------------------- solutions that are no proper
# optimum


def rounded(num_rows: int = 200, seed: int = 0) -> torch.Tensor:
    """One normal distribution, rounded to a tenth: many equal values."""
    return (
        torch.randn(num_rows, 1, generator=torch.Generator().manual_seed(seed), dtype=F64) * 10
    ).round() / 10


def degenerate(model, data, params):
    problem = problem_of(model, data, 0)
    return problem.structure.degenerate(
        problem,
        {name: torch.as_tensor(value, dtype=F64).unsqueeze(0) for name, value in params.items()},
    )[0]


def test_rounded_data_end_in_no_spike():
    x = rounded()
    fits = [fit(Mixture(4, Normal()), x, seed=seed) for seed in range(2)]
    assert (
        max(result.objective for result in fits) - min(result.objective for result in fits) < 1e-3
    )
    for result in fits:
        assert result.restarts.faults == ()
        assert float(result.params["dispersion"].min()) > 2e-3 * float(x.var())
        assert float(result.params["weights"].min()) * len(x) > 2
        spikes = any(result.restarts.degenerate)
        assert spikes == ("no proper optimum" in result.restarts.text())
    assert any(any(result.restarts.degenerate) for result in fits)  # spikes rank behind


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_spikes_rank_behind_whatever_their_objective():
    x = rounded(seed=2)
    many = fit(Mixture(4, Normal(), variance_floor=0.0), x, EM(max_iterations=400), num_restarts=30)
    spiked = torch.tensor([bool(words) for words in many.restarts.degenerate])
    assert spiked.any()
    assert not spiked.all()
    assert float(many.restarts.objective[spiked].max()) > many.objective
    assert not spiked[many.restarts.best]


def test_where_nothing_better_exists_the_fit_says_so():
    x = torch.cat([torch.zeros(20, dtype=F64), torch.linspace(3, 7, 20, dtype=F64)]).unsqueeze(1)
    with pytest.warns(
        DegenerateWarning, match=r"the variance of component \d in income is at its floor"
    ):
        result = fit(Mixture(2, Normal()), pd.DataFrame(x.numpy(), columns=["income"]))
    assert "The estimate is no proper optimum" in result.restarts.text()
    assert float(result.params["dispersion"].min()) == pytest.approx(
        1e-3 * float(x.var(unbiased=False)), rel=1e-6
    )


@pytest.mark.filterwarnings("ignore::inference.DegenerateWarning")
def test_a_variance_below_the_floor_is_lifted_at_the_start():
    x, model = rounded(), Mixture(2, Normal())
    start = {"weights": [0.5, 0.5], "predictors": [[0.0], [1.0]], "dispersion": [[1.0], [1e-6]]}
    result = fit(
        model, x, EM(max_iterations=50, tolerance=1e-3, parameter_tolerance=1.0), init=start
    )
    assert float(result.trace.objective.diff().min()) > -1e-9


def test_the_floor_is_a_share_of_what_the_middle_half_suggests():
    x = (
        torch.cat([rounded(300), torch.full((3, 1), 1000.0, dtype=F64)]).expand(-1, 2).clone()
    )  # three wild values
    steps = EM().steps(problem_of(Mixture(2, Normal(), 2), x, 0))
    assert float(steps.floor[0]) == pytest.approx(1e-3, rel=0.3)
    plain = EM().steps(problem_of(Mixture(2, Normal()), rounded(300), 0))
    assert float(plain.floor[0]) <= 1e-3 * float(rounded(300).var())
    assert (
        float(EM().steps(problem_of(Mixture(2, Normal(), 2, variance_floor=0.0), x, 0)).floor[0])
        < 1e-5
    )  # the end of the interval of variances
    gaps = x.clone()
    gaps[5:40, 0] = torch.nan
    assert float(
        EM().steps(problem_of(Mixture(2, Normal(), 2), gaps, 0)).floor[0]
    ) == pytest.approx(1e-3, rel=0.3)


def test_copies_and_empty_components_are_named():
    data = torch.tensor(
        np.random.default_rng(0).poisson([[2.0, 9.0]] * 150 + [[9.0, 2.0]] * 150), dtype=F64
    )
    model = Mixture(4, Poisson(), 2)
    high, low = (torch.tensor(rates, dtype=F64).log() for rates in ([2.0, 9.0], [9.0, 2.0]))
    copies = degenerate(
        model,
        data,
        {"weights": [0.4, 0.3, 0.2, 0.1], "predictors": torch.stack([high, low, low + 1e-3, high])},
    )
    assert copies == (
        "components 0 and 3 are copies of each other",
        "components 1 and 2 are copies of each other",
        "the data support 2 of the 4 components",
    )
    empty = degenerate(
        Mixture(3, Poisson(), 2),
        data,
        {
            "weights": [0.5, 0.499, 0.001],
            "predictors": torch.stack([high, low, torch.full((2,), 5.0, dtype=F64)]),
        },
    )
    assert empty[0].startswith("component 2 is empty")
    assert empty[-1] == "the data support 2 of the 3 components"
    assert (
        degenerate(
            Mixture(2, Poisson(), 2),
            data,
            {"weights": [0.5, 0.5], "predictors": torch.stack([high, low])},
        )
        == ()
    )
    near = degenerate(
        Mixture(2, Poisson(), 2),
        data,
        {"weights": [0.5, 0.5], "predictors": torch.stack([high, high + 0.1])},
    )
    assert near == ()  # 0.1 apart in the log of means 2 and 9: a divergence of 0.11


def test_more_components_than_distributions_in_the_data_warn():
    x = torch.tensor([[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]], dtype=F64).repeat(10, 1)
    with pytest.warns((DegenerateWarning, BoundWarning, EstimateWarning)) as caught:
        result = fit(Mixture(4, Bernoulli(), 3), x)
    assert any("the data support 2 of the 4 components" in str(w.message) for w in caught)
    assert "the data support 2 of the 4 components" in result.restarts.text()


def test_a_covariance_without_width_is_named():
    data = full_case(0, 200)
    data[:9] = data[0]
    means = [data[0].tolist(), data.mean(0).tolist()]
    sharp, wide = 1e7 * torch.eye(3, dtype=F64), torch.linalg.inv(data.mT.cov())
    model = Mixture(2, MultivariateNormal(), 3)
    found = degenerate(
        model,
        data,
        {"weights": [0.05, 0.95], "means": means, "precisions": torch.stack([sharp, wide])},
    )
    assert found[0].startswith("component 0 has no width in one direction")
    assert degenerate(model, data, fit(model, data).params) == ()


@pytest.mark.parametrize("seed", range(3))
def test_a_thin_component_of_many_rows_is_an_optimum(seed):
    """Failed before: a component with 1e-4 of the data's variance in one direction was named a
    spike, and a solution thousands of nats lower was the answer.
    """
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=1500)
    rows = rng.normal(size=(1500, 4)) + 6.0 * group[:, None]
    rows[:, 3] = rows[:, :3].sum(1) + 0.01 * rng.normal(size=1500)  # thin in one direction
    rows[group == 1, 3] += rng.normal(size=(group == 1).sum())
    result = fit(Mixture(2, MultivariateNormal(), 4), rows, seed=seed)
    truth = [np.cov(rows[group == k].T, bias=True) for k in (0, 1)]
    expected = sum(
        stats.multivariate_normal(rows[group == k].mean(0), truth[k]).logpdf(rows[group == k]).sum()
        + (group == k).sum() * np.log((group == k).mean())
        for k in (0, 1)
    )
    assert not result.restarts.faults
    assert result.log_likelihood > expected - 1.0


def test_a_component_of_equal_values_is_degenerate_however_many_rows_it_has():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 2))
    rows[:1000, 1] = 0.0
    with pytest.warns((DegenerateWarning, EstimateWarning)):
        result = fit(Mixture(2, MultivariateNormal(), 2), rows, EM(), num_restarts=4)
    solutions = [result.restarts.degenerate[r] for r in range(4)]
    assert any("has no width in one direction" in word for words in solutions for word in words)


# ---------------------------------------------------------------- noise of the components


ANGLES = [[[1.0, 0.4], [0.4, 2.0]], [[2.0, -0.9], [-0.9, 1.0]]]
MIXTURES = [
    (
        Normal(),
        2,
        {"predictors": [[-2.0, 0.0], [2.0, 1.0]], "dispersion": [[1.0, 0.3], [0.5, 2.0]]},
    ),
    (Poisson(), 2, {"predictors": [[0.0, 2.0], [2.0, 0.5]]}),
    (Bernoulli(), 3, {"predictors": [[1.0, -1.0, 0.5], [-1.0, 1.0, -2.0]]}),
    (
        NegativeBinomial(),
        2,
        {"predictors": [[0.0, 2.0], [2.0, 0.5]], "dispersion": [[1.0, 3.0], [0.7, 20.0]]},
    ),
    (MultivariateNormal(), 2, {"means": [[0.0, 0.0], [2.0, 3.0]], "precisions": ANGLES}),
    (
        MultivariateT(),
        2,
        {"means": [[0.0, 0.0], [2.0, 3.0]], "precisions": ANGLES, "freedom": [4.0, 2.5]},
    ),
    (
        SkewNormal(),
        2,
        {
            "locations": [[0.0, 0.0], [2.0, 3.0]],
            "precisions": ANGLES,
            "skews": [[2.0, -1.0], [0.3, 4.0]],
        },
    ),
]


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize(
    ("component", "num_items", "values"), MIXTURES, ids=lambda v: type(v).__name__
)
def test_mixture_noise_is_normal_at_the_truth(component, num_items, values, missing):
    from inference.programs.program import simulate
    from inference.structures.registry import structure_of

    if missing and not isinstance(component, ResponseFamily):
        pytest.skip("the noise of distributions of whole rows is that of complete rows")
    model = Mixture(2, component, num_items)
    truth = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
    truth["weights"] = torch.tensor([0.6, 0.4], dtype=torch.float64)
    data = simulate(model, truth, 3, None, 6000)["items"].double()
    data = data.masked_fill(
        torch.rand(data.shape, generator=torch.Generator().manual_seed(0)) < missing, torch.nan
    )
    noise = component_noise(structure_of(model), truth, data, torch.Generator().manual_seed(1), 1)
    for k in range(2):
        used = noise.scores[0, :, k][noise.used[0, :, k]]
        for column in used.T:
            assert stats.kstest(column, "norm").pvalue > 1e-5
        assert np.abs(np.corrcoef(used.T) - np.eye(used.shape[1])).max() < 0.09
    assert noise.used.sum(-1).min() == noise.used.sum(-1).max() == 1
