"""Standard errors against textbook formulas, finite differences and repeated data; the information
check.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.ops.indexing import Vindex
from scipy import stats
from support.two_skills import GRAPH, TIGHT, answers, encoder
from zoo.table import ZOO, simulated

from inference import EM, ConvergenceWarning, fit
from inference.base.outcome import EstimateWarning
from inference.programs.program import Program
from inference.selection.sparsity import polish
from inference.uncertainty import (
    check_information,
    distance_to_optimum,
    row_scores,
    standard_errors,
)
from ppl_models import (
    Bernoulli,
    DeepDiscreteEncoder,
    LatentAttributeModel,
    LogNormal,
    Mixture,
    MultivariateNormal,
    Normal,
    TruncatedLasso,
)


def regression(covariates):
    """Logistic regression of one answer on known covariates: no latent at all."""

    def model(data):
        beta = pyro.sample("beta", dist.Normal(torch.zeros(2).double(), 100.0).to_event(1))
        with pyro.plate("units", len(data)):
            pyro.sample("answer", dist.Bernoulli(logits=covariates @ beta), obs=data)

    return model


def normal(data):
    """A sample of a Normal distribution, its variance on the log scale."""
    mean = pyro.sample("mean", dist.Normal(torch.zeros(()).double(), 1000.0))
    variance = pyro.sample("variance", dist.LogNormal(torch.zeros(()).double(), 100.0))
    with pyro.plate("units", len(data)):
        pyro.sample("x", dist.Normal(mean, variance.sqrt()), obs=data)


def record(model, data, params):
    """A fit of given parameters, as an engine of the user's own would hand it back."""
    import dataclasses

    empty = torch.zeros(6, 2, dtype=torch.float64)
    with pytest.warns(UserWarning, match="converge"):
        shell = fit(
            encoder(),
            answers(50, 0),
            EM(max_iterations=1, tolerance=1e-30, parameter_tolerance=1e-30),
            init="random",
        )
    assert empty.shape == shell.params["loadings_1"].shape
    return dataclasses.replace(shell, model=model, params=params, num_rows=len(data))


def test_logistic_regression_has_the_textbook_covariance():
    generator = torch.Generator().manual_seed(0)
    covariates = torch.stack([torch.ones(300), torch.randn(300, generator=generator)], -1).double()
    truth = torch.tensor([-0.5, 1.2], dtype=torch.float64)
    y = torch.bernoulli(torch.sigmoid(covariates @ truth), generator=generator)
    beta = torch.zeros(2, dtype=torch.float64)
    for _ in range(30):
        p = torch.sigmoid(covariates @ beta)
        fisher = (covariates * (p * (1 - p))[:, None]).T @ covariates
        beta = beta + torch.linalg.solve(fisher, covariates.T @ (y - p))
    prior = torch.eye(2, dtype=torch.float64) / 100.0**2  # of the program's own
    result = record(regression(covariates), y, {"beta": beta})
    found = standard_errors(result, y)
    assert torch.allclose(found.covariance, torch.linalg.inv(fisher + prior), rtol=1e-9)
    scores, names = row_scores(result, y)
    assert torch.allclose(scores, covariates * (y - p)[:, None], atol=1e-10)
    assert names == ("beta[0]", "beta[1]")
    bread, meat = torch.linalg.inv(fisher + prior), scores.T @ scores
    assert torch.allclose(
        standard_errors(result, y, "sandwich").covariance, bread @ meat @ bread, rtol=1e-8
    )
    assert torch.allclose(
        standard_errors(result, y, "scores").covariance, torch.linalg.inv(meat + prior), rtol=1e-8
    )
    ratio, error = found.delta(lambda p: p["beta"][0] / p["beta"][1])
    slope = torch.tensor([1 / beta[1], -beta[0] / beta[1] ** 2])
    assert float(ratio) == pytest.approx(float(beta[0] / beta[1]))
    assert float(error) == pytest.approx(float((slope @ bread @ slope).sqrt()))


