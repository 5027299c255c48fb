"""Families of columns read off their values, and models whose width is read off the data."""

from __future__ import annotations

import dataclasses
import warnings
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from inference import fit
from ppl_models import (
    Bernoulli,
    Blocks,
    Categorical,
    Covariates,
    DeepDiscreteEncoder,
    DeepNoisyOr,
    FactorAnalysis,
    GaussianFactorization,
    HiddenMarkov,
    LatentAttributeModel,
    Mixture,
    MultivariateNormal,
    NegativeBinomial,
    NegativeBinomialFactorization,
    NoisyOr,
    Normal,
    Ordinal,
    Poisson,
    PoissonFactorization,
    SparseCoding,
    UsageFactorization,
    items_of,
)
from ppl_models.data.frames import row_names
from ppl_models.data.items import described, refuse_lying
from ppl_models.data.tables import CodesWarning


def people(rows: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "income": rng.normal(30_000, 5_000, rows),
            "height": [None, *rng.normal(1.7, 0.1, rows - 1)],
            "visits": [0, 7, *rng.poisson(rng.choice([1, 6], rows - 2))],
            "smokes": rng.integers(0, 2, rows),
            "married": rng.random(rows) < 0.5,
            "town": ["north", None, *rng.choice(["north", "south"], rows - 2)],
            "sex": [1, 2, *rng.integers(1, 3, rows - 2)],
            "grade": pd.Categorical(
                ["low", "mid", "high", *rng.choice(["low", "mid", "high"], rows - 3)],
                ["low", "mid", "high"],
                ordered=True,
            ),
            "rating": [1, 2, 3, 4, 5, *rng.integers(1, 6, rows - 5)],
        }
    )


def read(frame, responses=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CodesWarning)
        return items_of(frame, responses)


def test_columns_are_taken_for_what_they_hold() -> None:
    frame = people()
    named = Categorical(levels=(("north", "south"), ("1", "2")))
    ordered = Ordinal(levels=(("low", "mid", "high"), ("1", "2", "3", "4", "5")))
    expected = Blocks((Normal(), 2), (Poisson(), 1), (Bernoulli(), 2), (named, 2), (ordered, 2))
    found = read(frame)
    assert found == expected
    assert read(pl.from_pandas(frame.drop(columns="grade"))) == Blocks(
        *expected.parts[:-1], (Ordinal(levels=(("1", "2", "3", "4", "5"),)), 1)
    )
    table, names = Mixture(2, found).check_data(frame)
    assert names == tuple(frame.columns)
    assert table[:3, 5].isnan().tolist() == [False, True, False]
    assert described(found, names) == (
        "measurements: income, height; counts: visits; yes-no: smokes, married; categories: town,"
        " sex; ordered categories: grade, rating"
    )


def test_one_kind_of_columns_is_one_family() -> None:
    assert items_of(np.eye(12)) == Bernoulli()
    assert items_of(torch.randn(9, 3)) == Normal()
    assert described(Bernoulli(), ["a", "b"]) == "all yes-no"


def test_categories_of_an_array_are_codes() -> None:
    rng = np.random.default_rng(0)
    answers = rng.integers(0, 3, (60, 2))
    answers[:, 0] = 1 + answers[:, 0] % 2
    with pytest.warns(CodesWarning, match="column '1': whole numbers of an array, measurements"):
        assert items_of(answers + [0, 1]) == Normal()
    assert read(answers - [1, 0]) == Blocks(
        (Bernoulli(), 1), (Ordinal(levels=(("0", "1", "2"),)), 1)
    )
    with pytest.warns(CodesWarning, match="holds two values only, 1 and 2"):
        Mixture(2).for_data(answers[:, :1]).check_data(answers[:, :1])


def test_what_a_column_is_can_be_said() -> None:
    frame = people()[["rating", "visits", "town"]]
    steps = partial(Ordinal.from_frame, link="adjacent")
    found = items_of(frame, {"rating": steps, "visits": NegativeBinomial()})
    assert found.parts[0] == (steps(frame[["rating"]]), 1)
    assert found.parts[1] == (NegativeBinomial(), 1)
    own = Categorical(levels=(("north", "south", "west"),))
    assert items_of(frame[["town"]], {"town": own}) == Blocks((own, 1)).parts[0][0]


def test_doubtful_columns_are_named_with_how_to_decide() -> None:
    with pytest.warns(CodesWarning) as caught:
        items_of(people())
    (words,) = [str(found.message) for found in caught]
    assert "column 'rating': a short run of whole numbers, taken for ordered categories" in words
    assert "items_of(data, {'rating': Normal()})" in words
    with pytest.warns(CodesWarning, match="numbers that count the rows, taken for measurements"):
        items_of(pd.DataFrame({"place": range(1, 30)}))
    with pytest.warns(CodesWarning, match="few whole numbers, taken for measurements"):
        items_of(pd.DataFrame({"answer": [1, 2, 4, 5] * 5}))


