"""Which laws are offered beside the one that was asked for: one with a dispersion more costs one
parameter, and nothing if it is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from inference.base.structure import candidate_families
from inference.structures.hidden_markov.structure import HiddenMarkovStructure
from inference.structures.mixture.structure import MixtureStructure
from inference.structures.options.structure import OptionsStructure
from inference.structures.registry import structure_of
from ppl_models.descriptions.components import MixtureComponents
from ppl_models.descriptions.row_laws import MultivariateNormal, MultivariateT, RowLaw, SkewNormal
from ppl_models.parts.blocks import Blocks
from ppl_models.parts.categorical import Categorical
from ppl_models.parts.responses import Bernoulli, NegativeBinomial, Normal, Poisson

NAMES: dict[type, str] = {
    Normal: "normal",
    MultivariateNormal: "normal",
    MultivariateT: "Student t",
    SkewNormal: "skew-normal",
    Poisson: "Poisson",
    NegativeBinomial: "negative binomial",
    Bernoulli: "Bernoulli",
    Categorical: "categorical",
}


NUMBERS = {"chain": "num_states", "options": "num_options"}  # fields that hold the number


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

    @property
    def kind(self) -> Literal["mixture", "chain", "options", "factorization"]:
        """What its components are: those of a mixture, each row of one of them; states of a hidden
        Markov model; hidden options; or terms of a factorization.
        """
        match structure_of(self.model):
            case MixtureStructure():
                return "mixture"
            case HiddenMarkovStructure():
                return "chain"
            case OptionsStructure():
                return "options"
        return "factorization"

    @property
    def of_rows(self) -> Any:
        """The law of the rows of a component or state; None for factorizations."""
        about = structure_of(self.model).about
        return (
            about.component
            if self.kind == "mixture"
            else about.emission.component
            if self.kind == "chain"
            else None
        )

    @property
    def is_skewed(self) -> bool:
        """Whether its search needs more starts than others."""
        return isinstance(self.of_rows, SkewNormal)

    @property
    def of_whole_rows(self) -> bool:
        """Whether rows with a part of their entries missing are refused, and tables of no more rows
        than columns.
        """
        return isinstance(self.of_rows, RowLaw)

    def at(self, num_components: int) -> Any:
        """The model with this many components."""
        return replace(self.model, **{NUMBERS.get(self.kind, "num_components"): num_components})


def has_rule(model: Any) -> bool:
    """Whether the rule counts the components of such a model."""
    return bool(candidate_families(structure_of(model)))


def law_of(model: Any) -> Law:
    """The law of a model.

    Raises:
        ValueError: for a model that no rule counts.
    """
    if not has_rule(model):
        raise ValueError(
            "select_components: a factorization of counts was expected, such as"
            " PoissonFactorization, a mixture or hidden Markov model whose components' noise is"
            " known, or hidden options of states that are whole numbers, got"
            f" {type(model).__name__}; select_dimension(..., criterion='bic') chooses by a"
            " criterion that you name"
        )
    structure = structure_of(model)
    if isinstance(structure, MixtureStructure):
        return Law(_name(structure.about), model)
    if isinstance(structure, HiddenMarkovStructure):
        return Law(_name(structure.about.emission), model)
    if isinstance(structure, OptionsStructure):
        return Law("options", model)
    variance = structure.about.variance
    return (
        Law("Poisson", model)
        if variance is None
        else Law(f"negative binomial with {variance} variance", model, 1)
    )


def _name(about: MixtureComponents) -> str:
    if type(about.component) is Normal and about.num_items > 1:
        return "normal with independent columns"
    if isinstance(about.component, Blocks):
        *others, last = dict.fromkeys(
            NAMES.get(type(part), type(part).__name__)
            for part, _, _ in about.component.blocks(about.num_items)
        )
        return f"{', '.join(others)} and {last}" if others else last
    return NAMES.get(type(about.component), type(about.component).__name__)


def laws_of(model: Any) -> tuple[Law, ...]:
    """The laws that are offered where ``model`` is asked for, the first of which the others
    contain.

    Raises:
        ValueError: as :func:`law_of`.
    """
    return tuple(law_of(one) for one in candidate_families(structure_of(law_of(model).model)))
