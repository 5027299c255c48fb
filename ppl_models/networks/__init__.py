"""Networks as parts of a program: weights as sites, rows of several variates, laws relative to
marginals.
"""

from ppl_models.networks.dense import Dense, side_by_side
from ppl_models.networks.laws import RelativeToMarginal, Statistic
from ppl_models.networks.lookup import KnownDensities, Lookup
from ppl_models.networks.modules import FromModule
from ppl_models.networks.variates import as_variates, named_columns, rows_of, variate_shapes

__all__ = [
    "Dense",
    "FromModule",
    "KnownDensities",
    "Lookup",
    "RelativeToMarginal",
    "Statistic",
    "as_variates",
    "named_columns",
    "rows_of",
    "side_by_side",
    "variate_shapes",
]
