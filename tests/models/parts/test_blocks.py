"""Families of the columns of a data frame, as they look."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ppl_models import Bernoulli, Blocks, Categorical, Mixture, Normal, Ordinal, Poisson


def people() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "income": [31_000.5, 52_000.0, np.nan, 28_000.0],
            "height": [1.7, 1.8, 1.6, 1.7],
            "visits": [0.0, 7.0, 1.0, 12.0],
            "smokes": [0, 1, 1, 0],
            "town": ["north", None, "south", "north"],
            "street": ["a", "b", "c", "a"],
            "rating": [4, 5, 3, 4],
        }
    )


def test_columns_are_taken_as_they_look() -> None:
    found = Blocks.from_frame(people())
    town, street = (
        Categorical.from_frame(people()[["town"]]),
        Categorical.from_frame(people()[["street"]]),
    )
    assert found == Blocks(
        (Normal(), 2), (Poisson(), 1), (Bernoulli(), 1), (town, 1), (street, 1), (Normal(), 1)
    )
    assert Blocks.from_frame(pl.from_pandas(people())) == found
    table, names = Mixture(2, found).check_data(people())
    assert names == tuple(people().columns)
    assert table[:, 4].nan_to_num(-1).tolist() == [0, -1, 1, 0]


def test_what_only_looks_like_that_is_said() -> None:
    scale = Ordinal((6,), link="cumulative")
    assert Blocks.from_frame(people(), {"rating": scale, "visits": Normal()}).parts[-1] == (
        scale,
        1,
    )
    assert Blocks.from_frame(people(), {"visits": Normal()}).parts[0] == (Normal(), 3)


@pytest.mark.parametrize(
    ("data", "families", "words"),
    [
        (np.zeros((3, 2)), None, "a data frame was expected, got ndarray"),
        (people(), {"age": Normal()}, "'age' is no column of the frame, which has 'income'"),
        (people(), {"visits": "normal"}, "each part is a pair"),
        (pd.DataFrame({"name": [str(i) for i in range(60)]}), None, "name"),
    ],
)
def test_mistakes_are_named(data, families, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Blocks.from_frame(data, families)
