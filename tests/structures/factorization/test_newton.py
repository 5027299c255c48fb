"""Newton steps of dense counts: derivatives, no losses, and the optimum that starts share."""

from dataclasses import replace

import pytest
import torch

from inference import Fit, RowBlocks, fit
from inference.fitting.problem import problem_of_blocks
from inference.structures.factorization.factorize import Factorize
from inference.structures.factorization.newton import Corner, newton
from inference.structures.factorization.starts import random_factors
from inference.structures.factorization.updates import (
    LEAST_BEND,
    Counts,
    DispersedCounts,
    LinearlyDispersedCounts,
)
from ppl_models import NegativeBinomialFactorization, PoissonFactorization

F64 = torch.float64


def table(num_rows: int, seed: int, missing: float = 0.0, scatter: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    z = torch.rand(num_rows, 3, generator=draw, dtype=F64) ** 2 * 60
    phi = torch.rand(3, 12, generator=draw, dtype=F64) ** 3
    mean = z @ (phi / phi.sum(-1, keepdim=True)) + 0.01
    if scatter:  # Gamma factors of variance 1 / scatter
        factors = torch.rand(*mean.shape, scatter, generator=draw, dtype=F64)
        mean = mean * -factors.log().mean(-1)
    x = torch.poisson(mean, generator=draw)
    out = torch.rand(x.shape, generator=draw) < missing
    return x.masked_fill(out, torch.nan)


def model(kind: str) -> PoissonFactorization:
    if kind == "poisson":
        return PoissonFactorization(12, 3)
    return NegativeBinomialFactorization(12, 3, variance=kind)


def updates(kind: str, x: torch.Tensor) -> Counts:
    about = PoissonFactorization(12, 3).factorization()
    plain = Counts.of(x, about)
    if kind == "poisson":
        return plain
    made = DispersedCounts if kind == "quadratic" else LinearlyDispersedCounts
    return made(plain.x, plain.mask, size=torch.full((2, 1, 1), 2.5, dtype=F64))


def test_hessian_is_the_whole_of_its_corner() -> None:
    factor = torch.rand(2, 4, 5, dtype=F64)
    corner = Corner(4)
    found = corner.whole(corner.of(factor))
    assert torch.equal(found, factor.unsqueeze(2) * factor.unsqueeze(1))
    turned = factor.mT.contiguous().mT
    assert torch.equal(corner.of(turned), corner.of(factor))
    assert corner.of(turned).mT.is_contiguous()


def test_newton_step_solves_a_quadratic_over_positive_values() -> None:
    root = torch.tensor([[1.0, 0.3], [0.0, 1.0]], dtype=F64)
    hessian = (root.T @ root).reshape(2, 2, 1)
    start = torch.ones(2, 1, dtype=F64)
    for slope in ([2.0, -1.0], [-5.0, 0.5]):
        gradient = torch.tensor(slope, dtype=F64).unsqueeze(-1)
        found = newton(start, gradient.clone(), hessian.clone())
        left = gradient - (hessian[..., 0] @ (found - start))
        assert bool((found >= 0).all())
        assert torch.where(found > 0, left.abs(), left.clamp(min=0)).max() < 1e-3


@pytest.mark.parametrize("missing", [0.0, 0.15])
@pytest.mark.parametrize("kind", ["poisson", "quadratic", "linear"])
def test_slopes_are_derivatives_of_the_cells(kind: str, missing: float) -> None:
    own = updates(kind, table(20, 1, missing))
    mu = (torch.rand(2, 20, 12, dtype=F64) * 9 + 0.2).requires_grad_()
    (slope,) = torch.autograd.grad(own.cells(mu).sum(), mu, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), mu)
    found, bend = own.slopes(mu.detach())
    assert torch.allclose(found, slope, rtol=1e-8, atol=1e-9)
    wanted = -second
    if kind == "quadratic":  # expected: a second derivative is that of a count at its mean
        seen = 1 if own.mask is None else own.mask
        wanted = torch.maximum(wanted, LEAST_BEND * seen / (mu + mu.square() / own.size))
    assert torch.allclose(bend, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("missing", [0.0, 0.15])
@pytest.mark.parametrize("kind", ["poisson", "quadratic", "linear"])
def test_round_of_blocks_is_that_of_rows_in_memory(kind: str, missing: float) -> None:
    x = table(41, 4, missing)
    whole = updates(kind, x)
    blocks = problem_of_blocks(model(kind), RowBlocks.of(x, 7), 0, start_given=True).rows
    blocked = replace(updates(kind, x[:20]), rows=blocks)
    moved = random_factors(x.nan_to_num(nan=1.0), 3, 2, 0)
    for _ in range(3):
        *moved, value = whole.improved(*moved)
    *wanted, value = whole.improved(*moved)
    *found, told = blocked.improved(*moved)
    for own, other in zip((*found, told), (*wanted, value), strict=True):
        assert torch.allclose(own, other, rtol=1e-9, atol=1e-9)
    assert blocked.constant() == pytest.approx(whole.constant(), rel=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.15])
