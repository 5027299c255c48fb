"""Rows of noisy-OR networks of any size: the three routes against each other, and what a fit
answers.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from inference import EM, ScoreFunctionSVI, fit
from inference.programs.program import Program
from inference.structures.noisy_or.em_steps import CauseRows
from inference.structures.noisy_or.grow_and_prune import GrowAndPrune, padded
from inference.structures.noisy_or.likelihood import (
    judged_rows,
    latent_means,
    latent_modes,
    log_likelihood_rows,
    quickscore,
)
from inference.structures.noisy_or.truncated_em import OpenRows
from ppl_models import NoisyOr
from ppl_models.datasets import sample_noisy_or
from ppl_models.datasets.noisy_or import random_design
from ppl_models.parts.distributions import binary_configurations

F64 = torch.float64


def network(size: int, num_items: int = 12, edges: int = 3) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(size)
    params = random_design(edges, seed=size, num_latents=size, num_items=num_items)
    failure = params["failure"] + (params["failure"] < 1) * 0.3 * torch.rand(
        size, num_items, generator=generator
    )
    prior = 0.05 + 0.2 * torch.rand(size, generator=generator, dtype=F64)
    return {
        "prior": prior,
        "failure": failure.double(),
        "leak": torch.full((num_items,), 0.02, dtype=F64),
    }


def rows_of(params: dict[str, Tensor], num_rows: int = 40) -> Tensor:
    data = sample_noisy_or(params, num_rows, seed=1)[0]
    return data.masked_fill(
        torch.rand(data.shape, generator=torch.Generator().manual_seed(2)) < 0.1, math.nan
    )


def test_the_alternating_sum_equals_enumeration() -> None:
    params = network(6)
    data, model = rows_of(params), NoisyOr(12, 6)
    found = quickscore(model.causes(), data, params)
    few = (data == 1).sum(1) <= 10
    assert bool(few.any())
    assert torch.equal(found.isnan(), ~few)
    expected = Program(model, data).log_marginal_rows(params)
    torch.testing.assert_close(found[few], expected[few], rtol=1e-7, atol=1e-7)
    assert bool(quickscore(model.causes(), torch.ones(1, 12, dtype=F64), params).isnan().all())


def test_the_alternating_sum_has_its_digits_in_single_precision() -> None:
    params = network(20)
    data, causes = rows_of(params, 80), NoisyOr(12, 20).causes()
    few = (data == 1).sum(1) <= 10
    single = {name: value.float() for name, value in params.items()}
    found, exact = (
        log_likelihood_rows(causes, *given) for given in ((data.float(), single), (data, params))
    )
    torch.testing.assert_close(found[few].double(), exact[few], rtol=1e-5, atol=1e-4)


def test_a_sum_that_cancels_is_no_number() -> None:
    params = {
        "prior": torch.tensor([0.1], dtype=F64),
        "failure": torch.ones(1, 8, dtype=F64),
        "leak": torch.full((8,), 1e-6, dtype=F64),
    }
    causes = NoisyOr(8, 1).causes()
    assert bool(quickscore(causes, torch.ones(1, 8, dtype=F64), params).isnan().all())
    assert float(log_likelihood_rows(causes, torch.ones(1, 8, dtype=F64), params)) == pytest.approx(
        8 * math.log(1e-6)
    )


def test_absent_latents_change_nothing() -> None:
    """A network of 40 places, 5 of them taken, against the program of 5; the others keep their
    priors.
    """
    params = network(5)
    small, wide = NoisyOr(12, 5), NoisyOr(12, 40)
    data = rows_of(params)
    places = {
        name: value[0]
        for name, value in padded(
            wide.causes(), {n: v.unsqueeze(0) for n, v in params.items()}
        ).items()
    }
    program = Program(small, data)
    torch.testing.assert_close(
        log_likelihood_rows(wide.causes(), data, places), program.log_marginal_rows(params)
    )
    means = latent_means(wide.causes(), data, places)
    torch.testing.assert_close(means[:, :5], program.latent_means(params)["causes"])
    assert bool((means[:, 5:] == places["prior"][5:]).all())
    modes = latent_modes(wide.causes(), data, places)
    assert torch.equal(modes[:, :5], program.latent_modes(params)["causes"])
    assert not bool(modes[:, 5:].any())


def test_more_latents_than_can_be_enumerated() -> None:
    """Of 20 latents: rows of few ones exactly, others by a bound; means are slopes of the exact
    ones.
    """
    params = network(20, num_items=60, edges=8)
    causes = NoisyOr(60, 20).causes()
    data = sample_noisy_or(params, 150, seed=3)[0]
    exact = quickscore(causes, data, params)
    few = ~exact.isnan()
    assert 5 < int(few.sum()) < 150
    found = log_likelihood_rows(causes, data, params)
    assert torch.equal(found[few], exact[few])
    assert bool(found.isfinite().all())
    rows = data[few]
    bound = OpenRows(causes, CauseRows.of(rows), params)
    assert bool((bound.bound <= exact[few] + 1e-6).all())
    assert bool((exact[few] <= bound.bound + bound.lacking + 1e-6).all())
    means, modes = latent_means(causes, rows, params), latent_modes(causes, rows, params)
    step = 1e-3  # d log p(x) / d logit of a prior is P(latent = 1 | x) less the prior
    for latent in (0, 7, 19):
        moved = []
        for sign in (-1, 1):
            prior = params["prior"].logit()
            prior[latent] += sign * step
            moved.append(quickscore(causes, rows, {**params, "prior": prior.sigmoid()}))
        slope = (moved[1] - moved[0]) / (2 * step)
        torch.testing.assert_close(
            means[:, latent], slope + params["prior"][latent], atol=1e-4, rtol=0
        )
    assert bool(((means > 0.9) <= (modes > 0.5)).all())


def test_means_of_rows_with_few_ones_equal_enumeration() -> None:
    """Of a dense network, whose rows leave most latents open."""
    generator = torch.Generator().manual_seed(0)
    params = {
        "prior": 0.02 + 0.4 * torch.rand(17, generator=generator, dtype=F64),
        "failure": torch.rand(17, 14, generator=generator, dtype=F64),
        "leak": torch.full((14,), 0.05, dtype=F64),
    }
    data = (torch.rand(20, 14, generator=generator) < 0.4).double()
    data[0, 3] = math.nan
    data = data[(data == 1).sum(1) <= 10]
    every = binary_configurations(17)
    off = (1 - params["leak"]).log() + every @ params["failure"].log()  # log P(item = 0)
    joint = every @ params["prior"].logit() + torch.where(
        data.unsqueeze(1) == 1, torch.log1p(-off.exp()), off
    ).masked_fill(data.isnan().unsqueeze(1), 0.0).sum(-1)
    expected = joint.softmax(-1) @ every
    found = latent_means(NoisyOr(14, 17).causes(), data, params)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("missing", [False, True])
def test_open_latents_bound_the_likelihood(missing: bool) -> None:
    """Few open latents: below, by no more than is said.

    All of them: exact, in single precision too.
    """
    params = network(9)
    causes, data = NoisyOr(12, 9).causes(), rows_of(params)
    data = data if missing else data.nan_to_num(nan=0.0)
    exact = log_likelihood_rows(causes, data, params)
    for most in (1, 4, 9):
        rows = OpenRows(causes, CauseRows.of(data), params, most)
        assert bool((rows.bound <= exact + 1e-9).all())
        assert bool((exact <= rows.bound + rows.lacking + 1e-9).all())
    torch.testing.assert_close(rows.bound, exact, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        rows.means(), latent_means(causes, data, params), rtol=1e-5, atol=1e-6
    )
    assert torch.equal(rows.likeliest(3)[:, 0], latent_modes(causes, data, params))
    single = OpenRows(
        causes,
        CauseRows.of(data).to(torch.float32),
        {name: value.float() for name, value in params.items()},
        9,
    )
    torch.testing.assert_close(single.bound.double(), exact, rtol=1e-4, atol=1e-4)


def test_the_bounds_are_below_and_near(monkeypatch: pytest.MonkeyPatch) -> None:
    params = network(9)
    causes, data = NoisyOr(12, 9).causes(), rows_of(params)
    exact, means = log_likelihood_rows(causes, data, params), latent_means(causes, data, params)
    monkeypatch.setattr("inference.structures.noisy_or.likelihood.MAX_CAUSES", 8)
    monkeypatch.setattr("inference.structures.noisy_or.likelihood.MAX_ONES", 0)
    bound = log_likelihood_rows(causes, data, params)
    assert bool((bound <= exact + 1e-9).all())
    assert float((exact - bound).max()) < 0.02
    assert float((latent_means(causes, data, params) - means).abs().max()) < 0.02


def test_more_latents_than_fit_into_an_integer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The open latents alone; in parts that do not matter."""
    params = network(66, num_items=40, edges=2)
    causes, data = (
        NoisyOr(40, 66).causes(),
        sample_noisy_or(network(66, num_items=40, edges=2), 30, seed=4)[0],
    )
    bound, modes = log_likelihood_rows(causes, data, params), latent_modes(causes, data, params)
    exact = quickscore(causes, data, params)
    few = ~exact.isnan()
    assert bool((bound[few] <= exact[few] + 1e-6).all())
    assert modes.shape == latent_means(causes, data, params).shape == (30, 66)
    monkeypatch.setattr("inference.structures.noisy_or.likelihood.ROWS", 7)
    torch.testing.assert_close(log_likelihood_rows(causes, data, params), bound)
    assert torch.equal(latent_modes(causes, data, params), modes)


