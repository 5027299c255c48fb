"""Reports on a graph: what stands, what is left open, and how probable it is."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import xlogy
from support.small_graphs import REFERENCES, STRUCTURES, random_table, score_of, structure

from inference.causal import (
    BIC,
    GES,
    BDeu,
    ExactSearch,
    cpdag_of,
    dag_of_edges,
    discover,
    edge_probabilities,
)
from inference.causal.edges import _class_shares, _Orders, all_classes, all_dags, likely_classes
from inference.causal.pdags import matrix_of_columns
from inference.causal.rows import dirichlet_tables
from inference.causal.scores import all_set_scores
from inference.causal.tables import dag_table


@pytest.mark.parametrize("name", STRUCTURES)
def test_the_true_tables(name: str) -> None:
    """At 50,000 rows everything is firm, and the answer is the truth."""
    dag, table = structure(name)
    truth = cpdag_of(dag)
    report = discover(table, 50_000)
    assert report.graph == report.firm == truth
    assert report.doubts == ()
    assert report.complete
    assert report.optimal
    assert "the best of all graphs" in report.text()
    assert report.probabilities is not None
    assert report.probabilities.modal == truth
    assert not report.open_arrows.any()
    assert "stands well clear of zero" in report.text()
    assert "hidden common cause" in report.text()


def test_the_tie_of_the_counter_example_is_told() -> None:
    """Both graphs have probability one half; no arrow is drawn, and what differs is said to be
    open.
    """
    dag, table = structure("2", REFERENCES["counter_example"]["change"])
    report = discover(table, 1e6)
    (tie,) = report.ties
    assert cpdag_of(dag) in (report.graph, tie)
    assert report.probabilities is not None
    assert report.probabilities.arrow[3, 4] == pytest.approx(0.5, abs=0.01)
    assert report.probabilities.adjacent[2, 4] == pytest.approx(0.5, abs=0.01)
    assert report.firm.arrows == ()
    assert report.firm.lines == ((0, 1), (3, 4))
    words = report.text()
    assert "Another graph fits exactly as well" in words
    assert "→ A4:" not in words
    assert "→ A5:" not in words
    assert [edge.pair for edge in report.nearly_unfaithful] in ([(2, 4)], [(2, 3)])
    assert "nearly unfaithful" in words


def test_few_rows_leave_the_direction_open() -> None:
    """Structure 2 at 500 rows: 3 and 5 look independent, so 3 -> 5 <- 4 is not drawn with heads."""
    _, table = structure("2")
    report = discover(table, 500, names=("a", "b", "c", "d", "e"))
    assert report.graph.arrows == ((2, 4), (3, 4))
    assert report.open_arrows[2, 4]
    assert report.firm.arrows == ()
    assert "c — e: dependence given d" in report.text()
    assert "the direction is left open" in report.text()


def test_a_collider_near_zero_draws_no_arrow() -> None:
    """Six attributes, so that only the strengths speak: a common effect whose causes hardly depend
    on each other given it.
    """
    dag = dag_of_edges(6, [(0, 2), (1, 2), (2, 3)])
    chances = [np.array(0.5)] * 6
    chances[2], chances[3] = np.array([[0.35, 0.5], [0.5, 0.75]]), np.array([0.2, 0.8])
    table = dag_table(dag, chances)
    report = discover(table, 2000, search=GES())
    assert report.graph == cpdag_of(dag)
    (triple,) = [triple for triple in report.triples if triple.triple == (0, 2, 1)]
    assert triple.is_collider
    assert triple.near_zero
    assert report.firm.arrows == ()
    assert report.firm.lines == ((0, 2), (1, 2), (2, 3))
    assert "That A1 and A2 both point at A3 rests on" in report.text()
    assert "the best graph that the search met" in report.text()
    many = discover(table, 8000, search=GES())
    assert many.graph == many.firm == cpdag_of(dag)
    assert not any("rests on" in doubt for doubt in many.doubts)


def test_a_collider_that_the_score_did_not_pay_for() -> None:
    """A table that would rather have a common effect than the chain that scores best."""
    dag = dag_of_edges(6, [(0, 2), (1, 2)])
    chances = [np.array(0.5)] * 6
    chances[2] = np.array([[0.35, 0.5], [0.5, 0.7]])
    report = discover(dag_table(dag, chances), 5000, score=BDeu(), search=GES())
    assert report.graph.lines == ((0, 2), (1, 2))
    assert any(
        "That A3 is no common effect of A1 and A2 rests on" in doubt for doubt in report.doubts
    )


@dataclass(frozen=True)
class Lax:
    """A user's score that asks a fifth of a nat for a probability."""

    def of_set(self, counts: np.ndarray, size: int, num_rows: float) -> np.ndarray:
        return xlogy(counts, counts).sum(-1) - 0.2 * (2**size - 1)


