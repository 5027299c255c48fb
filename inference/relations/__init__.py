"""Covariates that classes depend on, and outcomes that depend on classes."""

from inference.relations.outcomes import (
    ClassOutcomes as ClassOutcomes,
    compare_outcomes as compare_outcomes,
)
from inference.relations.regression import (
    ClassRegression as ClassRegression,
    class_coefficients as class_coefficients,
    regress_classes as regress_classes,
)
from ppl_models.parts.surface import promised as _promised

__dir__ = _promised(__name__)
