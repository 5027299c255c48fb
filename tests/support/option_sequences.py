"""Ragged sequences with missing actions, their parameters, and their posterior by every path."""

from __future__ import annotations

import functools

import numpy as np
import pyro
import torch
from torch import Tensor
from zoo.rows_options import options_truth

from ppl_models import OptionsHMM
from ppl_models.data.sequences import pack

F64 = torch.float64
SIZES = (3, 3, 2)  # states, actions, options


def close(actual: Tensor, expected: object, tolerance: float = 1e-10) -> None:
    expected = torch.as_tensor(expected, dtype=F64)
    torch.testing.assert_close(actual.to(F64), expected, rtol=tolerance, atol=tolerance)


@functools.cache
def case(
    seed: int, missing: float = 0.3, sizes: tuple[int, int, int] = SIZES
) -> tuple[OptionsHMM, dict[str, Tensor], Tensor]:
    """Ragged sequences with missing actions, lengths 1 to 6, and parameters."""
    model = OptionsHMM(*sizes, num_steps=6)
    truth = options_truth(*sizes, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        data = pyro.poutine.condition(model, truth)(None, 7).clone()
        length = torch.tensor([6, 1, 4, 5, 2, 6, 3])
        gone = torch.rand(7, 6) < missing
    data[..., 1].masked_fill_(gone, -1)
    return model, truth, pack(data[..., 0], data[..., 1], length)


def arrays(params: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in params.items()}


def simulate(model: OptionsHMM, truth: dict[str, Tensor], num_rows: int, seed: int) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return pyro.poutine.condition(model, truth)(None, num_rows)
