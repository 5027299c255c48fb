"""Starts of a user's program from rows that are assigned to the values of its latent."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from inference import fit
from inference.base import assigned_starts
from inference.base.assigned_starts import assigned_start, nearest
from inference.fitting.problem import problem_of

F64 = torch.float64
SPREAD = 5.0  # of the prior of means
NUM_STARTS = 3  # as many as values, so that the two leading dims are alike


def by_index(x):
    weights = pyro.sample("weights", dist.Dirichlet(2 * torch.ones(3, dtype=F64)))
    with pyro.plate("kinds", 3):
        means = pyro.sample("means", dist.Normal(x.new_zeros(2), SPREAD).to_event(1))
    with pyro.plate("rows", len(x)):
        kind = pyro.sample("kind", dist.Categorical(weights))
        pyro.sample("x", dist.Normal(means[kind], 1.0).to_event(1), obs=x)


def in_batches(x):
    weights = pyro.sample("weights", dist.Dirichlet(2 * torch.ones(3, dtype=F64)))
    means = pyro.sample("means", dist.Normal(x.new_zeros(3, 2), SPREAD).to_event(2))
    with pyro.plate("rows", len(x)):
        kind = pyro.sample("kind", dist.Categorical(weights))
        chosen = (torch.nn.functional.one_hot(kind, 3).unsqueeze(-1) * means).sum(-2)
        pyro.sample("x", dist.Normal(chosen, 1.0).to_event(1), obs=x)


@pytest.mark.parametrize(("program", "is_batched"), [(by_index, False), (in_batches, True)])
@pytest.mark.parametrize("num_starts", [1, NUM_STARTS])
def test_a_start_is_the_posterior_mode_of_rows_whose_group_is_known(
    program, is_batched, num_starts, monkeypatch
):
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(60, 2, generator=generator, dtype=F64) + 3.0 * torch.eye(3, 2).repeat(20, 1)
    drawn = []

    def centres(rows, num, *others):
        picked = rows[torch.randperm(len(rows), generator=generator)[:num]]
        drawn.append((rows, picked))
        return picked

    monkeypatch.setattr(assigned_starts, "centres", centres)
    problem = problem_of(program, x, 0)
    start = assigned_start(problem, num_starts)
    assert problem.program().broadcasts() is is_batched
    assert len(drawn) == num_starts
    num_nearest = num_starts - num_starts // 2
    for r, (rows, picked) in enumerate(drawn[:num_nearest]):
        group = torch.nn.functional.one_hot(nearest(rows, picked), 3).to(x)  # (N, K)
        sizes = group.sum(0)
        torch.testing.assert_close(start["weights"][r], (sizes + 1) / (sizes + 1).sum())
        expected = group.T @ x / (sizes + SPREAD**-2).unsqueeze(-1)
        torch.testing.assert_close(start["means"][r], expected)
    for weights in start["weights"][num_nearest:]:  # groups drawn at random
        sizes = weights * (60 + 3) - 1
        torch.testing.assert_close(sizes, sizes.round())
        assert int(sizes.min()) >= 8


def curves(rows):
    """Points on a line or on a parabola, which cross twice."""
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2, dtype=F64)))
    flat = dist.Uniform(-1e4, 1e4).expand([2, 3]).to_event(2)
    coefficients = pyro.sample("coefficients", flat)
    scale = pyro.sample("scale", dist.Uniform(1e-3, 1e3).expand([2]).to_event(1))
    with pyro.plate("rows", len(rows)):
        curve = pyro.sample("curve", dist.Categorical(weights))
        beta, x = coefficients[curve], rows[:, 0]
        mean = beta[..., 0] + beta[..., 1] * x + beta[..., 2] * x**2
        pyro.sample("y", dist.Normal(mean, scale[curve]), obs=rows[:, 1])


@pytest.mark.parametrize("seed", [0, 6])
def test_starts_of_curves_that_cross_find_them(seed):
    """Rows near each other do not lie on one curve: centres alone met on one 65 nats low."""
    rng = np.random.default_rng(17)
    x = rng.uniform(0, 10, 200)
    y = np.where(rng.random(200) < 0.5, 5 * x, 40 - (x - 5) ** 2) + 3 * rng.normal(size=200)
    found = fit(curves, np.stack([x, y], 1), seed=seed)
    parabola = found.params["coefficients"][found.params["coefficients"][:, 2].argmin()]
    assert parabola.numpy() == pytest.approx([15, 10, -1], abs=3)
    assert float(parabola[2]) == pytest.approx(-1, abs=0.15)
