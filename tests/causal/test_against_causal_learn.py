"""The same answers as causal-learn on samples of whole rows, where that package is installed (it is
not needed otherwise).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from papers.profile_counts import drawn_counts, rows_of_counts
from support.small_graphs import STRUCTURES, random_dag, random_table, structure

from inference.causal import GES, BDeu, pc
from inference.causal.scores import SetScores


@pytest.fixture(autouse=True)
def _theirs() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, of pandas and others
        pytest.importorskip(
            "causallearn", reason="causal-learn is not installed; it is an oracle only"
        )
        yield


def samples(num_rows: int, number: int) -> Iterator[np.ndarray]:
    """Counts of profiles: of the manuscript's structures, and of random DAGs on three to six
    nodes.
    """
    rng = np.random.default_rng(0)
    for name in STRUCTURES:
        yield drawn_counts(structure(name)[1], num_rows, seed=1)
    for seed in range(number):
        dag = random_dag(3 + seed % 4, rng)
        yield drawn_counts(random_table(dag, rng), num_rows, seed=seed)


def marks(graph: np.ndarray) -> np.ndarray:
    """Their marks as ours: [i, j] = -1 at the tail of i -> j, and at both ends of a line."""
    arrows = (graph == -1) & (graph.T == 1)
    lines = (graph == -1) & (graph.T == -1)
    return arrows | lines


def test_local_scores() -> None:
    from causallearn.score.LocalScoreFunction import local_score_BDeu

    for counts in samples(300, 4):
        rows, size = rows_of_counts(counts), len(counts).bit_length() - 1
        scores = SetScores(counts / counts.sum(), float(counts.sum()), BDeu())
        for k in range(min(size, 4)):
            for parents in ([j for j in range(size) if j != k][:m] for m in range(3)):
                vm = size - 1
                prior = len(parents) * math.log(1 / vm) + (vm - len(parents)) * math.log(1 - 1 / vm)
                ours = scores.local(k, sum(1 << j for j in parents)) + prior
                assert local_score_BDeu(rows, k, parents) == pytest.approx(ours, abs=1e-8)


def test_greedy_search() -> None:
    from causallearn.search.ScoreBased.GES import ges

    for counts in samples(1500, 8):
        rows, size = rows_of_counts(counts), len(counts).bit_length() - 1
        theirs = marks(ges(rows, "local_score_BDeu")["G"].graph)
        score = BDeu(edge_penalty=math.log(max(size - 2, 1)))  # what their prior on graphs comes to
        ours = GES(turning=False).best(counts / counts.sum(), float(counts.sum()), score)
        assert np.array_equal(ours.graph.matrix, theirs)


def test_pc_skeletons() -> None:
    from causallearn.search.ConstraintBased.PC import pc as their_pc

    for counts in samples(1500, 8):
        theirs = their_pc(rows_of_counts(counts), 0.05, "gsq", show_progress=False).G.graph != 0
        ours = pc(counts / counts.sum(), float(counts.sum())).graph.matrix
        assert np.array_equal(ours | ours.T, theirs)
