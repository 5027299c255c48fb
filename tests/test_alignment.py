"""Fits and dictionaries of parameters, aligned."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from support.encoder_names import SIZES, describe, draw_params, draw_relabelling, largest_difference

from inference.alignment import align
from inference.structures.layers.alignment import relabel


def test_align_accepts_fits_and_dicts_and_relabels_latents() -> None:
    sizes = SIZES[2]
    layers, root = describe(sizes)
    model = SimpleNamespace(layers=lambda: tuple(layers), root=lambda: root)
    generator = torch.Generator().manual_seed(5)
    truth = draw_params(sizes, generator) | {"dispersion": torch.ones(2, dtype=torch.float64)}
    permutations, flips = draw_relabelling(sizes, generator)
    fit = SimpleNamespace(model=model, params=relabel(truth, layers, root, permutations, flips))
    by_dict = align(fit, truth)
    by_fit = align(fit, SimpleNamespace(model=model, params=truth))
    assert largest_difference(by_dict.params, truth) < 1e-12
    assert largest_difference(by_fit.params, truth) < 1e-12

    probs = torch.rand(9, sizes[1], dtype=torch.float64, generator=generator)
    shown = torch.where(
        flips["latents_1"], 1 - probs[:, permutations["latents_1"]], probs[:, permutations["latents_1"]]
    )
    assert (by_dict.apply_latents({"latents_1": shown})["latents_1"] - probs).abs().max() < 1e-15
    bits = shown > 0.5
    assert torch.equal(by_dict.apply_latents({"latents_1": bits})["latents_1"], probs > 0.5)
    with pytest.raises(ValueError, match=r"'latents_1', 'latents_2'.*got 'items'"):
        by_dict.apply_latents({"items": probs})
    with pytest.raises(ValueError, match=r"latents_2 must have shape \(\.\.\., 2\), got \(9, 4\)"):
        by_dict.apply_latents({"latents_2": probs})
