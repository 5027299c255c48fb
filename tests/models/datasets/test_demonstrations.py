"""Grid worlds, their planner, and the recorded demonstrations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from papers.babyai import load_unlock_pickup

from inference import EM, fit
from inference.programs.program import Program
from ppl_models import OptionsHMM
from ppl_models.datasets import GridWorld


def test_the_planner_goes_the_short_way() -> None:
    world = GridWorld(noise=0.0, slip=0.0)
    truth = world.truth()
    for name, part in truth.items():
        total = part.sum() if name == "initial" else part.sum(-1)
        torch.testing.assert_close(total, torch.ones_like(total))
    drawn = world.demonstrations(20, 60, seed=0)
    successors = world.successors()
    for state, option, action in zip(
        drawn.data["state"].numpy(), drawn.option.numpy(), drawn.data["action"].numpy(), strict=True
    ):
        for t in range(59):
            goal = world.goals[option[t]]
            before, after = (
                world.distances(goal)[state[t]],
                world.distances(goal)[successors[state[t], action[t]]],
            )
            assert after == before - 1 or before == 0
            assert state[t + 1] == successors[state[t], action[t]]
            reached = state[t + 1] == goal
            assert option[t + 1] == ((option[t] + 1) % 3 if reached else option[t])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"rows": ("#A#", "##")}, "one length"),
        ({"rows": ("A..",)}, "at least two goals"),
        ({"rows": ("A.C",)}, "letters A, B"),
        ({"rows": ("AAB",)}, "one cell"),
        ({"rows": ("A#B",)}, "reachable"),
        ({"noise": 1.5}, "noise must lie"),
    ],
)
def test_bad_worlds_are_refused(settings: dict, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        GridWorld(**settings)


def test_goals_are_found_on_the_grid() -> None:
    """The options that a fit finds are the goals, which it never saw."""
    from sklearn.metrics import adjusted_rand_score

    world = GridWorld(rows=("A...B", ".....", "....."), noise=0.1, slip=0.1)
    drawn = world.demonstrations(60, 60, seed=1)
    model = OptionsHMM(len(world.cells), 4, 2)
    result = fit(
        model,
        drawn.data,
        EM(max_iterations=100, tolerance=1e-5, parameter_tolerance=1e-2),
        init="random",
        num_restarts=4,
    )
    found = result.decode_latents(drawn.data)["options"]
    assert adjusted_rand_score(drawn.option.ravel(), found.ravel()) > 0.7
    assert result.log_likelihood > float(Program(model, drawn.packed).log_marginal(world.truth()))


@pytest.mark.data("babyai_unlockpickup_bot.npz")
def test_the_recorded_planner() -> None:
    recorded = load_unlock_pickup()
    data, task = recorded.sequences.data, recorded.sequences.option
    inside = data["state"] >= 0
    assert data["state"].shape == (300, int(data["length"].max()))
    assert int(inside.sum()) == 5858
    assert torch.equal(inside, torch.arange(data["state"].shape[1]) < data["length"][:, None])
    assert int(data["state"].max()) < len(recorded.states) == 24
    assert int(data["action"].max()) < len(recorded.actions)
    assert np.bincount(task[inside].numpy()).tolist() == [3052, 1609, 600, 597]
    unlocks = recorded.actions.index("toggle")
    front = data["state"][data["action"] == unlocks] // 4
    assert bool((front == 2).all())  # a door is unlocked from before it, closed


def test_a_missing_recording_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PPL_MODELS_DATA", raising=False)
    with pytest.raises(
        FileNotFoundError,
        match="babyai_unlockpickup_bot.npz is not in the folder PPL_MODELS_DATA names",
    ):
        load_unlock_pickup()
