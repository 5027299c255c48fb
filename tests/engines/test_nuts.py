"""NUTS: windows, draws against quadrature, interruption, what it hands over, and what is
refused.
"""

from __future__ import annotations

import dataclasses
import math
import warnings

import numpy as np
import pytest
import torch
from support.screening import QUICK, exact_share, results, screened_fit, screening
from support.two_skills import GRAPH, encoder_truth

from inference import EM, NUTS, SVI, DegenerateWarning, Fit, Laplace, LowRank, MeanField, fit
from inference.base.diagnostics import ess_of_draws, rhat_of_draws
from inference.engines.nuts import _warn_degenerate, window_ends
from inference.fitting.export import summary
from inference.fitting.problem import problem_of
from inference.programs.global_state import quiet
from inference.programs.potential import Potential
from inference.programs.program import simulate
from ppl_models import (
    DeepDiscreteEncoder,
    FactorAnalysis,
    GaussianFactorization,
    Mixture,
    Normal,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning"
)


@pytest.fixture(scope="module")
def screened() -> tuple[Fit, torch.Tensor]:
    return screened_fit()


def test_windows_double_and_end_before_the_last_steps():
    assert window_ends(1000) == (75, 100, 150, 250, 450, 950)
    short = window_ends(100)
    assert short == (15, 90)
    assert all(a < b for a, b in zip(short, short[1:], strict=False))


def test_nuts_draws_from_the_exact_posterior(screened):
    result, data = screened
    mean, spread, limits = exact_share(data)
    draws = result.draws["share"].numpy()
    assert draws.shape == (4, 400)
    ess = float(ess_of_draws(result.draws)["share"])
    assert ess > 200
    error = spread / math.sqrt(ess)
    assert abs(draws.mean() - mean) < 4.5 * error
    assert abs(draws.std() / spread - 1) < 0.15
    assert np.abs(np.quantile(draws, [0.025, 0.975]) - limits).max() < 0.25 * spread
    assert float(rhat_of_draws(result.draws)["share"]) < 1.03
    assert result.params["share"].item() == pytest.approx(draws.mean())
    assert set(result.sample_stats) >= {
        "diverging",
        "energy",
        "tree_depth",
        "lp",
        "acceptance_rate",
    }
    assert result.log_likelihood == pytest.approx(float(result.log_likelihood_rows(data).sum()))
    again = fit(screening, data, QUICK)
    assert torch.equal(again.draws["share"], result.draws["share"])  # one seed, one answer
    other = fit(screening, data, QUICK, seed=1)
    assert not torch.equal(other.draws["share"], result.draws["share"])


def test_an_interrupted_run_goes_on_to_the_same_draws(tmp_path, monkeypatch):
    data, short = results(), NUTS(num_chains=2, warmup_steps=60, num_samples=40)
    whole = fit(screening, data, short)
    calls = {"left": 120}
    original = Potential.__call__

    def broken(self, points):
        calls["left"] -= 1
        if calls["left"] == 0:
            raise KeyboardInterrupt
        return original(self, points)

    monkeypatch.setattr(Potential, "__call__", broken)
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(screening, data, short, checkpoint=path)
    assert path.exists()
    resumed = fit(screening, data, short, checkpoint=path)
    assert torch.equal(resumed.draws["share"], whole.draws["share"])
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit(screening, results(seed=9), short, checkpoint=path)


def test_a_run_that_stops_inside_its_first_transitions_goes_on_to_the_same_draws(
    tmp_path, monkeypatch
):
    """Between the search for the step and the end of the transition after it, too."""
    data, short = results(), NUTS(num_chains=2, warmup_steps=20, num_samples=4, warm_start=None)
    whole, original = fit(screening, data, short), Potential.__call__
    for stop_at in range(3, 18, 2):
        calls = {"left": stop_at}

        def broken(self, points, calls=calls):
            calls["left"] -= 1
            if calls["left"] == 0:
                raise KeyboardInterrupt
            return original(self, points)

        path = tmp_path / f"{stop_at}"
        with monkeypatch.context() as patch:
            patch.setattr(Potential, "__call__", broken)
            with pytest.raises(KeyboardInterrupt):
                fit(screening, data, short, checkpoint=path)
        assert torch.equal(
            fit(screening, data, short, checkpoint=path).draws["share"], whole.draws["share"]
        ), stop_at


