"""Tests and intervals of conditional information."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2_contingency, ncx2
from support.small_graphs import mutual_information, structure

from inference.causal.graphs import pdag_of
from inference.causal.independence import LARGE, _noncentralities, dependence, log_ratios, strengths
from inference.causal.pdags import class_of
from inference.causal.tables import Marginals


def test_statistic_is_the_g_test_of_counts() -> None:
    rng = np.random.default_rng(0)
    counts = rng.multinomial(300, rng.dirichlet(np.full(8, 5.0)))
    expected = [
        chi2_contingency(counts.reshape(2, 2, 2)[z], correction=False, lambda_="log-likelihood")
        for z in range(2)
    ]
    found = dependence(Marginals(counts / 300), 300, 1, 2, 0b001)
    assert found.statistic == pytest.approx(sum(test.statistic for test in expected))
    assert found.degrees == sum(test.dof for test in expected) == 2
    assert found.given == (0,)
    assert found.information == pytest.approx(found.statistic / 600)


def test_strata_without_rows_have_no_degree_of_freedom() -> None:
    table = np.zeros((2, 2, 2))
    table[0] = [[0.2, 0.1], [0.1, 0.2]]
    table[1] = [[0.4, 0.0], [0.0, 0.0]]  # where attribute 0 is 1 the others are constant
    found = dependence(Marginals(table.reshape(-1)), 100, 1, 2, 0b001)
    assert found.degrees == 1
    constant = dependence(Marginals(np.array([0.5, 0.0, 0.5, 0.0])), 100, 0, 1)
    assert (constant.degrees, constant.p_value, constant.information) == (0, 1.0, 0.0)


def test_an_attribute_that_copies_another() -> None:
    found = dependence(Marginals(np.array([0.5, 0.0, 0.0, 0.5])), 100, 0, 1)
    assert found.information == pytest.approx(np.log(2))
    assert found.low < found.information <= found.high
    assert found.high - found.low < 0.1


@pytest.mark.parametrize("degrees", [1, 2, 8])
def test_interval_inverts_the_noncentral_distribution(degrees: int) -> None:
    for statistic in (10.0, 60.0, 400.0):
        low, high = _noncentralities(statistic, degrees, 0.025)
        assert ncx2.sf(statistic, degrees, low) == pytest.approx(0.025, abs=1e-6) or low == 0
        assert ncx2.cdf(statistic, degrees, high) == pytest.approx(0.025, abs=1e-6)
    below, above = (_noncentralities(LARGE + step, degrees, 0.025) for step in (-0.001, 0.001))
    np.testing.assert_allclose(below, above, rtol=0.003)  # where the normal distribution takes over


@pytest.mark.parametrize(
    ("table", "num_rows"),
    [
        ([0.25] * 4, 300),
        ([0.26, 0.24, 0.24, 0.26], 1000),
        ([0.45, 0.05, 0.05, 0.45], 300),
        ([0.05, 0.02, 0.03, 0.9], 300),
    ],
    ids=["independent", "nearly", "strong", "rare"],
)
def test_intervals_hold_the_truth(table: list[float], num_rows: int) -> None:
    """At 95 %, of 400 samples: no fewer than 92 %."""
    rng, truth = np.random.default_rng(1), mutual_information(table, 0, 1)
    held = 0
    for _ in range(400):
        found = dependence(Marginals(rng.multinomial(num_rows, table) / num_rows), num_rows, 0, 1)
        held += found.low <= truth + 1e-12 and truth <= found.high
    assert held >= 368


def test_log_ratios_average_to_the_information() -> None:
    rng = np.random.default_rng(2)
    cells = rng.dirichlet(np.ones(8)).reshape(2, 2, 2)
    cells[0, 0, 0] = 0.0
    cells /= cells.sum()
    assert (cells * log_ratios(cells)).sum() == pytest.approx(mutual_information(cells, 1, 2, [0]))
    assert np.isfinite(log_ratios(np.zeros((2, 2, 2)))).all()


def test_claims_of_a_true_graph_stand() -> None:
    """Structure 2 at its exact table: independences hold, the collider's margin is far from zero,
    one edge is nearly unfaithful.
    """
    dag, table = structure("2")
    graph = class_of(pdag_of(dag).parents)
    edges, triples, missing = strengths(graph, Marginals(table), 2000, 0.05, 0.95)
    assert [edge.pair for edge in edges] == [(0, 1), (2, 4), (3, 4)]
    (triple,) = triples
    assert (triple.triple, triple.is_collider, triple.near_zero) == ((2, 4, 3), True, False)
    assert triple.margin == pytest.approx(
        mutual_information(table, 2, 3, [4]) - mutual_information(table, 2, 3)
    )
    assert triple.low < triple.margin < triple.high
    assert not any(claim.strained for claim in missing)
    assert max(claim.dependence.information for claim in missing) < 1e-12
    weak = edges[1]
    assert weak.direct.given == (3,)
    assert weak.weakest.given == ()
    assert weak.weakest.information == pytest.approx(
        0.001254, abs=5e-7
    )  # the weakest information that the reference names
    assert not weak.near_zero
    assert strengths(graph, Marginals(table), 1000, 0.05, 0.95)[0][1].near_zero


def test_the_margin_of_a_collider_has_its_interval() -> None:
    """Width against the spread over samples."""
    dag, table = structure("2")
    graph, rng, num_rows = class_of(pdag_of(dag).parents), np.random.default_rng(3), 1000
    found = [
        strengths(
            graph, Marginals(rng.multinomial(num_rows, table) / num_rows), num_rows, 0.05, 0.95
        )[1][0]
        for _ in range(200)
    ]
    spread = np.std([triple.margin for triple in found])
    assert np.mean([(triple.high - triple.low) / (2 * 1.96) for triple in found]) == pytest.approx(
        spread, rel=0.15
    )


def test_the_wrong_graph_is_strained() -> None:
    _, table = structure("3")
    chain = np.zeros((5, 5), dtype=bool)
    chain[0, 1] = True
    missing = strengths(class_of(pdag_of(chain).parents), Marginals(table), 2000, 0.05, 0.95)[2]
    assert {
        (claim.dependence.first, claim.dependence.second) for claim in missing if claim.strained
    } >= {(0, 2), (1, 3), (1, 4)}
