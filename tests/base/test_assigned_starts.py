"""Starts of a user's program from rows that are assigned to the values of its latent."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch

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
    for r, (rows, picked) in enumerate(drawn):
        group = torch.nn.functional.one_hot(nearest(rows, picked), 3).to(x)  # (N, K)
        sizes = group.sum(0)
        torch.testing.assert_close(start["weights"][r], (sizes + 1) / (sizes + 1).sum())
        expected = group.T @ x / (sizes + SPREAD**-2).unsqueeze(-1)
        torch.testing.assert_close(start["means"][r], expected)
