"""The rank of joint tables: Pearson's statistic at rank one, its level, and known numbers."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chi2_contingency

from inference.selection import joint_rank
from inference.selection.joint_rank import JointRank, rank_test
from inference.selection.lower_limit import LowerLimit
from ppl_models.datasets import simulate_checkerboard, simulate_trivariate


def test_rank_one_is_pearsons_test_of_independence():
    counts = np.random.default_rng(0).integers(40, 60, (4, 6)).astype(float)
    statistic, freedom, p_value = rank_test(counts, 1)
    pearson = chi2_contingency(counts, correction=False)
    assert statistic == pytest.approx(pearson.statistic, rel=1e-9)
    assert freedom == pearson.dof
    assert p_value == pytest.approx(pearson.pvalue, rel=1e-9)


def test_the_level_of_the_test_holds_at_the_true_rank():
    rng, rejected, seen = np.random.default_rng(1), [], []
    for _ in range(200):
        first, second = rng.dirichlet(np.ones(6), 3), rng.dirichlet(np.ones(7), 3)
        chances = np.einsum("i,ia,ib->ab", rng.dirichlet(np.full(3, 5.0)), first, second)
        counts = rng.multinomial(20_000, chances.ravel()).reshape(6, 7).astype(float)
        rejected.append(rank_test(counts, 3)[2] <= 0.05)
        seen.append(rank_test(counts, 2)[2] <= 0.05)
    assert np.mean(rejected) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
    assert np.mean(seen) > 0.9


def test_the_statistic_is_that_of_the_definition():
    """The covariance by a sum over cells of products of Kronecker products."""
    rng = np.random.default_rng(2)
    counts = rng.multinomial(5_000, rng.dirichlet(np.full(20, 3.0))).reshape(4, 5).astype(float)
    share, rank = counts / counts.sum(), 2
    rows, columns = share.sum(1), share.sum(0)
    left, singular, right = np.linalg.svd(share / np.sqrt(np.outer(rows, columns)))
    near = (left[:, :rank] * singular[:rank]) @ right[:rank] * np.sqrt(np.outer(rows, columns))
    near = np.maximum(near, 0) / np.maximum(near, 0).sum()
    omega, score = np.zeros((6, 6)), np.zeros(6)
    for a in range(4):
        for b in range(5):
            w = np.kron(left[a, rank:] / rows[a] ** 0.5, right[rank:, b] / columns[b] ** 0.5)
            omega += near[a, b] * np.outer(w, w)
            score += share[a, b] * w
    expected = counts.sum() * score @ np.linalg.solve(omega, score)
    assert rank_test(counts, rank)[:2] == (pytest.approx(expected, rel=1e-9), 6)


def test_numbers_of_known_mixtures():
    assert joint_rank(np.random.default_rng(3).normal(size=(3_000, 3))).number == 1
    board = joint_rank(simulate_checkerboard(3_000, seed=1).data)
    assert board.number == 2
    assert "at least 2 components, at 95% confidence" in board.text()

    assert list(board.table["rank"]) == [1, 2]
    assert not board.is_at_end
    assert joint_rank(simulate_trivariate(100_000, seed=1).data).number == 4


def test_vectors_answers_gaps_and_frames():
    rng = np.random.default_rng(4)
    which = rng.integers(3, size=4_000)
    centres = 4 * rng.normal(size=(3, 2))
    planes = [torch.as_tensor(centres[which] + rng.normal(size=(4_000, 2))) for _ in range(2)]
    assert joint_rank(planes).number == 3
    chances = np.array([[0.1] * 6, [0.9] * 3 + [0.1] * 3, [0.9] * 6])
    answers = (rng.random((4_000, 6)) < chances[which]).astype(float)
    assert joint_rank(answers).number == 3
    assert joint_rank([answers[:, ::2], answers[:, 1::2]]).number == 3  # of few distinct vectors
    # two components are one to the first three answers
    assert joint_rank([answers[:, :3], answers[:, 3:]]).number == 2
    answers[rng.random(answers.shape) < 0.2] = np.nan
    frame = pd.DataFrame(answers, columns=list("abcdef"))
    assert joint_rank(frame).number == 3
    assert joint_rank(frame).table.equals(joint_rank(frame).table)


def test_a_limit_at_the_last_rank_of_the_cells_says_so():
    rng = np.random.default_rng(5)
    which = rng.integers(4, size=2_000)
    found = joint_rank((which.astype(float), np.where(which > 1, which, 0).astype(float)))
    assert found.number == 3
    assert found.is_at_end
    assert "More could not have been seen" in found.text()


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (np.zeros((200, 1)), {}, "two variates or more.* got 1 variate"),
        (np.zeros((99, 2)), {}, "at least 100, got 2 variates of \\[99\\] rows"),
        ([np.zeros(200), np.zeros(201)], {}, "one number of rows"),
        (np.zeros((200, 2)), {"level": 1.0}, "level must lie in"),
    ],
)
def test_refusals(data, settings, message):
    with pytest.raises(ValueError, match=message):
        joint_rank(data, **settings)


@pytest.mark.parametrize(("level", "shown"), [(0.975, "97.5%"), (0.999, "99.9%"), (0.9, "90%")])
def test_the_level_in_the_words_is_the_level(level: float, shown: str) -> None:
    """A level of 0.999 was said to be one of 100%, and 0.975 one of 98%."""
    assert f"at {shown} confidence" in JointRank(2, level, pd.DataFrame(), False).text()
    limit = LowerLimit(2, level, "likelihood", (), "component", math.nan, 0)
    assert limit.headline == f"At least 2 components, at {shown} confidence."


def test_groups_are_the_variates_whose_cells_were_counted() -> None:
    """Two cells and one of missing entries a variate are too many for a group of two of them."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(150, 3))
    rows[rng.random(rows.shape) < 0.3] = np.nan
    table = joint_rank(rows).table
    shuffled = rows.copy()
    shuffled[:, 2] = rng.permutation(shuffled[:, 2])
    other = joint_rank(shuffled).table
    for place, row in table.iterrows():
        is_same = row["statistic"] == other.loc[place, "statistic"]
        assert is_same == (2 not in row["first"] + row["second"])
