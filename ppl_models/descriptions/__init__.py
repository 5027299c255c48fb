"""How families describe themselves to engines, in small frozen records."""

from ppl_models.descriptions.component_sites import (
    component_dims,
    draw_components,
    law_given,
    num_own_dims,
)
from ppl_models.descriptions.components import (
    DictionaryDescription,
    FactorDescription,
    FactorizationDescription,
    MixtureComponents,
    UsageDescription,
)
from ppl_models.descriptions.covariates import ClassCoefficients, Covariates
from ppl_models.descriptions.hidden_markov import HiddenMarkovDescription
from ppl_models.descriptions.layers import (
    GeneralizedLinearLayer,
    PredictorPrior,
    Root,
    RootLayer,
    products,
)
from ppl_models.descriptions.noisy_or import (
    PROBABILITY_LIMIT,
    IndependentCauses,
    log1mexp,
    log_expm1,
    weight_of_failure,
    weight_of_leak,
)
from ppl_models.descriptions.options import (
    ChainDescription,
    PolicyDescription,
    high_of_termination,
    with_high,
)
from ppl_models.descriptions.row_laws import (
    FREEDOM,
    MultivariateNormal,
    MultivariateT,
    RowLaw,
    SkewNormal,
)

__all__ = [
    "component_dims",
    "draw_components",
    "law_given",
    "num_own_dims",
    "DictionaryDescription",
    "FactorDescription",
    "FactorizationDescription",
    "MixtureComponents",
    "ClassCoefficients",
    "Covariates",
    "FREEDOM",
    "MultivariateNormal",
    "MultivariateT",
    "RowLaw",
    "SkewNormal",
    "UsageDescription",
    "HiddenMarkovDescription",
    "GeneralizedLinearLayer",
    "PredictorPrior",
    "Root",
    "RootLayer",
    "products",
    "PROBABILITY_LIMIT",
    "IndependentCauses",
    "log1mexp",
    "log_expm1",
    "weight_of_failure",
    "weight_of_leak",
    "ChainDescription",
    "high_of_termination",
    "with_high",
    "PolicyDescription",
]