@pytest.mark.parametrize("kind", ["poisson", "quadratic", "linear"])
def test_no_round_loses(kind: str, missing: float) -> None:
    x = table(40, 2, missing)
    own = updates(kind, x)
    z, phi = random_factors(x.nan_to_num(nan=1.0), 3, 2, 0)
    value = own.varying(z, phi)
    for _ in range(15):
        z, phi, told = own.improved(z, phi)
        now = own.varying(z, phi)
        assert torch.allclose(told, now, rtol=1e-9)
        assert torch.allclose(phi.sum(-1), torch.ones(2, 3, dtype=F64))
        assert bool((now >= value - 1e-9 * value.abs()).all())
        value = now
        whole = own.log_likelihood_rows(z, phi).sum(-1)
        assert torch.allclose(now + own.constant(), whole, rtol=1e-10)


def test_single_starts_share_an_optimum() -> None:
    x = table(80, 3)
    ends = [
        fit(PoissonFactorization(12, 3), x, init="random", num_restarts=1, seed=seed).log_likelihood
        for seed in range(6)
    ]
    assert sum(end > max(ends) - 0.1 for end in ends) >= 5


def log_density(kind: str, mean: torch.Tensor, x: torch.Tensor, found: Fit) -> torch.Tensor:
    """Of all cells seen, by torch's distributions."""
    seen, x, mean = ~x.isnan(), x.nan_to_num(), mean + 1e-12  # a slope of empty cells too
    if kind == "poisson":
        terms = torch.distributions.Poisson(mean).log_prob(x)
    else:
        delta = found.params["dispersion"]
        size = mean / delta if kind == "linear" else (1 / delta).expand_as(mean)
        odds = torch.distributions.NegativeBinomial(size, logits=(mean / size).log())
        terms = odds.log_prob(x)
    return torch.where(seen, terms, 0.0).sum()


@pytest.mark.parametrize("kind", ["poisson", "quadratic", "linear"])
@pytest.mark.parametrize("block_rows", [None, 17])
def test_ends_are_stationary_over_values_that_are_not_negative(
    kind: str, block_rows: int | None
) -> None:
    """Karush, Kuhn and Tucker: no slope where a value is positive, none upwards where it is 0."""
    x = table(60, 5, 0.1, scatter=3)
    data = x if block_rows is None else RowBlocks.of(x, block_rows)
    found = fit(model(kind), data, Factorize(tolerance=1e-14), "random", num_restarts=1)
    factors = [found.local["activities"], found.params["signatures"]]
    for factor in factors:
        factor.requires_grad_()
    value = log_density(kind, factors[0] @ factors[1], x, found)
    assert value.item() == pytest.approx(found.log_likelihood, rel=1e-10)
    for factor, slope in zip(factors, torch.autograd.grad(value, factors), strict=True):
        slope, factor = slope.detach(), factor.detach()  # both in nats
        assert float((slope * factor).abs().max()) < 1e-2
        assert float((slope * factor.mean() / 100).max()) < 1e-2


@pytest.mark.parametrize("kind", ["poisson", "quadratic", "linear"])
def test_ends_are_no_lower_than_those_of_em(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, method = table(60, 6, scatter=3), Factorize(tolerance=1e-10, race=False)

    def best() -> float:
        return fit(model(kind), x, method, "random", num_restarts=4, seed=1).log_likelihood

    by_newton = best()
    monkeypatch.setattr(Counts, "takes_newton", lambda *_: False)
    assert by_newton > best() - 1e-2  # saddles lie side by side


@pytest.mark.parametrize("newton", [True, False])
def test_tolerance_is_of_the_whole_log_likelihood(
    newton: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the factorials the objective of large counts is 1e5 times as large."""
    if not newton:
        monkeypatch.setattr(Counts, "takes_newton", lambda *_: False)
    x, tolerance = 1000 * table(40, 7) + 50, 1e-3
    found = fit(model("poisson"), x, Factorize(tolerance=tolerance), "random", num_restarts=1)
    gains = found.trace.objective.diff() / (tolerance * abs(found.log_likelihood))
    assert float(gains[-1]) <= 1
    assert bool((gains[:-1] > 1).all())
