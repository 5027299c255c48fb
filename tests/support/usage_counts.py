"""Counts of components of which each row uses some."""

from __future__ import annotations

import numpy as np
import torch

from inference.programs.program import simulate
from ppl_models import UsageFactorization

F64 = torch.float64


def simulated(num_rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Four components of twenty columns, two of them in few rows: counts, usage, truth."""
    rng = np.random.default_rng(seed)
    truth = {
        "signatures": torch.tensor(rng.dirichlet(np.full(20, 0.3), 4)),
        "proportions": torch.tensor([0.8, 0.5, 0.3, 0.15], dtype=F64),
        "amounts": torch.tensor([80.0, 60.0, 100.0, 120.0], dtype=F64),
    }
    drawn = simulate(UsageFactorization(20, 4), truth, seed, None, num_rows)
    some = drawn["items"].sum(-1) > 0
    return drawn["items"][some], drawn["usage"][some], truth
