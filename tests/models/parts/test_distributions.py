"""Vectors of bits, matrices with known zeros, flat priors, and the matrix product behind them."""

from __future__ import annotations

import itertools
import math

import pyro.distributions as dist
import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.largest_tensor import LargestTensor
from torch import Tensor
from torch.distributions import biject_to, constraints, transform_to

from ppl_models.parts.distributions import (
    BinaryVector,
    Flat,
    Scattered,
    binary_configurations,
    pairwise_dot,
)
from ppl_models.parts.penalties import PenaltyPrior, TruncatedLasso

F64 = torch.float64
quickly = settings(max_examples=60, deadline=None, derandomize=True)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------- pairwise_dot


@st.composite
def broadcastable(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two batch shapes that broadcast, either of which may lack leading dims, and a common last
    dim.
    """
    dims = draw(
        st.lists(
            st.tuples(st.sampled_from(("left", "right", "both", "none")), st.integers(1, 4)),
            max_size=4,
        )
    )
    left = [n if where in ("left", "both") else 1 for where, n in dims]
    right = [n if where in ("right", "both") else 1 for where, n in dims]
    last = draw(st.integers(1, 5))
    cut = draw(st.integers(0, len(dims)))
    shapes = (left[cut:], right) if draw(st.booleans()) else (left, right[cut:])
    return (*shapes[0], last), (*shapes[1], last)


@quickly
@given(broadcastable(), st.integers(0, 100))
def test_pairwise_dot_is_the_sum_of_the_product(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], seed: int
) -> None:
    left, right = normal(*shapes[0], seed=seed), normal(*shapes[1], seed=seed + 1)
    expected = (left * right).sum(-1)
    close(pairwise_dot(left, right), expected)
    close(pairwise_dot(right, left), expected)


@quickly
@given(broadcastable())
def test_pairwise_dot_has_the_gradients_of_the_sum(
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    left, right = normal(*shapes[0]).requires_grad_(), normal(*shapes[1], seed=1).requires_grad_()
    weight = normal(*(left * right).sum(-1).shape, seed=2)
    found = torch.autograd.grad((weight * pairwise_dot(left, right)).sum(), (left, right))
    expected = torch.autograd.grad((weight * (left * right).sum(-1)).sum(), (left, right))
    for one, two in zip(found, expected, strict=True):
        close(one, two)


def test_pairwise_dot_takes_strided_tensors_and_keeps_the_dtype() -> None:
    left, right = (
        normal(5, 7).mT.to(torch.float32),
        normal(4, 1, 5)[:, :, ::1].expand(4, 7, 5).to(torch.float32),
    )
    assert pairwise_dot(left, right).dtype == torch.float32
    torch.testing.assert_close(pairwise_dot(left, right), (left * right).sum(-1))


@pytest.mark.parametrize("configurations", [(16, 1), (16, 3, 1), (4, 4, 1)])
def test_pairwise_dot_builds_no_product_of_all_three_sizes(configurations: tuple[int, ...]) -> None:
    num_rows, num_items = 200, 30
    rows, parameters = normal(num_rows, num_items), normal(*configurations, num_items)
    with LargestTensor() as largest:
        pairwise_dot(rows, parameters)
    assert largest.numel <= max(
        num_rows * num_items, num_rows * math.prod(configurations), parameters.numel()
    )
    with LargestTensor() as largest:
        (rows * parameters).sum(-1)
    assert largest.numel >= num_rows * num_items * math.prod(
        configurations
    )  # the yardstick measures


def test_pairwise_dot_puts_enumerated_dims_last_in_memory() -> None:
    """A reduction over configurations then runs over contiguous entries."""
    rows = normal(50, 4)
    assert pairwise_dot(rows, normal(8, 1, 4)).stride() == (1, 8)
    assert pairwise_dot(rows, normal(3, 8, 1, 4)).stride() == (1, 3, 24)


# ---------------------------------------------------------------- configurations


@pytest.mark.parametrize("num_latents", [1, 2, 5])
def test_configurations_in_lexicographic_order(num_latents: int) -> None:
    expected = torch.tensor(list(itertools.product((0.0, 1.0), repeat=num_latents)), dtype=F64)
    assert torch.equal(binary_configurations(num_latents), expected)
    assert binary_configurations(num_latents, torch.float32).dtype == torch.float32


def test_too_many_configurations_are_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"num_latents = 25 asks for 2\^25 configurations; exact enumeration stops at 24",
    ):
        binary_configurations(25)
    with pytest.raises(ValueError, match="num_latents = 40"):
        BinaryVector(torch.zeros(40)).enumerate_support(expand=False)


# ---------------------------------------------------------------- BinaryVector


@quickly
@given(
    st.lists(st.integers(1, 3), max_size=2),
    st.lists(st.floats(-40, 40), min_size=1, max_size=4),
    st.integers(0, 1000),
)
def test_bits_are_independent_bernoullis(batch: list[int], logits: list[float], seed: int) -> None:
    size = len(logits)
    all_logits = torch.tensor(logits, dtype=F64) + normal(*batch, size, seed=seed)
    ours, theirs = BinaryVector(all_logits), dist.Bernoulli(logits=all_logits).to_event(1)
    assert (ours.batch_shape, ours.event_shape) == (theirs.batch_shape, theirs.event_shape)
    configurations = binary_configurations(size).reshape(2**size, *[1] * len(batch), size)
    close(ours.log_prob(configurations), theirs.log_prob(configurations), 1e-10)
    close(ours.log_prob(configurations).logsumexp(0), torch.zeros(batch, dtype=F64), 1e-10)
    close(ours.mean, theirs.mean)
    close(ours.variance, theirs.variance)
    assert torch.equal(ours.enumerate_support(expand=False), configurations)
    assert ours.enumerate_support().shape == (2**size, *batch, size)


def test_bits_against_one_value_a_row() -> None:
    logits, value = normal(6, 3), torch.bernoulli(normal(6, 3, seed=1).sigmoid())
    close(
        BinaryVector(logits).log_prob(value),
        dist.Bernoulli(logits=logits).to_event(1).log_prob(value),
    )
    shared = BinaryVector(logits[0])
    close(shared.log_prob(value), dist.Bernoulli(logits=logits[0]).to_event(1).log_prob(value))


def test_gradients_of_bits() -> None:
    logits = normal(2, 3).requires_grad_()
    values = binary_configurations(3).unsqueeze(1)
    weight = normal(8, 2, seed=1)
    ours = torch.autograd.grad((weight * BinaryVector(logits).log_prob(values)).sum(), logits)[0]
    theirs = torch.autograd.grad(
        (weight * dist.Bernoulli(logits=logits).to_event(1).log_prob(values)).sum(), logits
    )[0]
    close(ours, theirs)


def test_expanding_over_a_plate_copies_nothing() -> None:
    one = BinaryVector(normal(4))
    many = one.expand(torch.Size([1000]))
    assert many.logits is one.logits
    assert (many.batch_shape, many.event_shape) == ((1000,), (4,))
    values = many.enumerate_support(expand=False)
    with LargestTensor() as largest:
        log_density = many.log_prob(values)
    assert largest.numel <= 16 * 4
    assert log_density.shape == (16, 1000)
    assert log_density.stride(-1) == 0  # one value repeated
    close(log_density, one.log_prob(binary_configurations(4)).unsqueeze(-1).expand(16, 1000))
    again = many.expand(torch.Size([5, 1000]))
    assert again.logits is one.logits
    assert again.log_prob(values.unsqueeze(1)).shape == (16, 5, 1000)


def test_expanding_parents_configurations_over_rows() -> None:
    """Logits that depend on the parent's configuration, as in a deep encoder."""
    many = BinaryVector(normal(4, 1, 3)).expand(torch.Size([4, 100]))
    density = many.log_prob(binary_configurations(3).reshape(8, 1, 1, 3))
    assert density.shape == (8, 4, 100)
    assert density.stride(-1) == 0
    close(density.logsumexp(0), torch.zeros(4, 100, dtype=F64))


def test_draws_of_an_expanded_vector_are_independent() -> None:
    logits = torch.tensor([-1.0, 0.5, 2.0], dtype=F64)
    size = 4000
    for seed in range(3):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            draws = BinaryVector(logits).expand(torch.Size([size])).sample()
        assert draws.shape == (size, 3)
        chance = logits.sigmoid()
        score = (draws.mean(0) - chance) / (chance * (1 - chance) / size).sqrt()
        assert float(score.abs().max()) < 5.5
        correlation = torch.corrcoef(draws.mT) * math.sqrt(size)
        assert float(correlation.triu(1).abs().max()) < 5.5
        assert BinaryVector(logits).sample(torch.Size([2])).shape == (2, 3)


def test_what_is_no_vector_of_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="logits"):
        BinaryVector(torch.tensor([0.0, math.nan]), validate_args=True)
    bits = BinaryVector(torch.zeros(2), validate_args=True)
    with pytest.raises(ValueError, match="support"):
        bits.log_prob(torch.tensor([0.0, 0.5]))
    with pytest.raises(ValueError, match="support"):
        bits.expand(torch.Size([3])).log_prob(torch.tensor([[0.0, 2.0]] * 3))
    assert bits.support.check(torch.tensor([0.0, 1.0]))


