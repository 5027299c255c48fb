"""Hidden Markov models against an unrolled Pyro program, each sequence against itself alone, names
and gaps.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import TraceEnum_ELBO
from torch import Tensor
from zoo.rows_hidden_markov import truth_of

from inference import EM, fit
from inference.programs.program import Program
from inference.structures.registry import structure_of
from ppl_models import Categorical, HiddenMarkov, Normal

MODEL = HiddenMarkov(3, Normal(), 1)
TRUTH = truth_of(MODEL, 2)
LENGTHS = (5, 20, 80)


@pytest.fixture(scope="module")
def ragged() -> Tensor:
    values = structure_of(MODEL).simulate_like(
        TRUTH, torch.zeros(3, 80, 1, dtype=torch.float64), 3
    )["sequences"]
    return values.masked_fill(
        torch.arange(80)[:, None] >= torch.tensor(LENGTHS)[:, None, None], torch.inf
    )


def unrolled(x: Tensor) -> None:
    """One sequence, step by step."""
    state = pyro.sample("s0", dist.Categorical(TRUTH["initial"]), infer={"enumerate": "parallel"})
    for t in pyro.markov(range(len(x))):
        if t:
            state = pyro.sample(
                f"s{t}",
                dist.Categorical(TRUTH["transitions"][state]),
                infer={"enumerate": "parallel"},
            )
        pyro.sample(
            f"x{t}",
            dist.Normal(TRUTH["predictors"][state, 0], TRUTH["dispersion"][state, 0].sqrt()),
            obs=x[t],
        )


def test_sequences_of_unequal_length_are_each_alone_and_as_unrolled(ragged: Tensor) -> None:
    rows = Program(MODEL, ragged).log_marginal_rows(TRUTH)
    for b, length in enumerate(LENGTHS):
        own = ragged[b : b + 1, :length]
        assert float(Program(MODEL, own).log_marginal(TRUTH)) == pytest.approx(
            float(rows[b]), rel=1e-12
        )
        if length < 80:
            loss = TraceEnum_ELBO(max_plate_nesting=0).loss(unrolled, lambda x: None, own[0, :, 0])
            assert float(rows[b]) == pytest.approx(-loss, rel=1e-12)


def test_other_names_are_the_same_distribution_and_are_found_again(ragged: Tensor) -> None:
    order = torch.tensor([2, 0, 1])
    renamed = {
        name: value[order][:, order] if name == "transitions" else value[order]
        for name, value in TRUTH.items()
    }
    program = Program(MODEL, ragged)
    assert float(program.log_marginal(renamed)) == pytest.approx(
        float(program.log_marginal(TRUTH)), rel=1e-12
    )
    found = structure_of(MODEL).align(renamed, TRUTH)
    assert found is not None
    assert all(torch.equal(found.params[name], value) for name, value in TRUTH.items())


def test_a_gap_is_a_power_of_the_transitions(ragged: Tensor) -> None:
    gap = torch.full((1, 10, 1), torch.nan, dtype=torch.float64)
    gap[0, 0], gap[0, 9] = ragged[0, 0], ragged[0, 1]
    power = TRUTH | {"transitions": torch.linalg.matrix_power(TRUTH["transitions"], 9)}
    expected = float(Program(MODEL, ragged[:1, :2]).log_marginal(power))
    assert float(Program(MODEL, gap).log_marginal(TRUTH)) == pytest.approx(expected, rel=1e-12)


START = {
    "initial": [0.5, 0.3, 0.2],
    "transitions": [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]],
}
LETTERS = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.1, 0.2, 0.6]]
MEANS = [[0.0, 0.0], [2.0, -1.0], [4.0, 1.0]]


@pytest.mark.parametrize("kind", ["letters", "normal"])
def test_hmmlearn_finds_the_same(kind: str) -> None:
    """Log-likelihood, paths and posteriors at a start, and the maximum that EM ends at."""
    path = Path(__file__).parents[1] / "references" / "hmmlearn.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    rng, states = np.random.RandomState(7), [0]  # noqa: NPY002
    for _ in range(239):
        states.append(rng.choice(3, p=START["transitions"][states[-1]]))
    letters = np.array([rng.choice(4, p=LETTERS[state]) for state in states])
    numbers = rng.normal(np.array(MEANS)[states], 1.0)
    items: tuple[HiddenMarkov, np.ndarray, dict[str, list[list[float]]]] = (
        (
            HiddenMarkov(3, Categorical(4, concentration=1.0), 1, concentration=1.0),
            letters[:, None].astype(float),
            {"probabilities": LETTERS},
        )
        if kind == "letters"
        else (
            HiddenMarkov(3, Normal(), 2, concentration=1.0),
            numbers,
            {"predictors": MEANS, "dispersion": np.ones((3, 2)).tolist()},
        )
    )
    model, x, emission = items
    expected, data = known[kind], x.reshape(2, 120, -1)
    start = {
        name: torch.tensor(value, dtype=torch.float64) for name, value in (START | emission).items()
    }
    program = Program(model, torch.as_tensor(data))
    assert float(program.log_marginal(start)) == pytest.approx(
        expected["log_likelihood"], rel=1e-12
    )
    at_start = fit(model, data, fixed=start)
    marginals = at_start.posterior_latents(data)["states"]
    assert "".join(map(str, at_start.predict(data).ravel())) == expected["path"]
    torch.testing.assert_close(
        marginals.reshape(240, 3)[known["rows_of_posteriors"]],
        torch.tensor(expected["posterior"], dtype=torch.float64),
        rtol=0,
        atol=1e-9,
    )
    method = EM(tolerance=1e-13, max_iterations=5000)
    found = fit(model, data, method, init=start, num_restarts=1)
    assert found.log_likelihood == pytest.approx(expected["fitted_log_likelihood"], abs=1e-6)
    moves = found.params["transitions"].numpy()
    orders = [list(order) for order in itertools.permutations(range(3))]
    away = [abs(moves[o][:, o] - expected["fitted_transitions"]).max() for o in orders]
    assert min(away) < 1e-3  # states by size here
