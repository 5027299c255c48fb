"""Statistics of parts of the rows: what is summed, what is not, and what cannot be put together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from inference import EM
from inference.base.steps import Steps, add_statistics, maximise_free, summed_statistics
from inference.base.structure import set_steps
from inference.fitting.problem import problem_of
from inference.programs.program import Program
from inference.structures.layers.em_steps import LayeredSteps, SetSteps
from inference.structures.mixture.steps import MixtureSteps
from inference.structures.noisy_or.em_steps import CauseRows, CauseSteps
from inference.structures.noisy_or.truncated_em import TruncatedSteps
from ppl_models import (
    DeepDiscreteEncoder,
    FactorAnalysis,
    Mixture,
    MultivariateNormal,
    NoisyOr,
    Normal,
    TruncatedLasso,
)
from ppl_models.parts.distributions import binary_configurations

F64 = torch.float64
Params = dict[str, Tensor]


@dataclass(frozen=True)
class Record:
    """One field of each kind."""

    total: dict[str, Tensor]
    each: Tensor = field(metadata={"join": 0})
    table: Tensor = field(metadata={"sum": False})
    nothing: Tensor | None = None


def record(value: float, num_rows: int, table: float = 1.0) -> Record:
    return Record(
        {"a": torch.full((2,), value)}, torch.full((num_rows,), value), torch.full((3,), table)
    )


def table_of(num_rows: int, num_items: int, missing: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(num_rows)
    data = torch.randn(num_rows, num_items, generator=generator, dtype=F64)
    gone = torch.rand(data.shape, generator=generator) < 0.2
    gone[:4] = False  # a part without missing entries
    return data.masked_fill(gone, math.nan) if missing else data


def steps_and_start(model: Callable, data: Tensor) -> tuple[Steps, Params]:
    problem = problem_of(model, data, 0)
    start = problem.structure.start(problem, "random", 2)
    assert start is not None
    return EM().steps(problem), start


def assert_near(found: object, expected: object) -> None:
    if isinstance(expected, Tensor):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    elif isinstance(expected, dict):
        for name, value in expected.items():
            assert_near(found[name], value)
    elif expected is not None:
        for own in fields(expected):
            assert_near(getattr(found, own.name), getattr(expected, own.name))


def test_sums_joins_and_tables() -> None:
    added = add_statistics([record(1.0, 2), record(2.0, 1), record(4.0, 3)])
    assert added.total["a"].tolist() == [7.0, 7.0]
    assert added.each.tolist() == [1.0, 1.0, 2.0, 4.0, 4.0, 4.0]
    assert added.table.tolist() == [1.0, 1.0, 1.0]
    assert added.nothing is None
    one = record(1.0, 2)
    assert add_statistics([one]) is one


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Record.table is not a sum"):
        add_statistics([record(1.0, 2), record(1.0, 2, table=2.0)])
    with pytest.raises(ValueError, match=r"missing in some"):
        add_statistics([torch.zeros(2, 3), torch.zeros(2, 4, 3)])
    with pytest.raises(ValueError, match=r"missing in some"):
        add_statistics([torch.zeros(2), None])
    with pytest.raises(ValueError, match=r"tensors, dicts of them or records, got str"):
        add_statistics(["a", "b"])
    with pytest.raises(ValueError, match=r"one set of names"):
        add_statistics([{"a": torch.zeros(1)}, {"b": torch.zeros(1)}])


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    "model",
    [FactorAnalysis(4, 2), DeepDiscreteEncoder(4, (2,), Normal())],
    ids=lambda m: type(m).__name__,
)
def test_a_part_without_missing_entries_fits_the_others(model: Callable, missing: bool) -> None:
    data = table_of(30, 4, missing)
    steps, start = steps_and_start(model, data)
    whole, expected, _ = steps.e_step(start)
    added, log_likelihood = summed_statistics(
        steps, start, (part for part in data.split([4, 10, 16]))
    )
    assert_near(added, whole)
    assert_near(log_likelihood, expected)
    assert_near(steps.m_step(added, start), steps.m_step(whole, start))


def test_full_covariances_stay_about_one_centre() -> None:
    data = 100 + table_of(40, 3)
    steps, start = steps_and_start(Mixture(2, MultivariateNormal(), 3, bound=1e4), data)
    whole = steps.e_step(start)[0]
    added, _ = summed_statistics(steps, start, data.split(7))
    assert torch.equal(added.of_distribution.centre, data.mean(0))
    assert_near(added, whole)
    with pytest.raises(
        ValueError, match=r"NormalStatistics.centre is not a sum"
    ):  # steps of their own
        add_statistics(
            [
                steps_and_start(Mixture(2, MultivariateNormal(), 3, bound=1e4), part)[0].e_step(
                    start
                )[0]
                for part in data.split(20)
            ]
        )


def test_many_data_sets_are_split_by_rows() -> None:
    model, sets = (
        DeepDiscreteEncoder(4, (2,), Normal()),
        torch.stack([table_of(30, 4), table_of(30, 4) + 1]),
    )
    _, start = steps_and_start(model, sets[0])
    base = LayeredSteps.build(model, sets)
    assert base is not None
    steps, params = SetSteps(base), start | {"data set": torch.tensor([0.0, 1.0], dtype=F64)}
    added, log_likelihood = summed_statistics(steps, params, sets.split(11, dim=1))
    whole, expected, _ = steps.e_step(params)
    assert_near(added, whole)
    assert_near(log_likelihood, expected)


def test_data_sets_side_by_side_have_each_its_own_least_variances() -> None:
    """A component of one row, in columns and data sets of other units: steps as of each alone."""
    units = torch.tensor([[[1.0, 10.0]], [[200.0, 50.0]]], dtype=F64)
    sets = units * torch.stack([table_of(20, 2), table_of(20, 2).flip(0)])
    model = Mixture(2, Normal(), 2)
    problems = [problem_of(model, data, 0) for data in sets]
    alone = [EM().steps(problem) for problem in problems]
    assert all(isinstance(steps, MixtureSteps) for steps in alone)
    params = {
        "weights": torch.full((2, 2), 0.5, dtype=F64),
        "predictors": torch.stack([sets[:, 0], sets.mean(1)], 1),
        "dispersion": torch.stack([torch.stack([s.floor for s in alone]), sets.var(1)], 1),
    }
    together = set_steps(problems[0].structure, problems[0], sets, 2**18, 1)
    assert together is not None
    both = params | {"data set": torch.tensor([0.0, 1.0], dtype=F64)}
    found = together.m_step(together.e_step(both).statistics, both)
    for r, steps in enumerate(alone):
        own = {name: value[r : r + 1] for name, value in params.items()}
        expected = steps.m_step(steps.e_step(own).statistics, own)
        torch.testing.assert_close(expected["dispersion"][0, 0], steps.floor)
        for name, value in expected.items():
            torch.testing.assert_close(found[name][r : r + 1], value)


def test_the_easier_objective_is_less_by_a_lasso_of_the_same_slope() -> None:
    penalty = TruncatedLasso(3.0, 0.4)
    model = DeepDiscreteEncoder(4, (2,), Normal(), penalty=penalty)
    base, start = steps_and_start(model, table_of(30, 4))
    steps = base.relax()
    assert steps is not None
    loadings = torch.linspace(-1, 2, 16, dtype=F64).reshape(2, 4, 2)
    slope = float(penalty(torch.tensor(1e-6, dtype=F64))) / 1e-6
    prior = {
        scale: steps.e_step(start | {"loadings_1": scale * loadings}).log_prior for scale in (0, 1)
    }
    expected = -slope * loadings.abs().sum((-2, -1))
    torch.testing.assert_close(prior[1] - prior[0], expected)


def test_posteriors_of_a_plain_program_are_no_sums() -> None:
    data = table_of(12, 4)
    problem = problem_of(DeepDiscreteEncoder(4, (2,), Normal()), data, 0)
    steps, start = (
        EM(accelerate=False).steps(problem),
        problem.structure.start(problem, "random", 2),
    )
    parts = [steps.on(part).e_step(start) for part in data.split(5)]
    assert_near(sum(part[1] for part in parts), steps.e_step(start)[1])
    with pytest.raises(ValueError, match=r"FactorPosteriors.weights is not a sum"):
        add_statistics([part[0] for part in parts])


def test_states_of_truncated_steps_belong_to_their_rows() -> None:
    data = (table_of(10, 3) > 0).to(F64)
    steps, start = steps_and_start(NoisyOr(3, 2), data)
    assert isinstance(steps, CauseSteps)
    one = {name: value[:1] for name, value in start.items()}
    truncated = TruncatedSteps.begin(
        steps.causes, CauseRows.merge(data), binary_configurations(2), one
    )
    with pytest.raises(ValueError, match="states belong to their rows"):
        truncated.on(data)


def test_no_parts_are_refused() -> None:
    steps, start = steps_and_start(FactorAnalysis(4, 2), table_of(30, 4))
    with pytest.raises(ValueError, match="at least one part"):
        summed_statistics(steps, start, [])


@pytest.mark.parametrize("slope", [50.0, 80.0])
def test_a_free_maximum_lies_before_the_point_where_the_density_ends(slope: float) -> None:
    """Beyond 1 the density is no number: the line search turns back, and does not fail."""

    def model(x: Tensor) -> None:
        level = pyro.sample("level", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("x", dist.Normal(level, 1.0), obs=x)

    def bound(params: Params) -> Tensor:
        level = params["level"]
        curve = slope * level + (1 - level.clamp(max=1)).log() * (slope > 60)
        return torch.where(level < 1, curve, torch.nan)

    program = Program(model, torch.zeros(3, dtype=torch.float64))
    start = {"level": torch.tensor([-3.0], dtype=torch.float64)}
    level = float(maximise_free(program, bound, start, 30)["level"])
    assert 0.95 < level < 1
