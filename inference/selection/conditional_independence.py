r"""Test of conditional independence: a discriminator inside each component.

Under the model a row's distribution times :math:`P(z = i \mid X)` is :math:`w_i \prod_v
f_v^{(i)}(x_v)`. So rows whose component is **drawn** from their posterior have independent variates
inside each component, and no discriminator can tell them from rows whose variates were shuffled
among them: the area under its curve is one half. (Rows *chosen* by a high posterior would not do:
the choice itself makes the variates dependent.) A larger area says that the component is not one:
too few components, or variates that depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from inference.selection.discriminator import (
    Discriminator,
    HeldOutScores,
    as_variates,
    held_out_scores,
)
from ppl_models.parts.validation import check_kind, check_number, check_size

LEAST_ROWS = 200


@dataclass(frozen=True)
class ComponentDependence:
    """One component's rows against rows with shuffled variates.

    Args:
        component: counted from 0.
        num_rows: drawn into it.
        auc: area under the curve of the held-out scores, 0.5 where nothing distinguishes them; NaN
            with too few rows.
        lower, upper: its interval at the stated level, for all components together.
        verdict: "dependent", "no dependence found", or "too few rows".
    """

    component: int
    num_rows: int
    auc: float
    lower: float
    upper: float
    verdict: Literal["dependent", "no dependence found", "too few rows"]

    def text(self) -> str:
        """The verdict in words."""
        start = f"Component {self.component} ({self.num_rows:,} rows): {self.verdict}"
        if self.verdict == "too few rows":
            return f"{start}; at least {LEAST_ROWS} are needed."
        numbers = (
            f"area under the curve {self.auc:.3f} ({self.lower:.3f} to {self.upper:.3f}), 0.5 where"
            " variates are independent"
        )
        advice = (
            " Try more components, or put variates that depend on each other into one."
            if self.verdict == "dependent"
            else ""
        )
        return f"{start}; {numbers}.{advice}"


def conditional_independence(
    variates: Sequence[Any] | Any,
    responsibilities: Tensor | np.ndarray,
    discriminator: Discriminator | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[ComponentDependence, ...]:
    """Test each component of a fit for dependence among its variates.

    Args:
        variates: a table (N, V), one column a variate, or a sequence of V arrays (N,) or (N, ...).
        responsibilities: (N, C), the posterior of each row's component; best of rows that the fit
            has not seen.
        discriminator: settings; None for the usual ones.
        level: of the intervals, for all components together (Bonferroni).
        seed: of the drawn components, folds and shuffles.

    Raises:
        ValueError: for responsibilities that do not fit the rows or sum to one, incomplete rows, or
            settings out of range.
    """
    owner = "conditional_independence"
    parts = as_variates(owner, variates)
    chances = torch.as_tensor(responsibilities).double()
    if chances.dim() != 2 or len(chances) != len(parts[0]):
        raise ValueError(
            f"{owner}: responsibilities of shape ({len(parts[0])}, components) were expected, got"
            f" {tuple(chances.shape)}"
        )
    if not bool((chances >= 0).all() and ((chances.sum(1) - 1).abs() < 1e-4).all()):
        raise ValueError(f"{owner}: responsibilities must be chances that sum to 1 over components")
    check_number(owner, "level", level, "lie in (0, 1)", above=0, below=1)
    check_size(owner, "seed", seed, 0)
    settings = Discriminator() if discriminator is None else discriminator
    check_kind(owner, "discriminator", settings, Discriminator, "a Discriminator()")
    drawn = torch.multinomial(chances, 1, generator=torch.Generator().manual_seed(seed)).squeeze(1)
    size = chances.shape[1]
    out = []
    for i in range(size):
        rows = (drawn == i).nonzero().squeeze(1)
        if len(rows) < max(LEAST_ROWS, 10 * settings.num_folds):
            out.append(
                ComponentDependence(i, len(rows), math.nan, math.nan, math.nan, "too few rows")
            )
            continue
        auc, error = _area(held_out_scores([x[rows] for x in parts], settings, seed))
        half = (
            float(
                torch.distributions.Normal(0.0, 1.0).icdf(
                    torch.tensor(1 - (1 - level) / (2 * size))
                )
            )
            * error
        )
        verdict: Literal["dependent", "no dependence found"] = (
            "dependent" if auc - half > 0.5 else "no dependence found"
        )
        out.append(
            ComponentDependence(
                i, len(rows), auc, max(0.0, auc - half), min(1.0, auc + half), verdict
            )
        )
    return tuple(out)


def _area(scores: HeldOutScores) -> tuple[float, float]:
    """Return the area under the curve and its standard error, as of a V-statistic of rows."""
    rows, shuffled = scores.rows, scores.shuffled.reshape(-1)
    above = _share_below(shuffled, rows)  # of shuffled rows below each row
    area = float(above.mean())
    below = (1 - _share_below(rows, shuffled)).reshape(
        scores.shuffled.shape
    )  # of rows above each shuffled row
    num_copies, num_variates, num_rows = scores.sources.shape
    influence = above - area - num_variates * area
    for v in range(num_variates):
        influence = influence.scatter_add(
            0, scores.sources[:, v].reshape(-1), below.reshape(-1) / num_copies
        )
    return area, float(influence.std()) / math.sqrt(num_rows)


def _share_below(of: Tensor, values: Tensor) -> Tensor:
    """For each value the share of the numbers ``of`` that are smaller, ties counting a half."""
    ordered = of.sort().values
    left, right = (
        torch.searchsorted(ordered, values),
        torch.searchsorted(ordered, values, right=True),
    )
    return (left + right).double() / (2 * len(of))
