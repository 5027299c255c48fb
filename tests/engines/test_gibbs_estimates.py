"""Posterior means and log-likelihoods by draws against the exact ones."""

from __future__ import annotations

import pytest
import torch
from annealed_likelihood import DESIGNS
from support.small_encoders import name_of

from inference import EM, fit
from inference.engines.gibbs_estimates import (
    LikelihoodEstimate,
    log_likelihood_rows,
    posterior_means,
)
from inference.programs.program import Program
from inference.structures.layers.gibbs import LayeredGibbs
from ppl_models import DeepDiscreteEncoder, NoisyOr, Normal, Poisson
from ppl_models.datasets import strict_design

F64 = torch.float64


def test_means_by_sweeps_approach_the_exact_ones():
    truth = strict_design(2, Normal())
    model = DeepDiscreteEncoder(18, (6, 2), Normal())
    data = Program(model, None, 300).simulate(truth, 0)["items"]
    data[5, 3] = torch.nan
    params = {name: value.unsqueeze(0) for name, value in truth.items()}
    gibbs, generator = LayeredGibbs.build(model, data), torch.Generator().manual_seed(1)
    means = posterior_means(gibbs, params, generator)
    exact = Program(model, data)
    for name, value in exact.latent_means(truth).items():
        assert (means[name][0].mT - value).abs().max() < 0.06


@pytest.mark.parametrize("name", DESIGNS)
def test_the_log_likelihood_is_estimated_within_its_error(name, monkeypatch):
    """By enumeration, for two parameters at once; gaps in the data, chains in several parts."""
    model, make = DESIGNS[name]
    first, second = make(0), {n: v * 0.8 for n, v in make(1).items()}
    data = Program(model, None, 300).simulate(first, 0)["items"]
    data[5, 3] = data[7] = torch.nan
    data[7, 1] = 1.0
    params = {n: torch.stack([first[n], second[n]]) for n in first}
    exact = torch.stack(
        [Program(model, data).log_marginal_rows(own).double() for own in (first, second)]
    )
    monkeypatch.setattr("inference.engines.gibbs_estimates.CHUNK_ROWS", 1000)
    found = log_likelihood_rows(
        LayeredGibbs.build(model, data), params, torch.Generator().manual_seed(1)
    )
    error = found.variances.sum(-1).sqrt()
    assert (error < 0.01 * 300).all()
    gap = found.rows.sum(-1) - exact.sum(-1)
    assert (gap.abs() < 4 * error).all()
    assert (found.bounds.sum(-1) < exact.sum(-1)).all()
    assert (found.rows - exact).abs().max() < 1
    # of unbiased estimates to what they estimate
    ratio = (found.rows - found.variances / 2 - exact).exp()
    assert ((ratio.mean(-1) - 1).abs() < 4 * ratio.std(-1) / 300**0.5).all()


@pytest.mark.parametrize("spread", [0.3, 0.6])
def test_the_log_of_a_mean_weight_is_corrected(spread):
    """Log-normal weights with the mean one: the log of the mean of four is low, the estimate by
    much less.
    """
    normal = torch.randn(4, 1, 100_000, generator=torch.Generator().manual_seed(0), dtype=F64)
    log_weights = spread * normal - spread**2 / 2
    found = LikelihoodEstimate.of(log_weights)
    plain = log_weights.exp().mean(0).log().mean()
    assert plain < -0.8 * spread**2 / 8
    assert found.rows.mean().abs() < 0.3 * plain.abs()
    assert found.variances.mean() == pytest.approx(found.rows.var(), rel=0.25)


def test_draws_of_the_estimate_do_not_decide_how_long_they_are(monkeypatch):
    """Weights of mean one, mostly 1.1: four of these do not vary, and would end a search for a
    length at once, with the estimate 1.1.
    """
    generator, lengths = torch.Generator().manual_seed(0), []

    def annealed(gibbs, params, base, length, generator):
        lengths.append(length)
        is_low = torch.rand(len(params["x"]), 1, generator=generator, dtype=F64) < 0.1
        return (1 + torch.where(is_low, -0.9, 0.1) * (20 / length) ** 0.5).log()

    monkeypatch.setattr("inference.engines.gibbs_estimates._annealed", annealed)
    monkeypatch.setattr(
        "inference.engines.gibbs_estimates.posterior_means",
        lambda *_: {"bits": torch.full((1, 1, 1), 0.5, dtype=F64)},
    )
    params = {"x": torch.zeros(1, dtype=F64)}
    found = [log_likelihood_rows(None, params, generator) for _ in range(3000)]
    weights = torch.stack([own.rows - own.variances / 2 for own in found]).exp().flatten()
    assert (weights.mean() - 1).abs() < 4 * weights.std() / 3000**0.5
    assert set(lengths[::2]) == {20}
    assert 20 < max(lengths[1::2]) <= 320


def test_modes_that_no_sweep_connects_have_their_shares():
    """Counts up to hundreds of three bits an item: a flipped bit costs hundreds of nats, and a
    chain from the prior stayed in a wrong mode for a quarter of the rows.
    """
    generator = torch.Generator().manual_seed(2)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=F64)

    edges = torch.stack([torch.randperm(10, generator=generator)[:3] for _ in range(20)])
    loadings = torch.zeros(20, 10, dtype=F64).scatter_(1, edges, 0.75 + 1.5 * uniform(20, 3))
    truth = {
        "loadings_1": loadings,
        "intercepts_1": torch.full((20,), 0.3, dtype=F64),
        "proportions": 0.3 + 0.4 * uniform(10),
    }
    model = DeepDiscreteEncoder(20, (10,), Poisson(), penalty=None)
    data = Program(model, None, 80).simulate(truth, 0)["items"]
    params = {name: value.unsqueeze(0) for name, value in truth.items()}
    gibbs, exact = LayeredGibbs.build(model, data), Program(model, data)
    means = posterior_means(gibbs, params, generator)["latents_1"][0].mT
    assert (means - exact.latent_means(truth)["latents_1"]).abs().max() < 0.3
    found = log_likelihood_rows(gibbs, params, generator)
    gap = found.rows[0] - exact.log_marginal_rows(truth)
    assert gap.abs().max() < 1.5
    assert gap.sum().abs() < 4 * found.variances.sum().sqrt() + 2 * found.variances.sum()


@pytest.mark.parametrize("model", [NoisyOr(9, 3), DeepDiscreteEncoder(9, (3, 1))], ids=name_of)
@pytest.mark.filterwarnings(
    "ignore::inference.ConvergenceWarning", "ignore::inference.BoundWarning"
)
def test_a_fit_too_large_to_enumerate_answers_by_sweeps(model, monkeypatch):
    data = (torch.rand(40, 9, generator=torch.Generator().manual_seed(0)) < 0.4).to(F64)
    result = fit(model, data, EM(max_iterations=5), init="random")
    exact, rows = result.posterior_latents(data), result.log_likelihood_rows(data)
    monkeypatch.setattr("inference.programs.sites.MAX_VALUES", 1)
    monkeypatch.setattr("inference.fitting.posterior.CHUNK_ELEMENTS", 200)  # several chunks
    sampled = result.posterior_latents(data)
    for name, value in exact.items():
        assert sampled[name].shape == value.shape
        assert (sampled[name] - value).abs().max() < 0.12
        assert ((sampled[name] > 0.5).to(F64) == result.decode_latents(data)[name]).all()
    assert (result.log_likelihood_rows(data) - rows).abs().max() < 1.0
