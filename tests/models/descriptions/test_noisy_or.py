"""Logarithms of small and of large failures, to the last digits."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
import torch

from ppl_models.descriptions.noisy_or import log1mexp, log_expm1

F64 = torch.float64


@pytest.mark.parametrize("x", [1e-12, 1e-6, 0.69, 0.70, 40.0])
def test_log1mexp_to_the_last_digits(x: float) -> None:
    with localcontext() as context:
        context.prec = 60
        value = Decimal(x)
        below = 1 - (-value).exp()
        expected, slope, odds = below.ln(), (-value).exp() / below, below.ln() + value
    leaf = torch.tensor(x, dtype=F64, requires_grad=True)
    found = log1mexp(leaf)
    (gradient,) = torch.autograd.grad(found, leaf)
    assert float(found.detach()) == pytest.approx(float(expected), rel=1e-14, abs=1e-300)
    assert float(gradient) == pytest.approx(float(slope), rel=1e-13)
    assert float(log_expm1(leaf.detach())) == pytest.approx(float(odds), rel=1e-12)


def test_weights_are_accurate_at_both_ends() -> None:
    x = torch.tensor(
        [1e-12, 1e-6, 0.69, 0.70, 20.0, 36.9, 37.1, 800.0], dtype=F64, requires_grad=True
    )
    torch.testing.assert_close(log_expm1(x), x + log1mexp(x), rtol=1e-14, atol=1e-14)
    (slope,) = torch.autograd.grad(log_expm1(x).sum(), x)
    torch.testing.assert_close(slope, 1 / -torch.expm1(-x.detach()), rtol=1e-12, atol=0)
    assert bool(log_expm1(torch.tensor([90.0, 500.0])).isfinite().all())  # single precision