def test_normal_sample_has_the_textbook_errors_on_the_log_scale():
    x = torch.as_tensor(np.random.default_rng(1).normal(3, 2, size=200))
    mean, variance = x.mean(), x.var(correction=0)
    found = standard_errors(record(normal, x, {"mean": mean, "variance": variance}), x)
    assert float(found.standard_errors["mean"]) == pytest.approx(
        float((200 / variance + 1e-6).rsqrt()), rel=1e-9
    )
    log_error = 1 / math.sqrt(200 / 2 + 1e-4)  # each with its prior
    assert float(found.standard_errors["variance"]) == pytest.approx(
        float(variance) * log_error, rel=1e-9
    )
    low, high = found.intervals(0.95)["variance"]
    assert float(low) == pytest.approx(float(variance) * math.exp(-1.959964 * log_error), rel=1e-6)
    assert float(low * high) == pytest.approx(float(variance) ** 2, rel=1e-9)
    with pytest.raises(ValueError, match="level"):
        found.intervals(1.0)


@pytest.mark.parametrize("response", [Normal(), LogNormal()], ids=lambda own: type(own).__name__)
def test_few_rows_of_one_normal_distribution_have_the_intervals_of_student_and_of_chi_square(
    response,
):
    """Failed before: normal intervals, too narrow by a fifth at twelve rows."""
    x = np.random.default_rng(0).normal([3.0, -1.0], [2.0, 0.3], size=(12, 2))
    data = x if type(response) is Normal else np.exp(x)
    found = standard_errors(fit(Mixture(1, response, 2), data), data)
    low, high = found.intervals(0.9)["predictors"]
    np.testing.assert_allclose(
        [low[0], high[0]],
        stats.t.interval(0.9, 11, x.mean(0), x.std(0, ddof=1) / 12**0.5),
        rtol=1e-6,
    )
    low, high = found.intervals(0.9)["dispersion"]
    np.testing.assert_allclose(
        [low[0], high[0]], 12 * x.var(0) / stats.chi2.ppf([[0.95], [0.05]], 11), rtol=1e-6
    )


def test_few_rows_of_one_normal_distribution_with_covariances_have_the_exact_intervals():
    """Means by Student's t, diagonals of the precisions by the chi-square distribution of what
    regressions on the other columns leave.
    """
    x = np.random.default_rng(0).normal(3, 2, size=(12, 3)) @ np.array(
        [[1.0, 0.5, 0.0], [0.0, 1.0, -0.4], [0.0, 0.0, 1.0]]
    )
    result = fit(Mixture(1, MultivariateNormal(1e-12), 3), x)
    low, high = standard_errors(result, x).intervals()["means"]
    np.testing.assert_allclose(
        [low[0], high[0]],
        stats.t.interval(0.95, 11, x.mean(0), x.std(0, ddof=1) / 12**0.5),
        rtol=1e-6,
    )
    low, high = standard_errors(result, x).intervals()["precisions"]
    left = [
        x[:, j] - design @ np.linalg.lstsq(design, x[:, j])[0]
        for j in range(3)
        for design in [np.column_stack([np.ones(12), np.delete(x, j, 1)])]
    ]
    ends = stats.chi2.ppf([[0.025], [0.975]], 9) / np.square(left).sum(1)
    np.testing.assert_allclose([low[0].diagonal(), high[0].diagonal()], ends, rtol=1e-5)


