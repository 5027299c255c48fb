"""Scores on a table against the formulas on rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.small_graphs import mutual_information, random_dag, random_table, score_of

from inference.causal import BIC, BDeu
from inference.causal.edges import all_classes, all_dags
from inference.causal.scores import (
    LogisticBIC,
    Score,
    SetScores,
    all_set_scores,
    logistic_chances,
)
from inference.causal.tables import (
    Marginals,
    as_table,
    as_tables,
    check_rows,
    dag_table,
    profiles,
)

SCORES = (BIC(), BDeu(), BDeu(equivalent_sample_size=3.0, edge_penalty=0.7))


def score_of_rows(rows: np.ndarray, dag: np.ndarray, score: Score) -> float:
    """The formulas in the docstring, counted row by row."""
    total = 0.0
    for k in range(rows.shape[1]):
        parents = np.flatnonzero(dag[:, k])
        q = 2 ** len(parents)
        counts: dict[tuple[int, ...], list[int]] = {}
        for row in rows:
            counts.setdefault(tuple(row[parents]), [0, 0])[int(row[k])] += 1
        for pair in counts.values():
            if isinstance(score, BIC):
                total += sum(n * math.log(n / sum(pair)) for n in pair if n)
            else:
                assert isinstance(score, BDeu)
                a = score.equivalent_sample_size
                total += math.lgamma(a / q) - math.lgamma(sum(pair) + a / q)
                total += sum(math.lgamma(n + a / (2 * q)) - math.lgamma(a / (2 * q)) for n in pair)
        if isinstance(score, BIC):
            total -= 0.5 * q * math.log(len(rows))
        else:
            assert isinstance(score, BDeu)
            total -= score.edge_penalty * len(parents)
    return total


@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_a_table_of_shares_scores_as_its_rows(score: Score) -> None:
    rng = np.random.default_rng(0)
    for num_rows in (7, 60):  # some profiles unseen
        rows = rng.integers(0, 2, (num_rows, 4)) | rng.integers(0, 2, (num_rows, 1))
        table = np.bincount(rows @ [8, 4, 2, 1], minlength=16) / num_rows
        for _ in range(5):
            dag = random_dag(4, rng)
            expected = score_of_rows(rows, dag, score)
            assert score_of(dag, table, num_rows, score) == pytest.approx(expected, abs=1e-9)
            assert score_of(dag, table.reshape(2, 2, 2, 2), num_rows, score) == pytest.approx(
                expected, abs=1e-9
            )


@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_equivalent_dags_score_alike(score: Score) -> None:
    rng = np.random.default_rng(1)
    scores = SetScores(rng.dirichlet(np.ones(16)), 123.4, score)
    values = np.array([scores.total([int(mask) for mask in row]) for row in all_dags(4)])
    classes = all_classes(4)
    for own in range(len(classes.size)):
        assert np.ptp(values[classes.of_dag == own]) < 1e-9
    assert len(np.unique(values.round(8))) == len(
        classes.size
    )  # a random table tells all classes apart


@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_all_sets_at_once(score: Score) -> None:
    rng = np.random.default_rng(2)
    tables = rng.dirichlet(np.full(32, 0.3), 3)
    every = all_set_scores(tables, 50.0, score)
    few = all_set_scores(tables, 50.0, score, most=2)
    for b, table in enumerate(tables):
        one = SetScores(table, 50.0, score)
        np.testing.assert_allclose(
            every[b], [one.of(mask) for mask in range(32)], rtol=1e-12, atol=1e-9
        )
    small = np.array([mask.bit_count() <= 2 for mask in range(32)])
    np.testing.assert_array_equal(few[:, small], every[:, small])
    assert np.isnan(few[:, ~small]).all()


def test_marginals_in_two_halves() -> None:
    rng = np.random.default_rng(3)
    table = rng.dirichlet(np.ones(2**12))
    marginals, cube = Marginals(table), table.reshape((2,) * 12)
    for mask in [0, 1, 5, 1 << 11, 0b101010101010, 0b110000000011, 2**12 - 1]:
        gone = tuple(k for k in range(12) if not mask >> k & 1)
        np.testing.assert_allclose(marginals.of(mask), cube.sum(gone).reshape(-1), rtol=1e-12)


def test_information() -> None:
    rng = np.random.default_rng(4)
    table = rng.dirichlet(np.ones(16))
    cube = table.reshape(2, 2, 2, 2)
    expected = 0.0
    joint = cube.sum(0)  # of attributes 1, 2, 3
    for x, y, z in np.ndindex(2, 2, 2):
        p = joint[x, y, z]
        expected += p * math.log(
            p * joint[:, :, z].sum() / (joint[x, :, z].sum() * joint[:, y, z].sum())
        )
    assert mutual_information(table, 1, 2, [3]) == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(Marginals(table).crossed(2, 1, 0b1000), joint.transpose(2, 1, 0))
    np.testing.assert_array_equal(profiles(2), [[0, 0], [0, 1], [1, 0], [1, 1]])


def test_the_table_of_a_dag_factorises() -> None:
    rng = np.random.default_rng(5)
    dag = random_dag(5, rng)
    table = random_table(dag, rng)
    assert table.sum() == pytest.approx(1.0)
    marginals = Marginals(table)
    for k in range(5):
        own = sum(1 << int(i) for i in np.flatnonzero(dag[:, k]))
        rest = [j for j in range(5) if j != k and not own >> j & 1 and not _is_below(dag, k, j)]
        assert all(marginals.information(k, j, own) < 1e-12 for j in rest)


def _is_below(dag: np.ndarray, k: int, j: int) -> bool:
    return bool(np.linalg.matrix_power(np.eye(len(dag)) + dag, len(dag))[k, j])


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"shape \(2\^K,\) or"):
        as_table("f", np.ones(3) / 3)
    with pytest.raises(ValueError, match="must sum to one"):
        as_table("f", np.ones(4))
    with pytest.raises(ValueError, match="must not be negative"):
        as_table("f", [1.5, -0.5])
    with pytest.raises(ValueError, match="must be finite"):
        as_table("f", [np.nan, 1.0])
    with pytest.raises(ValueError, match="real numbers"):
        as_table("f", ["a", "b"])
    with pytest.raises(ValueError, match=r"shape \(draws, 2\^K\)"):
        as_tables("f", np.ones(4) / 4)
    with pytest.raises(ValueError, match="at most 20 attributes"):
        as_table("f", np.full(2**21, 0.5**21))
    for value in (0, -3, float("nan"), float("inf"), True, "5"):
        with pytest.raises(ValueError, match="num_rows must be a number of at least 1"):
            check_rows("f", value)
    with pytest.raises(ValueError, match="equivalent_sample_size must be a positive number"):
        BDeu(0.0)
    with pytest.raises(ValueError, match="edge_penalty"):
        BDeu(edge_penalty=-1.0)
    with pytest.raises(ValueError, match=r"probabilities\[1\] must have shape \(2,\)"):
        dag_table([[0, 1], [0, 0]], [0.5, 0.5])
    with pytest.raises(ValueError, match=r"probabilities\[0\] must lie in"):
        dag_table(np.zeros((1, 1)), [1.5])
    with pytest.raises(ValueError, match="must hold 1 arrays"):
        dag_table(np.zeros((1, 1)), [])


def counts_of(chances: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Counts by state and value, (B, 2^P, 2)."""
    return np.stack([totals * (1 - chances), totals * chances], -1)


