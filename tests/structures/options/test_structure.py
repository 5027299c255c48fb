"""Hidden options: one order of the options, and endings inside the general model."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.option_sequences import case, close, simulate
from torch import Tensor
from zoo.rows_options import ending, options_truth

from inference import EM, EstimateWarning, Fit, fit
from inference.alignment import align
from inference.base.structure import unseen_chances
from inference.fitting.problem import problem_of
from inference.identifiability import check_options
from inference.inspection.options import smooth_options
from inference.programs.program import Program
from inference.structures.registry import structure_of
from ppl_models import OptionsHMM
from ppl_models.datasets import simulate_options
from ppl_models.descriptions.options import with_high

F64 = torch.float64


def test_options_keep_one_order() -> None:
    """Whatever order a start had, the reported options have one order and one distribution."""
    model, truth, data = case(6)
    structure = problem_of(model, data, 0).structure
    turned = {
        **truth,
        "initial": truth["initial"].flip(1),
        "low": truth["low"].flip(1),
        "high": truth["high"].flip(1, 2),
    }
    program = Program(model, data)
    close(program.log_marginal(turned), program.log_marginal(truth))
    one, two = structure.canonical(truth), structure.canonical(turned)
    for name, value in one.items():
        close(two[name], value)
    assert float(one["low"][:, 0, 0].mean()) >= float(one["low"][:, 1, 0].mean())
    assert structure.num_free(truth) == 3 * 2 * 2 + 3 * 2 + 5 + 3 * 3 * 2


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
@pytest.mark.parametrize("num_options", [2, 3])
def test_endings_and_choices_sit_inside_the_general_model(num_options: int) -> None:
    """EM climbs; a free high-level policy fits no worse; posterior, alignment and identifiability
    know the model.
    """
    sizes = (2, 3, num_options)
    model = OptionsHMM(*sizes, num_steps=30, concentration=1.0, termination=True)
    truth = ending(options_truth(*sizes, seed=21, sharp=0.3))
    data = simulate(model, truth, 20, 21)
    result = fit(model, data, EM(max_iterations=100), init=truth)
    assert result.trace.objective.diff().min() > -1e-9
    free = fit(
        replace(model, termination=False),
        data,
        EM(max_iterations=20),
        init=free_start(model, result),
    )
    assert free.log_likelihood >= result.log_likelihood - 1e-9
    assert free.num_parameters - result.num_parameters == {2: 0, 3: 2 * (6 - 5)}[num_options]
    aligned = align(result, truth)
    assert set(aligned.params) == set(truth)
    close(Program(model, data).log_marginal(aligned.params), result.log_likelihood, 1e-9)
    close(smooth_options(result, data).option.sum(-1), torch.ones(20, 30), 1e-9)
    assert check_options(truth, model.chain()).identified == (
        num_options == 2
    )  # three options need three states
    start = problem_of(model, data, 0).structure.start(problem_of(model, data, 0), "random", 2)
    assert {name: value.shape[1:] for name, value in start.items()} == {
        name: value.shape for name, value in truth.items()
    }


def free_start(model: OptionsHMM, result: Fit) -> dict[str, Tensor]:
    """The fit's distribution as parameters of the general model."""
    params = with_high(model.chain(), result.params)
    return {name: params[name] for name in ("initial", "low", "high", "environment")}


# ---------------------------------------------------------------- BIC, and options that are none


def two_options(seed: int, visited: int = 6, num_states: int = 12) -> dict[str, Tensor]:
    """Two options that are kept for ten steps, with actions of their own in each state; half of the
    states are never reached.
    """
    generator = torch.Generator().manual_seed(seed)
    environment = torch.rand(3, num_states, num_states, generator=generator, dtype=F64) ** 4
    environment[:, :, visited:] = 0
    low = torch.rand(num_states, 2, 3, generator=generator, dtype=F64) ** 3.3
    initial = torch.zeros(num_states, 2, dtype=F64)
    initial[:visited] = 1 / (2 * visited)
    return {
        "initial": initial,
        "low": low / low.sum(-1, keepdim=True),
        "high": torch.tensor([[0.9, 0.1], [0.1, 0.9]], dtype=F64).expand(num_states, 2, 2),
        "environment": environment / environment.sum(-1, keepdim=True),
    }


