"""Graphs among many attributes: family scores on draws, hill climbing, structural EM."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from attribute_networks import network_items, random_network
from scipy.stats import chi2, ncx2
from support.small_graphs import random_dag, random_table

from inference import EM, SAEM, fit
from inference.causal import (
    BIC,
    BackgroundKnowledge,
    BDeu,
    ExactSearch,
    discover_attributes,
    structural_em,
)
from inference.causal.hill_climbing import RowScores, hill_climb, local_search, reachable
from inference.causal.item_alternatives import item_alternatives
from inference.causal.knowledge import Constraints
from inference.causal.of_fit import profile_posterior
from inference.causal.pdags import class_of, masks_of_columns, matrix_of_columns
from inference.causal.scores import LocalScores, LogisticBIC, SetScores
from inference.causal.structural_em import AttributeNetwork, rows_needed, shares
from inference.causal.tables import profiles
from inference.fitting.problem import problem_of
from inference.programs.global_state import quiet
from ppl_models import Dag, Independent, LatentAttributeModel


def drawn_rows(size: int, num_rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    table = random_table(random_dag(size, rng), rng)
    return profiles(size)[rng.choice(len(table), num_rows, p=table)].astype(np.uint8)


def gains_of(scores: LocalScores, j: int, mask: int) -> list[float]:
    """Differences of the scores of an attribute by each further parent."""
    own = [mask | 1 << i for i in range(scores.num_attributes)]
    return [
        -np.inf if i == j or more == mask else scores.local(j, more) - scores.local(j, mask)
        for i, more in enumerate(own)
    ]


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
        assert ours.gains(j, mask) == pytest.approx(gains_of(theirs, j, mask), abs=1e-9)


def test_gains_of_rows_by_logistic_families() -> None:
    """Every parent more gains the difference of two families; a mask is its sorted places."""
    bits, rule = drawn_rows(5, 400, 1), LogisticBIC()
    ours = RowScores(bits, 400, rule)
    for j, mask in itertools.product(range(5), range(32)):
        if mask >> j & 1:
            continue
        own = [i for i in range(5) if mask >> i & 1]
        counts = np.zeros((1, 2 ** len(own), 2))
        for row in bits:
            state = int("0" + "".join(str(row[i]) for i in own), 2)
            counts[0, state, row[j]] += 1
        assert ours.local(j, mask) == pytest.approx(rule.of_families(counts, 400, 5)[0], abs=1e-6)
        assert ours.gains(j, mask) == pytest.approx(gains_of(ours, j, mask), abs=1e-6)


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
            parents, again = local_search(scores, known, [None], np.random.default_rng(seed))
            assert known.allow(parents)
            assert again == pytest.approx(exact.score)
    assert at_the_top >= 36


def collider(seed: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 0 -> 2 <- 1 with four items each: profiles (8, 3) and P(answers | profile) (N, 8)."""
    rng = np.random.default_rng(seed)
    chance = np.array([0.1, 0.5, 0.5, 0.9])
    table = np.array(
        [
            0.25 * (chance[2 * a + b] if c else 1 - chance[2 * a + b])
            for a, b, c in itertools.product((0, 1), repeat=3)
        ]
    )
    states = profiles(3)
    bits = states[rng.choice(8, 5000, p=table)]
    right = rng.random((5000, 3, 4)) < np.where(bits, 1 - noise, noise)[..., None]
    log_odds = np.log((1 - noise) / noise) * (2 * right.sum(2) - 4)  # (N, 3)
    return states, np.exp(0.5 * log_odds @ (2.0 * states.T - 1))


def chain_of(table: np.ndarray) -> np.ndarray:
    """Projection of a table (8,) on 0 -> 2 -> 1."""
    cube = table.reshape(2, 2, 2)
    first = cube.sum(1)  # (a, c)
    second = cube.sum(0)  # (b, c)
    joint = first[:, None, :] * second[None] / cube.sum((0, 1))
    return np.asarray(joint.reshape(8))


