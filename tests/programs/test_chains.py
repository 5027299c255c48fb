"""Chains of a user's program summed out by one scan: equal to the program step by step, and only
where it is a chain.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.ops.indexing import Vindex
from support.brute_force import brute_force
from support.everyday import programs as everyday
from torch import Tensor

from inference import SVI, fit
from inference.base.steps import GenericSteps
from inference.programs.data import checked
from inference.programs.potential import Potential
from inference.programs.program import Params, Program

T, N = 9, 4
GENERATOR = torch.Generator().manual_seed(3)
SERIES = torch.randn(N, T, generator=GENERATOR, dtype=torch.float64)
LENGTHS = torch.tensor([9, 5, 7, 1])
RAGGED = {"x": SERIES, "length": LENGTHS}
TONES = {"sequences": (torch.rand(N, T, 3, generator=GENERATOR) < 0.5).double(), "lengths": LENGTHS}


def chain_sites(size: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    start = pyro.sample("start", dist.Dirichlet(2 * torch.ones(size)))
    with pyro.plate("states", size):
        moves = pyro.sample("moves", dist.Dirichlet(2 * torch.ones(size)))
        mean = pyro.sample("mean", dist.Normal(0.0, 2.0))
    return start, moves, mean


def ragged(data: dict[str, Tensor]) -> None:
    """As in the notebook: a mask hides what lies behind the end."""
    start, moves, mean = chain_sites()
    with pyro.plate("sequences", len(data["x"])):
        z = None
        for t in pyro.markov(range(data["x"].shape[1])):
            with poutine.mask(mask=t < data["length"]):
                z = pyro.sample(f"z_{t}", dist.Categorical(start if z is None else moves[z]))
                pyro.sample(f"x_{t}", dist.Normal(mean[z], 1.0), obs=data["x"][:, t])


def broadcasting(data: Tensor) -> None:
    """With room for a leading dim of restarts, three states, and missing entries."""
    start = pyro.sample("start", dist.Dirichlet(2 * torch.ones(3)))
    moves = pyro.sample("moves", dist.Dirichlet(2 * torch.ones(3, 3)).to_event(1))
    mean = pyro.sample("mean", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    with pyro.plate("sequences", len(data)):
        z = None
        for t in pyro.markov(range(data.shape[1])):
            z = pyro.sample(
                f"z_{t}", dist.Categorical(start if z is None else Vindex(moves)[..., z, :])
            )
            pyro.sample(f"x_{t}", dist.Normal(Vindex(mean)[..., z], 1.0), obs=data[:, t])


def time_first(data: Tensor) -> None:
    start, moves, mean = chain_sites()
    with pyro.plate("sequences", data.shape[1]):
        z = None
        for t, row in zip(pyro.markov(range(len(data))), data, strict=True):
            z = pyro.sample(f"z_{t}", dist.Categorical(start if z is None else moves[z]))
            pyro.sample(f"x_{t}", dist.Normal(mean[z], 1.0), obs=row)


def one_sequence(data: Tensor) -> None:
    """No plate at all."""
    start, moves, mean = chain_sites()
    z = None
    for t in pyro.markov(range(len(data))):
        z = pyro.sample(f"z_{t}", dist.Categorical(start if z is None else moves[z]))
        pyro.sample(f"x_{t}", dist.Normal(mean[z], 1.0), obs=data[t])


def items_of_one_sequence(data: Tensor) -> None:
    start, moves, mean = chain_sites()
    z = None
    for t in pyro.markov(range(len(data))):
        z = pyro.sample(f"z_{t}", dist.Categorical(start if z is None else moves[z]))
        with pyro.plate(f"items_{t}", data.shape[-1]):
            pyro.sample(f"x_{t}", dist.Normal(mean[z], 1.0), obs=data[t])


def columns(data: Any) -> None:
    """A data frame with one line a step, and a covariate of what is seen."""
    start, moves, mean = chain_sites()
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    z = None
    for t in pyro.markov(range(len(data))):
        z = pyro.sample(f"z_{t}", dist.Categorical(start if z is None else moves[z]))
        pyro.sample(f"x_{t}", dist.Normal(mean[z] + slope * data["u"][t], 1.0), obs=data["x"][t])


def groups(data: dict[str, Tensor]) -> None:
    """Whole numbers that are names, not lengths; the first state has a distribution of its own in
    each group; one step for all sequences is shared.
    """
    start = pyro.sample("start", dist.Dirichlet(2 * torch.ones(2, 2)).to_event(1))
    moves = pyro.sample("moves", dist.Dirichlet(2 * torch.ones(2, 2)).to_event(1))
    mean = pyro.sample("mean", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    with pyro.plate("sequences", len(data["x"])):
        z = None
        for t in pyro.markov(range(data["x"].shape[1])):
            z = pyro.sample(
                f"z_{t}", dist.Categorical(start[data["group"]] if z is None else moves[z])
            )
            pyro.sample(
                f"x_{t}", dist.Normal(mean[z] + data["season"][t], 1.0), obs=data["x"][:, t]
            )


def left_right(data: Tensor) -> None:
    """Impossible moves."""
    stay = pyro.sample("stay", dist.Beta(2.0, 2.0))
    mean = pyro.sample("mean", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    moves = torch.stack([torch.stack([stay, 1 - stay]), torch.tensor([0.0, 1.0])])
    with pyro.plate("sequences", len(data)):
        z: Any = 0
        for t in pyro.markov(range(data.shape[1])):
            z = pyro.sample(f"z_{t}", dist.Categorical(moves[z]))
            pyro.sample(f"x_{t}", dist.Normal(mean[z], 1.0), obs=data[:, t])


CHAINS: dict[str, tuple[Callable[[Any], None], Any]] = {
    "ragged": (ragged, RAGGED),
    "missing entries": (broadcasting, SERIES.masked_fill(SERIES > 1, torch.nan)),
    "time first": (time_first, SERIES.mT),
    "as many sequences as steps": (
        time_first,
        torch.randn(T, T, generator=GENERATOR, dtype=torch.float64),
    ),
    "one sequence": (one_sequence, SERIES[0]),
    "items of one sequence": (items_of_one_sequence, SERIES.mT),
    "columns": (columns, pd.DataFrame({"x": SERIES[0].numpy(), "u": SERIES[1].numpy()})),
    "groups": (groups, {"x": SERIES, "group": torch.tensor([0, 1, 1, 0]), "season": SERIES[0]}),
    "impossible moves": (left_right, SERIES),
    "single precision": (broadcasting, SERIES.float()),
    "hmm, masked": (everyday.hmm_1, TONES),
    "autoregressive hmm": (everyday.hmm_2, TONES),
    "factorial hmm": (everyday.hmm_3, TONES),
}
every_chain = pytest.mark.parametrize("name", list(CHAINS))


def both(name: str) -> tuple[Program, Program, Params]:
    """A program as a chain and step by step, and two points."""
    model, data = CHAINS[name]
    data = checked(model, data)[0]
    program = Program(model, data)
    points = program.draw_prior(2, 1)
    return program, program.part(data, 0), points


def near(one: Tensor, other: Tensor) -> None:
    tolerance = 1e-4 if one.dtype == torch.float32 else 1e-11
    assert one.shape == other.shape
    assert torch.allclose(one, other, rtol=tolerance, atol=tolerance)


@every_chain
def test_a_chain_is_the_program_step_by_step(name: str) -> None:
    program, unrolled, points = both(name)
    assert program.is_chain
    assert not unrolled.is_chain
    near(program.log_marginal_rows(points), unrolled.log_marginal_rows(points))
    near(program.log_prior(points), unrolled.log_prior(points))
    point, other = ({site: value[k] for site, value in points.items()} for k in (0, 1))
    near(program.log_marginal(point), unrolled.log_marginal(point))
    posteriors, expected = program.latent_means(point), unrolled.latent_means(point)
    assert list(posteriors) == list(expected)
    for site, value in expected.items():
        near(posteriors[site], value)
    here, there = (
        [p.expected_log_joint(q, p.factor_posteriors(point)) for q in (point, other)]
        for p in (program, unrolled)
    )
    near(here[1] - here[0], there[1] - there[0])


def test_a_chain_is_the_sum_over_all_paths_and_draws_them() -> None:
    data = SERIES[:, :8].mT
    program = Program(time_first, data)
    point = {site: value[0] for site, value in program.draw_prior(1, 1).items()}
    paths = brute_force(time_first, point, data)
    assert program.is_chain
    near(program.log_marginal_rows(point), paths.log_marginal)
    for site, chances in program.latent_marginals(point).items():
        near(chances.mT, paths.marginal(site))
    torch.manual_seed(0)
    draws = program.sample_latents(point, 600)
    both_on = (draws["z_2"] * draws["z_3"]).double().mean(0)
    assert torch.allclose(both_on, paths.marginal("z_2", "z_3").reshape(4, N)[3], atol=0.08)


def log_path(data: dict[str, Tensor], point: Params, row: int, path: Sequence[int]) -> float:
    """Log-density of a path of ``ragged`` and its data up to the end of the sequence."""
    total = 0.0
    for t, z in enumerate(path):
        chances = point["start"] if t == 0 else point["moves"][path[t - 1]]
        seen = dist.Normal(point["mean"][z], 1.0).log_prob(data["x"][row, t])
        total += float(chances[z].log() + seen)
    return total


def test_decoded_paths_are_the_most_probable_of_all_of_them() -> None:
    """A path of single modes is another one; behind the end of a sequence nothing counts."""
    data = {"x": SERIES, "length": LENGTHS}
    program = Program(ragged, data)
    point = {
        "start": torch.tensor([0.6, 0.4], dtype=torch.float64),
        "moves": torch.tensor([[0.55, 0.45], [0.02, 0.98]], dtype=torch.float64),
        "mean": torch.tensor([-0.3, 0.3], dtype=torch.float64),
    }
    assert program.is_chain
    others = 0
    for one in (program, program.part(data, 0)):
        modes, chances = one.latent_modes(point), one.latent_marginals(point)
        for row, length in enumerate(LENGTHS.tolist()):
            path = tuple(int(modes[f"z_{t}"][row]) for t in range(length))
            best = max(
                itertools.product((0, 1), repeat=length),
                key=lambda z, row=row: log_path(data, point, row, z),
            )
            assert path == best
            others += best != tuple(int(chances[f"z_{t}"][row].argmax()) for t in range(length))
    assert others


@every_chain
def test_decoded_paths_are_those_of_the_program_step_by_step(name: str) -> None:
    program, unrolled, points = both(name)
    point = {site: value[0] for site, value in points.items()}
    here, there = program.latent_modes(point), unrolled.latent_modes(point)
    assert list(here) == list(there)
    densities = [p.log_joint(point, modes) for p, modes in ((program, here), (unrolled, there))]
    near(densities[0], densities[1])
    draws, tolerance = program.sample_latents(point, 20), 1e-4 if "single" in name else 1e-9
    for k in range(20):
        drawn = program.log_joint(point, {site: value[k] for site, value in draws.items()})
        assert drawn <= densities[0] + tolerance


def test_restarts_run_as_one_batch_in_programs_that_know_no_leading_dim() -> None:
    program, unrolled, points = both("ragged")
    assert program.broadcasts()
    assert not unrolled.broadcasts()
    here, there = (
        program.factor_posteriors(points),
        [
            program.factor_posteriors({site: value[k] for site, value in points.items()})
            for k in (0, 1)
        ],
    )
    for name, weight in here.weights.items():
        near(weight, torch.cat([one.weights[name] for one in there]))


def test_its_gradient_is_that_of_the_unrolled_program() -> None:
    program, unrolled, points = both("missing entries")
    one, other = (Potential(p, points) for p in (program, unrolled))
    free = one.vector(points)
    for here, there in zip(one(free), other(free), strict=True):
        near(here, there)
    near(one.curvature(free[0]), other.curvature(free[0]))


def test_a_step_of_em_is_that_of_the_unrolled_program() -> None:
    program, unrolled, points = both("missing entries")
    (one, gain), (other, _) = (em_step(p, points) for p in (program, unrolled))
    assert bool((gain > 0).all())
    for site, value in other.items():
        assert torch.allclose(one[site], value, atol=1e-5)


def em_step(program: Program, params: Params) -> tuple[Params, Tensor]:
    """Parameters after one step, and what it gains in log-posterior."""
    steps = GenericSteps(program, 20)
    statistics, log_likelihood, log_prior = steps.e_step(params)
    new = steps.m_step(statistics, params)
    _, *after = steps.e_step(new)
    return new, sum(after, torch.zeros(())) - log_likelihood - log_prior


@pytest.mark.parametrize("particles", [None, 3])
def test_pyro_s_own_engines_meet_the_same_density(particles: int | None) -> None:
    program, unrolled, points = both("missing entries")
    points = program.draw_prior(particles or 1, 2)
    expected = unrolled.log_marginal(points) + unrolled.log_prior(points)
    values = {site: value.unsqueeze(1) if particles else value[0] for site, value in points.items()}
    around = pyro.plate("particles", particles, dim=-2) if particles else nullcontext()
    with around:
        trace = poutine.trace(poutine.condition(program.without_latents(), values)).get_trace(
            program.args[0]
        )
    assert not {*program.names("latent"), *program.names("observed")} & {*trace.nodes}
    near(trace.log_prob_sum(), expected.sum())


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_svi_fits_a_chain() -> None:
    guide = fit(broadcasting, SERIES, SVI(num_steps=30, num_draws=20, warm_start=None), seed=1)
    assert guide.elbo is not None
    assert guide.elbo < float(Program(broadcasting, SERIES).log_marginal(guide.params))


# ---------------------------------------------------------------- what is no chain


def seasonal(data: Tensor) -> None:
    """Looks at the time."""
    _, moves, mean = chain_sites()
    with pyro.plate("sequences", len(data)):
        z: Any = 0
        for t in pyro.markov(range(data.shape[1])):
            z = pyro.sample(f"z_{t}", dist.Categorical(moves[z]))
            pyro.sample(
                f"x_{t}", dist.Normal(mean[z] + (0.1 if t == T - 1 else 0.0), 1.0), obs=data[:, t]
            )


def hardly_seasonal(data: Tensor) -> None:
    """Looks at the time, in what single precision would take for rounding in a density."""
    _, moves, mean = chain_sites()
    with pyro.plate("sequences", len(data)):
        z: Any = 0
        for t in pyro.markov(range(data.shape[1])):
            z = pyro.sample(f"z_{t}", dist.Categorical(moves[z]))
            pyro.sample(
                f"x_{t}", dist.Normal(mean[z] + (1e-5 if t == T - 1 else 0.0), 1.0), obs=data[:, t]
            )


def moves_by_covariate(data: dict[str, Tensor]) -> None:
    """Moves that differ from step to step."""
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    mean = pyro.sample("mean", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    with pyro.plate("sequences", len(data["x"])):
        z: Any = torch.zeros(())
        for t in pyro.markov(range(data["x"].shape[1])):
            z = pyro.sample(f"z_{t}", dist.Bernoulli(logits=slope * data["u"][:, t] + z))
            pyro.sample(f"x_{t}", dist.Normal(mean[z.long()], 1.0), obs=data["x"][:, t])


def second_order(data: Tensor) -> None:
    moves = pyro.sample("moves", dist.Dirichlet(2 * torch.ones(2, 2, 2)).to_event(2))
    mean = pyro.sample("mean", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    with pyro.plate("sequences", len(data)):
        before: Any = 0
        z: Any = 0
        for t in pyro.markov(range(data.shape[1]), history=2):
            z, before = pyro.sample(f"z_{t}", dist.Categorical(moves[before, z])), z
            pyro.sample(f"x_{t}", dist.Normal(mean[z], 1.0), obs=data[:, t])


def carries_along(data: Tensor) -> None:
    """A sum of what was seen, which two steps do not hold."""
    _, moves, mean = chain_sites()
    with pyro.plate("sequences", len(data)):
        z: Any = 0
        total = torch.zeros(len(data))
        for t in pyro.markov(range(data.shape[1])):
            z = pyro.sample(f"z_{t}", dist.Categorical(moves[z]))
            pyro.sample(f"x_{t}", dist.Normal(mean[z] + 0.1 * total, 1.0), obs=data[:, t])
            total = total + data[:, t]


def sees_two_states(data: Tensor) -> None:
    """What is seen depends on the state before, too."""
    _, moves, mean = chain_sites()
    with pyro.plate("sequences", len(data)):
        z: Any = torch.tensor(0)
        for t in pyro.markov(range(data.shape[1])):
            z, before = pyro.sample(f"z_{t}", dist.Categorical(moves[z])), z
            pyro.sample(f"x_{t}", dist.Normal(mean[z] + 0.3 * mean[before], 1.0), obs=data[:, t])


def classes_of_sequences(data: Tensor) -> None:
    """A latent of the whole sequence."""
    start, moves, mean = chain_sites()
    with pyro.plate("sequences", len(data)):
        c = pyro.sample("class", dist.Categorical(start))
        z: Any = 0
        for t in pyro.markov(range(data.shape[1])):
            z = pyro.sample(f"z_{t}", dist.Categorical(moves[z]))
            pyro.sample(f"x_{t}", dist.Normal(mean[z] + 1.0 * c, 1.0), obs=data[:, t])


SPRING = torch.linspace(-1, 1, T, dtype=torch.float64)


def constants_outside(data: Tensor) -> None:
    """A series that does not come with the data."""
    _, moves, mean = chain_sites()
    with pyro.plate("sequences", len(data)):
        z: Any = 0
        for t in pyro.markov(range(data.shape[1])):
            z = pyro.sample(f"z_{t}", dist.Categorical(moves[z]))
            pyro.sample(f"x_{t}", dist.Normal(mean[z] + SPRING[t], 1.0), obs=data[:, t])


CAUGHT = (torch.rand(6, T, generator=GENERATOR) < 0.4).double()
OTHERS: dict[str, tuple[Callable[[Any], None], Any]] = {
    "looks at the time": (seasonal, SERIES),
    "looks at the time, in single precision": (hardly_seasonal, SERIES.float()),
    "moves by a covariate": (moves_by_covariate, {"x": SERIES, "u": SERIES.flip(0)}),
    "second order": (second_order, SERIES),
    "carries along": (carries_along, SERIES),
    "sees two states": (sees_two_states, SERIES),
    "a latent of the sequence": (classes_of_sequences, SERIES),
    "constants outside": (constants_outside, SERIES),
    "capture-recapture": (everyday.capture_recapture, CAUGHT),
}


@pytest.mark.parametrize("name", list(OTHERS))
def test_other_programs_keep_their_steps(name: str) -> None:
    model, data = OTHERS[name]
    program = Program(model, data)
    assert not program.is_chain
    points = program.draw_prior(1, 1)
    near(program.log_marginal(points), program.part(data, 0).log_marginal(points))
