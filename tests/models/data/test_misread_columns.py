"""Columns that would be misread are named, with what to write; ordinary ones pass in silence."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from support.odd_columns import LABELS, NUMBERS, ORDINARY, REFUSED, some_rows

from ppl_models import Categorical, Covariates, Normal, Ordinal, items_of
from ppl_models.data.tables import CodesWarning, as_items, as_table

SEEDS = range(40)


def table_of(column, rng, name="x"):
    return pd.DataFrame({"a": rng.normal(size=len(column)), name: column})


def said_of(frame, **responses):
    """What is said of a table whose families are read off its columns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        family = items_of(frame, responses)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        as_items(frame, frame.shape[1], family)
    assert all(issubclass(found.category, CodesWarning) for found in caught)
    return [str(found.message) for found in caught]


@pytest.mark.parametrize("kind", [*NUMBERS, *LABELS])
def test_codes_are_named(kind):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        column, words = (NUMBERS | LABELS)[kind](rng, some_rows(rng))
        frame = table_of(column, rng)
        said = said_of(frame, **({"x": Normal()} if kind == "two codes" else {}))
        assert any("column 'x'" in text and all(word in text for word in words) for text in said), (
            seed,
            words,
            said,
        )
        assert not any("column 'a'" in text for text in said), seed


@pytest.mark.parametrize("kind", REFUSED)
def test_texts_and_whole_numbers_that_are_no_measurements_are_refused(kind):
    """By all that reads a frame: families read off its columns, tables of numbers, covariates."""
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        column, words = REFUSED[kind](rng, some_rows(rng))
        frame = table_of(column, rng)
        readers = (
            [said_of, as_table]
            if kind == "beyond 2**53"
            else [said_of, as_table, Covariates.from_frame]
        )
        for reader in readers:
            with pytest.raises(ValueError, match="column 'x'") as refused:
                reader(frame)
            assert all(word in str(refused.value) for word in words), (seed, reader, refused.value)


@pytest.mark.parametrize("kind", ORDINARY)
def test_ordinary_columns_pass_in_silence(kind):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        column = ORDINARY[kind](rng, some_rows(rng))
        assert said_of(table_of(column, rng)) == [], seed


def test_a_pandas_categorical_says_that_its_texts_are_categories():
    shares = pd.DataFrame({"x": pd.Categorical(["10%", "20%"] * 6)})
    assert items_of(shares).category_names(1)[0] == ("10%", "20%")
    assert Categorical.from_frame(shares.astype(str)).category_names(1)[0] == (
        "10%",
        "20%",
    )  # asked for
    many = pd.DataFrame({"x": [f"{share}%" for share in range(60)]})
    with pytest.raises(ValueError, match="column 'x' holds percentages, such as '0%'"):
        Categorical.from_frame(many)


def test_covariates_name_categories_that_are_written_in_several_ways():
    given = pd.DataFrame({"sex": ["male", "Male", "female", "female"], "age": [3.0, 4.0, 6.0, 9.0]})
    with pytest.warns(CodesWarning, match="column 'sex' holds 'Male', 'male' as 2 categories"):
        Covariates.from_frame(given).check(given)


def test_a_code_among_ordered_categories_is_named():
    frame = pd.DataFrame({"x": [1, 2, 3, -99] * 3})
    with pytest.warns(
        CodesWarning,
        match=(
            r"column 'x' holds -99 beside whole numbers from 1 to 3, and -99 would be taken for "
            r"the lowest or highest"
        ),
    ):
        as_items(frame, 1, Ordinal.from_frame(frame, link="cumulative"))
    as_items(frame, 1, Categorical.from_frame(frame))  # a category of its own


@pytest.mark.parametrize("kind", ["int64", "uint64", "Int64", "object"])
def test_whole_numbers_beyond_double_precision_are_refused_in_every_dtype(kind):
    numbers = pd.Series(2**60 + np.arange(9)).astype(kind)
    with pytest.raises(
        ValueError,
        match=(
            r"column 'x': whole numbers of at most 9,007,199,254,740,992 .* got "
            r"1152921504606846976: leave the column out"
        ),
    ):
        as_table(pd.DataFrame({"x": numbers}))
    with pytest.raises(ValueError, match="data: whole numbers of at most"):
        as_table(numbers.to_numpy()[:, None])
    as_table(pd.DataFrame({"x": pd.Series(2**53 - np.arange(9)).astype(kind)}))
    as_table(np.array([[2.0**60]]))  # a measurement


@pytest.mark.parametrize("missing", [None, pd.NA, np.nan])
def test_every_mark_of_a_missing_entry_is_one(missing):
    """Failed before: "float() argument must be a string or a real number, not 'NAType'"."""
    objects = pd.DataFrame({"a": [1.0, 2.0, 3.0], "x": pd.Series([1, missing, 2.5], dtype=object)})
    for data in (objects, objects.to_numpy(), objects.to_numpy().tolist()):
        table, _ = as_table(data)
        assert table.isnan().tolist() == [[False, False], [False, True], [False, False]]
    assert Covariates.from_frame(objects).levels == ((), ())  # numbers, and no categories
    assert items_of(objects) == Normal()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_one_row_backwards_is_a_row(kind):
    """Failed before: "At least one stride in the given numpy array is negative"."""
    row = np.array([[1.0, 2.0, 3.0]], kind)
    assert as_table(row[::-1])[0].tolist() == row.tolist()
    assert as_table(row[::-1, ::-1])[0].tolist() == [[3.0, 2.0, 1.0]]


@pytest.mark.parametrize("day", ["05 Jan 2020", "5. March 2021", "Jan 5, 2020", "31-DEC-19"])
def test_dates_with_names_of_months(day):
    with pytest.raises(ValueError, match=f"column 'x' holds dates, such as '{day}'"):
        items_of(pd.DataFrame({"x": [day, None, day]}))
    assert items_of(pd.DataFrame({"x": ["may", "june"] * 5})).category_names(1)[0]
