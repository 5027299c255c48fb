"""Engines for the zoo's programs, and what is asked of a fit afterwards."""

from inference.em import EM, ConvergenceWarning
from inference.fit import BoundWarning, fit
from inference.grow_and_prune import GrowAndPrune
from inference.nuts import NUTS
from inference.result import Fit
from inference.saem import SAEM

__all__ = ["EM", "NUTS", "SAEM", "BoundWarning", "ConvergenceWarning", "Fit", "GrowAndPrune", "fit"]