@pytest.mark.parametrize("codes", [(1, 2), (0, 2), (-1, 1)])
def test_two_whole_numbers_are_never_measurements(codes) -> None:
    """Failed before: codes of two answers were normal, or counts, with a tick beside them."""
    found = items_of(pd.DataFrame({"answer": np.resize(codes, 20)}))
    assert found == Categorical(levels=((str(codes[0]), str(codes[1])),))


@pytest.mark.parametrize(
    ("data", "responses", "words"),
    [
        (np.zeros(3), None, "a table \\(rows, items\\) was expected"),
        (people().iloc[:, :0], None, "a table with columns was expected"),
        (people(), {"age": Normal()}, "'age' is no column of the table; its columns are income"),
        (people(), {"visits": "normal"}, "column 'visits': a family such as"),
        (people(), {"visits": Poisson}, "column 'visits': a family such as"),
        (people(), {"town": Poisson()}, "column 'town' holds texts, which counts cannot be"),
        (
            pd.DataFrame({"name": [f"n{i}" for i in range(60)]}),
            None,
            "column 'name' holds 60 different texts, too many for categories",
        ),
    ],
)
def test_mistakes_are_named(data, responses, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        items_of(data, responses)


# ---------------------------------------------------------------- models that wait for data

BITS = np.resize([0, 1, 1, 0, 1], (40, 6))
COUNTS = np.arange(240).reshape(40, 6) % 7
OPEN = {  # a model without a width, and data
    "mixture": (Mixture(3), BITS),
    "mixture of normals": (Mixture(3, Normal()), COUNTS),
    "whole rows": (Mixture(2, MultivariateNormal()), COUNTS),
    "encoder": (DeepDiscreteEncoder(latent_sizes=(3, 1)), BITS),
    "attributes": (LatentAttributeModel(num_attributes=2), BITS),
    "noisy-or": (NoisyOr(num_latents=2), BITS),
    "deep noisy-or": (DeepNoisyOr(latent_sizes=(2, 1)), BITS),
    "counts": (PoissonFactorization(num_components=2), COUNTS),
    "dispersed counts": (NegativeBinomialFactorization(num_components=2), COUNTS),
    "usage": (UsageFactorization(num_components=2), COUNTS),
    "factorization": (GaussianFactorization(num_components=2), COUNTS),
    "factors": (FactorAnalysis(num_components=2), COUNTS),
    "codes": (SparseCoding(num_columns=4, sparsity=2), COUNTS),
    "chain": (HiddenMarkov(2), BITS),
}
FIELDS = {"mixture": "component", "encoder": "response", "attributes": "response"}


@pytest.mark.parametrize("kind", OPEN)
def test_a_width_is_read_off_the_data(kind: str) -> None:
    model, data = OPEN[kind]
    whole = model.for_data(data)
    assert model.waits_for_data
    assert not whole.waits_for_data
    assert whole.num_items == 6
    assert model.for_data(pd.DataFrame(data)) == whole
    assert whole.for_data(None) is whole
    own = {"chain": "emission"} | FIELDS
    if kind in own:
        assert getattr(whole, own[kind]) == Bernoulli()
    given = dataclasses.replace(model, num_items=6)
    assert whole == given or kind in ("chain", "mixture")
    assert given.check_data(data)[1] == whole.check_data(data)[1]


@pytest.mark.parametrize("kind", OPEN)
def test_without_data_an_open_model_says_what_is_missing(kind: str) -> None:
    model, data = OPEN[kind]
    wanted = f"{type(model).__name__}: num_items was left open"
    for call in (lambda: model(num_rows=4), lambda: model.check_data(data)):
        with pytest.raises(ValueError, match=wanted):
            call()


def test_a_model_of_given_width_keeps_its_usual_family() -> None:
    assert Mixture(2, num_items=3) == Mixture(2, Normal(), 3)
    assert HiddenMarkov(2, num_items=3) == HiddenMarkov(2, Normal(), 3)
    assert DeepDiscreteEncoder(5, (2,)).response == Bernoulli()
    assert Mixture(2, Categorical.from_frame(people()[["town", "sex"]])).num_items == 2


def test_covariates_are_no_items() -> None:
    frame = people()[["smokes", "married", "income"]]
    model = Mixture(2, covariates="income")
    for data in (frame, frame.astype(float).to_numpy()):
        whole = model.for_data(data)
        assert (whole.num_items, whole.component) == (2, Bernoulli())


def test_all_forms_of_sequences_have_their_width() -> None:
    steps = BITS[:20].astype(float)
    frame = (
        pd.DataFrame(steps).rename(columns=str).assign(sequence=[0] * 12 + [1] * 8, time=range(20))
    )
    wanted = HiddenMarkov(2, Bernoulli(), 6)
    for data in (
        frame,
        steps,
        [steps[:12], steps[12:]],
        [pd.DataFrame(steps[:12]), pd.DataFrame(steps[12:])],
        steps.reshape(2, 10, 6),
        {"items": torch.tensor(steps.reshape(2, 10, 6)), "length": [10, 10]},
    ):
        assert HiddenMarkov(2).for_data(data) == wanted
    assert HiddenMarkov(2, Normal()).for_data(steps).num_items == 6


def test_a_different_whole_number_in_each_row_is_asked_about() -> None:
    """Failed before: numbers of persons were measurements, and nothing was said."""
    numbers = np.random.default_rng(0).permutation(np.arange(1001, 1041))
    frame = pd.DataFrame({"caseid": numbers, "x": np.random.default_rng(1).normal(size=40)})
    with pytest.raises(ValueError, match="'caseid' holds a different whole number in each row"):
        items_of(frame)
    assert items_of(frame, {"caseid": Normal()}) == Normal()
    for name in ("income", "fluid", "acid"):
        with pytest.warns(CodesWarning, match=f"{name!r}: a different whole number in each row"):
            assert items_of(frame.rename(columns={"caseid": name})) == Normal()
    for name in ("ID", "student_id", "Nr", "SubjID", "case-no"):
        with pytest.raises(ValueError, match="in each row"):
            items_of(frame.rename(columns={"caseid": name}))
    assert items_of(frame.assign(caseid=[1001, *numbers[1:]])[["x"]]) == Normal()


def test_names_of_rows_that_repeat_are_named() -> None:
    texts = [f"p{i}" for i in range(39)] + ["p3"]
    with pytest.raises(ValueError, match="39 different texts, .* and 'p3' more than once"):
        items_of(pd.DataFrame({"name": texts, "x": np.zeros(40)}))


def test_lists_and_names_of_files_are_no_tables() -> None:
    with pytest.raises(ValueError, match="column 'x' holds entries such as .1, 2.: a number or"):
        items_of(pd.DataFrame({"x": [[1, 2]] * 4}))
    with pytest.raises(ValueError, match="a table was expected, got 'answers.csv': read the file"):
        items_of("answers.csv")


# ---------------------------------------------------------------- tables that lie on their side


def unlike_columns() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, 40),
            "income": rng.normal(size=40).round(3),
            "town": rng.choice(["Ulm", "Bern"], 40),
            "smokes": rng.choice(["yes", "no"], 40),
        }
    )


