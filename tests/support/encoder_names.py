"""Layers of an encoder, random parameters, random new names of its latents."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from ppl_models.descriptions.layers import GeneralizedLinearLayer, RootLayer
from ppl_models.parts.responses import Bernoulli

SIZES = {1: (6, 3), 2: (7, 4, 2), 3: (7, 4, 3, 2)}
Relabelling = tuple[dict[str, Tensor], dict[str, Tensor]]


def describe(
    sizes: tuple[int, ...], graphs: dict[int, Tensor] | None = None
) -> tuple[list, RootLayer]:
    layers = [
        GeneralizedLinearLayer(
            loadings=f"loadings_{d}",
            intercepts=f"intercepts_{d}",
            parent=f"latents_{d}",
            child="items" if d == 1 else f"latents_{d - 1}",
            num_children=sizes[d - 1],
            num_parents=sizes[d],
            response=Bernoulli(),
            dispersion=None,
            penalty=None,
            graph=(graphs or {}).get(d),
            bound=15.0,
        )
        for d in range(1, len(sizes))
    ]
    return layers, RootLayer("proportions", f"latents_{len(sizes) - 1}", sizes[-1])


def draw_params(sizes: tuple[int, ...], generator: torch.Generator) -> dict[str, Tensor]:
    kind = {"dtype": torch.float64, "generator": generator}
    params = {"proportions": torch.rand(sizes[-1], **kind)}
    for d in range(1, len(sizes)):
        params[f"loadings_{d}"] = 2 * torch.randn(sizes[d - 1], sizes[d], **kind)
        params[f"intercepts_{d}"] = torch.randn(sizes[d - 1], **kind)
    return params


def draw_relabelling(sizes: tuple[int, ...], generator: torch.Generator) -> Relabelling:
    permutations = {
        f"latents_{d}": torch.randperm(sizes[d], generator=generator) for d in range(1, len(sizes))
    }
    flips = {
        f"latents_{d}": torch.rand(sizes[d], generator=generator) < 0.5
        for d in range(1, len(sizes))
    }
    return permutations, flips


def largest_difference(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    assert left.keys() == right.keys()
    return max(float((left[name] - right[name]).abs().max()) for name in left)


seeds = st.integers(0, 2**31 - 1)
