"""Do the data contradict the law of a fit? The noise of its components beside that of tables drawn from the fit and fitted again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from inference.acdc.criterion import BootstrapNull, FittedNull, Table, acdc
from inference.fitting.result import Fit
from inference.selection.how_many.climb import Climb

__all__ = ["FEW_ROWS", "misfit_of"]

NUM_NULL = 8  # tables of the refitted null
ENOUGH = 6  # of them, where they are there already
FEW_ROWS = 50  # that use a component: fewer do not test its law


def misfit_of(one: Fit, data: Any, seed: int, climb: Climb | None = None) -> tuple[float, float]:
    """Largest misfit of a component in standard deviations of exact noise, and the rows that use the component with the fewest.

    The tables of a climb that started from this fit are taken for the null, where they are enough.

    The null's mean is that of refits; its deviation the table's, times the ratio of the two over all components, for each alone rests on few refits.
    """
    k = one.model.num_components  # type: ignore[attr-defined]
    known = () if climb is None or climb.start is not one else climb.tables
    null = FittedNull(known, climb.fits) if climb is not None and len(known) >= ENOUGH else BootstrapNull(NUM_NULL, refit=True)
    num_null = len(known) if isinstance(null, FittedNull) else NUM_NULL
    refitted = acdc({k: one}, data, calibrate=null, seed=seed)
    exact = acdc({k: one}, data, calibrate=Table(), seed=seed)
    ratio = refitted.null_sd[k] / exact.null_sd[k]
    size = float(np.sqrt(np.nanmean(ratio**2))) if np.isfinite(ratio).any() else 1.0
    scores = (refitted.raw[k] - refitted.null_mean[k]) / (size * exact.null_sd[k] * math.sqrt(1 + 1 / num_null))
    finite = scores[np.isfinite(scores)]
    return float(finite.max(initial=0.0)), float(exact.num_used[k].min())
