"""Which laws are offered beside the one that was asked for: one with a dispersion more costs one parameter, and nothing if it is not needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from inference.structures.registry import structure_of

__all__ = ["Law", "has_rule", "law_of", "laws_of"]


@dataclass(frozen=True)
class Law:
    """A family at any number of components.

    Args:
        name: in tables and sentences.
        model: of the family, at some number of components.
        num_dispersions: parameters that belong to the noise, whatever the number of components.
    """

    name: str
    model: Any
    num_dispersions: int = 0

    def at(self, num_components: int) -> Any:
        """The model with this many components."""
        return replace(self.model, num_components=num_components)


def has_rule(model: Any) -> bool:
    """Whether the rule counts the components of such a model."""
    return bool(structure_of(model).laws())


def law_of(model: Any) -> Law:
    """The law of a model.

    Raises:
        ValueError: for a model that is no factorization of counts.
    """
    if not has_rule(model):
        raise ValueError(
            f"select_components: a factorization of counts was expected, such as PoissonFactorization, got {type(model).__name__}; "
            "select_dimension(..., criterion='bic') chooses by a criterion that you name"
        )
    variance = structure_of(model).about.variance
    return Law("Poisson", model) if variance is None else Law(f"negative binomial with {variance} variance", model, 1)


def laws_of(model: Any) -> tuple[Law, ...]:
    """The laws that are offered where ``model`` is asked for: Poisson counts first, which the others contain.

    Raises:
        ValueError: as :func:`law_of`.
    """
    return tuple(law_of(one) for one in structure_of(law_of(model).model).laws())