@pytest.mark.parametrize("seed", range(4))
def test_draws_under_a_wrong_arrow_do_not_keep_it(seed: int) -> None:
    """Draws under a chain where a collider is true: by their own counts the chain is the better
    graph, by the corrected ones the collider, and its causes are hardly dependent.
    """
    states, likelihood = collider(seed, 0.25)
    table = np.full(8, 0.125)
    for _ in range(400):  # the chain's maximum of the likelihood
        posterior = likelihood * table
        posterior /= posterior.sum(1, keepdims=True)
        table = chain_of(posterior.mean(0))
    rng = np.random.default_rng([1, seed])
    drawn = (posterior.cumsum(1) < rng.random((10, len(posterior), 1))).sum(2).clip(max=7)
    bits = states[drawn].astype(np.uint8)
    model = states[rng.choice(8, 100_000, p=table)].astype(np.uint8)
    share = float(shares(bits)[[0, 1], [2, 2]].mean())
    chain, colliding = (0, 4, 1), (0, 0, 3)  # parents of 0, 1, 2
    plain = RowScores(bits.reshape(-1, 3), 5000, BIC(), 5000 * share)
    ours = RowScores(bits.reshape(-1, 3), 5000, BIC(), 5000 * share, model, share)
    assert plain.total(chain) > plain.total(colliding)
    assert ours.total(colliding) > ours.total(chain) + 3

    def covariance(scores: RowScores) -> float:
        cells = scores.counts(1, 1).ravel() / scores.worth
        return float(cells[3] - (cells[2] + cells[3]) * (cells[1] + cells[3]))

    assert covariance(plain) > 0.01
    assert abs(covariance(ours)) < 0.5 * covariance(plain)


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
    tables, first, straight = found.params["conditionals"], 0, 0
    for k in range(16):
        size = sum(effect == k for _, effect in found.edges)
        logits = np.log(own := tables[first : first + 2**size].numpy()) - np.log(1 - own)
        first += 2**size
        if size == 2:  # all effects are main effects, and so are those found
            assert logits[0] + logits[3] == pytest.approx(logits[1] + logits[2], abs=1e-3)
            straight += 1
    assert straight > 0
    assert "of which measurement leaves" in found.text()
    strong = found.rows_needed(0.05)
    assert found.rows_needed(0.025) == pytest.approx(2 * strong)
    assert found.rows_needed(0.05, share=1.0) == pytest.approx(7.849 / (2 * 0.05), rel=1e-3)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="power must be above level"):
        rows_needed(0.01, level=0.05, power=0.04)
    q_matrix = np.eye(3, dtype=int)
    model = LatentAttributeModel(q_matrix, root=Independent())
    rows = np.random.default_rng(0).integers(0, 2, (20, 3)).astype(float)
    for settings, words in (
        ({"num_draws": 1}, "num_draws"),
        ({"num_cycles": 0}, "num_cycles"),
        ({"max_parents": 0}, "max_parents"),
        ({"max_parents": 11}, "max_parents must be at most 10"),
        ({"num_replicates": -1}, "num_replicates"),
        ({"score": "bic"}, "score must be"),
        ({"score": LogisticBIC}, "score must be"),
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


def items_of(bits: np.ndarray, rng: np.random.Generator, more: float = 0.0) -> np.ndarray:
    """Four items an attribute, log-odds -1.5 and 1.5; the first has an effect of attribute 1."""
    q_matrix = np.tile(np.eye(bits.shape[1], dtype=int), (4, 1))
    logits = -1.5 + 3 * (bits @ q_matrix.T)
    logits[:, 0] += more * (bits[:, 1] - 0.5)
    return (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(float)


@pytest.mark.parametrize("seed", [1, 2])
def test_an_item_that_asks_for_both_is_told_from_an_edge(seed: int) -> None:
    """Independent attributes with one item of both: the edge is disputed, and the item named. A
    true edge is not.
    """
    rng = np.random.default_rng(seed)
    bits = (rng.random((2000, 4)) < 0.5).astype(int)
    joined = bits.copy()
    joined[:, 1] = rng.random(2000) < 1 / (1 + np.exp(0.8 - 1.6 * bits[:, 0]))
    q_matrix = np.tile(np.eye(4, dtype=int), (4, 1))
    model = LatentAttributeModel(q_matrix, items="dina", root=Dag(((0, 1),)))
    for attributes, more in ((bits, 3.0), (joined, 0.0)):
        data = items_of(attributes, rng, more)
        result = fit(model, data, EM(), num_restarts=1)
        problem = problem_of(model, data, 0)
        posterior = profile_posterior(result, data).posterior
        draws = (posterior.cumsum(1) < rng.random((20, 2000, 1))).sum(2).clip(max=15)
        found = item_alternatives(
            problem, result.params, profiles(4)[draws].astype(np.uint8), (0, 1, 0, 0)
        )
        assert [own.pair for own in found] == [(0, 1)]
        assert found[0].disputed == (more > 0)
        if more:
            assert found[0].item == "0"
            assert found[0].item_gain > found[0].edge_gain + 50
        else:
            without = fit(dataclasses.replace(model, root=Dag(())), data, EM(), num_restarts=1)
            gain = result.log_likelihood - without.log_likelihood
            assert found[0].edge_gain == pytest.approx(gain, rel=0.25)


def test_many_attributes_of_a_fit_are_routed_to_structural_em() -> None:
    rng = np.random.default_rng(0)
    dag, attributes = random_network(15, 1000, rng)
    q_matrix, items = network_items(attributes, rng, 0.1, 0.15)
    model = LatentAttributeModel(q_matrix, items="dina", root=Independent())
    with quiet():  # a fit that has hardly begun: only its model counts
        result = fit(model, items, SAEM(max_iterations=15), num_restarts=1)
    with pytest.raises(ValueError, match="num_rows is for at most 14 attributes, got 15"):
        discover_attributes(result, items, num_rows=500)
    found = discover_attributes(result, items, num_draws=2)
    assert isinstance(found, AttributeNetwork)
    assert found.probabilities is not None
    joined = np.triu(found.graph.matrix | found.graph.matrix.T)
    truth = np.triu(dag | dag.T)
    assert (joined & truth).sum() > 0.6 * truth.sum()
    assert len(found.alternatives) == len(found.edges)
    assert found.alternatives[0].text() in found.text()
    lines = {line.get_linestyle() for line in found.plot().patches}
    assert "-" in lines


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"information": 0.0}, "information must be positive"),
        ({"information": 0.1, "share": 1.5}, "share must lie in"),
        ({"information": 0.1, "power": 1.0}, "power must lie in"),
        ({"information": 0.1, "level": 0.0}, "level must lie in"),
    ],
)
def test_bad_numbers_of_the_calculator(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rows_needed(**settings)


def test_rows_needed_by_the_noncentral_distribution() -> None:
    """At the rows that are said, the statistic exceeds its quantile in the share that is asked."""
    for power in (0.5, 0.8, 0.95):
        rows = rows_needed(0.02, 0.5, 0.01, power)
        reached = ncx2.sf(chi2.isf(0.01, 1), 1, 2 * rows * 0.5 * 0.02)
        assert reached == pytest.approx(power, abs=1e-8)
