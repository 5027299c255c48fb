"""Demonstrations of BabyAI's planner, with the sub-task it was at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ppl_models.datasets.fetch import needed_file
from ppl_models.datasets.options import OptionSequences

BABYAI_FILE = "babyai_unlockpickup_bot.npz"
FRONTS = ("floor", "wall", "closed door", "open door", "key", "box")
BEARINGS = ("nothing", "left", "ahead", "right")
BABYAI_ACTIONS = ("turn left", "turn right", "forward", "pick up", "drop", "toggle")


@dataclass(frozen=True, eq=False)
class UnlockPickup:
    """300 episodes of a planner: find a key, unlock a door, drop the key, pick up a box.

    Args:
        sequences: states and actions, and as options the planner's sub-tasks, numbered in the order
            of ``tasks``.
        states: what each state code means.
        actions: names of the actions.
        tasks: names of the sub-tasks.
    """

    sequences: OptionSequences
    states: tuple[str, ...]
    actions: tuple[str, ...]
    tasks: tuple[str, ...]


def load_unlock_pickup() -> UnlockPickup:
    """Demonstrations of BabyAI's planner in its level UnlockPickup, with the sub-task it was at.

    The planner sees a 7 x 7 view; a state here is what lies directly ahead of it (6 kinds) and the
    bearing of the nearest thing in view that can be used, a key, a closed door or a box (4 kinds):
    24 states. What it carries, and what it is after, are left out: that is for the options to find.

    Source: recorded with minigrid 3.2.0 (Chevalier-Boisvert et al. 2023, arXiv:2306.13831),
    BabyAI-UnlockPickup-v0, solved by the package's own planner. There is no public file: put
    ``babyai_unlockpickup_bot.npz`` into the folder that ``PPL_MODELS_DATA`` names.

    Raises:
        FileNotFoundError: if the file is not there.
    """
    path = needed_file(
        BABYAI_FILE,
        "it was recorded with minigrid's own planner and is published nowhere: record episodes of"
        " BabyAI-UnlockPickup-v0, or use GridWorld",
    )
    with np.load(path, allow_pickle=False) as file:
        image, action, task, episode = (
            file[name] for name in ("image", "action", "subtask", "episode")
        )
    kind, condition = image[..., 0].astype(np.int64), image[..., 2]
    front = np.select(
        [kind[:, 3, 5] == 2, kind[:, 3, 5] == 4, kind[:, 3, 5] == 5, kind[:, 3, 5] == 7],
        [1, np.where(condition[:, 3, 5] == 0, 3, 2), 4, 5],
        default=0,
    )
    useful = (kind == 5) | (kind == 7) | ((kind == 4) & (condition != 0))
    useful[:, 3, 6] = False  # what the planner carries lies in its own cell
    column, row = np.meshgrid(np.arange(7), np.arange(7), indexing="ij")
    distance = np.where(useful, np.abs(column - 3) + (6 - row), 99).reshape(len(kind), -1)
    nearest = distance.argmin(1)
    side = column.ravel()[nearest] - 3
    bearing = np.where(distance.min(1) == 99, 0, np.where(side < 0, 1, np.where(side == 0, 2, 3)))
    lengths = np.bincount(episode)
    step = np.concatenate([np.arange(length) for length in lengths])
    columns = []
    for values in (front * len(BEARINGS) + bearing, action, task - 1):
        table = np.full((len(lengths), int(lengths.max())), -1, dtype=np.int64)
        table[episode, step] = values
        columns.append(torch.from_numpy(table))
    data = {"state": columns[0], "action": columns[1], "length": torch.from_numpy(lengths)}
    states = tuple(f"{front} ahead, {where} in view" for front in FRONTS for where in BEARINGS)
    return UnlockPickup(
        OptionSequences(data, columns[2]),
        states,
        BABYAI_ACTIONS,
        ("pick up", "unlock", "drop", "explore"),
    )
