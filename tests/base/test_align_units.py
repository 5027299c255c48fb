"""Latents named by what they are, not by the column with the largest unit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from inference import fit
from inference.alignment import align, align_layers
from inference.base.align import relabel_draws
from inference.structures.layers.structure import LayeredStructure
from inference.structures.registry import structure_of
from ppl_models import (
    DeepDiscreteEncoder,
    HiddenMarkov,
    Mixture,
    MultivariateNormal,
    MultivariateT,
    Normal,
    SkewNormal,
)

SIZES = np.array([1.0, 1.0, 1e4])  # of three columns, the last of them noise alone


def groups(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose groups differ by five deviations in two columns, by a tenth in the third."""
    rng = np.random.default_rng(seed)
    which = (rng.random(200) < 0.35).astype(int)
    rows = rng.normal(size=(200, 3))
    rows[:, 2] -= np.array([rows[which == k, 2].mean() for k in (0, 1)])[which]
    return SIZES * (rows + 5 * which[:, None] * [1, -1, 0.02]), which


MODELS: dict[str, Any] = {
    "independent": lambda: Mixture(2, Normal()),
    "normal": lambda: Mixture(2, MultivariateNormal()),
    "t": lambda: Mixture(2, MultivariateT()),
    "skew": lambda: Mixture(2, SkewNormal()),
    "states": lambda: HiddenMarkov(2, Normal()),
}


@pytest.mark.parametrize("name", MODELS)
def test_fits_of_two_samples_are_matched_by_what_separates_the_groups(name: str) -> None:
    """The group of either is known; the noise of the third column names nobody."""
    for seed in range(2 if name == "skew" else 4):
        found = []
        for part in (seed, 100 + seed):
            rows, which = groups(part)
            data = rows.reshape(20, 10, 3) if name == "states" else rows
            with warnings.catch_warnings():  # groups of sequences come by chance
                warnings.simplefilter("ignore")
                found.append(fit(MODELS[name](), data, seed=part, progress=False))
        matched = align(found[0], found[1])
        site = "locations" if name == "skew" else "means"
        sites = [site if site in own.params else "predictors" for own in found]
        ours, theirs = matched.params[sites[0]], found[1].params[sites[1]]
        assert float((ours - theirs)[:, :2].abs().max()) < 2.5, seed


def test_components_of_one_mean_are_matched_by_their_widths() -> None:
    rng = np.random.default_rng(0)
    for seed in range(3):
        found = []
        for _ in range(2):
            wide = rng.random(600) < 0.5
            rows = rng.normal(size=(600, 2)) * np.where(wide, 6.0, 1.0)[:, None]
            found.append(fit(Mixture(2, Normal()), rows, seed=seed, progress=False))
        variances = [align(found[0], found[1]).params["dispersion"], found[1].params["dispersion"]]
        order = [int(value.mean(1).argmax()) for value in variances]
        assert order[0] == order[1]


def test_latents_of_an_encoder_are_matched_whatever_the_unit_of_an_item() -> None:
    """A column of noise in grams beside columns in tonnes does not decide who is who."""
    rng = np.random.default_rng(0)
    model = DeepDiscreteEncoder(7, (2,), Normal(), penalty=None)
    structure = structure_of(model)
    assert isinstance(structure, LayeredStructure)
    loadings = np.vstack([np.kron(np.eye(2), 3 * np.ones((3, 1))), np.zeros((1, 2))])
    for seed in range(4):
        found = []
        for _ in range(2):
            rows = (rng.random((400, 2)) < 0.5) @ loadings.T + rng.normal(size=(400, 7))
            rows[:, 6] *= 500
            rows[:, 6] -= rows[:, 6].mean()
            found.append(fit(model, rows, seed=seed, progress=False).params)
        moved = align_layers(*found, structure.layers, structure.root).params["loadings_1"]
        assert float((moved - found[1]["loadings_1"])[:6].abs().max()) < 1.5, seed
        draws = {name: torch.stack([value, found[1][name]]) for name, value in found[0].items()}
        first, second = relabel_draws(draws, structure.labels(), found[1])[0]["loadings_1"]
        assert float((first - second)[:6].abs().max()) < 1.5, seed
