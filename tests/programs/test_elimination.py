"""Rows as a finite mixture, where they are one."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pyro
import pyro.distributions as dist
import pyro.optim
import pytest
import torch
from pyro import poutine
from pyro.ops.indexing import Vindex
from support.user_programs import CASES, SERIES, close, every_program, ones, restarts, uniform
from torch import Tensor

from inference.programs.program import Program
from ppl_models import Bernoulli, DeepDiscreteEncoder
from ppl_models.parts.item_response import ItemResponse

F64 = torch.float64


def mixture_program(
    data: Tensor,
    covariate: Tensor | None = None,
    prior_covariate: Tensor | None = None,
    second: bool = False,
    mask: Tensor | None = None,
) -> None:
    """Items on a Categorical class, with departures that make the rows more than a finite
    mixture.
    """
    weights = pyro.sample("weights", dist.Dirichlet(ones(3)))
    levels = pyro.sample("levels", dist.Normal(0.0, ones(3, 2)).to_event(2))
    with pyro.plate("rows", len(data)):
        logits = (
            weights.log() if prior_covariate is None else weights.log() + prior_covariate[:, None]
        )
        group = pyro.sample("group", dist.Categorical(logits=logits))
        eta = Vindex(levels)[..., group, :]
        if covariate is not None:
            eta = eta + covariate[:, None]
        if second:
            other = pyro.sample("other", dist.Bernoulli(0.3 * ones()))
            eta = eta + other.unsqueeze(-1)
        with contextlib.nullcontext() if mask is None else poutine.mask(mask=mask):
            pyro.sample("items", ItemResponse(Bernoulli(), eta), obs=data)


MIXTURE = {"weights": torch.tensor([0.2, 0.5, 0.3], dtype=F64), "levels": 4 * uniform(3, 2) - 2}
BINARY = torch.bernoulli(uniform(6, 2, seed=3))


@pytest.mark.parametrize("batched", [False, True])
def test_rows_of_a_users_program_as_a_mixture(batched: bool) -> None:
    program = Program(mixture_program, BINARY)
    params = restarts(MIXTURE) if batched else MIXTURE
    mixture = program.as_mixture(params)
    assert mixture is not None
    assert mixture.latent == "group"
    assert torch.equal(mixture.values, torch.arange(3))
    close(mixture.log_weights, params["weights"].log())
    close(mixture.log_prior, program.log_prior(params))
    density = mixture.response.log_prob(BINARY)  # (C, [R,] N)
    rows = (density.movedim(0, -1) + mixture.log_weights.unsqueeze(-2)).logsumexp(-1)
    close(rows, program.log_marginal_rows(params))


@pytest.mark.parametrize("batched", [False, True])
def test_rows_whose_weights_are_their_own(batched: bool) -> None:
    def model(data: Tensor) -> None:
        mixture_program(data, prior_covariate=SERIES[:, 0])

    program, params = Program(model, BINARY), restarts(MIXTURE) if batched else MIXTURE
    mixture = program.as_mixture(params)
    assert mixture is not None
    assert mixture.log_weights.shape == (
        (len(restarts(MIXTURE)["weights"]), 6, 3) if batched else (6, 3)
    )
    density = mixture.response.log_prob(BINARY)  # (C, [R,] N)
    rows = (density.movedim(0, -1) + mixture.log_weights).logsumexp(-1)
    close(rows, program.log_marginal_rows(params))
    counts = program.latent_marginals(params)["group"]
    for site, value in mixture.upper_posteriors(counts).items():
        close(value.flatten(), program.factor_posteriors(params).weights[site].flatten())


def test_the_upper_factors_of_a_mixture() -> None:
    """Expected configurations above the observed layer from its counts alone, and from all rows."""
    model = DeepDiscreteEncoder(5, (3, 2))
    data = torch.bernoulli(uniform(7, 5, seed=4))
    program = Program(model, data)
    params = {
        name: value / 10 if name != "proportions" else value
        for name, value in program.draw_prior(1, 1).items()
    }
    mixture = program.as_mixture(params)
    assert mixture is not None
    assert mixture.latent == "latents_1"
    counts = program.latent_marginals(params)["latents_1"].sum(1)
    posteriors = program.factor_posteriors(params).weights
    for site, value in mixture.upper_posteriors(counts).items():
        close(value.flatten(), posteriors[site].flatten())


@pytest.mark.parametrize(
    "departure",
    [
        {"covariate": SERIES[:, 0]},
        {"second": True},
        {"mask": SERIES[:, 0] > 0},
    ],
    ids=["covariate", "two-latents", "mask"],
)
def test_rows_that_are_no_mixture(departure: dict[str, Any]) -> None:
    def model(data: Tensor) -> None:
        mixture_program(data, **departure)

    assert Program(model, BINARY).as_mixture(MIXTURE) is None


@every_program
def test_other_observations_are_no_mixture(name: str) -> None:
    model, params, data, _ = CASES[name]
    assert Program(model, data).as_mixture(params) is None


def nested(data: Tensor) -> None:
    """A latent of all rows, one of each row, and one of each entry."""
    with pyro.plate("kinds", 2):
        chance = pyro.sample("chance", dist.Beta(ones(2), 1.0))
    regime = pyro.sample("regime", dist.Bernoulli(0.45 * ones())).long()
    with pyro.plate("rows", data.shape[0], dim=-2):
        group = pyro.sample("group", dist.Categorical(TABLE[regime]))
        with pyro.plate("entries", data.shape[1], dim=-1):
            slip = pyro.sample("slip", dist.Bernoulli(0.1 + 0.2 * group)).long()
            p = Vindex(chance)[..., (group + slip) % 2]
            pyro.sample("y", dist.Bernoulli(p), obs=data)


TABLE = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=F64)


@pytest.mark.parametrize("seed", range(4))
def test_decoded_latents_are_the_joint_maximum_over_all_plates(seed: int) -> None:
    data = torch.bernoulli(uniform(2, 2, seed=seed))
    program, params = Program(nested, data), {"chance": torch.tensor([0.35, 0.8], dtype=F64)}
    modes = {
        name: mode.reshape(program.site(name).shape)
        for name, mode in program.latent_modes(params).items()
    }
    best = -float("inf")
    for regime, *bits in itertools.product((0, 1), repeat=7):
        latents = {
            "regime": ones() * regime,
            "group": torch.tensor(bits[:2]).reshape(2, 1),
            "slip": (ones(4) * torch.tensor(bits[2:])).reshape(2, 2),
        }
        best = max(best, float(program.log_joint(params, latents)))
    assert float(program.log_joint(params, modes)) == pytest.approx(best, abs=1e-12)
