"""Empty values and copies of a latent, in any program; the search on programs that users write."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.ops.indexing import Vindex
from support.own_programs import F64
from torch import Tensor

from inference import EM, fit
from inference.base.degenerate import shared_values
from inference.base.optima import better_half, distinct_optima, objective_of
from inference.base.structure import Problem
from inference.fitting.problem import problem_of
from inference.programs.program import Params
from ppl_models import Mixture, Normal


def classes(data: Tensor) -> None:
    """Three classes of six yes-or-no answers."""
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(3, dtype=F64)))
    chances = pyro.sample("chances", dist.Beta(torch.full((3, 6), 1.5, dtype=F64), 1.5).to_event(2))
    with pyro.plate("rows", len(data)):
        group = pyro.sample("group", dist.Categorical(weights))
        pyro.sample("answers", dist.Bernoulli(Vindex(chances)[..., group, :]).to_event(1), obs=data)


CHANCES = torch.tensor(
    [
        [0.9, 0.9, 0.9, 0.1, 0.1, 0.1],
        [0.1, 0.1, 0.1, 0.9, 0.9, 0.9],
        [0.9, 0.1, 0.9, 0.1, 0.9, 0.1],
    ],
    dtype=F64,
)


def answers(num_rows: int = 120) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.bernoulli(CHANCES[torch.arange(num_rows) % 3], generator=generator)


def test_the_divergence_is_that_of_the_components():
    """Two normal distributions a distance d apart have a symmetrised divergence of d squared; below
    1e-3 they are one.
    """
    x = torch.linspace(-8, 8, 4001, dtype=F64)
    for distance, same in ((0.02, True), (0.05, False)):
        log_density = torch.stack([-(x**2) / 2, -((x - distance) ** 2) / 2], 1)
        drawn = log_density.exp().sum(
            1
        )  # rows of the grid counted as often as the mixture has them
        rows = torch.multinomial(
            drawn, 200_000, replacement=True, generator=torch.Generator().manual_seed(0)
        )
        words = shared_values(log_density[rows].softmax(-1), "component")
        assert bool(words) is same


@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [
        ([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]], ()),
        (
            [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]],
            ("component 1 is empty: 0 rows expected", "the data support 1 of the 2 components"),
        ),
        (
            [[0.4, 0.4, 0.2], [0.05, 0.05, 0.9], [0.45, 0.45, 0.1]] * 2,
            (
                "components 0 and 1 are copies of each other",
                "the data support 2 of the 3 components",
            ),
        ),
    ],
)
def test_in_words(probabilities, expected):
    assert shared_values(torch.tensor(probabilities, dtype=F64), "component") == expected


def test_a_users_program_is_judged():
    data = answers()
    problem = problem_of(classes, data, 0)
    weights = torch.tensor([0.3, 0.3, 0.4], dtype=F64).expand(2, 3)
    params = {"weights": weights, "chances": torch.stack([CHANCES[[0, 0, 1]], CHANCES])}
    words = (
        "group values 0 and 1 are copies of each other",
        "the data support 2 of the 3 group values",
    )
    assert problem.structure.degenerate(problem, params) == [words, ()]


@pytest.mark.slow
def test_a_users_program_is_searched():
    data = answers()
    long = fit(classes, data, EM(), num_restarts=8, seed=5)
    result = fit(classes, data)
    assert result.restarts.num_tried is not None
    assert result.restarts.num_tried >= result.restarts.num_ended
    assert result.restarts.num_reached >= 3
    assert result.objective >= long.objective - 1e-4


def halved_square() -> tuple[Problem, Params]:
    """Four corners of a square in two components, one restart each: by column, by row, by column
    under other labels, and by column a little beside the optimum.
    """
    corners = torch.tensor([[-3, -3], [-3, 3], [3, -3], [3, 3]], dtype=F64)
    x = torch.cat([corners * scale for scale in (0.8, 1.2)] * 5)
    column = torch.tensor([[-3, 0], [3, 0]], dtype=F64)
    beside = torch.tensor([0.008, 0.0], dtype=F64)  # loses 0.0036 nats
    inner, outer = x[:, 0].abs().var(correction=0), x[:, 0].var(correction=0)
    variances = torch.stack([inner, outer]).expand(2, 2)
    params = {
        "weights": torch.full((4, 2), 0.5, dtype=F64),
        "predictors": torch.stack([column, column.flip(1), column.flip(0), column + beside]),
        "dispersion": torch.stack([variances, variances.flip(1), variances, variances]),
    }
    return problem_of(Mixture(2, Normal(), 2), x, 0), params


def test_equal_objectives_on_two_hills_are_two_optima():
    """Halves of a square by column and by row: equal weights and likelihoods, a valley between."""
    problem, params = halved_square()
    objective = objective_of(problem, params)[1]
    assert float(objective[:3].max() - objective[:3].min()) < 1e-9
    assert distinct_optima(problem, params, objective).tolist() == [0, 1, 0, 0]
    apart = objective - torch.tensor([0.0, 0.0, 0.01, 0.0])  # beyond 5e-3 nats
    assert distinct_optima(problem, params, apart).tolist() == [0, 1, 2, 0]
    failed = torch.where(torch.tensor([True, True, False, True]), objective, -torch.inf)
    assert distinct_optima(problem, params, failed).tolist() == [0, 1, -1, 0]


def test_optima_of_draws_differ_by_a_relative_distance():
    """Distance of parameters over their length: a figure worked out by hand."""
    problem, params = halved_square()
    inner, outer = params["dispersion"][0, 0].tolist()
    distance = 2 * 2 * 3**2 + 2 * 2 * (outer - inner) ** 2
    length = 2 * 0.5**2 + 2 * 3**2 + 2 * (outer**2 + inner**2)
    relative = (distance / length) ** 0.5
    objective = torch.tensor(
        [0.0, -50.0, -100.0, -150.0], dtype=F64
    )  # draws decide by parameters alone
    for factor, expected in ((0.999, [0, 1, 0, 0]), (1.001, [0, 0, 0, 0])):
        found = distinct_optima(problem, params, objective, relative * factor)
        assert found.tolist() == expected


def test_a_converged_restart_takes_a_place_in_the_better_half():
    objective = torch.tensor([1.0, 5.0, 3.0, 4.0, torch.nan])
    active, none = torch.tensor([0, 2, 3, 4]), torch.zeros(5, dtype=torch.bool)
    assert better_half(objective, active, none).tolist() == [2, 3]
    converged = none.clone()
    converged[1] = True
    assert better_half(objective, active, converged).tolist() == [3]
    assert better_half(objective, torch.tensor([3]), converged).tolist() == []
