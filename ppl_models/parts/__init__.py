"""What programs are made of: responses, penalties, distributions, checks."""

from ppl_models.parts.blocks import Blocks
from ppl_models.parts.categorical import Categorical, Ordinal, log_tables
from ppl_models.parts.distributions import (
    BinaryVector,
    Flat,
    ProductEffects,
    Scattered,
    binary_configurations,
    pairwise_dot,
    support_size,
)
from ppl_models.parts.item_response import ItemResponse, LinearPredictor
from ppl_models.parts.measurement import Additive, Bottom, ExpDINA, ExpDINO, ExpGDM
from ppl_models.parts.penalties import SCAD, Penalty, PenaltyPrior, Ridge, ToBeChosen, TruncatedLasso, stacked, taken
from ppl_models.parts.policies import Network, Policy, SoftmaxLinear
from ppl_models.parts.precisions import LogCholesky, PositiveDefinite, Precision
from ppl_models.parts.probability_tables import DirichletTables, Segments, Simplexes, segments_of
from ppl_models.parts.responses import (
    Bernoulli,
    LogNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    ResponseFamily,
    dispersed_items,
    filled,
    num_densities,
)
from ppl_models.parts.skewed import SkewedRows
from ppl_models.parts.validation import (
    CodesWarning,
    ConstantColumnWarning,
    as_items,
    as_table,
    check_complete,
    check_flag,
    check_size,
    is_integer,
    is_number,
    numbers_like,
)

__all__ = [
    "SkewedRows",
    "Blocks",
    "Categorical",
    "Ordinal",
    "log_tables",
    "BinaryVector",
    "Flat",
    "ProductEffects",
    "Scattered",
    "binary_configurations",
    "pairwise_dot",
    "support_size",
    "ItemResponse",
    "LinearPredictor",
    "Additive",
    "Bottom",
    "ExpDINA",
    "ExpDINO",
    "ExpGDM",
    "SCAD",
    "Penalty",
    "PenaltyPrior",
    "Ridge",
    "ToBeChosen",
    "TruncatedLasso",
    "stacked",
    "taken",
    "Network",
    "Policy",
    "SoftmaxLinear",
    "LogCholesky",
    "PositiveDefinite",
    "Precision",
    "DirichletTables",
    "Segments",
    "Simplexes",
    "segments_of",
    "Bernoulli",
    "LogNormal",
    "NegativeBinomial",
    "Normal",
    "Poisson",
    "ResponseFamily",
    "dispersed_items",
    "filled",
    "num_densities",
    "CodesWarning",
    "ConstantColumnWarning",
    "as_items",
    "as_table",
    "check_complete",
    "check_flag",
    "check_size",
    "is_integer",
    "is_number",
    "numbers_like",
]
