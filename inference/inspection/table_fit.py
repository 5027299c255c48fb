r"""Fit of latent classes to the table of answer patterns: G2, X2 and their degrees of freedom.

Of N complete rows of items of categories let :math:`n_s` have pattern s, one of :math:`C = \prod_j
C_j`, whose probability under the fit is :math:`p_s`. Then

.. math:: G^2 = 2 \sum_{n_s > 0} n_s \log \frac{n_s}{N p_s}, \qquad
    X^2 = \sum_s \frac{(n_s - N p_s)^2}{N p_s}
    = \sum_{n_s > 0} \frac{(n_s - N p_s)^2}{N p_s} + N \Bigl(1 - \sum_{n_s > 0} p_s \Bigr),

where patterns that no row has add what is expected of them, so that their number does not matter.
Both are about chi-square with C - 1 less the number of free parameters degrees of freedom where
every pattern is expected often; where most are expected in less than one row, as in most tables of
more than a few items, they are not, and no p value is given.

Source: L. A. Goodman (1974), doi:10.1093/biomet/61.2.215; L. M. Collins and S. T. Lanza (2010),
doi:10.1002/9780470567333; as in poLCA (D. A. Linzer and J. B. Lewis 2011,
doi:10.18637/jss.v042.i10), whose degrees of freedom are N less the parameters where patterns
outnumber rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference.fitting.columns import checked_as_fitted
from inference.fitting.record import FitRecord
from inference.fitting.same_data import refuse_other_data
from ppl_models.parts.categorical import Categorical
from ppl_models.parts.responses import Bernoulli, ResponseFamily

LEAST_MEAN = 5.0  # expected rows a pattern, on average, below which chi-square does not hold


@dataclass(frozen=True)
class TableFit:
    """Fit of latent classes to the table of patterns.

    Args:
        g2, x2: likelihood-ratio and Pearson statistics.
        degrees: patterns less one less free parameters; below 0 the table cannot tell the classes.
        num_patterns: that there could be; num_seen: that rows have.
        p_value: of G2 by the chi-square distribution; NaN where patterns are expected too seldom.
    """

    g2: float
    x2: float
    degrees: int
    num_patterns: int
    num_seen: int
    p_value: float


def table_fit(fit: FitRecord, data: Any) -> TableFit:
    """G2 and X2 of latent classes over the table of answer patterns.

    Args:
        fit: of a :class:`~ppl_models.Mixture` whose items are all yes-no or of categories, without
            covariates.
        data: (N, J), the rows of the fit, all complete.

    Raises:
        ValueError: for another model, weights, gaps, or rows that are not those of the fit, whose
            statistics have other degrees of freedom.
    """
    owner = "table_fit"
    fit.refuse_weights(owner)
    response = getattr(fit.model, "component", None)
    if not isinstance(response, ResponseFamily) or fit.structure.num_given:
        raise ValueError(
            f"{owner}: a mixture of items without covariates was expected, got {fit.model_name}"
        )
    table = checked_as_fitted(fit, data)[0]
    num_patterns = 1  # exact: a table of many items has more than a float counts
    for family, columns, _ in response.blocks(table.shape[1]):
        if not isinstance(family, Bernoulli | Categorical):
            raise ValueError(
                f"{owner}: items that are yes-no or of categories were expected, got"
                f" {type(family).__name__}"
            )
        width = columns.stop - columns.start
        is_binary = isinstance(family, Bernoulli)
        num_patterns *= math.prod((2,) * width if is_binary else family.num_categories_of(width))
    if bool(table.isnan().any()):
        raise ValueError(f"{owner}: complete rows were expected; those with gaps have no pattern")
    refuse_other_data(owner, fit, data)
    _, first, counts = np.unique(table.cpu().numpy(), axis=0, return_index=True, return_counts=True)
    log_p = fit.log_likelihood_rows(data).detach().cpu().double().numpy()[first]  # type: ignore[attr-defined]
    expected = len(table) * np.exp(log_p)
    g2 = 2 * float((counts * np.log(counts / expected)).sum())
    x2 = float(((counts - expected) ** 2 / expected).sum() + len(table) - expected.sum())
    degrees = num_patterns - 1 - fit.num_parameters
    p_value = math.nan
    if degrees > 0 and len(table) >= LEAST_MEAN * num_patterns:
        from scipy.special import chdtrc

        p_value = float(chdtrc(degrees, g2))
    return TableFit(g2, x2, degrees, num_patterns, len(counts), p_value)
