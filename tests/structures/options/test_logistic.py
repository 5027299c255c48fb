"""Newton steps of logistic policies against scipy."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from scipy.optimize import minimize

from inference.structures.options.continuous import newton_step

F64 = torch.float64


def test_a_newton_step_climbs_and_its_fixed_point_is_the_optimum() -> None:
    """Against scipy on one problem; several problems and restarts side by side."""
    generator = torch.Generator().manual_seed(0)
    design = torch.randn(1, 40, 3, generator=generator, dtype=F64) * torch.tensor(
        [1.0, 5.0, 0.1], dtype=F64
    )
    targets = torch.rand(2, 40, 2, 4, generator=generator, dtype=F64) * 3
    weights = torch.zeros(2, 2, 3, 3, dtype=F64)
    for _ in range(30):
        weights = newton_step(weights, design, targets, 4.0)

    def loss(flat: np.ndarray, r: int, g: int) -> float:
        logits = torch.nn.functional.pad(
            design[0] @ torch.from_numpy(flat.reshape(3, 3)).mT, (1, 0)
        )
        return float(-(targets[r, :, g] * logits.log_softmax(-1)).sum() + (flat**2).sum() / 8)

    for r, g in itertools.product(range(2), range(2)):
        best = minimize(loss, np.zeros(9), args=(r, g), tol=1e-10)
        assert loss(weights[r, g].numpy().ravel(), r, g) <= best.fun + 1e-8
    far = torch.full_like(weights, 8.0)  # a full step would overshoot from here
    before = [
        loss(far[r, g].numpy().ravel(), r, g) for r, g in itertools.product(range(2), range(2))
    ]
    stepped = newton_step(far, design, targets, 4.0)
    after = [
        loss(stepped[r, g].numpy().ravel(), r, g) for r, g in itertools.product(range(2), range(2))
    ]
    assert all(a < b for a, b in zip(after, before, strict=True))
