"""Recovery and use of columns, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from support.files import case

from inference.inspection import column_recovery
from inference.inspection.dictionary import used_columns
from inference.structures.dictionary.decoders import unit_columns
from ppl_models.datasets import paired_dictionary

F64 = torch.float64


def test_recovery_by_hand() -> None:
    truth = paired_dictionary(5.0, 2, 6, seed=0)
    inner = (truth.T @ truth)[torch.tensor([0, 2]), torch.tensor([1, 3])]
    torch.testing.assert_close(torch.rad2deg(torch.acos(inner)), torch.full((2,), 5.0, dtype=F64))
    turned = 3.0 * truth[:, [2, 0, 1, 3]]
    score = column_recovery(turned, truth)
    assert score.is_full
    assert score.match == (1, 2, 0, 3)
    middle = torch.stack([truth[:, 0] + truth[:, 1], truth[:, 2], truth[:, 3]], 1)
    score = column_recovery(middle, truth)
    assert score.num_recovered == 3  # the midpoint passes for one of the two
    assert sorted(score.match)[0] == -1
    angles = score.angle[~score.angle.isnan()]
    assert float(angles.max()) == pytest.approx(2.5, abs=1e-6)
    assert score.error == pytest.approx((2 * math.sin(math.radians(1.25))) ** 2, rel=1e-6)
    flipped = column_recovery(-truth, truth)
    assert flipped.num_recovered == 0


def test_used_columns() -> None:
    truth, rows, _ = case(num_rows=100)
    away = torch.randn(12, 1, generator=torch.Generator().manual_seed(0), dtype=F64)
    away -= truth @ torch.linalg.lstsq(truth, away).solution
    assert used_columns(torch.cat([unit_columns(away), truth], 1), rows) == list(range(1, 9))
