"""Stochastic-approximation EM against exact EM, its settings, and what is refused."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from support.small_encoders import example, name_of

from inference import EM, SAEM, ConvergenceWarning, Fit, fit
from inference.alignment import align
from inference.base.checkpoint import read_tensors
from inference.base.steps import GenericDraws
from inference.engines.saem import SAEMState
from inference.fitting.problem import problem_of
from inference.metrics import graph_accuracy
from inference.programs.program import Program
from inference.structures.layers.draw_steps import LayeredDraws
from ppl_models import Bernoulli, DeepDiscreteEncoder, Normal, Poisson, ToBeChosen, TruncatedLasso
from ppl_models.datasets import strict_design

F64 = torch.float64
SHORT = SAEM(num_burn_in=3, num_relaxed=2, max_iterations=6, window=3)


# ---------------------------------------------------------------- fits


@pytest.mark.parametrize("response", [Poisson(), Normal()], ids=name_of)
def test_saem_comes_near_exact_em(response):
    truth = strict_design(2, response)
    gaps = []
    for seed in range(2):
        model = DeepDiscreteEncoder(18, (6, 2), response, TruncatedLasso.bic(1000), bound=10.0)
        data = Program(model, None, 1000).simulate(truth, seed)["items"]
        exact, ours = fit(model, data, EM(), seed=seed), fit(model, data, SAEM(), seed=seed)
        assert ours.converged
        assert ours.objective_name == "log-posterior"
        assert ours.trace.name == "complete-data log-posterior"
        aligned = align(ours, truth).params
        assert graph_accuracy(aligned, truth, model.layers(), model.penalty.threshold) > 0.98
        gaps.append(exact.objective - ours.objective)
    assert max(gaps) < 5
    assert min(gaps) > -5


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
@pytest.mark.slow
def test_more_latents_than_can_be_summed_over():
    truth = strict_design(9, Normal())
    model = DeepDiscreteEncoder(81, (27, 9), Normal(), TruncatedLasso.bic(300), bound=10.0)
    data = Program(model, None, 300).simulate(truth, 0)["items"]
    result = fit(model, data, SAEM(max_iterations=30, tolerance=5e-3))
    assert result.objective_name == "log-posterior"
    assert 0 < result.log_likelihood_error < 6
    assert result.elbo < result.log_likelihood
    assert "standard error" in str(result)
    aligned = align(result, truth).params
    assert graph_accuracy(aligned, truth, model.layers(), model.penalty.threshold) > 0.97
    rows = result.log_likelihood_rows(data)
    assert float(rows.sum()) == pytest.approx(result.log_likelihood, abs=20)
    means = result.posterior_latents(data)
    assert means["latents_1"].shape == (300, 27)
    assert ((result.decode_latents(data)["latents_1"] > 0.5) == (means["latents_1"] > 0.5)).all()
    with pytest.raises(ValueError, match="latents_1.*27 bits.*SAEM"):
        fit(model, data, EM())


@pytest.mark.parametrize(
    "settings",
    [{}, {"batch_rows": 20}, {"num_draws": 3}, {"synchronous": True}, {"accelerate": False}],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::inference.BoundWarning")
def test_every_setting_runs_resumes_and_repeats(settings, tmp_path, monkeypatch):
    model, _, data = example(Poisson(), num_rows=50)
    method = replace(SHORT, **settings)
    whole = fit(model, data, method, num_restarts=2, seed=3)
    again = fit(model, data, method, num_restarts=2, seed=3)
    assert torch.equal(whole.trace.objective, again.trace.objective)
    steps = GenericDraws if method.accelerate is False else LayeredDraws
    original, calls = steps.maximise, []

    def interrupted(self, averages, params):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return original(self, averages, params)

    monkeypatch.setattr(steps, "maximise", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(model, data, method, num_restarts=2, seed=3, checkpoint=tmp_path / "run")
    assert read_tensors(tmp_path / "run")[1]["state"]["iteration"] > 1
    resumed = fit(model, data, method, num_restarts=2, seed=3, checkpoint=tmp_path / "run")
    assert torch.equal(resumed.trace.objective, whole.trace.objective)
    assert all(torch.equal(resumed.params[name], value) for name, value in whole.params.items())
    resumed.save(tmp_path / "fit")
    assert Fit.load(tmp_path / "fit").method == method


def test_many_latents_are_sampled_unless_the_user_says_otherwise():
    for sizes, kind in (((14, 3), EM), ((15, 3), SAEM)):
        data = (torch.arange(60 * 20).reshape(60, 20) % 7 < 3).to(F64)
        for penalty in (None, ToBeChosen()):
            problem = problem_of(DeepDiscreteEncoder(20, sizes, penalty=penalty), data, 0)
            method = problem.structure.recommended(problem).method
            assert isinstance(method if penalty is None else method.engine, kind)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "settings",
    [
        {"max_iterations": 0},
        {"num_burn_in": -1},
        {"num_relaxed": True},
        {"rate": 0.5},
        {"rate": 1.5},
        {"num_draws": 0},
        {"batch_rows": 0},
        {"window": 0.5},
        {"tolerance": 0},
        {"num_kept": 0},
    ],
    ids=str,
)
def test_bad_settings(settings):
    with pytest.raises(ValueError, match=f"SAEM: {next(iter(settings))}"):
        SAEM(**settings)
    assert {field.name for field in fields(SAEM)} >= set(settings)


def test_a_batch_beyond_the_data_is_refused():
    model, _, data = example(Bernoulli(), num_rows=30)
    with pytest.raises(ValueError, match="batch_rows = 31 exceeds the 30 rows"):
        fit(model, data, SAEM(batch_rows=31))


@pytest.mark.filterwarnings("ignore::inference.BoundWarning")
def test_a_fit_that_does_not_settle_says_so():
    model, _, data = example(Normal(), num_rows=50, missing=False)
    with pytest.warns(ConvergenceWarning, match="did not settle in 2 iterations"):
        fit(model, data, SAEM(max_iterations=2, tolerance=1e-9))
    with pytest.warns(ConvergenceWarning, match="did not settle in 2 passes through the rows"):
        batches = fit(model, data, SAEM(batch_rows=20, max_iterations=2, tolerance=1e-9))
    assert batches.num_iterations == SAEM().num_burn_in + 2 * 3


# ---------------------------------------------------------------- convergence


@pytest.mark.filterwarnings(
    "ignore::inference.ConvergenceWarning", "ignore::inference.BoundWarning"
)
def test_batches_are_judged_by_passes_over_the_data():
    """Two windows of ten passes each, of fifteen batches each, even where almost anything would do;
    all rows at once need fifteen times fewer.
    """
    model, _, data = example(Normal(), num_rows=300)
    batches = fit(model, data, SAEM(batch_rows=20, tolerance=0.5, max_iterations=400))
    assert batches.converged
    assert batches.num_iterations - SAEM().num_burn_in >= 2 * 10 * 15
    whole = fit(model, data, SAEM(tolerance=0.5))
    assert whole.converged
    assert 2 * 10 <= whole.num_iterations - SAEM().num_burn_in < 100


@pytest.mark.parametrize(("slope", "settles"), [(0.0, True), (0.3, False)], ids=["noise", "drift"])
def test_a_drift_that_shows_above_the_noise_goes_on(slope, settles):
    """Iterates around 1 with a standard deviation of a tenth: no two windows agree to a hundredth,
    but their average does.
    """
    method = SAEM(tolerance=0.01, window=10)
    generator = torch.Generator().manual_seed(0)
    state = SAEMState.begin({"a": torch.ones(1, 50, dtype=F64)}, {}, generator)
    for t in range(400):
        value = 1 + slope * t / 10 + 0.1 * torch.randn(1, 50, generator=generator, dtype=F64)
        state = state.advance({"a": value}, {}, {}, torch.zeros(1), generator, method, 0, 1, 0.0)
        if slope:
            assert not bool(state.converged[0])
    assert bool(state.converged[0]) == settles
