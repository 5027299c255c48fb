"""Greedy and exact search against all DAGs, and what they find in exact tables."""

from __future__ import annotations

import numpy as np
import pytest
from support.small_graphs import REFERENCES, STRUCTURES, random_dag, random_table, structure

from inference.causal import BIC, GES, BDeu, ExactSearch, cpdag_of
from inference.causal.edges import all_classes, all_dags
from inference.causal.ges import deletions, insertions, turnings
from inference.causal.graphs import pdag_of
from inference.causal.pdags import class_of
from inference.causal.scores import SetScores


@pytest.mark.parametrize(
    "phase", [insertions, deletions, turnings], ids=lambda phase: phase.__name__
)
def test_operators_reach_what_one_edge_reaches(phase: object) -> None:
    """From each of the 185 classes on four nodes: exactly the classes that some member reaches by
    one edge, with the gain in score.
    """
    scores = SetScores(np.random.default_rng(0).dirichlet(np.ones(16)), 300.0, BDeu())
    dags, classes = all_dags(4), all_classes(4)
    place = {tuple(row): k for k, row in enumerate(dags.tolist())}
    graphs = [class_of([int(mask) for mask in row]) for row in classes.member]
    number = {graph: k for k, graph in enumerate(graphs)}
    totals = [scores.total([int(mask) for mask in row]) for row in classes.member]

    def changed(parents: list[int], i: int, j: int) -> list[int] | None:
        new = parents.copy()
        if phase is insertions and not (new[j] >> i | new[i] >> j) & 1:
            new[j] |= 1 << i
        elif phase is deletions and new[j] >> i & 1:
            new[j] ^= 1 << i
        elif phase is turnings and new[j] >> i & 1:
            new[j] ^= 1 << i
            new[i] |= 1 << j
        else:
            return None
        return new

    for own, graph in enumerate(graphs):
        wanted = set()
        for row in dags[classes.of_dag == own].tolist():
            for i in range(4):
                for j in range(4):
                    new = changed(row, i, j) if i != j else None
                    if new is not None and tuple(new) in place:
                        wanted.add(int(classes.of_dag[place[tuple(new)]]))
        reached = set()
        for step in phase(graph, scores, -np.inf):  # type: ignore[operator]
            other = number[step.graph()]
            reached.add(other)
            assert step.gain == pytest.approx(totals[other] - totals[own], abs=1e-8)
        assert reached == wanted - {own}


@pytest.mark.parametrize("score", [BIC(), BDeu()], ids=repr)
def test_exact_search_is_the_best_of_all_dags(score: BIC | BDeu) -> None:
    rng = np.random.default_rng(1)
    classes = all_classes(4)
    for _ in range(10):
        table, num_rows = rng.dirichlet(np.full(16, 0.5)), float(rng.choice([20, 300, 1000]))
        scores = SetScores(table, num_rows, score)
        totals = np.array([scores.total([int(mask) for mask in row]) for row in classes.member])
        found = ExactSearch().best(table, num_rows, score)
        assert found.score == pytest.approx(totals.max(), abs=1e-8)
        assert np.array_equal(found.graph.matrix, classes.matrices[totals.argmax()])
        assert found.complete
        assert found.ties == ()
        greedy = GES().best(table, num_rows, score)
        assert greedy.score <= found.score + 1e-8
        few = ExactSearch(max_parents=1).best(table, num_rows, score)
        largest = np.array([max(int(mask).bit_count() for mask in row) for row in all_dags(4)])
        allowed = np.array(
            [scores.total([int(mask) for mask in row]) for row in all_dags(4)[largest <= 1]]
        )
        assert few.score == pytest.approx(allowed.max(), abs=1e-8)
        assert (found.optimal, few.optimal, greedy.optimal) == (True, False, False)
    tables = rng.dirichlet(np.full(16, 0.5), 5)
    for search in (ExactSearch(), GES()):
        assert search.best_of_each(tables, 50.0, score) == [
            search.best(table, 50.0, score).graph for table in tables
        ]


