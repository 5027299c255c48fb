"""Every kind of self-description that inference knows; a new one is added to the tuple."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inference.base.structure import Structure
from inference.structures.dictionary.structure import Dictionaries
from inference.structures.factorization.factor_analysis import Factors
from inference.structures.factorization.structure import Factorization
from inference.structures.factorization.usage import Usage
from inference.structures.layers.structure import Layered
from inference.structures.mixture import Mixtures
from inference.structures.noisy_or.structure import Caused
from inference.structures.options.continuous import PolicyOptions
from inference.structures.options.structure import Options

__all__ = ["structure_of"]

STRUCTURES: tuple[type[Structure], ...] = (Layered, Caused, Options, PolicyOptions, Factorization, Usage, Factors, Dictionaries, Mixtures)


def structure_of(model: Callable[..., Any]) -> Structure:
    """The first structure whose description the model offers; the generic one if it offers none."""
    for kind in STRUCTURES:
        structure = kind.of(model)
        if structure is not None:
            return structure
    return Structure(model)
