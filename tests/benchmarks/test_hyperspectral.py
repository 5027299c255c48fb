"""Hyperspectral scenes: simulator, loaders, maps, and unmixing with a known truth."""

from __future__ import annotations

import numpy as np
import pytest
from papers.hyperspectral import load_scene, simulate_scene
from scipy.io import savemat

from inference import fit
from inference.metrics import match_components
from ppl_models import GaussianFactorization


def test_a_simulated_scene_is_a_linear_mixture():
    scene = simulate_scene((30, 20), 50, 3, noise=0.02, seed=1)
    assert scene.pixels.shape == (600, 50)
    assert np.allclose(scene.abundances.sum(1), 1)
    assert scene.abundances.max(0).min() > 0.8  # some pixel is nearly pure
    residual = scene.pixels - scene.abundances @ scene.endmembers
    assert residual.std() == pytest.approx(0.02, rel=0.05)
    field = scene.abundances.reshape(30, 20, 3)
    assert (
        np.abs(np.diff(field, axis=0)).mean() < 0.5 * np.abs(field - field[::-1]).mean()
    )  # neighbours are alike
    assert np.array_equal(simulate_scene((30, 20), 50, 3, noise=0.02, seed=1).pixels, scene.pixels)


def test_unmixing_finds_the_materials():
    scene = simulate_scene((24, 24), 40, 3, noise=0.005, seed=2)
    result = fit(GaussianFactorization(40, 3, nonnegative=True), scene.pixels, num_restarts=4)
    match = match_components(result.params["signatures"], scene.endmembers)
    assert match.cosine_error.max() < 0.1
    own = np.asarray(result.local["activities"])
    own = (own / own.sum(1, keepdims=True))[:, match.estimated[0]]
    assert np.corrcoef(own, scene.abundances[:, 0])[0, 1] > 0.8


def test_urban_is_read_down_the_columns(tmp_path, monkeypatch):
    monkeypatch.setenv("PPL_MODELS_DATA", str(tmp_path))
    height, width = 3, 4
    place = np.arange(12).reshape(height, width)  # the value of a pixel is its place in our order
    cube = np.repeat(place.ravel(order="F")[None], 162, 0).astype(float)
    savemat(tmp_path / "Urban_R162.mat", {"Y": cube, "nRow": height, "nCol": width})
    savemat(
        tmp_path / "end5_groundTruth.mat", {"A": np.repeat(cube[:1], 5, 0), "M": np.ones((162, 5))}
    )
    scene = load_scene("urban")
    assert scene.shape == (3, 4)
    assert np.allclose(scene.pixels[:, 0] * 11, np.arange(12))
    assert np.allclose(scene.abundances[:, 2], np.arange(12))
    assert scene.endmembers.shape == (5, 162)
    savemat(tmp_path / "end5_groundTruth.mat", {"A": np.ones((4, 12)), "M": np.ones((162, 5))})
    with pytest.raises(ValueError, match="were expected, with the spectra"):
        load_scene("urban")


@pytest.mark.data("jasper_ridge.npz")
def test_jasper_ridge_agrees_with_its_materials():
    """If pixels or abundances were transposed, the linear mixture would explain the scene badly."""
    scene = load_scene("jasper_ridge")
    assert scene.pixels.shape == (10_000, 198)
    coefficients, *_ = np.linalg.lstsq(scene.abundances, scene.pixels, rcond=None)
    explained = (
        1
        - np.square(scene.pixels - scene.abundances @ coefficients).sum()
        / np.square(scene.pixels).sum()
    )
    assert explained > 0.95
    turned = scene.abundances.reshape(100, 100, 4).transpose(1, 0, 2).reshape(-1, 4)
    coefficients, *_ = np.linalg.lstsq(turned, scene.pixels, rcond=None)
    assert (
        1 - np.square(scene.pixels - turned @ coefficients).sum() / np.square(scene.pixels).sum()
        < explained - 0.02
    )


def test_bad_input(tmp_path, monkeypatch):
    monkeypatch.setenv("PPL_MODELS_DATA", str(tmp_path))
    for call, message in (
        (lambda: load_scene("pavia"), "name must be one of"),
        (lambda: simulate_scene((0, 3)), "height must be a positive integer"),
        (lambda: simulate_scene(noise=-1.0), "noise must not be negative"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(FileNotFoundError, match=r"Urban_R162\.mat is not in the folder"):
        load_scene("urban")
