"""Cutoff of ACDC calibrated on labelled data sets (Nguyen et al., chapter 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from inference.acdc.choice import Choice
from inference.acdc.criterion import AcdcResult, acdc
from inference.fitting.result import Fit
from inference.metrics import f_measure
from inference.selection.reproducibility import Criterion
from ppl_models.parts.repr import shows_briefly


def _acdc(fits: Mapping[int, Fit], data: Any, seed: int) -> AcdcResult:
    return acdc(fits, data, seed=seed)


@shows_briefly
@dataclass(frozen=True, eq=False)
class LabelledSet:
    """A data set whose rows' groups are known.

    Args:
        fits: number of components -> its fit to ``data``.
        data: the table, (N, J); labels: the group of each row, (N,).
    """

    fits: Mapping[int, Fit]
    data: Any
    labels: Any


@shows_briefly
@dataclass(frozen=True, eq=False)
class RhoCalibration:
    """A cutoff that served labelled data best.

    Args:
        rho: the cutoff, the midpoint of ``low`` and ``high``, between which all do equally well.
        score: the mean score there; starts, scores: the whole course, constant from each start to
            the next.
        convention: estimator and null for which the cutoff holds.
    """

    rho: float
    low: float
    high: float
    score: float
    starts: np.ndarray
    scores: np.ndarray
    convention: str

    def select(self, result: AcdcResult) -> Choice:
        """The choice of new data at this cutoff.

        Raises:
            ValueError: for discrepancies of another convention.
        """
        if result.convention != self.convention:
            raise ValueError(
                f"RhoCalibration: the cutoff holds for {self.convention!r}, got"
                f" {result.convention!r}"
            )
        return result.select(rho=self.rho)


def calibrate_rho(
    labelled: Sequence[LabelledSet],
    data: Any,
    *,
    criterion: Criterion = _acdc,
    score: Callable[[Fit, LabelledSet], float] | None = None,
    seed: int = 0,
) -> RhoCalibration:
    """The cutoff whose choices agree best with the labels of related data sets.

    The score of a choice is constant between the ends of segments, so every cutoff is looked at.

    Args:
        labelled: the data sets with their fits; data: the table that the cutoff is meant for.
        criterion: as in :func:`repeat_choice`; use the same one for the new data.
        score: of one fit, larger is better; by default the F-measure of its rows' most probable
            (mixtures) or most active (factorizations) component.
        seed: of the criterion.

    Raises:
        ValueError: for no data set, one with other columns than ``data``, or labels of another
            length.
    """
    width = np.asarray(data).shape[-1]
    if not labelled:
        raise ValueError("calibrate_rho: at least one labelled data set was expected")
    for i, one in enumerate(labelled):
        shape = np.asarray(one.data).shape
        if len(shape) != 2 or shape[1] != width:
            raise ValueError(
                f"calibrate_rho: labelled set {i} must have the {width} columns of the data, got"
                f" shape {shape}"
            )
        if np.asarray(one.labels).shape != shape[:1]:
            raise ValueError(
                f"calibrate_rho: labelled set {i} has {shape[0]} rows, but labels of shape"
                f" {np.asarray(one.labels).shape}"
            )
    score = _agreement if score is None else score
    results = [criterion(one.fits, one.data, seed) for one in labelled]
    starts = np.unique([s.start for result in results for s in result.segments])
    scores = np.zeros(len(starts))
    for one, result in zip(labelled, results, strict=True):
        chosen = [result.select(rho=float(start)).num_components for start in starts]
        by_size = {k: score(one.fits[k], one) for k in set(chosen)}
        scores += np.array([by_size[k] for k in chosen]) / len(labelled)
    first = int(scores.argmax())
    equal = np.flatnonzero(scores[first:] < scores[first])
    last = max(result.segments[-1].end for result in results)
    high = float(starts[first + equal[0]]) if len(equal) else last
    low = float(starts[first])
    return RhoCalibration(
        (low + high) / 2, low, high, float(scores[first]), starts, scores, results[0].convention
    )


def _agreement(fit: Fit, one: LabelledSet) -> float:
    """F-measure of the rows' components against their labels."""
    if fit.local is not None:
        belonging = fit.local["activities"]
    else:
        belonging = next(
            iter(fit.posterior_latents(torch.as_tensor(np.asarray(one.data))).values())
        )
    return f_measure(belonging.argmax(-1).numpy(), np.asarray(one.labels))
