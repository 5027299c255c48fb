"""Causes that switch items off: recovery, refusals, and no inhibition as a special case."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from inference import EM, GrowAndPrune, ScoreFunctionSVI, fit
from inference.identifiability import check_identifiability
from inference.inspection.noisy_or import filter_latents, merge_latents, trim
from inference.programs.program import Program
from inference.report import write_report
from inference.selection import split_inference
from ppl_models import NoisyOr
from ppl_models.descriptions.noisy_or import inhibited, log_expm1

F64 = torch.float64


def truth() -> dict[str, torch.Tensor]:
    failure, spared = torch.ones(2, 3, 10, dtype=F64).unbind()
    failure[0, :5], failure[1, 4:] = 0.1, 0.15
    spared[2, [0, 1, 5, 6, 7]] = 0.1
    prior, leak = torch.tensor([0.4, 0.5, 0.3], dtype=F64), torch.full((10,), 0.03, dtype=F64)
    return {"prior": prior, "failure": failure, "spared": spared, "leak": leak}


def test_weights_are_stable_and_plain_without_inhibition() -> None:
    eta = torch.tensor([1e-6, 0.5, 40.0, 200.0], dtype=F64)
    weight, logit = inhibited(eta, torch.zeros_like(eta))
    torch.testing.assert_close(weight, eta)
    torch.testing.assert_close(logit, log_expm1(eta))
    zeta = torch.tensor([1e-9, 0.3, 2.0, 30.0], dtype=F64)
    chance = -torch.expm1(-eta) * (-zeta).exp()
    torch.testing.assert_close(inhibited(eta, zeta)[0], -torch.log1p(-chance), rtol=1e-7, atol=0)


@pytest.mark.filterwarnings("ignore::inference.base.outcome.EstimateWarning")
@pytest.mark.filterwarnings("ignore::inference.base.outcome.ConvergenceWarning")
def test_an_inhibiting_cause_is_found() -> None:
    """No latent is told what it does: two switch on, the third switches off."""
    model, true = NoisyOr(10, 3, inhibition=True), truth()
    rows = Program(model, None, 3000).simulate(true, 0)["items"]
    result = fit(model, rows, EM(max_iterations=300), num_restarts=20, seed=0)
    exact = float(Program(model, rows).log_marginal({k: v[None] for k, v in true.items()}))
    assert result.log_likelihood > exact
    inhibitor = int((result.params["spared"] < 0.5).sum(1).argmax())
    error = (result.params["spared"][inhibitor] - true["spared"][2]).abs().max()
    assert float(error) < 0.1
    assert float(result.params["prior"][inhibitor]) == pytest.approx(0.3, abs=0.04)
    assert set(result.graphs) == {"failure", "spared"}
    assert len(filter_latents(result.params).kept) == 3
    assert "anchors" not in str(check_identifiability(result, data=rows).text())


def test_other_engines_refuse_inhibition() -> None:
    rows = (np.random.default_rng(0).random((50, 4)) < 0.5).astype(float)
    with pytest.raises(ValueError, match="without inhibition was expected"):
        fit(NoisyOr(4, 2, inhibition=True), rows, GrowAndPrune())
    with pytest.raises(ValueError, match="without inhibition was expected"):
        split_inference(NoisyOr(4, 2, inhibition=True), rows)
    with pytest.raises(ValueError, match="without inhibition was expected"):
        fit(NoisyOr(4, 2, inhibition=True), rows, ScoreFunctionSVI())
    with pytest.raises(ValueError, match="inhibition must be"):
        NoisyOr(4, 2, inhibition="yes")
    with pytest.raises(ValueError, match="at most 16 with inhibition=True, got 17"):
        NoisyOr(4, 17, inhibition=True)


@pytest.mark.filterwarnings("ignore::inference.base.outcome.EstimateWarning")
@pytest.mark.filterwarnings("ignore::inference.base.outcome.ConvergenceWarning")
def test_a_latent_that_only_inhibits_is_kept_by_filter_trim_and_page(tmp_path: Path) -> None:
    """What a latent switches off counts like what the latent switches on; doubles merge."""
    model, true = NoisyOr(10, 3, inhibition=True), truth()
    rows = Program(model, None, 300).simulate(true, 2)["items"]
    result = fit(model, rows, EM(max_iterations=20), init=true)
    assert filter_latents(result.params).kept == (0, 1, 2)
    assert filter_latents({k: result.params[k] for k in ("prior", "failure")}).discarded == (2,)
    assert trim(result).params["spared"].shape == (3, 10)
    page = write_report(result, rows, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "3 of 3 do" in page
    assert "items with spared below 0.5" in page
    assert "lets the item stay on" in page
    twice = {name: torch.cat([v, v[2:]]) for name, v in true.items() if name != "leak"}
    merged = merge_latents(twice, filter_latents(twice))
    torch.testing.assert_close(merged["spared"][2], true["spared"][2])
    assert float(merged["prior"][2]) == pytest.approx(1 - 0.7**2)


def test_edges_that_are_not_there_stay_away() -> None:
    """A failure or a spared chance of one in a start is no edge afterwards either."""
    model, true = NoisyOr(10, 3, inhibition=True), truth()
    rows = Program(model, None, 500).simulate(true, 1)["items"]
    result = fit(model, rows, EM(max_iterations=400), init=true)
    for name in ("failure", "spared"):
        order = result.params["prior"].argsort(descending=True)
        assert int((result.params[name] == 1).sum()) >= int((true[name] == 1).sum())
        assert len(order) == 3
