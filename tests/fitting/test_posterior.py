"""What a Fit answers about rows, against loops over every configuration."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from support.answer_tables import ANSWERS, RESPONSES, SHORT, mixture, name_of, table
from torch.distributions import (
    Bernoulli as Coin,
    LogNormal as TorchLogNormal,
    Normal as TorchNormal,
    Poisson as TorchPoisson,
)

import inference.fitting.posterior
from inference import EM, fit
from inference.programs.program import Program
from ppl_models import DeepDiscreteEncoder, Normal

pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning"
)


def elsewhere(result, seed=0):
    """The fit with parameters of a kind EM seldom returns: large and unalike."""
    generator = torch.Generator().manual_seed(seed)

    def noise(value):
        return torch.randn(value.shape, generator=generator, dtype=torch.float64)

    params = {name: 0.8 * noise(value) for name, value in result.params.items()}
    params["proportions"] = torch.sigmoid(params["proportions"])
    if "dispersion" in params:
        params["dispersion"] = params["dispersion"].exp()
    return dataclasses.replace(result, params=params)


@pytest.fixture(scope="module", params=RESPONSES, ids=name_of)
def two_layers(request):
    """A fit of layers 3 and 2, moved elsewhere, and rows with missing entries."""
    response = request.param
    x = table(response)
    result = elsewhere(fit(DeepDiscreteEncoder(6, (3, 2), response), x, EM(max_iterations=2)))
    x[[0, 0, 3, 5], [1, 4, 2, 5]] = np.nan
    x[7] = np.nan
    return result, x[:9]


def item_distributions(response, eta, dispersion):
    """torch's own distribution of each item given its predictor."""
    distributions = []
    for family, columns, part in response.blocks(6):
        for j in range(columns.start, columns.stop):
            sd = (
                None
                if part.stop == part.start
                else dispersion[part.start + j - columns.start].sqrt()
            )
            kinds = {
                "Bernoulli": lambda e=eta[j]: Coin(logits=e),
                "Poisson": lambda e=eta[j]: TorchPoisson(e.exp()),
                "Normal": lambda e=eta[j], s=sd: TorchNormal(e, s),
                "LogNormal": lambda e=eta[j], s=sd: TorchLogNormal(e, s),
            }
            distributions.append(kinds[name_of(family)]())
    return distributions


def by_hand(result, x):
    """log p(row, a_1, a_2) for all 8 x 4 configurations, and E[item | a_1], by plain loops."""
    p = result.params
    first = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), dtype=torch.float64)
    second = torch.tensor(list(itertools.product((0.0, 1.0), repeat=2)), dtype=torch.float64)
    joint = torch.zeros(len(x), len(first), len(second), dtype=torch.float64)
    means = torch.zeros(len(first), 6, dtype=torch.float64)
    for c, a in enumerate(first):
        distributions = item_distributions(
            result.model.response, p["intercepts_1"] + p["loadings_1"] @ a, p.get("dispersion")
        )
        means[c] = torch.stack([distribution.mean for distribution in distributions])
        rows = torch.zeros(len(x), dtype=torch.float64)
        for i, j in itertools.product(range(len(x)), range(6)):
            if not math.isnan(x[i, j]):
                rows[i] += distributions[j].log_prob(torch.tensor(x[i, j], dtype=torch.float64))
        for d, b in enumerate(second):
            prior = Coin(logits=p["intercepts_2"] + p["loadings_2"] @ b).log_prob(a).sum()
            joint[:, c, d] = rows + prior + Coin(p["proportions"]).log_prob(b).sum()
    return joint, first, second, means


def test_every_answer_equals_the_sum_over_configurations(two_layers):
    result, x = two_layers
    joint, first, second, means = by_hand(result, x)
    posterior = joint.flatten(1).softmax(1).reshape(joint.shape)
    latents, modes = result.posterior_latents(x), result.decode_latents(x)
    assert torch.allclose(result.log_likelihood_rows(x), joint.flatten(1).logsumexp(1), atol=1e-10)
    for name, marginal, values in (
        ("latents_1", posterior.sum(2), first),
        ("latents_2", posterior.sum(1), second),
    ):
        assert torch.allclose(latents[name], marginal @ values, atol=1e-10)
        assert torch.equal(modes[name], values[marginal.argmax(1)])
    assert torch.allclose(result.reconstruct(x), posterior.sum(2) @ means, atol=1e-9)


