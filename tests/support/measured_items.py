"""Encoders whose items ask for several attributes, random parameters, and their rows."""

from __future__ import annotations

from typing import Any

import pyro
import torch
from zoo.rows_measurement import LONG

from ppl_models import Bernoulli, DeepDiscreteEncoder, ExpDINA

F64 = torch.float64
SINGLE = tuple(tuple(int(k == j % 3) for k in range(3)) for j in range(9))


def encoder(graph: Any, bottom: Any, response: Any = None) -> Any:
    return DeepDiscreteEncoder(
        len(graph), (len(graph[0]),), response or Bernoulli(), graphs=(graph,), bottom=bottom
    )


def simulated(
    model: Any, truth: dict[str, torch.Tensor], num_rows: int, seed: int = 0
) -> torch.Tensor:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        return pyro.poutine.condition(model, truth)(None, num_rows)


def random_params(model: Any, seed: int = 0, size: float = 1.0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    layer = model.layers()[0]
    params = {
        "proportions": (
            0.2 + 0.6 * torch.rand(model.latent_sizes[-1], generator=generator, dtype=F64)
        ),
        "intercepts_1": torch.randn(layer.num_children, generator=generator, dtype=F64),
        "loadings_1": (
            size
            * torch.randn(layer.num_children, layer.num_features, generator=generator, dtype=F64)
        ),
    }
    if layer.graph is not None:
        params["loadings_1"] *= layer.graph
    if layer.thresholds:
        params["thresholds"] = 0.3 + torch.rand(
            model.response.num_thresholds(model.num_items), generator=generator, dtype=F64
        )
    if layer.dispersion:
        params["dispersion"] = 0.5 + torch.rand(layer.num_children, generator=generator, dtype=F64)
    return params


def diagnosis(num_rows: int = 1500) -> tuple[Any, dict[str, torch.Tensor], torch.Tensor]:
    """A DINA model with three attributes, its truth and its answers."""
    model = encoder(LONG, ExpDINA())
    truth = {
        "proportions": torch.tensor([0.5, 0.4, 0.6], dtype=F64),
        "intercepts_1": torch.full((12,), -1.4, dtype=F64),
        "loadings_1": 3.0 * model.layers()[0].graph.to(F64),
    }
    return model, truth, simulated(model, truth, num_rows)
