"""Factor analysis: density, steps and estimates against closed forms and scikit-learn; noise of the
components; bad input.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.decomposition import FactorAnalysis as Theirs

from inference import EM, BoundWarning, EstimateWarning, Fit, fit
from inference.acdc import KNN, acdc
from inference.base.structure import component_noise
from inference.fitting.problem import problem_of
from inference.structures.factorization.factor_analysis import FactorSteps
from inference.structures.registry import structure_of
from ppl_models import FactorAnalysis

F64 = torch.float64


def case(
    num_rows: int = 400, seed: int = 0, missing: float = 0.0
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    rng = np.random.default_rng(seed)
    phi, mu = rng.normal(size=(2, 7)), rng.normal(size=7)
    sigma = rng.uniform(0.6, 1.3, 7)
    x = mu + rng.normal(size=(num_rows, 2)) @ phi + sigma * rng.normal(size=(num_rows, 7))
    x[rng.random(x.shape) < missing] = math.nan
    truth = {"signatures": phi, "intercepts": mu, "scales": sigma}
    return torch.tensor(x), {name: torch.tensor(value) for name, value in truth.items()}


def rows_by_hand(params: dict[str, torch.Tensor], x: torch.Tensor) -> np.ndarray:
    phi, mu, sigma = (params[name].numpy() for name in ("signatures", "intercepts", "scales"))
    covariance = phi.T @ phi + np.diag(sigma**2)
    out = []
    for row in x.numpy():
        seen = ~np.isnan(row)
        out.append(
            stats.multivariate_normal.logpdf(row[seen], mu[seen], covariance[np.ix_(seen, seen)])
        )
    return np.array(out)


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_density_and_posterior_are_those_of_the_joint_normal(missing: float) -> None:
    x, truth = case(30, 1, missing)
    result = fit(FactorAnalysis(7, 2), x, EM(max_iterations=3), num_restarts=2)
    by_hand = rows_by_hand(result.params, x)
    np.testing.assert_allclose(result.log_likelihood_rows(x).numpy(), by_hand, rtol=1e-8)
    assert result.log_likelihood == pytest.approx(by_hand.sum(), rel=1e-9)
    phi, mu, sigma = (
        result.params[name].numpy() for name in ("signatures", "intercepts", "scales")
    )
    row = x[0].numpy()
    seen = ~np.isnan(row)
    covariance = (phi.T @ phi + np.diag(sigma**2))[np.ix_(seen, seen)]
    expected = phi[:, seen] @ np.linalg.solve(covariance, row[seen] - mu[seen])
    np.testing.assert_allclose(
        result.posterior_latents(x)["activities"][0].numpy(), expected, rtol=1e-7
    )
    assert truth["signatures"].shape == phi.shape


def steepest(steps: FactorSteps, params: dict[str, torch.Tensor]) -> float:
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    value = steps.e_step(leaves)[1].sum()
    return max(
        float(slope.abs().max()) for slope in torch.autograd.grad(value, list(leaves.values()))
    )


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_em_climbs_by_the_gradient_to_a_stationary_point(missing: float) -> None:
    x, _ = case(60, 2, missing)
    problem = problem_of(FactorAnalysis(7, 2), x, 0)
    steps = structure_of(problem.model).steps(problem, 2**18, 1)
    assert isinstance(steps, FactorSteps)
    params = structure_of(problem.model).start(problem, "spectral", 2)
    first = steepest(steps, params)
    last = torch.full((2,), -math.inf, dtype=F64)
    for _ in range(300):
        statistics, value, _ = steps.e_step(params)
        assert bool((value >= last - 1e-9 * value.abs()).all())
        last, params = value, steps.m_step(statistics, params)
    assert steepest(steps, params) < 0.03 * first


def test_as_good_as_scikit_learn() -> None:
    x, truth = case(400, 3)
    result = fit(FactorAnalysis(7, 2), x)
    theirs = Theirs(2, tol=1e-3, max_iter=5000).fit(x.numpy())
    assert result.log_likelihood >= theirs.score(x.numpy()) * len(x) - 0.05
    assert result.log_likelihood > rows_by_hand(truth, x).sum()
    torch.testing.assert_close(result.params["scales"], truth["scales"], rtol=0.25, atol=0.1)
    product = result.params["signatures"].mT @ result.params["signatures"]
    expected = truth["signatures"].mT @ truth["signatures"]
    assert float((product - expected).norm() / expected.norm()) < 0.15
    gram = (result.params["signatures"] / result.params["scales"]) @ (
        result.params["signatures"] / result.params["scales"]
    ).mT
    assert float(gram[0, 1].abs()) < 1e-6 * float(gram[0, 0])
    assert float(gram[0, 0]) > float(gram[1, 1])
    assert result.num_parameters == 7 * 2 - 1 + 14


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_a_heywood_case_is_named() -> None:
    """Failed before: noise of next to nothing without a word."""
    x, _ = case(100, 3)
    names = [f"item {j}" for j in range(7)]
    nearly = pd.DataFrame(
        torch.cat([x[:, :6], x[:, :1] + 0.01 * x[:, 6:]], 1).numpy(), columns=names
    )
    with pytest.warns(EstimateWarning, match=r"Heywood case.*item (0|6) \("):
        result = fit(FactorAnalysis(7, 2), nearly, EM(max_iterations=500))
    assert any("Heywood" in text for text in result.warnings)  # which pages show
    with pytest.warns(BoundWarning, match=r"scales\["):
        fit(FactorAnalysis(7, 2), 1e-9 * (x - x.mean(0)), EM(max_iterations=5))


def test_missing_entries_are_marginalised(tmp_path) -> None:
    x, truth = case(600, 4, missing=0.25)
    result = fit(FactorAnalysis(7, 2), x)
    assert result.log_likelihood > rows_by_hand(truth, x).sum()
    torch.testing.assert_close(result.params["scales"], truth["scales"], rtol=0.3, atol=0.15)
    result.save(tmp_path / "fit")
    again = Fit.load(tmp_path / "fit")
    assert torch.equal(again.log_likelihood_rows(x), result.log_likelihood_rows(x))
    assert again.simulate(5)["items"].shape == (5, 7)
    assert "activities" in result.to_arviz(x)["latent_posterior"]


@pytest.mark.parametrize("shares", [None, (0.8, 0.2)])
def test_noise_of_components_is_normal_where_the_model_is_right(shares) -> None:
    x, truth = case(500, 5, missing=0.1)
    noise = component_noise(
        structure_of(FactorAnalysis(7, 2, shares)), truth, x, torch.Generator().manual_seed(0), 2
    )
    assert noise.scores.shape == (2, 500, 2, 7)
    p = [
        stats.kstest(noise.scores[m, :, k, j], "norm").pvalue
        for m in range(2)
        for k in range(2)
        for j in range(7)
    ]
    assert min(p) > 1e-4 / len(p)
    own = torch.tensor(shares or (0.5, 0.5), dtype=F64).sqrt().numpy()[:, None]
    total = (noise.scores * own).sum(2)  # the components' noise adds up to that of the item
    assert np.abs(total.std((0, 1)) - 1).max() < 0.15


@pytest.mark.filterwarnings(
    "ignore::inference.StartsWarning"
)  # a factor too many: its three starts end at three heights, half a nat apart
def test_too_few_factors_show_in_their_noise() -> None:
    x, _ = case(1000, 6)
    fits = {k: fit(FactorAnalysis(7, k), x) for k in (1, 2, 3)}
    assert min(fits, key=lambda k: fits[k].bic) == 2
    result = acdc(fits, x, discrepancy=KNN())
    assert float(result.component_discrepancy[2].max()) < 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FactorAnalysis(4, 4), "must be below num_items"),
        (lambda: FactorAnalysis(4, 2, (0.5, 0.6)), "noise_shares must be 2 positive numbers"),
        (lambda: FactorAnalysis(4, 2, (1.0,)), "noise_shares must be 2 positive numbers"),
        (lambda: FactorAnalysis(4, 2, bound=-1.0), "bound must be positive"),
        (lambda: FactorAnalysis(4, 2)(), "give data, or num_rows"),
        (lambda: fit(FactorAnalysis(3, 1), [[1.0, 2.0], [3.0, 1.0]]), "num_items = 3 columns"),
        (
            lambda: fit(FactorAnalysis(3, 2), [[1.0, 2.0, 3.0], [3.0, 1.0, 0.0]]),
            r"more than num_components \+ 1 = 3 rows",
        ),
    ],
)
def test_bad_input(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