def test_greedy_search_returns_the_class_of_a_faithful_table() -> None:
    """Consistency: many random DAGs of 3 to 6 nodes, their exact tables, rows enough."""
    rng = np.random.default_rng(2)
    for size in (3, 4, 5, 6):
        for _ in range(25):
            dag = random_dag(size, rng)
            table, truth = random_table(dag, rng), cpdag_of(dag).matrix
            for search in (GES(), GES(turning=False)):
                found = search.best(table, 1e8, BIC())
                assert np.array_equal(found.graph.matrix, truth)
            best = ExactSearch().best(table, 1e8, BIC())
            assert np.array_equal(best.graph.matrix, truth)
            assert best.score == pytest.approx(found.score, rel=1e-12)


@pytest.mark.parametrize("num_rows", REFERENCES["own_exact_table"]["num_rows"])
@pytest.mark.parametrize("name", STRUCTURES)
def test_exact_tables_of_the_manuscript(name: str, num_rows: int) -> None:
    dag, table = structure(name)
    truth = cpdag_of(dag).matrix
    for score in (BIC(), BDeu(), BDeu(edge_penalty=float(np.log(3)))):
        for search in (GES(), ExactSearch()):
            assert np.array_equal(search.best(table, num_rows, score).graph.matrix, truth)


def test_the_counter_example_is_a_tie() -> None:
    """Attributes 3 and 5 independent although 3 causes 5: two classes of one score, and both are
    told.
    """
    dag, table = structure("2", REFERENCES["counter_example"]["change"])
    other = np.zeros((5, 5), dtype=bool)
    for i, j in [(0, 1), (2, 3), (4, 3)]:
        other[i, j] = True
    wanted = {class_of(pdag_of(graph).parents) for graph in (dag, other)}
    found = ExactSearch().best(table, 1e6, BDeu())
    assert found.complete
    assert {found.graph, *found.ties} == wanted
    assert GES().best(table, 1e6, BDeu()).graph in wanted


def test_ties_that_one_step_leads_to() -> None:
    """A penalty chosen so that an edge is worth exactly nothing: with and without it score the
    same.
    """
    table = np.array([0.4, 0.1, 0.1, 0.4])
    with_edge, without = (SetScores(table, 100.0, BDeu()).local(1, parents) for parents in (1, 0))
    score = BDeu(edge_penalty=with_edge - without)
    for search in (ExactSearch(), GES()):
        found = search.best(table, 100.0, score)
        assert [sum(found.graph.neighbours), [sum(other.neighbours) for other in found.ties]] == [
            0,
            [3],
        ]


def test_permuting_attributes_permutes_the_graph() -> None:
    rng = np.random.default_rng(4)
    for _ in range(5):
        table = rng.dirichlet(np.full(32, 0.5))
        order = rng.permutation(5)
        moved = table.reshape((2,) * 5).transpose(order).reshape(-1)
        for search in (ExactSearch(), GES()):
            plain, other = (search.best(t, 200.0, BDeu()).graph.matrix for t in (table, moved))
            assert np.array_equal(other, plain[np.ix_(order, order)])


def test_many_attributes_with_few_parents() -> None:
    rng = np.random.default_rng(5)
    dag = np.zeros((12, 12), dtype=bool)
    dag[np.arange(11), np.arange(1, 12)] = True
    table = random_table(dag, rng, 0.2, 0.8)
    truth = cpdag_of(dag).matrix
    assert np.array_equal(GES().best(table, 1e7, BIC()).graph.matrix, truth)
    found = ExactSearch(max_parents=2).best(table, 1e7, BIC())
    assert np.array_equal(found.graph.matrix, truth)
    assert not found.complete
    assert not found.optimal  # of at most two parents only


def test_bad_searches() -> None:
    with pytest.raises(ValueError, match="turning must be True or False"):
        GES(turning=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_parents must be a non-negative integer"):
        ExactSearch(max_parents=-1)