def test_an_edge_that_may_not_be_there() -> None:
    """A score that asks for little keeps an edge that a test cannot tell from none."""
    report = discover([0.26, 0.24, 0.24, 0.26], 500, score=Lax())
    assert report.graph.lines == ((0, 1),)
    assert report.open_edges[0, 1]
    assert "may not be there" in report.text()
    assert report.firm.lines == ()
    nothing = discover(np.full(8, 0.125), 500)
    assert "No two attributes are joined" in nothing.text()


def test_what_the_score_passed_over_is_told() -> None:
    """A dependence that a test at 5 % sees and BIC does not pay for."""
    table = np.array([0.27, 0.23, 0.23, 0.27])
    report = discover(table, 1000, score=BIC())
    assert report.edges == ()
    (claim,) = report.independences
    assert claim.strained
    assert "but the table of profiles shows a dependence" in report.text()


def test_probabilities_sum_over_all_graphs() -> None:
    """Against the sum over all 543 DAGs on four attributes, each class weighing the same."""
    rng = np.random.default_rng(0)
    tables = rng.dirichlet(np.full(16, 2.0), 2)
    found = edge_probabilities(tables, 80.0)
    dags = [matrix_of_columns(int(mask) for mask in row) for row in all_dags(4)]
    graphs = [cpdag_of(dag) for dag in dags]
    arrow, line = np.zeros((4, 4)), np.zeros((4, 4))
    for table in tables:
        weights = np.array(
            [
                np.exp(score_of(dag, table, 80.0)) / graphs.count(graph)
                for dag, graph in zip(dags, graphs, strict=True)
            ]
        )
        weights /= weights.sum()
        for weight, graph in zip(weights, graphs, strict=True):
            arrow += weight * (graph.matrix & ~graph.matrix.T) / 2
            line += weight * (graph.matrix & graph.matrix.T) / 2
    np.testing.assert_allclose(found.arrow, arrow, atol=1e-10)
    np.testing.assert_allclose(found.line, line, atol=1e-10)
    np.testing.assert_allclose(found.adjacent, arrow + arrow.T + line, atol=1e-10)
    assert found.averaged
    assert found.num_tables == 2
    shares = [share for _, share in found.classes]
    assert shares == sorted(shares, reverse=True)


def test_probabilities_are_calibrated() -> None:
    """Graphs, tables and rows drawn from the very prior: of edges and arrows said to have some
    probability, that share is there.
    """
    rng = np.random.default_rng(5)
    classes = all_classes(3)
    said: dict[str, list[np.ndarray]] = {"adjacent": [], "arrow": []}
    true: dict[str, list[np.ndarray]] = {"adjacent": [], "arrow": []}
    off = ~np.eye(3, dtype=bool)
    for _ in range(1500):
        own = int(rng.integers(len(classes.size)))
        dag, graph = (
            matrix_of_columns(int(mask) for mask in classes.member[own]),
            classes.matrices[own],
        )
        sizes = [2 ** int(dag[:, k].sum()) for k in range(3)]
        chances = [
            rng.beta(0.5 / q, 0.5 / q, q).reshape((2,) * (q.bit_length() - 1)) for q in sizes
        ]
        shares = rng.multinomial(60, dag_table(dag, chances)) / 60
        found = edge_probabilities(shares[None], 60)
        for name, truth in (("adjacent", graph | graph.T), ("arrow", graph & ~graph.T)):
            said[name].append(getattr(found, name)[off])
            true[name].append(truth[off])
    for name in said:
        chance, there = np.concatenate(said[name]), np.concatenate(true[name])
        for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 0.9), (0.9, 1.01)):
            inside = (chance >= low) & (chance < high)
            error = (
                np.sqrt(2 * (chance[inside] * (1 - chance[inside])).sum()) / inside.sum()
            )  # pairs come twice
            assert abs(there[inside].mean() - chance[inside].mean()) < 4 * error + 0.002


