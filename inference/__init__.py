"""Engines for the zoo's programs, and what is asked of a fit afterwards."""

from inference.base.outcome import BoundWarning, ConvergenceWarning
from inference.bootstrap import Bootstrap
from inference.engines.autoguides import FullRank, LowRank, MeanField
from inference.engines.em import EM
from inference.engines.laplace import Laplace
from inference.engines.nuts import NUTS
from inference.engines.saem import SAEM
from inference.engines.svi import SVI
from inference.fitting.fit import fit
from inference.fitting.record import Restarts, Trace
from inference.fitting.result import Fit
from inference.structures.dictionary.alternating import AlternatingMinimization, GradientAlternation
from inference.structures.dictionary.decoders import BackwardElimination, HardThresholding, Pursuit, Shrinkage
from inference.structures.factorization.factorize import Factorize
from inference.structures.noisy_or.grow_and_prune import GrowAndPrune
from inference.structures.noisy_or.score_svi import ScoreFunctionSVI

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
