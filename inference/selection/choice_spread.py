"""How sure is a number of components: repeated choices, and a cutoff calibrated on labelled
data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from inference.acdc.criterion import AcdcResult, Choice, acdc
from inference.fitting.result import Fit
from inference.metrics import f_measure
from inference.selection.factorization_criteria import fit_grid
from inference.selection.reproducibility import reproducibility
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import check_flag, check_size

if TYPE_CHECKING:
    import pandas as pd


Criterion = Callable[[Mapping[int, Fit], Any, int], AcdcResult]


def _default(fits: Mapping[int, Fit], data: Any, seed: int) -> AcdcResult:
    return acdc(fits, data, seed=seed)


@shows_briefly
@dataclass(frozen=True, eq=False)
class ChoiceSpread:
    """Choices of several independent repetitions.

    Args:
        choices: the number of components that each chose; results: what each found.
        best: the repetition that chose the most frequent number with the best objective.
        fits: its fits, by number of components.
    """

    choices: tuple[int, ...]
    results: tuple[AcdcResult, ...]
    best: int
    fits: Mapping[int, Fit]

    @property
    def shares(self) -> dict[int, float]:
        """Number of components -> share of the repetitions that chose it."""
        return {k: self.choices.count(k) / len(self.choices) for k in sorted(set(self.choices))}

    @property
    def chosen(self) -> int:
        """The most frequent choice; the smaller of equals."""
        return max(self.shares, key=lambda k: (self.shares[k], -k))

    def loss_band(
        self, num_components: int, rho: float | np.ndarray, level: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        """Quantiles over repetitions of the loss of one number of components; those that did not
        compare it are left out.

        Raises:
            ValueError: for a level outside (0, 1), or a number that no repetition compared.
        """
        if not 0 < level < 1:
            raise ValueError(f"loss_band: level must lie between 0 and 1, got {level!r}")
        values = [
            r.loss(num_components, rho)
            for r in self.results
            if num_components in r.component_discrepancy
        ]
        if not values:
            raise ValueError(
                f"loss_band: no repetition compared num_components = {num_components!r}"
            )
        low, high = np.quantile(values, ((1 - level) / 2, (1 + level) / 2), axis=0)
        return low, high

    @property
    def table(self) -> pd.DataFrame:
        """One row a repetition: the choice, what it leaves, the share its last component takes
        away, and whether to rely on it.
        """
        import pandas as pd

        rows = []
        for result in self.results:
            k, finished = result.chosen, result.select().finished
            rows.append(
                {
                    "chosen": k,
                    "left": result.left[k],
                    "share_taken": result.shares.get(k, np.nan),
                    "finished": finished,
                }
            )
        return pd.DataFrame(rows).rename_axis("repetition")


def repeat_choice(
    factory: Callable[[int], Any],
    data: Any,
    grid: object,
    num_seeds: int = 5,
    *,
    num_restarts: int | None = None,
    resample: bool = False,
    threshold: float | None = None,
    criterion: Criterion = _default,
    seed: int = 0,
) -> ChoiceSpread:
    """Fit, judge and choose from scratch several times: with which share of them comes a number of
    components?

    Args:
        factory: number of components -> model; data: the table; grid: the numbers.
        num_seeds: repetitions, each with starts, splits and halves of its own.
        num_restarts: of each fit, the family's own number if None.
        resample: draw the rows anew with replacement for every repetition: then the spread is that
            of the data as well.
        threshold: only numbers whose components return from halves of the rows with a smaller
            cosine error are compared, such as 0.2 (see
            :func:`inference.selection.reproducibility.reproducibility`); None compares all.
        criterion: fits, data and a seed -> discrepancies; :func:`inference.acdc.criterion.acdc` as
            it is by default.
        seed: of the first repetition, the others follow.

    Raises:
        ValueError: for fewer than two repetitions, or as the functions it calls.
    """
    check_size("repeat_choice", "num_seeds", num_seeds, least=2)
    check_flag("repeat_choice", "resample", resample)
    table, sizes = np.asarray(data), [int(k) for k in grid]  # type: ignore[attr-defined]
    rng = np.random.default_rng(seed)
    results, every = [], []
    for own in range(seed, seed + num_seeds):
        rows = table[rng.integers(len(table), size=len(table))] if resample else data
        fits = fit_grid(factory, rows, sizes, num_restarts, own)
        result = criterion(fits, rows, own)
        if threshold is not None:
            result = result.among(reproducibility(fits, rows, seed=own).numbers(threshold))
        results.append(result)
        every.append(fits)
    choices = tuple(result.chosen for result in results)
    chosen = ChoiceSpread(choices, tuple(results), 0, {}).chosen
    best = max(
        (i for i, k in enumerate(choices) if k == chosen), key=lambda i: every[i][chosen].objective
    )
    return ChoiceSpread(choices, tuple(results), best, every[best])


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
    criterion: Criterion = _default,
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
