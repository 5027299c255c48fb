r"""Posterior predictive check: data sets drawn from the fit beside its data.

A statistic t of the data stands out beside those of S simulated data sets, of mean m and standard
deviation s, if

.. math:: |t - m| > q \, s \sqrt{1 + 1/S}

where q is the quantile of Student's t with S - 1 degrees of freedom (for correlations, whose s is
shared by all pairs, of the normal distribution) that leaves a chance of 1 % to all columns, or
pairs, together; and if it differs by enough to speak of, a tenth of a standard deviation, or of a
correlation. The s of a mean is at least what independent rows have, so that a column which the
simulations never vary is not one that stands out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri, stdtrit

from inference.base.structure import as_numbers
from inference.fitting.columns import (
    as_fitted,
    as_matrix,
    can_simulate,
    observed_sites,
    replicated_tables,
)
from inference.fitting.posterior import simulate_rows
from inference.fitting.record import FitRecord
from ppl_models.data.tables import checks_data
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.surface import promised as _promised
from ppl_models.parts.validation import Seed, as_seed, check_size

__all__ = ["PredictiveCheck", "predictive_check", "predictive_checks"]
__dir__ = _promised(__name__)

LEVEL = 0.01  # chance that a right model has any column, or pair, called outstanding
LEAST = 0.1  # standard deviations of a column, or of a correlation: less is not worth words
LEAST_ROWS = 20
MOST_PAIRED = 5  # simulations whose correlations are worked out: J^2 N work each


@dataclass(frozen=True)
class Departure:
    """A statistic of the data that the fit does not reproduce.

    Args:
        columns: one column, or the two of a pair.
        what: "mean", "spread" (the mean distance from the mean, which a few odd rows do not decide)
            or "correlation".
        observed: of the data; simulated: its mean over data drawn from the fit.
        size: the difference in standard deviations of the column, as the log of a ratio, or of
            correlations.
    """

    columns: tuple[int, ...]
    what: str
    observed: float
    simulated: float
    size: float


@shows_briefly
@dataclass(frozen=True, eq=False)
class PredictiveCheck:
    """Observed and simulated items on the same rows, with the same entries missing.

    Args:
        observed: (N, J), NaN where missing; J columns, of an item of C categories C - 1.
        simulated: (S, N, J), NaN where the observed entry is missing.
        num_rows: rows of the whole data set, of which N were compared.
    """

    observed: np.ndarray
    simulated: np.ndarray
    num_rows: int

    @property
    def is_discrete(self) -> bool:
        """True if every observed entry is a whole number."""
        seen = self.observed[~np.isnan(self.observed)]
        return bool((seen == np.round(seen)).all())

    def item_means(self) -> tuple[np.ndarray, np.ndarray]:
        """Means of the items over observed rows: (J,) observed, (S, J) simulated.

        NaN where none is observed.
        """
        return _mean(self.observed, 0), _mean(self.simulated, 1)

    def interval(self, level: float = 0.95) -> np.ndarray:
        """Central interval of the simulated item means, (2, J)."""
        tail = (1 - level) / 2
        return np.quantile(self.item_means()[1], [tail, 1 - tail], axis=0)

    def num_outside(self) -> int:
        """Number of items whose observed mean lies outside the range of the simulated ones."""
        observed, simulated = self.item_means()
        return int(((observed < simulated.min(0)) | (observed > simulated.max(0))).sum())

    def row_sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums of the observed items of each row, (N,) and (S, N).

        Of items in units of their spread unless discrete.
        """
        observed, simulated = self.observed, self.simulated
        if not self.is_discrete:
            centre = _mean(observed, 0)
            spread = np.sqrt(_mean((observed - centre) ** 2, 0))
            spread[~(spread > 0)] = 1.0
            observed, simulated = (observed - centre) / spread, (simulated - centre) / spread
        return np.nansum(observed, -1), np.nansum(simulated, -1)

    def sum_bins(self) -> list[float]:
        """Edges of histogram bins for :meth:`row_sums`, one bin a value where there are few."""
        pooled = np.concatenate([part.ravel() for part in self.row_sums()])
        if self.is_discrete and np.ptp(pooled) < 60:
            return np.arange(pooled.min() - 0.5, pooled.max() + 1.0).tolist()
        room = 0.5 if np.ptp(pooled) == 0 else 0.0  # one value only: one bin around it
        return np.linspace(pooled.min() - room, pooled.max() + room, 31).tolist()

    @functools.cached_property
    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Correlations of all pairs: observed (P,), and of a few simulations (S', P)."""
        return _correlations(self.observed), np.stack(
            [_correlations(x) for x in self.simulated[:MOST_PAIRED]]
        )

    def correlations(self) -> tuple[np.ndarray, np.ndarray]:
        """Correlation of every pair of items, (P,), and the mean over simulations (P,).

        Over rows where both are observed.

        Pairs without a correlation (a constant item) are left out of both.
        """
        observed, simulated = self._pairs[0], self._pairs[1].mean(0)
        kept = np.isfinite(observed) & np.isfinite(simulated)
        return observed[kept], simulated[kept]

    def departures(self) -> tuple[Departure, ...]:
        """Means, spreads and correlations that clearly differ from the simulated data's.

        The largest of each kind first.

        Empty where there are too few rows or simulations to say so.
        """
        if len(self.observed) < LEAST_ROWS or len(self.simulated) < 3:
            return ()
        sets = [self.observed, *self.simulated]  # one after the other: together they may be large
        means = np.stack([_mean(x, 0) for x in sets])  # (1 + S, J)
        spreads = np.stack(
            [_mean(np.abs(x - mean), 0) for x, mean in zip(sets, means, strict=True)]
        )
        deviations = np.sqrt(
            np.mean([_mean((x - mean) ** 2, 0) for x, mean in zip(sets, means, strict=True)], 0)
        )
        deviations[~(deviations > 0)] = 1.0
        is_binary = np.all([((x == 0) | (x == 1) | np.isnan(x)).all(0) for x in sets], 0)
        spreads[:, is_binary | ~(spreads > 0).all(0)] = (
            np.nan
        )  # of zeros and ones it says what the mean says
        counts = np.maximum((~np.isnan(self.observed)).sum(0), 1)
        found = _outstanding(
            "mean",
            means,
            means,
            (means[0] - means[1:].mean(0)) / deviations,
            deviations / np.sqrt(counts),
        )
        logs = np.log(spreads)
        found += _outstanding(
            "spread", spreads, logs, logs[0] - logs[1:].mean(0), np.zeros(len(counts))
        )
        return tuple(found + self._unlike_pairs())

    def _unlike_pairs(self) -> list[Departure]:
        observed, simulated = self._pairs
        centre, known = simulated.mean(0), np.isfinite(observed) & np.isfinite(simulated).all(0)
        if not known.any() or len(simulated) < 2:
            return []
        variances = simulated[:, known].var(0, ddof=1)
        errors = np.full(len(observed), np.nan)
        errors[known] = np.sqrt(np.maximum(variances, variances.mean()) * (1 + 1 / len(simulated)))
        sizes = observed - centre
        with np.errstate(invalid="ignore"):
            clear = (
                known
                & (np.abs(sizes) > -ndtri(LEVEL / (2 * known.sum())) * errors)
                & (np.abs(sizes) >= LEAST)
            )
        one, other = np.triu_indices(self.observed.shape[1], 1)
        order = sorted(np.flatnonzero(clear).tolist(), key=lambda p: -abs(sizes[p]))
        return [
            Departure(
                (int(one[p]), int(other[p])),
                "correlation",
                float(observed[p]),
                float(centre[p]),
                float(sizes[p]),
            )
            for p in order
        ]


def _outstanding(
    what: str, values: np.ndarray, judged: np.ndarray, sizes: np.ndarray, floor: np.ndarray
) -> list[Departure]:
    """Return columns whose statistic, (1 + S, J) with the data first, stands out on its scale."""
    num_simulations, num_columns = len(values) - 1, values.shape[1]
    errors = np.maximum(judged[1:].std(0, ddof=1), floor) * math.sqrt(1 + 1 / num_simulations)
    with np.errstate(invalid="ignore"):
        off = (
            np.abs(judged[0] - judged[1:].mean(0))
            > -stdtrit(num_simulations - 1, LEVEL / (2 * num_columns)) * errors
        )
        clear = off & (np.abs(sizes) >= LEAST)
    order = sorted(np.flatnonzero(clear).tolist(), key=lambda j: -abs(sizes[j]))
    return [
        Departure((j,), what, float(values[0, j]), float(values[1:, j].mean()), float(sizes[j]))
        for j in order
    ]


def predictive_check(
    fit: FitRecord, data: Any, num_simulations: int = 20, seed: Seed = 0, max_rows: int = 5000
) -> PredictiveCheck:
    """Draw data sets from the fit on the rows of ``data``, with the same entries missing.

    Simulated rows are new ones, so gaps must not depend on the other answers of a row: an item that
    is asked only after a certain answer departs in mean and correlations from the simulated one
    even where the fit, which allows for such gaps, is right.

    Args:
        fit: the fit; its point estimate is simulated from, or evenly spaced draws where continuous
            latents of the rows were drawn, whose means would vary too little.
        data: (N, J), NaN where missing.
        num_simulations: number of simulated data sets, drawn with the seeds ``seed``, ``seed + 1``,
            ...
        seed: seed of the first simulation, and of the choice of rows.
        max_rows: compare that many rows, chosen at random, where there are more.

    Raises:
        ValueError: if ``num_simulations`` or ``max_rows`` is not positive, ``data`` does not fit
            the model, or the program observes several things (:func:`predictive_checks` has one
            check for each).

    Example:
        >>> import numpy as np
        >>> from inference import fit
        >>> from inference.predictive import predictive_check
        >>> from ppl_models import Mixture
        >>> rng = np.random.default_rng(0)
        >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
        >>> classes = fit(Mixture(2), answers)
        >>> observed, simulated = predictive_check(classes, answers).item_means()
        >>> simulated.shape
        (20, 4)
    """
    checks = predictive_checks(fit, data, num_simulations, seed, max_rows)
    if len(checks) != 1:
        raise ValueError(
            f"predictive_check: one observed site was expected, got {tuple(checks)};"
            " predictive_checks compares each"
        )
    return next(iter(checks.values()))


def predictive_checks(
    fit: FitRecord, data: Any, num_simulations: int = 20, seed: Seed = 0, max_rows: int = 5000
) -> dict[str, PredictiveCheck]:
    """Check everything the program observes, by name.

    A table of items, the steps of sequences, the share of each value.

    Rows of a table are drawn anew from the program; an item of categories counts as indicators of
    all of them but the first. Any other program is run on its own data with the observed sites
    drawn instead of given: lengths, gaps and covariates are those of the data.

    Args:
        fit: as :func:`predictive_check`; data is what the program takes.
        data: as :func:`predictive_check`.
        num_simulations: as :func:`predictive_check`.
        seed: as :func:`predictive_check`.
        max_rows: as :func:`predictive_check`.

    Raises:
        ValueError: if a number is not positive, or ``data`` does not fit the model.
    """
    seed = as_seed("predictive_check", seed)
    for name, value in (("num_simulations", num_simulations), ("max_rows", max_rows)):
        check_size("predictive_check", name, value)
    fit.refuse_weights("predictive_check")
    data = as_fitted(fit, data)
    table = _table_of(fit, data)
    if table is not None:
        site, values = table
        chosen = _rows(len(values), max_rows, seed)
        draws = [
            simulate_rows(fit, len(chosen), seed=seed + s)[site] for s in range(num_simulations)
        ]
        simulated = [draw.detach().cpu().numpy().astype(np.float64) for draw in draws]
        numbers = [
            as_numbers(fit.structure, torch.from_numpy(part)).numpy()
            for part in (values[chosen], *simulated)
        ]
        return {site: _check(numbers[0], numbers[1:], len(values))}
    observed, simulations = replicated_tables(fit, data, num_simulations, seed)
    out = {}
    for name, values in observed.items():
        chosen = _rows(len(values), max_rows, seed)
        out[name] = _check(
            values[chosen], [drawn[name][chosen] for drawn in simulations], len(values)
        )
    return out


def _table_of(fit: FitRecord, data: Any) -> tuple[str, np.ndarray] | None:
    """Return the one table of items that the model draws row by row, (N, J), and its site.

    None where it is anything else, or drawn given some of its columns.
    """
    sites = observed_sites(fit, data)
    if (
        fit.structure.num_given
        or len(sites) != 1
        or not can_simulate(fit)
        or not checks_data(fit.model)
    ):
        return None
    values = as_matrix(fit, data)
    return (sites[0], values) if values.ndim == 2 else None


def _rows(num_rows: int, max_rows: int, seed: int) -> np.ndarray:
    if num_rows <= max_rows:
        return np.arange(num_rows)
    return np.sort(np.random.default_rng(seed).choice(num_rows, max_rows, replace=False))


def _check(observed: np.ndarray, draws: Sequence[np.ndarray], num_rows: int) -> PredictiveCheck:
    simulated = np.stack(draws)
    simulated[:, np.isnan(observed)] = np.nan
    return PredictiveCheck(observed, simulated, num_rows)


def _mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Mean over observed entries; NaN (without a warning) where there are none."""
    seen = ~np.isnan(values)
    count = seen.sum(axis)
    total = np.where(seen, values, 0.0).sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _correlations(values: np.ndarray) -> np.ndarray:
    """Return pairwise-complete correlations of columns (N, J), upper triangle, (P,)."""
    mask = (~np.isnan(values)).astype(np.float64)
    x = np.where(mask > 0, values - _mean(values, 0), 0.0)
    largest = np.abs(x).max(0, initial=0.0)
    x = x / np.where(largest > 0, largest, 1.0)  # a change of unit changes nothing
    pairs = np.maximum(mask.T @ mask, 1.0)  # rows in which both are observed
    means = (x.T @ mask) / pairs
    variances = (x**2).T @ mask / pairs - means**2
    covariance = x.T @ x / pairs - means * means.T
    scale = np.sqrt(np.clip(variances * variances.T, 0.0, None))
    correlation = np.where(scale > 1e-12, covariance / np.where(scale > 1e-12, scale, 1.0), np.nan)
    return correlation[np.triu_indices(values.shape[1], 1)]
