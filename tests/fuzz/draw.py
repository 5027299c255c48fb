"""A case of the attack is one integer: all that is random in it is drawn from that integer, on
every machine and core.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import random
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch

Value = TypeVar("Value")


class Draw:
    """Choices of one case.

    Args:
        seed: of the case.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def choice(self, values: Sequence[Value]) -> Value:
        return values[self.random.randrange(len(values))]

    def integer(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    def weighted(self, table: dict[str, float]) -> str:
        return self.random.choices(list(table), list(table.values()))[0]

    def hostile(self) -> Any:
        """A value that no setting should take, or only some should."""
        return self.choice(HOSTILE)()


def _nothing(*arguments: Any) -> None:
    return None


HOSTILE = [
    lambda: None,
    lambda: True,
    lambda: 0,
    lambda: -1,
    lambda: 1,
    lambda: 2.5,
    lambda: -0.0,
    lambda: 0.0,
    lambda: 1e-320,
    lambda: 1e308,
    lambda: -1e308,
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: -float("inf"),
    lambda: 2**31,
    lambda: 2**63,
    lambda: 2**200,
    lambda: -(2**70),
    lambda: "",
    lambda: "normal",
    lambda: "2",
    lambda: "a\x00b",
    lambda: b"2",
    lambda: 1 + 2j,
    lambda: (),
    list,
    dict,
    lambda: set(),
    lambda: (1, 2),
    lambda: (1.0, float("nan")),
    lambda: (float("inf"), 1.0),
    lambda: [0, -1],
    lambda: (2, 1, "x"),
    lambda: ((1, 0), (0,)),
    lambda: {"a": 1},
    lambda: range(3),
    lambda: object(),
    lambda: int,
    lambda: _nothing,
    lambda: (value for value in (1, 2)),
    lambda: np.int64(2),
    lambda: np.float32(0.5),
    lambda: np.bool_(True),
    lambda: np.nan,
    lambda: np.array([1.0, 2.0]),
    lambda: np.array([]),
    lambda: np.array(2),
    lambda: torch.tensor(2),
    lambda: torch.tensor(0.5),
    lambda: torch.tensor([1.0, float("nan")]),
    lambda: torch.zeros(0),
    lambda: decimal.Decimal("1.5"),
    lambda: fractions.Fraction(1, 2),
    lambda: datetime.date(2020, 1, 1),
]
