"""Variates found from data: tests of pairs beside scipy's, EM's maximum, and known partitions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency

from inference import TrainClassifiers, fit
from inference.selection import find_variates
from inference.selection.variates import PairTables, neighbours, partitions
from ppl_models import Dense, InClassNet


def grouped(
    seed: int, num_rows: int, groups: list[list[int]], num: int, correlation: float = 0.6
) -> np.ndarray:
    """Normal columns that are correlated inside groups, with another sign in each component."""
    rng = np.random.default_rng(seed)
    which = rng.choice(num, num_rows, p=rng.dirichlet(np.full(num, 8.0)))
    size = sum(map(len, groups))
    rows = rng.normal(size=(num_rows, size))
    for own in groups:
        sign = rng.choice([-1.0, 1.0], num)[which]
        for before, after in zip(own, own[1:], strict=False):
            rows[:, after] += correlation / (1 - correlation**2) ** 0.5 * sign * rows[:, before]
    return rows + 1.2 * rng.normal(size=(num, size))[which]


def test_one_component_is_independence_of_pairs():
    rng = np.random.default_rng(0)
    codes = rng.integers(4, size=(2_000, 3)).astype(float)
    codes[:, 1] = np.where(rng.random(2_000) < 0.4, codes[:, 0], codes[:, 1])
    tables, labels = PairTables.of(codes, ("a", "b", "c"), rng, 0.01), np.arange(3)
    found = tables.statistics(tables.fit(labels, 1, rng, None))
    for i, j in ((0, 1), (0, 2), (1, 2)):
        counts = pd.crosstab(codes[:, i], codes[:, j]).to_numpy()
        expected = chi2_contingency(counts, correction=False, lambda_="log-likelihood")
        assert tables.freedom[i, j] == expected.dof == 9
        assert found[i, j] == pytest.approx(expected.statistic, rel=1e-6)
    codes[rng.random(2_000) < 0.1, 2] = np.nan
    assert find_variates(codes, 1).variates == (("0", "1"), ("2",))


def test_em_ends_at_a_maximum_of_the_pairs():
    rng = np.random.default_rng(1)
    rows = grouped(1, 3_000, [[0], [1], [2], [3]], 2)
    tables = PairTables.of(rows, tuple("abcd"), rng, 0.01)
    labels = np.array([0, 0, 1, 2])
    value, (weights, cells) = tables.climb(labels, tables.fit(labels, 2, rng, None), 5_000)

    def log_likelihood(weights: np.ndarray, cells: np.ndarray) -> float:
        out = 0.0
        for i in range(4):
            for j in range(4):
                if labels[i] != labels[j]:
                    own = np.ix_(tables.column == i, tables.column == j)
                    chances = sum(
                        w * np.outer(f[tables.column == i], f[tables.column == j])
                        for w, f in zip(weights, cells, strict=True)
                    )
                    out += float((tables.counts[own] * np.log(chances)).sum())
        return out

    assert value == pytest.approx(log_likelihood(weights, cells), abs=0.01)
    for c in range(2):
        for j in range(4):
            a, b = np.flatnonzero(tables.column == j)[:2]
            for step in (-0.01, 0.01):
                moved = cells.copy()
                moved[c, a] += step
                moved[c, b] -= step
                if moved.min() > 0:
                    assert log_likelihood(weights, moved) < value


@pytest.mark.parametrize(
    ("groups", "num"),
    [
        ([[0], [1], [2], [3], [4]], 3),
        ([[0, 1], [2], [3]], 2),
        ([[0, 1], [2, 3], [4, 5]], 2),
        ([[0, 2, 4], [1], [3, 5], [6]], 3),
    ],
)
def test_partitions_of_known_mixtures(groups, num):
    expected = {tuple(str(j) for j in own) for own in groups}
    found = [find_variates(grouped(seed, 8_000, groups, num), num) for seed in range(5)]
    assert sum(set(own.variates) == expected for own in found) >= 4
    assert all(own.fits for own in found)


def test_neighbours_are_merges_splits_and_moves():
    pairs = np.array([[0, 3], [1, 3], [2, 3], [0, 4], [1, 4], [2, 4], [3, 4]])
    labels = np.array([0, 0, 0, 1, 2])
    found = {tuple(own.tolist()) for own in partitions(neighbours(labels, pairs))}
    merged = {(0, 0, 0, 0, 1), (0, 0, 0, 1, 0), (0, 0, 0, 1, 1)}
    split = {(0, 1, 1, 2, 3), (0, 1, 0, 2, 3), (0, 0, 1, 2, 3)}
    moved = {(0, 1, 1, 0, 2), (0, 1, 1, 2, 0), (0, 1, 0, 1, 2), (0, 1, 0, 2, 1)}
    moved |= {(0, 0, 1, 1, 2), (0, 0, 1, 2, 1)}
    assert found == merged | split | moved
    near = neighbours(np.array([0, 0, 1]), np.array([[0, 2], [1, 2]]))
    assert {tuple(own.tolist()) for own in partitions(near)} == {(0, 1, 2), (0, 1, 1), (0, 1, 0)}


def test_missing_entries_and_names_and_a_fit_of_what_was_found():
    rows = grouped(2, 6_000, [[0, 1], [2], [3]], 2)
    rows[np.random.default_rng(3).random(rows.shape) < 0.1] = np.nan
    frame = pd.DataFrame(rows, columns=["a", "b", "c", "d"])
    found = find_variates(frame, 2)
    assert found.variates == (("a", "b"), ("c",), ("d",))
    assert "3 variates: a, b; c; d." in found.text()
    assert set(found.table["first"]) <= set("abcd")
    model = InClassNet(found.variates, 2, Dense((8,)))
    result = fit(model, frame.dropna()[:500], TrainClassifiers(), num_restarts=1)
    assert len(result.params["weights"]) == 2


def test_two_dependent_variates_are_said_to_be_left():
    rng = np.random.default_rng(5)
    common = rng.normal(size=(5_000, 1))
    found = find_variates(common + 0.3 * rng.normal(size=(5_000, 4)), 1)
    assert len(found.variates) == 2
    assert not found.fits
    assert "more components may be needed" in found.text()


@pytest.mark.parametrize(
    ("data", "num", "level", "words"),
    [
        (np.zeros((200, 2)), 2, 0.01, "three columns"),
        (np.ones((50, 3)), 2, 0.01, "100 rows"),
        (np.eye(200)[:, :3] * 0, 2, 0.01, "column '0' has 1"),
        (np.eye(200)[:, :3], 0, 0.01, "num_components"),
        (np.eye(200)[:, :3], 2, 1.0, "level"),
    ],
)
def test_bad_input_is_refused(data, num, level, words):
    with pytest.raises(ValueError, match=words):
        find_variates(data, num, level=level)
