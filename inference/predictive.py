"""Posterior predictive check: data sets drawn from the fit, set beside the data it was fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from inference.fitting.columns import as_fitted
from inference.fitting.observed import as_matrix, can_simulate, observed_sites, replicated_tables
from inference.fitting.record import FitRecord
from inference.fitting.rows import simulate_rows
from inference.programs.data import checks_data
from ppl_models.parts.showing import shows_briefly
from ppl_models.parts.validation import check_size

__all__ = ["PredictiveCheck", "predictive_check", "predictive_checks"]


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
        """Mean of each item over its observed rows: (J,) observed, (S, J) simulated; NaN where none is observed."""
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
        """Sum of the observed items of each row, (N,) and (S, N); of items in units of their spread unless discrete."""
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

    def correlations(self) -> tuple[np.ndarray, np.ndarray]:
        """Correlation of every pair of items over rows where both are observed, (P,) and the mean over simulations (P,).

        Pairs without a correlation (a constant item) are left out of both.
        """
        observed = _correlations(self.observed)
        simulated = np.mean([_correlations(x) for x in self.simulated[:5]], axis=0)  # J^2 N work each
        kept = np.isfinite(observed) & np.isfinite(simulated)
        return observed[kept], simulated[kept]


def predictive_check(
    fit: FitRecord, data: Any, num_simulations: int = 20, seed: int = 0, max_rows: int = 5000
) -> PredictiveCheck:
    """Draw data sets from the fit on the rows of ``data``, with the same entries missing.

    Args:
        fit: the fit; its point estimate is simulated from.
        data: (N, J), NaN where missing.
        num_simulations: number of simulated data sets, drawn with the seeds ``seed``, ``seed + 1``, ...
        seed: seed of the first simulation, and of the choice of rows.
        max_rows: compare that many rows, chosen at random, where there are more.

    Raises:
        ValueError: if ``num_simulations`` or ``max_rows`` is not positive, ``data`` does not fit the model, or the
            program observes several things (:func:`predictive_checks` has one check for each).
    """
    checks = predictive_checks(fit, data, num_simulations, seed, max_rows)
    if len(checks) != 1:
        raise ValueError(f"predictive_check: one observed site was expected, got {tuple(checks)}; predictive_checks compares each")
    return next(iter(checks.values()))


def predictive_checks(
    fit: FitRecord, data: Any, num_simulations: int = 20, seed: int = 0, max_rows: int = 5000
) -> dict[str, PredictiveCheck]:
    """A check of everything the program observes, by name: a table of items, the steps of sequences, the share of each value.

    Rows of a table are drawn anew from the program; an item of categories counts as indicators of all of them but the first. Any other program is run on its own data with the observed sites drawn
    instead of given: lengths, gaps and covariates are those of the data.

    Args:
        fit, data, num_simulations, seed, max_rows: as :func:`predictive_check`; data is what the program takes.

    Raises:
        ValueError: if a number is not positive, or ``data`` does not fit the model.
    """
    for name, value in (("num_simulations", num_simulations), ("max_rows", max_rows)):
        check_size("predictive_check", name, value)
    check_size("predictive_check", "seed", seed, least=0)
    fit.refuse_weights("predictive_check")
    data = as_fitted(fit, data)
    table = _table_of(fit, data)
    if table is not None:
        site, values = table
        chosen = _rows(len(values), max_rows, seed)
        draws = [simulate_rows(fit, len(chosen), seed=seed + s)[site] for s in range(num_simulations)]
        simulated = [draw.detach().cpu().numpy().astype(np.float64) for draw in draws]
        numbers = [fit.structure.as_numbers(torch.from_numpy(part)).numpy() for part in (values[chosen], *simulated)]
        return {site: _check(numbers[0], numbers[1:], len(values))}
    observed, simulations = replicated_tables(fit, data, num_simulations, seed)
    out = {}
    for name, values in observed.items():
        chosen = _rows(len(values), max_rows, seed)
        out[name] = _check(values[chosen], [drawn[name][chosen] for drawn in simulations], len(values))
    return out


def _table_of(fit: FitRecord, data: Any) -> tuple[str, np.ndarray] | None:
    """The one table of items that the model draws row by row, (N, J), and its site; None where it is anything else, or drawn given some of its columns."""
    sites = observed_sites(fit, data)
    if fit.structure.given_columns or len(sites) != 1 or not can_simulate(fit) or not checks_data(fit.model):
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
    """Pairwise-complete correlations of the columns of (N, J), upper triangle, (J (J - 1) / 2,)."""
    mask = (~np.isnan(values)).astype(np.float64)
    x = np.where(mask > 0, values - _mean(values, 0), 0.0)
    pairs = np.maximum(mask.T @ mask, 1.0)  # rows in which both are observed
    means = (x.T @ mask) / pairs
    variances = (x**2).T @ mask / pairs - means**2
    covariance = x.T @ x / pairs - means * means.T
    scale = np.sqrt(np.clip(variances * variances.T, 0.0, None))
    correlation = np.where(scale > 1e-12, covariance / np.where(scale > 1e-12, scale, 1.0), np.nan)
    return correlation[np.triu_indices(values.shape[1], 1)]
