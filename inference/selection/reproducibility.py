r"""Reproducibility of components from half of the rows, and of their number over seeds.

Noise tells when components are too few, not when they are too many: a component that follows a
single row, or one of several equally good splits, fits as well as a real one. Rows are halved at
random into complementary pairs (Shah and Samworth 2013, doi:10.1111/j.1467-9868.2011.01034.x), each
half is fitted anew from starts of its own, and components are matched to those of the whole. A fit
to half of the rows differs from one to all of them about as much as that one from its limit, so the
error found is like the sampling error of a signature, local optima included. A real component that
few rows hold up may stay away too: this is a second look at a choice, not the choice itself.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from inference.acdc.criterion import AcdcResult, acdc
from inference.base.frames import pd
from inference.base.outcome import RowsWarning
from inference.fitting.columns import checked_as_fitted
from inference.fitting.fit import fit as refit
from inference.fitting.result import Fit
from inference.programs.global_state import quiet
from inference.selection.factorization_criteria import fit_grid
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_flag, check_size

# cosine error: one minus the similarity of 0.85 from which signatures are held to be the same
RETURNS = 0.15


@shows_briefly
@dataclass(frozen=True, eq=False)
class Reproducibility:
    """Cosine errors between components of halves and those of the whole.

    Args:
        errors: K -> cosine error of each component in each half, (pairs, 2, K).
    """

    errors: dict[int, np.ndarray]

    @property
    def by_component(self) -> dict[int, np.ndarray]:
        """Error of each component, (K,), by K: of the worse half, in the median over pairs.

        A component of one row is absent from one half of every pair, so the worse half tells it
        from real ones. The median asks that a component be in both halves more often than not; a
        mean would hang on single pairs.
        """
        return {k: np.median(value.max(1), axis=0) for k, value in self.errors.items()}

    @property
    def worst(self) -> dict[int, float]:
        """K -> the largest error of a component."""
        return {k: float(value.max()) for k, value in self.by_component.items()}

    def numbers(self, threshold: float = RETURNS) -> list[int]:
        """Return the numbers of components all of which return with a small error.

        Below ``threshold``; the best one where none does.

        Raises:
            ValueError: for a threshold outside (0, 1].
        """
        if not 0 < threshold <= 1:
            raise ValueError(f"numbers: threshold must lie in (0, 1], got {threshold!r}")
        worst = self.worst
        return [k for k in sorted(worst) if worst[k] < threshold] or [
            min(worst, key=lambda k: (worst[k], k))
        ]

    @property
    def table(self) -> pd.DataFrame:
        """One row a number of components: worst and median error, and how many return."""
        rows = [
            (k, value.max(), np.median(value), int((value < RETURNS).sum()))
            for k, value in sorted(self.by_component.items())
        ]
        columns = ["num_components", "worst", "median", "returning"]
        return pd.DataFrame(rows, columns=columns).set_index("num_components")


def reproducibility(
    fits: Mapping[int, Fit], data: Any, num_pairs: int = 5, num_restarts: int = 4, seed: Seed = 0
) -> Reproducibility:
    """Fit halves of the rows anew and match their signatures to those of the whole.

    Args:
        fits: number of components -> its fit to ``data``, factorizations.
        data: the table all of them were fitted to.
        num_pairs: random divisions of the rows.
        num_restarts: starts of each half's fit.
        seed: one seed, one answer.

    Numbers of components that half of the rows cannot hold are left out, before any fit.

    Warns:
        RowsWarning: naming them.

    Raises:
        ValueError: for no fits, a model without signatures, known parameters, data of other rows,
            fewer than 2K rows for every K, or numbers below 1.
    """
    seed = as_seed("reproducibility", seed)
    for name, value in (("num_pairs", num_pairs), ("num_restarts", num_restarts)):
        check_size("reproducibility", name, value)
    if not isinstance(fits, Mapping) or not fits:
        raise ValueError(
            "reproducibility: fits must be a non-empty mapping from the number of components to"
            " its fit"
        )
    tables = {}  # each with its columns in the order of the fit
    for k, fit in fits.items():
        if "signatures" not in fit.params:
            raise ValueError(
                f"reproducibility: a factorization was expected, got {type(fit.model).__name__}"
            )
        fit.refuse_labels("reproducibility")
        tables[k] = table = checked_as_fitted(fit, data, for_fit=True)[0]
        if len(table) != fit.num_rows:
            raise ValueError(
                f"reproducibility: fits[{k}] was fitted to {fit.num_rows} rows; the data have "
                f"{len(table)}"
            )
    kept = [k for k in sorted(fits) if 2 * k <= len(table)]
    if not kept:
        raise ValueError(
            f"reproducibility: at least {2 * min(fits)} rows were expected, so that each half can "
            f"hold {min(fits)} components, got {len(table)}"
        )
    if len(kept) < len(fits):
        left_out = ", ".join(str(k) for k in sorted(fits) if k not in kept)
        warnings.warn(
            f"K = {left_out}: left out of the fits to halves, for {len(table) // 2} of the "
            f"{len(table)} rows cannot hold so many components",
            RowsWarning,
            stacklevel=2,
        )
    generator = torch.Generator().manual_seed(seed)
    half = len(table) // 2
    errors = {k: np.full((num_pairs, 2, k), math.nan) for k in kept}
    for pair in range(num_pairs):
        order = torch.randperm(len(table), generator=generator)
        for side, rows in enumerate((order[:half], order[half:])):
            drawn = int(torch.randint(2**31, (1,), generator=generator))
            for k, error in errors.items():
                error[pair, side] = _error(fits[k], tables[k][rows], num_restarts, drawn)
    return Reproducibility(errors)


def _error(whole: Fit, rows: torch.Tensor, num_restarts: int, seed: int) -> np.ndarray:
    """Cosine error of every component, (K,)."""
    with quiet():  # a half that has not converged shows as one that does not return
        half = refit(
            whole.model, rows, whole.method, init="spectral", num_restarts=num_restarts, seed=seed
        )
    return _turned_errors(*(fitted.params["signatures"].cpu().numpy() for fitted in (half, whole)))


def _turned_errors(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    r"""Cosine error of every wanted signature, (K,), :math:`1 - |\cos|`, of the best pairs.

    Signatures that may be negative are as good with the other sign, activities turned with them.

    Args:
        found: (K, J); wanted: (K, J).
    """
    lengths = [np.linalg.norm(part, axis=1).clip(1e-300) for part in (found, wanted)]
    errors = np.maximum(0.0, 1 - np.abs(found @ wanted.T) / np.outer(*lengths))
    rows, columns = linear_sum_assignment(errors)
    own: np.ndarray = errors[rows, columns][np.argsort(columns)]
    return own


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

    @property
    def verdict(self) -> str:
        """The most frequent choice, its share, and whether its best repetition is sure of it."""
        chose = f"{self.chosen} in {self.choices.count(self.chosen)} of {len(self.choices)}"
        return f"{chose} repetitions. {self.results[self.best].select().verdict}"

    @property
    def table(self) -> pd.DataFrame:
        """One row a repetition: the choice, what it leaves, and whether to rely on it."""
        rows = []
        for result in self.results:
            k, share = result.chosen, result.shares.get(result.chosen, np.nan)
            rows.append((k, result.left[k], share, result.select().finished))
        columns = ["chosen", "left", "share_taken", "finished"]
        return pd.DataFrame(rows, columns=columns).rename_axis("repetition")


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
    seed: Seed = 0,
) -> ChoiceSpread:
    """Repeat the choice of a number of components, to see the share of each.

    Args:
        factory: number of components -> model.
        data: the table.
        grid: the numbers.
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
    seed = as_seed("repeat_choice", seed)
    check_size("repeat_choice", "num_seeds", num_seeds, least=2)
    check_flag("repeat_choice", "resample", resample)
    table, sizes = np.asarray(data), [int(k) for k in grid]  # type: ignore[attr-defined]
    rng = np.random.default_rng(seed)
    results, every = [], []
    for repetition_seed in range(seed, seed + num_seeds):
        rows = table[rng.integers(len(table), size=len(table))] if resample else data
        fits = fit_grid(factory, rows, sizes, num_restarts, repetition_seed)
        result = criterion(fits, rows, repetition_seed)
        if threshold is not None:
            result = result.among(
                reproducibility(fits, rows, seed=repetition_seed).numbers(threshold)
            )
        results.append(result)
        every.append(fits)
    choices = tuple(result.chosen for result in results)
    chosen = ChoiceSpread(choices, tuple(results), 0, {}).chosen
    best = max(
        (i for i, k in enumerate(choices) if k == chosen), key=lambda i: every[i][chosen].objective
    )
    return ChoiceSpread(choices, tuple(results), best, every[best])
