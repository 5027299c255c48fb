"""Engines for the zoo's programs, and what is asked of a fit afterwards."""

from inference.em import EM, ConvergenceWarning
from inference.fit import BoundWarning, fit
from inference.result import Fit

__all__ = ["EM", "BoundWarning", "ConvergenceWarning", "Fit", "fit"]
