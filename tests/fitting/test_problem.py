"""What makes two problems one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.answer_tables import mixture

from inference import EM
from inference.fitting.problem import problem_of


@pytest.mark.parametrize(
    "other",
    [
        {"x": np.ones((3, 2)), "y": np.zeros(2)},  # the same bytes in another shape
        {"x": np.ones((2, 3), np.float32), "y": np.zeros(5, np.float32)},
    ],
)
def test_data_of_another_shape_is_another_fit(other):
    first = problem_of(mixture, {"x": np.ones((2, 3)), "y": np.zeros(2)}, 0)
    assert isinstance(first.data["x"], torch.Tensor)
    method, start = EM(), {"w": torch.zeros(1)}
    assert first.fingerprint(method, start) == first.fingerprint(method, dict(start))
    assert first.fingerprint(method, start) != problem_of(mixture, other, 0).fingerprint(method, start)
