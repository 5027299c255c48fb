r"""Climbing from a number of components while one more gains clearly more than it does in tables
that have none to find.

B tables are drawn from the fit of :math:`K_1` components and fitted again with :math:`K_1` and with
:math:`K_1 + 1`; with :math:`g_0` the mean gain in deviance of the superfluous component, and
:math:`g(K)` that of the data's K-th,

.. math:: \hat K = \min \{ K \ge K_1 : g(K + 1) < 1.4 \, g_0 \} .

What noise alone gains is taken from these tables and not from the edge of a matrix of unit noise,
below which it lies where activities are sparse: the parametric bootstrap of a likelihood ratio
(McLachlan 1987, doi:10.2307/2347790), whose mean is read off instead of a tail, for B is small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from inference.acdc.criterion import drawn_like
from inference.base.progress import Progress
from inference.fitting.result import Fit
from inference.selection.order_selection.candidates import Law
from inference.selection.order_selection.grid_fits import fit_next
from inference.structures.factorization.factorize import Factorize
from ppl_models.parts.repr import shows_briefly

STEEPER = 1.4  # times the mean gain of a superfluous component, from which one is counted


@shows_briefly
@dataclass(frozen=True, eq=False)
class Climb:
    """Where the climb started and where it stopped.

    Args:
        num_components: where it stopped.
        start: the fit that the tables were drawn from.
        null_gains: what a component more gained in deviance in each table, (B,).
        tables: (N, J) each, missing where the data are; fits: to them, of as many components as the
            start.
        at_end: whether the grid ended first.
    """

    num_components: int
    start: Fit
    null_gains: np.ndarray
    tables: tuple[Tensor, ...]
    fits: tuple[Fit, ...]
    at_end: bool

    @property
    def null_gain(self) -> float:
        """Their mean."""
        return float(self.null_gains.mean())


def climb_from(
    law: Law,
    start: int,
    fits: Mapping[int, Fit],
    data: Tensor,
    num_tables: int,
    num_random: int,
    seed: int,
    method: Factorize,
    progress: Progress,
) -> Climb:
    """Draw the tables, fit them, and climb.

    Args:
        law: whose components are counted; start: number from which to climb.
        fits: of this law, by number.
        data: (N, J), NaN where missing.
        num_tables: B; num_random: random starts of each of their fits; seed: of both; method:
            settings of every fit.
        progress: told of every table.
    """
    tables, smaller, gains = [], [], []
    generator = torch.Generator().manual_seed(seed)
    for b in range(num_tables):
        own = int(torch.randint(2**31, (1,), generator=generator))
        table = drawn_like(fits[start], data, own)
        small, large = fit_next(law, fits[start], table, num_random, own, method)
        tables.append(table)
        smaller.append(small)
        gains.append(max(0.0, 2 * (large.log_likelihood - small.log_likelihood)))
        progress.update(b + 1, objective=small.objective, active=num_tables - b - 1)
    deviance = {k: -2 * one.log_likelihood for k, one in fits.items()}
    stop = stop_of(deviance, start, float(np.mean(gains)))
    return Climb(
        stop, fits[start], np.array(gains), tuple(tables), tuple(smaller), stop == max(fits)
    )


def stop_of(deviance: Mapping[int, float], start: int, null_gain: float) -> int:
    """The first number from ``start`` on whose successor gains less than 1.4 times ``null_gain``;
    of a grid with gaps, by the mean of the components between.

    Args:
        deviance: by number; start: one of these numbers.
        null_gain: mean gain of a superfluous component.
    """
    sizes: Sequence[int] = sorted(k for k in deviance if k >= start)
    for below, above in zip(sizes, sizes[1:], strict=False):
        if deviance[below] - deviance[above] < STEEPER * null_gain * (above - below):
            return below
    return sizes[-1]
