"""Options along continuous states as a program: likelihood against every path, plain Pyro, data
that are read, named or refused.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyro
import pytest
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoDelta
from pyro.optim import Adam
from support.continuous_sequences import MODELS, close, every_model, ragged, simulate
from zoo.rows_continuous_options import by_paths, chosen_truth, truth_of

from inference import fit
from inference.programs.program import Program
from ppl_models import ContinuousOptionsHMM, Network
from ppl_models.data.sequences import FeatureScaleWarning, UnvisitedWarning

F64 = torch.float64


# ---------------------------------------------------------------- likelihood and paths


@every_model
def test_ragged_sequences_with_missing_actions_equal_every_path(name: str) -> None:
    model = MODELS[name]
    truth = truth_of(model, 1)
    data = ragged(model, truth, 2)
    packed, names = model.check_data(data)
    assert names == (*(f"feature_{i}" for i in range(model.num_features)), "action")
    assert packed[1, 1:].isnan().all()
    arrays = {site: value.numpy() for site, value in truth.items()}
    rows = Program(model, packed).log_marginal_rows(truth)
    close(rows, by_paths(arrays, packed.numpy()), 1e-12)
    close(Program(model, data).log_marginal_rows(truth), rows)
    wide = torch.cat([packed, torch.full((5, 3, packed.shape[-1]), math.nan, dtype=F64)], 1)
    close(Program(model, wide).log_marginal_rows(truth), rows, 1e-12)


def test_gradients_equal_finite_differences() -> None:
    model = MODELS["network"]
    truth = truth_of(model, 5)
    program = Program(model, model.check_data(ragged(model, truth, 6))[0])
    names = [site for site in truth if site != "initial"]
    values = [truth[site].clone().requires_grad_() for site in names]
    assert torch.autograd.gradcheck(
        lambda *v: program.log_marginal({**truth, **dict(zip(names, v, strict=True))}),
        values,
        atol=1e-6,
    )


def test_policies_too_sharp_for_probabilities_are_taken_in_logs() -> None:
    """Every path has a probability that is no double; the log-likelihood is finite all the same."""
    model = ContinuousOptionsHMM(1, 2, 2)
    params = {
        "initial": torch.tensor([0.5, 0.5], dtype=F64),
        "low_weights": torch.full((2, 1, 1), 900.0, dtype=F64),
        "low_intercepts": torch.zeros(2, 1, dtype=F64),
        "high_weights": torch.zeros(2, 1, 1, dtype=F64),
        "high_intercepts": torch.zeros(2, 1, dtype=F64),
    }
    data = {"state": torch.ones(1, 3, 1, dtype=F64), "action": torch.zeros(1, 3)}
    close(Program(model, data).log_marginal(params), -2700.0)


# ---------------------------------------------------------------- as a user


def test_plain_pyro_runs_the_program() -> None:
    model = ContinuousOptionsHMM(2, 3, 2, num_steps=40, prior_scale=2.0)
    data = simulate(model, chosen_truth(), 10, 18)
    best = fit(model, data, init=chosen_truth())
    with pyro.get_param_store().scope(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        guide = AutoDelta(best.model, init_loc_fn=lambda site: best.params[site["name"]].clone())
        svi = SVI(best.model, guide, Adam({"lr": 0.01}), Trace_ELBO())
        loss = [svi.step(data) for _ in range(20)]
    assert -loss[0] == pytest.approx(best.objective, abs=1e-6)
    assert -min(loss) <= best.objective + 1e-6


GOOD = {"state": [[[0.0, 1.0], [1.0, 2.0], [2.0, 0.5]]], "action": [[0, 1, 0]]}
BAD_DATA = {
    "missing state": (
        {"state": [[[0.0, 1.0], [1.0, math.nan], [2.0, 0.5]]]},
        r"missing at sequence 0, step 1, column 1; a state must be finite",
    ),
    "infinite state": (
        {"state": [[[0.0, 1.0], [math.inf, 0.0], [2.0, 0.5]]]},
        "inf at sequence 0, step 1, column 0",
    ),
    "action out of range": (
        {"action": [[0, 2, 0]]},
        r"data\['action'\]: 0 to 1, or -1 where missing, was expected, got 2 at sequence 0, step 1",
    ),
    "action not whole": ({"action": [[0, 0.5, 0]]}, "got 0.5"),
    "action negative": ({"action": [[0, -2, 0]]}, "got -2"),
    "no action known": ({"action": [[-1, -1, -1]]}, "at least one known action"),
    "shapes": ({"action": [[0, 1]]}, r"shape \(1, 3\) was expected, got \(1, 2\)"),
    "features": (
        {"state": [[[0.0], [1.0], [2.0]]]},
        r"shape \(sequences, steps, 2\) was expected, got \(1, 3, 1\)",
    ),
    "length zero": ({"length": [0]}, "1 to 3 was expected, got 0 for sequence 0"),
    "lengths": ({"length": [3, 3]}, "one length a sequence"),
    "unknown key": ({"reward": [[0]]}, "a dict of 'state', 'action' and 'length'"),
    "text": ({"action": [["a", "b", "c"]]}, "numbers were expected"),
    "ragged": ({"state": [[[0.0, 1.0], [1.0]]]}, "numbers were expected"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_are_refused(name: str) -> None:
    change, text = BAD_DATA[name]
    with pytest.raises(ValueError, match=text):
        fit(ContinuousOptionsHMM(2, 2, 2), GOOD | change)


def test_bad_packed_data_are_refused() -> None:
    packed = torch.zeros(2, 3, 3, dtype=F64)
    with pytest.raises(ValueError, match=r"packed \(B, T, 3\)\), got shape \(2, 3, 2\)"):
        fit(ContinuousOptionsHMM(2, 2, 2), packed[..., :2])
    packed[1] = math.nan
    with pytest.raises(ValueError, match="sequence 1 is empty"):
        fit(ContinuousOptionsHMM(2, 2, 2), packed)
    packed[1, 1:] = 0.0
    with pytest.raises(ValueError, match=r"missing at sequence 1, step 0|sequence 1 is empty"):
        fit(ContinuousOptionsHMM(2, 2, 2), packed)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_features": 0}, "num_features must be a positive integer"),
        ({"num_actions": 1}, "num_actions must be at least 2, got 1"),
        ({"prior_scale": 0.0}, "prior_scale must be a finite number, above 0"),
        ({"concentration": 0.5}, "concentration must be a finite number, at least 1"),
        ({"policy": Network}, "policy must be SoftmaxLinear"),
        ({"policy": "linear"}, "policy must be SoftmaxLinear"),
    ],
)
def test_bad_sizes_are_refused(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ContinuousOptionsHMM(
            **({"num_features": 2, "num_actions": 2, "num_options": 2} | arguments)
        )
    with pytest.raises(ValueError, match="scale must be a positive number"):
        Network(3, scale=-1.0)


@dataclass(frozen=True)
class Squares:
    """Policy of one's own, of squares of the state."""

    def num_outputs(self, num_features: int) -> int:
        return num_features

    def sites(self, num_features: int) -> dict[str, tuple[tuple[int, ...], float]]:
        return {}

    def features(self, states: torch.Tensor, params: Any) -> torch.Tensor:
        return states.square()[None]


