"""The bootstrap: it spreads like the standard errors, in batches as in loops, with the gaps of the
data.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.two_skills import GRAPH, TIGHT, answers, encoder, encoder_truth

from inference import EM, Bootstrap, compare, fit
from inference.base.checkpoint import Checkpoint
from inference.bootstrap import bootstrap
from inference.loo import cross_validate, loo
from inference.programs.global_state import quiet
from inference.programs.program import Program, simulate
from inference.uncertainty import standard_errors
from ppl_models import (
    Bernoulli,
    Blocks,
    ContinuousOptionsHMM,
    DeepDiscreteEncoder,
    Mixture,
    Normal,
    OptionsHMM,
    Poisson,
    PoissonFactorization,
)

F64 = torch.float64
save = Checkpoint.save


def test_bootstrap_spreads_like_the_standard_errors_and_exports():
    data = answers(800, 2)
    result = fit(encoder(), data, TIGHT)
    quick = EM(tolerance=1e-8, parameter_tolerance=1e-3)
    replicated = bootstrap(result, data, num_replicates=20, method=quick, seed=5)
    errors = standard_errors(result, data).standard_errors
    spread = replicated.draws["intercepts_1"][0].std(0)
    assert replicated.draws["loadings_1"].shape == (1, 20, 6, 2)
    ratio = spread / errors["intercepts_1"]
    assert (
        0.7 < float(ratio.mean()) < 1.35
    )  # a standard deviation of 20 has an error of 16 per cent
    assert (
        float(
            (replicated.draws["proportions"][0].mean(0) - result.params["proportions"]).abs().max()
        )
        < 0.03
    )
    again = bootstrap(result, data, num_replicates=2, method=quick, seed=5)
    assert torch.allclose(
        again.draws["loadings_1"][0], replicated.draws["loadings_1"][0, :2]
    )  # a batch of 2, not 20
    exported = replicated.to_arviz()
    assert exported.posterior.attrs["note"] == "draws by Bootstrap"
    assert exported["posterior"]["loadings_1"].shape == (1, 20, 6, 2)
    for bad, match in (({"num_replicates": 1}, "2 or more"),):
        with pytest.raises(ValueError, match=match):
            bootstrap(result, **bad)
    with pytest.raises(ValueError, match="point estimate"):
        bootstrap(replicated)
    with pytest.raises(ValueError, match="point estimate"):
        standard_errors(replicated, data)


@pytest.mark.parametrize("asked_first", [True, False])
def test_replicates_are_no_posterior(asked_first):
    rng = np.random.default_rng(0)
    rows = rng.normal(2.0 * (rng.random((60, 1)) < 0.3), 1.0, (60, 2))
    engine = EM(max_iterations=300)
    fits = {k: fit(Mixture(k, Normal(), 2), rows, engine, num_restarts=3) for k in (1, 2)}
    replicated = (
        fit(fits[2].model, rows, Bootstrap(engine, 100), init=fits[2])
        if asked_first
        else bootstrap(fits[2], rows)
    )
    table = replicated.summary()
    plain = fits[2].summary()
    np.testing.assert_allclose(table["estimate"], plain["estimate"], atol=1e-4)
    spread = replicated.draws["weights"][0].std(0).tolist()
    assert table["error"].tolist()[:2] == pytest.approx(spread)
    assert set(table["interval"]) == {"bootstrap replicates"}
    with pytest.raises(ValueError, match="and its bootstrap replicates; use cross_validate"):
        loo(replicated, rows)
    compared = [
        compare({"one": fits[1], "two": each}, rows, num_folds=2).table.loc["two", "elpd"]
        for each in (fits[2], replicated)
    ]
    assert compared[0] == pytest.approx(compared[1], abs=1e-4)
    assert cross_validate(replicated, rows, 2).elpd == pytest.approx(compared[0], abs=1e-4)


@pytest.mark.parametrize(
    "response", [Bernoulli(), Normal(), Poisson(), Blocks((Bernoulli(), 3), (Normal(), 3))]
)
def test_replicates_in_a_batch_are_those_of_a_loop(response, monkeypatch):
    model = encoder(response)
    start = {
        "loadings_1": 2.5 * torch.tensor(GRAPH).double(),
        "intercepts_1": -torch.ones(6).double(),
    }
    start |= {"proportions": torch.tensor([0.4, 0.6]).double()}
    if response.num_dispersed(6):
        start["dispersion"] = torch.ones(response.num_dispersed(6)).double()
    data = Program(model, None, 400).simulate(start, 3)["items"]
    data[:20, 4] = math.nan
    result = fit(model, data, EM(tolerance=1e-9, parameter_tolerance=1e-5), init=start)
    together = bootstrap(result, data, num_replicates=3, seed=2).draws
    monkeypatch.setattr("inference.bootstrap.fits_sets", lambda problem, method: False)
    one_by_one = bootstrap(result, data, num_replicates=3, seed=2).draws
    for name, value in one_by_one.items():
        assert torch.allclose(together[name], value, atol=1e-4), name
        assert not torch.allclose(value[0, 0], value[0, 1])


def test_rows_are_drawn_from_the_fit_where_none_are_given():
    """Of mixtures and own components too, whose site of rows nothing names but the draw."""
    x = np.random.default_rng(0).normal(size=(80, 2)) + 3 * (np.arange(80) % 2)[:, None]
    result = fit(Mixture(2, Normal()), x, EM(), num_restarts=2)
    spread = bootstrap(result, num_replicates=20).draws["predictors"][0].std(0)
    assert 0.05 < float(spread.mean()) < 0.4  # 1 / sqrt(40) = .16


def test_bootstrap_keeps_the_gaps_of_the_data():
    data = answers(500, 2)
    data[:350, 0] = np.nan
    quick = EM(tolerance=1e-6, parameter_tolerance=1e-2)
    result = fit(encoder(), data, quick)
    full = bootstrap(result, num_replicates=25, seed=1).draws["intercepts_1"][0, :, 0].std()
    gappy = bootstrap(result, data, num_replicates=25, seed=1).draws["intercepts_1"][0, :, 0].std()
    assert float(gappy) > float(full)


@pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning"
)
def test_bootstrap_engine_resumes_and_gives_draws(tmp_path):
    model = DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,))
    data = simulate(model, encoder_truth(), 2, None, 300)["items"]
    quick = EM(tolerance=1e-7, parameter_tolerance=1e-3)
    result = fit(model, data, Bootstrap(quick, 5))
    assert result.draws["loadings_1"].shape == (1, 5, 6, 2)
    torch.testing.assert_close(
        result.params["loadings_1"], fit(model, data, quick).params["loadings_1"]
    )
    with pytest.raises(ValueError, match="2 or more"):
        Bootstrap(num_replicates=1)
    with pytest.raises(ValueError, match="local sites"):
        fit(
            PoissonFactorization(3, 1),
            torch.tensor([[1.0, 2, 3], [2, 1, 0], [4, 1, 1]], dtype=F64),
            Bootstrap(num_replicates=2),
        )


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_an_interrupted_bootstrap_goes_on_from_its_file(tmp_path, monkeypatch):
    """To the same replicates, and to the same word on those that did not converge."""
    monkeypatch.setattr(
        "inference.bootstrap.fits_sets", lambda problem, method: False
    )  # refits one by one can be interrupted
    model, data = Mixture(2, num_items=2), np.random.default_rng(0).normal(size=(30, 2))
    method, path = Bootstrap(EM(max_iterations=5), 30), tmp_path / "running"
    whole = fit(model, data, method)
    assert any("bootstrap refits did not converge" in text for text in whole.warnings)
    original, left = EM.run, [26]

    def broken(self, *arguments):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(EM, "run", broken)
    with monkeypatch.context() as patch:
        patch.setattr(
            Checkpoint, "save", lambda self, done: save(self, done) if done.count == 20 else None
        )  # as if killed
        with pytest.raises(KeyboardInterrupt):
            fit(model, data, method, checkpoint=path)
    resumed = fit(model, data, method, checkpoint=path)
    assert left[0] == -1 - 10  # the estimate, and what was not in the file
    assert torch.equal(resumed.draws["predictors"], whole.draws["predictors"])
    assert resumed.warnings == whole.warnings


def test_replicates_of_sequences_have_the_lengths_and_gaps_of_the_data(monkeypatch):
    """Failed before: every replicate had the model's num_steps, whatever the data's lengths."""
    model = OptionsHMM(3, 2, 2, num_steps=20)
    drawn = simulate(model, {}, 0, None, 8)["trajectories"][:, :9].clone()
    drawn[1, 4:], drawn[5, 7:], drawn[2, 3, 1] = (
        -1,
        -1,
        -1,
    )  # shorter, and an action that was not seen
    data = {"state": drawn[..., 0], "action": drawn[..., 1], "length": (drawn[..., 0] >= 0).sum(1)}
    seen = []
    checked = OptionsHMM.check_data

    def watched(self, given, *args, **kwargs):
        out = checked(self, given, *args, **kwargs)
        seen.append(out[0])
        return out

    with quiet():
        monkeypatch.setattr(OptionsHMM, "check_data", watched)
        result = fit(model, data, Bootstrap(EM(max_iterations=5), num_replicates=2))
    packed = seen[0]
    assert result.draws["low"].shape[:2] == (1, 2)
    replicates = [table for table in seen if not torch.equal(table, packed)]
    assert len(replicates) == 2
    for table in replicates:
        assert torch.equal(table < 0, packed < 0)


def test_sequences_along_continuous_states_have_replicates_too():
    model = ContinuousOptionsHMM(1, 2, 2)
    data = model.check_data(simulate(model, {}, 0, None, 4)["trajectories"][:, :6], for_fit=False)[
        0
    ]
    with quiet():
        result = fit(model, data, Bootstrap(EM(max_iterations=3), num_replicates=2))
    assert all(value.shape[:2] == (1, 2) for value in result.draws.values())
