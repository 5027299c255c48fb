"""A recorded function is the function."""

from __future__ import annotations

import torch

from inference.programs.replay import recorded

F64 = torch.float64


def test_a_replay_is_the_function_and_control_flow_is_not_recorded():
    weights = torch.randn(3, 4, dtype=F64)

    def function(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            flag = torch.ones(2, dtype=torch.bool)
            flag &= x[:, 0] > 0  # a constant that is overwritten
            value = torch.logsumexp(x @ weights, -1) * flag + x.clamp(min=0).sum(-1)
            (gradient,) = torch.autograd.grad(value.sum(), x)
        return value.detach(), gradient

    start = torch.randn(2, 3, dtype=F64)
    replay = recorded(function, start)
    assert replay is not function
    for seed in range(4):
        point = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed), dtype=F64)
        for one, two in zip(function(point), replay(point), strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=1e-12)

    def branching(x):
        return (x * 2 if x.sum() > 0 else x * 3,)

    assert recorded(branching, start) is branching
