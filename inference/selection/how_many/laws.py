"""Which laws are offered beside the one that was asked for: one with a dispersion more costs one parameter, and nothing if it is not needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

from ppl_models.matrix_factorization import NegativeBinomialFactorization, PoissonFactorization

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


@singledispatch
def law_of(model: Any) -> Law:
    """The law of a model.

    Raises:
        ValueError: for a model that is no factorization of counts.
    """
    raise ValueError(
        f"select_components: a factorization of counts was expected, such as PoissonFactorization, got {type(model).__name__}; "
        "select_dimension(..., criterion='bic') chooses by a criterion that you name"
    )


@law_of.register
def _(model: PoissonFactorization) -> Law:
    return Law("Poisson", model)


@law_of.register
def _(model: NegativeBinomialFactorization) -> Law:
    return Law(f"negative binomial with {model.variance} variance", model, 1)


def has_rule(model: Any) -> bool:
    """Whether the rule counts the components of such a model."""
    return law_of.dispatch(type(model)) is not law_of.dispatch(object)


def laws_of(model: Any) -> tuple[Law, ...]:
    """The laws that are offered where ``model`` is asked for: Poisson counts first, which the others contain.

    Raises:
        ValueError: for a model that is no factorization of counts.
    """
    own = law_of(model)
    if isinstance(model, PoissonFactorization) and (model.concentration != 1 or model.activity_prior is not None):
        return (own,)  # the others have no such priors
    sizes = (model.num_items, model.num_components)
    linear, quadratic = (NegativeBinomialFactorization(*sizes, model.bound, kind) for kind in ("linear", "quadratic"))
    return law_of(PoissonFactorization(*sizes, bound=model.bound)), law_of(linear), law_of(quadratic)
