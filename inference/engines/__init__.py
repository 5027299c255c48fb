"""Engines: they know a problem and its structure, never a family."""

from inference.engines.autoguides import FullRank, LowRank, MeanField
from inference.engines.chains import posterior_outcome
from inference.engines.em import EM
from inference.engines.gibbs_estimates import log_likelihood_rows, posterior_means
from inference.engines.hamiltonian import (
    Ask,
    DualAveraging,
    Metric,
    Transition,
    first_step_size,
    transition,
)
from inference.engines.importance import GOOD_K, log_posteriors, warn_of_ratios
from inference.engines.laplace import Laplace
from inference.engines.nuts import MOST_DENSE, NUTS, STATS, Chain, Run
from inference.engines.nuts_many_data_sets import MOST_SETS, draws_of_sets
from inference.engines.online_em import OnlineEM
from inference.engines.saem import SAEM
from inference.engines.start_search import search_starts
from inference.engines.svi import SVI

__all__ = [
    "FullRank",
    "LowRank",
    "MeanField",
    "posterior_outcome",
    "EM",
    "log_likelihood_rows",
    "posterior_means",
    "Ask",
    "DualAveraging",
    "Metric",
    "Transition",
    "first_step_size",
    "transition",
    "GOOD_K",
    "log_posteriors",
    "warn_of_ratios",
    "Laplace",
    "MOST_DENSE",
    "NUTS",
    "STATS",
    "Chain",
    "Run",
    "MOST_SETS",
    "draws_of_sets",
    "OnlineEM",
    "SAEM",
    "search_starts",
    "SVI",
]
