"""Both halves of EM for hidden Markov models: posteriors against every path, pieces, impossible
moves, stationary first states.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from zoo.rows_hidden_markov import LEFT_RIGHT, all_paths, step_densities, truth_of

from inference import EM, fit
from inference.base.structure import set_steps
from inference.fitting.problem import problem_of
from inference.programs.program import Params, Program
from inference.structures.hidden_markov import forward_backward
from inference.structures.hidden_markov.em_steps import emission_of, initial_of
from inference.structures.hidden_markov.forward_backward import Cut, cut_of, smoothed_blocks
from inference.structures.registry import structure_of
from ppl_models import (
    Bernoulli,
    Blocks,
    FreeDurations,
    HiddenMarkov,
    MultivariateNormal,
    MultivariateT,
    NegativeBinomialDurations,
    Normal,
    Poisson,
    PoissonDurations,
)
from ppl_models.sequences.hidden_chain import HiddenChain

F64 = torch.float64
NORMALS = ("Normal", "Normal")


def drawn(
    model: HiddenMarkov, truth: Params, lengths: list[int], seed: int, missing: float = 0.0
) -> Tensor:
    """Packed sequences of these lengths."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        values = structure_of(model).simulate_like(
            truth, torch.zeros(len(lengths), max(lengths), model.num_items, dtype=F64), seed
        )["sequences"]
        gone = torch.rand(values.shape) < missing
    packed = values.masked_fill(gone, torch.nan)
    return packed.masked_fill(
        torch.arange(max(lengths))[:, None] >= torch.tensor(lengths)[:, None, None], torch.inf
    )


def batch(params: Params) -> Params:
    return {name: value.unsqueeze(0) for name, value in params.items()}


