"""Factorizations: monotone updates, starts, usage, factor analysis."""

from inference.structures.factorization.counts import BLOCK_ELEMENTS, Counts
from inference.structures.factorization.dispersed_counts import (
    DispersedCounts,
    LinearlyDispersedCounts,
)
from inference.structures.factorization.factor_analysis import FactorAnalysisStructure, FactorSteps
from inference.structures.factorization.factorize import Factorize
from inference.structures.factorization.least_squares import LeastSquares
from inference.structures.factorization.objective import (
    conditional_rows,
    log_prior_activities,
    objectives,
    with_scales,
)
from inference.structures.factorization.starts import nndsvd, random_factors, truncated_svd
from inference.structures.factorization.structure import FactorizationStructure
from inference.structures.factorization.updates import (
    CHECK_EVERY,
    accelerated,
    polished,
    updates_of,
)
from inference.structures.factorization.usage import UsageDraws, UsageStructure
from inference.structures.factorization.usage_gibbs import UsageGibbs

__all__ = [
    "FactorSteps",
    "FactorAnalysisStructure",
    "Factorize",
    "conditional_rows",
    "log_prior_activities",
    "objectives",
    "with_scales",
    "nndsvd",
    "random_factors",
    "truncated_svd",
    "FactorizationStructure",
    "BLOCK_ELEMENTS",
    "CHECK_EVERY",
    "Counts",
    "DispersedCounts",
    "LinearlyDispersedCounts",
    "LeastSquares",
    "accelerated",
    "polished",
    "updates_of",
    "UsageStructure",
    "UsageDraws",
    "UsageGibbs",
]
