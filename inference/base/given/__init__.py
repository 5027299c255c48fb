"""Columns of a table that are given and not drawn: covariates in units in which engines work, and
what the rows leave open of their coefficients.
"""

from inference.base.given.separation import open_coefficients
from inference.base.given.units import standard_covariates

__all__ = ["open_coefficients", "standard_covariates"]
