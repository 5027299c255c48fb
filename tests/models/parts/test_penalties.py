"""Penalties as functions, as proximal maps and as priors, each against a direct computation."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import integrate, stats
from torch import Tensor
from torch.distributions import biject_to

from ppl_models.parts.penalties import SCAD, Penalty, PenaltyPrior, Ridge, TruncatedLasso, stacked

F64 = torch.float64
PENALTIES: dict[str, Penalty] = {
    "truncated-lasso": TruncatedLasso(1.5, 0.6),
    "truncated-lasso-steep": TruncatedLasso(40.0, 0.1),
    "truncated-lasso-flat-late": TruncatedLasso(0.3, 50.0),
    "scad": SCAD(0.4, 2.0),
    "scad-steep": SCAD(0.05, 300.0),
    "scad-short": SCAD(0.7, 1.0, shape=2.1),
    "scad-matching": SCAD.matching(TruncatedLasso(1.5, 0.6)),
}
every_penalty = pytest.mark.parametrize("name", PENALTIES)


def close(actual: Any, expected: Any, tolerance: float = 1e-11) -> None:
    actual, expected = (torch.as_tensor(value, dtype=F64) for value in (actual, expected))
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def derivative(penalty: Penalty, u: float) -> float:
    """The formulas of Shen, Pan and Zhu (2012) and of Fan and Li (2001), for u > 0."""
    if isinstance(penalty, TruncatedLasso):
        return penalty.slope_at_zero if u < penalty.threshold else 0.0
    assert isinstance(penalty, SCAD)
    knot, shape = penalty.knot, penalty.shape
    return penalty.multiplier * (knot if u <= knot else max(shape * knot - u, 0.0) / (shape - 1))


# ---------------------------------------------------------------- the function


@every_penalty
def test_the_value_is_the_integral_of_the_textbook_derivative(name: str) -> None:
    penalty = PENALTIES[name]
    for value in (0.0, 0.01, 0.05, 0.3, 0.6, 0.9, 2.0, 60.0):
        points = [k for k in penalty.knots if k < value]
        expected, _ = integrate.quad(
            functools.partial(derivative, penalty), 0.0, value, points=points or None, epsabs=1e-13
        )
        both = penalty(torch.tensor([value, -value], dtype=F64))
        close(both, [expected, expected], 1e-9)


@every_penalty
def test_the_slope_is_the_derivative(name: str) -> None:
    penalty = PENALTIES[name]
    grid = torch.linspace(1e-4, 1.5 * penalty.threshold, 301, dtype=F64)
    close(penalty.slope(grid), [derivative(penalty, u) for u in grid.tolist()])
    close(penalty.slope(-grid), penalty.slope(grid))
    close(penalty.slope(torch.zeros(1, dtype=F64)), [derivative(penalty, 1e-12)])  # from the right
    leaf = grid.clone().requires_grad_()
    away = torch.stack([(grid - k).abs() for k in penalty.knots]).amin(0) > 1e-6
    (gradient,) = torch.autograd.grad(penalty(leaf).sum(), leaf)
    close(gradient[away], penalty.slope(grid)[away])


@every_penalty
def test_a_penalty_is_continuous_and_flat_from_its_threshold(name: str) -> None:
    penalty = PENALTIES[name]
    for knot in penalty.knots:
        either_side = penalty(
            torch.tensor([knot * (1 - 1e-12), knot, knot * (1 + 1e-12)], dtype=F64)
        )
        close(either_side, either_side[1].expand(3), 1e-9)
    assert penalty.knots[-1] == penalty.threshold
    far = penalty(penalty.threshold * torch.tensor([1.0, 1.5, 100.0], dtype=F64))
    close(far, far[0].expand(3))
    near = penalty(torch.tensor([0.999 * penalty.threshold], dtype=F64))
    assert float(near) < float(far[0])


@every_penalty
def test_the_convex_penalty_has_the_same_slope_and_lies_above(name: str) -> None:
    penalty, convex = PENALTIES[name], PENALTIES[name].convex()
    grid = torch.linspace(0, 3 * penalty.threshold, 400, dtype=F64)
    close(convex.slope(torch.zeros(1, dtype=F64)), penalty.slope(torch.zeros(1, dtype=F64)))
    assert bool((convex(grid) >= penalty(grid) - 1e-12).all())
    close(convex(grid), grid * float(convex.slope(torch.zeros(1, dtype=F64))))


@pytest.mark.parametrize("at", [0.0, 0.1, 0.45, 0.59, 1.0, -0.3])
@every_penalty
def test_the_tangent_majorises(name: str, at: float) -> None:
    """p(u) <= p(u0) + p'(u0) (u - u0): what the local linear approximation rests on."""
    penalty = PENALTIES[name]
    center, grid = (
        torch.tensor([at], dtype=F64),
        torch.linspace(0, 3 * penalty.threshold, 400, dtype=F64),
    )
    tangent = penalty(center) + penalty.slope(center) * (grid - center.abs())
    assert bool((penalty(grid) <= tangent + 1e-10).all())


