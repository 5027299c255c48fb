"""Fits and dictionaries of parameters, aligned."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import torch
from support.designed_items import data_of
from support.encoder_names import SIZES, describe, draw_params, draw_relabelling, largest_difference

from inference import EM, fit
from inference.alignment import align
from inference.structures.layers.align import relabel
from ppl_models import DeepDiscreteEncoder, Normal
from ppl_models.datasets import strict_design


def test_align_accepts_fits_and_dicts() -> None:
    sizes = SIZES[2]
    layers, root = describe(sizes)
    model = SimpleNamespace(layers=lambda: tuple(layers), root_layer=lambda: root)
    generator = torch.Generator().manual_seed(5)
    truth = draw_params(sizes, generator) | {"dispersion": torch.ones(2, dtype=torch.float64)}
    permutations, flips = draw_relabelling(sizes, generator)
    fit = SimpleNamespace(model=model, params=relabel(truth, layers, root, permutations, flips))
    by_dict = align(fit, truth)
    by_fit = align(fit, SimpleNamespace(model=model, params=truth))
    assert largest_difference(by_dict.params, truth) < 1e-12
    assert largest_difference(by_fit.params, truth) < 1e-12


def test_fits_on_different_estimated_graphs_are_aligned_under_every_order() -> None:
    """Edges that one fit has and the other has not name nobody: with a graph that the user gave
    they would.
    """
    truth, x = strict_design(2, Normal()), data_of(Normal(), 400)
    first = fit(DeepDiscreteEncoder(18, (6, 2), Normal()), x)
    order = {"latents_1": torch.tensor([3, 0, 5, 1, 2, 4]), "latents_2": torch.tensor([1, 0])}
    layers, root = first.model.layers(), first.model.root_layer()
    moved = relabel(first.params, layers, root, order, {})
    graphs = [(moved[layer.loadings] != 0).clone() for layer in layers]
    graphs[0][0, :] = True  # a graph with edges more
    start = {name: value.clone() for name, value in moved.items()}
    other = fit(
        first.model.restricted([graph.int().tolist() for graph in graphs]), x, EM(), init=start
    )
    aligned = align(other, first)
    assert aligned.cost < 1.0
    back = torch.empty(6, dtype=torch.long)
    back[order["latents_1"]] = torch.arange(6)
    assert torch.equal(aligned.permutations["latents_1"], back)
    assert torch.equal(
        aligned.graphs["loadings_1"][1:], first.graphs["loadings_1"][1:]
    )  # the graph moved along
    assert aligned.graphs["loadings_1"][0].all()
    assert torch.equal(aligned.graphs["loadings_2"], first.graphs["loadings_2"])
    declared = replace(other, model=replace(other.model, graphs_estimated=False))
    assert align(declared, first).cost > 50  # a Q-matrix names its attributes
    assert align(first, truth).cost < 10