# ---------------------------------------------------------------- Flat


def test_a_flat_prior_is_closed_on_both_ends() -> None:
    prior = Flat(torch.tensor(-2.0, dtype=F64), torch.tensor(3.0, dtype=F64))
    value = torch.tensor([-2.0, 0.0, 3.0, 3.0001, -2.0001], dtype=F64)
    expected = torch.tensor([-math.log(5)] * 3 + [-math.inf] * 2, dtype=F64)
    close(prior.log_prob(value), expected)
    wide = prior.expand(torch.Size([5]))
    assert isinstance(wide, Flat)
    close(wide.log_prob(value), expected)
    close(wide.to_event(1).log_prob(value[:1].expand(5)), 5 * expected[0])
    assert bool(prior.support.check(prior.sample(torch.Size([50]))).all())


# ---------------------------------------------------------------- Scattered

GRAPH = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1]]).bool()
BASES = {
    "flat": Flat(torch.tensor(-3.0, dtype=F64), torch.tensor(3.0, dtype=F64)),
    "normal": dist.Normal(torch.tensor(0.5, dtype=F64), 2.0),
    "positive": dist.Gamma(torch.tensor(2.0, dtype=F64), 1.0),
    "penalty": PenaltyPrior(TruncatedLasso(2.0, 0.4), 3.0),
}
every_base = pytest.mark.parametrize("name", BASES)


