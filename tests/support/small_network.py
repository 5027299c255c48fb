"""Five latents on sixteen items, rows drawn from them, and the fit that finds them."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from inference import Fit, GrowAndPrune, fit
from ppl_models import NoisyOr
from ppl_models.datasets import sample_noisy_or

F64 = torch.float64
QUICK = GrowAndPrune(num_search_rows=1000, num_proposals=8, patience=2)


@functools.cache
def small_truth() -> dict[str, Tensor]:
    """Five latents on sixteen items, two of them inside the union of others."""
    pattern = torch.zeros(5, 16, dtype=F64)
    for latent, items in enumerate(
        ((0, 1, 2, 3, 4), (4, 5, 6, 7, 8), (8, 9, 10, 11), (2, 3, 9, 10), (11, 12, 13, 14, 15))
    ):
        pattern[latent, list(items)] = 1
    prior = torch.tensor([0.3, 0.25, 0.2, 0.15, 0.1], dtype=F64)
    return {
        "prior": prior,
        "failure": torch.where(pattern == 1, 0.1, 1.0).to(F64),
        "leak": torch.full((16,), 0.005, dtype=F64),
    }


@functools.cache
def small_data() -> Tensor:
    return sample_noisy_or(small_truth(), 3000, seed=1)[0]


@functools.cache
def small_fit() -> Fit:
    return fit(NoisyOr(16, 8), small_data(), QUICK, init="random", seed=0)
