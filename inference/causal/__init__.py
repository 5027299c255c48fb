"""What causes what among attributes: graphs from a table of profile probabilities, and how far to believe them."""

from inference.causal.enumeration import Classes, all_classes, all_dags
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
from inference.causal.scores import BIC, BDeu, score_of
from inference.causal.search import Found
from inference.causal.tables import dag_table, mutual_information, profiles

__all__ = [
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
    "BIC",
    "BDeu",
    "score_of",
    "Found",
    "dag_table",
    "mutual_information",
    "profiles",
]
