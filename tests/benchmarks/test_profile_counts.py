"""The manuscript's six ways of making a sample."""

from __future__ import annotations

import math

import numpy as np
import pytest
from papers.profile_counts import (
    classified_counts,
    drawn_counts,
    profile_counts,
    redrawn_counts,
    rounded_counts,
    rows_of_counts,
    scaled_counts,
)
from support.small_graphs import REFERENCES, STRUCTURES, structure

from inference.causal import GES, BDeu, cpdag_of
from inference.causal.tables import profiles


def test_rounded_counts_add_up() -> None:
    rng = np.random.default_rng(0)
    for num_rows in (1, 7, 1000):
        table = rng.dirichlet(np.ones(8))
        counts = rounded_counts(table, num_rows)
        assert counts.sum() == num_rows
        assert (np.abs(counts - table * num_rows) < 1).all()
    np.testing.assert_array_equal(rounded_counts([0.3, 0.2, 0.1, 0.4], 10), [3, 2, 1, 4])
    np.testing.assert_array_equal(rounded_counts([0.25] * 4, 2), [1, 1, 0, 0])


def test_draws_follow_the_table_and_the_seed() -> None:
    table = np.array([0.1, 0.2, 0.3, 0.4])
    counts = drawn_counts(table, 100_000, seed=3)
    np.testing.assert_allclose(counts / 100_000, table, atol=0.01)
    np.testing.assert_array_equal(counts, drawn_counts(table.reshape(2, 2), 100_000, seed=3))
    assert (counts != drawn_counts(table, 100_000, seed=4)).any()


def test_classified_rows() -> None:
    posterior = np.array([[0.4, 0.0, 0.3, 0.3], [0.1, 0.7, 0.1, 0.1], [0.0, 0.0, 0.0, 1.0]])
    np.testing.assert_array_equal(classified_counts(posterior), [1, 1, 0, 1])
    np.testing.assert_array_equal(
        classified_counts(posterior, each_attribute=True), [0, 1, 1, 1]
    )  # first row: P(first attribute) = 0.6


def test_true_profiles() -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 2, (50, 3))
    counts = profile_counts(rows)
    np.testing.assert_array_equal(
        counts, [(rows == profile).all(1).sum() for profile in profiles(3)]
    )
    scaled = scaled_counts(rows, 125.0)
    np.testing.assert_allclose(scaled, counts * 2.5)
    redrawn = redrawn_counts(rows, 400, seed=2)
    assert redrawn.sum() == 400
    assert not redrawn[counts == 0].any()
    np.testing.assert_array_equal(profile_counts(rows_of_counts(counts)), counts)


@pytest.mark.parametrize("times", [5, 10])
@pytest.mark.parametrize("name", STRUCTURES)
def test_the_manuscripts_table(name: str, times: int) -> None:
    """Methods 4, 5 and 6 at 2,000 rows of known profiles, scored as the manuscript did (an edge
    cost log(N' - 2) nats): its percentages, within three errors.
    """
    dag, table = structure(name)
    published = REFERENCES["published"]
    key = {"1": "structure_1_200_replicates_BDeu", "2": "structure_2_200_replicates_BDeu"}.get(name)
    cells = (
        published["structure_3_100_replicates"]["N=2000 BDeu"] if key is None else published[key]
    )
    truth, num_rows, claimed, number = cpdag_of(dag).matrix, 2000, 2000 * times, 150
    counts = np.stack(
        [np.random.default_rng(seed).multinomial(num_rows, table) for seed in range(number)]
    )
    drawn = np.stack(
        [
            np.random.default_rng(seed + number).multinomial(claimed, own / num_rows)
            for seed, own in enumerate(counts)
        ]
    )
    ways = (
        (counts / num_rows, num_rows, cells["6"]),
        (counts / num_rows, claimed, cells[f"1 / 4 N'={claimed}"][1]),
        (drawn / claimed, claimed, cells[f"2 / 5 N'={claimed}"][1]),
    )
    for tables, rows, expected in ways:
        score = BDeu(edge_penalty=math.log(rows - 2))
        share = np.mean(
            [
                np.array_equal(graph.matrix, truth)
                for graph in GES(turning=False).best_of_each(tables, rows, score)
            ]
        )
        theirs = 100 if key is None else 200
        middle = min(
            max((share * number + expected / 100 * theirs) / (number + theirs), 0.01), 0.99
        )
        error = math.sqrt(middle * (1 - middle) * (1 / number + 1 / theirs))
        assert abs(share - expected / 100) < 3 * error + 0.005


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="num_rows must be a positive integer"):
        rounded_counts([0.5, 0.5], 2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="only 0 and 1"):
        profile_counts([[0, 2]])
    with pytest.raises(ValueError, match=r"rows must have shape \(N, K\)"):
        profile_counts([0, 1])
    with pytest.raises(ValueError, match="num_rows must be positive"):
        scaled_counts([[0, 1]], 0)
    with pytest.raises(ValueError, match="whole and not negative"):
        rows_of_counts([0.5, 1.0])
    with pytest.raises(ValueError, match=r"2\^K profiles"):
        rows_of_counts([1, 1, 1])
    with pytest.raises(ValueError, match="posterior must sum to one"):
        classified_counts([[0.5, 0.1]])
    with pytest.raises(ValueError, match="each_attribute must be True or False"):
        classified_counts([[0.5, 0.5]], each_attribute=1)  # type: ignore[arg-type]
