r"""Bootstrap climb: add components while one gains more than in tables without it.

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

import numpy as np
import torch

from inference.acdc.criterion import drawn_like
from inference.fitting.result import Fit
from inference.selection.order_selection.counting import Candidate, Grid, fit_once, fit_size
from inference.selection.order_selection.result import Climb

STEEPER = 1.4  # times the mean gain of a superfluous component, from which one is counted


def climb_from(
    grid: Grid, candidate: Candidate, start: int, fits: Mapping[int, Fit], num_random: int
) -> Climb:
    """Draw the tables, fit them, and climb.

    Args:
        grid: the data, the number of tables, and settings of every fit.
        candidate: whose components are counted.
        start: number from which to climb.
        fits: of this candidate, by number.
        num_random: random starts of each fit of a table.
    """
    tables, smaller, gains = [], [], []
    generator = torch.Generator().manual_seed(grid.seed)
    for b in range(grid.bootstrap):
        seed = int(torch.randint(2**31, (1,), generator=generator))
        table = drawn_like(fits[start], grid.table, seed)
        drawn = grid.on(table, seed=seed)
        small = fit_once(drawn, candidate, start, None, {start: fits[start]}, num_random, seed)
        large = fit_size(drawn, candidate, start + 1, small, {}, num_random)
        tables.append(table)
        smaller.append(small)
        gains.append(max(0.0, 2 * (large.log_likelihood - small.log_likelihood)))
        grid.progress.update(b + 1, objective=small.objective, active=grid.bootstrap - b - 1)
    deviance = {k: -2 * fit_k.log_likelihood for k, fit_k in fits.items()}
    stop = stop_of(deviance, start, float(np.mean(gains)))
    return Climb(
        stop, fits[start], np.array(gains), tuple(tables), tuple(smaller), stop == max(fits)
    )


def stop_of(deviance: Mapping[int, float], start: int, null_gain: float) -> int:
    """Return the first number whose successor gains less than 1.4 times ``null_gain``.

    Of a grid with gaps, by the mean of the components between.

    Args:
        deviance: by number.
        start: one of these numbers.
        null_gain: mean gain of a superfluous component.
    """
    sizes: Sequence[int] = sorted(k for k in deviance if k >= start)
    for below, above in zip(sizes, sizes[1:], strict=False):
        if deviance[below] - deviance[above] < STEEPER * null_gain * (above - below):
            return below
    return sizes[-1]
