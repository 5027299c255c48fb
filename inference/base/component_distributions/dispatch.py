"""Registry of component distributions: the one file that knows them all."""

from __future__ import annotations

from functools import lru_cache

from inference.base.component_distributions.base import ComponentDistribution
from inference.base.component_distributions.items import ItemDistribution
from inference.base.component_distributions.normal import NormalDistribution
from inference.base.component_distributions.skewed import SkewNormalDistribution
from inference.base.component_distributions.student import TDistribution
from ppl_models.descriptions.components import MixtureComponents
from ppl_models.descriptions.row_distributions import MultivariateNormal, MultivariateT, SkewNormal

WHOLE_ROWS: dict[type, type[ComponentDistribution]] = {
    MultivariateNormal: NormalDistribution,
    MultivariateT: TDistribution,
    SkewNormal: SkewNormalDistribution,
}


@lru_cache(maxsize=64)  # what a description says is worked out once, and not in every step
def distribution_of(about: MixtureComponents) -> ComponentDistribution:
    """Component distribution of a description; independent items by default."""
    return WHOLE_ROWS.get(type(about.component), ItemDistribution)(about)
