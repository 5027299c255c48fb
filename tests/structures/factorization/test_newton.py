"""Newton steps of dense counts: derivatives, no losses, and the optimum that starts share."""

import pytest
import torch

from inference import fit
from inference.structures.factorization.newton import Corner, newton
from inference.structures.factorization.starts import random_factors
from inference.structures.factorization.updates import (
    Counts,
    DispersedCounts,
    LinearlyDispersedCounts,
)
from ppl_models import PoissonFactorization

F64 = torch.float64


def table(num_rows: int, seed: int, missing: float = 0.0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    z = torch.rand(num_rows, 3, generator=draw, dtype=F64) ** 2 * 60
    phi = torch.rand(3, 12, generator=draw, dtype=F64) ** 3
    x = torch.poisson(z @ (phi / phi.sum(-1, keepdim=True)) + 0.01, generator=draw)
    out = torch.rand(x.shape, generator=draw) < missing
    return x.masked_fill(out, torch.nan)


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
    (slope,) = torch.autograd.grad(own.cells(mu).sum(), mu)
    found, bend = own.slopes(mu.detach())
    assert torch.allclose(found, slope, rtol=1e-8, atol=1e-9)
    assert bool((bend >= 0).all())


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


def test_single_starts_share_an_optimum() -> None:
    x = table(80, 3)
    ends = [
        fit(PoissonFactorization(12, 3), x, init="random", num_restarts=1, seed=seed).log_likelihood
        for seed in range(6)
    ]
    assert sum(end > max(ends) - 0.1 for end in ends) >= 5
