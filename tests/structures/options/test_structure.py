"""Hidden options: one order of the options, and endings inside the general model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.option_sequences import case, close, simulate
from torch import Tensor
from zoo.rows_options import ending, options_truth

from inference import EM, Fit, fit
from inference.alignment import align
from inference.fitting.problem import problem_of
from inference.identifiability import check_options
from inference.inspection.options import smooth_options
from inference.programs.program import Program
from ppl_models import OptionsHMM
from ppl_models.descriptions.options import with_high


def test_options_keep_one_order() -> None:
    """Whatever order a start had, the reported options are named alike, and the law is the same."""
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
    """EM climbs; a free high-level policy fits no worse; posterior, alignment and identifiability know the model."""
    sizes = (2, 3, num_options)
    model = OptionsHMM(*sizes, num_steps=30, concentration=1.0, termination=True)
    truth = ending(options_truth(*sizes, seed=21, sharp=0.3))
    data = simulate(model, truth, 20, 21)
    result = fit(model, data, EM(max_iterations=100), init=truth)
    assert result.trace.objective.diff().min() > -1e-9
    free = fit(replace(model, termination=False), data, EM(max_iterations=20), init=free_start(model, result))
    assert free.log_likelihood >= result.log_likelihood - 1e-9
    assert free.num_parameters - result.num_parameters == {2: 0, 3: 2 * (6 - 5)}[num_options]
    aligned = align(result, truth)
    assert set(aligned.params) == set(truth)
    close(Program(model, data).log_marginal(aligned.params), result.log_likelihood, 1e-9)
    close(smooth_options(result, data).option.sum(-1), torch.ones(20, 30), 1e-9)
    assert check_options(truth, model.chain()).identified == (num_options == 2)  # three options need three states
    start = problem_of(model, data, 0).structure.start(problem_of(model, data, 0), "random", 2)
    assert {name: value.shape[1:] for name, value in start.items()} == {
        name: value.shape for name, value in truth.items()
    }


def free_start(model: OptionsHMM, result: Fit) -> dict[str, Tensor]:
    """The fit's law as parameters of the general model."""
    params = with_high(model.chain(), result.params)
    return {name: params[name] for name in ("initial", "low", "high", "environment")}
