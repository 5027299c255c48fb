"""Every kind of self-description that inference knows; a new one is added to the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inference.base.structure import Structure
from inference.structures.attribute_groups import AttributeGroupsStructure
from inference.structures.classifiers.structure import ClassifierStructure
from inference.structures.dictionary.structure import DictionaryStructure
from inference.structures.factorization.factor_analysis import FactorAnalysisStructure
from inference.structures.factorization.structure import FactorizationStructure
from inference.structures.factorization.unmixing import UnmixingStructure
from inference.structures.factorization.usage import UsageStructure
from inference.structures.hidden_markov.structure import HiddenMarkovStructure
from inference.structures.layers.attributes import AttributeStructure
from inference.structures.layers.structure import LayeredStructure
from inference.structures.mixture.structure import MixtureStructure
from inference.structures.noisy_or.structure import NoisyOrStructure
from inference.structures.options.continuous import ContinuousOptionsStructure
from inference.structures.options.structure import OptionsStructure

STRUCTURES: dict[str, type[Structure]] = {  # method of a model that describes it -> kind
    "expected_responses": AttributeStructure,
    "of_versions": AttributeGroupsStructure,
    "layers": LayeredStructure,
    "causes": NoisyOrStructure,
    "chain": OptionsStructure,
    "policy_chain": ContinuousOptionsStructure,
    "factorization": FactorizationStructure,
    "usage": UsageStructure,
    "factors": FactorAnalysisStructure,
    "unmixing": UnmixingStructure,
    "dictionary": DictionaryStructure,
    "components": MixtureStructure,
    "hidden_chain": HiddenMarkovStructure,
    "classifiers": ClassifierStructure,
}


def structure_of(model: Callable[..., Any]) -> Structure:
    """The first structure whose description the model offers; the generic one if it offers none."""
    for description, kind in STRUCTURES.items():
        structure = kind.of(model) if hasattr(model, description) else None
        if structure is not None:
            return structure
    return Structure(model)
