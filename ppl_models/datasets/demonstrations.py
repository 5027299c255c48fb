"""Demonstrations whose sub-tasks are known: a planner on a grid of cells, and the planner of
BabyAI.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ppl_models.datasets.fetch import needed_file
from ppl_models.datasets.options import OptionSequences, simulate_options
from ppl_models.parts.validation import check_number, plain_fields

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left
TWO_ROOMS = (
    "#########",
    "#A..#...#",
    "#...#..B#",
    "#.......#",
    "#...#...#",
    "#C..#...#",
    "#########",
)
BABYAI_FILE = "babyai_unlockpickup_bot.npz"
FRONTS = ("floor", "wall", "closed door", "open door", "key", "box")
BEARINGS = ("nothing", "left", "ahead", "right")
BABYAI_ACTIONS = ("turn left", "turn right", "forward", "pick up", "drop", "toggle")


@dataclass(frozen=True)
class GridWorld:
    """Cells, walls, and goals that a planner visits in turn: A, then B, ..., then A again.

    The state is the cell and nothing else; which goal the planner is after is hidden: the option.
    It changes when a goal is reached. Actions are up, right, down, left; a move into a wall stays.

    Args:
        rows: the map, ``#`` for a wall, ``.`` for a free cell, letters from A on for goals.
        noise: probability of an action at random in the place of one on a shortest path.
        slip: probability that the world moves at random instead.

    Raises:
        ValueError: for rows of unequal length, other signs, fewer than two goals, a goal that
            cannot be reached, or probabilities outside [0, 1].
    """

    rows: tuple[str, ...] = TWO_ROOMS
    noise: float = 0.1
    slip: float = 0.1

    def __post_init__(self) -> None:
        plain_fields(self)
        if not isinstance(self.rows, tuple) or not all(isinstance(row, str) for row in self.rows):
            raise ValueError(f"GridWorld: rows must be a tuple of texts, got {self.rows!r}")
        if len({len(row) for row in self.rows}) != 1 or not self.rows[0]:
            raise ValueError("GridWorld: rows of one length, at least 1, were expected")
        letters = sorted(set("".join(self.rows)) - {"#", "."})
        if len(letters) < 2 or letters != [chr(ord("A") + i) for i in range(len(letters))]:
            raise ValueError(
                "GridWorld: '#', '.' and the letters A, B, ... for at least two goals were"
                f" expected, got {letters}"
            )
        for name in ("noise", "slip"):
            check_number("GridWorld", name, getattr(self, name), "lie in [0, 1]", least=0, most=1)
        if any("".join(self.rows).count(letter) != 1 for letter in letters):
            raise ValueError("GridWorld: every goal must stand in one cell")
        for goal in self.goals:
            if (self.distances(goal) < 0).any():
                raise ValueError("GridWorld: every free cell must be reachable from every goal")

    @property
    def cells(self) -> tuple[tuple[int, int], ...]:
        """(row, column) of every state."""
        return tuple(
            (i, j) for i, row in enumerate(self.rows) for j, sign in enumerate(row) if sign != "#"
        )

    @property
    def goals(self) -> tuple[int, ...]:
        """The states of the goals, A first."""
        signs = [self.rows[i][j] for i, j in self.cells]
        return tuple(signs.index(letter) for letter in sorted(set(signs) - {"."}))

    def successors(self) -> np.ndarray:
        """(S, 4), the cell every action leads to."""
        index = {cell: n for n, cell in enumerate(self.cells)}
        return np.array(
            [[index.get((i + di, j + dj), n) for di, dj in MOVES] for (i, j), n in index.items()]
        )

    def distances(self, goal: int) -> np.ndarray:
        """(S,), steps to a goal; -1 where there is no way."""
        successors = self.successors()
        steps = np.full(len(successors), -1)
        steps[goal], queue = 0, deque([goal])
        while queue:
            here = queue.popleft()
            for there in successors[
                here
            ]:  # moves can be taken back, so ways lead in both directions
                if steps[there] < 0:
                    steps[there] = steps[here] + 1
                    queue.append(int(there))
        return steps

    def truth(self) -> dict[str, Tensor]:
        """The parameters of the options HMM that the planner is, one option a goal; it starts
        anywhere, with any goal.
        """
        successors, goals = self.successors(), self.goals
        num_states, num_options = len(successors), len(goals)
        low = np.zeros((num_states, num_options, 4))
        for o, goal in enumerate(goals):
            distance = self.distances(goal)
            better = distance[successors] < distance[:, None]
            better[goal] = True
            low[:, o] = (1 - self.noise) * better / better.sum(1, keepdims=True) + self.noise / 4
        environment = np.zeros((4, num_states, num_states))
        for a in range(4):
            environment[a, np.arange(num_states), successors[:, a]] += 1 - self.slip
            for b in range(4):
                environment[a, np.arange(num_states), successors[:, b]] += self.slip / 4
        high = np.broadcast_to(np.eye(num_options), (num_states, num_options, num_options)).copy()
        for o, goal in enumerate(goals):
            high[goal, o] = np.eye(num_options)[(o + 1) % num_options]
        initial = np.full((num_states, num_options), 1 / (num_states * num_options))
        parts = {"initial": initial, "low": low, "high": high, "environment": environment}
        return {name: torch.from_numpy(value) for name, value in parts.items()}

    def demonstrations(self, num_rows: int, num_steps: int, seed: int) -> OptionSequences:
        """The planner at work: ``num_rows`` sequences of ``num_steps`` steps, with the goals it was
        after.
        """
        return simulate_options(self.truth(), num_rows, num_steps, seed)


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
