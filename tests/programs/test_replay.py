"""A recorded function is the function."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from inference import fit
from inference.programs import replay
from inference.programs.replay import recorded, recorded_by_rows

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
    torch.testing.assert_close(
        replay(down)[0], 3 * down, rtol=0, atol=0
    )  # another answer: run, and recorded
    assert len(runs) > before
    before = len(runs)
    for point in (7 * down, 7 * up, 2 * down):
        torch.testing.assert_close(
            replay(point)[0], point * (2 if point.sum() > 0 else 3), rtol=0, atol=0
        )
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


def operations(function, start):
    """How many operations a replay runs, and the replay."""
    replay = recorded(function, start)
    assert replay is not function
    counter = Counting()
    with counter:
        replay(start)
    return counter.count, replay


class Counting(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_what_is_computed_twice_is_computed_once_and_views_of_views_are_one():
    def function(x):
        again = (x.exp() * 2).sum(-1) + (x.exp() * 2).sum(-1)
        return again, x.reshape(3, 2, 2).transpose(0, 1)[1].detach().unsqueeze(0).expand(2, 3, 2)

    start = torch.randn(3, 4, dtype=F64)
    count, replay = operations(function, start)
    assert count == 7  # exp, mul, sum, add and one view, and a copy of each output
    for point in (
        torch.randn(3, 4, dtype=F64),
        torch.randn(4, 3, dtype=F64).T,
        torch.randn(5, 4, dtype=F64)[2:],
    ):
        for one, two in zip(function(point), replay(point), strict=True):
            assert torch.equal(one, two)


def test_what_is_overwritten_is_not_taken_for_what_it_was():
    def function(x):
        y = x * 2
        part = y.reshape(-1)[1:3]
        before = part + 0.0
        part.mul_(10)
        after = part + 0.0
        twice = x * 2
        twice.add_(1)
        return before, after, y, twice

    start = torch.randn(2, 3, dtype=F64)
    replay = recorded(function, start)
    assert replay is not function
    for one, two in zip(function(start + 1), replay(start + 1), strict=True):
        assert torch.equal(one, two)


def test_the_slope_of_one_of_many_equal_entries_is_not_spread_over_all():
    def function(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            many = (x * 2).unsqueeze(1).expand(3, 1000, 2)
            (gradient,) = torch.autograd.grad((many.narrow(1, 0, 1).exp()).sum(), x)
        return (gradient,)

    sizes = []

    class Largest(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            sizes.append(out.numel())
            return out

    start = torch.randn(3, 2, dtype=F64)
    replay = recorded(function, start)
    with Largest():
        replay(start)
    assert max(sizes) <= 6
    torch.testing.assert_close(replay(start + 1), function(start + 1), rtol=1e-14, atol=0)


def test_a_slice_in_zeros_that_is_added_to_is_summed_as_a_whole():
    """As autograd adds up slopes in place."""

    def function(x):
        padded = torch.ops.aten.slice_backward(x.exp(), [3, 5], 1, 0, 2, 1)
        padded.add_(1)
        return (padded.sum(1),)

    start = torch.randn(3, 2, dtype=F64)
    replay = recorded(function, start)
    assert replay is not function
    torch.testing.assert_close(replay(start + 1), function(start + 1), rtol=1e-14, atol=0)


class _Sizes(TorchDispatchMode):
    """Largest argument of each operation of a kind."""

    def __init__(self, func):
        super().__init__()
        self.func, self.sizes = func, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is self.func:
            self.sizes.append(args[0].numel())
        return func(*args, **(kwargs or {}))


def test_what_all_rows_share_is_computed_once():
    """Also where dims are reordered, reduced, or the result is differentiated."""
    rows, index = torch.randn(500, 2, dtype=F64), torch.arange(3).reshape(3, 1)

    def function(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            scales = x.reshape(3, 2)[index].expand(3, 500, 2)  # one a class, the same in all rows
            heavy = torch.lgamma(scales.exp() + 1)
            value = (heavy * rows).sum(-1) + heavy.sum(-1) + heavy.max(0)[0].sum(-1)
            turned = heavy.permute(1, 2, 0).clone().sum(-1)
            total = value.sum() + (turned * rows).sum() + (heavy + rows).square().sum()
            (gradient,) = torch.autograd.grad(total, x)
        return value.detach(), gradient

    start = torch.randn(6, dtype=F64)
    replay = recorded(function, start)
    assert replay is not function
    for seed in range(4):
        point = torch.randn(6, generator=torch.Generator().manual_seed(seed), dtype=F64)
        for one, two in zip(function(point), replay(point), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)
    with _Sizes(torch.ops.aten.lgamma.default) as seen:
        replay(start)
    assert seen.sizes == [6]


def test_a_program_that_prints_a_value_is_fitted_without_a_replay() -> None:
    """A number in a message is read off its tensor, which a recorded run cannot do."""
    said: list[str] = []

    def model(x: Tensor) -> None:
        weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2).double()))
        location = pyro.sample("location", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
        said.append(f"{location.sum():.3f}")
        with pyro.plate("rows", len(x)):
            group = pyro.sample("group", dist.Categorical(weights))
            pyro.sample("x", dist.Normal(location[group], 1.0), obs=x)

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, generator=generator).double() + 4.0 * torch.arange(60).remainder(2)
    found = fit(model, x)
    assert said
    assert found.params["location"].sort().values.tolist() == pytest.approx([0, 4], abs=0.6)


def test_a_recording_that_holds_too_much_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return ((x.unsqueeze(-1) * torch.arange(100.0)).exp().sum(),)

    point = torch.ones(10)
    assert recorded(function, point) is not function
    monkeypatch.setattr(replay, "MOST_HELD", 4000)
    assert recorded(function, point) is function


def _of_one_row(x):
    """A function of one row (1, P) that reads the leading dim as a place in a table."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        table = torch.nn.functional.pad(x[0].reshape(3, 2), (0, 1)).log_softmax(-1)
        chances = torch.cumprod(torch.sigmoid(x[0]), 0)
        value = table[torch.arange(3), torch.tensor([2, 0, 1])].sum() + chances.log().sum()
        value = (
            value + 0 * torch.bernoulli(x[0, 0].sigmoid()).detach()
        )  # a draw that changes nothing
        value = value * 2 if bool(x[0, 0] > 5) else value
        (gradient,) = torch.autograd.grad(value, x)
    return value.detach().reshape(1), gradient


