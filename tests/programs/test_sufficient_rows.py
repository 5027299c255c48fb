"""Rows that stand for all: sufficient statistics recognised by their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from inference.programs import expectation, sufficient_rows as sufficient
from inference.programs.expectation import Expectation
from inference.programs.program import Program
from inference.programs.restarts import inner_points
from inference.programs.sufficient_rows import sufficient_rows

F64 = torch.float64
SIZE = 600


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of these tests are large enough."""
    monkeypatch.setattr(sufficient, "LEAST_TRIED", 1)
    monkeypatch.setattr(sufficient, "MANY_ENTRIES", 1)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def mixture_of(response: Callable[[Tensor, Any], Any]) -> Callable[[Any], None]:
    """Two classes whose responses have a location and a scale each."""

    def program(data: Any) -> None:
        weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2)))
        place = pyro.sample("place", dist.Normal(torch.zeros(2), 5.0).to_event(1))
        scale = pyro.sample("scale", dist.Gamma(torch.ones(2), 1.0).to_event(1))
        size = len(data["y"]) if isinstance(data, dict) else len(data)
        with pyro.plate("rows", size):
            z = pyro.sample("z", dist.Categorical(weights))
            y = data["y"] if isinstance(data, dict) else data
            pyro.sample(
                "y",
                response(place[z], scale[z]) if y is data else response(place[z], (scale[z], data)),
                obs=y,
            )

    return program


def chain(data: Tensor) -> None:
    start = pyro.sample("start", dist.Dirichlet(torch.ones(2)))
    moves = pyro.sample("moves", dist.Dirichlet(torch.ones(2, 2)).to_event(1))
    place = pyro.sample("place", dist.Normal(torch.zeros(2), 5.0).to_event(1))
    state = None
    for t in pyro.markov(range(len(data))):
        state = pyro.sample(f"z_{t}", dist.Categorical(start if state is None else moves[state]))
        pyro.sample(f"x_{t}", dist.Normal(place[state], 1.0), obs=data[t])


def lines(place: Tensor, others: Any) -> Any:
    scale, data = others
    return dist.Normal(place + scale * data["x"], scale)


def logits(place: Tensor, others: Any) -> Any:
    scale, data = others
    return dist.Bernoulli(logits=place + scale * data["x"])


NORMAL = mixture_of(dist.Normal)
COUNTS = torch.poisson(torch.full((SIZE,), 3.0, dtype=F64), torch.Generator().manual_seed(0))
CASES = {  # program, data, and how many functions of a row its log-density is a sum of
    "normal": (NORMAL, drawn(SIZE), 3),  # 1, y, y^2
    "poisson": (mixture_of(lambda place, _: dist.Poisson(place.exp())), COUNTS, 3),  # 1, y, log y!
    "gamma": (mixture_of(lambda place, s: dist.Gamma(s, place.exp())), drawn(SIZE).exp(), 3),
    "lines": (mixture_of(lines), {"x": drawn(SIZE, seed=1), "y": drawn(SIZE)}, 6),
    "chain": (chain, drawn(SIZE), 3),
}


@pytest.mark.parametrize("name", CASES)
def test_an_m_step_on_few_rows_is_that_of_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, data, number = CASES[name]
    ready = Program(program, data)
    found = sufficient_rows(ready)
    assert found is not None
    few = found.program
    assert (
        few.chain.num_rows
        if few.chain
        else len(few.args[0]["y"] if name == "lines" else few.args[0])
    ) == number
    params = inner_points(ready)

    def ends() -> tuple[dict[str, Tensor], Tensor]:
        halves = Expectation(ready)
        posteriors = halves.posteriors(params)
        return halves.maximise(posteriors, params, 100), posteriors.log_marginal

    monkeypatch.setattr(expectation, "closed_form", lambda _: None)
    own, _ = ends()
    monkeypatch.setattr(expectation, "sufficient_rows", lambda _: None)
    all_rows, before = ends()
    for site, value in all_rows.items():
        torch.testing.assert_close(own[site], value, rtol=1e-6, atol=1e-8)
    assert bool((ready.log_marginal(own) > before - 1e-9).all())


def test_a_regression_whose_rows_are_no_sums_of_few_keeps_them_all() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.bernoulli(torch.full((SIZE,), 0.5, dtype=F64), generator=generator)
    program = Program(mixture_of(logits), {"x": 3 * drawn(SIZE), "y": y})
    assert sufficient_rows(program) is None


@pytest.mark.parametrize("share", [0.0, 1e-9, 1e-6, 1e-3])
def test_rows_that_are_nearly_sums_of_few_stay_all(share: float) -> None:
    """A normal row, and a share of a function that is no such sum."""

    def nearly(data: Tensor) -> None:
        place = pyro.sample("place", dist.Normal(torch.zeros(2), 5.0).to_event(1))
        with pyro.plate("rows", len(data)):
            z = pyro.sample("z", dist.Bernoulli(0.4)).long()
            pyro.sample("y", dist.Normal(place[z], 1.0), obs=data)
            pyro.factor("bent", share * torch.sin(3 * data * place[z]))

    found = sufficient_rows(Program(nearly, drawn(SIZE)))
    assert (found is None) == (share > 0)


def test_few_rows_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert sufficient_rows(Program(NORMAL, drawn(100))) is None


def reads_the_mean(data: Tensor) -> None:
    """A prior around the mean of the rows, which few rows do not have."""
    mean = pyro.sample("mean", dist.Normal(data.mean(), 0.01))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Bernoulli(0.5))
        pyro.sample("y", dist.Normal(mean + z, 1.0), obs=data)


def test_a_program_that_reads_all_rows_at_once_keeps_them() -> None:
    assert sufficient_rows(Program(reads_the_mean, drawn(SIZE))) is None


def test_rows_that_no_longer_agree_are_left_for_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expectation, "closed_form", lambda _: None)
    ready = Program(NORMAL, drawn(SIZE))
    params = inner_points(ready)
    halves = Expectation(ready)
    halves.maximise(halves.posteriors(params), params, 100)
    assert halves._few is not None
    found = type(halves._few)
    monkeypatch.setattr(found, "agrees", lambda *_, **__: False)
    moved = halves.maximise(halves.posteriors(params), params, 100)
    assert halves._few is None
    monkeypatch.setattr(expectation, "sufficient_rows", lambda _: None)
    alone = Expectation(ready)
    expected = alone.maximise(alone.posteriors(params), params, 100)
    for site, value in expected.items():
        torch.testing.assert_close(moved[site], value)
