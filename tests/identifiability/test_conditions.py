"""Separation against brute force, and exclusive children."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from inference.identifiability import conditions
from inference.identifiability.conditions import exclusive_children, rest_of, separate, undetermined


def least_by_brute_force(rows: np.ndarray) -> float:
    """The least distance between two different configurations."""
    codes = np.array(list(itertools.product((0, 1), repeat=rows.shape[1])))
    values = codes @ rows.T
    return min(
        float(np.abs(values[i] - values[j]).max(initial=0.0))
        for i, j in itertools.combinations(range(len(codes)), 2)
    )


# ---------------------------------------------------------------- against brute force


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_separation_agrees_with_brute_force_by_both_routes(data: st.DataObject) -> None:
    num_latents, num_rows = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 4))
    values = st.sampled_from([0.0, 0.0, 1.0, -1.0, 2.0, 0.5, -1.75])
    rows = data.draw(arrays(float, (num_rows, num_latents), elements=values))
    expected = least_by_brute_force(rows)
    for most in (conditions.MAX_ENUMERATED, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(conditions, "MAX_ENUMERATED", most)
            found = separate(rows)
            quick = separate(rows, with_margin=False)
        assert found.holds is (expected > 0)
        assert quick.holds is found.holds
        assert found.margin == pytest.approx(expected, abs=1e-6)
        assert found.is_exact
        assert np.abs(rows @ found.difference).max(initial=0.0) == pytest.approx(expected, abs=1e-6)
        assert found.difference.any()
    if len(undetermined(rows != 0)) == 0:
        assert found.holds


def test_a_bound_that_is_not_exact_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 16))
    monkeypatch.setattr(conditions, "MAX_NODES", 0)
    found = separate(rows)
    assert found.holds  # by rank
    assert found.margin <= found.distance
    monkeypatch.undo()
    exact = separate(rows)
    assert found.margin <= exact.margin + 1e-6
    assert exact.margin <= found.distance + 1e-6


# ---------------------------------------------------------------- conditions one by one


def test_exclusive_children_and_what_is_left() -> None:
    graph = np.array([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [1, 1]], dtype=bool)
    loadings = np.array([[3, 0], [1, 0], [2, 0], [0, 1], [0, 1], [1, 1]], dtype=float)
    assert [children.tolist() for children in exclusive_children(graph)] == [[0, 1, 2], [3, 4]]
    assert rest_of(graph, loadings).tolist() == [0, 5]  # the largest of three is kept
