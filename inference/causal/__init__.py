"""What causes what among attributes: graphs from a table of profile probabilities, and how far to
believe them.
"""

from inference.causal.classes import Classes, all_classes, all_dags
from inference.causal.discovery import CausalReport, discover
from inference.causal.draws import dirichlet_tables, imputed_tables, resampled_tables
from inference.causal.edges import EdgeProbabilities, edge_probabilities
from inference.causal.effective_rows import EffectiveRows, effective_rows
from inference.causal.exact import ExactSearch
from inference.causal.ges import GES
from inference.causal.graphs import (
    Cpdag,
    GraphComparison,
    compare_graphs,
    consistent_extension,
    cpdag_of,
    d_separated,
    dag_of_edges,
    markov_equivalent,
    meek,
    moral_graph,
    shd,
    shd_lenient,
    skeleton,
    topological_order,
    v_structures,
)
from inference.causal.independence import Dependence
from inference.causal.of_fit import (
    AttributeReport,
    ProfilePosterior,
    discover_attributes,
    profile_posterior,
)
from inference.causal.on_rows import GraphOnRows, RowComparison, compare_on_rows
from inference.causal.pc import Conflict, PcResult, pc
from inference.causal.samples import (
    classified_counts,
    drawn_counts,
    profile_counts,
    redrawn_counts,
    rounded_counts,
    rows_of_counts,
    scaled_counts,
)
from inference.causal.scores import BIC, BDeu, score_of
from inference.causal.search import Found
from inference.causal.strength import EdgeStrength, IndependenceClaim, TripleStrength
from inference.causal.tables import dag_table, mutual_information, profiles

__all__ = [
    "CausalReport",
    "discover",
    "dirichlet_tables",
    "imputed_tables",
    "resampled_tables",
    "EdgeProbabilities",
    "edge_probabilities",
    "EffectiveRows",
    "effective_rows",
    "Classes",
    "all_classes",
    "all_dags",
    "ExactSearch",
    "GES",
    "Cpdag",
    "GraphComparison",
    "compare_graphs",
    "consistent_extension",
    "cpdag_of",
    "d_separated",
    "dag_of_edges",
    "markov_equivalent",
    "meek",
    "moral_graph",
    "shd",
    "shd_lenient",
    "skeleton",
    "topological_order",
    "v_structures",
    "Dependence",
    "AttributeReport",
    "ProfilePosterior",
    "discover_attributes",
    "profile_posterior",
    "GraphOnRows",
    "RowComparison",
    "compare_on_rows",
    "Conflict",
    "PcResult",
    "pc",
    "classified_counts",
    "drawn_counts",
    "profile_counts",
    "redrawn_counts",
    "rounded_counts",
    "rows_of_counts",
    "scaled_counts",
    "BIC",
    "BDeu",
    "score_of",
    "Found",
    "EdgeStrength",
    "IndependenceClaim",
    "TripleStrength",
    "dag_table",
    "mutual_information",
    "profiles",
]