@pytest.mark.parametrize("given", [True, False], ids=["encoder", "attributes"])
def test_normal_items_that_all_but_show_their_latents_have_the_intervals_of_a_regression(given):
    """Latents that the items all but show are covariates of a regression with normal errors, a
    slope and an intercept for each item.
    """
    generator = np.random.default_rng(0)
    latents = generator.permutation(np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], 4, axis=0)).astype(
        float
    )
    x = latents[:, [0, 0, 0, 1, 1, 1]] * 50 + generator.normal(size=(16, 6))
    model = (
        DeepDiscreteEncoder(6, (2,), Normal(), graphs=(GRAPH,))
        if given
        else LatentAttributeModel(GRAPH, Normal())
    )
    site = "loadings_1" if given else "loadings"
    found = standard_errors(fit(model, x), x).intervals()
    low, high = (found[site][end].nan_to_num(0).sum(-1).numpy() for end in (0, 1))
    for j in range(6):
        line = stats.linregress(latents[:, j // 3], x[:, j])
        np.testing.assert_allclose(
            [low[j], high[j]],
            line.slope + np.array([-1, 1]) * stats.t.ppf(0.975, 14) * line.stderr,
            rtol=1e-3,
        )


def test_many_rows_have_the_normal_intervals():
    x = np.random.default_rng(0).normal(size=(20_000, 1))
    found = standard_errors(fit(Mixture(1, Normal()), x), x)
    plain = replace(found, scales=None).intervals()
    for site, (low, high) in found.intervals().items():
        for one, other in zip((low, high), plain[site], strict=True):
            torch.testing.assert_close(one, other, rtol=3e-4, atol=1e-5, equal_nan=True)


def test_a_variance_that_no_row_is_left_for_has_no_limits():
    x = np.array([[0.0, 5.0], [1.0, 7.0]])
    found = standard_errors(fit(Mixture(1, Normal(), 2), x), x)
    found = replace(found, scales=replace(found.scales, num_coefficients=torch.tensor([2.0, 2.0])))
    low, high = found.intervals()["predictors"]
    assert bool((high - low > 1e6).all())


@pytest.mark.parametrize("response", [None, Normal()], ids=["Bernoulli", "Normal"])
def test_latents_summed_out_agree_with_finite_differences(response):
    data = answers(400, 3)
    if response is not None:
        data = 2 * data + np.random.default_rng(0).normal(size=data.shape)
    result = fit(encoder(response), data, TIGHT)
    found = standard_errors(result, data)
    program = Program(result.model, torch.as_tensor(data))

    def total(free):
        with torch.no_grad():
            params = found.coordinates.params(free)
            return float(program.log_marginal(params) + program.log_prior(params))

    step, size = 1e-3, len(found.estimate)
    generator = torch.Generator().manual_seed(0)
    information = torch.linalg.inv(found.covariance)
    for _ in range(4):
        v = torch.randn(size, generator=generator, dtype=torch.float64)
        v = v / v.norm()
        curve = (
            total(found.estimate + step * v)
            - 2 * total(found.estimate)
            + total(found.estimate - step * v)
        ) / step**2
        assert curve == pytest.approx(-float(v @ information @ v), rel=1e-4)
    scores, names = row_scores(result, data)
    free = found.estimate.clone().requires_grad_()
    (pull,) = torch.autograd.grad(program.log_prior(found.coordinates.params(free)).sum(), free)
    assert (scores.sum(0) + pull).abs().max() < 1e-2  # at the maximum of the log-posterior
    assert names == found.names
    assert torch.isnan(found.standard_errors["loadings_1"][~torch.tensor(GRAPH).bool()]).all()
    assert torch.isfinite(found.standard_errors["loadings_1"][torch.tensor(GRAPH).bool()]).all()


def test_intervals_cover_the_truth_over_seeds():
    truth = torch.cat(
        [torch.full((6,), 3.0), torch.full((6,), -1.5), torch.tensor([0.4, 0.6])]
    ).double()
    hits = []
    for seed in range(12):
        data = answers(500, seed)
        result = fit(encoder(), data, EM(tolerance=1e-11, parameter_tolerance=1e-6), seed=seed)
        intervals = standard_errors(result, data).intervals(0.9)
        edges = torch.tensor(GRAPH).bool()
        low, high = (
            torch.cat(
                [
                    intervals["loadings_1"][i][edges],
                    intervals["intercepts_1"][i],
                    intervals["proportions"][i],
                ]
            )
            for i in (0, 1)
        )
        hits.append(((low <= truth) & (truth <= high)).double())
    share = float(torch.stack(hits).mean())
    assert (
        0.82 < share < 0.97
    )  # 168 intervals at 0.9; the latents' two halves are correlated within a data set


def test_a_mixture_of_the_users_own_has_errors_for_its_weights():
    def mixture(data):
        weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2).double()))
        means = pyro.sample("means", dist.Normal(torch.zeros(2).double(), 100.0).to_event(1))
        with pyro.plate("units", len(data)):
            z = pyro.sample("z", dist.Categorical(weights))
            pyro.sample("x", dist.Normal(Vindex(means)[..., z], 1.0), obs=data)

    generator = np.random.default_rng(0)
    x = torch.as_tensor(
        generator.normal(np.where(generator.random(4000) < 0.3, -8.0, 8.0))
    )  # as if z were seen
    share = (x < 0).double().mean()
    params = {
        "weights": torch.stack([share, 1 - share]),
        "means": torch.stack([x[x < 0].mean(), x[x > 0].mean()]),
    }
    found = standard_errors(record(mixture, x, params), x)
    expected = math.sqrt(float(share * (1 - share)) / 4000)
    assert found.names == ("weights[0]", "means[0]", "means[1]")
    assert found.standard_errors["weights"].numpy() == pytest.approx([expected, expected], rel=1e-6)
    assert float(found.standard_errors["means"][0]) == pytest.approx(
        1 / math.sqrt(4000 * float(share)), rel=1e-6
    )
    low, high = found.intervals()["weights"]
    assert (low < params["weights"]).all()
    assert (params["weights"] < high).all()


