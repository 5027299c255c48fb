"""The plug-in discrepancy of mixtures of few discrete items, and its value where the model is right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from inference.base.component_noise import Cells, ComponentNoise, numpy_generator

__all__ = ["PlugIn", "cells_of", "plug_in", "plug_in_null"]

@dataclass(frozen=True)
class PlugIn:
    r"""For mixtures of few discrete items: :math:`\sum_v \hat p_v \log(\hat p_v / F(v))`, rows weighted by responsibility.

    Args:
        num_null: multinomial samples of the component's own law from which the null is estimated.
    """

    num_null: int = 50

    def __post_init__(self) -> None:
        if isinstance(self.num_null, bool) or not isinstance(self.num_null, int) or self.num_null < 2:
            raise ValueError(f"PlugIn: num_null must be an integer of at least 2, got {self.num_null!r}")


def cells_of(noise: ComponentNoise) -> Cells:
    if noise.cells is None:
        raise ValueError("acdc: PlugIn() needs a mixture of discrete items without missing entries; use KDE() or KNN()")
    return noise.cells


def plug_in(cells: Cells) -> np.ndarray:
    share = (cells.weights / cells.weights.sum(-1, keepdim=True).clamp(min=1e-300)).numpy()
    law = cells.log_law.numpy()
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    value: np.ndarray = np.where(share > 0, share * (logs - law), 0.0).sum(-1)
    return value


def plug_in_null(cells: Cells, discrepancy: PlugIn, generator: torch.Generator) -> tuple[np.ndarray, np.ndarray]:
    """From samples of each component's own law on the patterns seen, as large as its expected use."""
    rng = numpy_generator(generator)
    law = cells.log_law.exp().numpy()
    means, sds = [], []
    for weights, p in zip(cells.weights.numpy(), law, strict=True):
        n = max(1, round(float(weights.sum())))
        cell = np.append(p, max(0.0, 1 - p.sum()))
        counts = rng.multinomial(n, cell / cell.sum(), size=discrepancy.num_null)[:, : len(p)] / n
        logs = np.log(counts, out=np.zeros_like(counts), where=counts > 0)
        safe = np.log(p, out=np.zeros_like(p), where=p > 0)
        values = np.where(counts > 0, counts * (logs - safe), 0.0).sum(-1)
        means.append(values.mean())
        sds.append(values.std(ddof=1))
    return np.array(means), np.array(sds)
