"""Columns as tables hold them: some that would be misread, and ordinary ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Column = tuple[Any, tuple[str, ...]]  # the entries, and what must be named beside the column
Rng = np.random.Generator


def _two_codes(rng: Rng, n: int) -> Column:
    low, high = sorted(rng.choice([-2, -1, 1, 2, 3, 5, 8], 2, replace=False).tolist())
    values = rng.choice([low, high], n)
    values[:2] = low, high
    return values, (f"two values only, {low} and {high}", "Bernoulli")


def _missing_code(rng: Rng, n: int) -> Column:
    code = int(rng.choice([-9, -99, -999, -9999, 99, 999, 9999]))
    values = rng.integers(int(rng.integers(0, 2)), int(rng.integers(4, 8)), n)
    values[:3] = 1, 2, 3
    values[rng.choice(np.arange(3, n), max(1, n // 10), replace=False)] = code
    return values, (f"holds {code} beside whole numbers from", "NaN")


def _beyond(rng: Rng, n: int) -> Column:
    return int(2 ** rng.integers(54, 62)) + np.arange(n), ("2**53", "leave the column out")


def _written_twice(rng: Rng, n: int) -> Column:
    change: Callable[[str], str] = [str.upper, str.title, lambda word: f"{word[:2]}  {word[2:]}"][
        int(rng.integers(3))
    ]
    word = str(rng.choice(["yes i do", "male a", "often so"]))
    first = word if change(word) != f"{word[:2]}  {word[2:]}" else f"{word[:2]} {word[2:]}"
    values = rng.choice([first, "other"], n)
    values = values.astype(object)
    values[:3] = first, change(word), "other"
    return values, (repr(first), repr(change(word)), "write them in one way")


def _percent(rng: Rng, n: int) -> Column:
    blank = str(rng.choice(["", " "]))
    return [
        f"{value:{form}}{blank}%"
        for value in rng.uniform(0, 100, n)
        for form in [rng.choice([".0f", ".1f"])]
    ], ("percentages, such as", "without the sign")


def _comma(rng: Rng, n: int) -> Column:
    values = [f"{value:.2f}".replace(".", ",") for value in rng.normal(size=n)]
    if rng.random() < 0.5:
        values[1:n:2] = [str(value) for value in rng.integers(0, 9, len(values[1:n:2]))]
    return values, ("numbers with commas, such as", "with a point")


def _date(rng: Rng, n: int) -> Column:
    form = str(
        rng.choice(["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S"])
    )
    days = np.datetime64("2019-03-01") + rng.integers(0, 900, n)
    return [day.astype(object).strftime(form) for day in days], (
        "dates, such as",
        "days since the first date",
    )


NUMBERS = {
    "two codes": _two_codes,
    "a code of missing answers": _missing_code,
}  # a warning names them
LABELS = {"one category in several ways": _written_twice}
REFUSED = {
    "beyond 2**53": _beyond,
    "percentages": _percent,
    "decimal commas": _comma,
    "dates": _date,
}

ORDINARY: dict[str, Callable[[Rng, int], Any]] = {
    "measurements": lambda rng, n: rng.normal(3, 2, n),
    "measurements, -99.0 among them": lambda rng, n: np.append(rng.normal(0, 60, n - 1), -99.0),
    "rounded measurements": lambda rng, n: np.round(rng.normal(20, 5, n), 1),
    "large measurements": lambda rng, n: rng.normal(1.6e9, 1e7, n),
    "ages": lambda rng, n: rng.integers(18, 95, n),
    "years": lambda rng, n: rng.integers(1950, 2021, n),
    "temperatures": lambda rng, n: np.round(rng.normal(5, 12, n)),
    "ratings": lambda rng, n: np.append(rng.integers(1, 6, n - 3), [1, 3, 5]),
    "wide ratings": lambda rng, n: np.append(rng.integers(0, 11, n - 3), [0, 5, 10]),
    "scores to 100": lambda rng, n: np.append(rng.integers(40, 101, n - 2), [99, 70]),
    "zeros and ones": lambda rng, n: np.append(rng.integers(0, 2, n - 2), [0, 1]),
    "counts": lambda rng, n: np.append(rng.poisson(3.0, n - 2), [0, 4]),
    "dispersed counts": lambda rng, n: np.append(rng.negative_binomial(1, 0.1, n - 2), [0, 9]),
    "names": lambda rng, n: np.append(
        rng.choice(["north", "south", "west"], n - 2), ["north", "west"]
    ),
    "levels": lambda rng, n: np.append(
        rng.choice(["1-5%", "6-10%", "more"], n - 2), ["1-5%", "more"]
    ),
    "versions": lambda rng, n: np.append(
        rng.choice(["1.2.10", "2.0.1"], n - 2), ["1.2.10", "2.0.1"]
    ),
}


def some_rows(rng: Rng) -> int:
    """Rows of a small table."""
    return int(rng.integers(12, 60))