def test_estimates_on_a_bound_are_refused_by_name_or_held():
    data = answers(300, 0)
    data[:, 1] = data[:, 0]  # two equal items: the latent becomes the item
    with pytest.warns(UserWarning, match="bound"):
        result = fit(
            DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,), bound=15.0), data, EM(tolerance=1e-9)
        )
    with pytest.raises(ValueError, match=r"loadings_1\[[01],0\]"):
        standard_errors(result, data)
    held = standard_errors(result, data, hold_bounds=True)
    assert torch.isnan(held.standard_errors["loadings_1"][:2, 0]).any()
    assert torch.isfinite(held.standard_errors["loadings_1"][3:, 1]).all()


def test_a_singular_information_is_refused_by_name():
    """Two items and one latent: five parameters, three free cell probabilities."""
    generator = np.random.default_rng(0)
    latent = generator.random(500) < 0.5
    data = (generator.random((500, 2)) < np.where(latent, 0.8, 0.2)[:, None]).astype(float)
    result = fit(DeepDiscreteEncoder(2, (1,)), data, TIGHT)
    with pytest.raises(ValueError, match=r"singular.*1"):
        standard_errors(result, data)
    report = check_information(result)
    assert report.rank == 3
    assert not report.is_full_rank
    with pytest.raises(ValueError, match="kind"):
        standard_errors(result, data, "louis")


def test_the_information_check_finds_a_sound_model_sound():
    data = answers(500, 1)
    report = check_information(fit(encoder(), data, TIGHT))
    assert report.is_full_rank
    assert report.num_rows == 2000
    with pytest.raises(ValueError, match=r"takes \(data, num_rows\), and draws that many rows"):
        check_information(record(normal, torch.zeros(3), {}))

    def twice(data: None = None, num_rows: int = 0) -> None:
        with pyro.plate("units", num_rows):
            pyro.sample("x", dist.Normal(0.0, 1.0))
            pyro.sample("y", dist.Normal(0.0, 1.0))

    with pytest.raises(ValueError, match="draws 'x', 'y', and one site of rows tells"):
        check_information(record(twice, torch.zeros(3), {}))


def test_a_shrunken_fit_is_refused_and_its_refit_is_not():
    data = answers(600, 4)
    shrunk = fit(DeepDiscreteEncoder(6, (2,), penalty=TruncatedLasso.for_rows(600)), data, TIGHT)
    assert (shrunk.params["loadings_1"] == 0).any()
    with pytest.raises(ValueError, match="polish"):
        standard_errors(shrunk, data)
    polished = polish(shrunk, data)
    found = standard_errors(polished, data)
    assert torch.equal(
        torch.isnan(found.standard_errors["loadings_1"]), polished.graphs["loadings_1"] == 0
    )


def test_a_plain_fit_has_standard_errors_on_its_graph():
    data = answers(600, 4)
    result = fit(DeepDiscreteEncoder(6, (2,)), data)
    found = standard_errors(result, data)
    assert result.graphs["loadings_1"].sum() == 6
    assert torch.equal(
        torch.isfinite(found.standard_errors["loadings_1"]), result.graphs["loadings_1"] == 1
    )


def test_separated_items_have_finite_intervals_from_the_prior():
    data = answers(300, 0)
    data[:, 1] = data[:, 0]  # two equal items: without a prior the latent becomes the item
    result = fit(encoder(), data, TIGHT)
    assert result.warnings == ()
    assert result.params["loadings_1"].abs().max() < 12
    errors = standard_errors(result, data).standard_errors["loadings_1"][:2, 0]
    assert (errors > 1).all()  # weakly determined, and it says so
    assert torch.isfinite(errors).all()