def test_both_ways_to_write_the_truncated_lasso() -> None:
    level = TruncatedLasso.from_level(6.0, 0.5)
    assert level == TruncatedLasso(12.0, 0.5)
    close(level(torch.tensor([0.1, 0.5, 3.0], dtype=F64)), [1.2, 6.0, 6.0])
    rows = TruncatedLasso.for_rows(1000)
    close([rows.slope_at_zero, rows.threshold], [5.623413251903491, 3 * 1000**-0.3])


@pytest.mark.parametrize("shape", [2.5, 3.7, 10.0])
def test_a_matching_scad_has_the_threshold_and_the_level(shape: float) -> None:
    lasso = TruncatedLasso(4.2, 0.7)
    scad = SCAD.matching(lasso, shape)
    close(scad.threshold, lasso.threshold)
    far = torch.tensor([lasso.threshold, 2.0, -50.0], dtype=F64)
    close(scad(far), lasso(far))
    close(scad(far), [4.2 * 0.7] * 3)
    assert float(scad(torch.tensor([0.5 * lasso.threshold], dtype=F64))) > 0
    assert scad.shape == shape


# ---------------------------------------------------------------- the normal prior


@pytest.mark.parametrize(("scale", "bound"), [(2.0, 10.0), (2.5, 1000.0), (5.0, 3.0)])
def test_a_ridge_is_a_normal_distribution_on_the_interval(scale: float, bound: float) -> None:
    prior, distribution = (
        PenaltyPrior(Ridge(scale), bound),
        stats.truncnorm(-bound / scale, bound / scale, scale=scale),
    )
    grid = torch.linspace(-min(bound, 12.0), min(bound, 12.0), 41, dtype=F64)
    close(prior.log_prob(grid), distribution.logpdf(grid.numpy()), 1e-9)
    torch.manual_seed(0)
    draws = prior.expand(torch.Size([4000])).sample().numpy()
    assert stats.kstest(draws, distribution.cdf).pvalue > 1e-3


def test_the_proximal_map_of_a_ridge_shrinks() -> None:
    grid, ridge = torch.linspace(-8, 8, 160001, dtype=F64), Ridge(1.5)
    for center, curvature in ((2.0, 3.0), (-0.4, 0.2), (0.0, 1.0)):
        best = grid[(curvature / 2 * (grid - center).square() + ridge(grid)).argmin()]
        assert float(
            ridge.prox(torch.tensor(center, dtype=F64), torch.tensor(curvature, dtype=F64))
        ) == pytest.approx(float(best), abs=1e-4)
    both = stacked([Ridge(1.5), Ridge(0.5)], grid)
    close(both(torch.ones(2, 1, dtype=F64)).ravel(), [1 / 4.5, 2.0])
    close(ridge.slope(torch.tensor([-3.0, 0.0], dtype=F64)), [3 / 2.25, 0.0])
    assert ridge.convex() == ridge
    with pytest.raises(ValueError, match="Ridge: scale"):
        Ridge(-1.0)


# ---------------------------------------------------------------- the proximal map


def objective(penalty: Penalty, b: Tensor, center: float, curvature: float) -> Tensor:
    return curvature / 2 * (b - center).square() + penalty(b)


def check_prox(penalty: Penalty, center: float, curvature: float) -> None:
    """No point of a fine grid, nor near the answer, is better; and the sign is that of the
    centre.
    """
    found = penalty.prox(torch.tensor([center], dtype=F64), torch.tensor([curvature], dtype=F64))
    reach = max(abs(center), penalty.threshold) * 1.1 + 1e-6
    grid = torch.cat(
        [
            torch.linspace(-reach, reach, 20001, dtype=F64),
            torch.tensor([0.0, center, *penalty.knots], dtype=F64),
            found + torch.linspace(-1e-3, 1e-3, 201, dtype=F64),
        ]
    )
    values = objective(penalty, grid, center, curvature)
    own = objective(penalty, found, center, curvature)
    assert float(own) <= float(values.min()) + 1e-10 * (1 + float(own.abs()))
    assert float(found) * center >= 0
    assert abs(float(found)) <= abs(center) + 1e-12  # it shrinks


