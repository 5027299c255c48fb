"""Misfit of a fit: the noise of its components beside that of tables drawn from it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from inference.acdc.criterion import BootstrapNull, FittedNull, Table, acdc
from inference.fitting.result import Fit
from inference.selection.order_selection.detectability import MISFIT
from inference.selection.order_selection.result import Climb

NUM_NULL = 8  # tables of the refitted null
ENOUGH = 6  # of them, where they are there already
CLOSER = 24  # tables of a second look, where the first could be the noise of few
PLAIN = 10.0  # a misfit that needs no second look
FEW_ROWS = 50  # that use a component: fewer do not test its distribution


def misfit_of(fit: Fit, data: Any, seed: int, climb: Climb | None = None) -> tuple[float, float]:
    """Return the largest misfit of a component, and the rows of the component with the fewest.

    In standard deviations of exact noise. The tables of a climb that started from this fit are
    taken for the null, where they are enough. A misfit that would contradict the candidate, and is
    not plain, is measured again with other draws and more tables, and that counts: on the same data
    the first moves by one or two from seed to seed.
    """
    tables = () if climb is None or climb.start is not fit else climb.tables
    if climb is not None and len(tables) >= ENOUGH:
        misfit, used = _measured(fit, data, seed, FittedNull(tables, climb.fits), len(tables))
    else:
        misfit, used = _measured(fit, data, seed, BootstrapNull(NUM_NULL, refit=True), NUM_NULL)
    if MISFIT < misfit < PLAIN:
        misfit, _ = _measured(fit, data, seed + 1, BootstrapNull(CLOSER, refit=True), CLOSER)
    return misfit, used


def _measured(
    fit: Fit, data: Any, seed: int, null: BootstrapNull | FittedNull, num_null: int
) -> tuple[float, float]:
    """Return the largest score of a component, and the fewest rows of one.

    The null's mean is that of refits; its deviation the table's, times the ratio of the two over
    all components, for each alone rests on few refits.
    """
    k = fit.model.num_components  # type: ignore[attr-defined]
    refitted = acdc({k: fit}, data, calibrate=null, seed=seed)
    exact = acdc({k: fit}, data, calibrate=Table(), seed=seed)
    ratio = refitted.null_sd[k] / exact.null_sd[k]
    size = float(np.sqrt(np.nanmean(ratio**2))) if np.isfinite(ratio).any() else 1.0
    scores = (refitted.raw[k] - refitted.null_mean[k]) / (
        size * exact.null_sd[k] * math.sqrt(1 + 1 / num_null)
    )
    finite = scores[np.isfinite(scores)]
    return float(finite.max(initial=0.0)), float(exact.num_used[k].min())
