"""Both halves of an EM step of a user's program."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch

from inference.programs.expectation import Expectation
from inference.programs.program import Program

F64 = torch.float64


def waits(data):
    """Two kinds of waits, with priors that no M-step in closed form knows."""
    share = pyro.sample("share", dist.Beta(2.0, 2.0))
    shape = pyro.sample("shape", dist.LogNormal(0.0, 1.0).expand([2]).to_event(1))
    rate = pyro.sample("rate", dist.Gamma(2.0, 1.0).expand([2]).to_event(1))
    with pyro.plate("rows", len(data)):
        kind = pyro.sample("kind", dist.Bernoulli(share))
        pyro.sample(
            "x",
            dist.Gamma(
                torch.where(kind > 0, shape[..., 1:], shape[..., :1]),
                torch.where(kind > 0, rate[..., 1:], rate[..., :1]),
            ),
            obs=data,
        )


def shrunk(data):
    """The same mean for all but a few, which a kink asks for."""
    shift = pyro.sample("shift", dist.Laplace(0.0, 0.1).expand([2]).to_event(1))
    with pyro.plate("rows", len(data)):
        kind = pyro.sample("kind", dist.Bernoulli(torch.tensor(0.5, dtype=F64)))
        pyro.sample(
            "x", dist.Normal(torch.where(kind > 0, shift[..., 1:], shift[..., :1]), 1.0), obs=data
        )


class Slow(Expectation):
    """By gradients alone."""

    _colouring = None


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(3)
    return (
        torch._standard_gamma(torch.tensor([1.0, 6.0], dtype=F64).repeat(60), generator=generator)
        + 0.1
    )


def test_an_m_step_ends_where_the_expected_log_joint_is_highest(rows):
    program = Program(waits, rows)
    halves, start = Expectation(program), program.draw_prior(3, 1)
    assert halves._colouring is not None
    assert len(halves._colouring.seeds) == 2  # a shape meets its rate, and nothing else
    posteriors = halves.posteriors(start)
    once = halves.maximise(posteriors, start, 20)
    leaves = {
        name: value.clone().requires_grad_() for name, value in program.unconstrained(once).items()
    }
    value = program.expected_log_joint(program.constrained(leaves), posteriors)
    for slope in torch.autograd.grad(value.sum(), list(leaves.values())):
        assert float(slope.abs().max()) < 0.05
    slow = start
    for _ in range(5):
        slow = Slow(program).maximise(posteriors, slow, 40)
    highest = program.expected_log_joint(slow, posteriors)
    assert bool((value > highest - 1e-4).all())
    assert bool(
        (
            program.expected_log_joint(halves.maximise(posteriors, once, 20), posteriors)
            > highest - 1e-8
        ).all()
    )


def test_a_restart_in_a_batch_is_the_restart_alone(rows):
    program = Program(waits, rows)
    start = program.draw_prior(3, 1)

    def stepped(params):
        halves = Expectation(program)
        return halves.maximise(halves.posteriors(params), params, 20)

    together = stepped(start)
    for r in range(3):
        for name, value in stepped(
            {name: value[r : r + 1] for name, value in start.items()}
        ).items():
            torch.testing.assert_close(value[0], together[name][r], rtol=1e-8, atol=1e-8)


def test_a_prior_with_a_kink_is_left_to_gradients(rows):
    program = Program(shrunk, rows)
    halves = Expectation(program)
    assert halves._colouring is None
    start = program.draw_prior(2, 1)
    posteriors = halves.posteriors(start)
    new = halves.maximise(posteriors, start, 20)
    assert bool(
        (
            program.expected_log_joint(new, posteriors)
            >= program.expected_log_joint(start, posteriors)
        ).all()
    )
