"""Coefficients of covariates as odds ratios."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr

from inference.base.covariates import SITE
from inference.report.parts import Table
from inference.report.sections import Subject
from ppl_models.parts.repr import few_digits

MOST_LOG_ODDS = 700.0  # beyond which a computer holds no odds


def odds_ratios(subject: Subject, words: Callable[[str], str]) -> Table:
    """A line for each coefficient but the intercepts, with interval and p value where known.

    Args:
        subject: of the page.
        words: what odds they are, of the name of a component or latent.
    """
    found, rows = subject.estimates, []
    has_errors = bool(found.source) and subject.fit.draws is None
    for row in found.of(SITE):
        owner, term = row.entry
        if term != "intercept":
            numbers = [row.value, row.low, row.high] if found.source else [row.value]
            texts = few_digits(np.exp(np.minimum(numbers, MOST_LOG_ODDS)))
            if has_errors:  # of the hypothesis that the coefficient is 0
                p_value = 2 * ndtr(-abs(row.value / row.error)) if row.error > 0 else np.nan
                texts.append("" if np.isnan(p_value) else f"{p_value:.2g}")
            rows.append([words(str(owner)), term, *texts])
    return Table(
        (
            "",
            "covariate",
            "odds ratio",
            *((f"{100 * found.level:g} % from", "to") if found.source else ()),
            *(("p (Wald)",) if has_errors else ()),
        ),
        rows,
    )
