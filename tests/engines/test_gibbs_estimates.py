"""Posterior means and likelihoods by sweeps approach the exact ones."""

from __future__ import annotations

import pytest
import torch
from support.small_encoders import name_of

from inference import EM, fit
from inference.engines.gibbs_estimates import log_likelihood_rows, posterior_means
from inference.programs.program import Program
from inference.structures.layers.gibbs import LayeredGibbs
from ppl_models import DeepDiscreteEncoder, NoisyOr, Normal
from ppl_models.datasets import strict_design

F64 = torch.float64


def test_means_and_likelihood_by_sweeps_approach_the_exact_ones():
    truth = strict_design(2, Normal())
    model = DeepDiscreteEncoder(18, (6, 2), Normal())
    data = Program(model, None, 300).simulate(truth, 0)["items"]
    data[5, 3] = torch.nan
    params = {name: value.unsqueeze(0) for name, value in truth.items()}
    gibbs, generator = LayeredGibbs.build(model, data), torch.Generator().manual_seed(1)
    means, state = posterior_means(gibbs, params, generator)
    exact = Program(model, data)
    for name, value in exact.latent_means(truth).items():
        assert (means[name][0].mT - value).abs().max() < 0.06
    rows = exact.log_marginal_rows(truth)
    estimates = torch.stack(
        [log_likelihood_rows(gibbs, params, state, generator)[0] for _ in range(8)]
    )
    assert (estimates.mean(0) - rows).abs().max() < 0.3
    assert (estimates.sum(1) - rows.sum()).abs().max() < 6
    ratio = (estimates - rows).exp()  # of unbiased estimates to what they estimate
    assert abs(float(ratio.mean()) - 1) < 4 * float(ratio.std()) / ratio.numel() ** 0.5


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