@every_penalty
@settings(max_examples=60, deadline=None, derandomize=True)
@given(center=st.floats(-3, 3), log_curvature=st.floats(-3, 4))
def test_prox_equals_a_grid_search(name: str, center: float, log_curvature: float) -> None:
    check_prox(PENALTIES[name], center, math.exp(log_curvature))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(share=st.floats(0.01, 0.999), position=st.floats(0, 2), multiplier=st.floats(0.1, 50))
def test_prox_of_scad_where_the_objective_is_not_convex(
    share: float, position: float, multiplier: float
) -> None:
    """A curvature below m / (a - 1) makes the middle piece concave: its stationary point is a
    maximum.
    """
    scad = SCAD(0.4, multiplier)
    check_prox(scad, position * scad.threshold, share * multiplier / (scad.shape - 1))


@pytest.mark.parametrize("name", ["scad", "scad-short"])
def test_prox_of_scad_where_the_middle_piece_is_straight(name: str) -> None:
    """Curvature exactly m / (a - 1): the formula of the middle piece divides by zero."""
    scad = PENALTIES[name]
    assert isinstance(scad, SCAD)
    for position in (0.0, 0.3, 0.9, 1.0, 1.01, 1.7):
        check_prox(scad, position * scad.threshold, scad.multiplier / (scad.shape - 1))


@every_penalty
def test_prox_keeps_large_values_and_kills_small_ones(name: str) -> None:
    penalty = PENALTIES[name]
    curvature = torch.full((3,), 2.0, dtype=F64)
    tiny = 0.01 * float(penalty.slope(torch.zeros(1, dtype=F64))) / 2.0
    far = penalty.threshold + penalty.slope(torch.zeros(1, dtype=F64)).item() / 2.0
    found = penalty.prox(
        torch.tensor([0.0, min(tiny, 0.01 * penalty.knots[0]), -far - 1.0], dtype=F64), curvature
    )
    assert torch.equal(found[:2], torch.zeros(2, dtype=F64))
    assert float(found[2]) == -far - 1.0


@every_penalty
def test_prox_works_on_whole_tensors_at_once(name: str) -> None:
    penalty = PENALTIES[name]
    generator = torch.Generator().manual_seed(0)
    center = torch.randn(2, 5, 3, generator=generator, dtype=F64)
    curvature = torch.rand(2, 1, 3, generator=generator, dtype=F64) * 4 + 0.1
    together = penalty.prox(center, curvature.expand(2, 5, 3))
    close(penalty.prox(center, curvature), together)
    each = [
        penalty.prox(c.reshape(1), k.reshape(1))
        for c, k in zip(center.flatten(), curvature.expand(2, 5, 3).flatten(), strict=True)
    ]
    close(together.flatten(), torch.cat(each))
    assert penalty.prox(center.float(), curvature.float()).dtype == torch.float32


# ---------------------------------------------------------------- the prior


@functools.cache
def mass(penalty: Penalty, low: float, high: float) -> float:
    """The integral of exp(-penalty) by adaptive quadrature, piece by piece."""
    edges = sorted({low, high, 0.0, *penalty.knots, *(-k for k in penalty.knots)})
    inside = [low, *(e for e in edges if low < e < high), high]

    def density(b: float) -> float:
        return math.exp(-float(penalty(torch.tensor(b, dtype=F64))))

    return sum(
        integrate.quad(density, a, b, epsabs=0, epsrel=1e-11, limit=200)[0]
        for a, b in zip(inside, inside[1:], strict=False)
    )


@pytest.mark.parametrize("bound", [0.05, 0.5, 15.0])
@every_penalty
def test_the_prior_integrates_to_one(name: str, bound: float) -> None:
    """Also where the interval ends before the knots."""
    penalty = PENALTIES[name]
    prior = PenaltyPrior(penalty, bound)
    close(prior.log_normalizer, math.log(mass(penalty, -bound, bound)), 1e-9)
    value = torch.linspace(-bound, bound, 7, dtype=F64)
    close(prior.log_prob(value), -penalty(value) - math.log(mass(penalty, -bound, bound)), 1e-9)
    outside = torch.tensor([-1.01, 1.01], dtype=F64) * bound
    assert bool((prior.log_prob(outside) == -math.inf).all())
    assert bool(prior.support.check(value).all())
    assert not bool(prior.support.check(outside).any())


