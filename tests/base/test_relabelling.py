"""Columns matched against every assignment, and draws renamed to one name."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.encoder_names import seeds

from inference.base.relabelling import match_columns


@settings(max_examples=30, deadline=None)
@given(seed=seeds, num_columns=st.integers(1, 5), num_extra=st.integers(0, 2), signs=st.booleans())
def test_match_columns_agrees_with_every_assignment(seed: int, num_columns: int, num_extra: int, signs: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    estimate = torch.randn(4, num_columns + num_extra, dtype=torch.float64, generator=generator)
    reference = torch.randn(4, num_columns, dtype=torch.float64, generator=generator)
    matching = match_columns(estimate, reference, signs)
    costs = []
    for chosen in itertools.permutations(range(num_columns + num_extra), num_columns):
        picked = estimate[:, list(chosen)]
        as_is, negated = (picked - reference).square().sum(0), (picked + reference).square().sum(0)
        costs.append(float((torch.minimum(as_is, negated) if signs else as_is).sum()))
    assert matching.cost == pytest.approx(min(costs))
    moved = torch.where(matching.flips, -1.0, 1.0) * estimate[:, matching.permutation]
    assert float((moved - reference).square().sum()) == pytest.approx(matching.cost)
