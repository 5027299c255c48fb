"""Causal graphs among attributes from a table of profile probabilities."""

from inference.causal.discovery import discover as discover
from inference.causal.edges import edge_probabilities as edge_probabilities
from inference.causal.exact import ExactSearch as ExactSearch
from inference.causal.ges import GES as GES
from inference.causal.graphs import (
    compare_graphs as compare_graphs,
    cpdag_of as cpdag_of,
    dag_of_edges as dag_of_edges,
)
from inference.causal.knowledge import BackgroundKnowledge as BackgroundKnowledge
from inference.causal.of_fit import (
    discover_attributes as discover_attributes,
)
from inference.causal.pc import pc as pc
from inference.causal.rows import compare_on_rows as compare_on_rows
from inference.causal.scores import BIC as BIC, BDeu as BDeu
from inference.causal.structural_em import structural_em as structural_em
from ppl_models.parts.surface import promised as _promised

__dir__ = _promised(__name__)
