"""Sequences of items: every form a user may pass is the same packed tensor, and what does not fit
is named.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from ppl_models import Bernoulli, HiddenMarkov, MultivariateNormal, Normal, Poisson
from ppl_models.data.sequences import (
    as_item_sequences,
    as_trajectories,
    in_places,
    inside_of,
    places_in,
)

ONE, TWO = np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]]), np.array([[7.0, 8.0]])


def packed(data: Any, num_items: int = 2, for_fit: bool = True) -> Tensor:
    return as_item_sequences(data, num_items, Normal(), for_fit)[0]


def same(found: Tensor, expected: Tensor) -> None:
    assert torch.equal(found.nan_to_num(nan=-1e9), expected.nan_to_num(nan=-1e9))


def test_every_form_is_one_packed_tensor() -> None:
    expected = torch.full((2, 3, 2), torch.inf, dtype=torch.float64)
    expected[0], expected[1, 0] = torch.tensor(ONE), torch.tensor(TWO[0])
    columns = {
        "sequence": ["b", "a", "b", "b"],
        "time": [4, 1, 3, 5],
        "x": [3.0, 7.0, 1.0, 5.0],
        "y": [np.nan, 8.0, 2.0, 6.0],
    }
    frame = pd.DataFrame(columns)
    padded = np.full((2, 3, 2), np.nan)
    padded[0], padded[1, 0] = ONE, TWO[0]
    frames = [pd.DataFrame(part, columns=["x", "y"]) for part in (ONE, TWO)]
    for data in (
        [ONE, TWO],
        (torch.tensor(ONE), torch.tensor(TWO)),
        [ONE.tolist(), TWO.tolist()],
        frame,
        frames,
        [frames[0], frames[1][["y", "x"]]],
        padded,
        torch.tensor(padded),
        {"items": padded, "length": [3, 1]},
        expected,
        frame.sort_values(["sequence", "time"], ascending=[False, True]).drop(columns="time"),
    ):
        same(packed(data), expected)
    assert as_item_sequences(frame, 2, Normal())[1] == ("x", "y")
    same(packed(ONE), torch.tensor(ONE)[None])
    same(packed(ONE[:, 0], 1), torch.tensor(ONE[:, :1])[None])
    same(packed([1.0, 3.0, 5.0], 1), torch.tensor(ONE[:, :1])[None])
    same(
        packed([[1.0, 3.0], [5.0]], 1),
        torch.tensor([[[1.0], [3.0]], [[5.0], [torch.inf]]], dtype=torch.float64),
    )


def test_gaps_in_time_are_steps_without_entries() -> None:
    found = packed(pd.DataFrame({"time": [1900, 1903, 1901], "x": [1.0, 4.0, 2.0]}), 1)
    same(found, torch.tensor([[[1.0], [2.0], [torch.nan], [4.0]]], dtype=torch.float64))


def test_empty_steps_at_an_end_are_kept_where_they_are_steps() -> None:
    table = np.array([[1.0], [np.nan], [np.nan]])
    found = packed([table, table[:1] + 1], 1)
    assert inside_of(found).sum(1).tolist() == [3, 1]
    same(packed(found, 1), found)  # checked again, the same
    assert inside_of(packed(found[:, :3], 1)).sum(1).tolist() == [
        1,
        1,
    ]  # padding of an array is none
    assert inside_of(
        packed({"items": found[:, :3].nan_to_num(posinf=np.nan), "length": [3, 1]}, 1)
    ).sum(1).tolist() == [3, 1]


WRONG: dict[str, tuple[Any, str]] = {
    "other width": ([ONE, ONE[:, :1]], "sequence 1: num_items = 2 columns were expected, got 1"),
    "no items": (np.zeros((0, 2)), "sequences were expected"),
    "empty sequence": ([ONE, ONE[:0]], "sequence 1 is empty"),
    "silent sequence": ([ONE, TWO * np.nan], "sequence 1 has no observed entry"),
    "one dim": ([ONE[0], ONE[1]], r"sequence 0: a table \(steps, num_items = 2\)"),
    "four dims": (np.zeros((1, 1, 1, 2)), "sequence 0: a table"),
    "infinite": ([ONE, np.array([[np.inf, 1.0]])], "infinity"),
    "length": ({"items": np.zeros((2, 3, 2)), "length": [3, 4]}, r"data\['length'\]"),
    "length zero": (
        {"items": np.ones((2, 3, 2)), "length": [3, 0]},
        "1 to 3 was expected, got 0 for sequence 1: leave out a sequence",
    ),
    "keys": ({"items": np.zeros((2, 3, 2)), "lengths": [3, 3]}, "a dict of 'items'"),
    "mixed kinds": ([pd.DataFrame(ONE), TWO], "sequences of one kind"),
    "other columns": (
        [pd.DataFrame(ONE, columns=["x", "y"]), pd.DataFrame(TWO, columns=["x", "z"])],
        "sequence 1: the columns of the first sequence",
    ),
}
TIMES: dict[str, tuple[Any, str]] = {
    "twice": (
        [1, 2, 2],
        (
            "every time once in a sequence was expected, but 2 of sequence 'a' is there twice,"
            " again in row 2"
        ),
    ),
    "negative": ([-1, 0, 1], "a negative one in row 0"),
    "fraction": ([1, 1.5, 2], "got 1.5 in row 1"),
    "words": (["a", "b", "c"], "column 'time': whole numbers"),
    "missing": ([1, np.nan, 2], "column 'time' must not be empty; it is in row 1"),
    "dates": ([20200101, 20200102, 20240101], "number the steps"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_named(name: str) -> None:
    data, words = WRONG[name]
    with pytest.raises(ValueError, match=words):
        packed(data)


@pytest.mark.parametrize("name", TIMES)
def test_times_that_count_no_steps_are_named(name: str) -> None:
    time, words = TIMES[name]
    with pytest.raises(ValueError, match=words):
        packed(
            pd.DataFrame(
                {"sequence": ["a"] * 3, "time": time, "x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 4.0]}
            )
        )


def test_a_sequence_without_a_name_and_values_out_of_range_are_named() -> None:
    frame = pd.DataFrame({"sequence": ["a", None], "x": [1.0, 0.0], "y": [0.0, 1.0]})
    with pytest.raises(ValueError, match="column 'sequence' must not be empty; it is in row 1"):
        packed(frame)
    with pytest.raises(ValueError, match="column 'x': Bernoulli"):
        as_item_sequences(pd.DataFrame({"x": [2.0, 1.0], "y": [0.0, 1.0]}), 2, Bernoulli())
    with pytest.raises(ValueError, match="item '1' alone is missing"):
        HiddenMarkov(2, MultivariateNormal(), 2).check_data([ONE, TWO])
    with pytest.raises(ValueError, match="at least num_states = 4 steps"):
        HiddenMarkov(4, Poisson(), 1).check_data([[1.0, 2.0, 3.0]])


SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "states": ({"num_states": 0}, "num_states must be a positive integer"),
    "class": ({"emission": Poisson}, "add parentheses"),
    "initial": ({"initial": "any"}, "initial must be one of"),
    "chances": ({"initial": (0.5, 0.4, 0.0)}, "initial must be num_states = 3 chances"),
    "sticky": ({"stickiness": -1.0}, "stickiness must be at least 0"),
    "concentration": ({"concentration": 0.5}, "concentration must be at least 1"),
    "shape": ({"allowed": np.ones((2, 3), dtype=bool)}, "allowed must be 3 rows of 3"),
    "entries": ({"allowed": np.full((3, 3), 2.0)}, "allowed must be 3 rows of 3"),
    "no way out": ({"allowed": [[1, 1, 1], [0, 0, 0], [1, 1, 1]]}, "row 1 has none"),
    "out of reach": (
        {"allowed": [[1, 1, 0], [1, 1, 0], [1, 1, 1]], "initial": (1, 0, 0)},
        "to state 2",
    ),
    "no stationary distribution": (
        {"allowed": [[1, 1, 0], [0, 1, 1], [0, 0, 1]], "initial": "stationary"},
        "none from state 1 to state 0",
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_out_of_range_are_named(name: str) -> None:
    settings, words = SETTINGS[name]
    with pytest.raises(ValueError, match=words):
        HiddenMarkov(**({"num_states": 3} | settings))


# ---------------------------------------------------------------- columns of places by their values


def steps(num: int = 3, length: int = 8) -> pd.DataFrame:
    """Rows of several animals, a day each, and a measurement."""
    rng = np.random.default_rng(0)
    columns = {
        "animal": np.repeat([f"a{i}" for i in range(num)], length),
        "day": np.tile(np.arange(1, length + 1), num),
        "x": rng.normal(size=num * length),
    }
    return pd.DataFrame(columns)


def test_units_and_counted_steps_say_where_a_row_belongs() -> None:
    """Failed before: all rows were one sequence, and animals and days were items of it."""
    frame = steps()
    canonical = frame.rename(columns={"animal": "sequence", "day": "time"})
    numbered = frame.assign(animal=frame["animal"].str[1:].astype(int))
    wide = frame.reset_index(names="Unnamed: 0")  # numbers of the rows as pandas writes them
    mixed = frame.sort_values("day").reset_index(drop=True)
    for given in (frame, numbered, wide, mixed, numbered.rename(columns={"animal": "id"})):
        found = places_in(given)
        assert found["sequence"] in ("animal", "id")
        assert found["time"] == "day"
        pd.testing.assert_frame_equal(
            in_places(given).sort_values(["sequence", "time"])[["x"]].reset_index(drop=True),
            canonical[["x"]],
        )
        model = HiddenMarkov(2).for_data(given)
        assert model.num_items == 1
        if given is not mixed:
            same(model.check_data(given)[0], model.check_data(canonical)[0])
    assert places_in(frame.rename(columns={"animal": "burst"}))["sequence"] == "burst"
    assert places_in(frame[["day", "x"]][:8]) == {"time": "day"}
    assert places_in(frame[["x"]]) == {}
    assert places_in(canonical) == {"sequence": "sequence", "time": "time"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.assign(animal=np.repeat([3, 4, 9], 8)).rename(columns={"animal": "group"}),
         "'group' holds one value after the other.*call it 'sequence'"),
        (lambda f: f[["day", "x"]], "'day' counts rows, and would be an item.*'sequence'"),
        (lambda f: f.drop(index=[3]), "'day' counts rows, and would be an item: call it 'time'"),
        (lambda f: f.assign(day=f["day"] * 0.5), "'day' counts rows"),
        (lambda f: f.assign(subject=f["animal"]), "tells sequences apart.*'animal', 'subject'"),
        (lambda f: f.assign(beep=f["day"] + 1), "counts the steps was expected, got 'day', 'beep'"),
        (lambda f: f.assign(sex=np.repeat([0, 1, 0], 8)), "'sex' holds one value in each sequence"),
    ],
    ids=["numbers", "no unit", "gap", "halves", "two units", "two counts", "constant"],
)  # fmt: skip
def test_columns_that_may_be_places_are_asked_about(change, words) -> None:
    with pytest.raises(ValueError, match=words):
        HiddenMarkov(2, Normal()).for_data(change(steps()))


def test_items_that_look_like_places_stay_where_the_model_knows_them() -> None:
    frame = steps()[["day", "x"]]
    assert HiddenMarkov(2, Normal(), 2).check_data(frame)[1] == ("day", "x")
    switches = pd.DataFrame({"on": [0, 0, 1, 1, 0, 0, 1, 1], "level": [1, 2, 2, 3, 2, 1, 1, 2]})
    assert places_in(switches) == {}


def test_places_that_would_not_be_read_are_refused() -> None:
    """In an index, or in the frames of a list, where times would be an item."""
    frame = pd.DataFrame(
        {"animal": ["b"] * 5 + ["a"] * 5, "time": [*range(5)] * 2, "x": np.arange(10.0) % 3}
    )
    for index in (["animal", "time"], ["animal"]):
        with pytest.raises(ValueError, match="'animal' is in the index.*reset_index.*'sequence'"):
            as_item_sequences(frame.set_index(index), 1, Normal())
    one = frame[:5].drop(columns="animal")
    as_item_sequences(one.set_index("time"), 1, Normal())  # rows as they stand
    for wrong in (one[::-1], one.drop(index=2)):
        with pytest.raises(ValueError, match="'time' is in the index.*a column 'time' was exp"):
            as_item_sequences(wrong.set_index("time"), 1, Normal())
    parts = [part.drop(columns="animal") for _, part in frame.groupby("animal")]
    with pytest.raises(ValueError, match="sequence 0: items alone.*got a column 'time'"):
        as_item_sequences(parts, 2, Normal())
    assert len(as_item_sequences([part[["x"]] for part in parts], 1, Normal())[0]) == 2
    steps = frame.drop(columns="x").assign(state=0, action=1).set_index("animal")
    with pytest.raises(ValueError, match="'animal' is in the index"):
        as_trajectories(steps, 1, 2)