@every_base
def test_a_scattered_prior_is_the_base_on_the_free_entries(name: str) -> None:
    base, prior = BASES[name], Scattered(BASES[name], GRAPH)
    assert (prior.batch_shape, prior.event_shape) == ((), (4, 3))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        one, many = prior.sample(), prior.sample(torch.Size([500]))
    assert one.shape == (4, 3)
    assert many.shape == (500, 4, 3)
    assert one.dtype == F64
    assert bool((many[:, ~GRAPH] == 0).all())
    assert len(many[:, GRAPH].unique()) > 2000  # every free entry has its own draw
    expected = torch.stack([sum(base.log_prob(x) for x in value[GRAPH]) for value in many[:5]])
    close(prior.log_prob(many[:5]), expected)
    close(prior.log_prob(one), base.log_prob(one[GRAPH]).sum())
    assert bool(prior.support.check(many).all())


@every_base
def test_the_support_is_the_graph(name: str) -> None:
    support = Scattered(BASES[name], GRAPH).support
    value = torch.where(GRAPH, 0.7, 0.0).to(F64)
    assert bool(support.check(value))
    off = value.clone()
    off[0, 1] = 0.1
    assert not bool(support.check(off))
    assert support.check(torch.stack([value, off])).tolist() == [True, False]
    if name != "normal":
        outside = value.clone()
        outside[0, 0] = -5.0
        assert not bool(support.check(outside))


@every_base
@pytest.mark.parametrize("batch", [(), (2,), (3, 2)])
def test_the_bijection_goes_there_and_back(name: str, batch: tuple[int, ...]) -> None:
    support = Scattered(BASES[name], GRAPH).support
    bijection = biject_to(support)
    free = normal(*batch, int(GRAPH.sum()))
    value = bijection(free)
    assert value.shape == (*batch, 4, 3)
    assert bool(support.check(value).all())
    close(bijection.inv(value), free, 1e-9)
    assert bijection.forward_shape(free.shape) == value.shape
    assert bijection.inverse_shape(value.shape) == free.shape
    jacobian = bijection.log_abs_det_jacobian(free, value)
    assert jacobian.shape == batch
    first = free.reshape(-1, free.shape[-1])[0]
    dense = torch.autograd.functional.jacobian(lambda x: bijection(x)[GRAPH], first)
    close(jacobian.reshape(-1)[0], torch.linalg.slogdet(dense).logabsdet, 1e-9)
    close(transform_to(support)(free), value)  # what Pyro's guides use


def test_a_scattered_prior_expands() -> None:
    prior = Scattered(BASES["normal"], GRAPH).expand(torch.Size([5]))
    assert (prior.batch_shape, prior.event_shape) == ((5,), (4, 3))
    assert prior.sample().shape == (5, 4, 3)
    value = prior.sample()[0]
    assert prior.log_prob(value).shape == (5,)
    assert isinstance(prior.support, constraints.Constraint)
    assert prior.support.event_dim == 2