def test_a_table_of_unlike_columns_on_its_side_is_refused() -> None:
    table = unlike_columns()
    assert items_of(table) is not None  # as it should lie
    for lying in (table.T, table.T.reset_index(drop=True), table.mask(table == "Ulm").T):
        with pytest.raises(ValueError, match=r"the table lies on its side; transpose it, data\.T"):
            items_of(lying)
        with pytest.raises(ValueError, match="lies on its side"):
            fit(Mixture(2), lying)


@pytest.mark.parametrize(
    "table",
    [
        unlike_columns().T.iloc[:2],  # numbers alone: nothing says which way they lie
        unlike_columns().T.iloc[2:],  # texts alone
        unlike_columns().T.iloc[:, :1],  # one column
        pd.DataFrame({"a": ["1", "x", "2"], "b": ["y", "3", "z"]}),  # both kinds in a row
        pd.DataFrame({"a": ["x", "y", "x"], "b": [1, 2, 3]}),
    ],
    ids=["numbers", "texts", "one-column", "mixed-rows", "columns-of-one-kind"],
)
def test_a_table_of_which_that_is_not_sure_is_not_refused(table: pd.DataFrame) -> None:
    refuse_lying(table)


def test_a_wide_table_of_few_rows_is_refused_as_on_its_side() -> None:
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 4)), columns=[*"abcd"])
    with pytest.raises(ValueError, match=r"4 rows of 60 columns: the table lies on its side"):
        fit(Mixture(2), table.T)
    types = [f"A[C>A]{base}" for base in "ACGT"]
    counts = pd.DataFrame(np.random.default_rng(0).poisson(9, (4, 8)), types).add_prefix("s")
    with pytest.raises(ValueError, match=r"types of mutation, such as 'A\[C>A\]A'.*data\.T"):
        fit(PoissonFactorization(num_components=2), counts)
    assert fit(PoissonFactorization(num_components=2), counts.T).model.num_items == 4


