"""Every kind of self-description that inference knows; a new one is added to the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from inference.base.structure import Structure
from ppl_models.parts.surface import on_first_use

if TYPE_CHECKING:  # a kind comes with the first model that has its description
    from inference.structures.attribute_groups import (
        AttributeGroupsStructure as AttributeGroupsStructure,
    )
    from inference.structures.classifiers.structure import (
        ClassifierStructure as ClassifierStructure,
    )
    from inference.structures.dictionary.structure import DictionaryStructure as DictionaryStructure
    from inference.structures.factorization.factor_analysis import (
        FactorAnalysisStructure as FactorAnalysisStructure,
    )
    from inference.structures.factorization.structure import (
        FactorizationStructure as FactorizationStructure,
    )
    from inference.structures.factorization.unmixing import UnmixingStructure as UnmixingStructure
    from inference.structures.factorization.usage import UsageStructure as UsageStructure
    from inference.structures.hidden_markov.structure import (
        HiddenMarkovStructure as HiddenMarkovStructure,
    )
    from inference.structures.layers.attributes import AttributeStructure as AttributeStructure
    from inference.structures.layers.structure import LayeredStructure as LayeredStructure
    from inference.structures.mixture.structure import MixtureStructure as MixtureStructure
    from inference.structures.noisy_or.structure import NoisyOrStructure as NoisyOrStructure
    from inference.structures.options.continuous import (
        ContinuousOptionsStructure as ContinuousOptionsStructure,
    )
    from inference.structures.options.structure import OptionsStructure as OptionsStructure

__getattr__, __dir__ = on_first_use(__name__)

STRUCTURES: dict[str, str] = {  # method of a model that describes it -> kind
    "expected_responses": "AttributeStructure",
    "of_versions": "AttributeGroupsStructure",
    "layers": "LayeredStructure",
    "causes": "NoisyOrStructure",
    "chain": "OptionsStructure",
    "policy_chain": "ContinuousOptionsStructure",
    "factorization": "FactorizationStructure",
    "usage": "UsageStructure",
    "factors": "FactorAnalysisStructure",
    "unmixing": "UnmixingStructure",
    "dictionary": "DictionaryStructure",
    "components": "MixtureStructure",
    "hidden_chain": "HiddenMarkovStructure",
    "classifiers": "ClassifierStructure",
}


def structure_of(model: Callable[..., Any]) -> Structure:
    """The first structure whose description the model offers; the generic one if it offers none."""
    for description, name in STRUCTURES.items():
        if not hasattr(model, description):
            continue
        kind = cast("type[Structure]", __getattr__(name))
        structure = kind.of(model)
        if structure is not None:
            return structure
    return Structure(model)
