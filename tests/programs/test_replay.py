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



def test_answers_of_yes_and_no_are_noted_and_every_set_of_them_is_recorded_once():
    runs = []

    def branching(x):
        runs.append(x)
        return (x * 2 if x.sum() > 0 else x * 3,)

    up, down = torch.ones(3, dtype=F64), -torch.ones(3, dtype=F64)
    replay = recorded(branching, up)
    assert replay is not branching
    torch.testing.assert_close(replay(5 * up)[0], 10 * up, rtol=0, atol=0)
    before = len(runs)
    torch.testing.assert_close(replay(down)[0], 3 * down, rtol=0, atol=0)  # another answer: run, and recorded
    assert len(runs) > before
    before = len(runs)
    for point in (7 * down, 7 * up, 2 * down):
        torch.testing.assert_close(replay(point)[0], point * (2 if point.sum() > 0 else 3), rtol=0, atol=0)
    assert len(runs) == before


def test_what_depends_on_the_size_of_a_value_is_not_recorded():
    def sized(x):
        return (x * int(x.sum().round()),)

    def counted(x):
        return (x[x > 0].sum() + 0 * x,)

    start = torch.ones(3, dtype=F64)
    assert recorded(sized, start) is sized
    replay = recorded(counted, start)
    for point in (start, torch.tensor([1.0, -1.0, 2.0], dtype=F64)):
        torch.testing.assert_close(replay(point)[0], counted(point)[0])
