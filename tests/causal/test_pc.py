"""The PC algorithm on exact and on sampled tables."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from support.small_graphs import (
    REFERENCES,
    STRUCTURES,
    d_separated,
    markov_equivalent,
    mutual_information,
    random_dag,
    random_table,
    structure,
)

from inference.causal import cpdag_of, dag_of_edges, pc
from inference.causal.edges import all_dags
from inference.causal.independence import Dependence
from inference.causal.pdags import matrix_of_columns, members
from inference.causal.tables import dag_table


def test_the_class_of_a_faithful_table() -> None:
    """Exact tables, independences told from dependences by a cutoff that no faithful dependence of
    these is below.
    """
    rng = np.random.default_rng(0)
    found = 0
    for size in (3, 4, 5, 6):
        for _ in range(15):
            dag = random_dag(size, rng)
            table = random_table(dag, rng)
            result = pc(table, 1000, level=None, cutoff=1e-10)
            found += np.array_equal(result.graph.matrix, cpdag_of(dag).matrix)
            assert result.is_class
            assert result.conflicts == ()
            for test in result.independences:
                assert d_separated(dag, test.first, test.second, test.given)
    assert found == 60


@pytest.mark.parametrize("name", STRUCTURES)
def test_exact_tables_of_the_manuscript(name: str) -> None:
    dag, table = structure(name)
    result = pc(table, 5000)
    assert np.array_equal(result.graph.matrix, cpdag_of(dag).matrix)
    assert result.is_class
    assert "PC with tests at level 0.05" in result.text()


@pytest.mark.parametrize("name", STRUCTURES)
def test_rows_that_a_cutoff_needs(name: str) -> None:
    """The exact table keeps all edges from the number of rows on that the reference derives from
    the weakest information.
    """
    dag, table = structure(name)
    need = REFERENCES["own_information"]["num_rows_for_cutoff_N_pow_minus_1_over_2.01"][name]
    for rows, right in ((0.9 * need, False), (1.1 * need, True)):
        found = pc(table, rows, level=None, cutoff=rows ** (-1 / 2.01)).graph.matrix
        assert np.array_equal(found | found.T, dag | dag.T) == right


def test_rows_that_the_test_needs() -> None:
    """Structure 2: its weakest edge passes the test, not the manuscript's cutoff, at 1,531 rows."""
    dag, table = structure("2")
    need = REFERENCES["own_information"]["num_rows_mean_chi2_over_3.84"]["2"]
    weakest = REFERENCES["own_information"]["weakest_information_needed_nats"]["2"]
    assert mutual_information(table, 2, 4) == pytest.approx(weakest, abs=5e-7)
    for rows, right in ((0.98 * need, False), (1.02 * need, True)):
        assert np.array_equal(pc(table, rows).graph.matrix, cpdag_of(dag).matrix) == right


def test_the_printed_cutoff_takes_hardly_anything_away() -> None:
    """1 / N^2.01 lies below nearly every sampling error: of ten pairs with four true edges at most
    two go.
    """
    _, table = structure("1")
    rng = np.random.default_rng(1)
    shares = rng.multinomial(2000, table) / 2000
    result = pc(shares, 2000, level=None, cutoff=2000**-2.01)
    assert (result.graph.matrix | result.graph.matrix.T).sum() >= 16


def test_the_order_of_attributes_does_not_matter() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        dag = random_dag(5, rng)
        shares = rng.multinomial(300, random_table(dag, rng)) / 300
        order = rng.permutation(5)
        plain = pc(shares, 300)
        moved = pc(shares.reshape((2,) * 5).transpose(order).reshape(-1), 300)
        assert np.array_equal(moved.graph.matrix, plain.graph.matrix[np.ix_(order, order)])
        assert len(moved.conflicts) == len(plain.conflicts)


def test_level_of_the_tests() -> None:
    """Independent attributes, sampled: each of the three pairs keeps an edge as often as the level
    says, at most.
    """
    rng = np.random.default_rng(3)
    kept = 0
    for _ in range(400):
        result = pc(rng.multinomial(500, np.full(8, 0.125)) / 500, 500, level=0.1)
        kept += int(np.triu(result.graph.matrix | result.graph.matrix.T).sum())
    assert 60 < kept <= 150  # 120 expected if sets of one did not test again


def test_contradictions_are_told() -> None:
    """Disputed edges are lines, before and after Meek's rules, which pointed 42 of 115 of them
    again; no collider that is disputed points anywhere.
    """
    num_disputed = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        shares = rng.multinomial(300, random_table(random_dag(5, rng), rng)) / 300
        disputed = pc(shares, 300)
        for conflict in disputed.conflicts:
            a, b = conflict.edge
            assert disputed.graph.matrix[a, b] and disputed.graph.matrix[b, a], f"seed {seed}"  # noqa: PT018
            assert disputed.open_lines[a, b], f"seed {seed}"
            assert {conflict.first[1], conflict.second[1]} == {a, b}
            undecided = {found.triple for found in disputed.ambiguous}
            assert {conflict.first, conflict.second} <= undecided & {*disputed.colliders}
            num_disputed += 1
        if disputed.conflicts:
            assert not disputed.is_class
            assert "is disputed" in disputed.text()
            assert "No graph of causes has exactly these independences" in disputed.text()
    assert num_disputed > 0