def test_probabilities_of_best_graphs() -> None:
    """Without averaging: how often each class is the best of a draw; from six attributes on that is
    all there is.
    """
    dag, table = structure("3")
    draws = dirichlet_tables(table, 400, 60, seed=1)
    found = edge_probabilities(draws, 200, average=False)
    best = []
    for draw in draws:
        best.append(discover(draw, 200, search=ExactSearch()).graph)
    assert found.modal == max(set(best), key=best.count)
    np.testing.assert_allclose(
        found.adjacent, np.mean([graph.matrix | graph.matrix.T for graph in best], 0)
    )
    assert not found.averaged
    six = np.zeros((6, 6), dtype=bool)
    six[:5, :5] = dag
    wide = random_table(six, np.random.default_rng(2))
    report = discover(wide, 5000, draws=dirichlet_tables(wide, 5000, 20), draw_rows=2500)
    assert report.probabilities is not None
    assert report.probabilities.num_rows == 2500
    chain = dag_of_edges(13, [(k, k + 1) for k in range(12)])
    long = random_table(chain, np.random.default_rng(3), 0.2, 0.8)
    assert discover(long, 5000).probabilities is None
    single = edge_probabilities(long[None], 5000)
    assert not single.averaged
    assert "these are no probabilities" in single.text()


@pytest.mark.parametrize("num_rows", [100, 1000])
def test_likely_graphs_stand_for_all(num_rows: int) -> None:
    """What draws of DAGs find on five attributes against the sum over all 8,782 classes."""
    rng, classes = np.random.default_rng(4), all_classes(5)
    tables = rng.multinomial(num_rows, structure("2")[1], 2) / num_rows
    sets = all_set_scores(tables, num_rows, BDeu())
    likely, missed = likely_classes(sets, np.random.default_rng(0))
    graphs = np.stack([graph.matrix for graph in likely])
    for graph, parents in likely.items():
        assert np.array_equal(cpdag_of(matrix_of_columns(parents)).matrix, graph.matrix)
    ours = np.tensordot(_class_shares(sets, np.array(list(likely.values()))), graphs, 1)
    shares = _class_shares(sets, classes.member)
    np.testing.assert_allclose(ours, np.tensordot(shares, classes.matrices, 1), atol=0.03)
    known = {graph.tobytes() for graph in graphs}
    left = sum(
        share
        for share, matrix in zip(shares, classes.matrices, strict=True)
        if matrix.tobytes() not in known
    )
    assert left < 0.1
    assert missed / 5 < left < 5 * missed


def test_draws_of_graphs_have_their_distribution() -> None:
    """Three attributes: shares of DAGs among 20,000 draws are exp(score) times the number of orders
    that agree.
    """
    rng = np.random.default_rng(6)
    sets = all_set_scores(rng.dirichlet(np.ones(8), 1), 10.0, BDeu())
    orders, counts = _Orders(sets), {}
    for _ in range(20_000):
        parents = orders.draw(0, rng)
        counts[parents] = counts.get(parents, 0) + 1
    expected = {}
    for row in all_dags(3):
        parents = tuple(int(mask) for mask in row)
        agree = sum(
            all(
                not parents[k] & ~sum(1 << j for j in order[:place])
                for place, k in enumerate(order)
            )
            for order in itertools.permutations(range(3))
        )
        expected[parents] = agree * np.exp(
            sum(sets[0, mask | 1 << k] - sets[0, mask] for k, mask in enumerate(parents))
        )
    total = sum(expected.values())
    for parents, weight in expected.items():
        share = weight / total
        assert (
            abs(counts.get(parents, 0) / 20_000 - share)
            < 4.5 * np.sqrt(share * (1 - share) / 20_000) + 1e-4
        )


