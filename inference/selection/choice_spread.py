"""Spread of a choice of components over repeated fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference.acdc.criterion import AcdcResult, acdc
from inference.base.frames import pd
from inference.fitting.result import Fit
from inference.selection.factorization_criteria import fit_grid
from inference.selection.reproducibility import reproducibility
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_flag, check_size

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
