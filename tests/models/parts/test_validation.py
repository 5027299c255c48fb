"""What a setting may be, and what is said when it is not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ppl_models.parts.validation import check_flag, check_size, is_integer, is_number


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None])
def test_only_integers_are_integers(value: Any) -> None:
    assert not is_integer(value, least=0)
    with pytest.raises(ValueError, match="^Owner: num must be a positive integer, got "):
        check_size("Owner", "num", value)


@pytest.mark.parametrize(
    ("least", "words"),
    [(0, "a non-negative integer"), (1, "a positive integer"), (2, "an integer of at least 2")],
)
def test_least_integer(least: int, words: str) -> None:
    check_size("Owner", "num", least, least)
    assert is_integer(least, least)
    assert not is_integer(least - 1, least)
    with pytest.raises(ValueError, match=f"^Owner: num must be {words}, got {least - 1}$"):
        check_size("Owner", "num", least - 1, least)
    with pytest.raises(ValueError, match=f"^Owner: num must be {least} or more, got {least - 1}$"):
        check_size("Owner", "num", least - 1, least, f"{least} or more")


def test_numbers_and_flags() -> None:
    assert all(map(is_number, (0, -1.5, 10**300, np.float32(2.0), np.int64(3))))
    assert not any(
        map(is_number, (True, math.inf, -math.inf, math.nan, "1", None, 10**400, np.bool_(True)))
    )
    check_flag("Owner", "mean", False)
    with pytest.raises(ValueError, match="^Owner: mean must be True or False, got 1$"):
        check_flag("Owner", "mean", 1)
