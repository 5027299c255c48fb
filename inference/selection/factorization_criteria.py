"""Information criteria and parallel analysis for factorizations, in one table.

The criteria that count parameters use ``Fit.num_parameters``, activities included where they were
estimated (fixed effects).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference.acdc.criterion import AcdcResult
from inference.base.frames import pd
from inference.base.outcome import StartsWarning
from inference.base.progress import NoProgress, RichProgress
from inference.fitting.fit import fit
from inference.fitting.problem import model_of_data
from inference.fitting.result import Fit
from inference.programs.data import checked
from inference.programs.global_state import quiet
from inference.selection.growing import grow_again
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_number, check_size


def fit_grid(
    factory: Callable[[int], Any],
    data: Any,
    grid: object,
    num_restarts: int | None = None,
    seed: Seed = 0,
    progress: bool = False,
) -> dict[int, Fit]:
    """One fit for each number of components, by the family's recommended engine.

    Args:
        factory: number of components -> model.
        data: the table.
        grid: the numbers.
        num_restarts: of each fit, the family's own number if None.
        seed: of each fit.
        progress: show a bar on standard error.

    Warns:
        StartsWarning: for a number whose log-likelihood stays below that of a smaller one.

    Raises:
        ValueError: for an empty grid or one with repetitions, or a model that refuses the data,
            before any fit.
    """
    seed = as_seed("fit_grid", seed)
    sizes = [int(k) for k in grid]  # type: ignore[attr-defined]
    if not sizes or len(set(sizes)) != len(sizes):
        raise ValueError(f"fit_grid: grid must hold different numbers of components, got {sizes}")
    models = {k: model_of_data(factory(k), data) for k in sorted(sizes)}
    with quiet():  # what is wrong with a size is said before any fit, the rest by the fits
        for model in models.values():
            checked(model, data, for_fit=True)
    fits: dict[int, Fit] = {}
    with RichProgress("fits", len(models)) if progress else NoProgress() as bar:
        for k, model in models.items():
            # with a number the caller said how hard to look; it stays in the fit's own list
            with nullcontext() if num_restarts is None else quiet(StartsWarning):
                fits[k] = fit(model, data, num_restarts=num_restarts, seed=seed)
            bar.update(len(fits), objective=fits[k].objective, active=len(models) - len(fits))
    again, _ = grow_again(list(fits), list(fits.values()), data, seed)
    return dict(zip(fits, again, strict=True))


def aic(result: Fit) -> float:
    """2 P - 2 log p; smaller is better."""
    return 2 * result.num_parameters - 2 * result.log_likelihood


def bic_thesis(result: Fit) -> float:
    """K log N - 2 log p + 2 log K!, with one parameter a component; smaller is better."""
    k: int = result.model.num_components  # type: ignore[attr-defined]
    return k * math.log(result.num_rows) - 2 * result.log_likelihood + 2 * math.lgamma(k + 1)


def _bic_cells(result: Fit, num_cells: int) -> float:
    return result.num_parameters * math.log(num_cells) - 2 * result.log_likelihood


CRITERIA: dict[str, Callable[[Fit, int], float]] = {  # of a fit and the number of observed cells
    "BIC, K parameters": lambda result, _: bic_thesis(result),
    "BIC, log N": lambda result, _: result.bic,
    "BIC, log NJ": _bic_cells,  # the other defensible sample size
    "AIC": lambda result, _: aic(result),
}


@shows_briefly
@dataclass(frozen=True, eq=False)
class ParallelAnalysis:
    """Eigenvalues beside those of permuted data.

    Args:
        eigenvalues: falling, (J,); null_mean, null_quantile: of the permuted data, (J,).
        chosen: length of the leading run of eigenvalues above the null quantile.
        matrix: which matrix was decomposed; the answer depends on it.
    """

    eigenvalues: np.ndarray
    null_mean: np.ndarray
    null_quantile: np.ndarray
    chosen: int
    matrix: str


def parallel_analysis(
    data: Any, num_permutations: int = 20, quantile: float = 0.95, seed: Seed = 0
) -> ParallelAnalysis:
    """Return Horn's parallel analysis (1965, doi:10.1007/BF02289447), by permuted columns.

    Whole counts: the covariance matrix of their square roots; else the correlation matrix.

    Args:
        data: (N, J).
        num_permutations: of every column.
        quantile: of the permuted eigenvalues that a factor must exceed.
        seed: of the permutations.

    Raises:
        ValueError: for missing or infinite entries, fewer than three rows, constant columns of
            continuous data, or settings out of range.
    """
    seed = as_seed("parallel_analysis", seed)
    x = np.asarray(data, float)
    if x.ndim != 2 or len(x) < 3 or not np.isfinite(x).all():
        raise ValueError(
            "parallel_analysis: a complete finite table of at least three rows was expected, got"
            f" shape {x.shape}"
        )
    check_size("parallel_analysis", "num_permutations", num_permutations)
    must = "lie between 0 and 1"
    check_number("parallel_analysis", "quantile", quantile, must, above=0, below=1)
    counts = bool((x >= 0).all() and (x == np.round(x)).all())
    matrix = "covariance of square roots" if counts else "correlation"
    varies = x.max(0) > x.min(0)  # rounding gives equal numbers a standard deviation above zero
    if counts:
        x = np.sqrt(x)
    elif not varies.all():
        raise ValueError(f"parallel_analysis: column {int(np.argmin(varies))} is constant")
    x = x - x.mean(0)
    x = x if counts else x / x.std(0)

    def eigenvalues(table: np.ndarray) -> np.ndarray:
        values: np.ndarray = np.linalg.svd(table, compute_uv=False) ** 2 / len(table)
        return values

    rng = np.random.default_rng(seed)
    null = np.array([eigenvalues(rng.permuted(x, axis=0)) for _ in range(num_permutations)])
    observed, limit = eigenvalues(x), np.quantile(null, quantile, axis=0)
    above = observed > limit
    chosen = len(above) if above.all() else int(np.argmin(above))
    return ParallelAnalysis(observed, null.mean(0), limit, chosen, matrix)


def compare_criteria(
    fits: Mapping[int, Fit], data: Any, acdc_result: AcdcResult | None = None
) -> pd.DataFrame:
    """One row a criterion: what it chooses, and its value at every K (NaN where it has none).

    Criteria made of likelihoods are left out where a fit has only a bound of its own. Parallel
    analysis is left out of fewer than three rows, with gaps, and where a measurement is constant.

    Args:
        fits: number of components -> fit.
        data: the table.
        acdc_result: of :func:`inference.acdc.criterion.acdc`.

    Raises:
        ValueError: for no fits.
    """
    if not fits:
        raise ValueError("compare_criteria: fits must not be empty")
    sizes = sorted(fits)
    table = np.asarray(data, float)
    num_cells = int(np.isfinite(table).sum())
    rows: dict[str, dict[str, float]] = {}
    for name, criterion in CRITERIA.items():
        values = [criterion(fits[k], num_cells) for k in sizes]
        if not np.isfinite(values).all():
            continue  # a likelihood known by a bound only
        rows[name] = {
            "chosen": sizes[int(np.argmin(values))],
            **{str(k): v for k, v in zip(sizes, values, strict=True)},
        }
    if table.ndim == 2 and table.shape[1] > 1:
        with suppress(ValueError):  # no analysis of this table
            rows["parallel analysis"] = {"chosen": parallel_analysis(table).chosen}
    if acdc_result is not None:
        left = {str(k): value for k, value in acdc_result.left.items() if k in sizes}
        rows["ACDC"] = {"chosen": acdc_result.chosen, **left}
    return pd.DataFrame.from_dict(rows, orient="index")
