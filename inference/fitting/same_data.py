"""Rows of a fit told from other rows, where a question is about those of the fit alone."""

from __future__ import annotations

import math
from typing import Any

import torch

from inference.base.streaming.row_blocks import RowBlocks
from inference.fitting.columns import as_fitted, count_rows
from inference.fitting.posterior import log_likelihood_rows
from inference.fitting.record import FitRecord
from ppl_models.parts.repr import listed

ROUNDING = 1e-4  # of a log-likelihood, within which that of the same rows comes out again
LEAST = 100.0  # nats that this is a share of, at least


def refuse_other_rows(owner: str, fit: FitRecord, data: Any) -> None:
    """Refuse another number of rows than the fit has.

    Raises:
        ValueError: with both numbers.
    """
    count = len(data) if isinstance(data, RowBlocks) else count_rows(fit, data)
    if count != fit.num_rows:
        raise ValueError(
            f"{owner}: data: the {fit.num_rows:,} rows of the fit were expected, got {count:,} rows"
        )


def refuse_other_data(owner: str, fit: FitRecord, data: Any) -> None:
    """Refuse rows under which the log-likelihood of the estimate is another than that of the fit.

    Not worked out where the log-likelihood was drawn, is of labels too, or has parameters of the
    rows themselves.

    Raises:
        ValueError: with both numbers of rows, or both log-likelihoods.
    """
    refuse_other_rows(owner, fit, data)
    is_known = math.isfinite(fit.log_likelihood) and fit.log_likelihood_error is None
    if not is_known or fit.labels or fit.structure.local_sites:
        return
    rows = log_likelihood_rows(fit, as_fitted(fit, data)).double()
    weights = torch.ones_like(rows) if fit.row_weights is None else fit.row_weights.to(rows)
    found = float(weights @ rows)
    if abs(found - fit.log_likelihood) > ROUNDING * max(LEAST, abs(fit.log_likelihood)):
        raise ValueError(
            f"{owner}: data: the rows of the fit were expected, whose log-likelihood is"
            f" {fit.log_likelihood:.2f}, got others with {found:.2f}"
        )


def refuse_other_order(owner: str, fit: FitRecord, other: FitRecord) -> None:
    """Refuse fits of the same columns in two orders, where both are refitted to one table.

    Raises:
        ValueError: with both orders.
    """
    one, two = list(map(str, fit.item_names)), list(map(str, other.item_names))
    if one != two and sorted(one) == sorted(two):
        raise ValueError(
            f"{owner}: fits of the columns in one order were expected, got {listed(one)} and"
            f" {listed(two)}: fit both to the same table"
        )