def test_exact_independences_give_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the independences of a DAG, as NetworkX has them, the CPDAG on which all DAGs of the
    class agree, by enumeration.
    """
    networkx = pytest.importorskip("networkx", "3.3")
    rng = np.random.default_rng(20)
    arrows = {
        size: [matrix_of_columns(int(mask) for mask in row) for row in all_dags(size)]
        for size in (3, 4)
    }
    for size in [3] * 10 + [4] * 30 + [6] * 10 + [8] * 5:
        dag = random_dag(size, rng)
        drawn = networkx.DiGraph(dag)

        def exact(
            _: object, __: float, first: int, second: int, given: int = 0, drawn: Any = drawn
        ) -> Dependence:
            apart = networkx.is_d_separator(drawn, {first}, {second}, {*members(given)})
            return Dependence(
                first,
                second,
                tuple(members(given)),
                *(4 * [0.0 if apart else 1.0]),
                1,
                float(apart),
            )

        monkeypatch.setattr(sys.modules["inference.causal.pc"], "dependence", exact)
        result = pc(np.full(2**size, 0.5**size), 100)
        if size in arrows:
            alike = [other for other in arrows[size] if markov_equivalent(other, dag)]
            expected = np.any(
                alike, 0
            )  # i -> j in some DAG of the class: with the other way a line
        else:
            expected = cpdag_of(dag).matrix
        np.testing.assert_array_equal(result.graph.matrix, expected)
        assert result.is_class
        assert result.ambiguous == result.conflicts == ()


def test_ambiguous_triples_point_at_nothing() -> None:
    """0 -> 1 <- 3 and 1 -> 2, where 2 looks independent of 0 and of 3 with 1 and without: Meek's
    rule takes no arrow from either triple.
    """
    dag = dag_of_edges(4, [(0, 1), (1, 2), (3, 1)])
    table = dag_table(dag, [0.5, [[0.2, 0.5], [0.5, 0.8]], [0.45, 0.55], 0.5])
    assert np.array_equal(pc(table, 100_000).graph.matrix, cpdag_of(dag).matrix)
    result = pc(table, 2000)
    assert result.graph.arrows == ((0, 1), (3, 1))
    assert result.graph.lines == ((1, 2),)
    assert [found.triple for found in result.ambiguous] == [(0, 1, 2), (2, 1, 3)]
    assert [found.share for found in result.ambiguous] == [0.5, 0.5]
    assert all(found.p_without > 0.05 and found.p_within > 0.05 for found in result.ambiguous)
    assert result.open_lines[1, 2]
    assert "Whether A1 and A3 both point at A2 is undecided: 50% of the sets" in result.text()
    assert "A2 — A3 (the direction is left open)" in result.text()


@pytest.mark.parametrize("orientation", ["majority", "conservative", "max", "standard"])
def test_every_rule_gives_the_class_of_exact_independences(orientation: Any) -> None:
    rng = np.random.default_rng(5)
    for size in (4, 5):
        for _ in range(10):
            dag = random_dag(size, rng)
            result = pc(
                random_table(dag, rng), 1e3, level=None, cutoff=1e-10, orientation=orientation
            )
            assert np.array_equal(result.graph.matrix, cpdag_of(dag).matrix)
            assert result.ambiguous == ()


def test_weak_chain_stays_undirected() -> None:
    """Chain of four, P(1 | parent) = .65 and .4, 2,000 rows, 120 samples: the class is right in
    at least 95 %, and no arrow is drawn where nothing decides, in as many. The rule that the first
    separating set decides is right in half.
    """
    dag = dag_of_edges(4, [(0, 1), (1, 2), (2, 3)])
    table = dag_table(dag, [0.5, [0.4, 0.65], [0.4, 0.65], [0.4, 0.65]])
    right, clean, standard = 0, 0, 0
    for seed in range(120):
        shares = np.random.default_rng([seed, 44]).multinomial(2000, table) / 2000
        graph = pc(shares, 2000, level=0.01).graph
        right += np.array_equal(graph.matrix, cpdag_of(dag).matrix)
        clean += not graph.arrows
        plain = pc(shares, 2000, level=0.01, orientation="standard").graph
        standard += np.array_equal(plain.matrix, cpdag_of(dag).matrix)
    assert right >= 114
    assert clean >= 114
    assert standard < 90


def test_small_conditioning_sets() -> None:
    _, table = structure("3")
    result = pc(table, 1e6, max_given=0)
    assert all(test.given == () for test in result.independences)


def test_bad_input() -> None:
    table = np.full(8, 0.125)
    for settings in ({"level": None}, {"cutoff": 0.1}):
        with pytest.raises(ValueError, match="give a level or a cutoff"):
            pc(table, 100, **settings)
    with pytest.raises(ValueError, match=r"level must lie in \(0, 1\)"):
        pc(table, 100, level=1.0)
    with pytest.raises(ValueError, match="cutoff must be"):
        pc(table, 100, level=None, cutoff=-1.0)
    with pytest.raises(ValueError, match="num_rows must be a number of at least 1"):
        pc(table, 0)
    with pytest.raises(ValueError, match="max_given"):
        pc(table, 100, max_given=-1)
    with pytest.raises(ValueError, match="orientation must be one of majority"):
        pc(table, 100, orientation="plain")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 different names"):
        pc(table, 100, names=("a",))
