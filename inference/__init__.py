"""Engines for the zoo's programs, and what is asked of a fit afterwards."""

from inference.alternating import AlternatingMinimization, GradientAlternation
from inference.autoguides import FullRank, LowRank, MeanField
from inference.bootstrap import Bootstrap
from inference.decoders import BackwardElimination, HardThresholding, Pursuit, Shrinkage
from inference.em import EM, ConvergenceWarning
from inference.factorization import Factorize
from inference.fit import BoundWarning, fit
from inference.grow_and_prune import GrowAndPrune
from inference.laplace import Laplace
from inference.nuts import NUTS
from inference.result import Fit, Restarts, Trace
from inference.saem import SAEM
from inference.score_svi import ScoreFunctionSVI
from inference.svi import SVI

__all__ = [
    "EM",
    "NUTS",
    "SAEM",
    "SVI",
    "AlternatingMinimization",
    "BackwardElimination",
    "Bootstrap",
    "BoundWarning",
    "ConvergenceWarning",
    "Factorize",
    "Fit",
    "FullRank",
    "GradientAlternation",
    "GrowAndPrune",
    "HardThresholding",
    "Laplace",
    "LowRank",
    "MeanField",
    "Pursuit",
    "Restarts",
    "ScoreFunctionSVI",
    "Shrinkage",
    "Trace",
    "fit",
]
