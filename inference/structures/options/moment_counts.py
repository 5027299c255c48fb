"""Counts of three successive steps of state-action sequences, in one pass over data that need not
fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ppl_models.data.sequences import slices

MAX_ENTRIES = 2**27  # of the table of windows: A^2 S^3 numbers


@dataclass(frozen=True, eq=False)
class OptionMoments:
    """Frequencies of windows of three steps, pooled over sequences; windows never cross the end of
    a sequence.

    Args:
        windows: (A, S, S, S, A), P(a2, s2, s1, s3, a3): [action, middle state, past state, next
            state, next action].
        environment: (A, S, S), P(next state | action, state); zero rows where the action was never
            seen there.
        num_windows: how many.
        drift: distance of the state pairs in the first and second halves of the sequences, as a
            root mean square of z-scores; about 1 where the process is stationary.
    """

    windows: np.ndarray
    environment: np.ndarray
    num_windows: int
    drift: float = float("nan")

    @property
    def pairs(self) -> np.ndarray:
        """K, (S, S, A): P(s1, s2, a2) as [s2, s1, a2], of the same windows."""
        return self.windows.sum((3, 4)).transpose(1, 2, 0)

    @property
    def visits(self) -> np.ndarray:
        """(S,), P(s2)."""
        return self.windows.sum((0, 2, 3, 4))

    @property
    def num_states(self) -> int:
        return self.windows.shape[1]

    @property
    def num_actions(self) -> int:
        return self.windows.shape[0]


def count_moments(
    chunks: Tensor | Iterable[Tensor], num_states: int, num_actions: int, continued: bool = False
) -> OptionMoments:
    """Moments in one pass over data that need not fit into memory.

    Args:
        chunks: packed sequences (B, T, 2), or an iterable of them.
        num_states, num_actions: S and A.
        continued: the chunks are pieces in time of the same B sequences (else every chunk holds
            whole sequences).

    Raises:
        ValueError: if the table of A^2 S^3 numbers is too large, or no window of three known steps
            was found.
    """
    s, a = num_states, num_actions
    if a * a * s**3 > MAX_ENTRIES:
        raise ValueError(
            f"moments: a table of num_actions^2 num_states^3 = {a * a * s**3} numbers is too large;"
            " code fewer states"
        )
    windows, moves, halves = np.zeros(a * a * s**3), np.zeros(a * s * s), np.zeros(2 * s * s)
    tail: np.ndarray | None = None
    for chunk in [chunks] if isinstance(chunks, Tensor) else chunks:
        new = chunk.detach().cpu().numpy()
        table = new if tail is None else np.concatenate([tail, new], 1)
        old = (
            0 if tail is None else tail.shape[1]
        )  # windows that lie in the tail alone were counted
        flat, width = table.reshape(-1, 2), table.shape[1]
        middle = ((table[..., 0] >= 0).sum(1) - 1) / 2  # (B,)
        for part in slices(len(flat)):
            row, step = np.divmod(np.arange(part.start, part.stop), width)
            (s1, a1), (s2, a2), (s3, a3) = (
                _following(flat, part, step + k < width, k) for k in range(3)
            )
            pair = (s1 >= 0) & (s2 >= 0) & (step >= old - 1)
            _add(moves, ((a1 * s + s1) * s + s2)[pair & (a1 >= 0)])
            _add(halves, (((step >= middle[row]) * s + s1) * s + s2)[pair])
            known = (s3 >= 0) & (a2 >= 0) & (a3 >= 0) & (step >= old - 2)
            _add(windows, ((((a2 * s + s2) * s + s1) * s + s3) * a + a3)[known])
        tail = table[:, -2:] if continued else None
    total = int(windows.sum())
    if total == 0:
        raise ValueError(
            "moments: windows of three successive steps with known actions were expected, got none"
        )
    led = moves.reshape(a, s, s)
    visits = led.sum(-1, keepdims=True)
    environment = np.divide(led, visits, out=np.zeros_like(led), where=visits > 0)
    drift = float("nan") if continued else _drift(halves.reshape(2, s, s))
    return OptionMoments((windows / total).reshape(a, s, s, s, a), environment, total, drift)


def _following(
    flat: np.ndarray, part: slice, inside: np.ndarray, ahead: int
) -> tuple[np.ndarray, np.ndarray]:
    """State and action some steps ahead of a slice of flattened sequences, -1 where the row ends
    before.
    """
    found = flat[part.start + ahead : part.stop + ahead]
    found = np.concatenate([found, np.full((part.stop - part.start - len(found), 2), -1)])
    state, action = np.where(inside[:, None], found, -1).T
    return state, action


def _add(counts: np.ndarray, codes: np.ndarray) -> None:
    """Counts of codes, added in place; the table may be much longer than the codes."""
    if len(counts) <= 4 * len(codes):
        counts += np.bincount(codes, minlength=len(counts))
    else:
        found, times = np.unique(codes, return_counts=True)
        counts[found] += times


def _drift(halves: np.ndarray) -> float:
    sizes = halves.sum((1, 2))
    if not sizes.all():
        return float("nan")
    shares = halves / sizes[:, None, None]
    pooled = halves.sum(0) / sizes.sum()
    variance = pooled * (1 - pooled) * (1 / sizes).sum()
    seen = variance > 0
    return (
        float(np.sqrt(((shares[0] - shares[1])[seen] ** 2 / variance[seen]).mean()))
        if seen.any()
        else 0.0
    )
