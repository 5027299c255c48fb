"""Finite mixtures: closed-form EM steps, starts, labels, noise."""

from inference.structures.mixture.steps import MixtureSetSteps, MixtureSteps
from inference.structures.mixture.structure import MixtureStructure, mixture_noise

__all__ = ["MixtureSetSteps", "MixtureSteps", "MixtureStructure", "mixture_noise"]
