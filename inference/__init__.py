"""Engines for the zoo's programs, and what is asked of a fit afterwards.

The engines are names of this package. Its other public modules (``inference.plots``,
``inference.loo``, ``inference.selection``, ...) and ``inference.compare`` are imported on first
use, so that ``import inference`` stays quick and needs no library for pictures.
"""

import importlib
from typing import TYPE_CHECKING

from inference.base.blocks.row_blocks import RowBlocks
from inference.base.outcome import (
    BoundWarning,
    ColumnsWarning,
    ConvergenceWarning,
    DegenerateWarning,
    EstimateWarning,
    PenaltyChoice,
    RowsWarning,
    StartsWarning,
)
from inference.bootstrap import Bootstrap
from inference.engines.autoguides import FullRank, LowRank, MeanField
from inference.engines.em import EM
from inference.engines.laplace import Laplace
from inference.engines.nuts import NUTS
from inference.engines.online_em import OnlineEM
from inference.engines.saem import SAEM
from inference.engines.svi import SVI
from inference.fitting.fit import fit
from inference.fitting.record import Restarts, Trace
from inference.fitting.result import Fit
from inference.structures.classifiers.terms import (
    CrossTotalCorrelation,
    EvenWeights,
    KnownWeights,
    Labels,
)
from inference.structures.classifiers.train import TrainClassifiers
from inference.structures.dictionary.alternating import AlternatingMinimization, GradientAlternation
from inference.structures.dictionary.decoders import (
    BackwardElimination,
    HardThresholding,
    Pursuit,
    Shrinkage,
)
from inference.structures.factorization.factorize import Factorize
from inference.structures.layers.choose_penalty import ChoosePenalty
from inference.structures.noisy_or.grow_and_prune import GrowAndPrune
from inference.structures.noisy_or.score_svi import ScoreFunctionSVI
from ppl_models import __version__ as __version__

if TYPE_CHECKING:  # what comes on first use, for type checkers and editors
    from inference import acdc as acdc
    from inference import alignment as alignment
    from inference import bootstrap as bootstrap
    from inference import calibration as calibration
    from inference import causal as causal
    from inference import comparison as comparison
    from inference import estimates as estimates
    from inference import estimator as estimator
    from inference import identifiability as identifiability
    from inference import inspection as inspection
    from inference import loo as loo
    from inference import metrics as metrics
    from inference import plots as plots
    from inference import predictive as predictive
    from inference import relations as relations
    from inference import report as report
    from inference import selection as selection
    from inference import studies as studies
    from inference import uncertainty as uncertainty
    from inference.comparison import compare as compare
    from inference.estimator import ZooEstimator as ZooEstimator

__all__ = [
    "EM",
    "NUTS",
    "SAEM",
    "SVI",
    "AlternatingMinimization",
    "BackwardElimination",
    "Bootstrap",
    "BoundWarning",
    "ChoosePenalty",
    "ColumnsWarning",
    "ConvergenceWarning",
    "CrossTotalCorrelation",
    "DegenerateWarning",
    "EstimateWarning",
    "EvenWeights",
    "Factorize",
    "Fit",
    "FullRank",
    "GradientAlternation",
    "GrowAndPrune",
    "HardThresholding",
    "KnownWeights",
    "Labels",
    "Laplace",
    "LowRank",
    "MeanField",
    "OnlineEM",
    "PenaltyChoice",
    "Pursuit",
    "Restarts",
    "RowBlocks",
    "RowsWarning",
    "ScoreFunctionSVI",
    "Shrinkage",
    "StartsWarning",
    "Trace",
    "TrainClassifiers",
    "fit",
]

_MODULES = (
    "acdc",
    "alignment",
    "bootstrap",
    "calibration",
    "causal",
    "comparison",
    "estimates",
    "estimator",
    "identifiability",
    "inspection",
    "loo",
    "metrics",
    "plots",
    "predictive",
    "relations",
    "report",
    "selection",
    "studies",
    "uncertainty",
)
_FUNCTIONS = {"ZooEstimator": "inference.estimator", "compare": "inference.comparison"}


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", *_MODULES, *_FUNCTIONS])


if not TYPE_CHECKING:  # a type checker would take any name for one of this package

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return importlib.import_module(f"inference.{name}")
        if name in _FUNCTIONS:
            return getattr(importlib.import_module(_FUNCTIONS[name]), name)
        raise AttributeError(f"module 'inference' has no attribute {name!r}")
