"""Finite mixtures: laws of components, closed-form EM steps, starts, labels, noise."""

from inference.structures.mixture.items import ItemLaw
from inference.structures.mixture.law import ComponentLaw, MixtureStatistics
from inference.structures.mixture.laws import law_of
from inference.structures.mixture.normal import NormalLaw
from inference.structures.mixture.steps import MixtureSetSteps, MixtureSteps
from inference.structures.mixture.structure import MixtureStructure, mixture_noise

__all__ = [
    "ItemLaw",
    "ComponentLaw",
    "MixtureStatistics",
    "law_of",
    "NormalLaw",
    "MixtureSetSteps",
    "MixtureSteps",
    "MixtureStructure",
    "mixture_noise",
]
