"""What makes two problems one."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from inference import EM
from inference.fitting.problem import problem_of


def two_tables(data: dict[str, Tensor]) -> None:
    mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
    for name, values in data.items():
        with pyro.plate(f"entries of {name}", values.numel()):
            pyro.sample(name, dist.Normal(mean, 1.0), obs=values.reshape(-1))


@pytest.mark.parametrize(
    "other",
    [
        {"x": np.ones((3, 2)), "y": np.zeros(2)},  # the same bytes in another shape
        {"x": np.ones((2, 3), np.float32), "y": np.zeros(5, np.float32)},
    ],
)
def test_data_of_another_shape_is_another_fit(other):
    first = problem_of(two_tables, {"x": np.ones((2, 3)), "y": np.zeros(2)}, 0)
    assert isinstance(first.data["x"], torch.Tensor)
    method, start = EM(), {"w": torch.zeros(1)}
    assert first.fingerprint(method, start) == first.fingerprint(method, dict(start))
    assert first.fingerprint(method, start) != problem_of(two_tables, other, 0).fingerprint(
        method, start
    )
