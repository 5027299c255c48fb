"""Small data sets for the twenty programs, drawn with a fixed seed from models like them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

Data = dict[str, Tensor]


def five_points() -> Tensor:
    """Those of Pyro's tutorial."""
    return torch.tensor([0.0, 1.0, 10.0, 11.0, 12.0], dtype=torch.float64)


def tones(num_sequences: int = 5, length: int = 6, num_tones: int = 3, shortest: int = 3) -> Data:
    rng = np.random.default_rng(0)
    state = rng.random(num_sequences) < 0.5
    out = np.zeros((num_sequences, length, num_tones))
    for t in range(length):
        state ^= rng.random(num_sequences) < 0.2
        out[:, t] = (
            rng.random((num_sequences, num_tones))
            < np.where(state[:, None], [0.8, 0.7, 0.2], [0.2, 0.3, 0.6])[:, :num_tones]
        )
    return {
        "sequences": torch.as_tensor(out),
        "lengths": torch.as_tensor(rng.integers(shortest, length + 1, num_sequences)),
    }


def a_table() -> Tensor:
    rng = np.random.default_rng(1)
    high = rng.random((12, 1)) < 0.4
    return torch.as_tensor(rng.random((12, 4)) < np.where(high, 0.9, 0.2)).double()


def captures(num_animals: int = 40, num_occasions: int = 6) -> Tensor:
    rng = np.random.default_rng(2)
    alive, out = np.ones(num_animals, bool), np.zeros((num_animals, num_occasions))
    for t in range(num_occasions):
        alive &= (t == 0) | (rng.random(num_animals) < 0.8)
        out[:, t] = alive & (rng.random(num_animals) < 0.5)
    return torch.as_tensor(out)


def counts() -> Tensor:
    rng = np.random.default_rng(3)
    return torch.as_tensor(np.where(rng.random(80) < 0.3, 0, rng.poisson(3.0, 80))).double()


def words(num_words: int = 12, num_documents: int = 8) -> Tensor:
    rng = np.random.default_rng(4)
    distributions = np.array([[0.5, 0.3, 0.1, 0.05, 0.05], [0.05, 0.05, 0.1, 0.3, 0.5]])
    mostly = rng.random(num_documents) < 0.5
    own = (rng.random((num_words, num_documents)) < 0.85) == mostly
    return torch.as_tensor(
        np.array([[rng.choice(5, p=distributions[int(topic)]) for topic in row] for row in own])
    )


def accidents() -> Tensor:
    rng = np.random.default_rng(5)
    return torch.as_tensor(np.concatenate([rng.poisson(3.0, 15), rng.poisson(1.0, 20)])).double()


def lines_of_two(num_rows: int = 60) -> Data:
    rng = np.random.default_rng(0)
    x, first = np.linspace(-2, 2, num_rows), rng.random(num_rows) < 0.4
    y = np.where(first, 1 + 2 * x, -1 - x) + np.where(first, 0.3, 0.6) * rng.normal(size=num_rows)
    return {"x": torch.as_tensor(x), "y": torch.as_tensor(y)}


def answers() -> Tensor:
    rng = np.random.default_rng(6)
    masters = rng.random((60, 1)) < 0.5
    return torch.as_tensor(rng.random((60, 5)) < np.where(masters, 0.85, 0.25)).double()


def labels() -> Data:
    """Annotators 0, 0, 1, 2, 3: the first looks twice; the last is careless."""
    rng = np.random.default_rng(7)
    truth = rng.integers(0, 3, 40)
    right = rng.random((40, 5)) < [0.9, 0.9, 0.8, 0.85, 0.5]
    given = np.where(right, truth[:, None], rng.integers(0, 3, (40, 5)))
    return {"labels": torch.as_tensor(given), "positions": torch.tensor([0, 0, 1, 2, 3])}


def three_heaps() -> Tensor:
    rng = np.random.default_rng(8)
    return torch.as_tensor(np.concatenate([rng.normal(mean, 1.0, 20) for mean in (-5.0, 0.0, 6.0)]))


def ratings(num_persons: int = 40, num_items: int = 4) -> Tensor:
    rng = np.random.default_rng(1)
    chance = 1 / (1 + np.exp(np.linspace(-1, 1, num_items) - rng.normal(size=(num_persons, 1))))
    return torch.as_tensor(rng.random(chance.shape) < chance).double()


def schools() -> Data:
    """Rubin (1981), doi:10.3102/10769986006004377."""
    y, sigma = (
        [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0],
        [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0],
    )
    return {
        "y": torch.tensor(y, dtype=torch.float64),
        "sigma": torch.tensor(sigma, dtype=torch.float64),
    }


def points() -> Data:
    rng = np.random.default_rng(9)
    x = np.linspace(-3, 3, 50)
    y = np.where(
        rng.random(50) < 0.15, rng.normal(0, 10, 50), 1 + 2 * x + 0.5 * rng.normal(size=50)
    )
    return {"x": torch.as_tensor(x), "y": torch.as_tensor(y)}


def persons(num_rows: int = 80) -> Any:
    """A frame with whole numbers, booleans that lack values, and NaN."""
    rng = np.random.default_rng(10)
    second = rng.random(num_rows) < 0.5
    height = np.where(second, 2.0, -1.0) + 0.7 * rng.normal(size=num_rows)
    visits = rng.poisson(np.where(second, 6.0, 1.5)).astype(float)
    smokes = (rng.random(num_rows) < np.where(second, 0.8, 0.3)).astype(float)
    for column in (height, visits, smokes):
        column[rng.random(num_rows) < 0.15] = np.nan
    return pd.DataFrame({"height": height, "visits": visits, "smokes": smokes})