def test_rows_are_evaluated_at_once_and_one_by_one_where_they_go_different_ways(monkeypatch):
    points = torch.randn(4, 6, generator=torch.Generator().manual_seed(1), dtype=F64)
    each = []
    record = replay.recorded
    monkeypatch.setattr(
        replay,
        "recorded",
        lambda function, point: each.append(0) or counted(record(function, point), each),
    )
    at_once = recorded_by_rows(_of_one_row, points)
    other = points + 0.3
    away = torch.where(torch.arange(4)[:, None] == 2, other + 9, other)  # one row goes another way
    for rows, one_by_one in ((other, 0), (away, 4)):
        each.clear()
        found = at_once(rows)
        assert len(each) == one_by_one
        for k, row in enumerate(rows.split(1)):
            for one, all_ in zip(_of_one_row(row), found, strict=True):
                torch.testing.assert_close(one[0], all_[k], rtol=0, atol=1e-12)


def counted(function, calls):
    def counting(x):
        calls.append(0)
        return function(x)

    return counting


def test_rows_of_large_tensors_are_taken_one_by_one(monkeypatch):
    monkeypatch.setattr(replay, "MOST_TOGETHER", 100)
    points = torch.ones(4, 6, dtype=F64)
    at_once = recorded_by_rows(_of_one_row, points)
    assert at_once.__name__ == "one_by_one"
    torch.testing.assert_close(at_once(points)[0][3:], _of_one_row(points[:1])[0])


def test_what_depends_on_a_shape_alone_and_sums_with_nought_are_not_recorded():
    def function(x):
        return ((torch.zeros_like(x).sum() + x * 1.0 + torch.ones_like(x)) ** 1.0 - 0,)

    recorder = replay._recording(function, torch.ones(3, dtype=F64))
    lines, _ = recorder.shortened(recorder.outputs)
    assert [str(line.func) for line in lines] == ["aten.add.Tensor"] * 2
    again = recorded(function, torch.ones(3, dtype=F64))
    x = torch.tensor([1.0, -2.0, 5.0], dtype=F64)
    torch.testing.assert_close(again(x)[0], x + 1, rtol=0, atol=0)


def test_slopes_of_a_categorical_are_multiplied_with_counts():
    generator = torch.Generator().manual_seed(3)
    seen = torch.randint(0, 3, (5, 4), generator=generator)

    def function(x):  # logits of 5 rows, 4 labels each
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            logits = x.reshape(5, 1, 3).log_softmax(-1).expand(5, 4, 3)
            value = (logits.gather(-1, seen[..., None]).squeeze(-1).sum(1).exp() + 1).log().sum()
            (gradient,) = torch.autograd.grad(value, x)
        return value.detach(), gradient

    start = torch.randn(15, generator=generator, dtype=F64)
    again = recorded(function, start)
    scattered = _Sizes(torch.ops.aten.scatter_add.default)
    with scattered:
        again(start)
    assert not scattered.sizes
    for point in (start + 0.5, 3 * start):
        for one, two in zip(function(point), again(point), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-13, atol=1e-13)
