"""Laws of the components of a mixture, and of the states of a hidden Markov model: densities, both
halves of EM, noise.
"""

from inference.base.component_laws.items import ItemLaw
from inference.base.component_laws.law import ComponentLaw, MixtureStatistics
from inference.base.component_laws.laws import law_of
from inference.base.component_laws.normal import NormalLaw
from inference.base.component_laws.skewed import SkewNormalLaw
from inference.base.component_laws.student import TLaw

__all__ = [
    "ComponentLaw",
    "ItemLaw",
    "MixtureStatistics",
    "NormalLaw",
    "SkewNormalLaw",
    "TLaw",
    "law_of",
]
