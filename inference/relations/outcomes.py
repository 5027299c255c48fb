r"""Distal outcomes: class means of an outcome that the fit did not know.

With T the weights of each row's classes, :math:`W D^{-1}` for "bch" and W for "none" (notation of
:mod:`inference.relations.first_step`),

.. math:: m_t = \sum_i T_{it} y_i / \sum_i T_{it}, \qquad e_{it} = T_{it} (y_i - m_t)

and the covariance of all means carries the first step. Of categories y are their indicators, so
that the means are proportions. BCH weights suppose nothing of the distribution of the outcome,
whereas maximum likelihood would let an outcome of another distribution move the classes (Bakk and
Vermunt 2016, doi:10.1080/10705511.2014.955104).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from inference.base.drawing import Answer
from inference.base.frames import pd
from inference.fitting.record import FitRecord
from inference.inspection.attributes import holm
from inference.relations.first_step import (
    Assignment,
    FirstStep,
    Moved,
    check_choice,
    check_sizes,
    covariance_of,
    own_columns,
)
from ppl_models.data.frames import MAX_LEVELS, coded, holds_texts, levels_of_frame
from ppl_models.data.tables import as_table
from ppl_models.parts.validation import check_number

METHODS = ("bch", "none")
LEVEL = 0.05
SURE = 1e-12  # variance of a difference, relative to the largest and to the difference's own square
UNVARIED = "it does not vary within classes that differ in it, so that they have no standard error"


@dataclass(frozen=True, eq=False, repr=False)
class ClassOutcomes(Answer):
    """Means, or proportions, of an outcome in each class.

    Args:
        outcome: its name; levels: its categories, () for one of numbers.
        means: (K, L), with L = 1 for numbers; covariance: of these, row after row, (K L, K L).
        sizes: rows with an outcome in each class, (K,).
        method: "bch" or "none"; assignment: of rows to classes.
        classification: chances to be assigned to each class, in the columns, given the class, in
            the rows, (K, K).
        entropy_r2: how well the items tell the classes.
        num_rows: with an outcome; num_missing: without.
    """

    outcome: str
    levels: tuple[str, ...]
    means: np.ndarray
    covariance: np.ndarray
    sizes: np.ndarray
    method: str
    assignment: str
    classification: np.ndarray
    entropy_r2: float
    num_rows: int
    num_missing: int

    def frame(self, level: float = 0.95) -> pd.DataFrame:
        """Table of estimates, standard errors and intervals.

        A line for each class, of categories one for each class and category.

        What lies outside [0, 1] is not clipped.

        Raises:
            ValueError: if the level is not in (0, 1).
        """
        check_number("frame", "level", level, "lie in (0, 1)", above=0, below=1)
        width = stats.norm.ppf((1 + level) / 2)
        value, error = self.means.ravel(), np.sqrt(np.diag(self.covariance))
        classes = range(len(self.means))
        index: Any = (
            pd.MultiIndex.from_product([classes, self.levels], names=["class", "category"])
            if self.levels
            else pd.Index(classes, name="class")
        )
        low, high = value - width * error, value + width * error
        return pd.DataFrame({"estimate": value, "error": error, "low": low, "high": high}, index)

    def test(self) -> tuple[float, int, float]:
        """The Wald test that all classes are alike: chi-square, its degrees of freedom, and p.

        NaN where classes differ in an outcome that varies within none of them.
        """
        return self._wald([(0, t) for t in range(1, len(self.means))])

    def pairs(self) -> pd.DataFrame:
        """Wald tests of every pair of classes.

        The difference, of numbers, with its standard error, and p by Holm's rule for all pairs
        together.
        """
        index, lines = [], []
        for first in range(len(self.means)):
            for other in range(first + 1, len(self.means)):
                chi2, df, p = self._wald([(first, other)])
                difference = self.means[other, 0] - self.means[first, 0]
                error = abs(difference) / np.sqrt(chi2) if chi2 > 0 else np.nan
                lines.append([*([] if self.levels else [difference, error]), chi2, df, p])
                index.append(f"{other} - {first}")
        frame = pd.DataFrame(
            lines, index, [*([] if self.levels else ["difference", "error"]), "chi2", "df", "p"]
        )
        return frame.assign(p_holm=holm(frame["p"].to_numpy()))

    def _wald(self, pairs: list[tuple[int, int]]) -> tuple[float, int, float]:
        num_classes, width = self.means.shape
        free = max(1, width - 1)  # proportions sum to one
        contrast = np.zeros((len(pairs) * free, num_classes, width))
        for i, (first, other) in enumerate(pairs):
            for level in range(free):
                contrast[i * free + level, [other, first], level] = 1.0, -1.0
        flat = contrast.reshape(len(contrast), -1)
        value, spread = flat @ self.means.ravel(), flat @ self.covariance @ flat.T
        variance, axes = np.linalg.eigh(spread)
        along = axes.T @ value
        least = SURE * (variance[-1] + value @ value)
        varies, apart = variance > least, along**2 > least
        df = int((varies | apart).sum())
        if (apart & ~varies).any():  # a difference without a sampling error
            return np.nan, df, np.nan
        chi2 = float((along[varies] ** 2 / variance[varies]).sum())
        return chi2, df, float(stats.chi2.sf(chi2, df))

    @property
    def table(self) -> pd.DataFrame:
        """As :meth:`frame`."""
        return self.frame()

    @property
    def _is_untested(self) -> bool:
        """A difference without a standard error."""
        return bool(np.isnan(self.test()[0]))

    @property
    def differs(self) -> bool:
        """Significance of the difference between classes, at 5 %."""
        return self.test()[2] < LEVEL

    @property
    def headline(self) -> str:
        """Overall test, in a sentence."""
        if self._is_untested:
            return f"No test says whether the classes differ in {self.outcome}: {UNVARIED}."
        return (
            f"The classes {'differ' if self.differs else 'do not clearly differ'} in"
            f" {self.outcome}."
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """Details of the classes, in sentences."""
        pairs = self.pairs()
        clear = [str(name) for name, p in pairs["p_holm"].items() if p < LEVEL]
        apart = (
            f"Clearly apart, by Holm's rule for all pairs of classes together: {', '.join(clear)}."
            if clear
            else "No single pair of classes is clearly apart."
        )
        return (self._caption(), apart) if len(pairs) > 1 else (self._caption(),)

    def _caption(self) -> str:
        chi2, df, p = self.test()
        way = (
            "corrected by BCH weights"
            if self.method == "bch"
            else "not corrected for errors of assignment"
        )
        alike = f"chi2({df}) = {chi2:.2f}, p = {p:.3g}" if not self._is_untested else "no test"
        what = "Proportions" if self.levels else "Means"
        missing = f" ({self.num_missing:,} have no outcome)" if self.num_missing else ""
        return (
            f"{what} of {self.outcome} by class, {way}, {self.num_rows:,} rows{missing}. All"
            f" classes alike: {alike}."
        )


def compare_outcomes(
    fit: FitRecord,
    data: Any,
    outcome: Any,
    method: Literal["bch", "none"] = "bch",
    assignment: Assignment = "proportional",
) -> ClassOutcomes:
    """Compare the classes of a fit in an outcome that the fit did not know.

    The classes stay what the fit made them, and standard errors carry its uncertainty. Rows without
    an outcome stand aside.

    Args:
        fit: with one latent class a row, such as of ``Mixture(3,
            Categorical.from_frame(answers))``.
        data: the rows of the fit; other columns may stand beside them.
        outcome: the name of a column of ``data``, or the column: a series or an array (N,). Text is
            taken for categories, all else for numbers (of 0 and 1 means are proportions).
        method: "bch" corrects for errors of assignment; "none" takes the classes assigned for the
            classes, whose differences are then too small.
        assignment: of rows to classes, "proportional" to their chances, or "modal".

    Raises:
        ValueError: for a fit without classes or with covariates of its own, a class that nobody
            has, settings out of range, an outcome that is the same in all rows, or a first step
            without standard errors.

    Warns:
        EstimateWarning: where the items tell the classes badly.
    """
    caller = "compare_outcomes"
    check_choice(caller, "method", method, METHODS)
    first = FirstStep(caller, fit, data, assignment)
    frame = own_columns(caller, "outcome", outcome, data, first.num_rows)
    if len(frame.columns) != 1:
        raise ValueError(f"{caller}: outcome: one column was expected, got {len(frame.columns)}")
    name, column = str(frame.columns[0]), frame[frame.columns[0]]
    levels = levels_of_frame(caller, frame, MAX_LEVELS)[0] if holds_texts(column) else ()
    y = as_table(coded(frame, {0: levels} if levels else {}, caller))[0].double()
    seen = ~y[:, 0].isnan()
    if bool((y[seen, 0] == y[seen, 0][:1]).all()):
        raise ValueError(
            f"{caller}: outcome {name!r} is the same in all rows that have one, so that there is"
            " nothing to compare"
        )
    if method == "bch":
        first.check_table()
    y = y.nan_to_num(0.0)
    y = (y == torch.arange(len(levels))).double() if levels else y
    num, width = first.num_classes, y.shape[1]

    def weights(moved: Moved, table: Tensor) -> Tensor:
        row_weights = moved.weights if method == "none" else first.corrected_weights(moved, table)
        return row_weights * seen.unsqueeze(-1)

    def estimating(b: Tensor, moved: Moved, table: Tensor) -> Tensor:
        off = y.unsqueeze(1) - b.reshape(num, width)  # (N, K, L)
        return (weights(moved, table).unsqueeze(-1) * off).flatten(1)

    row_weights = weights(first.at_estimate, first.at_estimate.table) * first.often.unsqueeze(-1)
    sizes = row_weights.sum(0)
    check_sizes(caller, sizes, " with an outcome")
    means = row_weights.mT @ y / sizes.unsqueeze(-1)
    covariance = covariance_of(first, estimating, means.flatten())
    return ClassOutcomes(
        name,
        levels,
        means.numpy(),
        covariance.numpy(),
        sizes.numpy(),
        method,
        assignment,
        first.at_estimate.table.numpy(),
        first.entropy_r2,
        round(float(first.often[seen].sum())),
        round(float(first.often[~seen].sum())),
    )
