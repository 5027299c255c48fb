"""Engines for the zoo's programs, and what is asked of a fit afterwards.

The engines are names of this package. They and its public modules (``inference.plots``,
``inference.loo``, ``inference.selection``, ...) are imported on first use, so that ``import
inference`` stays quick and needs no library for pictures.
"""

import importlib
import typing

from ppl_models import __version__ as __version__
from ppl_models.parts.surface import on_first_use as _on_first_use

if typing.TYPE_CHECKING:  # all comes on first use; for type checkers and editors
    from inference import (
        acdc as acdc,
        alignment as alignment,
        bootstrap as bootstrap,
        calibration as calibration,
        causal as causal,
        comparison as comparison,
        estimates as estimates,
        estimator as estimator,
        identifiability as identifiability,
        inspection as inspection,
        loo as loo,
        metrics as metrics,
        plots as plots,
        predictive as predictive,
        relations as relations,
        report as report,
        selection as selection,
        studies as studies,
        uncertainty as uncertainty,
    )
    from inference.base.outcome import (
        BoundWarning as BoundWarning,
        ConvergenceWarning as ConvergenceWarning,
        DegenerateWarning as DegenerateWarning,
        EstimateWarning as EstimateWarning,
        PenaltyChoice as PenaltyChoice,
        RowsWarning as RowsWarning,
        StartsWarning as StartsWarning,
    )
    from inference.base.streaming.row_blocks import RowBlocks as RowBlocks
    from inference.bootstrap import Bootstrap as Bootstrap
    from inference.comparison import compare as compare
    from inference.engines.autoguides import (
        FullRank as FullRank,
        LowRank as LowRank,
        MeanField as MeanField,
    )
    from inference.engines.em import EM as EM
    from inference.engines.laplace import Laplace as Laplace
    from inference.engines.nuts import NUTS as NUTS
    from inference.engines.online_em import OnlineEM as OnlineEM
    from inference.engines.saem import SAEM as SAEM
    from inference.engines.svi import SVI as SVI
    from inference.estimator import ZooEstimator as ZooEstimator
    from inference.fitting.fit import fit as fit
    from inference.fitting.record import Restarts as Restarts, Trace as Trace
    from inference.fitting.result import Fit as Fit
    from inference.structures.classifiers.regularizers import (
        CrossTotalCorrelation as CrossTotalCorrelation,
        EvenWeights as EvenWeights,
        KnownWeights as KnownWeights,
        Labels as Labels,
    )
    from inference.structures.classifiers.train import TrainClassifiers as TrainClassifiers
    from inference.structures.dictionary.alternating import (
        AlternatingMinimization as AlternatingMinimization,
        GradientAlternation as GradientAlternation,
    )
    from inference.structures.dictionary.decoders import (
        BackwardElimination as BackwardElimination,
        HardThresholding as HardThresholding,
        Pursuit as Pursuit,
        Shrinkage as Shrinkage,
    )
    from inference.structures.factorization.factorize import Factorize as Factorize
    from inference.structures.layers.choose_penalty import ChoosePenalty as ChoosePenalty
    from inference.structures.noisy_or.grow_and_prune import GrowAndPrune as GrowAndPrune
    from inference.structures.noisy_or.score_svi import ScoreFunctionSVI as ScoreFunctionSVI
    from ppl_models.data.tables import ColumnsWarning as ColumnsWarning


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
_get, _names = _on_first_use(__name__)


def __dir__() -> list[str]:
    return sorted({*_names(), *_MODULES})


if not typing.TYPE_CHECKING:  # a type checker would take any name for one of this package

    def __getattr__(name: str) -> object:
        return importlib.import_module(f"inference.{name}") if name in _MODULES else _get(name)
