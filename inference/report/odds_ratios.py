"""Coefficients of covariates as odds ratios."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from inference.base.covariates import SITE
from inference.report.parts import Table
from inference.report.sections import Subject
from ppl_models.parts.repr import few_digits

MOST_LOG_ODDS = 700.0  # beyond which a computer holds no odds


def odds_ratios(subject: Subject, words: Callable[[str], str]) -> Table:
    """A line for each coefficient but the intercepts, with its interval where there is one.

    Args:
        subject: of the page.
        words: what odds they are, of the name of a component or latent.
    """
    found, rows = subject.estimates, []
    for row in found.of(SITE):
        owner, term = row.entry
        if term != "intercept":
            numbers = [row.value, row.low, row.high] if found.source else [row.value]
            rows.append(
                [words(str(owner)), term, *few_digits(np.exp(np.minimum(numbers, MOST_LOG_ODDS)))]
            )
    return Table(
        (
            "",
            "covariate",
            "odds ratio",
            *((f"{100 * found.level:g} % from", "to") if found.source else ()),
        ),
        rows,
    )
