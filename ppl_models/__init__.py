"""Probabilistic programs with discrete latent variables, each declared once in Pyro."""

from ppl_models.components import MultivariateNormal
from ppl_models.deep_discrete_encoder import DeepDiscreteEncoder
from ppl_models.matrix_factorization import GaussianFactorization, NegativeBinomialFactorization, PoissonFactorization
from ppl_models.mixture import Mixture
from ppl_models.noisy_or import NoisyOr
from ppl_models.options_hmm import OptionsHMM
from ppl_models.penalties import SCAD, TruncatedLasso
from ppl_models.responses import Bernoulli, Blocks, LogNormal, Normal, Poisson

__all__ = [
    "SCAD",
    "Bernoulli",
    "Blocks",
    "DeepDiscreteEncoder",
    "GaussianFactorization",
    "LogNormal",
    "Mixture",
    "MultivariateNormal",
    "NegativeBinomialFactorization",
    "NoisyOr",
    "Normal",
    "OptionsHMM",
    "Poisson",
    "PoissonFactorization",
    "TruncatedLasso",
]
