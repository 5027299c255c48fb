"""Closed forms of M-steps, recognised by their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor

from inference import EM, fit
from inference.programs import expectation
from inference.programs.conjugate import closed_form
from inference.programs.expectation import Expectation
from inference.programs.program import Program
from inference.programs.restarts import inner_points
from inference.programs.sufficient_rows import sufficient_rows

F64 = torch.float64
SIZE = 600
Model = Callable[[Any], None]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def flat(size: int) -> Any:
    return dist.Dirichlet(torch.ones(size, dtype=F64))


NORMAL, WIDE = dist.Normal(0.0, 5.0), dist.LogNormal(0.0, 2.0)


def mixture(
    response: Callable[..., Any], around: Callable[[], Any] = lambda: None, **priors: Any
) -> Model:
    """Three classes with a parameter each for every prior, in one plate over the classes."""

    def program(data: Any) -> None:
        weights = pyro.sample("weights", dist.Dirichlet(2 * torch.ones(3, dtype=F64)))
        with pyro.plate("classes", 3):
            own = {name: pyro.sample(name, prior) for name, prior in priors.items()}
        y = data["y"] if isinstance(data, dict) else data
        with pyro.plate("rows", len(y)):
            z = pyro.sample("z", dist.Categorical(weights))
            chosen = {name: value[z] for name, value in own.items()}
            if isinstance(data, dict):
                chosen["data"] = data
            pyro.sample("y", response(**chosen), obs=y)

    return program


def chain(data: Tensor) -> None:
    first = pyro.sample("first", flat(2))
    moves = pyro.sample("moves", dist.Dirichlet(2 * torch.ones(2, 2, dtype=F64)).to_event(1))
    place = pyro.sample("place", dist.Normal(torch.zeros(2, dtype=F64), 5.0).to_event(1))
    spread = pyro.sample("spread", dist.Gamma(2.0, 1.0))
    state = None
    for t in pyro.markov(range(len(data))):
        state = pyro.sample(f"z_{t}", dist.Categorical(first if state is None else moves[state]))
        pyro.sample(f"x_{t}", dist.Normal(place[state], spread), obs=data[t])


def params(data: Tensor) -> None:
    weights = pyro.param("weights", torch.tensor([0.3, 0.7], dtype=F64), dist.constraints.simplex)
    place = pyro.param("place", torch.tensor([-1.0, 1.0], dtype=F64))
    spread = pyro.param("spread", torch.ones(2, dtype=F64), dist.constraints.positive)
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("y", dist.Normal(place[z], spread[z]), obs=data)


def categories(data: Tensor) -> None:
    weights = pyro.sample("weights", flat(2))
    with pyro.plate("classes", 2):
        probs = pyro.sample("probs", dist.Dirichlet(torch.tensor([1.5, 2.0, 3.0], dtype=F64)))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("y", dist.Categorical(probs[z]), obs=data)


def one_at_a_time(data: Tensor) -> None:
    """Restarts do not run together: a parameter is read as a number."""
    spread = pyro.sample("spread", WIDE)
    place = pyro.sample("place", dist.Normal(torch.zeros(2, dtype=F64), 5.0).to_event(1))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(torch.tensor([0.4, 0.6], dtype=F64)))
        mean = torch.where(z == 0, place.reshape(2)[0], place.reshape(2)[1])
        pyro.sample("y", dist.Normal(mean, spread.reshape(())), obs=data)


def joined(data: Tensor) -> None:
    """Means whose prior has a mean that is estimated, at known spread."""
    middle = pyro.sample("middle", NORMAL)
    place = pyro.sample("place", dist.Normal(middle.expand(2), 1.0).to_event(1))
    spread = pyro.sample("spread", dist.HalfNormal(2.0))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(torch.tensor([0.4, 0.6], dtype=F64)))
        mean = torch.where(z == 0, place[..., :1], place[..., 1:])
        pyro.sample("y", dist.Normal(mean, spread.unsqueeze(-1)), obs=data)


def line(a: Tensor, b: Tensor, s: Tensor, data: Any) -> Any:
    return dist.Normal(a + b * data["x"], s)


GAPS = torch.where(drawn(SIZE, seed=4) > 1, torch.nan, 2 * drawn(SIZE))
COUNTS = torch.poisson(torch.full((SIZE,), 3.0, dtype=F64), torch.Generator().manual_seed(0))
BITS = (COUNTS > 2).double()
FRAME = {"x": drawn(SIZE, seed=1), "y": drawn(SIZE)}
EXPOSED = {"x": drawn(SIZE, seed=1).exp(), "y": COUNTS}


def masked(m: Tensor, s: Tensor, data: Any) -> Any:
    return dist.Normal(m, s).mask(data["x"] > -1)


CLOSED: dict[str, tuple[Model, Any]] = {
    "normal": (mixture(dist.Normal, loc=NORMAL, scale=WIDE), drawn(SIZE)),
    "variances": (
        mixture(lambda m, v: dist.Normal(m, v.sqrt()), m=NORMAL, v=dist.InverseGamma(2.0, 1.0)),
        drawn(SIZE),
    ),
    "precisions": (
        mixture(lambda m, p: dist.Normal(m, p.rsqrt()), m=NORMAL, p=dist.Gamma(2.0, 1.0)),
        drawn(SIZE),
    ),
    "known spread": (mixture(lambda m: dist.Normal(m, 0.7), m=NORMAL), drawn(SIZE)),
    "gaps": (mixture(dist.Normal, loc=NORMAL, scale=WIDE), GAPS),
    "lines": (mixture(line, a=NORMAL, b=dist.Laplace(0.0, 1e9), s=WIDE), FRAME),
    "counts": (mixture(dist.Poisson, rate=dist.Gamma(2.0, 1.0)), COUNTS),
    "log-rates": (mixture(lambda u: dist.Poisson(u.exp()), u=NORMAL), COUNTS),
    "exposures": (
        mixture(lambda r, data: dist.Poisson(r * data["x"]), r=dist.Gamma(2.0, 1.0)),
        EXPOSED,
    ),
    "waiting times": (mixture(dist.Exponential, rate=WIDE), drawn(SIZE).exp()),
    "bits": (mixture(dist.Bernoulli, probs=dist.Beta(2.0, 3.0)), BITS),
    "bits in an interval": (
        mixture(lambda p: dist.Bernoulli(p / 2), p=dist.Uniform(0.0, 2.0)),
        BITS,
    ),
    "categories": (categories, COUNTS.clamp(max=2).long()),
    "scale": (poutine.scale(mixture(dist.Normal, loc=NORMAL, scale=WIDE), 0.5), drawn(SIZE)),
    "mask": (mixture(masked, m=NORMAL, s=WIDE), FRAME),
    "chain": (chain, drawn(SIZE)),
    "params": (params, drawn(SIZE)),
    "one at a time": (one_at_a_time, drawn(SIZE)),
    "joined": (joined, drawn(SIZE)),
}


def shared(data: Tensor) -> None:
    """Rates that are also the scales of a second site."""
    rate = pyro.sample("rate", dist.Gamma(2 * torch.ones(2, dtype=F64), 1.0).to_event(1))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(torch.tensor([0.4, 0.6], dtype=F64)))
        pyro.sample("y", dist.Poisson(rate[z]), obs=data)
        pyro.sample("t", dist.StudentT(4.0, 0.0, rate[z]), obs=data - 3)


def weights_twice(data: Tensor) -> None:
    """Weights of the classes that are also the mean of a response."""
    weights = pyro.sample("weights", flat(2))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("y", dist.Normal(weights[..., :1] + 2.0 * z, 1.0), obs=data)


def levels(data: Tensor) -> None:
    """A prior of the means with a spread that is estimated."""
    between = pyro.sample("between", dist.HalfNormal(1.0))
    place = pyro.sample("place", dist.Normal(0.0, between.expand(2)).to_event(1))
    spread = pyro.sample("spread", dist.HalfNormal(1.0))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(torch.tensor([0.4, 0.6], dtype=F64)))
        pyro.sample("y", dist.Normal(place[z], spread), obs=data)


OPEN: dict[str, tuple[Model, Any]] = {
    "a parameter of two sites": (shared, COUNTS),
    "weights as a mean": (weights_twice, drawn(SIZE)),
    "a prior with its own spread": (levels, drawn(SIZE)),
    "mean and scale in one": (
        mixture(lambda m: dist.Normal(m, 0.1 + m.square()), m=NORMAL),
        drawn(SIZE),
    ),
    "a transformed mean": (
        mixture(lambda m, s: dist.Normal(m.tanh(), s), m=NORMAL, s=WIDE),
        drawn(SIZE),
    ),
    "a shifted scale": (
        mixture(lambda m, s: dist.Normal(m, 0.1 + s), m=NORMAL, s=WIDE),
        drawn(SIZE),
    ),
    "a prior of heavy tails": (
        mixture(dist.Normal, loc=NORMAL, scale=dist.HalfCauchy(1.0)),
        drawn(SIZE),
    ),
    "log-odds": (mixture(lambda m: dist.Bernoulli(logits=m), m=NORMAL), BITS),
    "a sum of rates": (
        mixture(lambda a, b: dist.Poisson(a + b), a=WIDE, b=WIDE),
        COUNTS,
    ),
    "heavy tails": (mixture(lambda m: dist.StudentT(3.0, m, 1.0), m=NORMAL), drawn(SIZE)),
    "a floor": (
        mixture(lambda m, s: dist.Normal(m, s.clamp(min=0.8)), m=NORMAL, s=WIDE),
        drawn(SIZE),
    ),
}


def ends(program: Program, at: dict[str, Tensor]) -> tuple[Any, dict[str, Tensor], Expectation]:
    """Posteriors at a point, the maximiser from there, and what found it."""
    halves = Expectation(program)
    posteriors = halves.posteriors(at)
    return posteriors, halves.maximise(posteriors, at, 100), halves


def by_newton(
    program: Program, at: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Tensor]:
    """Maximiser by Newton's method, which is asked until it has arrived."""
    with monkeypatch.context() as patch:
        patch.setattr(expectation, "closed_form", lambda _: None)
        halves = Expectation(program)
        posteriors = halves.posteriors(at)
        for _ in range(6):
            at = halves.maximise(posteriors, at, 100)
    return at