def test_a_wide_fit_answers_at_once() -> None:
    """40 places, most of them empty: what the trimmed fit says."""
    data = sample_noisy_or(random_design(6, seed=1, num_latents=3, num_items=12), 300, seed=0)[0]
    result = fit(NoisyOr(12, 40), data, GrowAndPrune(max_iterations=20))
    used = int((result.params["failure"] < 1 - 1e-5).any(1).sum())
    own = {name: value[:used] if name != "leak" else value for name, value in result.params.items()}
    alone = replace(result, model=NoisyOr(12, used), params=own)
    torch.testing.assert_close(result.log_likelihood_rows(data), alone.log_likelihood_rows(data))
    assert float(result.log_likelihood_rows(data).sum()) == pytest.approx(
        result.log_likelihood, rel=1e-9
    )
    assert result.posterior_latents(data)["causes"].shape == (300, 40)
    assert result.decode_latents(data)["causes"].shape == (300, 40)


def test_a_start_on_the_edge() -> None:
    """Only a failure may be one: that is no edge, and EM leaves it so."""
    data = sample_noisy_or(random_design(5, seed=2, num_latents=3, num_items=8), 120, seed=0)[0]
    start = {
        "prior": torch.full((3,), 0.2),
        "failure": torch.full((3, 8), 0.5),
        "leak": torch.full((8,), 0.1),
    }
    for name, value in (
        ("prior", 0.0),
        ("prior", 1.0),
        ("failure", 0.0),
        ("leak", 0.0),
        ("leak", 1.0),
    ):
        wrong = {key: own.clone() for key, own in start.items()}
        wrong[name].ravel()[1] = value
        with pytest.raises(ValueError, match=f"init: '{name}' must lie .* but is {value:g} at "):
            fit(NoisyOr(8, 3), data, EM(), init=wrong)
    start["failure"][0, :4] = 1.0
    result = fit(
        NoisyOr(8, 3),
        data,
        EM(max_iterations=300, tolerance=1e-6, parameter_tolerance=1e-2),
        init=start,
        num_restarts=2,
    )
    assert int((result.params["failure"] == 1).sum()) == 4


