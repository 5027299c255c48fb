"""Newton's method by few products of a sparse matrix of second derivatives."""

from __future__ import annotations

import math

import torch

from inference.programs.curvature import Colouring, climb

F64 = torch.float64


def test_a_sparse_matrix_is_found_from_a_product_a_colour():
    generator = torch.Generator().manual_seed(1)
    blocks = [torch.randn(2, n, n, generator=generator, dtype=F64) for n in (3, 1, 2, 3)]
    matrices = torch.stack(
        [torch.block_diag(*(block[s] + block[s].mT for block in blocks)) for s in (0, 1)]
    )
    colouring = Colouring.of(matrices, torch.full((9,), torch.inf))
    assert len(colouring.seeds) == 3  # the widest block
    products = torch.einsum("cp,rqp->crq", colouring.seeds.to(F64), matrices)
    torch.testing.assert_close(colouring.matrix(products), matrices)


def derivatives(function):
    """Value, gradient and second derivatives of a function of (P,), at (R, P)."""

    def first(at):
        rows = [row.clone().requires_grad_() for row in at]
        values = [function(row) for row in rows]
        return torch.stack(values).detach(), torch.stack(
            [torch.autograd.grad(v, row)[0] for v, row in zip(values, rows, strict=True)]
        )

    def second(at):
        return *first(at), torch.stack(
            [torch.autograd.functional.hessian(function, row) for row in at]
        )

    return first, second


def test_a_climb_arrives_from_a_saddle_and_never_falls():
    def valley(x):  # a saddle near the middle, optima at (+-1, 0)
        return -((x[0] ** 2 - 1) ** 2) - 3 * (x[1] - x[0] ** 2 + 1) ** 2

    start = torch.tensor([[0.01, -1.0], [0.9, 3.0], [-2.0, 0.5]], dtype=F64)
    first, second = derivatives(valley)
    before = first(start)[0]
    for most in (1, 2, 3, 5, 8, 40):
        end, arrived = climb(first, second, start, torch.full((2,), torch.inf), most)
        value = first(end)[0]
        assert bool((value >= before).all())
        before = value
    assert bool(arrived.all())
    end, _ = climb(
        first, second, end, torch.full((2,), torch.inf), 40
    )  # a step that gains a millionth of the way is not taken
    torch.testing.assert_close(
        end, torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], dtype=F64), atol=1e-4, rtol=0
    )


def test_no_coordinate_moves_farther_than_its_reach_in_one_step():
    def logistic(x):
        return 3 * x[0] - 4 * torch.nn.functional.softplus(x[0]) - (x[1] - 50) ** 2

    first, second = derivatives(logistic)
    start = torch.tensor(
        [[-12.0, 0.0]], dtype=F64
    )  # far out, where Newton's step would be some 100,000 units long
    end, _ = climb(first, second, start, torch.tensor([2.0, torch.inf], dtype=F64), 1)
    assert abs(float(end[0, 0]) + 10.0) < 1e-9
    end, arrived = climb(first, second, start, torch.tensor([2.0, torch.inf], dtype=F64), 40)
    assert bool(arrived.all())
    end, _ = climb(first, second, end, torch.tensor([2.0, torch.inf], dtype=F64), 40)
    torch.testing.assert_close(
        end[0], torch.tensor([math.log(3), 50.0], dtype=F64), atol=1e-4, rtol=0
    )
