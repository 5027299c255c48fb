"""Rivals of ACDC in one table, and parallel analysis."""

from __future__ import annotations

import numpy as np
import pytest
from papers.factorization_criteria import cophenetic_correlation, held_out_log_likelihood
from support.counts import small_grid

from inference.acdc import acdc
from inference.plots import plot_scree
from inference.selection import compare_criteria, parallel_analysis
from inference.selection.factorization_criteria import bic_thesis
from ppl_models import PoissonFactorization


@pytest.fixture(scope="module")
def grid():
    return small_grid()


def test_rivals_in_one_table(grid):
    x, _, _, fits = grid
    result = acdc(fits, x)
    table = compare_criteria(fits, x, result)
    assert list(table.index) == [
        "BIC, K parameters",
        "BIC, log N",
        "BIC, log NJ",
        "AIC",
        "parallel analysis",
        "ACDC",
    ]
    assert table.loc["ACDC", "chosen"] == 3
    n, p = len(x), 3 * 47 + 3 * len(x)
    assert table.loc["BIC, log N", "3"] == pytest.approx(p * np.log(n) - 2 * fits[3].log_likelihood)
    assert table.loc["BIC, log NJ", "3"] == pytest.approx(
        p * np.log(n * 48) - 2 * fits[3].log_likelihood
    )
    assert bic_thesis(fits[3]) == pytest.approx(
        3 * np.log(n) - 2 * fits[3].log_likelihood + 2 * np.log(6)
    )


def test_criteria_of_a_paper(grid):
    x, _, _, fits = grid
    assert 0 < cophenetic_correlation(fits[2], x) <= 1
    at = {
        k: held_out_log_likelihood(lambda k: PoissonFactorization(48, k), x, k, num_restarts=2)
        for k in (1, 3)
    }
    assert at[3] > at[1] + 0.5


def test_parallel_analysis_counts_factors():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 10)) * 1.5 + rng.normal(size=(400, 10))
    analysis = parallel_analysis(x)
    assert (analysis.chosen, analysis.matrix) == (2, "correlation")
    assert parallel_analysis(rng.normal(size=(400, 10))).chosen <= 1
    assert parallel_analysis(rng.poisson(3, (50, 4))).matrix == "covariance of square roots"
    assert plot_scree(analysis).axes[0].lines


@pytest.mark.parametrize("value", [0.1, 0.5, 1e6 + 0.1])
def test_parallel_analysis_refuses_a_constant_column(value):
    """The deviation of equal numbers, 1e-17 for tenths, is no scale to divide by."""
    x = np.random.default_rng(0).normal(size=(50, 4))
    with pytest.raises(ValueError, match="column 4 is constant"):
        parallel_analysis(np.column_stack([x, np.full(50, value)]))
