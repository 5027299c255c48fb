"""Probabilistic programs with discrete latent variables, each declared once in Pyro;
``ppl_models.datasets`` has data for them.
"""

import importlib
from typing import TYPE_CHECKING

from ppl_models.attribute_groups import AttributeGroups
from ppl_models.continuous_options import ContinuousOptionsHMM
from ppl_models.deep_discrete_encoder import DeepDiscreteEncoder
from ppl_models.deep_noisy_or import DeepNoisyOr
from ppl_models.descriptions.attribute_law import Independent
from ppl_models.descriptions.covariates import Covariates
from ppl_models.descriptions.dag import Dag
from ppl_models.descriptions.higher_order import HigherOrder
from ppl_models.descriptions.profile_table import Hierarchy, Saturated
from ppl_models.descriptions.row_laws import MultivariateNormal, MultivariateT, SkewNormal
from ppl_models.factor_analysis import FactorAnalysis
from ppl_models.hidden_markov import HiddenMarkov
from ppl_models.inclass_net import InClassNet
from ppl_models.latent_attributes import LatentAttributeModel
from ppl_models.matrix_factorization import (
    GaussianFactorization,
    NegativeBinomialFactorization,
    PoissonFactorization,
)
from ppl_models.mixture import Mixture
from ppl_models.networks.dense import Dense
from ppl_models.networks.lookup import KnownDensities, Lookup
from ppl_models.networks.modules import FromModule
from ppl_models.noisy_or import NoisyOr
from ppl_models.options_hmm import OptionsHMM
from ppl_models.parts.blocks import Blocks
from ppl_models.parts.categorical import Categorical, Ordinal
from ppl_models.parts.item_curves import ACDM, RRUM
from ppl_models.parts.measurement import Additive, ExpDINA, ExpDINO, ExpGDM
from ppl_models.parts.penalties import SCAD, Ridge, ToBeChosen, TruncatedLasso
from ppl_models.parts.policies import Network, SoftmaxLinear
from ppl_models.parts.responses import Bernoulli, LogNormal, NegativeBinomial, Normal, Poisson
from ppl_models.sparse_coding import SparseCoding
from ppl_models.usage_factorization import UsageFactorization

if TYPE_CHECKING:  # what comes on first use, for type checkers and editors
    from ppl_models import datasets as datasets

__version__ = "0.1.0"  # of both packages; the build reads it here

__all__ = [
    "ACDM",
    "RRUM",
    "SCAD",
    "Additive",
    "AttributeGroups",
    "Bernoulli",
    "Blocks",
    "Categorical",
    "ContinuousOptionsHMM",
    "Covariates",
    "Dag",
    "DeepDiscreteEncoder",
    "Dense",
    "ExpDINA",
    "ExpDINO",
    "ExpGDM",
    "DeepNoisyOr",
    "FactorAnalysis",
    "FromModule",
    "GaussianFactorization",
    "HiddenMarkov",
    "Hierarchy",
    "HigherOrder",
    "InClassNet",
    "Independent",
    "KnownDensities",
    "LatentAttributeModel",
    "LogNormal",
    "Lookup",
    "Mixture",
    "MultivariateNormal",
    "MultivariateT",
    "SkewNormal",
    "Network",
    "NegativeBinomial",
    "NegativeBinomialFactorization",
    "NoisyOr",
    "Normal",
    "OptionsHMM",
    "Ordinal",
    "Poisson",
    "PoissonFactorization",
    "Ridge",
    "Saturated",
    "SparseCoding",
    "SoftmaxLinear",
    "ToBeChosen",
    "TruncatedLasso",
    "UsageFactorization",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "datasets"])


if not TYPE_CHECKING:  # a type checker would take any name for one of this package

    def __getattr__(name: str) -> object:
        if name == "datasets":
            return importlib.import_module("ppl_models.datasets")
        raise AttributeError(f"module 'ppl_models' has no attribute {name!r}")
