"""Mean field by coordinate ascent of noisy-OR networks: the guide, the bound, the gradient."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from papers import mean_field
from papers.mean_field import MeanField
from torch import Tensor

PRIOR, LEAK = [0.3, 0.6], [0.1, 0.2, 0.3]
FAILURE = [[0.2, 0.9, 0.5], [0.7, 0.3, 0.4]]


def run(data: Tensor, rate: float = 0.01, restarts: int = 1) -> MeanField:
    start = (torch.tensor(v, dtype=torch.float64) for v in (PRIOR, FAILURE, LEAK))
    return MeanField(data, *(v.expand(restarts, *v.shape).clone() for v in start), rate, 0)


def log_joint(row: np.ndarray, latents: tuple[int, ...]) -> float:
    prior, failure, leak = np.array(PRIOR), np.array(FAILURE), np.array(LEAK)
    h = np.array(latents)
    off = (1 - leak) * np.prod(np.where(h[:, None] == 1, failure, 1.0), 0)
    return float(
        np.log(np.where(h, prior, 1 - prior)).sum() + np.log(np.where(row, 1 - off, off)).sum()
    )


def test_estimates_are_where_they_start() -> None:
    prior, failure, leak = run(torch.zeros(1, 3, dtype=torch.float64)).estimates()
    for value, start in ((prior, PRIOR), (failure, FAILURE), (leak, LEAK)):
        torch.testing.assert_close(value[0], torch.tensor(start, dtype=torch.float64))


def test_the_guide_is_the_fixed_point_of_coordinate_ascent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mean_field, "DRAWS", 20_000)
    row = np.array([1, 0, 1])
    own = run(torch.from_numpy(row[None].astype(float)))
    guide = own.guide(own.data.unsqueeze(0))[0, 0].numpy()
    q = np.array([0.5, 0.5])
    for _ in range(50):
        for i in range(2):
            gains = []
            for other in (0, 1):
                on, off = [0, 0], [0, 0]
                on[i], off[i] = 1, 0
                on[1 - i] = off[1 - i] = other
                gains.append(log_joint(row, tuple(on)) - log_joint(row, tuple(off)))
            q[i] = 1 / (1 + np.exp(-((1 - q[1 - i]) * gains[0] + q[1 - i] * gains[1])))
    np.testing.assert_allclose(guide, q, atol=0.01)


def test_the_bound_is_that_of_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mean_field, "DRAWS", 20_000)
    row = np.array([1, 1, 0])
    own = run(torch.from_numpy(row[None].astype(float)))
    q = own.guide(own.data.unsqueeze(0))[0, 0].numpy()
    exact = 0.0
    evidence = []
    for h in itertools.product((0, 1), repeat=2):
        weight = float(np.prod(np.where(h, q, 1 - q)))
        exact += weight * (log_joint(row, h) - np.log(weight))
        evidence.append(log_joint(row, h))
    bound = float(own.elbo_rows(own.data)[0, 0])
    assert abs(bound - exact) < 0.02
    assert bound < np.log(np.exp(evidence).sum()) + 0.02


def test_a_step_ascends_the_expected_log_density(monkeypatch: pytest.MonkeyPatch) -> None:
    own = run(torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64))
    latents = torch.tensor([[[[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]]], dtype=torch.float64)
    monkeypatch.setattr(own, "guide", lambda rows: None)
    monkeypatch.setattr(own, "draws", lambda guide: latents)
    prior, failure, off = (v.clone().requires_grad_() for v in own.values)
    leak, weights = (torch.nn.functional.softplus(-v) for v in (off, failure))
    eta = leak[:, None, None] + latents @ weights[:, None]
    x = own.data[None, :, None]
    items = (x * torch.log(-torch.expm1(-eta)) - (1 - x) * eta).sum(-1)
    chance = torch.distributions.Bernoulli(logits=prior)
    (items + chance.log_prob(latents).sum(-1)).mean().backward()
    own.update(own.data.unsqueeze(0))
    for mine, auto in zip(own.values, (prior, failure, off), strict=True):
        assert auto.grad is not None
        assert mine.grad is not None
        torch.testing.assert_close(mine.grad, auto.grad)


def test_it_learns() -> None:
    rng = np.random.default_rng(0)
    h = rng.random((400, 2)) < 0.5
    on = np.stack([h[:, 0]] * 3 + [h[:, 1]] * 3, 1)
    rows = torch.tensor(on * (rng.random((400, 6)) < 0.95), dtype=torch.float64)
    drawn = torch.Generator().manual_seed(1)
    start = [
        (2 + 2 * torch.rand(3, *shape, generator=drawn, dtype=torch.float64)).sigmoid()
        for shape in ((2,), (2, 6), (6,))
    ]
    own = MeanField(rows, start[0], start[1], 1 - start[2], 0.05, 0)
    before = own.elbo_rows(rows).mean(1)
    own.epoch()
    assert bool((own.elbo_rows(rows).mean(1) > before + 0.5).all())