@pytest.fixture(params=[128, 1, 2, 3], ids=["whole", "1", "2", "3"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequences whole, and cut into pieces of one to three steps."""
    monkeypatch.setattr(forward_backward, "SHORTEST", request.param)


MODELS = {
    "all moves": HiddenMarkov(3, Normal(), 2),
    "left-right": HiddenMarkov(3, Normal(), 2, (0.5, 0.5, 0.0), LEFT_RIGHT),
    "stationary": HiddenMarkov(3, Normal(), 2, "stationary"),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("most", [1, 10**6])
def test_posteriors_are_those_of_every_path(model: HiddenMarkov, most: int, pieces: None) -> None:
    truth = truth_of(model, 1)
    data = drawn(model, truth, [5, 1, 6, 3], seed=2, missing=0.2)
    data[2, :2] = torch.nan  # a gap where a piece ends
    cut, arrays = (
        Cut.build(data, 3, all_steps=True),
        {name: value.numpy() for name, value in truth.items()},
    )
    first, moves, states, total = np.zeros(3), np.zeros((3, 3)), [], 0.0
    for row in data.numpy():
        row = row[~np.isinf(row).any(1)]
        paths, logs = all_paths(model, NORMALS, arrays, row)
        own = np.logaddexp.reduce(logs)
        total += own
        state = np.zeros((len(row), 3))
        for path, weight in zip(paths, np.exp(logs - own), strict=True):
            first[path[0]] += weight
            for t, k in enumerate(path):
                state[t, k] += weight
            for a, b in itertools.pairwise(path):
                moves[a, b] += weight
        states.append(state)
    one, structure = batch(truth), structure_of(model)
    blocks = list(
        smoothed_blocks(
            cut,
            initial_of(structure.about, one),
            one["transitions"],
            structure.distribution.log_densities,
            emission_of(one),
            most,
        )
    )
    _, place = cut.step_places
    for found, expected in (
        (sum(block.first[0] for block in blocks), first),
        (sum(block.moves[0] for block in blocks), moves),
        (torch.cat([block.state[0] for block in blocks])[place], np.concatenate(states)),
        (sum(block.log_likelihood.sum() for block in blocks), total),
    ):
        torch.testing.assert_close(
            torch.as_tensor(found), torch.as_tensor(expected), rtol=1e-10, atol=1e-10
        )
    torch.testing.assert_close(
        Program(model, data).log_marginal(truth), torch.tensor(total), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_em_rises_to_a_point_without_slope(model: HiddenMarkov) -> None:
    """The closed forms climb the program's own log-posterior, and end where it is flat."""
    truth = truth_of(model, 3)
    data = drawn(model, truth, [40, 25, 60, 50], seed=4, missing=0.1)
    result = fit(
        model, data, EM(tolerance=1e-13, parameter_tolerance=1e-9, max_iterations=5000), init=truth
    )
    assert bool((result.trace.objective.diff() >= -1e-9).all())
    program = Program(result.model, data)
    free = {
        name: value.detach().requires_grad_()
        for name, value in program.unconstrained(result.params).items()
    }
    params = program.constrained(free)
    value = program.log_marginal(params) + program.log_prior(params)
    assert float(value.detach()) == pytest.approx(result.objective, abs=1e-8)
    for name, slope in zip(free, torch.autograd.grad(value, list(free.values())), strict=True):
        if (
            name != "transitions" and name != "initial"
        ):  # entries near zero count little on that scale
            assert float(slope.abs().max()) < 2e-3, name
    if model.allowed is not None:
        assert bool((result.params["transitions"][~torch.tensor(model.allowed)] == 0).all())
        assert result.num_parameters == 2 + 6 + 6


@pytest.mark.parametrize(
    "model",
    [
        HiddenMarkov(2, Poisson(), 1),
        HiddenMarkov(2, Blocks((Bernoulli(), 1), (Normal(), 1)), 2, "stationary"),
        HiddenMarkov(3, MultivariateNormal(), 2),
        HiddenMarkov(1, Normal(), 2),
        HiddenMarkov(2, Normal(), 1, stickiness=5.0, concentration=1.0),
    ],
    ids=["Poisson", "Blocks", "MultivariateNormal", "one-state", "sticky"],
)
def test_em_never_loses_and_ends_on_its_report(model: HiddenMarkov) -> None:
    truth = truth_of(model, 5)
    data = drawn(model, truth, [30, 1, 44], seed=6)
    result = fit(model, data, EM(tolerance=1e-6), num_restarts=4)
    assert bool((result.trace.objective.diff() >= -1e-9).all())
    assert result.log_likelihood == pytest.approx(
        float(Program(model, data).log_marginal(result.params)), abs=1e-9
    )
    assert result.num_observations == 75


def test_a_long_sequence_is_cut_and_many_are_not() -> None:
    model = MODELS["all moves"]
    truth = truth_of(model, 7)
    long, short = (
        drawn(model, truth, [3000], seed=8, missing=0.1),
        drawn(model, truth, [20] * 100, seed=9),
    )
    assert cut_of(long, 3).num_pieces > 10
    assert cut_of(short, 30).num_pieces == 100
    densities = step_densities(
        NORMALS, {name: value.numpy() for name, value in truth.items()}, long[0].numpy()
    )
    alpha = np.log(truth["initial"].numpy()) + densities[0]
    for density in densities[1:]:
        alpha = (
            np.logaddexp.reduce(alpha[:, None] + np.log(truth["transitions"].numpy()), axis=0)
            + density
        )
    expected = np.logaddexp.reduce(alpha)
    steps = structure_of(model).steps(problem_of(model, long, 0), 2**12, 1)
    assert float(steps.e_step(batch(truth))[1]) == pytest.approx(expected, rel=1e-12)
    assert float(Program(model, long).log_marginal(truth)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("allowed", [None, ((True, False), (False, True))])
def test_weights_beyond_the_range_of_numbers_are_not_lost(
    allowed: tuple[tuple[bool, ...], ...] | None,
) -> None:
    """A state that all but dies out for a while, by a factor of e^-5000, and turns out to be the
    right one.
    """
    model = HiddenMarkov(2, Normal(), 1, allowed=allowed, bound=200.0)
    transitions = (
        torch.eye(2, dtype=F64)
        if allowed
        else torch.tensor([[1 - 1e-12, 1e-12], [1e-12, 1 - 1e-12]], dtype=F64)
    )
    params = {"initial": torch.tensor([0.5, 0.5], dtype=F64), "transitions": transitions}
    params |= {
        "predictors": torch.tensor([[0.0], [100.0]], dtype=F64),
        "dispersion": torch.ones(2, 1, dtype=F64),
    }
    data = torch.tensor([[0.0], [100.0], [100.0], [0.0]], dtype=F64)[None]
    arrays = {name: value.numpy() for name, value in params.items()}
    expected = np.logaddexp.reduce(all_paths(model, ("Normal",), arrays, data[0].numpy())[1])
    assert float(Program(model, data).log_marginal(params)) == pytest.approx(expected, rel=1e-12)
    steps = structure_of(model).steps(problem_of(model, data, 0), 2**12, 1)
    assert float(steps.e_step(batch(params))[1]) == pytest.approx(expected, rel=1e-12)


def test_single_precision_and_a_certain_first_state() -> None:
    model = HiddenMarkov(2, Normal(), 2, (1.0, 0.0))
    truth = truth_of(model, 10)
    data = drawn(model, truth, [50, 20], seed=11)
    data[:, 0] = 300.0  # far from both states, which differ by thousands in the exponent
    double = float(Program(model, data).log_marginal(truth))
    single = {name: value.float() for name, value in truth.items()}
    assert float(Program(model, data.float()).log_marginal(single)) == pytest.approx(
        double, rel=1e-4
    )
    result = fit(
        model, data[:, 1:].float(), EM(tolerance=1e-4, parameter_tolerance=0.1), init=single
    )
    assert result.params["predictors"].dtype == torch.float32


@pytest.mark.parametrize(
    ("emission", "settings"),
    [
        (Normal(), {}),
        (Normal(), {"durations": NegativeBinomialDurations()}),
        (Normal(), {"durations": FreeDurations(4)}),
        (Poisson(), {"initial": (0.5, 0.5, 0.0), "allowed": LEFT_RIGHT}),
        (Blocks((Normal(), 1), (Bernoulli(), 1)), {"initial": "stationary"}),
        (MultivariateNormal(), {"durations": PoissonDurations()}),
        (MultivariateT(), {}),
    ],
    ids=str,
)
def test_data_sets_side_by_side_are_each_alone(emission: Any, settings: dict[str, Any]) -> None:
    model = HiddenMarkov(3, emission, 2, **settings)
    whole_rows = isinstance(emission, MultivariateNormal | MultivariateT)
    source = replace(model, emission=MultivariateNormal()) if whole_rows else model
    first = drawn(source, truth_of(source, 2), [30, 12, 1], 1, 0.0 if whole_rows else 0.2)
    first[0, 3:5] = torch.nan
    again = drawn(source, truth_of(source, 2), [30, 12, 1], 2)
    sets = torch.stack([first, torch.where(first.isfinite(), again, first)])
    problems = [problem_of(model, data, 0) for data in sets]
    starts = [problem.structure.start(problem, "spectral", 2) for problem in problems]
    together = set_steps(problems[0].structure, problems[0], sets, 2**18, 1)
    assert together is not None
    both = {name: torch.cat([start[name] for start in starts]) for name in starts[0]}
    both["data set"] = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=F64)
    found = together.e_step(both)
    new = together.m_step(found.statistics, both)
    for r, (problem, start) in enumerate(zip(problems, starts, strict=True)):
        place, steps = slice(2 * r, 2 * r + 2), EM().steps(problem)
        own = steps.e_step(start)
        torch.testing.assert_close(found.log_likelihood[place], own.log_likelihood)
        for name, value in steps.m_step(own.statistics, start).items():
            torch.testing.assert_close(new[name][place], value, rtol=1e-6, atol=1e-8, msg=name)


def test_a_chain_of_one_emission_a_step_has_second_derivatives() -> None:
    """Of the scan, by finite differences of its slope."""
    generator = torch.Generator().manual_seed(0)
    logits, first = (
        torch.randn(3, 3, generator=generator, dtype=F64),
        torch.randn(3, generator=generator, dtype=F64),
    )
    values = torch.randn(2, 7, 1, generator=generator, dtype=F64)

    def density(moves: Tensor, begin: Tensor) -> Tensor:
        emission = torch.distributions.Independent(
            torch.distributions.Normal(torch.tensor([[-1.0], [0.0], [2.0]], dtype=F64), 1.0), 1
        ).expand([1, 3])
        return HiddenChain(begin.softmax(-1), moves.softmax(-1), emission, 7).log_prob(values).sum()

    leaves = (logits.requires_grad_(), first.requires_grad_())
    assert torch.autograd.gradcheck(density, leaves)
    assert torch.autograd.gradgradcheck(density, leaves)
