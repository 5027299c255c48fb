r"""The loss of every number of components as a function of the cutoff, exactly.

.. math:: R_\rho(K) = \sum_{k \le K} w_k \max(0, D_k - \rho) + \lambda K

is convex and piecewise linear in :math:`\rho` with knots at the :math:`D_k`; the best K for every :math:`\rho` follows from
intersections of lines, without a grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["Segment", "best_segments", "loss"]


@dataclass(frozen=True)
class Segment:
    """An interval of cutoffs on which one number of components is best.

    Args:
        start, end: of the interval; num_components: the best on it.
    """

    start: float
    end: float
    num_components: int

    @property
    def width(self) -> float:
        """end - start."""
        return self.end - self.start


def loss(discrepancies: np.ndarray, weights: np.ndarray, penalty: float, rho: float | np.ndarray) -> np.ndarray:
    """R at one or several cutoffs, with the penalty of every component."""
    excess = np.maximum(0.0, discrepancies[:, None] - np.atleast_1d(rho))
    value: np.ndarray = (weights[:, None] * excess).sum(0) + penalty * len(discrepancies)
    return value


def best_segments(
    discrepancies: Mapping[int, np.ndarray], weights: Mapping[int, np.ndarray], penalty: float
) -> tuple[Segment, ...]:
    """The lower envelope over K on [0, largest discrepancy + 1]; where several tie, the smallest K.

    Args:
        discrepancies: K -> (K,), not negative; weights: K -> (K,).
        penalty: lambda, added for every component.
    """
    sizes = sorted(discrepancies)
    knots = np.concatenate([discrepancies[k] for k in sizes])
    end = float(knots.max(initial=0.0)) + 1.0
    points = np.unique(np.concatenate([[0.0, end], knots[(knots > 0) & (knots < end)]]))
    found: list[Segment] = []
    for left, right in zip(points[:-1], points[1:], strict=True):
        middle = (left + right) / 2
        slopes = np.array([-(weights[k] * (discrepancies[k] > middle)).sum() for k in sizes])
        values = np.array([float(loss(discrepancies[k], weights[k], penalty, middle)[0]) for k in sizes])
        values = values + slopes * (left - middle)  # at the left end
        at = left
        while at < right:
            now = values + slopes * (at - left)
            tied = np.flatnonzero(now <= now.min() + 1e-12 * (1 + abs(now.min())))
            best = int(tied[np.argmin(slopes[tied])])  # just right of here; argmin takes the smallest K among equals
            gain = slopes[best] - slopes  # how fast the others come down on the best
            wait = np.where(gain > 1e-15, (now - now[best]) / np.where(gain > 1e-15, gain, 1.0), np.inf)
            wait[wait <= 1e-14 * (1 + at)] = np.inf
            until = min(float(right), float(at) + float(wait.min()))
            if found and found[-1].num_components == sizes[best]:
                found[-1] = Segment(found[-1].start, until, sizes[best])
            else:
                found.append(Segment(float(at), until, sizes[best]))
            at = until
    return tuple(found)
