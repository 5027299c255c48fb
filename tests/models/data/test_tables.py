"""Rows of several variates: whatever a table may hold, a variate may."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from ppl_models.data.tables import as_table, as_variates

FIRST = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "second",
    [
        [0.5, None, 1.5],
        np.array([0.5, None, 1.5], dtype=object),
        np.ma.masked_array([0.5, 99.0, 1.5], [False, True, False]),
        pd.Series([0.5, pd.NA, 1.5], dtype=object),
        np.array([0.5, np.nan, 1.5], dtype=">f8"),
    ],
)
def test_missing_entries_of_variates(second):
    """Failed before: objects were refused, and a masked entry was taken for 99."""
    table, names = as_variates("InClassNet", (FIRST, second), (1, 1), may_miss=True)
    expected = torch.tensor([[1.0, 0.5], [2.0, torch.nan], [3.0, 1.5]], dtype=torch.float64)
    torch.testing.assert_close(table, expected, equal_nan=True)
    assert names == ("0", "1")
    with pytest.raises(ValueError, match="row 1, column '1' is missing"):
        as_variates("InClassNet", (FIRST, second), (1, 1), may_miss=False)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (["a", "b", "c"], "variate 1: numbers were expected, got 'a'"),
        (["1%", "2%", "3%"], "variate 1: numbers were expected, got percentages"),
        ([1, 2**53 + 1, 3], "variate 1: whole numbers of at most 9,007,199,254,740,992"),
        ([[1], [2, 3], [4]], "variate 1: .*rows of unequal length"),
        ([1j, 2, 3], "variate 1: real numbers were expected, got dtype complex128"),
    ],
)
def test_entries_of_variates_that_are_no_numbers(second, words):
    with pytest.raises(ValueError, match=words):
        as_variates("InClassNet", (FIRST, second), (1, 1), may_miss=False)
    column = [[entry] for entry in second] if not isinstance(second[0], list) else second
    with pytest.raises(ValueError, match=words.removeprefix("variate 1: ")):
        as_table(column)


def test_bytes_of_images_stay_bytes():
    images = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)[::-1]
    rows, _ = as_variates("InClassNet", (images, FIRST), ((2, 2), 1), may_miss=False)
    assert rows["variate_0"].dtype == torch.uint8
    np.testing.assert_array_equal(rows["variate_0"].numpy(), images)