def test_what_cannot_be_done_is_said_before_any_work():
    big = (np.random.default_rng(0).random((30, 40)) < 0.5).astype(float)
    for engine in (NUTS(), Laplace(), SVI()):
        with pytest.raises(ValueError, match=r"latents_1.*30 bits.*cannot be enumerated.*SAEM"):
            fit(DeepDiscreteEncoder(40, (30,)), big, engine)
    for make in (
        lambda: NUTS(num_chains=0),
        lambda: NUTS(target_accept_prob=1.0),
        lambda: NUTS(warm_start=3),
        lambda: NUTS(num_samples=True),
        lambda: SVI(num_steps=1),
        lambda: SVI(learning_rate=-1.0),
        lambda: SVI(guide=MeanField),
        lambda: Laplace(num_draws=1),
        lambda: Laplace(optimum=EM),
        lambda: LowRank(0),
        lambda: SVI(batch_size=0),
    ):
        with pytest.raises(ValueError, match="NUTS|SVI|Laplace|LowRank"):
            make()


def test_draws_are_saved_exported_and_summarised(screened, tmp_path):
    model = DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,))
    data = simulate(model, encoder_truth(), 3, None, 400)["items"]
    result = fit(model, data, NUTS(num_chains=2, warmup_steps=40, num_samples=20))
    result.save(tmp_path / "fit")
    back = Fit.load(tmp_path / "fit")
    assert back.method == result.method
    for name, value in result.sample_stats.items():
        assert torch.equal(back.sample_stats[name], value)
    idata = result.to_arviz(data, num_prior=3, num_predictive=4)
    assert {
        "posterior",
        "sample_stats",
        "prior",
        "prior_predictive",
        "log_likelihood",
        "latent_posterior",
    } <= set(getattr(idata, "children", idata))
    assert idata.log_likelihood["items"].shape == (2, 20, 400)
    one = dataclasses.replace(
        result, params={name: value[1, 7] for name, value in result.draws.items()}, draws=None
    )
    np.testing.assert_allclose(
        idata.log_likelihood["items"].values[1, 7], one.log_likelihood_rows(data), rtol=1e-9
    )
    each = [
        dataclasses.replace(
            result, params={name: value[c, d] for name, value in result.draws.items()}
        ).posterior_latents(data)["latents_1"]
        for c in range(2)
        for d in range(20)
    ]
    np.testing.assert_allclose(
        idata.latent_posterior["latents_1"].values, torch.stack(each).mean(0), rtol=1e-9
    )
    assert idata.sample_stats["diverging"].dtype == bool
    assert idata.prior_predictive["items"].shape == (1, 3, 400, 6)
    assert "r_hat" in summary(idata).columns
    with pytest.raises(ValueError, match="num_prior"):
        result.to_arviz(data, num_prior=-1)


def test_a_ridge_that_is_nearly_flat_has_a_metric() -> None:
    """Failed before: numpy's LinAlgError, from a curvature whose inverse had no root."""
    noise = torch.randn(60, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    table = noise[:, :1] @ noise[:1] + 0.5 * noise
    with quiet():
        result = fit(
            GaussianFactorization(5, 1),
            table,
            NUTS(num_chains=1, warmup_steps=20, num_samples=4, max_depth=1),
        )
        factors = fit(
            FactorAnalysis(5, 1),
            table,
            NUTS(num_chains=1, warmup_steps=20, num_samples=4, max_depth=1),
        )
    assert result.draws["signatures"].shape == (1, 4, 1, 5)
    assert factors.draws["signatures"].shape == (1, 4, 1, 5)
    assert factors.local_draws["activities"].shape == (1, 4, 60, 1)


def test_draws_with_an_empty_component_are_said():
    """Two normals far apart: a draw without rows in the second one, then most draws so."""
    rows = torch.cat(
        [torch.randn(40, 1, dtype=torch.float64), torch.randn(40, 1, dtype=torch.float64) + 9]
    )
    problem = problem_of(Mixture(2, Normal(), 1), rows, 0)
    draws = {
        "weights": torch.tensor([[0.5, 0.5]], dtype=torch.float64).repeat(100, 1),
        "predictors": torch.tensor([[[0.0], [9.0]]], dtype=torch.float64).repeat(100, 1, 1),
        "dispersion": torch.ones(100, 2, 1, dtype=torch.float64),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _warn_degenerate(problem, draws)
    draws["weights"][:60] = torch.tensor([1 - 1e-6, 1e-6], dtype=torch.float64)
    draws["predictors"][:60, 1], draws["dispersion"][:60, 0] = 400.0, 30.0
    with pytest.warns(DegenerateWarning, match=r"60% of the draws .* component 1 is empty"):
        _warn_degenerate(problem, draws)