def test_six_attributes_have_probabilities_too() -> None:
    """A sixth attribute that knows nothing of the others changes little: the rival graphs of
    structure 2 are still told.
    """
    shares = np.random.default_rng(7).multinomial(700, structure("2")[1]) / 700
    five = discover(shares, 700).probabilities
    six = discover(np.kron(shares, [0.5, 0.5]), 700).probabilities
    assert five is not None
    assert six is not None
    assert six.averaged
    assert 0 < six.missed < 0.05
    np.testing.assert_allclose(six.adjacent[:5, :5], five.adjacent, atol=0.06)
    assert 0.02 < five.adjacent[2, 4] < 0.98
    assert six.adjacent[5].max() < 0.1
    again = edge_probabilities(np.kron(shares, [0.5, 0.5])[None], 700, seed=1)
    np.testing.assert_allclose(again.arrow, six.arrow, atol=0.02)


def test_draws_around_an_estimate_find_more_than_there_is() -> None:
    """Why a draw is worth half: absent edges are more probable over draws at n than given the
    table, and less so at n / 2.
    """
    dag, table = structure("3")
    rng = np.random.default_rng(3)
    absent = np.triu(~(dag | dag.T), 1)
    means = np.zeros(3)
    for seed in range(8):
        shares = rng.multinomial(1000, table) / 1000
        draws = dirichlet_tables(shares, 1000, 40, seed=seed)
        ways = ((shares[None], 1000), (draws, 1000), (draws, 500))
        means += [edge_probabilities(tables, rows).adjacent[absent].mean() for tables, rows in ways]
    assert means[0] < means[2] < means[1]


def test_words_of_probabilities() -> None:
    _, table = structure("2")
    found = edge_probabilities(table[None], 20_000, names=tuple("abcde"))
    words = found.text()
    assert "Probabilities over all graphs, one table worth 20,000 rows:" in words
    assert "d, e: joined" in words
    assert "below 0.01" in words
    assert found.median.names == tuple("abcde")
    matrix = found.median.matrix
    np.testing.assert_array_equal(matrix | matrix.T, found.adjacent > 0.5)


def test_other_orders_of_attributes() -> None:
    dag, table = structure("2")
    order = np.array([3, 0, 4, 2, 1])
    plain, moved = discover(table, 800), discover(table.reshape((2,) * 5).transpose(order), 800)
    np.testing.assert_array_equal(moved.graph.matrix, plain.graph.matrix[np.ix_(order, order)])
    np.testing.assert_array_equal(moved.open_arrows, plain.open_arrows[np.ix_(order, order)])
    assert plain.probabilities is not None
    assert moved.probabilities is not None
    np.testing.assert_allclose(
        moved.probabilities.arrow, plain.probabilities.arrow[np.ix_(order, order)], atol=1e-9
    )


def test_bad_input() -> None:
    table = np.full(8, 0.125)
    with pytest.raises(ValueError, match=r"level must lie in \(0, 1\), got 2"):
        discover(table, 100, level=2)
    with pytest.raises(ValueError, match="confidence must lie in"):
        discover(table, 100, confidence=0.0)
    with pytest.raises(ValueError, match="num_rows must be a number of at least 1"):
        discover(table, -5)
    with pytest.raises(ValueError, match="names must be 3 different names"):
        discover(table, 100, names=("a", "b"))
    with pytest.raises(ValueError, match="names must be 2 different names, got"):
        discover(table, 100, draws=np.full((3, 4), 0.25))
    with pytest.raises(ValueError, match="average=True needs at most 12 attributes, got 13"):
        edge_probabilities(np.full((1, 8192), 1 / 8192), 100, average=True)
    with pytest.raises(ValueError, match="average must be True or False"):
        edge_probabilities(table[None], 100, average=1)  # type: ignore[arg-type]
