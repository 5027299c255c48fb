"""Every kind of self-description that inference knows; a new one is added to the tuple."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inference.caused import Caused
from inference.dictionaries import Dictionaries
from inference.factorization import Factorization
from inference.factors import Factors
from inference.layered import Layered
from inference.mixtures import Mixtures
from inference.options import Options
from inference.policy_options import PolicyOptions
from inference.structure import Structure
from inference.usage import Usage

__all__ = ["structure_of"]

STRUCTURES: tuple[type[Structure], ...] = (Layered, Caused, Options, PolicyOptions, Factorization, Usage, Factors, Dictionaries, Mixtures)


def structure_of(model: Callable[..., Any]) -> Structure:
    """The first structure whose description the model offers; the generic one if it offers none."""
    for kind in STRUCTURES:
        structure = kind.of(model)
        if structure is not None:
            return structure
    return Structure(model)