def start_of(truth: dict[str, Tensor], options: int) -> dict[str, Tensor]:
    """Near the truth, off its zeros; with one option its policies averaged."""
    initial, low, high = (
        0.9 * truth[name] + 0.1 / size for name, size in (("initial", 24), ("low", 3), ("high", 2))
    )
    if options == 1:
        initial, low, high = (
            initial.sum(1, keepdim=True),
            low.mean(1, keepdim=True),
            torch.ones(12, 1, 1, dtype=F64),
        )
    return {
        "initial": initial,
        "low": low,
        "high": high.clone(),
        "environment": 0.9 * truth["environment"] + 0.1 / 12,
    }


@pytest.mark.filterwarnings(
    "ignore::inference.ConvergenceWarning", "ignore:states that never occur"
)
@pytest.mark.parametrize("seed", [0, 1])
def test_bic_prefers_two_options_where_held_out_sequences_do(seed: int) -> None:
    truth = two_options(seed)
    data, held = (simulate_options(truth, rows, 40, seed + rows).packed for rows in (30, 60))
    one, two = (
        fit(OptionsHMM(12, 3, options), data, EM(max_iterations=100), init=start_of(truth, options))
        for options in (1, 2)
    )
    gain = float(two.log_likelihood_rows(held).sum() - one.log_likelihood_rows(held).sum())
    assert gain > 0
    assert two.bic < one.bic
    visits = torch.bincount(data[..., 0].ravel(), minlength=12).double()
    assert int((visits > 0).sum()) == 6
    assert one.num_parameters == 6 * 2
    assert one.price == pytest.approx(float(2 * visits[visits > 0].log().sum()))
    begun = data[:, 0, 0].unique().numel()
    assert two.num_parameters == 6 * 2 * 2 + 6 * 2 + begun
    charged = two.structure.num_free(two.params) * math.log(30 * 40)  # every entry, by all steps
    before = one.structure.num_free(one.params) * math.log(30 * 40)
    assert (
        -2 * two.log_likelihood + charged > -2 * one.log_likelihood + before
    )  # as it was counted: one option


@pytest.mark.filterwarnings("ignore:states that never occur")
def test_one_option_in_twice_as_many_states_is_no_dearer() -> None:
    """States that are never visited change no number."""
    truth = two_options(0)
    data = simulate_options(truth, 20, 20, 0).packed
    small, large = (
        fit(OptionsHMM(size, 3, 1, concentration=1.0), data, EM(), init="random")
        for size in (12, 24)
    )
    assert small.bic - large.bic == pytest.approx(0.0, abs=1e-6)


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_options_that_the_state_decides_are_named() -> None:
    truth = two_options(0, visited=4, num_states=4)
    into = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], dtype=F64)
    decided = truth | {"high": into[:, None, :].expand(4, 2, 2), "initial": into / 4}
    data = simulate_options(decided, 20, 40, 0).packed
    model = OptionsHMM(4, 3, 2, concentration=1.0)
    start = {name: value.clone() for name, value in decided.items()}
    with pytest.warns(
        EstimateWarning, match=r"option \d in states 0, 2; option \d in states 1, 3"
    ) as caught:
        result = fit(model, data, EM(max_iterations=3), init=start)
    assert any(text in str(caught[0].message) for text in result.warnings)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EstimateWarning)
        fit(model, simulate_options(truth, 20, 40, 0).packed, EM(max_iterations=3), init=truth)


def test_what_no_sequence_shows_is_counted_by_hand() -> None:
    """Moves, policies and first states that the data never have, one step after the other."""
    rng = np.random.default_rng(0)
    data = rng.integers(0, 2, (4, 5, 2))  # the last state of three is never visited
    data[0, 3:] = -1  # the end of a sequence
    data[1, 2, 1] = -1  # a missing action: the move may be by any
    model = OptionsHMM(3, 2, 2)
    found = unseen_chances(structure_of(model), torch.as_tensor(data))
    shapes = {"initial": (3, 2), "low": (3, 2, 2), "high": (3, 2, 2), "environment": (2, 3, 3)}
    expected = {site: np.ones(shape, dtype=bool) for site, shape in shapes.items()}
    for sequence in data.tolist():
        expected["initial"][sequence[0][0]] = False
        for t, (state, action) in enumerate(sequence):
            if state < 0:
                continue
            if action >= 0:
                expected["low"][state] = False
            if t > 0:
                expected["high"][state] = False
            if t + 1 < len(sequence) and sequence[t + 1][0] >= 0:
                taken = [action] if action >= 0 else [0, 1]
                expected["environment"][taken, state, sequence[t + 1][0]] = False
    assert set(found) == set(expected)
    for site, mask in expected.items():
        assert np.array_equal(found[site].numpy(), mask), site
