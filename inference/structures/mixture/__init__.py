"""Finite mixtures: laws of components, closed-form EM steps, starts, labels, noise."""

from inference.base.component_laws.items import ItemLaw
from inference.base.component_laws.law import ComponentLaw, MixtureStatistics
from inference.base.component_laws.laws import law_of
from inference.base.component_laws.normal import NormalLaw
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
