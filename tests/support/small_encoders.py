"""Small encoders of every response, with data, and their samplers."""

from __future__ import annotations

import torch

from inference.programs.program import Program
from ppl_models import (
    Bernoulli,
    Blocks,
    Categorical,
    DeepDiscreteEncoder,
    LogNormal,
    Normal,
    Ordinal,
    Poisson,
)

F64 = torch.float64
MIXED = Blocks((Bernoulli(), 3), (Normal(), 3), (Poisson(), 3))
RESPONSES = [Bernoulli(), Poisson(), Normal(), LogNormal(), MIXED]
CATEGORIES = Blocks(
    (Ordinal(4), 2),
    (Normal(), 2),
    (Categorical((3, 2, 4)), 3),
    (Ordinal((3, 5), link="adjacent"), 2),
)


def name_of(response):
    return type(response).__name__


def example(response, num_rows=12, sizes=(3, 1), missing=True, seed=0):
    """A small encoder with weak and strong loadings, and data with gaps."""
    model = DeepDiscreteEncoder(9, sizes, response)
    generator = torch.Generator().manual_seed(seed)
    params = Program(model, None, 4).draw_prior(1, seed)
    params = {
        k: torch.randn(v.shape[1:], generator=generator, dtype=F64) for k, v in params.items()
    }
    params["proportions"] = torch.tensor([0.3] * sizes[-1], dtype=F64)
    if "thresholds" in params:
        params["thresholds"] = 0.3 + torch.rand(
            params["thresholds"].shape, generator=generator, dtype=F64
        )
    if "dispersion" in params:
        params["dispersion"] = 0.5 + torch.rand(
            params["dispersion"].shape, generator=generator, dtype=F64
        )
    data = Program(model, None, num_rows).simulate(params, seed)["items"]
    if missing:
        data[2, 1] = data[5, 7] = torch.nan
    return model, {k: v.unsqueeze(0) for k, v in params.items()}, data
