"""Hidden Markov models against an unrolled Pyro program, each sequence against itself alone, names
and gaps.
"""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import TraceEnum_ELBO
from torch import Tensor
from zoo.rows_hidden_markov import truth_of

from inference.programs.program import Program
from inference.structures.registry import structure_of
from ppl_models import HiddenMarkov, Normal

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