def test_a_row_without_entries_gives_the_prior(two_layers):
    result, _ = two_layers
    empty = np.full((1, 6), np.nan)
    joint, first, second, means = by_hand(result, empty)
    prior = joint[0].exp()
    assert float(prior.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(result.log_likelihood_rows(empty)) == pytest.approx(0.0, abs=1e-12)
    latents = result.posterior_latents(empty)
    assert torch.allclose(latents["latents_1"][0], prior.sum(1) @ first, atol=1e-12)
    assert torch.allclose(latents["latents_2"][0], result.params["proportions"], atol=1e-12)
    assert torch.allclose(result.reconstruct(empty)[0], prior.sum(1) @ means, atol=1e-10)


def test_a_row_alone_answers_as_among_others(two_layers, monkeypatch):
    result, x = two_layers
    whole = (
        result.posterior_latents(x)["latents_1"],
        result.reconstruct(x),
        result.log_likelihood_rows(x),
    )
    rows = [
        (
            result.posterior_latents(r)["latents_1"],
            result.reconstruct(r),
            result.log_likelihood_rows(r),
        )
        for r in x[:, None]
    ]
    monkeypatch.setattr(
        inference.fitting.posterior, "CHUNK_ELEMENTS", 32
    )  # four rows of eight configurations at a time
    chunks = (
        result.posterior_latents(x)["latents_1"],
        result.reconstruct(x),
        result.log_likelihood_rows(x),
    )
    for together, apart, chunked in zip(whole, zip(*rows, strict=True), chunks, strict=True):
        assert torch.allclose(together, torch.cat(apart), rtol=1e-12, atol=1e-12)
        assert torch.allclose(together, chunked, rtol=1e-12, atol=1e-12)


def test_a_mode_is_not_the_rounded_mean():
    """P(0, 0) = 0.44, P(1, 1) = 0.33, P(1, 0) = 0.22: the first is on with probability 0.56, and
    (0, 0) is the mode.
    """
    base = fit(DeepDiscreteEncoder(3, (2, 1)), ANSWERS[:, :3], SHORT)
    params = {name: torch.zeros_like(value) for name, value in base.params.items()}
    params["proportions"][0] = 0.56
    params["loadings_2"][:, 0] = torch.tensor([60.0, 30.0 + math.log(1.5)])
    params["intercepts_2"] = torch.tensor([-30.0, -30.0], dtype=torch.float64)
    result = dataclasses.replace(base, params=params)
    row = np.ones((1, 3))  # the items know nothing of the latents
    assert torch.allclose(
        result.posterior_latents(row)["latents_1"],
        torch.tensor([[0.56, 0.336]]).double(),
        atol=1e-9,
    )
    assert result.decode_latents(row)["latents_1"].tolist() == [[0.0, 0.0]]


def test_shapes_of_what_a_fit_gives(two_layers):
    result, x = two_layers
    assert {k: tuple(v.shape) for k, v in result.posterior_latents(x).items()} == {
        "latents_1": (9, 3),
        "latents_2": (9, 2),
    }
    assert {k: tuple(v.shape) for k, v in result.decode_latents(x).items()} == {
        "latents_1": (9, 3),
        "latents_2": (9, 2),
    }
    draw = result.simulate(5)
    assert {k: tuple(v.shape) for k, v in draw.items()} == {
        "items": (5, 6),
        "latents_1": (5, 3),
        "latents_2": (5, 2),
    }
    result.model.check_data(draw["items"], for_fit=False)  # rows of the family


def test_simulated_rows_have_the_moments_of_the_fit(two_layers):
    result, _ = two_layers
    num_rows = 20_000
    draw = result.simulate(num_rows, seed=1)
    prior = result.posterior_latents(np.full((1, 6), np.nan))
    for name in ("latents_1", "latents_2"):
        p = prior[name][0]
        assert ((draw[name].mean(0) - p).abs() < 5 * (p * (1 - p) / num_rows).sqrt()).all()
    x = draw["items"]
    error = x.std(0) / math.sqrt(num_rows)
    if name_of(result.model.response) in ("Bernoulli", "Normal"):  # the others have heavy tails
        assert (
            (x.mean(0) - result.reconstruct(np.full((1, 6), np.nan))[0]).abs() < 5 * error
        ).all()


def test_rows_far_from_the_fitted_ones_are_no_error():
    result = fit(DeepDiscreteEncoder(6, (2,), Normal()), table(Normal()), SHORT)
    assert torch.isfinite(result.log_likelihood_rows(np.full((2, 6), [[700.0], [701.0]]))).all()


@pytest.mark.parametrize(
    "ask", ["posterior_latents", "decode_latents", "log_likelihood_rows", "reconstruct"]
)
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ANSWERS[:, :5], "num_items = 6 columns were expected, got 5"),
        (ANSWERS[0], r"\(rows, items\)"),
        (ANSWERS + 1, "column '0'.*found 2"),
        (ANSWERS[:0], "at least one row"),
    ],
)
def test_rows_to_predict_for_are_checked(ask, data, message):
    result = fit(DeepDiscreteEncoder(6, (2,)), ANSWERS, SHORT)
    with pytest.raises(ValueError, match=message):
        getattr(result, ask)(data)


