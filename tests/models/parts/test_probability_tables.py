"""Probability vectors side by side: sums within items, the bijection and its Jacobian, the prior;
against torch, item by item.
"""

from __future__ import annotations

import pyro.distributions as dist
import pytest
import torch
from torch.distributions import biject_to

from ppl_models.parts.probability_tables import DirichletTables, Simplexes, segments_of

F64 = torch.float64
SIZES = (3, 2, 1, 3)


def tables(num_draws: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    amounts = torch.rand(num_draws, sum(SIZES), generator=generator, dtype=F64) + 0.05
    return torch.cat([part / part.sum(-1, keepdim=True) for part in amounts.split(SIZES, -1)], -1)


def test_segments_are_runs() -> None:
    own, values = segments_of(SIZES, torch.device("cpu")), tables(4).log()
    parts = values.split(SIZES, -1)
    torch.testing.assert_close(own.total(values), torch.stack([part.sum(-1) for part in parts], -1))
    torch.testing.assert_close(
        own.log_total(values), torch.stack([part.logsumexp(-1) for part in parts], -1)
    )
    padded = own.padded(values, -7.0)
    for j, part in enumerate(parts):
        assert torch.equal(padded[:, j, : SIZES[j]], part)
        assert bool((padded[:, j, SIZES[j] :] == -7.0).all())
    assert torch.equal(own.spread(torch.arange(4.0)), torch.tensor([0, 0, 0, 1, 1, 2, 3, 3, 3.0]))


def test_the_bijection_has_its_jacobian() -> None:
    move, value = biject_to(Simplexes(SIZES)), tables(1)[0]
    point = move.inv(value)
    assert point.shape == move.inverse_shape(value.shape) == (5,)
    assert move.forward_shape(point.shape) == value.shape
    torch.testing.assert_close(move(point), value)
    ends = torch.tensor([2, 4, 5, 8])  # the last entry of each item follows from the others
    free = torch.ones(9, dtype=torch.bool).index_fill(0, ends, False)
    slopes = torch.autograd.functional.jacobian(lambda x: move(x)[free], point)
    torch.testing.assert_close(
        move.log_abs_det_jacobian(point, value), torch.linalg.slogdet(slopes)[1]
    )


def test_the_prior_is_one_dirichlet_distribution_an_item() -> None:
    concentration = torch.tensor([1.5, 1.5, 1.5, 2.0, 2.0, 1.0, 0.7, 0.7, 0.7], dtype=F64)
    distribution, value = DirichletTables(concentration, SIZES), tables(5)
    expected = sum(
        dist.Dirichlet(a).log_prob(x)
        for a, x, size in zip(
            concentration.split(SIZES), value.split(SIZES, -1), SIZES, strict=True
        )
        if size > 1
    )
    torch.testing.assert_close(distribution.log_prob(value), expected)
    assert distribution.expand(torch.Size([5])).log_prob(value).shape == (5,)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        draws = distribution.sample(torch.Size([20000]))
    assert bool(distribution.support.check(draws).all())
    mean = torch.cat([a / a.sum() for a in concentration.split(SIZES)])
    torch.testing.assert_close(draws.mean(0), mean, atol=0.01, rtol=0)


@pytest.mark.parametrize("value", [[0.5, 0.6, 0.5, 0.5], [1.2, -0.2, 0.5, 0.5]])
def test_what_does_not_sum_to_one_is_outside(value: list[float]) -> None:
    assert not bool(Simplexes((2, 2)).check(torch.tensor(value)))
