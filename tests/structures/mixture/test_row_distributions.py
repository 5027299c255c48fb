"""Student t and skew-normal components: their EM, its fixed points by hand, limits, starts, and
what is said of odd fits.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import optimize, stats
from scipy.special import logsumexp
from zoo.table import F64, close

from inference import EM, DegenerateWarning, Fit, fit
from inference.base.component_distributions.dispatch import distribution_of
from inference.fitting.problem import problem_of
from inference.programs.program import simulate
from inference.selection import select_components
from inference.structures.registry import structure_of
from ppl_models import HiddenMarkov, Mixture, MultivariateNormal, MultivariateT, Normal, SkewNormal


def heavy(num_rows: int = 600, freedom: float = 3.0, seed: int = 0) -> np.ndarray:
    """Two groups of t rows, one of them turned."""
    rng = np.random.default_rng(seed)
    wide = rng.standard_normal((num_rows, 2)) / np.sqrt(
        rng.chisquare(freedom, (num_rows, 1)) / freedom
    )
    wide[: num_rows // 2] = wide[: num_rows // 2] @ np.array([[1.0, 0.8], [0.0, 0.6]]) + 8
    return wide


def leaning(num_rows: int = 500, seed: int = 0) -> np.ndarray:
    """One group of skew-normal rows."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((num_rows, 2)) + np.abs(
        rng.standard_normal((num_rows, 1))
    ) * np.array([3.0, -2.0])


def t_rows(mean: np.ndarray, scale: np.ndarray, freedom: float, x: np.ndarray) -> np.ndarray:
    return stats.multivariate_t(mean, scale, freedom).logpdf(x)


@pytest.mark.parametrize("distribution", [MultivariateNormal, MultivariateT, SkewNormal])
def test_no_more_rows_than_columns_are_refused_before_any_work(distribution):
    """Failed before: minutes of silence, and a fit that warned of each component."""
    wide = np.random.default_rng(0).normal(size=(200, 400))
    message = (
        rf"^data: {distribution.__name__} needs more rows than columns, got 200 rows and 400"
        r" columns: each of 2 covariances has 80,200 parameters.*regularization=0.2\) or more$"
    )
    with pytest.raises(ValueError, match=message):
        fit(Mixture(2, distribution(), 400), wide)
    with pytest.raises(ValueError, match="emission=Normal"):
        fit(HiddenMarkov(2, distribution(), 400), wide)
    for rows, width, is_refused in (
        (8, 1e-6, True),
        (9, 1e-6, False),
        (8, 0.0079, True),
        (8, 0.008, False),
    ):
        model = Mixture(1, distribution(width), 8)
        if is_refused:
            with pytest.raises(ValueError, match=r"regularization=0\.008\)"):
                model.check_data(wide[:rows, :8])
        else:
            assert len(model.check_data(wide[:rows, :8])[0]) == rows


@pytest.mark.parametrize(("number", "width"), [(1, 0.012), (2, 0.2)])
def test_a_prior_that_holds_covariances_open_makes_a_proper_fit(number, width):
    """What the refusal advises leads to a fit of one component without a warning; components of few
    rows that the prior does not hold open are named.
    """
    rows = np.random.default_rng(0).normal(size=(12, 15)) + 4 * np.repeat([[0.0], [1.0]], 6, 0)
    result = fit(Mixture(number, MultivariateNormal(width), 15), rows, EM(), num_restarts=2)
    assert result.warnings == ()
    covariances = torch.linalg.inv(result.params["precisions"])
    assert (
        float((torch.linalg.eigvalsh(covariances) / torch.tensor(rows).var(0).max()).min()) > 1e-5
    )
    with pytest.warns(DegenerateWarning, match="rests on"):
        fit(Mixture(2, MultivariateNormal(), 7), rows[:, :7], EM(), num_restarts=2)


