"""Networks as parts of a program: weights as sites, rows of several variates."""

from ppl_models.data.tables import (
    as_variates as as_variates,
    named_columns as named_columns,
    rows_of as rows_of,
    variate_shapes as variate_shapes,
)
from ppl_models.networks.dense import Dense as Dense, side_by_side as side_by_side
from ppl_models.networks.distributions import (
    RelativeToMarginal as RelativeToMarginal,
    Statistic as Statistic,
)
from ppl_models.networks.lookup import KnownDensities as KnownDensities, Lookup as Lookup
from ppl_models.networks.modules import FromModule as FromModule
