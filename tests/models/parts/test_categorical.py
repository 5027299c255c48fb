"""Categorical items: density against a loop, missing entries against sums over completions, names
of categories in data frames, bad input.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from ppl_models import Blocks, Categorical, Mixture, Normal, Ordinal, Poisson
from ppl_models.data.frames import UnusedLevelWarning
from ppl_models.data.tables import as_items
from ppl_models.parts.item_response import ItemResponse

F64 = torch.float64
SIZES = (3, 2, 4)
NAN = math.nan


def logits(num: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(num, sum(SIZES), generator=torch.Generator().manual_seed(seed), dtype=F64)


def test_density_by_hand_and_missing_entries_summed_out() -> None:
    distribution = ItemResponse(Categorical(SIZES), logits(2).unsqueeze(-2))
    cells = torch.tensor(list(itertools.product(*map(range, SIZES))), dtype=F64)
    chances = [part.softmax(-1) for part in logits(2).split(SIZES, -1)]
    expected = torch.stack(
        [
            torch.stack(
                [
                    sum(p[k, int(h)].log() for p, h in zip(chances, cell, strict=True))
                    for cell in cells
                ]
            )
            for k in range(2)
        ]
    )
    torch.testing.assert_close(distribution.log_prob(cells), expected)
    torch.testing.assert_close(
        distribution.log_prob(cells).logsumexp(-1), torch.zeros(2, dtype=F64), atol=1e-12, rtol=0
    )
    for seen in itertools.product([False, True], repeat=3):
        row = torch.where(torch.tensor(seen), cells[17], NAN)
        same = (cells[:, list(seen)] == cells[17, list(seen)]).all(-1)
        torch.testing.assert_close(
            distribution.log_prob(row[None])[:, 0],
            expected[:, same].logsumexp(-1),
            atol=1e-12,
            rtol=0,
        )


def test_beside_other_families_the_parts_add_up() -> None:
    family = Blocks((Normal(), 1), (Categorical(SIZES), 3), (Poisson(), 1))
    assert (family.num_predictors(5), family.num_items(11), family.num_categories_of(5)) == (
        11,
        5,
        SIZES,
    )
    ends, spread = (
        torch.randn(2, 2, generator=torch.Generator().manual_seed(3), dtype=F64),
        torch.tensor([[0.5], [2.0]], dtype=F64),
    )
    eta = torch.cat([ends[:, :1], logits(2), ends[:, 1:]], -1)
    x = torch.tensor([[0.3, 2, 1, 3, 4], [NAN, 0, NAN, 1, 2], [1.0, NAN, 0, 0, NAN]], dtype=F64)
    parts = [
        ItemResponse(Normal(), ends[:, :1].unsqueeze(-2), spread.unsqueeze(-2)).log_prob(x[:, :1]),
        ItemResponse(Categorical(SIZES), logits(2).unsqueeze(-2)).log_prob(x[:, 1:4]),
        ItemResponse(Poisson(), ends[:, 1:].unsqueeze(-2)).log_prob(x[:, 4:]),
    ]
    whole = ItemResponse(family, eta.unsqueeze(-2), spread.unsqueeze(-2))
    torch.testing.assert_close(whole.log_prob(x), sum(parts))
    assert whole.sample().shape == (2, 1, 5)


def test_draws_have_their_probabilities() -> None:
    eta = logits(1)[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        draws = ItemResponse(Categorical(SIZES), eta).sample(torch.Size([20000]))
    found = Categorical(SIZES).statistic(draws).mean(0)
    torch.testing.assert_close(found, Categorical(SIZES).mean(eta), atol=0.015, rtol=0)


# ---------------------------------------------------------------- names


@pytest.fixture
def answers() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "place": ["north", "south", None, "west"],
            "level": pd.Categorical(["high", "low", "low", None], ["low", "high"], ordered=True),
            "grade": [1, 2, NAN, 4],
            "owns": [True, False, True, True],
            "kind": pd.Series(["b", pd.NA, "a", "b"], dtype="string"),
        }
    )


LEVELS = (
    ("north", "south", "west"),
    ("low", "high"),
    ("1", "2", "4"),
    ("False", "True"),
    ("a", "b"),
)
CODES = [[0, 1, 0, 1, 1], [1, 0, 1, 0, NAN], [NAN, 0, NAN, 1, 0], [2, NAN, 2, 1, 1]]


def test_names_of_a_frame_are_found_and_coded(answers) -> None:
    family = Categorical.from_frame(answers)
    assert family.levels == LEVELS
    assert family.num_categories == (3, 2, 3, 2, 2)
    for frame in (answers, pl.from_pandas(answers)):
        table, names = as_items(frame, 5, family)
        assert names == tuple(answers.columns)
        torch.testing.assert_close(table, torch.tensor(CODES, dtype=F64), equal_nan=True)
    new = pd.DataFrame(
        {"place": ["west"], "level": ["low"], "grade": ["4"], "owns": ["True"], "kind": ["a"]}
    )  # as a file of text has them
    assert as_items(new, 5, family, for_fit=False)[0].tolist() == [[2, 0, 2, 1, 0]]
    table = torch.tensor(CODES, dtype=F64)
    assert torch.equal(
        as_items(table, 5, family)[0].nan_to_num(-1.0), table.nan_to_num(-1.0)
    )  # tensors hold codes
    text = np.array([["north", "low", "1", "True", "a"]], dtype=object)
    assert as_items(text, 5, family, for_fit=False)[0].tolist() == [[0, 0, 0, 1, 0]]


def test_names_beside_numbers(answers) -> None:
    frame = answers[["place"]].assign(age=[31.5, 40.0, 22.0, NAN])
    table, _ = as_items(
        frame, 2, Blocks((Categorical.from_frame(answers[["place"]]), 1), (Normal(), 1))
    )
    assert table[:, 0].nan_to_num(-1).tolist() == [0, 1, -1, 2]
    assert table[:, 1].nan_to_num(-1).tolist() == [31.5, 40, 22, -1]


def test_levels_no_row_has_are_dropped(answers) -> None:
    frame = answers.assign(level=answers["level"].cat.add_categories(["top"]))
    with pytest.warns(UnusedLevelWarning, match="'level': no row has 'top'"):
        family = Categorical.from_frame(frame)
    assert family.levels == LEVELS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"place": "Maybe"},
            (
                "column 'place': level 'Maybe' is unknown to the model, whose levels are 'north',"
                " 'south', 'west'"
            ),
        ),
        ({"grade": 3}, "column 'grade': level '3' is unknown"),
        (
            {"grade": 1.5},
            "column 'grade': text, categories, booleans or whole numbers were expected, got 1.5",
        ),
        ({"owns": 7}, "column 'owns': level '7' is unknown"),
    ],
)
def test_levels_that_are_unknown(answers, change, message) -> None:
    with pytest.raises(ValueError, match=message):
        as_items(answers.assign(**change), 5, Categorical.from_frame(answers), for_fit=False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Categorical.from_frame(pd.DataFrame({"id": range(60)})),
            "'id' has 60 different values, more than max_levels = 50",
        ),
        (
            lambda: Categorical.from_frame(pd.DataFrame({"x": [None, None]})),
            "'x' has no observed entry",
        ),
        (
            lambda: Categorical.from_frame(pd.DataFrame({"x": [0.5, 1.0]})),
            "'x': text, categories, booleans or whole numbers",
        ),
        (
            lambda: Categorical.from_frame(pd.DataFrame({"x": [math.inf, 1.0]})),
            "'x': text, categories, booleans or whole numbers .* got inf",
        ),
        (lambda: Categorical.from_frame(pd.DataFrame()), "a data frame with columns was expected"),
        (lambda: Categorical.from_frame([[0, 1]]), "a data frame was expected, got list"),
        (
            lambda: Categorical.from_frame(pd.DataFrame({"x": [1]}), max_levels=0),
            "max_levels must be a positive integer",
        ),
        (
            lambda: Ordinal.from_frame(pd.DataFrame({"x": ["low", "high"]})),
            "'x' holds text in no order",
        ),
        (
            lambda: Ordinal.from_frame(
                pd.DataFrame({"x": pd.Categorical(["low"], ["low", "high"], ordered=True)})
            ),
            "no row has 'high', so nothing says where",
        ),
        (lambda: Categorical(0), "num_categories must be a positive integer"),
        (lambda: Categorical((2, 1.5)), "num_categories must be a positive integer"),
        (lambda: Categorical(()), "num_categories must be"),
        (lambda: Categorical(("a", "a")), "levels must be names"),
        (lambda: Categorical(3, ("a", "b")), "num_categories = 3 does not go with levels"),
        (lambda: Categorical(2, (("a", "b"), 3)), "levels must be names"),
        (lambda: Categorical(2, concentration=0.5), "concentration must be at least 1"),
        (
            lambda: Mixture(2, Categorical((2, 3)), num_items=3),
            "categories of 2 items are given, but there are num_items = 3",
        ),
        (
            lambda: as_items(torch.tensor([[3.0]]), 1, Categorical(3)),
            "codes 0 to 2, found 3; for codes that begin elsewhere",
        ),
        (lambda: as_items(torch.tensor([[0.5]]), 1, Categorical(3)), "codes 0 to 2, found 0.5"),
        (
            lambda: as_items(torch.tensor([[1.0, 2.0]]), 2, Categorical((2, 2))),
            "column '1': Categorical items of 2 categories",
        ),
        (
            lambda: as_items(pd.DataFrame({"x": ["no", "yes"]}), 1, Categorical(2)),
            "level 'no' is unknown .* Categorical.from_frame",
        ),
    ],
)
def test_what_is_refused(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_an_order_is_kept() -> None:
    frame = pd.DataFrame(
        {
            "pain": pd.Categorical(
                ["none", "much", "some"], ["none", "some", "much"], ordered=True
            ),
            "stage": [3, 1, 2],
        }
    )
    family = Ordinal.from_frame(frame)
    assert family == Ordinal((("none", "some", "much"), ("1", "2", "3")))
    assert as_items(frame, 2, family)[0].tolist() == [[0, 2], [2, 0], [1, 1]]
    chances = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.1, 0.8], dtype=F64)
    torch.testing.assert_close(
        family.expected_response(chances.log(), None), torch.tensor([1.3, 1.7], dtype=F64)
    )


def test_settings_have_one_form() -> None:
    assert (
        Categorical(["no", "yes"])
        == Categorical(2, ("no", "yes"))
        == Categorical(np.int64(2), ["no", "yes"])
    )
    assert Categorical([3, 2]).num_categories == (3, 2)
    assert Categorical((("a", "b"), ("a", "b"))).num_categories == (2, 2)
    assert Mixture(2, Categorical((2, 3))).num_items == 2
    assert Mixture(2, Blocks((Categorical(2), 2), (Normal(), 1))).num_items == 3