@pytest.mark.parametrize(
    ("column", "value"), [("region", "east"), ("smoker", "maybe"), ("mood", "9")]
)
def test_categories_that_were_not_seen_are_named_before_any_work(column: str, value: str) -> None:
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=80)
    rows = pd.DataFrame(
        {
            "region": np.array([*"nsw"])[(kind + rng.integers(2, size=80))],
            "smoker": np.where(rng.random(80) < 0.2 + 0.6 * kind, "yes", "no"),
            "mood": pd.Categorical((1 + kind + rng.integers(2, size=80)).astype(str), ordered=True),
        }
    )
    found = fit(Mixture(2), rows)
    new = rows.head(3).astype(object)
    new.loc[1, column] = value
    asked = (found.predict, found.score, found.posterior_frame, found.log_likelihood_rows)
    for ask in asked:
        with pytest.raises(ValueError, match=f"column '{column}'.*'{value}' is unknown"):
            ask(new)


# ---------------------------------------------------------------- names of rows


def measured() -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["x", "y"])


NUMBERED = [("Unnamed: 0", range(40)), ("Unnamed: 0", range(1, 41)), ("X", range(1, 41))]
NAMED = [("sample", [f"s{i}" for i in range(40)]), ("", [f"s{i}" for i in range(40)])]


@pytest.mark.parametrize(("name", "entries"), [*NUMBERED, *NAMED, ("id", range(1001, 1041))])
def test_a_first_column_that_names_the_rows_is_no_item(name, entries) -> None:
    frame = measured()
    frame.insert(0, name, list(entries))
    assert row_names(frame) == name
    assert items_of(frame) == Normal()
    assert Mixture(2).for_data(frame) == Mixture(2).for_data(measured())
    found, names = Mixture(2).for_data(frame).check_data(frame)
    assert names == ("x", "y")
    assert found.shape == (40, 2)
    assert Mixture(2).for_data(frame).read_as(frame) == {"row": name}


@pytest.mark.parametrize(
    ("name", "entries", "words"),
    [
        ("Unnamed: 0", [1, *range(1, 40)], "'Unnamed: 0' holds entries under no name, as of rows"),
        (
            "id",
            [1, *range(1, 40)],
            "'id' holds 39 different whole numbers in 40 rows",
        ),
        (
            "id",
            [7, *range(1, 40)],
            "'id' holds 39 different whole numbers in 40 rows",
        ),
        ("person_id", [*range(5, 44), 1], "'person_id' holds a different whole number in each row"),
    ],
)
@pytest.mark.parametrize("component", [None, Normal()], ids=["open", "normal"])
def test_numbers_that_may_name_rows_are_neither_items_nor_dropped(
    name, entries, words, component
) -> None:
    """Failed before: a mixture of normals took them for measurements, and said nothing."""
    frame = measured()
    frame.insert(0, name, entries)
    model = Mixture(2) if component is None else Mixture(2, component)
    with pytest.raises(ValueError, match=words):
        model.for_data(frame)
    assert Mixture(2, Normal(), 3).check_data(frame)[1] == (name, "x", "y")


def test_a_table_without_rows_does_not_lie_on_its_side() -> None:
    with pytest.raises(ValueError, match="data: at least one row was expected, got none"):
        Mixture(2).for_data(measured()[:0])


def test_names_and_numbers_that_are_data_stay() -> None:
    frame = measured()
    for name, entries in (("dose", range(1, 41)), ("X", np.arange(40) ** 2), ("town", ["a"] * 40)):
        first = frame.copy()
        first.insert(0, name, list(entries))
        assert row_names(first) is None
    named = frame.set_axis(pd.Index([f"s{i}" for i in range(40)], name="sample"))
    named.insert(0, "name", [f"n{i}" for i in range(40)])
    assert row_names(named) is None  # the index names the rows already


def test_texts_among_covariates_are_coded() -> None:
    """Failed before: "use Covariates.from_frame"."""
    rng = np.random.default_rng(0)
    table = measured().assign(sex=rng.choice(["m", "f"], 40), age=rng.normal(40, 5, 40))
    known = Covariates.from_frame(table[["sex", "age"]])
    assert known.terms == ("intercept", "sex=m", "age")  # the first category is the reference
    for given in (("sex", "age"), ["sex", "age"], table[["sex", "age"]]):
        assert Mixture(2, covariates=given).for_data(table).covariates == known
        assert Mixture(2, Normal(), 2, covariates=given).for_data(table).covariates == known
    assert Mixture(2, covariates=table["sex"]).covariates == Covariates.from_frame(table[["sex"]])
    with pytest.raises(ValueError, match="expected among the columns, beside the items"):
        Mixture(2, covariates=table[["sex"]]).for_data(measured())
