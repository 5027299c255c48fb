"""Graphs refitted to the rows."""

from __future__ import annotations

import numpy as np
import pytest
from support.small_graphs import score_of, structure

from inference.causal import BIC, compare_on_rows, cpdag_of, dag_of_edges
from inference.causal.edges import all_classes
from inference.causal.pdags import matrix_of_columns
from inference.causal.tables import profiles


def posterior_of(table: np.ndarray, likelihoods: np.ndarray) -> np.ndarray:
    joint = table * likelihoods
    return joint / joint.sum(1, keepdims=True)


def test_known_profiles_give_the_score_of_the_table() -> None:
    """BIC on the rows is -2 times the score, all 185 classes on four attributes against the
    complete graph.
    """
    rng = np.random.default_rng(0)
    chosen = rng.choice(16, 200, p=rng.dirichlet(np.ones(16)))
    counts = np.bincount(chosen, minlength=16)
    dags = [matrix_of_columns(int(mask) for mask in row) for row in all_classes(4).member]
    found = compare_on_rows(dags, np.eye(16)[chosen])
    complete = score_of(np.triu(np.ones((4, 4)), 1), counts / 200, 200, BIC())
    scores = {cpdag_of(dag): score_of(dag, counts / 200, 200, BIC()) for dag in dags}
    assert len(found.ranked) == 186
    for one in found.ranked:
        expected = 0.0 if one.graph is None else -2 * (scores[one.graph] - complete)
        assert one.bic == pytest.approx(expected, abs=1e-6)
    assert [one.bic for one in found.ranked] == sorted(one.bic for one in found.ranked)


def test_hidden_profiles() -> None:
    """Structure 3 behind noisy items: the true graph beats the free table, a chain that lacks an
    edge, and one that has too many; gains are the likelihoods of the answers, computed from the
    items.
    """
    dag, table = structure("3")
    rng, bits = np.random.default_rng(1), profiles(5)
    rows = bits[rng.choice(32, 3000, p=table)] + 0.4 * rng.standard_normal((3000, 5))
    distances = -0.5 * ((rows[:, None] - bits) ** 2).sum(-1) / 0.16
    likelihoods = np.exp(distances)
    best = table
    for _ in range(200):
        best = posterior_of(best, likelihoods).mean(0)
    lacking, many = dag.copy(), dag.copy()
    lacking[0, 1] = False
    many[2, 4] = True
    found = compare_on_rows(
        [lacking, dag, many, cpdag_of(dag)],
        posterior_of(best, likelihoods),
        best,
        names=tuple("abcde"),
    )
    assert len(found.ranked) == 4  # the DAG and its CPDAG are one
    assert found.best.graph == cpdag_of(dag, names=tuple("abcde"))
    by_size = {one.num_free: one.gain for one in found.ranked}
    assert by_size[31] == 0.0
    assert all(gain <= 1e-3 for gain in by_size.values())
    independent = compare_on_rows([np.zeros((5, 5))], posterior_of(best, likelihoods), best)
    chance = bits.T @ best  # EM of independent attributes, from their shares
    for _ in range(300):
        own = np.where(bits == 1, chance, 1 - chance).prod(1)
        chance = bits.T @ posterior_of(own, likelihoods).mean(0)
    own = np.where(bits == 1, chance, 1 - chance).prod(1)
    expected = (np.log(likelihoods @ own) - np.log(likelihoods @ best)).sum()
    (gain,) = [one.gain for one in independent.ranked if one.graph is not None]
    assert gain == pytest.approx(expected, abs=1e-3)
    assert "the free table" in found.text()
    assert independent.best.graph is None
    assert "No graph explains the answers as well as a free table does" in independent.text()


def test_a_graph_with_the_attributes_in_another_order_is_refused() -> None:
    """Its first attribute was taken for the first of the posterior, whatever their names."""
    rng = np.random.default_rng(0)
    chosen = rng.choice(8, 100, p=rng.dirichlet(np.ones(8)))
    one = cpdag_of(dag_of_edges(3, [(0, 2), (1, 2)]), list("abc"))
    other = cpdag_of(dag_of_edges(3, [(2, 0), (1, 0)]), list("cba"))
    with pytest.raises(ValueError, match="in one order, a, b, c, were expected, got one on c, b"):
        compare_on_rows([one, other], np.eye(8)[chosen])


def test_bad_input() -> None:
    posterior = np.eye(4)
    with pytest.raises(ValueError, match="at least one graph was expected"):
        compare_on_rows([], posterior)
    with pytest.raises(ValueError, match="graphs on 2 attributes were expected, got one on 3"):
        compare_on_rows([np.zeros((3, 3))], posterior)
    circle = np.zeros((3, 3))
    circle[[0, 1, 2], [1, 2, 0]] = 1
    with pytest.raises(ValueError, match="every graph must stand for a DAG"):
        compare_on_rows([circle], np.eye(8))
    with pytest.raises(ValueError, match="num_iterations must be a positive integer"):
        compare_on_rows([dag_of_edges(2, [(0, 1)])], posterior, num_iterations=0)
