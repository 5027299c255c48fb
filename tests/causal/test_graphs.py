"""Graphs of arrows and lines against all DAGs with few nodes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.small_graphs import (
    d_separated,
    markov_equivalent,
    meek,
    mutual_information,
    random_dag,
)

from inference.causal import compare_graphs, cpdag_of, dag_of_edges, edge_probabilities
from inference.causal.edges import all_classes, all_dags
from inference.causal.graphs import (
    Cpdag,
    consistent_extension,
    shd,
    topological_order,
    v_structures,
)
from inference.causal.pdags import matrix_of_columns
from inference.causal.tables import dag_table


def dag_matrices(num_attributes: int) -> np.ndarray:
    return np.stack(
        [matrix_of_columns(int(mask) for mask in row) for row in all_dags(num_attributes)]
    )


@pytest.mark.parametrize(
    ("size", "num_dags", "num_classes"),
    [(1, 1, 1), (2, 3, 2), (3, 25, 11), (4, 543, 185), (5, 29281, 8782)],
)
def test_counts_of_dags_and_classes(size: int, num_dags: int, num_classes: int) -> None:
    """Robinson's numbers, and those of Gillispie and Perlman (2002)."""
    assert len(all_dags(size)) == num_dags
    classes = all_classes(size)
    assert (
        len(classes.size) == len({matrix.tobytes() for matrix in classes.matrices}) == num_classes
    )
    assert int(classes.size.sum()) == num_dags


@pytest.mark.parametrize("size", [3, 4])
def test_a_cpdag_is_the_union_of_its_class(size: int) -> None:
    """An arrow where all DAGs of the class agree, a line where two do not: the definition, over
    every DAG.
    """
    dags, classes = dag_matrices(size), all_classes(size)
    for own in range(len(classes.size)):
        members = dags[classes.of_dag == own]
        union = members.any(0)
        assert np.array_equal(union, classes.matrices[own])
        for dag in members:
            assert np.array_equal(cpdag_of(dag).matrix, union)
        extension = consistent_extension(union)
        assert any(np.array_equal(extension, dag) for dag in members)
        assert np.array_equal(meek(union), union)


def test_equivalence_is_equal_independences() -> None:
    """Over all pairs of DAGs on three nodes: the same d-separations if and only if the same
    skeleton and v-structures.
    """
    dags = dag_matrices(3)

    def independences(dag: np.ndarray) -> frozenset:
        return frozenset(
            (i, j, given)
            for i, j in itertools.combinations(range(3), 2)
            for given in ((), tuple({0, 1, 2} - {i, j}))
            if d_separated(dag, i, j, given)
        )

    sets = [independences(dag) for dag in dags]
    for (one, ours), (two, theirs) in itertools.product(zip(dags, sets, strict=True), repeat=2):
        assert (
            markov_equivalent(one, two)
            == (ours == theirs)
            == (shd(cpdag_of(one), cpdag_of(two)) == 0)
        )


def test_d_separation_is_independence_in_tables() -> None:
    """A random table of a DAG has the independences that the graph says, and no others."""
    rng = np.random.default_rng(3)
    for _ in range(6):
        dag = random_dag(5, rng)
        table = dag_table(
            dag, [rng.uniform(0.1, 0.9, (2,) * int(dag[:, k].sum())) for k in range(5)]
        )
        for i, j in itertools.combinations(range(5), 2):
            rest = [k for k in range(5) if k not in (i, j)]
            for size in range(4):
                for given in itertools.combinations(rest, size):
                    assert d_separated(dag, i, j, given) == (
                        mutual_information(table, i, j, given) < 1e-9
                    )


def test_meeks_rules_one_by_one() -> None:
    """Each on its own smallest graph; rule 4 needs an arrow that no v-structure gives."""

    def graph(size: int, arrows: list[tuple[int, int]], lines: list[tuple[int, int]]) -> np.ndarray:
        matrix = np.zeros((size, size), dtype=bool)
        for i, j in arrows:
            matrix[i, j] = True
        for i, j in lines:
            matrix[i, j] = matrix[j, i] = True
        return matrix

    assert np.array_equal(meek(graph(3, [(0, 1)], [(1, 2)])), graph(3, [(0, 1), (1, 2)], []))
    assert np.array_equal(
        meek(graph(3, [(0, 1), (1, 2)], [(0, 2)])), graph(3, [(0, 1), (1, 2), (0, 2)], [])
    )
    third = graph(4, [(1, 3), (2, 3)], [(0, 1), (0, 2), (0, 3)])
    assert np.array_equal(meek(third), graph(4, [(1, 3), (2, 3), (0, 3)], [(0, 1), (0, 2)]))
    fourth = graph(4, [(1, 2), (2, 3)], [(0, 1), (0, 2), (0, 3)])  # a=0, d=1, c=2, b=3
    closed = meek(fourth)
    assert closed[0, 3]
    assert not closed[3, 0]


