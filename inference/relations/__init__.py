"""What classes have to do with other columns: covariates that they depend on, and outcomes that
depend on them.
"""

from inference.relations.outcomes import ClassOutcomes, compare_outcomes
from inference.relations.regression import ClassRegression, class_coefficients, regress_classes

__all__ = [
    "ClassOutcomes",
    "ClassRegression",
    "class_coefficients",
    "compare_outcomes",
    "regress_classes",
]
