"""Layers of binary latents with generalised-linear children: steps, draws, starts, names."""

from inference.structures.layers.alignment import align_layers, canonical_signs, relabel
from inference.structures.layers.attributes import AttributeStructure
from inference.structures.layers.draw_steps import LayeredDraws
from inference.structures.layers.em_steps import LayeredSteps, TowerStatistics, expected_statistics
from inference.structures.layers.gibbs import LayeredGibbs
from inference.structures.layers.glm import (
    LayerStatistics,
    drawn_statistics,
    maximise_dispersion,
    maximise_layer,
    maximise_quadratic,
    maximise_rows,
    with_ones,
)
from inference.structures.layers.ideal_responses import ideal_latents
from inference.structures.layers.many_data_sets import SetSteps
from inference.structures.layers.renaming import flippable, flipped, permuted
from inference.structures.layers.spectral import (
    LayerFactors,
    centred_values,
    layer_factors,
    random_start,
    spectral_start,
    varimax,
)
from inference.structures.layers.structure import LayeredStructure

__all__ = [
    "align_layers",
    "canonical_signs",
    "relabel",
    "LayeredDraws",
    "LayeredSteps",
    "TowerStatistics",
    "expected_statistics",
    "LayeredGibbs",
    "LayerStatistics",
    "drawn_statistics",
    "maximise_dispersion",
    "maximise_layer",
    "maximise_quadratic",
    "maximise_rows",
    "with_ones",
    "ideal_latents",
    "SetSteps",
    "flippable",
    "flipped",
    "permuted",
    "LayerFactors",
    "centred_values",
    "layer_factors",
    "random_start",
    "spectral_start",
    "varimax",
    "AttributeStructure",
    "LayeredStructure",
]
