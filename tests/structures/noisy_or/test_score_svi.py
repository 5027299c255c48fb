"""The published score-function algorithm: one update by autograd, restarts against single runs, an
unbiased baseline.
"""

from __future__ import annotations

import math
import shutil
from typing import Any

import pytest
import torch
from papers.noisy_or_guides import InputBaseline, RunningScale, score_function
from torch import Tensor

from inference import Fit, fit
from inference.structures.noisy_or.score_svi import (
    ScoreFunctionRun,
    ScoreFunctionSVI,
    switched_on,
)
from ppl_models import NoisyOr
from ppl_models.datasets import sample_noisy_or
from ppl_models.datasets.noisy_or import random_design

F64 = torch.float64


def begin(num: int, m: int, items: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    draw = [
        torch.rand(num, *shape, generator=generator, dtype=F64)
        for shape in ((m,), (m, items), (items,))
    ]
    return 0.2 + 0.6 * draw[0], 0.2 + 0.7 * draw[1], 0.02 + 0.1 * draw[2]


def rows_of(num_rows: int = 60, m: int = 3, items: int = 10) -> Tensor:
    return sample_noisy_or(
        random_design(4, seed=1, num_latents=m, num_items=items), num_rows, seed=2
    )[0]


def logits_of(run: ScoreFunctionRun) -> list[Tensor]:
    """Prior, failure, no leak, weights and bias of the guide."""
    edges, guide = run.edges, run.guide
    return [run.prior, edges[:, :-1], edges[:, -1], guide[:, :-1], guide[:, -1:]]


def network_of(run: ScoreFunctionRun) -> list[Tensor]:
    """Weights and biases of both layers."""
    first, second, last = run.network
    return [first[:, :-1], first[:, -1:], second, last]


class ByHand:
    """One restart, with autograd and torch's own optimisers; densities written out bit by bit."""

    def __init__(
        self, run: ScoreFunctionRun, which: int, settings: ScoreFunctionSVI, means: Tensor
    ) -> None:
        self.settings, self.means = settings, means
        self.values = [v[which].clone().requires_grad_() for v in logits_of(run)]
        self.network = [v[which].clone().requires_grad_() for v in network_of(run)]
        self.adam = torch.optim.Adam(self.values, lr=settings.rate)
        self.sgd = torch.optim.SGD(self.network, lr=settings.baseline_rate)
        self.centre: Tensor | None = None
        self.variance = torch.ones((), dtype=F64)

    def update(self, rows: Tensor, latents: Tensor) -> None:
        prior, failure, off, weights, bias = self.values
        zero = off.sigmoid() * (failure.sigmoid() ** latents.unsqueeze(-1)).prod(1)  # (B, J)
        log_p = torch.where(rows > 0.5, 1 - zero, zero).log().sum(-1)
        log_p = log_p + torch.where(latents > 0.5, prior.sigmoid(), 1 - prior.sigmoid()).log().sum(
            -1
        )
        chance = ((rows - self.means) @ weights + bias).sigmoid()
        log_q = torch.where(latents > 0.5, chance, 1 - chance).log().sum(-1)
        signal = (log_p - log_q).detach()
        keep = self.settings.decay
        if self.centre is None:
            self.centre, self.variance = signal.mean(), signal.var()
        else:
            self.centre = keep * self.centre + (1 - keep) * signal.mean()
            self.variance = keep * self.variance + (1 - keep) * signal.var()
        scaled = (signal - self.centre) / max(1.0, math.sqrt(float(self.variance)))
        one, two, three, four = self.network
        guess = (((rows - self.means) @ one + two).tanh() @ three + four).squeeze(-1)
        self.adam.zero_grad()
        self.sgd.zero_grad()
        (-(log_p + (scaled - guess).detach() * log_q).mean()).backward()
        (scaled - guess).square().mean().backward()
        self.adam.step()
        self.sgd.step()


def test_updates_by_autograd() -> None:
    """Three restarts of two epochs as one batch, against one restart at a time with torch's Adam
    and SGD.
    """
    data = rows_of()
    settings = ScoreFunctionSVI(num_epochs=2, batch_size=25, rate=0.05, baseline_rate=0.02)
    run = ScoreFunctionRun(settings, data, *begin(3, 4, 10), seed=3)
    hands = [ByHand(run, r, settings, data.mean(0)) for r in range(3)]
    generator = torch.Generator().manual_seed(4)
    for _ in range(8):
        rows = data[torch.randint(60, (3, 25), generator=generator)]
        table = run.with_centred(rows.flatten(0, 1)).unflatten(0, (3, 25))
        uniform = torch.rand(3, 25, 4, generator=generator, dtype=F64)
        latents = switched_on(uniform, run.guide_at(table).chance)
        run.step(table, uniform)
        for r, hand in enumerate(hands):
            hand.update(rows[r], latents[r, :, :-1])
    for r, hand in enumerate(hands):
        for together, alone in zip(
            (*logits_of(run), *network_of(run)), (*hand.values, *hand.network), strict=True
        ):
            torch.testing.assert_close(together[r], alone.detach(), rtol=1e-8, atol=1e-10)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiled updates need g++")
def test_compiled_updates() -> None:
    """The same signals and estimates as without a compiler."""
    settings = ScoreFunctionSVI(num_epochs=3, batch_size=20, rate=0.05, baseline_rate=0.02)
    runs = [
        ScoreFunctionRun(settings, rows_of(), *begin(3, 4, 10), seed=3, compiled=compiled)
        for compiled in (False, True)
    ]
    for _ in range(3):
        plain, compiled = (run.epoch() for run in runs)
        torch.testing.assert_close(plain, compiled, rtol=1e-8, atol=1e-8)
    for one, other in zip(*(run.estimates() for run in runs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_a_fit_learns_and_reports_a_bound(tmp_path) -> None:
    data = rows_of(400)
    method = ScoreFunctionSVI(num_epochs=30, rate=0.02)
    result = fit(NoisyOr(10, 3), data, method, num_restarts=4, seed=1)
    assert result.objective_name == "ELBO"
    assert float(result.trace.objective[-1]) > float(result.trace.objective[0]) + 200
    assert result.elbo is not None
    assert result.elbo < result.log_likelihood + 100  # one draw a row of a lower bound
    assert result.log_likelihood == pytest.approx(
        float(result.log_likelihood_rows(data).sum()), rel=1e-9
    )
    again = fit(NoisyOr(10, 3), data, method, num_restarts=4, seed=1)
    assert torch.equal(again.params["failure"], result.params["failure"])
    result.save(tmp_path / "fit")
    assert Fit.load(tmp_path / "fit").method == method


def test_the_baseline_network_leaves_the_gradient_unbiased() -> None:
    """The mean over many draws is the gradient of the enumerated ELBO; a trained network has less
    variance.
    """
    generator = torch.Generator().manual_seed(0)
    data = torch.tensor([[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]], dtype=F64)
    logits = torch.tensor([[0.3, -0.8], [1.1, 0.2]], dtype=F64, requires_grad=True)
    levels = torch.tensor([-30.0, 10.0], dtype=F64)  # rows of very different log-density

    def log_joint(latents: Tensor) -> Tensor:
        return levels + (latents * torch.tensor([0.7, -1.2], dtype=F64)).sum(-1) - latents.prod(-1)

    every = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=F64)
    log_q = (every.unsqueeze(1) * logits - torch.nn.functional.softplus(logits)).sum(-1)  # (4, B)
    elbo = (log_q.exp() * (log_joint(every.unsqueeze(1).expand(4, 2, 2)) - log_q)).sum()
    (exact,) = torch.autograd.grad(elbo, logits)
    fixed = logits.detach()
    network = InputBaseline(3, data.mean(0), seed=0)
    losses = []
    with torch.no_grad():
        for _ in range(1500):
            draw = (torch.rand(2, 2, generator=generator, dtype=F64) < fixed.sigmoid()).to(F64)
            signal = log_joint(draw) - (draw * fixed - torch.nn.functional.softplus(fixed)).sum(-1)
            losses.append(network.descend(data, signal, rate=0.01))
        predicted = network(data)
    assert losses[-1] < 0.01 * losses[0]
    draws = {}
    for name, scale in (("network", lambda signal: signal - predicted), ("nothing", None)):
        draws[name] = torch.stack(
            [score_function(log_joint, fixed, generator, scale) for _ in range(6_000)]
        )
        score = (draws[name].mean(0) - exact) / (draws[name].std(0) / 6_000**0.5)
        assert float(score.abs().max()) < 4.5
    assert float(draws["network"].var(0).sum()) < 0.02 * float(draws["nothing"].var(0).sum())
    scale = RunningScale().updated(levels)
    assert float(scale(levels).abs().max()) <= 1


def test_an_interrupted_run_resumes_to_the_same_answer(tmp_path) -> None:
    settings: dict[str, Any] = {"init": "random", "num_restarts": 2, "seed": 3}
    method, file = ScoreFunctionSVI(num_epochs=12), tmp_path / "run"
    data = torch.bernoulli(
        torch.full((60, 10), 0.4, dtype=F64), generator=torch.Generator().manual_seed(5)
    )
    whole = fit(NoisyOr(10, 2), data, method, **settings)
    calls, original = iter(range(1000)), ScoreFunctionRun.epoch

    def epoch(run: ScoreFunctionRun) -> Tensor:
        if next(calls) == 7:  # two epochs after the file was written
            raise KeyboardInterrupt
        return original(run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScoreFunctionRun, "epoch", epoch)
        with pytest.raises(KeyboardInterrupt):
            fit(NoisyOr(10, 2), data, method, checkpoint=file, **settings)
    resumed = fit(NoisyOr(10, 2), data, method, checkpoint=file, **settings)
    for name, value in whole.params.items():
        assert torch.equal(value, resumed.params[name])
    assert torch.equal(whole.trace.objective, resumed.trace.objective)
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit(NoisyOr(10, 2), data, method, checkpoint=file, **settings | {"seed": 4})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ScoreFunctionSVI(num_epochs=0), "num_epochs must be an integer of at least 1"),
        (lambda: ScoreFunctionSVI(batch_size=1), "batch_size must be an integer of at least 2"),
        (lambda: ScoreFunctionSVI(rate=0.0), "rate must be positive"),
        (lambda: ScoreFunctionSVI(baseline_rate=-1.0), "baseline_rate must not be negative"),
        (lambda: ScoreFunctionSVI(decay=1.0), "decay must lie in"),
        (
            lambda: fit(
                NoisyOr(10, 2, prior_concentration=(2.0, 1.0)), rows_of(), ScoreFunctionSVI()
            ),
            "flat priors",
        ),
        (lambda: InputBaseline(3, torch.zeros(2)), "means must have shape"),
    ],
)
def test_bad_input(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_missing_entries_are_refused() -> None:
    data = rows_of()
    data[0, 0] = math.nan
    with pytest.raises(ValueError, match="needs complete rows"):
        fit(NoisyOr(10, 2), data, ScoreFunctionSVI())