def test_scales_for_which_the_priors_are_not_meant_are_named() -> None:
    state = torch.randn(4, 5, 2, dtype=F64) * torch.tensor([1e4, 1.0], dtype=F64)
    data = {"state": state, "action": torch.arange(20).reshape(4, 5) % 2}
    with pytest.warns(FeatureScaleWarning, match=r"feature_0 \(.*standardised"):
        ContinuousOptionsHMM(2, 2, 2, Squares()).check_data(data)
    ContinuousOptionsHMM(2, 2, 2).check_data(data)
    with pytest.warns(FeatureScaleWarning, match=r"constant: feature_1 \("):
        ContinuousOptionsHMM(2, 2, 2).check_data(data | {"state": state * torch.tensor([1, 0])})


FRAME = pd.DataFrame(
    {
        "sequence": ["b", "b", "b", "a", "a"],
        "time": [3, 4, 5, 0, 1],
        "speed": [0.0, 1.0, 2.0, 2.0, 1.0],
        "height": [1.0, 0.0, 1.0, 0.5, 3.0],
        "action": [0, None, 1, 1, 0],
    }
)


def test_a_data_frame_is_read_in_any_order() -> None:
    model = ContinuousOptionsHMM(2, 2, 2)
    packed, names = model.check_data(FRAME.iloc[[2, 4, 0, 1, 3]])
    assert names == ("speed", "height", "action")
    assert packed[0, :, :2].tolist() == [[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]]
    assert packed[..., 2].nan_to_num(nan=-1).tolist() == [[0.0, -1.0, 1.0], [1.0, 0.0, -1.0]]
    for change, text in (
        (
            FRAME.drop(columns="speed"),
            "columns sequence, time, action and 2 of the state were expected",
        ),
        (FRAME.drop(index=1), "sequence 'b' goes from 3 to 5"),
        (FRAME.assign(speed=list("abcde")), "column 'speed': numbers were expected"),
        (
            FRAME.assign(time=FRAME["time"].mask(FRAME.index == 2)),
            "column 'time' must not be empty",
        ),
        (FRAME.iloc[:0], "at least one row"),
    ):
        with pytest.raises(ValueError, match=text):
            model.check_data(change)


def test_what_the_data_say_nothing_of_is_named() -> None:
    model = ContinuousOptionsHMM(2, 3, 2)
    data = {"state": torch.randn(8, 4, 2, dtype=F64), "action": torch.tensor([[0, 1, -1, 1]] * 8)}
    with pytest.warns(UnvisitedWarning, match="actions that never occur: 2"):
        model.check_data(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.check_data(data, for_fit=False)
        model.check_data(
            data | {"action": torch.full((8, 4), -1)}, for_fit=False
        )  # posteriors need no action
