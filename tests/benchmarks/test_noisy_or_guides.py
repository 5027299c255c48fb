"""Guides under Pyro's SVI, and gradient estimators against the enumerated gradient."""

from __future__ import annotations

import functools
import itertools

import pyro
import pytest
import torch
from papers.noisy_or_guides import (
    MeanFieldGuide,
    RecognitionGuide,
    RunningScale,
    disarm,
    flip_log_odds,
    leave_one_out,
    local_expectations,
    score_function,
)
from pyro.infer import SVI, Trace_ELBO, TraceGraph_ELBO
from torch import Tensor

from inference.programs.program import Program
from ppl_models import NoisyOr
from ppl_models.datasets import sample_noisy_or
from ppl_models.datasets.noisy_or import random_design
from ppl_models.descriptions.noisy_or import weight_of_failure, weight_of_leak

F64 = torch.float64
TRUTH = random_design(4, seed=2, num_latents=3, num_items=8)
TRUTH["leak"] = torch.full((8,), 0.05, dtype=F64)
ROWS = sample_noisy_or(TRUTH, 4, seed=3)[0]
LOGITS = torch.tensor(
    [[0.3, -1.0, 0.7], [-0.5, 0.2, 1.2], [1.5, -0.4, 0.1], [-1.2, -0.8, 0.4]], dtype=F64
)
DRAWS = 20_000


def log_joint(latents: Tensor, rows: Tensor = ROWS) -> Tensor:
    """log p(x, h), one Bernoulli at a time."""
    eta = latents @ weight_of_failure(TRUTH["failure"]) + weight_of_leak(TRUTH["leak"])
    items = torch.where(rows == 1, (-torch.expm1(-eta)).log(), -eta).sum(-1)
    prior = TRUTH["prior"]
    return items + (latents * prior.log() + (1 - latents) * (-prior).log1p()).sum(-1)


def exact_gradient() -> Tensor:
    logits = LOGITS.clone().requires_grad_()
    total = torch.zeros((), dtype=F64)
    for bits in itertools.product((0.0, 1.0), repeat=3):
        latents = torch.tensor(bits, dtype=F64).expand(len(ROWS), -1)
        log_guide = (latents * logits - torch.nn.functional.softplus(logits)).sum(-1)
        total = total + (log_guide.exp() * (log_joint(latents) - log_guide)).sum()
    (gradient,) = torch.autograd.grad(total, logits)
    return gradient


def log_odds(latents: Tensor) -> Tensor:
    rows = ROWS.repeat(len(latents) // len(ROWS), 1)
    return flip_log_odds(
        latents,
        rows,
        TRUTH["prior"],
        weight_of_failure(TRUTH["failure"]),
        weight_of_leak(TRUTH["leak"]),
    )


@functools.cache
def estimates(name: str) -> Tensor:
    """(draws, 4, 3): the rows repeated, for independent draws in one call."""
    generator = torch.Generator().manual_seed(5)
    logits = LOGITS.repeat(DRAWS, 1)
    rows = ROWS.repeat(DRAWS, 1)

    def joint(latents: Tensor) -> Tensor:
        return log_joint(latents, rows)

    flat = {
        "score": lambda: score_function(joint, logits, generator),
        "centred": lambda: score_function(joint, logits, generator, RunningScale(-9.0)),
        "leave-one-out": lambda: leave_one_out(joint, logits, generator),
        "disarm": lambda: disarm(joint, logits, generator),
        "local": lambda: local_expectations(log_odds, logits, generator),
    }[name]()
    return flat.reshape(DRAWS, *LOGITS.shape)


@pytest.mark.parametrize("name", ["score", "centred", "leave-one-out", "disarm", "local"])
def test_estimators_are_unbiased(name: str) -> None:
    found = estimates(name)
    error = (found.mean(0) - exact_gradient()) / (
        found.std(0) / DRAWS**0.5 + 1e-12
    )  # local expectations of an empty row do not vary
    assert float(error.abs().max()) < 4.5
    assert float(exact_gradient().abs().max()) > 0.1


def test_better_estimators_vary_less() -> None:
    variance = {
        name: float(estimates(name).var(0).sum())
        for name in ("score", "centred", "leave-one-out", "local")
    }
    assert variance["local"] < variance["leave-one-out"] < variance["centred"] < variance["score"]


def test_flip_log_odds_are_differences_of_the_joint() -> None:
    for bits in itertools.product((0.0, 1.0), repeat=3):
        latents = torch.tensor(bits, dtype=F64).expand(len(ROWS), -1)
        found = log_odds(latents)
        for i in range(3):
            on, off = latents.clone(), latents.clone()
            on[:, i], off[:, i] = 1, 0
            torch.testing.assert_close(
                found[:, i], log_joint(on) - log_joint(off), rtol=1e-9, atol=1e-9
            )


def test_a_missing_entry_drops_out_of_the_odds() -> None:
    rows = ROWS.clone()
    rows[:, 2] = torch.nan
    kept = [j for j in range(8) if j != 2]
    weights, leak = weight_of_failure(TRUTH["failure"]), weight_of_leak(TRUTH["leak"])
    latents = torch.ones(4, 3, dtype=F64)
    found = flip_log_odds(latents, rows, TRUTH["prior"], weights, leak)
    torch.testing.assert_close(
        found, flip_log_odds(latents, ROWS[:, kept], TRUTH["prior"], weights[:, kept], leak[kept])
    )


def test_the_running_scale_is_the_papers() -> None:
    first, second = torch.tensor([1.0, 3.0], dtype=F64), torch.tensor([5.0, 9.0], dtype=F64)
    scale = RunningScale().updated(first)
    assert (scale.centre, scale.variance) == (2.0, 2.0)
    scale = scale.updated(second)
    assert scale.centre == pytest.approx(0.8 * 2 + 0.2 * 7)
    assert scale.variance == pytest.approx(0.8 * 2 + 0.2 * 8)
    torch.testing.assert_close(scale(second), (second - scale.centre) / scale.variance**0.5)


@pytest.mark.parametrize("kind", ["recognition", "mean field"])
def test_guides_under_pyros_svi(kind: str) -> None:
    """The bound rises and stays below the log-likelihood of the point it reaches."""
    model = NoisyOr(8, 3)
    data = sample_noisy_or(TRUTH, 200, seed=4)[0]
    causes = model.causes()
    guide = (
        RecognitionGuide(causes, data.mean(0))
        if kind == "recognition"
        else MeanFieldGuide(causes, len(data))
    )
    with pyro.get_param_store().scope(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), TraceGraph_ELBO())
        losses = [svi.step(data) for _ in range(120)]
        bounds = torch.tensor([-Trace_ELBO().loss(model, guide, data) for _ in range(30)])
    assert sum(losses[-20:]) / 20 < 0.7 * sum(losses[:5]) / 5
    params = {name: value.detach() for name, value in guide.params().items()}
    exact = float(
        Program(model, data).log_marginal(params) + Program(model, data).log_prior(params)
    )
    assert float(bounds.mean()) - 4 * float(bounds.std()) / 30**0.5 < exact


def test_guides_check_their_sizes() -> None:
    causes = NoisyOr(8, 3).causes()
    with pytest.raises(ValueError, match="means"):
        RecognitionGuide(causes, torch.zeros(7))
    with pytest.raises(ValueError, match="5 rows"):
        MeanFieldGuide(causes, 5).logits(ROWS)
    with pytest.raises(ValueError, match="num_draws"):
        leave_one_out(log_joint, LOGITS, torch.Generator(), 1)
