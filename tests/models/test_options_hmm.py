"""Options HMM: likelihood against every path of options, simulation, plain Pyro, bad input."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pyro
import pytest
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoDelta
from pyro.optim import Adam
from support.option_sequences import arrays, case, close, simulate
from zoo.rows_options import by_filter, by_paths, options_truth

from inference import fit
from inference.programs.program import Program
from ppl_models import ContinuousOptionsHMM, OptionsHMM
from ppl_models.data.sequences import UnvisitedWarning, pack, trajectory_lengths, unpack

F64 = torch.float64


# ---------------------------------------------------------------- likelihood


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_likelihood_is_the_sum_over_all_paths(seed: int, missing: float) -> None:
    model, truth, data = case(seed, missing)
    close(
        Program(model, data).log_marginal_rows(truth), by_paths(arrays(truth), data.numpy()), 1e-12
    )


def test_padding_and_batching_change_nothing() -> None:
    model, truth, data = case(0)
    rows = Program(model, data).log_marginal_rows(truth)
    wide = torch.cat([data, torch.full((len(data), 3, 2), -1)], 1)
    close(Program(model, wide).log_marginal_rows(truth), rows, 1e-12)
    for n, length in enumerate(trajectory_lengths(data)):
        close(
            Program(model, data[n : n + 1, :length]).log_marginal_rows(truth),
            rows[n : n + 1],
            1e-12,
        )
    packed, _ = model.check_data(unpack(data))
    assert torch.equal(packed, data)
    close(Program(model, unpack(data)).log_marginal_rows(truth), rows, 1e-12)


@pytest.mark.parametrize("num_options", [1, 2, 3, 5, 17])
def test_long_ragged_sequences_equal_the_forward_algorithm(num_options: int) -> None:
    """Words are shared on the lower levels of the tree and not on the upper ones."""
    sizes = (3, 2, num_options)
    truth = options_truth(*sizes, seed=3)
    data = simulate(OptionsHMM(*sizes, num_steps=700), truth, 5, 1)
    lengths = [700, 1, 513, 64, 99]
    ragged = pack(data[..., 0], data[..., 1], torch.tensor(lengths))
    rows = Program(OptionsHMM(*sizes), ragged).log_marginal_rows(truth)
    expected = [
        by_filter(arrays(truth), data[n : n + 1, :length].numpy())[0]
        for n, length in enumerate(lengths)
    ]
    close(rows, expected, 1e-11)


def test_a_product_that_underflows_is_taken_in_logs() -> None:
    """Two options that never change: their ratio after 2,000 steps is beyond the range of floating
    point.
    """
    truth = {
        "initial": torch.tensor([[0.0, 1.0]], dtype=F64),
        "low": torch.tensor([[[0.999, 0.001], [0.5, 0.5]]], dtype=F64),
        "high": torch.eye(2, dtype=F64)[None],
        "environment": torch.ones(2, 1, 1, dtype=F64),
    }
    state = torch.zeros(1, 2000, dtype=torch.long)
    rows = Program(OptionsHMM(1, 2, 2, concentration=1.0), pack(state, state)).log_marginal_rows(
        truth
    )
    close(rows, [2000 * math.log(0.5)], 1e-12)


# ---------------------------------------------------------------- simulation and plain Pyro


def test_simulation_follows_the_distribution() -> None:
    """Counts of first steps, actions and moves against their expectations, by z-scores."""
    model, truth, _ = case(8, 0.0)
    data = simulate(replace(model, num_steps=3), truth, 20000, 8)
    expected = torch.zeros(3, 3, 3, dtype=F64)  # state, action, next state
    weight = (truth["initial"][:, :, None] * truth["low"]).sum(1)
    expected = weight[:, :, None] * truth["environment"].transpose(0, 1)
    code = (data[:, 0, 0] * 3 + data[:, 0, 1]) * 3 + data[:, 1, 0]
    counts = torch.bincount(code, minlength=27).reshape(3, 3, 3)
    score = (counts - 20000 * expected) / (20000 * expected * (1 - expected)).sqrt()
    assert float(score.abs().max()) < 5
    rows = (
        Program(model, data).log_marginal_rows(truth).exp()
    )  # 1 / p averages to the number of sequences
    assert abs(float((1 / rows).mean()) - 3.0**6) < 6 * float((1 / rows).std()) / 20000**0.5


def test_plain_pyro_runs_the_program() -> None:
    """SVI with Pyro's own guide reaches the optimum of EM; no part of ``inference`` is used for
    it.
    """
    model = OptionsHMM(2, 2, 2, num_steps=50)
    truth = options_truth(2, 2, 2, seed=9)
    data = simulate(model, truth, 20, 9)
    best = fit(model, data, init=truth)
    with pyro.get_param_store().scope(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        guide = AutoDelta(model, init_loc_fn=lambda site: truth[site["name"]])
        svi = SVI(model, guide, Adam({"lr": 0.03}), Trace_ELBO())
        for _ in range(300):
            loss = svi.step(data)
    assert -loss < best.objective + 1e-6
    assert -loss > best.objective - 0.5


# ---------------------------------------------------------------- bad input

GOOD = {"state": [[0, 1, 2]], "action": [[0, 1, 0]]}
BAD_DATA = {
    "state out of range": (
        GOOD | {"state": [[0, 3, 2]]},
        r"data\['state'\]: 0 to 2 was expected, got 3 at sequence 0, step 1",
    ),
    "action out of range": (
        GOOD | {"action": [[0, 2, 0]]},
        r"data\['action'\]: 0 to 1, or -1 where missing, was expected, got 2",
    ),
    "action negative": (GOOD | {"action": [[0, -2, 0]]}, "got -2 at sequence 0, step 1"),
    "missing state": (
        GOOD | {"state": [[0, -1, 2]]},
        r"data\['state'\]: missing at sequence 0, step 1; a missing state cannot",
    ),
    "missing state, NaN": (
        GOOD | {"state": [[0, math.nan, 2]]},
        "a missing state cannot be summed out",
    ),
    "missing last state": (
        GOOD | {"state": [[0, 1, -1]], "length": [3]},
        "missing at sequence 0, step 2",
    ),
    "not whole": (
        GOOD | {"state": [[0, 1.5, 2]]},
        r"data\['state'\]: whole numbers were expected, got 1.5 at \[0, 1\]",
    ),
    "no action known": (
        GOOD | {"action": [[-1, -1, -1]]},
        "at least one known action was expected",
    ),
    "shapes": (GOOD | {"action": [[0, 1]]}, "one shape"),
    "length zero": (GOOD | {"length": [0]}, "1 to 3 was expected, got 0 for sequence 0"),
    "length too long": (GOOD | {"length": [4]}, "got 4 for sequence 0"),
    "lengths": (GOOD | {"length": [3, 3]}, "one length a sequence"),
    "one dim": ({"state": [0, 1], "action": [0, 1]}, r"shape \(sequences, steps\)"),
    "no sequences": ({"state": np.zeros((0, 3)), "action": np.zeros((0, 3))}, "none of them 0"),
    "no action": ({"state": [[0, 1]]}, "a dict of 'state', 'action' and 'length' was expected"),
    "unknown key": (GOOD | {"reward": [[0]]}, "was expected, got"),
    "a table": (np.zeros((3, 2)), r"packed \(B, T, 2\)"),
    "text": (GOOD | {"state": [["a", "b", "c"]]}, "whole numbers were expected"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_are_refused(name: str) -> None:
    data, text = BAD_DATA[name]
    with pytest.raises(ValueError, match=text):
        fit(OptionsHMM(3, 2, 2), data)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_states": 0}, "num_states must be a positive integer"),
        ({"num_options": 1.5}, "num_options must be a positive integer"),
        ({"concentration": 0.5}, "concentration must be a finite number, at least 1"),
        ({"stickiness": -1.0}, "stickiness must be a finite number, at least 0"),
        ({"concentration": math.nan}, "concentration"),
    ],
)
def test_bad_sizes_are_refused(arguments: dict[str, float], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        OptionsHMM(**({"num_states": 3, "num_actions": 2, "num_options": 2} | arguments))


FRAME = pd.DataFrame(
    {
        "sequence": ["b", "b", "b", "a", "a"],
        "time": [3, 4, 5, 0, 1],
        "state": [0, 1, 2, 2, 1],
        "action": [0, None, 1, 1, 0],
    }
)


def test_a_data_frame_is_read_in_any_order() -> None:
    model = OptionsHMM(3, 2, 2)
    packed, _ = model.check_data(FRAME)
    assert packed.tolist() == [[[0, 0], [1, -1], [2, 1]], [[2, 1], [1, 0], [-1, -1]]]
    shuffled, _ = model.check_data(FRAME.iloc[[2, 4, 0, 1, 3]])
    assert torch.equal(shuffled, packed)


def test_rows_without_places_follow_each_other() -> None:
    """Without times steps stand in order, mixed as the sequences may be; without sequences all rows
    are one.
    """
    model = OptionsHMM(3, 2, 2)
    packed, _ = model.check_data(FRAME)
    assert torch.equal(
        model.check_data(FRAME.drop(columns="time").iloc[[0, 3, 1, 4, 2]])[0], packed
    )
    one = model.check_data(FRAME.drop(columns=["time", "sequence"]))[0]
    assert one.tolist() == [[[0, 0], [1, -1], [2, 1], [2, 1], [1, 0]]]
    steered = ContinuousOptionsHMM(1, 2, 2)
    floats = FRAME.assign(state=FRAME["state"].astype(float))
    assert torch.equal(
        steered.check_data(floats.drop(columns="time"))[0].nan_to_num(-9),
        steered.check_data(floats)[0].nan_to_num(-9),
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda f: f.drop(columns="state"), "columns sequence, time, state, action were expected"),
        (lambda f: f.assign(place=1), "columns sequence, time, state, action were expected"),
        (lambda f: f.drop(index=1), "sequence 'b' goes from 3 to 5"),
        (lambda f: pd.concat([f, f.iloc[:1]]), "goes from 3 to 3"),
        (lambda f: f.assign(state=[0, None, 2, 2, 1]), "in sequence 'b' at time 4"),
        (lambda f: f.assign(state=list("abcde")), "column 'state': whole numbers were expected"),
        (
            lambda f: f.assign(time=f["time"].mask(f.index == 2)),
            "column 'time' must not be empty; it is in row 2",
        ),
        (
            lambda f: f.assign(sequence=f["sequence"].mask(f.index == 1)),
            "column 'sequence' must not be empty; it is in row 1",
        ),
        (lambda f: f.iloc[:0], "at least one row"),
    ],
)
def test_bad_frames_are_refused(change, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        OptionsHMM(3, 2, 2).check_data(change(FRAME))


def test_never_seen_actions_are_named() -> None:
    with pytest.warns(UnvisitedWarning, match="actions that never occur: 2"):
        OptionsHMM(3, 3, 2).check_data(GOOD)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OptionsHMM(3, 3, 2).check_data(GOOD, for_fit=False)


def test_names_of_states_and_actions_are_taken_as_they_are() -> None:
    rng = np.random.default_rng(0)
    state, action = rng.integers(3, size=(6, 20)), rng.integers(2, size=(6, 20))
    numbers = {"state": state, "action": action}
    names = {"state": np.array([*"abc"])[state], "action": np.array(["go", "stop"])[action]}
    frame = pd.DataFrame({"sequence": np.repeat(range(6), 20), "time": np.tile(range(20), 6)})
    frame = frame.assign(**{place: own.ravel() for place, own in names.items()})
    model = OptionsHMM(num_options=1).for_data(names)
    assert (model.state_names, model.action_names) == (("a", "b", "c"), ("go", "stop"))
    packed, _ = OptionsHMM(3, 2, 1).check_data(numbers)
    for data in (names, frame, frame.sample(frac=1, random_state=0).sort_values("sequence")):
        assert torch.equal(model.check_data(data)[0], packed)
    found = fit(OptionsHMM(num_options=1), frame)
    assert "low[b, 0, stop]" in found.summary().index
    frame.loc[7, "action"] = None
    assert int((found.model.check_data(frame)[0][..., 1] < 0).sum()) == 1
    frame.loc[8, "state"] = "z"
    with pytest.raises(ValueError, match="column 'state': 'z' is unknown to the model, whose"):
        found.log_likelihood_rows(frame)
    with pytest.raises(ValueError, match="state_names: a different name for each of 2 states"):
        OptionsHMM(2, 2, state_names=("a", "a"))


def test_episodes_and_steps_are_read_off_a_frame() -> None:
    """Failed before: columns called sequence and time were expected, and nothing else."""
    columns = {"episode": ["e1"] * 6 + ["e2"] * 6, "step": [*range(6)] * 2}
    frame = pd.DataFrame(columns | {"state": [0, 1] * 6, "action": [0, 0, 1] * 4})
    model = OptionsHMM(2, 2, 2)
    canonical = frame.rename(columns={"episode": "sequence", "step": "time"})
    assert torch.equal(model.check_data(frame)[0], model.check_data(canonical)[0])
    assert model.read_as(frame) == {"sequence": "episode", "time": "step"}
    assert OptionsHMM(num_options=2).for_data(frame) == model
    assert model.read_as(frame[["state", "action"]]) == {}
    with pytest.raises(ValueError, match="columns sequence, time, state, action were expected"):
        model.check_data(frame.assign(reward=0.5))