def states_of(size: int) -> np.ndarray:
    return np.arange(2**size)[:, None] >> np.arange(size - 1, -1, -1) & 1


@pytest.mark.parametrize("size", [0, 1, 2, 4])
def test_logistic_regression_of_counts(size: int) -> None:
    """Logits have main effects only, and totals of each parent are those of the counts: the
    maximum of a concave function. Exact chances are found again.
    """
    rng = np.random.default_rng(size)
    design = np.concatenate([np.ones((2**size, 1)), states_of(size)], 1)
    effects = rng.uniform(-2, 2, (3, size + 1))
    chances = 1 / (1 + np.exp(-effects @ design.T))
    totals = rng.uniform(0, 100, (3, 2**size))
    np.testing.assert_allclose(
        logistic_chances(counts_of(chances, totals)), chances, atol=1e-6 * 2**size
    )
    counts = rng.uniform(0, 50, (3, 2**size, 2))
    found = logistic_chances(counts)
    off = np.log(found / (1 - found))
    np.testing.assert_allclose(design @ np.linalg.pinv(design) @ off.T, off.T, atol=1e-6)
    np.testing.assert_allclose(
        (counts.sum(-1) * found) @ design, counts[..., 1] @ design, atol=1e-4
    )


def test_logistic_regression_of_separated_counts() -> None:
    """Where a state has one value only, the log-likelihood of these counts is at its bound."""
    counts = np.array([[[40.0, 0.0], [30.0, 0.0], [0.0, 20.0], [0.0, 10.0]], np.zeros((4, 2))])
    found = logistic_chances(counts)
    assert np.isfinite(found).all()
    assert found[0, :2].max() < 1e-4
    assert found[0, 2:].min() > 1 - 1e-4
    assert LogisticBIC().of_families(counts[:1], 100, 5)[0] == pytest.approx(
        -1.5 * math.log(100) - math.log(6), abs=0.01
    )


def test_families_are_tables_where_these_gain() -> None:
    """Main effects cost 1 + P parameters, an interaction 2^P; the number of parents is a priori
    uniform, and so is the set among those of a number.
    """
    rule, totals = LogisticBIC(), np.full((1, 4), 250.0)
    straight = np.array([[0.1, 0.25, 0.5, 0.75]])  # odds 1/9, 1/3, 1, 3
    crossed = np.array([[0.2, 0.5, 0.5, 0.2]])
    for chances, wants, price in ((straight, False, 3), (crossed, True, 4)):
        counts = counts_of(chances, totals)
        assert rule.wants_tables(counts, 1000)[0] == wants
        free = (counts * np.log(counts / counts.sum(-1, keepdims=True))).sum()
        expected = free - 0.5 * price * math.log(1000) - math.log(math.comb(9, 2))
        assert rule.of_families(counts, 1000, 10)[0] == pytest.approx(expected, abs=1e-6)
    one = counts_of(np.array([[0.2, 0.6]]), totals[:, :2])
    free = (one * np.log(one / one.sum(-1, keepdims=True))).sum()
    expected = free - math.log(1000) - math.log(9)
    assert rule.of_families(one, 1000, 10)[0] == pytest.approx(expected)
    assert not rule.wants_tables(one, 1000)[0]