@pytest.mark.parametrize("distribution", [MultivariateNormal, MultivariateT, SkewNormal])
def test_columns_that_repeat_each_other_are_named(distribution):
    """Failed before: a log-likelihood that the prior alone makes finite, without a word."""
    rows = np.random.default_rng(0).normal(size=(40, 3)) * [1.0, 100.0, 1e-3]
    table = pd.DataFrame(np.column_stack([rows, rows[:, 1] + 2]), columns=["a", "b", "c", "d"])
    method = EM(max_iterations=60, tolerance=1e-3, parameter_tolerance=1.0)
    with pytest.warns(DegenerateWarning, match=r"columns b and d repeat each other"):
        fit(Mixture(1, distribution(), 4), table, method)
    assert fit(Mixture(1, distribution(), 3), table[["a", "b", "c"]], method).restarts.faults == ()


def test_distributions_that_the_rows_do_not_determine_are_not_offered():
    rows = np.random.default_rng(0).normal(size=(6, 6))
    answer = select_components(Mixture(1, Normal(), 6), rows, (1, 2), num_restarts=1)
    assert list(dict.fromkeys(answer.table.index.get_level_values(0))) == [
        "normal with independent columns"
    ]


@pytest.mark.parametrize(
    "distribution",
    [MultivariateT(1e-2), SkewNormal(1e-2)],
    ids=lambda distribution: type(distribution).__name__,
)
def test_em_never_loses_whatever_the_prior(distribution):
    data = torch.tensor(np.concatenate([heavy(60), leaning(40)]))
    problem = problem_of(Mixture(3, distribution, 2), data, 0)
    steps, params = EM().steps(problem), problem.structure.start(problem, "random", 5)
    values = []
    for _ in range(40):
        statistics, log_likelihood, log_prior = steps.e_step(params)
        values.append(log_likelihood + log_prior)
        params = steps.m_step(statistics, params)
    change = torch.stack(values).diff(dim=0)
    assert float(change.min()) >= -1e-9 * abs(float(values[-1].max()))
    assert float(change[:5].max()) > 1


def test_one_t_distribution_is_the_maximum_likelihood_of_scipy():
    x = heavy()[:300]
    result = fit(Mixture(1, MultivariateT(), 2), x, EM(tolerance=1e-13, parameter_tolerance=1e-8))
    mean, scale, freedom = (
        result.params["means"][0].numpy(),
        np.linalg.inv(result.params["precisions"][0].numpy()),
        float(result.params["freedom"]),
    )
    assert result.log_likelihood == pytest.approx(t_rows(mean, scale, freedom, x).sum())

    def loss(v: np.ndarray) -> float:
        lower = np.array([[np.exp(v[2]), 0.0], [v[3], np.exp(v[4])]])
        return -float(t_rows(v[:2], lower @ lower.T, float(np.exp(v[5])), x).sum())

    lower = np.linalg.cholesky(scale)
    at = np.array([*mean, np.log(lower[0, 0]), lower[1, 0], np.log(lower[1, 1]), np.log(freedom)])
    found = optimize.minimize(loss, at + 0.05, method="BFGS")
    assert -found.fun == pytest.approx(result.log_likelihood, abs=1e-3)
    assert np.allclose(found.x, at, atol=2e-2)
    assert result.num_parameters == 2 + 3 + 1


def test_one_skew_normal_distribution_is_a_maximum():
    x = leaning(300)
    result = fit(Mixture(1, SkewNormal(), 2), x, EM(tolerance=1e-10))
    assert result.num_parameters == 2 + 2 + 3
    distribution = distribution_of(structure_of(result.model).about)
    leaves = {name: value.clone().requires_grad_() for name, value in result.params.items()}
    distribution.log_densities(leaves, torch.tensor(x)).sum().backward()
    for name in ("locations", "skews", "precisions"):
        assert float(leaves[name].grad.abs().max()) < 0.5, name
    assert np.allclose(result.params["skews"][0], [3, -2], atol=0.5)
    normal = fit(Mixture(1, MultivariateNormal(), 2), x)
    assert result.log_likelihood > normal.log_likelihood + 5


def test_normal_rows_are_a_t_distribution_of_many_degrees():
    x = np.random.default_rng(0).standard_normal((400, 3))
    wide, normal = (
        fit(Mixture(1, MultivariateT(), 3), x),
        fit(Mixture(1, MultivariateNormal(), 3), x),
    )
    assert float(wide.params["freedom"]) > 20
    assert abs(wide.log_likelihood - normal.log_likelihood) < 2
    assert wide.warnings == ()  # the end of the interval is a normal distribution, and no fault
    assert wide.num_iterations < 200