def test_structure_of_a_graph() -> None:
    dag = dag_of_edges(4, [(0, 2), (1, 2), (2, 3)])
    assert v_structures(dag) == ((0, 2, 1),)
    assert topological_order(dag) == (0, 1, 2, 3)
    cpdag = cpdag_of(dag, names=("a", "b", "c", "d"))
    assert cpdag.arrows == ((0, 2), (1, 2), (2, 3))
    assert cpdag.lines == ()
    assert cpdag.text() == "a → c\nb → c\nc → d"
    assert cpdag == Cpdag(dag, ("a", "b", "c", "d"))
    assert len({cpdag, Cpdag(dag, ("a", "b", "c", "d"))}) == 1
    assert cpdag_of(np.zeros((2, 2))).text() == "no edges"


def test_distances() -> None:
    truth = cpdag_of(dag_of_edges(4, [(0, 2), (1, 2), (2, 3)]))
    chain = cpdag_of(dag_of_edges(4, [(0, 2), (2, 3)]))  # one edge lost, two without direction
    assert shd(truth, chain) == shd(chain, truth) == 3
    assert shd(truth, truth) == 0
    found = compare_graphs(chain, truth)
    assert (found.exact, found.shd, found.precision, found.recall, found.orientation_errors) == (
        False,
        3,
        1.0,
        2 / 3,
        2,
    )
    assert shd(dag_of_edges(2, [(0, 1)]), dag_of_edges(2, [(1, 0)])) == 1
    empty = compare_graphs(np.zeros((3, 3)), np.zeros((3, 3)))
    assert empty.exact
    assert np.isnan(empty.precision)
    assert np.isnan(empty.recall)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_other_numbers_of_the_attributes_give_the_same_class(order: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    place = list(order)
    for _ in range(5):
        dag = random_dag(4, rng)
        assert np.array_equal(
            cpdag_of(dag[np.ix_(place, place)]).matrix, cpdag_of(dag).matrix[np.ix_(place, place)]
        )


def test_graphs_with_the_same_names_in_other_orders_are_compared_by_names() -> None:
    one = cpdag_of(dag_of_edges(3, [(0, 2), (1, 2)]), list("abc"))
    same = cpdag_of(dag_of_edges(3, [(2, 0), (1, 0)]), list("cba"))
    assert shd(one, same) == shd(same, one) == 0
    assert compare_graphs(one, same).exact
    assert shd(one, cpdag_of(dag_of_edges(3, [(0, 2), (1, 2)]), list("cba"))) == 3
    assert shd(one, cpdag_of(dag_of_edges(3, [(0, 2), (1, 2)]), list("xyz"))) == 0
    table = np.random.default_rng(0).dirichlet(np.ones(8))
    chances = edge_probabilities(table[None], 200, names=list("abc"))
    modal = chances.modal
    turned = Cpdag(modal.matrix[::-1, ::-1].copy(), modal.names[::-1])
    assert chances.of(turned) == chances.of(modal) == chances.classes[0][1]


def test_bad_graphs() -> None:
    circle = np.zeros((4, 4))
    circle[1, 2] = circle[2, 3] = circle[3, 1] = circle[0, 1] = 1
    with pytest.raises(ValueError, match="must have no circle of arrows, got 1 -> 2 -> 3 -> 1"):
        cpdag_of(circle)
    with pytest.raises(ValueError, match="got b -> c -> d -> b"):
        cpdag_of(circle, names=("a", "b", "c", "d"))
    with pytest.raises(ValueError, match="got 0 -> 1 -> 0"):
        dag_of_edges(2, [(0, 1), (1, 0)])
    with pytest.raises(ValueError, match="edges must join attributes 0 to 1"):
        dag_of_edges(2, [(0, 2)])
    with pytest.raises(ValueError, match="square matrix"):
        cpdag_of(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="only 0 and 1"):
        shd(np.full((2, 2), 0.5), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="joins attribute 1 to itself"):
        cpdag_of(np.diag([0, 1]))
    with pytest.raises(ValueError, match="same attributes"):
        shd(np.zeros((2, 2)), np.zeros((3, 3)))
    with pytest.raises(ValueError, match="2 different names"):
        cpdag_of(np.zeros((2, 2)), names=("a", "a"))
    square = np.zeros((4, 4), dtype=bool)  # four lines in a ring: every DAG of it has a v-structure
    for i in range(4):
        square[i, (i + 1) % 4] = square[(i + 1) % 4, i] = True
    with pytest.raises(ValueError, match="no DAG has"):
        consistent_extension(square)
    with pytest.raises(ValueError, match="at most 5 attributes"):
        all_dags(6)