@pytest.mark.parametrize(
    ("engine", "many_ones"),
    [
        pytest.param("search", True, marks=pytest.mark.slow),
        pytest.param("score", True, marks=pytest.mark.slow),
        ("score", False),
    ],
)
def test_what_a_wide_fit_calls_its_likelihood_is_that_of_its_rows(
    engine: str, many_ones: bool
) -> None:
    """21 latents in use: a value where every row has one, else NaN and a bound under the bound's
    name, equal to the rows'.
    """
    truth = random_design(4 if many_ones else 2, seed=1, num_latents=21, num_items=42)
    truth["prior"] = torch.full((21,), 0.25 if many_ones else 0.08, dtype=F64)
    truth["leak"] = torch.full((42,), 0.01, dtype=F64)
    data = sample_noisy_or(truth, 500, seed=0)[0]
    data = data if many_ones else data[data.sum(1) <= 10]
    if engine == "search":
        method, init = GrowAndPrune(max_iterations=2, patience=1), truth
    else:
        method, init = ScoreFunctionSVI(num_epochs=2, batch_size=50), truth
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(NoisyOr(42, 21), data, method, init=init)
    rows = float(result.log_likelihood_rows(data).sum())
    used = int((result.params["failure"] < 1 - 1e-5).any(1).sum())
    assert used > 16
    value = result.log_likelihood
    if math.isnan(value):
        assert many_ones
        assert result.elbo == pytest.approx(rows, abs=1e-6)
        assert math.isnan(result.bic)
    else:
        assert value == pytest.approx(rows, abs=1e-6)
        assert math.isfinite(result.bic)
    if not many_ones:
        assert not math.isnan(value)


def test_rows_are_called_exact_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    params = network(9)
    causes, data = NoisyOr(12, 9).causes(), rows_of(params)
    exact = log_likelihood_rows(causes, data, params)
    assert bool(judged_rows(causes, data, params)[1].all())
    monkeypatch.setattr("inference.structures.noisy_or.likelihood.MAX_CAUSES", 8)
    monkeypatch.setattr("inference.structures.noisy_or.likelihood.MAX_ONES", 2)
    found, known = judged_rows(causes, data, params)
    assert torch.allclose(found[known], exact[known], atol=2e-6)
    assert bool(known.any())