@pytest.mark.filterwarnings("ignore")
def test_what_no_data_determine_has_no_standard_error_however_bent_the_likelihood_is():
    """Failed before: of 17 parameters the distribution has 16, and all 17 got errors, one of them
    from the curve of the way that several take together.
    """
    row = next(row for row in ZOO if row.name == "dina-Poisson-2-missing")
    data = simulated(row, 400, 5)
    result = fit(row.model, data, EM(max_iterations=200), num_restarts=2, seed=3)
    assert check_information(result).rank == 16
    with pytest.raises(
        ValueError, match=r"the distribution of the data does not change along .*proportions\[0\]"
    ):
        standard_errors(result, data)


def means(data):
    """Means of normal columns with unit variance, whose scores are normal."""
    mean = pyro.sample("mean", dist.Normal(torch.zeros(data.shape[1]).to(data), 1e6).to_event(1))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(mean, 1.0).to_event(1), obs=data)


def test_squared_scores_of_few_rows_an_entry_are_warned_of_and_refused():
    """Failed before: 218 entries of 435 rows had errors five times too large, unsaid."""
    rows = torch.randn(160, 30, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    result = record(means, rows, {"mean": rows.mean(0)})
    exact = standard_errors(result, rows).standard_errors["mean"]
    with pytest.warns(EstimateWarning, match=r"10 rows an entry, got 160 rows for 30 entries.*11%"):
        found = standard_errors(result, rows, "scores").standard_errors["mean"]
    assert float((found / exact).square().mean().sqrt()) == pytest.approx(1.115, abs=0.03)
    few = record(means, rows[:80], {"mean": rows[:80].mean(0)})
    with pytest.raises(ValueError, match='80 rows for 30 entries.*kind="hessian"'):
        standard_errors(few, rows[:80], "scores")


@pytest.mark.parametrize("kind", ["hessian", "scores", "sandwich"])
def test_a_weight_counts_a_row_so_often(kind):
    """Failed before: weighted fits had no standard errors."""
    generator = torch.Generator().manual_seed(8)
    rows = (
        torch.rand(120, 3, generator=generator)
        < torch.where(torch.rand(120, 1, generator=generator) < 0.5, 0.9, 0.2)
    ).double()
    counts = torch.randint(0, 4, (120,), generator=generator)
    model, method = Mixture(2, Bernoulli(), 3), EM(tolerance=1e-13, max_iterations=3000)
    weighted, copied = (
        fit(model, rows, method, num_restarts=2, weights=counts),
        fit(model, rows.repeat_interleave(counts, 0), method, num_restarts=2),
    )
    one, other = (
        standard_errors(weighted, rows, kind),
        standard_errors(copied, rows.repeat_interleave(counts, 0), kind),
    )
    for site, value in other.standard_errors.items():
        torch.testing.assert_close(one.standard_errors[site], value, rtol=1e-2, atol=0)
    assert weighted.summary(rows)["error"].notna().all()


@pytest.mark.parametrize("weighted", [False, True])
def test_slope_and_curvature_tell_what_is_left_to_gain(weighted: bool) -> None:
    """A fit that is stopped early is as far from its optimum as said, in nats and in standard
    errors.
    """
    generator = np.random.default_rng(5)
    centres = np.array([[-2.0, 0.0], [1.0, 1.5]])
    rows = centres[generator.integers(2, size=300)] + generator.standard_normal((300, 2))
    weights = generator.integers(1, 3, size=300).astype(float) if weighted else None
    model = Mixture(2, Normal(), 2, concentration=3.0)
    plain = EM(acceleration=None, tolerance=1e-12, parameter_tolerance=1e-9)
    end = fit(model, rows, plain, seed=1, weights=weights)
    assert end.converged
    with pytest.warns(ConvergenceWarning):
        early = fit(
            end.model,
            rows,
            replace(plain, max_iterations=15),
            init=end.params | {"predictors": end.params["predictors"] + 0.5},
            weights=weights,
        )
    found = standard_errors(early, rows)
    rest = distance_to_optimum(early, rows, found)
    truly = end.objective - early.objective
    assert truly > 1e-7
    assert rest.objective == pytest.approx(truly, rel=0.1)
    assert rest.names == found.names
    way = standard_errors(end, rows).estimate - found.estimate
    errors = found.covariance.diagonal().sqrt()
    torch.testing.assert_close(rest.steps, way / errors, rtol=0.1, atol=1e-3)
    there = distance_to_optimum(end, rows)
    assert there.objective < 1e-8
    assert there.largest[0] < 1e-3
    assert float(there.likelihood_steps.abs().max()) > 0.01  # the prior has moved the optimum
