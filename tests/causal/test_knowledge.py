"""Background knowledge: every search against all DAGs with four nodes, and causal-learn's PC."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.small_graphs import random_dag, random_table, structure

from inference.causal import (
    GES,
    BackgroundKnowledge,
    BDeu,
    ExactSearch,
    discover,
    edge_probabilities,
    pc,
)
from inference.causal.edges import all_classes, all_dags, likely_classes
from inference.causal.graphs import check_dag, pdag_of, topological_order
from inference.causal.knowledge import Constraints
from inference.causal.pdags import matrix_of_columns
from inference.causal.scores import SetScores, all_set_scores

REFERENCE = json.loads(
    (Path(__file__).parent.parent / "references" / "causal_knowledge.json").read_text("utf-8")
)
NAMES = tuple("abcd")


def knowledge_about(dag: np.ndarray, rng: np.random.Generator) -> BackgroundKnowledge:
    """Some arrows required and some forbidden, perhaps tiers, all true of a DAG or none of it."""
    arrows = [(int(i), int(j)) for i, j in np.argwhere(dag)]
    others = [(int(i), int(j)) for i, j in np.argwhere(~dag) if i != j]
    told = [
        tuple(pairs[k] for k in rng.permutation(len(pairs))[: rng.integers(0, most + 1)])
        for pairs, most in ((arrows, 2), (others, 4))
    ]
    return BackgroundKnowledge(*told)


def members_within(known: Constraints) -> tuple[np.ndarray, np.ndarray]:
    """DAGs that agree, by looking at every arrow of each, and the class of each."""
    dags = np.stack([matrix_of_columns(int(mask) for mask in row) for row in all_dags(4)])
    need, out = matrix_of_columns(known.required), matrix_of_columns(known.excluded)
    agree = (dags | ~need).all((1, 2)) & ~(dags & out).any((1, 2))
    return dags[agree], all_classes(4).of_dag[agree]


@pytest.mark.parametrize("seed", range(12))
def test_searches_against_all_dags(seed: int) -> None:
    """Exact search: the largest score of all DAGs that agree, and the graph of all that agree with
    it in its class. Greedy search and draws of graphs keep to what is known.
    """
    rng = np.random.default_rng(seed)
    truth = random_dag(4, rng)
    told = knowledge_about(truth if seed % 3 else random_dag(4, rng), rng)
    known = told.on("test", NAMES)
    table = random_table(truth, rng)
    shares = rng.multinomial(400, table) / 400
    dags, classes = members_within(known)
    scores = SetScores(shares, 400, BDeu())
    totals = np.array([scores.total(pdag_of(dag).parents) for dag in dags])
    found = ExactSearch().best(shares, 400, BDeu(), known)
    assert found.score == pytest.approx(totals.max())
    alike = dags[classes == classes[totals.argmax()]]
    np.testing.assert_array_equal(found.graph.matrix, alike.any(0))
    assert ExactSearch().best_of_each(shares[None], 400, BDeu(), known) == [found.graph]

    greedy = GES().best(shares, 400, BDeu(), known)
    assert greedy.score <= found.score + 1e-9
    unions = {dags[classes == c].any(0).tobytes() for c in np.unique(classes)}
    assert greedy.graph.matrix.tobytes() in unions
    assert {other.matrix.tobytes() for other in greedy.ties} <= unions

    every = edge_probabilities(shares[None], 400, knowledge=told, names=NAMES)
    first = [np.flatnonzero(classes == c)[0] for c in np.unique(classes)]
    weights = np.exp(totals[first] - totals.max())
    weights /= weights.sum()
    matrices = np.stack([dags[classes == c].any(0) for c in np.unique(classes)])
    arrow = np.tensordot(weights, matrices & ~matrices.swapaxes(1, 2), 1)
    np.testing.assert_allclose(every.arrow, arrow, atol=1e-9)
    for i, j in told.required:
        assert every.arrow[i, j] == pytest.approx(1.0)
    drawn, _ = likely_classes(
        all_set_scores(shares[None], 400, BDeu()), np.random.default_rng(0), known
    )
    assert {graph.matrix.tobytes() for graph in drawn} <= unions


def test_orientation_by_knowledge_against_all_dags() -> None:
    """Of each of the 185 classes on four nodes, under 20 sets of knowledge: Meek's four rules give
    what all members that agree have in common, and None where there is no such member.
    """
    rng = np.random.default_rng(1)
    graphs = [pdag_of(matrix) for matrix in all_classes(4).matrices]
    for _ in range(20):
        known = knowledge_about(random_dag(4, rng, 0.8), rng).on("test", NAMES)
        dags, classes = members_within(known)
        for number, graph in enumerate(graphs):
            mine, found = dags[classes == number], known.restrict(graph)
            assert (found is None) == (len(mine) == 0)
            if found is not None:
                np.testing.assert_array_equal(found.matrix, mine.any(0))


def test_meeks_fourth_rule() -> None:
    """Nodes a - b, a - c, a - d, b - c, c - d, and b -> c -> d known: a -> d follows."""
    matrix = np.zeros((4, 4), dtype=bool)
    for i, j in ((0, 1), (0, 2), (0, 3), (1, 2), (2, 3)):
        matrix[i, j] = matrix[j, i] = True
    known = BackgroundKnowledge(required=(("b", "c"), ("c", "d"))).on("test", NAMES)
    closed = known.restrict(pdag_of(matrix))
    assert closed is not None
    assert closed.matrix[0, 3]
    assert not closed.matrix[3, 0]
    assert closed.matrix[0, 1]
    assert closed.matrix[1, 0]


@pytest.mark.parametrize("search", [ExactSearch(), GES()])
def test_pc_and_reports_keep_to_tiers(search: Any) -> None:
    """Structure 1 of the manuscript with its own order in time: every arrow is drawn."""
    dag, table = structure("1")
    told = BackgroundKnowledge(tiers=tuple((k,) for k in topological_order(dag)))
    for graph in (
        pc(table, 50_000, knowledge=told).graph,
        discover(table, 50_000, search=search, knowledge=told).graph,
    ):
        np.testing.assert_array_equal(graph.matrix, dag)
    report = discover(table, 50_000, search=search, knowledge=told)
    assert not report.open_arrows.any()


def test_pc_keeps_required_and_never_joins_forbidden() -> None:
    """A required edge between independent attributes stays; a forbidden one between dependent
    attributes is not drawn either way; a known arrow overrules a collider.
    """
    rng = np.random.default_rng(0)
    shares = rng.multinomial(2000, np.full(8, 0.125)) / 2000
    kept = pc(shares, 2000, knowledge=BackgroundKnowledge(required=((0, 2),)))
    assert kept.graph.arrows == ((0, 2),)
    dag = np.zeros((3, 3), dtype=bool)
    dag[0, 2] = dag[1, 2] = True
    table = random_table(dag, np.random.default_rng(2))
    both = BackgroundKnowledge(forbidden=((0, 2), (2, 0)))
    assert not pc(table, 10_000, knowledge=both).graph.matrix[0, 2]
    against = pc(table, 10_000, knowledge=BackgroundKnowledge(forbidden=((0, 2),)))
    assert (2, 0) in against.graph.arrows
    assert (0, 2) not in against.graph.arrows
    assert [found.triple for found in against.ambiguous] == [(0, 2, 1)]


def test_causal_learn_with_background_knowledge() -> None:
    """PC of causal-learn on the same rows with the same knowledge. Wherever it draws the true
    graph, so do we; where the two differ it is mostly theirs that is wrong.
    """
    right, theirs = 0, 0
    for case in REFERENCE["cases"]:
        counts = np.array(case["counts"], dtype=float)
        size = len(counts).bit_length() - 1
        told = BackgroundKnowledge(
            *(tuple(map(tuple, case[name])) for name in ("required", "forbidden", "tiers"))
        )
        truth, reference = ({tuple(pair) for pair in case[name]} for name in ("truth", "graph"))
        rows = counts.sum()
        graph = pc(counts / rows, rows, level=REFERENCE["level"], knowledge=told).graph
        found = {(int(i), int(j)) for i, j in np.argwhere(graph.matrix)}
        assert len(graph.names) == size
        assert found == truth or reference != truth, f"seed {case['seed']}"
        right, theirs = right + (found == truth), theirs + (reference == truth)
    assert len(REFERENCE["cases"]) == 40
    assert right > theirs


def test_to_networkx() -> None:
    networkx = pytest.importorskip("networkx")
    _, table = structure("2")
    graph = discover(table, 5000).graph
    drawn = graph.to_networkx()
    np.testing.assert_array_equal(
        networkx.to_numpy_array(drawn, nodelist=graph.names) > 0, graph.matrix
    )
    lines = {tuple(sorted(pair[:2])) for pair in drawn.edges(data="directed") if not pair[2]}
    assert lines == {tuple(sorted((graph.names[i], graph.names[j]))) for i, j in graph.lines}
    check_dag("test", networkx.to_numpy_array(networkx.DiGraph(graph.dag())) > 0)


def test_bad_knowledge() -> None:
    with pytest.raises(ValueError, match="a -> b is both required and forbidden"):
        BackgroundKnowledge(required=(("a", "b"),), forbidden=(("a", "b"),))
    with pytest.raises(ValueError, match="'a' is in tiers 1 and 3; it cannot come before itself"):
        BackgroundKnowledge(tiers=(("a",), ("b",), ("a",)))
    with pytest.raises(ValueError, match="tiers must be groups of attributes"):
        BackgroundKnowledge(tiers=("ab",))
    with pytest.raises(ValueError, match="required must be pairs"):
        BackgroundKnowledge(required=("ab",))
    table = np.full(8, 0.125)
    cases: list[tuple[BackgroundKnowledge, str]] = [
        (BackgroundKnowledge(required=(("a", "x"),)), "'x' is not among the 3"),
        (BackgroundKnowledge(forbidden=((0, 3),)), "attribute 3 is not among the 3"),
        (BackgroundKnowledge(tiers=(("a",), (0,))), "a is in tiers 1 and 2"),
        (
            BackgroundKnowledge(required=(("a", "b"),), forbidden=((0, 1),)),
            "a -> b is both required and forbidden",
        ),
        (
            BackgroundKnowledge(required=(("a", "b"), ("b", "c"), ("c", "a"))),
            "required edges run in a cycle, a -> b -> c -> a",
        ),
        (
            BackgroundKnowledge(required=(("b", "a"),), tiers=(("a",), ("b",))),
            "b -> a is required, and the tiers put a before b",
        ),
    ]
    for told, words in cases:
        for ask in (
            lambda told: pc(table, 100, knowledge=told, names=("a", "b", "c")),
            lambda told: discover(table, 100, knowledge=told, names=("a", "b", "c")),
            lambda told: edge_probabilities(
                table[None], 100, knowledge=told, names=("a", "b", "c")
            ),
        ):
            with pytest.raises(ValueError, match=words):
                ask(told)
    with pytest.raises(ValueError, match="knowledge must be BackgroundKnowledge"):
        pc(table, 100, knowledge={"required": []})  # type: ignore[arg-type]
    told = BackgroundKnowledge(required=((0, 2), (1, 2)))
    with pytest.raises(ValueError, match="max_parents = 1"):
        discover(table, 100, search=ExactSearch(max_parents=1), knowledge=told)
