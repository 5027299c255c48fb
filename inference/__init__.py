"""Engines for the zoo's programs, and what is asked of a fit afterwards."""

from inference.autoguides import FullRank, LowRank, MeanField
from inference.bootstrap import Bootstrap
from inference.em import EM, ConvergenceWarning
from inference.fit import BoundWarning, fit
from inference.grow_and_prune import GrowAndPrune
from inference.laplace import Laplace
from inference.nuts import NUTS
from inference.result import Fit
from inference.saem import SAEM
from inference.svi import SVI

__all__ = [
    "EM",
    "NUTS",
    "SAEM",
    "SVI",
    "Bootstrap",
    "BoundWarning",
    "ConvergenceWarning",
    "Fit",
    "FullRank",
    "GrowAndPrune",
    "Laplace",
    "LowRank",
    "MeanField",
    "fit",
]
