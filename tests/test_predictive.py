"""What stands out of a predictive check: nothing where data are drawn like the simulations, and
what was put in where they are not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from inference.predictive import PredictiveCheck
from inference.report.predictive_words import departures_in_words, remedy_of

NAMES = ["a", "b", "c", "d"]
DISTRIBUTIONS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "normal": lambda rng: rng.normal(size=(21, 150, 4)),
    "heavy tails": lambda rng: rng.standard_t(4, size=(21, 150, 4)),
    "rare": lambda rng: (rng.random((21, 150, 4)) < [0.003, 0.02, 0.3, 0.5]).astype(float),
    "counts": lambda rng: rng.negative_binomial(2, 0.3, size=(21, 150, 4)).astype(float),
}


def check_of(drawn: np.ndarray) -> PredictiveCheck:
    """The first data set is the data; a tenth of its entries is missing, and of the others."""
    gone = np.random.default_rng(1).random(drawn.shape[1:]) < 0.1
    return PredictiveCheck(
        np.where(gone, np.nan, drawn[0]), np.where(gone, np.nan, drawn[1:]), drawn.shape[1]
    )


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_data_like_the_simulations_rarely_stand_out(distribution: str) -> None:
    rng = np.random.default_rng(0)
    found = [bool(check_of(DISTRIBUTIONS[distribution](rng)).departures()) for _ in range(30)]
    assert np.mean(found) < 0.12


def test_what_was_put_in_is_named_with_its_numbers() -> None:
    drawn = np.random.default_rng(0).normal(size=(21, 300, 4))
    drawn[0, :, 0] += 0.6
    drawn[0, :, 1] *= 1.6
    drawn[0, :, 3] += drawn[0, :, 2]
    drawn[1:, :, 3] *= np.sqrt(2)
    check = check_of(drawn)
    found = check.departures()
    assert [(departure.what, departure.columns) for departure in found] == [
        ("mean", (0,)),
        ("spread", (1,)),
        ("correlation", (2, 3)),
    ]
    assert found[0].size == pytest.approx(0.6, abs=0.1)
    assert found[1].observed / found[1].simulated == pytest.approx(np.exp(found[1].size), rel=0.05)
    assert found[2].observed == pytest.approx(np.sqrt(0.5), abs=0.1)
    words = departures_in_words(check, NAMES)
    for part in (
        "the mean of a (0.",
        "the spread of b (1.",
        "the correlation of c with d (0.",
        "too few latents",
    ):
        assert part in words, words
    assert "run on" in remedy_of(found, check)
    assert remedy_of((), check) == ""


def test_little_is_said_of_few_rows_and_of_constant_columns() -> None:
    drawn = np.random.default_rng(0).normal(size=(21, 40, 4))
    drawn[..., 1] = 0.0
    assert check_of(drawn).departures() == ()
    assert "No misfit found" in departures_in_words(check_of(drawn), NAMES)
    drawn[0] += 5.0
    assert "fewer than 20 rows" in departures_in_words(check_of(drawn[:, :10]), NAMES)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_a_change_of_unit_changes_no_correlation(unit: float) -> None:
    drawn = np.random.default_rng(0).normal(size=(21, 300, 4))
    drawn[0, :, 3] += 3 * drawn[0, :, 2]
    check, other = check_of(drawn), check_of(drawn * [1.0, 1.0, unit, unit])
    for own, same in zip(check.correlations(), other.correlations(), strict=True):
        np.testing.assert_allclose(own, same, atol=1e-10)
    assert (2, 3) in [departure.columns for departure in other.departures()]