@pytest.mark.parametrize("slope", [1.0, 30.0, 300.0])
def test_the_normaliser_of_a_steep_penalty(slope: float) -> None:
    """In closed form: 2 { (1 - e^(-slope t)) / slope + (bound - t) e^(-slope t) }."""
    t, bound = 0.5, 15.0
    expected = 2 * (-math.expm1(-slope * t) / slope + (bound - t) * math.exp(-slope * t))
    close(PenaltyPrior(TruncatedLasso(slope, t), bound).log_normalizer, math.log(expected), 1e-10)


@every_penalty
def test_draws_have_the_distribution_of_the_density(name: str) -> None:
    """Kolmogorov-Smirnov over three seeds, against the integral of the density."""
    penalty, bound = PENALTIES[name], 2.0
    prior = PenaltyPrior(penalty, bound)
    grid = np.union1d(np.linspace(0, bound, 4001), [k for k in penalty.knots if k < bound])
    density = np.exp(-penalty(torch.from_numpy(grid)).numpy())
    half = np.concatenate([[0.0], integrate.cumulative_trapezoid(density, grid)])
    assert half[-1] == pytest.approx(mass(penalty, 0.0, bound), rel=1e-3)

    def distribution(b: np.ndarray) -> np.ndarray:
        return 0.5 + 0.5 * np.sign(b) * np.interp(np.abs(b), grid, half / half[-1])

    for seed in range(3):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            draws = prior.expand(torch.Size([20])).sample(torch.Size([200]))
        assert draws.shape == (200, 20)
        assert draws.dtype == F64
        assert float(draws.abs().max()) <= bound
        assert stats.kstest(draws.numpy().ravel(), distribution).pvalue > 1e-6


def test_a_prior_expands_and_keeps_the_dtype() -> None:
    prior = PenaltyPrior(TruncatedLasso(1.0, 0.5), 3.0)
    many = prior.expand(torch.Size([4, 2])).to_event(2)
    assert (many.batch_shape, many.event_shape) == ((), (4, 2))
    value = many.sample()
    close(many.log_prob(value), sum(prior.log_prob(v) for v in value.flatten()))
    assert prior.expand(torch.Size([3])).log_prob(torch.tensor(0.2, dtype=F64)).shape == (3,)
    low = PenaltyPrior(TruncatedLasso(1.0, 0.5), 3.0, dtype=torch.float32)
    assert low.sample(torch.Size([3])).dtype == torch.float32
    assert low.log_prob(low.sample(torch.Size([3]))).dtype == torch.float32
    free = torch.tensor([-2.0, 0.0, 4.0], dtype=F64)
    bijection = biject_to(prior.support)
    close(bijection.inv(bijection(free)), free)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan, "1"])
@pytest.mark.parametrize(
    ("owner", "argument", "build"),
    [
        ("TruncatedLasso", "slope_at_zero", lambda v: TruncatedLasso(v, 1.0)),
        ("TruncatedLasso", "threshold", lambda v: TruncatedLasso(1.0, v)),
        ("TruncatedLasso.from_level", "level", lambda v: TruncatedLasso.from_level(v, 1.0)),
        ("TruncatedLasso.from_level", "threshold", lambda v: TruncatedLasso.from_level(1.0, v)),
        ("TruncatedLasso.for_rows", "num_rows", lambda v: TruncatedLasso.for_rows(v)),
        ("SCAD", "knot", lambda v: SCAD(v, 1.0)),
        ("SCAD", "multiplier", lambda v: SCAD(1.0, v)),
        ("PenaltyPrior", "bound", lambda v: PenaltyPrior(TruncatedLasso(1.0, 1.0), v)),
    ],
)
def test_numbers_that_are_not_positive_are_refused(
    owner: str, argument: str, build: Callable[[Any], Any], bad: Any
) -> None:
    with pytest.raises(
        ValueError, match=f"{owner}: {argument} must be a positive finite number, got"
    ):
        build(bad)


@pytest.mark.parametrize("shape", [2.0, 1.0, -3.0, math.inf, math.nan])
def test_the_shape_of_scad_exceeds_two(shape: float) -> None:
    with pytest.raises(ValueError, match="SCAD: shape must be finite and exceed 2, got"):
        SCAD(1.0, 1.0, shape)


def test_penalties_are_values() -> None:
    """Frozen and hashable: part of a model that is a dataclass of settings, and of a cache's
    key.
    """
    assert TruncatedLasso(1.0, 2.0) == TruncatedLasso(1.0, 2.0)
    assert hash(SCAD(1.0, 2.0)) == hash(SCAD(1.0, 2.0))
    assert SCAD(1.0, 2.0) != SCAD(1.0, 2.0, 3.0)
