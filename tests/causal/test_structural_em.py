"""Graphs among many attributes: family scores on draws, hill climbing, structural EM."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from attribute_networks import network_items, random_network
from support.small_graphs import random_dag, random_table

from inference.causal import BIC, BackgroundKnowledge, BDeu, ExactSearch, structural_em
from inference.causal.hill_climbing import RowScores, hill_climb, reachable
from inference.causal.knowledge import Constraints
from inference.causal.pdags import class_of, masks_of_columns, matrix_of_columns
from inference.causal.scores import SetScores
from inference.causal.structural_em import shares
from inference.causal.tables import profiles
from ppl_models import Independent, LatentAttributeModel


def drawn_rows(size: int, num_rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    table = random_table(random_dag(size, rng), rng)
    return profiles(size)[rng.choice(len(table), num_rows, p=table)].astype(np.uint8)


@pytest.mark.parametrize("score", [BIC(), BDeu()])
def test_scores_of_rows_are_those_of_their_table(score: BIC | BDeu) -> None:
    """Every family of four attributes, and every parent more, at another number of rows."""
    bits = drawn_rows(4, 300, 0)
    table = np.bincount(bits @ (1 << np.arange(3, -1, -1)), minlength=16) / 300
    ours, theirs = RowScores(bits, 120, score), SetScores(table, 120, score)
    for j, mask in itertools.product(range(4), range(16)):
        if mask >> j & 1:
            continue
        assert ours.local(j, mask) == pytest.approx(theirs.local(j, mask), abs=1e-9)
        gains = ours.gains(j, mask)
        for i in range(4):
            if i == j or mask >> i & 1:
                assert gains[i] == -np.inf
            else:
                more = theirs.local(j, mask | 1 << i) - theirs.local(j, mask)
                assert gains[i] == pytest.approx(more, abs=1e-9)


def test_hill_climbing_against_all_dags() -> None:
    """Four attributes: never above the exact search, and at it in nine of ten samples; what is
    known is kept.
    """
    at_the_top = 0
    for seed in range(20):
        bits = drawn_rows(4, 500, seed)
        table = np.bincount(bits @ (1 << np.arange(3, -1, -1)), minlength=16) / 500
        scores, told = RowScores(bits, 500, BDeu()), BackgroundKnowledge(tiers=((0, 1), (2, 3)))
        for known in (Constraints.none(4), told.on("test", tuple("abcd"))):
            parents, reached = hill_climb(scores, known)
            exact = ExactSearch().best(table, 500, BDeu(), known)
            assert known.allow(parents)
            assert reached == pytest.approx(scores.total(parents))
            assert reached <= exact.score + 1e-9
            at_the_top += reached >= exact.score - 1e-6
    assert at_the_top >= 36


def test_reachability() -> None:
    dag = random_dag(6, np.random.default_rng(3))
    paths = sum(np.linalg.matrix_power(dag.astype(int), power) for power in range(6)) > 0
    np.testing.assert_array_equal(reachable(dag), paths)


def test_share_of_information() -> None:
    """Draws that repeat each row's value with chance r, by rows: rho of a pair is the mean over
    both values of what two draws have in common.
    """
    rng = np.random.default_rng(0)
    truth = rng.random((4000, 3)) < 0.5
    keep = 0.8  # each draw shows the truth with this chance, else a coin: correlation keep^2
    drawn = np.stack(
        [
            np.where(rng.random(truth.shape) < keep, truth, rng.random(truth.shape) < 0.5)
            for _ in range(6)
        ]
    ).astype(np.uint8)
    found = shares(drawn)
    np.testing.assert_allclose(found[np.triu_indices(3, 1)], keep**4, atol=0.03)


@pytest.mark.parametrize("seed", [0, 1])
def test_network_of_sixteen(seed: int) -> None:
    """Sixteen attributes, four items each with guess and slip .1 to .15, 3,000 rows: nearly the
    graph that the same search finds on the true attributes.
    """
    rng = np.random.default_rng(seed)
    dag, attributes = random_network(16, 3000, rng)
    q_matrix, items = network_items(attributes, rng, 0.1, 0.15)
    truth = class_of(masks_of_columns(dag)).matrix
    known = Constraints.none(16)
    oracle, _ = hill_climb(RowScores(attributes, 3000, BIC()), known)
    arrow = next((int(i), int(j)) for i, j in np.argwhere(dag))
    model = LatentAttributeModel(q_matrix, items="dina", root=Independent())
    found = structural_em(
        model,
        items,
        num_cycles=2,
        num_draws=6,
        num_replicates=3,
        seed=seed,
        knowledge=BackgroundKnowledge(required=(arrow,)),
    )

    def pairs(matrix: np.ndarray) -> np.ndarray:
        return np.triu(matrix | matrix.T)

    joined, best = pairs(found.graph.matrix), pairs(truth)
    assert (joined != best).sum() <= 3 + (pairs(matrix_of_columns(oracle)) != best).sum()
    assert arrow in found.edges
    assert arrow in found.graph.arrows
    assert found.probabilities is not None
    assert found.probabilities.arrow[arrow] == pytest.approx(1.0)
    assert 0 < found.worth <= found.num_rows == 3000
    assert "of which measurement leaves" in found.text()
    strong = found.rows_needed(0.05)
    assert found.rows_needed(0.025) == pytest.approx(2 * strong)
    assert found.rows_needed(0.05, share=1.0) == pytest.approx(7.849 / (2 * 0.05), rel=1e-3)


def test_bad_input() -> None:
    q_matrix = np.eye(3, dtype=int)
    model = LatentAttributeModel(q_matrix, root=Independent())
    rows = np.random.default_rng(0).integers(0, 2, (20, 3)).astype(float)
    for settings, words in (
        ({"num_draws": 1}, "num_draws"),
        ({"num_cycles": 0}, "num_cycles"),
        ({"max_parents": 0}, "max_parents"),
        ({"num_replicates": -1}, "num_replicates"),
        ({"score": "bic"}, "score must be"),
        ({"knowledge": BackgroundKnowledge(required=((0, 7),))}, "attribute 7 is not among the 3"),
        (
            {"knowledge": BackgroundKnowledge(required=((0, 2), (1, 2))), "max_parents": 1},
            "requires 2 parents",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            structural_em(model, rows, **settings)
    with pytest.raises(ValueError, match="a model whose root can be replaced"):
        structural_em(lambda data: None, rows)
