"""Names of latents: which of them a graph tells apart."""

from __future__ import annotations

from support.two_skills import GRAPH

from inference.structures.registry import structure_of
from ppl_models import DeepDiscreteEncoder


def test_latents_that_a_graph_tells_apart_keep_their_names():
    model = DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,))
    (label,) = structure_of(model).labels()
    assert label.kinds is not None
    assert label.kinds[0] != label.kinds[1]
