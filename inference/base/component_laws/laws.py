"""Registry of component distributions: the one file that knows them all."""

from __future__ import annotations

from inference.base.component_laws.items import ItemLaw
from inference.base.component_laws.law import ComponentLaw
from inference.base.component_laws.normal import NormalLaw
from inference.base.component_laws.skewed import SkewNormalLaw
from inference.base.component_laws.student import TLaw
from ppl_models.descriptions.components import MixtureComponents
from ppl_models.descriptions.row_laws import MultivariateNormal, MultivariateT, SkewNormal

WHOLE_ROWS: dict[type, type[ComponentLaw]] = {
    MultivariateNormal: NormalLaw,
    MultivariateT: TLaw,
    SkewNormal: SkewNormalLaw,
}


def law_of(about: MixtureComponents) -> ComponentLaw:
    """Component distribution of a description; independent items by default."""
    return WHOLE_ROWS.get(type(about.component), ItemLaw)(about)
