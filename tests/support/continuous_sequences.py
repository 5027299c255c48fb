"""Models of options along continuous states, ragged sequences of theirs, and fits at given
parameters.
"""

from __future__ import annotations

import dataclasses
import math

import pyro
import pytest
import torch
from torch import Tensor

from ppl_models import ContinuousOptionsHMM, Network

F64 = torch.float64
LENGTHS = torch.tensor([6, 1, 4, 5, 2])


def close(actual: Tensor, expected: object, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(
        actual.to(F64), torch.as_tensor(expected, dtype=F64), rtol=tolerance, atol=tolerance
    )


def simulate(
    model: ContinuousOptionsHMM, truth: dict[str, Tensor], num_rows: int, seed: int
) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return pyro.poutine.condition(model, truth)(None, num_rows)


def ragged(model: ContinuousOptionsHMM, truth: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Sequences of lengths 1 to 6 with missing actions."""
    data = simulate(dataclasses.replace(model, num_steps=6), truth, 5, seed)
    action = data[..., -1].clone()
    action[0, 2], action[2, 0], action[3, 4] = -1.0, math.nan, -1.0
    return {"state": data[..., :-1], "action": action, "length": LENGTHS}


MODELS = {
    "linear": ContinuousOptionsHMM(2, 3, 2),
    "three options": ContinuousOptionsHMM(1, 2, 3),
    "network": ContinuousOptionsHMM(2, 2, 2, policy=Network(3)),
}
every_model = pytest.mark.parametrize("name", MODELS)
