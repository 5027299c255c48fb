"""Demonstrations with known sub-tasks: a planner on a grid of cells."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ppl_models.datasets.options import OptionSequences, simulate_options
from ppl_models.parts.validation import Seed, as_seed, check_number, plain_fields

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


@dataclass(frozen=True)
class GridWorld:
    """Grid world: cells, walls, and goals that a planner visits in turn, A, B, ..., A.

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
        """Cell (row, column) of every state."""
        return tuple(
            (i, j) for i, row in enumerate(self.rows) for j, sign in enumerate(row) if sign != "#"
        )

    @property
    def goals(self) -> tuple[int, ...]:
        """States of the goals, A first."""
        signs = [self.rows[i][j] for i, j in self.cells]
        return tuple(signs.index(letter) for letter in sorted(set(signs) - {"."}))

    def successors(self) -> np.ndarray:
        """Successor state of every action, (S, 4)."""
        index = {cell: n for n, cell in enumerate(self.cells)}
        return np.array(
            [[index.get((i + di, j + dj), n) for di, dj in MOVES] for (i, j), n in index.items()]
        )

    def distances(self, goal: int) -> np.ndarray:
        """Distances to a goal in steps, (S,); -1 where there is no way."""
        successors = self.successors()
        steps = np.full(len(successors), -1)
        steps[goal], queue = 0, deque([goal])
        while queue:
            here = queue.popleft()
            # moves can be taken back, so ways lead in both directions
            for there in successors[here]:
                if steps[there] < 0:
                    steps[there] = steps[here] + 1
                    queue.append(int(there))
        return steps

    def truth(self) -> dict[str, Tensor]:
        """Parameters of the planner as an options HMM, one option a goal.

        It starts anywhere, with any goal.
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

    def demonstrations(self, num_rows: int, num_steps: int, seed: Seed) -> OptionSequences:
        """Simulate the planner: ``num_rows`` sequences of ``num_steps`` steps, with its goals."""
        seed = as_seed("demonstrations", seed)
        return simulate_options(self.truth(), num_rows, num_steps, seed)