# ---------------------------------------------------------------------------- programs of users


def fixed_rows(data):
    mixture(data)


def test_a_users_program_simulates_if_it_can_draw_rows():
    result = fit(mixture, ANSWERS, EM(max_iterations=3))
    assert result.simulate(7)["answers"].shape == (7, 6)
    with pytest.raises(ValueError, match="simulate.*num_rows"):
        dataclasses.replace(result, model=fixed_rows).simulate(7)


@pytest.fixture(scope="module")
def fitted():
    return fit(
        DeepDiscreteEncoder(6, (3, 1), bound=4.0),
        ANSWERS,
        EM(tolerance=1e-6, parameter_tolerance=1e-2),
    )


def test_rows_answer_as_the_sum_over_configurations_says(fitted):
    """The posterior by hand: every configuration of both layers in two loops."""
    p = {name: value.numpy() for name, value in fitted.params.items()}
    x = ANSWERS[:7]
    total, first, second, mean = np.zeros(7), np.zeros((7, 3)), np.zeros((7, 1)), np.zeros((7, 6))

    def bernoulli(value, logit):
        return np.prod(1 / (1 + np.exp(-(2 * value - 1) * logit)), axis=-1)

    for top in (0.0, 1.0):
        for code in np.ndindex(2, 2, 2):
            a = np.array(code, float)
            logit = p["intercepts_1"] + p["loadings_1"] @ a
            weight = (p["proportions"][0] if top else 1 - p["proportions"][0]) * bernoulli(
                a, p["intercepts_2"] + p["loadings_2"][:, 0] * top
            )
            joint = weight * bernoulli(x, logit)
            total += joint
            first += joint[:, None] * a
            second += joint[:, None] * top
            mean += joint[:, None] / (1 + np.exp(-logit))
    latents = fitted.posterior_latents(x)
    assert np.allclose(fitted.log_likelihood_rows(x), np.log(total), atol=1e-12)
    assert np.allclose(latents["latents_1"], first / total[:, None], atol=1e-12)
    assert np.allclose(latents["latents_2"], second / total[:, None], atol=1e-12)
    assert np.allclose(fitted.reconstruct(x), mean / total[:, None], atol=1e-12)


def test_a_row_without_entries_has_the_prior_as_posterior(fitted):
    empty = torch.full((1, 6), torch.nan)
    assert float(fitted.log_likelihood_rows(empty)[0]) == pytest.approx(0.0, abs=1e-12)
    assert torch.allclose(
        fitted.posterior_latents(empty)["latents_2"][0], fitted.params["proportions"], atol=1e-12
    )


def test_decoding_is_the_mode_of_a_whole_layer(fitted):
    program = Program(fitted.model, torch.from_numpy(ANSWERS))
    marginal = program.latent_marginals(fitted.params)["latents_1"]
    values = program.latent_values(fitted.params)["latents_1"]
    assert torch.equal(fitted.decode_latents(ANSWERS)["latents_1"], values[marginal.argmax(-1)])


def test_simulation_is_seeded_and_like_the_fit(fitted):
    first, again, other = (fitted.simulate(4000, seed)["items"] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    expected = fitted.reconstruct(torch.full((1, 6), torch.nan))[0]
    assert ((first.mean(0) - expected).abs() < 5 * (expected * (1 - expected) / 4000).sqrt()).all()


def test_bic_counts_free_parameters(fitted):
    assert fitted.num_parameters == 18 + 6 + 3 + 3 + 1
    assert fitted.bic == pytest.approx(-2 * fitted.log_likelihood + 31 * math.log(60))