@pytest.mark.parametrize("name", CLOSED)
def test_a_closed_form_is_newtons_maximum(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(*CLOSED[name])
    start = inner_points(program)
    posteriors, new, halves = ends(program, start)
    assert halves._closed is not None
    expected = by_newton(program, start, monkeypatch)
    for site, value in expected.items():
        torch.testing.assert_close(new[site], value, rtol=1e-5, atol=1e-7)
    with torch.no_grad():
        before, best, value = (
            program.expected_log_joint(point, posteriors) for point in (start, expected, new)
        )
    assert bool((value >= before).all())
    assert bool((value >= best - 1e-9 * best.abs()).all())


@pytest.mark.parametrize("name", OPEN)
def test_what_only_looks_conjugate_is_left_to_newton(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(*OPEN[name])
    start = inner_points(program)
    _, new, halves = ends(program, start)
    assert halves._closed is None
    with monkeypatch.context() as patch:
        patch.setattr(expectation, "closed_form", lambda _: None)
        _, expected, _ = ends(program, start)
    for site, value in expected.items():
        torch.testing.assert_close(new[site], value, rtol=1e-6, atol=1e-8)


def test_a_floor_beyond_the_trial_is_found_where_the_parameters_are() -> None:
    model = mixture(lambda m, s: dist.Normal(m, s.clamp(min=1e-3)), m=NORMAL, s=WIDE)
    program = Program(model, drawn(SIZE))
    few = sufficient_rows(program)
    assert few is not None
    assert closed_form(few.program) is not None  # at the points of the trial there is none
    start = inner_points(program)
    start["s"] = torch.full_like(start["s"], 1e-5)
    _, _, halves = ends(program, start)
    assert halves._closed is None


def test_closed_forms_that_no_longer_agree_are_left_for_newton(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = Program(*CLOSED["normal"])
    start = inner_points(program)
    posteriors, new, halves = ends(program, start)
    monkeypatch.setattr(type(halves._closed), "agrees", lambda *_, **__: False)
    again = halves.maximise(posteriors, start, 100)
    assert halves._closed is None
    assert halves._few is None
    for site, value in new.items():
        torch.testing.assert_close(again[site], value, rtol=1e-3, atol=1e-3)


def test_a_class_without_rows_is_left_to_newton() -> None:
    """Counts below one with a prior below one have no maximum inside."""

    def sparse(data: Tensor) -> None:
        weights = pyro.sample("weights", dist.Dirichlet(torch.full((3,), 0.5, dtype=F64)))
        place = torch.tensor([-1.0, 1.0, 900.0], dtype=F64)
        spread = pyro.sample("spread", WIDE)
        with pyro.plate("rows", len(data)):
            z = pyro.sample("z", dist.Categorical(weights))
            pyro.sample("y", dist.Normal(place[z], spread), obs=data)

    program = Program(sparse, drawn(SIZE))
    start = inner_points(program)
    posteriors, new, halves = ends(program, start)
    assert halves._closed is not None
    assert all(bool((value > 0).all() and value.isfinite().all()) for value in new.values())
    with torch.no_grad():
        before, after = (program.expected_log_joint(at, posteriors) for at in (start, new))
    assert bool((after >= before).all())


@pytest.mark.parametrize(("shift", "near"), [(0.0, 1e-6), (100.0, 1e-6), (1e5, 1e-3)])
def test_means_far_from_zero_keep_their_digits(shift: float, near: float) -> None:
    """The weighted variance of all rows, whether or not the sums of squares cancel."""

    def one(data: Tensor) -> None:
        place = pyro.sample("place", dist.Normal(0.0, 1e6))
        spread = pyro.sample("spread", dist.LogNormal(0.0, 3.0))
        with pyro.plate("rows", len(data)):
            pyro.sample("z", dist.Bernoulli(0.5))
            pyro.sample("y", dist.Normal(place, spread), obs=data)

    data = drawn(SIZE) + shift
    program = Program(one, data)
    start = {"place": data.mean().reshape(1) + 1, "spread": torch.ones(1, dtype=F64)}
    _, new, _ = ends(program, start)
    torch.testing.assert_close(new["place"][0], data.mean(), rtol=0, atol=near)
    expected = (data.var(correction=0) * SIZE / (SIZE + 1)).sqrt()  # the prior counts once
    torch.testing.assert_close(new["spread"][0], expected, rtol=near, atol=0)


@pytest.mark.parametrize("name", ["normal", "variances", "chain", "counts"])
def test_fits_by_closed_forms_are_those_by_newton(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = CLOSED[name]
    shift = (torch.arange(SIZE) // 7 % 3).double()  # classes far apart
    data = data + (40 if name == "counts" else 7) * shift
    start = {site: value[0] for site, value in inner_points(Program(model, data)).items()}
    levels = torch.tensor([1.0, 40.0, 80.0] if name == "counts" else [0.0, 7.0, 14.0], dtype=F64)
    means = next(site for site in ("loc", "m", "place", "rate") if site in start)
    start[means] = levels[: len(start[means])]
    method = EM(acceleration=None)
    closed = fit(model, data, method, init=start)
    with monkeypatch.context() as patch:
        patch.setattr(expectation, "closed_form", lambda _: None)
        newton = fit(model, data, method, init=start)
    assert bool((closed.trace.objective.diff() > -1e-9 * abs(closed.log_likelihood)).all())
    assert closed.log_likelihood == pytest.approx(newton.log_likelihood, abs=1e-3)