def test_two_groups_of_heavy_tails_are_two():
    x = heavy()
    result = fit(Mixture(2, MultivariateT(), 2), x, EM(), num_restarts=3)
    assert sorted(result.params["means"][:, 0].round().tolist()) == [0, 8]
    assert 1.5 < float(result.params["freedom"].mean()) < 5
    params = {name: value.numpy() for name, value in result.params.items()}
    each = [
        np.log(params["weights"][k])
        + t_rows(
            params["means"][k], np.linalg.inv(params["precisions"][k]), params["freedom"][k], x
        )
        for k in range(2)
    ]
    close(result.log_likelihood_rows(x), logsumexp(each, axis=0), 1e-9)


@pytest.mark.parametrize(
    "distribution",
    [MultivariateT(), SkewNormal()],
    ids=lambda distribution: type(distribution).__name__,
)
def test_one_column_saved_named_and_refused(distribution, tmp_path):
    x = leaning(200)[:, :1]
    result = fit(
        Mixture(2, distribution, 1),
        x,
        EM(max_iterations=60, tolerance=1e-4, parameter_tolerance=1.0),
        num_restarts=2,
    )
    result.save(tmp_path / "fit")
    again = Fit.load(tmp_path / "fit")
    assert again.model == result.model
    assert torch.equal(again.log_likelihood_rows(x), result.log_likelihood_rows(x))
    assert set(result.model.site_dims) == {
        "weights",
        "assignments",
        "items",
        *distribution.site_dims,
    }
    with pytest.raises(
        ValueError, match=f"{type(distribution).__name__} components need complete rows"
    ):
        fit(Mixture(2, distribution, 2), [[1.0, np.nan], [0.0, 1.0], [2.0, 2.0]])
    with pytest.raises(ValueError, match="regularization must be positive"):
        type(distribution)(regularization=-1.0)


def test_a_collapsed_component_is_named():
    data = torch.tensor(np.concatenate([heavy(), np.ones((9, 2))]))
    sharp, wide = 1e8 * torch.eye(2, dtype=F64), torch.eye(2, dtype=F64)
    for distribution, site, own in (
        (MultivariateT(), "means", {"freedom": torch.tensor([5.0, 5.0])}),
        (SkewNormal(), "locations", {"skews": torch.zeros(2, 2)}),
    ):
        params = {
            "weights": torch.tensor([0.02, 0.98]),
            site: torch.tensor([[1.0, 1.0], [4.0, 4.0]]),
            "precisions": torch.stack([sharp, wide]),
        } | own
        params = {name: value.to(F64).unsqueeze(0) for name, value in params.items()}
        problem = problem_of(Mixture(2, distribution, 2), data, 0)
        assert problem.structure.degenerate(problem, params)[0][0].startswith(
            "component 0 has no width in one direction"
        )
    assert problem.structure.at_bound(params) == []


def test_rows_are_drawn_from_the_distribution():
    truth = {
        "weights": [1.0],
        "means": [[1.0, -1.0]],
        "precisions": [[[1.0, 0.5], [0.5, 2.0]]],
        "freedom": [6.0],
    }
    params = {name: torch.tensor(value, dtype=F64) for name, value in truth.items()}
    x = simulate(Mixture(1, MultivariateT(), 2), params, 0, None, 20000)["items"].numpy()
    assert np.allclose(np.cov(x.T), 1.5 * np.linalg.inv(truth["precisions"][0]), atol=0.08)
    assert np.allclose(x.mean(0), truth["means"][0], atol=0.05)
    skews = {
        "weights": params["weights"],
        "locations": params["means"],
        "precisions": params["precisions"],
        "skews": torch.tensor([[2.0, -3.0]], dtype=F64),
    }
    x = simulate(Mixture(1, SkewNormal(), 2), skews, 0, None, 20000)["items"].numpy()
    delta = np.array([2.0, -3.0])
    assert np.allclose(x.mean(0), np.array([1.0, -1.0]) + np.sqrt(2 / np.pi) * delta, atol=0.06)
    assert np.allclose(
        np.cov(x.T),
        np.linalg.inv(truth["precisions"][0]) + (1 - 2 / np.pi) * np.outer(delta, delta),
        atol=0.15,
    )
