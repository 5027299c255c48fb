"""Tables of mixed columns: what they hold, and what they say of their columns."""

from __future__ import annotations

import numpy as np
import pytest

from ppl_models.datasets import load_diabetes_table, load_timss, load_timss_table
from ppl_models.datasets.mixed_tables import MixedTable


def check(table: MixedTable, num_rows: int, num_columns: int) -> None:
    assert table.data.shape == (num_rows, num_columns)
    assert len(table.names) == len(set(table.names)) == len(table.num_values) == num_columns
    assert np.isfinite(table.data).all()
    for column, size in zip(table.data.T, table.num_values, strict=True):
        assert size == 0 or set(np.unique(column)) == set(range(size))


def test_diabetes():
    table = load_diabetes_table()
    check(table, 442, 11)
    assert table.num_values.count(2) == 1
    assert table.data[:, table.names.index("sex")].mean() == pytest.approx(207 / 442)
    assert table.data[:, -1].mean() == pytest.approx(152.1335, abs=1e-4)  # as published


@pytest.mark.data("timss2019_dde.npz")
def test_timss():
    table = load_timss_table(4)
    check(table, 435, 8)
    whole = load_timss()
    assert np.array_equal(table.data[:, 2], whole.correct[:, 2])
    assert np.array_equal(table.data[:, 6], whole.log_seconds[:, 2])


def test_refusals():
    with pytest.raises(ValueError, match="num_items must be at most 29"):
        load_timss_table(30)
