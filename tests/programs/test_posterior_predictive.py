"""Data drawn at the covariates of others, into which programs read them, and replicates of them."""

from __future__ import annotations

import math
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from support.user_programs import uniform
from torch import Tensor

from inference import EM, Bootstrap, fit
from inference.bootstrap import bootstrap
from inference.programs.posterior_predictive import drawn_data, replicate
from inference.programs.program import Program
from inference.uncertainty import standard_errors

X = 4 * uniform(60, seed=3) - 2
Y = torch.where(uniform(60, seed=4) < 0.5, 1 + 2 * X, -1 - X) + 0.3 * uniform(60, seed=5)
START = {"a": torch.tensor([1.0, -1.0]), "b": torch.tensor([2.0, -1.0])}


def two_lines(x: Tensor, y: Tensor, seen: Tensor | None = None) -> None:
    a = pyro.sample("a", dist.Normal(torch.zeros(2), 10.0).to_event(1))
    b = pyro.sample("b", dist.Normal(torch.zeros(2), 10.0).to_event(1))
    with pyro.plate("rows", len(y)):
        z = pyro.sample("z", dist.Categorical(torch.tensor([0.5, 0.5])))
        pyro.sample("y", dist.Normal(a[z] + b[z] * x, 0.3), obs=y, obs_mask=seen)


def steps(data: dict[str, Tensor]) -> None:
    """Each step a multiple of the step before, all but exactly."""
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    y = data["y"]
    with pyro.plate("rows", len(y)):
        z = pyro.sample("z", dist.Bernoulli(0.5))
        pyro.sample("y_0", dist.Normal(2 * z - 1, 0.5), obs=y[:, 0])
        for t in range(1, y.shape[1]):
            pyro.sample(f"y_{t}", dist.Normal(slope * y[:, t - 1], 1e-9), obs=y[:, t])


def test_steps_follow_the_drawn_steps_before() -> None:
    given = {"y": torch.randn(7, 4, dtype=torch.float64)}
    program = Program(steps, given)
    drawn = drawn_data(program, {"slope": torch.tensor(0.5, dtype=torch.float64)}, 1)["y"]
    assert not torch.allclose(drawn, given["y"], atol=0.1)
    assert torch.allclose(drawn[:, 1:], 0.5 * drawn[:, :-1], atol=1e-7)


def test_rows_are_drawn_at_their_covariates_with_the_gaps_of_the_data() -> None:
    x, missing = X.repeat(100), torch.arange(6000) % 7 == 0
    y = Y.repeat(100)
    slopes = {name: value.double() for name, value in START.items()}
    gaps = {"x": x, "y": y.masked_fill(missing, math.nan)}
    for data in (gaps, {"x": x, "y": y, "seen": ~missing}):
        program = Program(lambda data: two_lines(**data), data)
        drawn = drawn_data(program, slopes, 0)
        assert torch.equal(drawn["x"], x)
        new = drawn["y"]
        kept = new.isnan() if "seen" not in data else new == y
        assert torch.equal(kept, missing)
        mean, spread = 0.5 * x, (0.3**2 + (1 + 1.5 * x) ** 2).sqrt()  # of two lines, by hand
        away = ((new - mean) / spread)[~missing]
        assert abs(float(away.mean())) < 4 / math.sqrt(len(away))
        assert float((away**2).mean()) == pytest.approx(1, abs=0.05)
        assert torch.equal(data["y"].isnan(), gaps["y"].isnan() & ("seen" not in data))


def test_replicates_of_a_program_spread_like_its_standard_errors() -> None:
    found = fit(two_lines, (X, Y), EM(), init=START)
    replicated = bootstrap(found, (X, Y), num_replicates=20)
    errors = standard_errors(found, (X, Y)).standard_errors
    assert replicated.draws is not None
    for name, error in errors.items():
        ratio = replicated.draws[name][0].std(0) / error
        assert 0.65 < float(ratio.mean()) < 1.4
    same = fit(two_lines, (X, Y), Bootstrap(EM(), 2), init=START)
    assert same.draws is not None
    assert same.draws["a"].shape == (1, 2, 2)


def test_data_that_are_computed_held_or_read_too_early_are_refused() -> None:
    def computed(y: Tensor) -> None:
        two_lines(X, 2 * y)

    def held() -> None:
        two_lines(X, Y)

    def at_once(y: Tensor) -> None:
        slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y) - 1):
            z = pyro.sample("z", dist.Bernoulli(0.5))
            pyro.sample("y", dist.Normal(slope * y[:-1] + z, 1.0), obs=y[1:])

    refused: tuple[tuple[Any, Any, str], ...] = (
        (computed, Y, "computed or held elsewhere"),
        (held, None, "computed or held elsewhere"),
        (at_once, Y, "draw them step by step"),
    )
    for model, data, words in refused:
        found = fit(model, data, EM(), init=START if model is not at_once else None)
        with pytest.raises(ValueError, match=words) as error:
            bootstrap(found, data, num_replicates=2)
        assert "\n" not in str(error.value)


def test_data_like_those_given_are_exported() -> None:
    found = fit(two_lines, (X, Y), EM(), init=START)
    table = found.to_arviz((X, Y), num_predictive=1, num_prior=2)
    assert table.posterior_predictive["y"].shape == (1, 1, 60)
    assert table.prior_predictive["y"].shape == (1, 2, 60)
    with pytest.raises(ValueError, match="two_lines is none: to_arviz"):
        found.simulate(3)


def with_record(x: Tensor, y: Tensor) -> None:
    """The same rows with a deterministic record of what each line predicts."""
    a = pyro.sample("a", dist.Normal(torch.zeros(2), 10.0).to_event(1))
    with pyro.plate("rows", len(y)):
        z = pyro.sample("z", dist.Categorical(torch.tensor([0.5, 0.5])))
        mean = pyro.deterministic("mean", a[z] + x)
        pyro.sample("y", dist.Normal(mean, 1e-9), obs=y)


def test_what_is_recorded_stays_computed_in_a_replicate() -> None:
    drawn = replicate(Program(lambda data: with_record(**data), {"x": X, "y": Y}), START, 0)
    assert drawn["y"].shape == Y.shape
    first = (drawn["y"] - X - START["a"][0]).abs() < 1e-6
    second = (drawn["y"] - X - START["a"][1]).abs() < 1e-6
    assert bool((first ^ second).all())
    assert 10 < int(first.sum()) < 50
