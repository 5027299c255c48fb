"""The search finds every latent, of data made here, with the number of latents left to it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from support.small_network import QUICK, small_data, small_fit, small_truth
from torch import Tensor

from inference import EM, ConvergenceWarning, Fit, GrowAndPrune, fit
from inference.inspection import recovery, trim
from inference.programs.program import Program
from inference.structures.noisy_or.em_steps import CauseRows
from inference.structures.noisy_or.grow_and_prune import Search, used_latents
from ppl_models import NoisyOr
from ppl_models.datasets import image_design, mastery_test, sample_noisy_or
from ppl_models.datasets.noisy_or import random_design

F64 = torch.float64


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_all_latents_are_found_and_no_more(seed: int) -> None:
    result = fit(NoisyOr(16, 8), small_data(), QUICK, init="random", seed=seed)
    assert len(used_latents(result.model.causes(), result.params)) == 5
    found = recovery(result.params, small_truth())
    assert found.is_full
    assert found.edge_f1 == 1.0
    assert found.prior_error < 0.05
    empty = result.params["prior"] < 1e-5
    assert int(empty.sum()) == 3
    assert bool((result.params["failure"][empty] == 1).all())
    truth = Program(NoisyOr(16, 5), small_data()).log_marginal(small_truth())
    assert (
        float(truth) < result.log_likelihood < float(truth) + 44
    )  # 44 parameters: half of that is expected
    assert result.converged


def test_the_likelihood_reported_is_that_of_the_program() -> None:
    result = small_fit()
    program = Program(result.model, small_data())
    assert result.log_likelihood == pytest.approx(
        float(program.log_marginal(result.params)), abs=1e-6
    )
    num_edges = int((result.params["failure"] < 0.99).sum())
    assert num_edges == int((small_truth()["failure"] < 1).sum())  # those not paid for are gone
    price = 0.5 * (5 + num_edges) * math.log(3000)
    expected = result.log_likelihood + float(program.log_prior(result.params)) - price
    assert result.objective == pytest.approx(expected, abs=1e-3)
    assert result.num_parameters == 5 + num_edges + 16
    assert bool((result.trace.objective.diff() > -1e-6).all())


def test_it_is_what_fit_does_by_itself() -> None:
    truth = random_design(6, seed=3, num_latents=3, num_items=12)
    data = sample_noisy_or(truth, 1500, seed=3)[0]
    result = fit(NoisyOr(12, 5), data)
    assert isinstance(result.method, GrowAndPrune)
    assert recovery(result.params, truth).is_full


def test_one_seed_one_answer_and_files_keep_it(tmp_path: Path) -> None:
    again = fit(NoisyOr(16, 8), small_data(), QUICK, init="random", seed=0)
    for name, value in small_fit().params.items():
        assert torch.equal(value, again.params[name])
    again.save(tmp_path / "fit")
    loaded = Fit.load(tmp_path / "fit")
    assert loaded.method == QUICK
    assert torch.equal(loaded.params["failure"], again.params["failure"])


def test_missing_entries_are_marginalised() -> None:
    gone = torch.rand(small_data().shape, generator=torch.Generator().manual_seed(0)) < 0.1
    data = small_data().masked_fill(gone, math.nan)
    result = fit(NoisyOr(16, 6), data, QUICK, init="random")
    assert recovery(result.params, small_truth()).is_full
    expected = Program(result.model, data).log_marginal(result.params)
    assert result.log_likelihood == pytest.approx(float(expected), abs=1e-6)


def test_a_limit_below_the_truth_is_kept() -> None:
    result = fit(NoisyOr(16, 3), small_data(), QUICK, init="random")
    assert result.params["prior"].shape == (3,)
    assert len(used_latents(result.model.causes(), result.params)) == 3


def test_a_start_is_where_it_begins() -> None:
    truth = small_truth()
    start = {
        "prior": torch.cat([truth["prior"], torch.full((1,), 0.02, dtype=F64)]),
        "leak": truth["leak"],
    }
    start["failure"] = torch.cat([truth["failure"], torch.full((1, 16), 0.9, dtype=F64)])
    result = fit(NoisyOr(16, 6), small_data(), replace(QUICK, patience=1), init=start)
    assert len(used_latents(result.model.causes(), result.params)) == 5
    assert recovery(result.params, truth).match == tuple(range(5))  # priors of the truth fall too


def test_several_searches_keep_the_best() -> None:
    result = fit(NoisyOr(16, 6), small_data()[:800], QUICK, init="random", num_restarts=2)
    assert result.objective == float(result.restarts.objective.max())
    assert result.restarts.objective.shape == (2,)


def test_the_number_of_latents_is_chosen() -> None:
    result = trim(fit(NoisyOr(16, 8), small_data(), QUICK, init="random"))
    assert result.model == NoisyOr(16, 5)
    assert recovery(result.params, small_truth()).is_full
    assert result.log_likelihood >= small_fit().log_likelihood - 0.1
    trimmed = trim(small_fit())
    assert trimmed.model == NoisyOr(16, 5)
    assert trimmed.latents == {"causes": (5, 2)}
    assert trimmed.log_likelihood == pytest.approx(
        float(trimmed.log_likelihood_rows(small_data()).sum()), abs=0.1
    )


def test_trimming_cuts_draws_and_known_values() -> None:
    """Failed before: draws and known values kept the latents that had left."""
    whole = small_fit()
    size = len(whole.params["prior"])
    used = used_latents(whole.model.causes(), whole.params)
    known = {
        "prior": torch.full((size,), torch.nan, dtype=F64),
        "leak": torch.full((16,), 0.1, dtype=F64),
    }
    known["prior"][used[-1]] = 0.25
    draws = {name: value.expand(2, 3, *value.shape) for name, value in whole.params.items()}
    cut = trim(replace(whole, fixed=known, draws=draws))
    assert cut.fixed is not None
    assert cut.draws is not None
    assert cut.fixed["prior"].isnan().tolist() == [True] * 4 + [False]
    assert torch.equal(cut.fixed["leak"], known["leak"])
    for name, value in cut.draws.items():
        assert torch.equal(value[1, 2], cut.params[name])
    with pytest.raises(ValueError, match="tied"):
        trim(replace(whole, tied={"leak": torch.zeros(16, dtype=torch.int64)}))


def test_more_latents_than_can_be_ranked() -> None:
    """Truncated configurations give a bound; the names say so."""
    generator = torch.Generator().manual_seed(0)
    start = {
        "prior": torch.full((15,), 0.1, dtype=F64),
        "failure": torch.where(torch.rand(15, 30, generator=generator) < 0.15, 0.1, 0.999).to(F64),
        "leak": torch.full((30,), 0.01, dtype=F64),
    }
    data = sample_noisy_or(start, 600, seed=2)[0]
    with pytest.warns(
        ConvergenceWarning,
        match="1 of 1 searches did not converge in 2 iterations.*max_iterations of GrowAndPrune",
    ):
        result = fit(
            NoisyOr(30, 15), data, replace(QUICK, patience=1, max_iterations=2), init=start
        )
    used = len(used_latents(result.model.causes(), result.params))
    assert result.elbo is not None
    assert math.isnan(result.log_likelihood) == (used > 14)
    if used <= 14:
        assert result.elbo <= result.log_likelihood + 1e-6


@pytest.mark.parametrize("interrupted_at", [3, 9])
def test_an_interrupted_search_resumes_to_the_same_answer(
    tmp_path: Path, interrupted_at: int
) -> None:
    """Early and late in two searches."""
    model, data, file = NoisyOr(16, 6), small_data()[:800], tmp_path / "run"
    whole = fit(model, data, QUICK, init="random", num_restarts=2)
    calls = 0

    original = Search.grown

    def grown(search: Search, params: dict[str, Tensor]) -> tuple[dict[str, Tensor], float]:
        nonlocal calls
        calls += 1
        if calls == interrupted_at:
            raise KeyboardInterrupt
        return original(search, params)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Search, "grown", grown)
        with pytest.raises(KeyboardInterrupt):
            fit(model, data, QUICK, init="random", num_restarts=2, checkpoint=file)
    assert file.exists()
    resumed = fit(model, data, QUICK, init="random", num_restarts=2, checkpoint=file)
    for name, value in whole.params.items():
        assert torch.equal(value, resumed.params[name])
    assert torch.equal(whole.restarts.objective, resumed.restarts.objective)
    again = fit(
        model, data, QUICK, init="random", num_restarts=2, checkpoint=file
    )  # all is in the file
    assert torch.equal(again.trace.objective, whole.trace.objective)
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit(model, data, QUICK, init="random", num_restarts=2, seed=1, checkpoint=file)


def test_settings_and_models_are_checked() -> None:
    for bad in ({"num_proposals": 0}, {"patience": 1.5}, {"leak_cap": 1.0}, {"tolerance": 0.0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            GrowAndPrune(**bad)
    from ppl_models import DeepDiscreteEncoder

    with pytest.raises(ValueError, match=r"offer causes\(\)"):
        fit(DeepDiscreteEncoder(16, (2,)), small_data(), QUICK, init="random")


def test_a_sample_of_merged_rows_has_the_rows_weights() -> None:
    rows = CauseRows.merge(small_data()[:500])
    part = rows.sample(200, torch.Generator().manual_seed(1))
    assert part.num_rows == 200
    assert bool((part.counts <= rows.counts.max()).all())


@pytest.mark.slow
def test_the_images_are_found() -> None:
    truth = image_design()
    data = sample_noisy_or(truth, 9000, seed=5)[0]
    result = fit(NoisyOr(64, 12), data)
    assert recovery(result.params, truth).is_full


def test_a_latent_that_is_always_on_can_be_judged() -> None:
    """It is on in every configuration that the search looks at."""
    truth = random_design(6, seed=5, num_latents=5, num_items=30)
    data = sample_noisy_or(
        {**truth, "prior": torch.tensor([0.999999, 0.3, 0.3, 0.3, 0.3])}, 300, seed=0
    )[0]
    rows = CauseRows.merge(data).to(torch.float32)
    causes = NoisyOr(30, 5).causes()
    search = Search(causes, rows, rows, rows, torch.Generator().manual_seed(0), 4, 2, 8, 0.05)
    start = {
        name: value.float().unsqueeze(0).clamp(1e-6, 1 - 1e-6) for name, value in truth.items()
    }
    start["prior"] = torch.tensor([[1 - 1e-6, 0.3, 0.3, 0.3, 0.3]])
    assert bool(search.likely(rows, start, 8)[:, 0].all())
    kept, score = search.pruned(start, -math.inf, rows, 8, None, 5)
    assert math.isfinite(score)
    assert 1 <= search.size(kept) < 5


def test_the_last_em_arrives_where_plain_steps_run_out_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Answers to a test of skills, which are no network of causes: 100 plain steps ended short of
    the top, without a word.
    """
    answers, _ = mastery_test(num_items=8, num_attributes=3, seed=1).draw(300, seed=2)
    result = fit(NoisyOr(8, 8), answers)
    assert result.converged
    monkeypatch.setattr(
        "inference.structures.noisy_or.grow_and_prune.EM", partial(EM, acceleration=None)
    )
    with pytest.warns(ConvergenceWarning, match="1 of 1 searches"):
        plain = fit(NoisyOr(8, 8), answers)
    assert not plain.converged
    assert result.log_likelihood > plain.log_likelihood
