"""Options HMMs with a known truth: the four-state chain, a grid world, a fast simulator."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ppl_models.data.sequences import pack
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_number, plain_fields

MANY_ROWS = 256  # from here on sequences are simply drawn side by side


@shows_briefly
@dataclass(frozen=True, eq=False)
class OptionSequences:
    """Sequences of states and actions with the options that made them.

    Args:
        data: ``{"state": (B, T), "action": (B, T), "length": (B,)}``, -1 after the end: what a
            model is fitted to.
        option: (B, T) int64, the options; never used in fitting; -1 after the end.
    """

    data: dict[str, Tensor]
    option: Tensor

    @property
    def packed(self) -> Tensor:
        """Packed sequences, (B, T, 2)."""
        return pack(self.data["state"], self.data["action"], self.data["length"])


def options_chain() -> dict[str, Tensor]:
    """Parameters of four states on a line, actions left and right, two options.

    ``initial`` is the stationary distribution.

    Source: Nguyen, Li, Lai, Paschalidis and Huggins, *Beyond Predictive Accuracy* (thesis), section
    2.4.
    """
    low = [
        [[0.6, 0.4], [0.1, 0.9]],
        [[0.7, 0.3], [0.15, 0.85]],
        [[0.8, 0.2], [0.3, 0.7]],
        [[0.9, 0.1], [0.35, 0.65]],
    ]
    high = [
        [[0.67, 0.33], [0.16, 0.84]],
        [[0.88, 0.12], [0.16, 0.84]],
        [[0.84, 0.16], [0.12, 0.88]],
        [[0.84, 0.16], [0.33, 0.67]],
    ]
    left = [
        [0.7, 0.1, 0.1, 0.1],
        [0.4, 0.4, 0.1, 0.1],
        [0.3, 0.3, 0.3, 0.1],
        [0.25, 0.25, 0.25, 0.25],
    ]
    right = [
        [0.25, 0.25, 0.25, 0.25],
        [0.1, 0.3, 0.3, 0.3],
        [0.1, 0.1, 0.4, 0.4],
        [0.1, 0.1, 0.1, 0.7],
    ]
    parts = {"low": low, "high": high, "environment": [left, right]}
    return with_stationary_start(
        {name: torch.tensor(value, dtype=torch.float64) for name, value in parts.items()}
    )


def with_stationary_start(parts: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add the stationary distribution as ``initial``."""
    return {"initial": stationary_distribution(parts), **parts}


def stationary_distribution(params: Mapping[str, Tensor]) -> Tensor:
    """Stationary distribution P(state, option) of the chain, (S, O)."""
    low, high, environment = params["low"], params["high"], params["environment"]
    num_states, num_options = low.shape[:2]
    step = torch.einsum("soa,ast,top->sotp", low, environment, high).reshape(
        num_states * num_options, -1
    )
    size = len(step)
    system = torch.cat(
        [step.mT - torch.eye(size, dtype=step.dtype), torch.ones(1, size, dtype=step.dtype)]
    )
    target = torch.zeros(size + 1, 1, dtype=step.dtype)
    target[-1] = 1.0
    distribution = torch.linalg.lstsq(system, target).solution[:, 0].clamp(min=0.0)
    return (distribution / distribution.sum()).reshape(num_states, num_options)


def simulate_options(
    params: Mapping[str, Tensor], num_rows: int, num_steps: int, seed: Seed
) -> OptionSequences:
    """Simulate sequences of an options HMM.

    A long sequence is cut into pieces that are drawn side by side, each from every state and option
    it could begin in with the same random numbers; the pieces that fit together are then kept: the
    distribution is that of one sequence.

    Args:
        params: ``initial`` (S, O), ``low``, ``high``, ``environment``.
        num_rows: B and T.
        num_steps: B and T.
        seed: one seed, one answer.

    Raises:
        ValueError: if a size is not positive.
    """
    seed = as_seed("simulate_options", seed)
    if num_rows < 1 or num_steps < 1:
        raise ValueError(
            f"simulate_options: positive numbers of rows and steps were expected, got {num_rows}"
            f" and {num_steps}"
        )
    arrays = {name: value.detach().cpu().numpy() for name, value in params.items()}
    num_states, num_options = arrays["initial"].shape
    sums = {
        "low": arrays["low"].reshape(num_states * num_options, -1).cumsum(-1),
        "environment": arrays["environment"].reshape(-1, num_states).cumsum(-1),
        "high": arrays["high"].reshape(-1, num_options).cumsum(-1),
    }
    generator = np.random.default_rng(seed)
    start = _draw(
        arrays["initial"].reshape(1, -1).cumsum(-1)[np.zeros(num_rows, dtype=int)],
        generator.random(num_rows),
    )
    num_pieces = 1 if num_rows >= MANY_ROWS else max(1, int(math.sqrt(num_steps / num_rows)))
    size = -(-num_steps // num_pieces)
    seeds = np.random.SeedSequence(seed).spawn(1)[0]
    if num_pieces > 1:
        every = np.arange(num_states * num_options)
        begin = np.broadcast_to(every[:, None], (len(every), num_rows * num_pieces))
        ends = _run(sums, begin, size, num_states, num_options, seeds, keep=False)[1].reshape(
            len(every), num_rows, num_pieces
        )
        begins = np.empty((num_rows, num_pieces), dtype=np.int64)
        begins[:, 0] = start
        for piece in range(1, num_pieces):
            begins[:, piece] = ends[begins[:, piece - 1], np.arange(num_rows), piece - 1]
        start = begins.ravel()
    steps, _ = _run(sums, start[None], size, num_states, num_options, seeds, keep=True)
    state, option, action = (part.reshape(num_rows, -1)[:, :num_steps] for part in steps)
    data = {
        "state": torch.from_numpy(np.ascontiguousarray(state)),
        "action": torch.from_numpy(np.ascontiguousarray(action)),
        "length": torch.full((num_rows,), num_steps),
    }
    return OptionSequences(data, torch.from_numpy(np.ascontiguousarray(option)))


def _draw(sums: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Draw entries from cumulative sums (rows) by uniform numbers."""
    return np.minimum((uniform[..., None] * sums[..., -1:] >= sums).sum(-1), sums.shape[-1] - 1)


def _run(
    sums: dict[str, np.ndarray],
    begin: np.ndarray,
    num_steps: int,
    num_states: int,
    num_options: int,
    seeds: object,
    keep: bool,
) -> tuple[list[np.ndarray], np.ndarray]:
    """Run the chains (kinds, chains): states, options and actions, and the ends.

    Arrays are (chains, num_steps), of kind 0 if kept.
    """
    generator = np.random.default_rng(seeds)  # type: ignore[arg-type]
    state, option = begin // num_options, begin % num_options
    num_chains = begin.shape[1]
    kept = [np.empty((num_chains, num_steps), dtype=np.int64) for _ in range(3)] if keep else []
    for t in range(num_steps):
        uniform = generator.random((3, num_chains))
        action = _draw(sums["low"][state * num_options + option], uniform[0])
        for place, value in zip(kept, (state, option, action), strict=False):
            place[:, t] = value[0]
        state = _draw(sums["environment"][action * num_states + state], uniform[1])
        option = _draw(sums["high"][state * num_options + option], uniform[2])
    return kept, state * num_options + option


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
