"""Probabilistic programs with discrete latent variables, each declared once in Pyro.

``ppl_models.datasets`` has data for them.
"""

import importlib
import typing

from ppl_models.parts.surface import on_first_use as _on_first_use

if typing.TYPE_CHECKING:  # all comes on first use; for type checkers and editors
    from ppl_models import datasets as datasets
    from ppl_models.attribute_groups import AttributeGroups as AttributeGroups
    from ppl_models.continuous_options import ContinuousOptionsHMM as ContinuousOptionsHMM
    from ppl_models.data.items import items_of as items_of
    from ppl_models.deep_discrete_encoder import DeepDiscreteEncoder as DeepDiscreteEncoder
    from ppl_models.deep_noisy_or import DeepNoisyOr as DeepNoisyOr
    from ppl_models.descriptions.attribute_distribution import Independent as Independent
    from ppl_models.descriptions.covariates import Covariates as Covariates
    from ppl_models.descriptions.dag import Dag as Dag
    from ppl_models.descriptions.higher_order import HigherOrder as HigherOrder
    from ppl_models.descriptions.profile_table import Hierarchy as Hierarchy, Saturated as Saturated
    from ppl_models.descriptions.row_distributions import (
        MultivariateNormal as MultivariateNormal,
        MultivariateT as MultivariateT,
        SkewNormal as SkewNormal,
    )
    from ppl_models.factor_analysis import FactorAnalysis as FactorAnalysis
    from ppl_models.hidden_markov import HiddenMarkov as HiddenMarkov
    from ppl_models.inclass_net import InClassNet as InClassNet
    from ppl_models.latent_attributes import LatentAttributeModel as LatentAttributeModel
    from ppl_models.matrix_factorization import (
        GaussianFactorization as GaussianFactorization,
        NegativeBinomialFactorization as NegativeBinomialFactorization,
        PoissonFactorization as PoissonFactorization,
    )
    from ppl_models.mixture import Mixture as Mixture
    from ppl_models.networks.dense import Dense as Dense
    from ppl_models.networks.lookup import KnownDensities as KnownDensities, Lookup as Lookup
    from ppl_models.networks.modules import FromModule as FromModule
    from ppl_models.noisy_or import NoisyOr as NoisyOr
    from ppl_models.options_hmm import OptionsHMM as OptionsHMM
    from ppl_models.parts.blocks import Blocks as Blocks
    from ppl_models.parts.categorical import Categorical as Categorical, Ordinal as Ordinal
    from ppl_models.parts.durations import (
        FreeDurations as FreeDurations,
        GeometricDurations as GeometricDurations,
        NegativeBinomialDurations as NegativeBinomialDurations,
        PoissonDurations as PoissonDurations,
    )
    from ppl_models.parts.item_curves import ACDM as ACDM, RRUM as RRUM
    from ppl_models.parts.measurement import (
        Additive as Additive,
        ExpDINA as ExpDINA,
        ExpDINO as ExpDINO,
        ExpGDM as ExpGDM,
    )
    from ppl_models.parts.penalties import (
        SCAD as SCAD,
        Ridge as Ridge,
        ToBeChosen as ToBeChosen,
        TruncatedLasso as TruncatedLasso,
    )
    from ppl_models.parts.policies import Network as Network, SoftmaxLinear as SoftmaxLinear
    from ppl_models.parts.responses import (
        Bernoulli as Bernoulli,
        LogNormal as LogNormal,
        NegativeBinomial as NegativeBinomial,
        Normal as Normal,
        Poisson as Poisson,
    )
    from ppl_models.sparse_coding import SparseCoding as SparseCoding
    from ppl_models.unmixing import Unmixing as Unmixing
    from ppl_models.usage_factorization import UsageFactorization as UsageFactorization

__version__ = "0.1.0"  # of both packages; the build reads it here

_get, _names = _on_first_use(__name__)


def __dir__() -> list[str]:
    return sorted({*_names(), "datasets"})


if not typing.TYPE_CHECKING:  # a type checker would take any name for one of this package

    def __getattr__(name: str) -> object:
        return importlib.import_module("ppl_models.datasets") if name == "datasets" else _get(name)
