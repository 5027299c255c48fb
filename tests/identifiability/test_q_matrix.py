"""Verdicts on Q-matrices against the rank of the Jacobian of the distribution of all patterns at
random parameters, and against the response vectors of all profiles.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
import torch

from inference import EM, fit
from inference.identifiability import check_identifiability, check_q_matrix
from inference.programs.program import Program
from ppl_models import (
    Bernoulli,
    Blocks,
    Hierarchy,
    HigherOrder,
    Independent,
    LatentAttributeModel,
    NegativeBinomial,
    Normal,
    Poisson,
)

F64 = torch.float64
EYE = np.eye(3, dtype=int)


def random_q(generator: np.random.Generator, num_items: int, size: int) -> np.ndarray:
    """Random Q-matrices, rich in pure items, without an empty row or column."""
    while True:
        q = (generator.random((num_items, size)) < 0.45).astype(int)
        for j in np.flatnonzero(generator.random(num_items) < 0.6):
            q[j] = np.eye(size, dtype=int)[generator.integers(size)]
        if q.any(0).all() and q.any(1).all():
            return q


def features(row: np.ndarray, rule: str, profiles: np.ndarray) -> np.ndarray:
    """(C, d) with a column of ones."""
    own = np.flatnonzero(row)
    asked = profiles[:, own]
    if rule == "dina":
        columns = [asked.all(1)]
    elif rule == "dino":
        columns = [asked.any(1)]
    else:
        sizes = range(1, 2 if rule == "additive" else len(own) + 1)
        columns = [
            asked[:, list(s)].all(1)
            for size in sizes
            for s in itertools.combinations(range(len(own)), size)
        ]
    return np.column_stack([np.ones(len(profiles)), *columns]).astype(float)


def rank_and_size(
    q: np.ndarray,
    rules: Sequence[str],
    seed: int,
    profiles: np.ndarray | None = None,
    shares: np.ndarray | None = None,
    normal: bool = False,
) -> tuple[int, int]:
    """Rank of the Jacobian of the distribution of the items at random parameters, and the number of
    parameters.
    """
    generator = np.random.default_rng(seed)
    if profiles is None:
        profiles = np.array(list(itertools.product((0, 1), repeat=q.shape[1])))
    designs = [features(row, rule, profiles) for row, rule in zip(q, rules, strict=True)]
    share = generator.dirichlet(np.full(len(profiles), 5.0)) if shares is None else shares
    eta = np.column_stack(
        [d @ np.r_[-1.0, generator.uniform(0.5, 2.0, d.shape[1] - 1)] for d in designs]
    )  # (C, J)
    num_parameters = len(share) - 1 + sum(d.shape[1] for d in designs)
    if normal:
        at = 3 * generator.standard_normal((6 * num_parameters, len(q)))
        residual = at[:, None] - eta
        each = np.exp(-(residual**2) / 2)
    else:
        at = np.array(list(itertools.product((0, 1), repeat=len(q))))
        mean = 1 / (1 + np.exp(-eta))
        residual = at[:, None] - mean
        each = np.where(at[:, None] == 1, mean, 1 - mean)
    distribution = each.prod(-1)  # (X, C)
    by_item = [
        (distribution * share * residual[..., j]) @ d for j, d in enumerate(designs)
    ]  # both families have the score residual * d
    jacobian = np.column_stack([distribution[:, 1:] - distribution[:, :1], *by_item])
    values = np.linalg.svd(
        jacobian / np.linalg.norm(jacobian, axis=0).clip(1e-300), compute_uv=False
    )
    return int((values > 1e-10 * values[0]).sum()), num_parameters


@pytest.mark.parametrize("kind", ["dina", "dino", "additive", "gdm", "mixed"])
def test_verdicts_agree_with_the_rank_of_the_distribution(kind: str) -> None:
    """Strict and generic verdicts have full rank at random parameters, proofs of the contrary
    never.
    """
    generator = np.random.default_rng(3)
    met = dict.fromkeys(("strict", "generic", "not established", "not identified"), 0)
    for case in range(120):
        size = int(generator.integers(2, 4))
        q = random_q(generator, int(generator.integers(2 * size, 9)), size)
        rules = [
            (
                str(
                    generator.choice(
                        ["dina", "dino", "additive", "gdm"], p=[0.15, 0.15, 0.35, 0.35]
                    )
                )
                if kind == "mixed"
                else kind
            )
            for _ in q
        ]
        report = check_q_matrix(q, rules)
        rank, num_parameters = rank_and_size(q, rules, case)
        met[report.verdict] += 1
        if report.verdict in ("strict", "generic"):
            assert rank == num_parameters, (q.tolist(), rules, report.text())
        if report.verdict == "not identified":
            assert rank < num_parameters, (q.tolist(), rules, report.text())
    assert met["strict"] >= 3
    assert met["not identified"] >= 3
    if kind in ("additive", "gdm", "mixed"):
        assert met["generic"] >= 3


def test_profiles_that_are_alike_have_one_response_vector() -> None:
    generator = np.random.default_rng(4)
    profiles = np.array(list(itertools.product((0, 1), repeat=3)))
    found = 0
    for case in range(60):
        q = random_q(generator, int(generator.integers(3, 8)), 3)
        rules = [
            str(generator.choice(["dina", "dino", "additive", "gdm"], p=[0.5, 0.3, 0.1, 0.1]))
            for _ in q
        ]
        draw = np.random.default_rng(case)
        columns = []
        for row, rule in zip(q, rules, strict=True):
            design = features(row, rule, profiles)
            columns.append(design @ draw.uniform(0.5, 2.0, design.shape[1]))
        table = np.round(np.column_stack(columns), 9)
        _, group = np.unique(table, axis=0, return_inverse=True)
        expected = {
            tuple(map(tuple, profiles[group.ravel() == g].tolist()))
            for g in set(group.ravel().tolist())
            if (group.ravel() == g).sum() > 1
        }
        report = check_q_matrix(q, rules)
        assert report.alike is not None
        assert set(report.alike) == expected
        assert report.is_complete is (not expected)
        found += bool(expected)
    assert 5 < found < 55


@pytest.mark.parametrize("rule", ["dina", "dino"])
def test_equal_columns_are_a_reason(rule: str) -> None:
    """(B) is necessary: with two attributes that share all their further items the rank falls where
    they know nothing of the third.
    """
    q = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1]])
    report = check_q_matrix(q, rule, attribute_names=("add", "multiply", "divide"))
    assert report.verdict == "not established"
    assert (
        "(B) fails: beside one pure item each, add and multiply are asked for by the same items."
        in report.text()
    )
    shares = np.outer(np.random.default_rng(0).dirichlet(np.ones(4)), [0.7, 0.3]).ravel()
    rank, size = rank_and_size(q, [rule] * 7, 1, shares=shares)
    assert rank < size
    assert rank_and_size(q, [rule] * 7, 1) == (size, size)
    better = np.vstack([q, [[1, 0, 0]]])
    assert check_q_matrix(better, rule).verdict == "strict"
    assert rank_and_size(better, [rule] * 8, 1, shares=shares) == (size + 2, size + 2)


def test_conditions_of_conjunctive_items_by_name() -> None:
    names = ("a", "b", "c")
    report = check_q_matrix(
        np.vstack([EYE[:2], [[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]]]),
        "dina",
        attribute_names=names,
    )
    assert report.verdict == "not identified"
    assert "No item asks for c alone: add a pure item for it." in report.text()
    assert "none = c" in report.text()
    few = check_q_matrix(
        np.vstack([EYE, [[1, 1, 0], [1, 0, 1], [1, 1, 0]]]), "dina", attribute_names=names
    )
    assert few.verdict == "not established"
    assert "(C) fails: fewer than three items ask for c (2)." in few.text()
    alone = check_q_matrix(np.vstack([EYE, [[1, 1, 0], [1, 1, 0]]]), "dina", attribute_names=names)
    assert alone.verdict == "not identified"
    assert "c is asked for by item 2 alone" in alone.text()


def test_blocks_are_items_of_the_proof() -> None:
    q = np.vstack([EYE, [[1, 1, 0], [0, 1, 1], [1, 0, 1]], [[1, 1, 1]]])
    for rule in ("additive", "gdm"):
        report = check_q_matrix(q, rule)
        assert report.verdict == "generic"
        assert len({*report.first, *report.second}) == 6
        for block in (report.first, report.second):
            assert all(q[j, k] for k, j in enumerate(block))
    strict = check_q_matrix(np.vstack([EYE, EYE, EYE]), "gdm")
    assert strict.verdict == "strict"
    assert strict.to_dict()["first"] == [0, 1, 2]
    twice = check_q_matrix(np.vstack([EYE, EYE, [[1, 1, 1]]]), "additive")
    assert twice.verdict == "generic"  # effects of 1, 1 and -2, say, leave 000 and 111 alike
    assert "do not distinguish the profiles" in twice.text()


def test_a_hierarchy_has_fewer_profiles() -> None:
    """Under "b needs a" a conjunctive item of both is one of b, and the rank of the distribution of
    the profiles left agrees.
    """
    q, names = [[1, 0], [1, 1], [1, 0], [1, 1], [1, 0], [1, 1]], ("a", "b")
    chain = LatentAttributeModel(
        q, items="dina", root=Hierarchy([("a", "b")]), attribute_names=names
    )
    report = check_identifiability(chain)
    assert report.verdict == "strict"
    profiles = np.array([[0, 0], [1, 0], [1, 1]])
    rank, size = rank_and_size(np.array(q), ["dina"] * 6, 0, profiles=profiles)
    assert rank == size
    free = check_identifiability(LatentAttributeModel(q, items="dina", attribute_names=names))
    assert free.verdict == "not identified"
    assert "  none = b\n" in free.text()
    short = check_identifiability(
        LatentAttributeModel([[1, 0], [0, 1], [1, 1]], root=Hierarchy([(0, 1)]), items="dina")
    )
    assert short.verdict in ("not established", "not identified")
    merged = check_identifiability(
        LatentAttributeModel([[1, 1]] * 4, items="dina", root=Hierarchy([(0, 1)]))
    )
    assert merged.verdict == "not identified"
    assert merged.alike == (((0, 0), (1, 0)),)


def test_distributions_of_the_attributes_with_fewer_parameters_are_not_said_to_fail() -> None:
    q = [[1, 0, 0], [0, 1, 0], [1, 1, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]]
    for root in (Independent(), HigherOrder()):
        report = check_identifiability(LatentAttributeModel(q, items="dina", root=root))
        assert report.verdict == "not established"
        assert "fewer parameters" in report.text()
    good = [*map(list, np.vstack([EYE, EYE, EYE]))]
    report = check_identifiability(LatentAttributeModel(good, items="dina", root=HigherOrder()))
    assert report.verdict == "strict"
    assert "another question" in report.text()


def test_continuous_items_need_one_pure_item_each() -> None:
    q = np.array([[1, 0], [0, 1], [1, 1]])
    assert check_q_matrix(q, "gdm").verdict == "not identified"
    assert check_q_matrix(q, "gdm", binary=False).verdict == "strict"
    rank, size = rank_and_size(q, ["gdm"] * 3, 0, normal=True)
    assert rank == size
    mixed = Blocks((Bernoulli(), 2), (Normal(), 2), (Poisson(), 1))
    model = LatentAttributeModel([[1, 1], [1, 1], [1, 0], [0, 1], [1, 1]], mixed)
    assert check_identifiability(model).first == (2, 3)
    assert (
        check_identifiability(
            LatentAttributeModel([[1, 0], [0, 1], [1, 1], [1, 1], [1, 1]], mixed)
        ).verdict
        != "strict"
    )


def test_a_fit_is_judged_at_its_estimate() -> None:
    """Where effects of two attributes are equal and opposite, the one item that is left does not
    tell profiles apart.
    """
    q = [[1, 0], [0, 1], [1, 0], [0, 1], [1, 1]]
    model = LatentAttributeModel(q, attribute_names=("a", "b"), item_names=tuple("vwxyz"))
    graph = torch.tensor(q, dtype=F64)
    truth = {
        "loadings": 3 * graph,
        "intercepts": -1.5 * graph.sum(-1),
        "profiles": torch.full((4,), 0.25, dtype=F64),
    }
    result = fit(
        model,
        Program(model, None, 800).simulate(truth, 1)["items"],
        EM(tolerance=1e-5, parameter_tolerance=1.0),
        num_restarts=1,
    )
    for effects, verdict in (
        ((1.0, 0.5), "strict"),
        ((1.0, -1.0), "generic"),
        ((1.0, 1.0), "generic"),
    ):
        loadings = result.params["loadings"].clone()
        loadings[4] = torch.tensor(effects, dtype=F64)
        moved = dataclasses.replace(result, params=result.params | {"loadings": loadings})
        report = check_identifiability(moved)
        assert report.verdict == verdict
        assert report.attribute_names == ("a", "b")
        assert report.item_names == tuple("vwxyz")


def test_bad_input() -> None:
    for q, words in (
        ([[1, 2], [0, 1]], "0 and 1"),
        ([[1, 0], [1, 0]], "empty column: attribute 1"),
        ([[1, 1], [0, 0]], "empty row: item 1"),
        ([1, 0], "table"),
        ("Q", "table"),
    ):
        with pytest.raises(ValueError, match=words):
            check_q_matrix(q)
    with pytest.raises(ValueError, match="items must be of"):
        check_q_matrix([[1]], "dena")
    with pytest.raises(ValueError, match="one for each of 2 items"):
        check_q_matrix([[1, 0], [0, 1]], ["dina"])
    with pytest.raises(ValueError, match="attribute_names must hold 2"):
        check_q_matrix([[1, 0], [0, 1]], attribute_names=["a"])
    frame = pd.DataFrame([[1, 0], [0, 1]], columns=["a", "b"], index=["x", "y"])
    assert check_q_matrix(frame).attribute_names == ("a", "b")
    assert check_q_matrix(frame).item_names == ("x", "y")


def test_negative_binomial_items_are_counts() -> None:
    model = LatentAttributeModel([[1, 0], [0, 1], [1, 1]], NegativeBinomial())
    assert check_identifiability(model).verdict == "strict"


def test_parameters_are_counted_over_the_profiles_of_a_hierarchy() -> None:
    """Failed before: 17 parameters against 15 free shares, where there are 13."""
    matrix = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]]
    found = check_identifiability(
        LatentAttributeModel(matrix, items="saturated", root=Hierarchy([(0, 1), (1, 2)]))
    )
    assert not [reason for reason in found.reasons if "free shares of patterns" in reason]
    free = check_identifiability(LatentAttributeModel(matrix, items="saturated"))
    assert (
        "There are 21 parameters, and 4 right-wrong items have only 15 free shares of patterns."
        in free.reasons
    )
