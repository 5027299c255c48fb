"""Hyperspectral scenes: every pixel mixes the spectra of a few materials.

A simulator, and two public scenes from a user's folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ppl_models.datasets.fetch import FOLDER_VARIABLE, local_file
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import check_size

SCENES = {
    "urban": (("Urban_R162.mat", "end5_groundTruth.mat"), 162),
    "jasper_ridge": (("jasper_ridge.npz",), 198),
}


@shows_briefly
@dataclass(frozen=True, eq=False)
class Scene:
    """Pixels row by row: pixel (r, c) of an image of width w is row r w + c.

    Args:
        pixels: reflectances, (N, J), largest 1; shape: (height, width), N = height width.
        endmembers: spectra of the materials, (K, J), abundances: their shares of every pixel, (N,
            K); None where unknown.
    """

    pixels: np.ndarray
    shape: tuple[int, int]
    endmembers: np.ndarray | None
    abundances: np.ndarray | None


def simulate_scene(
    shape: tuple[int, int] = (40, 40),
    num_bands: int = 60,
    num_endmembers: int = 4,
    noise: float = 0.01,
    seed: int = 0,
) -> Scene:
    r"""Linear mixing: :math:`x_n = \sum_k a_{nk} m_k + \epsilon_n`, abundances on the simplex,
    normal noise.

    Spectra are sums of three broad bumps over a floor; abundances are sharpened shares of smooth
    random fields, so that some pixels are nearly pure.

    Args:
        shape: (height, width); num_bands: J; num_endmembers: K; noise: standard deviation, the
            largest spectrum being 1.
        seed: of the draws.

    Raises:
        ValueError: for sizes that are not positive integers, or negative noise.
    """
    for name, value in (
        ("height", shape[0]),
        ("width", shape[1]),
        ("num_bands", num_bands),
        ("num_endmembers", num_endmembers),
    ):
        check_size("simulate_scene", name, value)
    if not noise >= 0:
        raise ValueError(f"simulate_scene: noise must not be negative, got {noise!r}")
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(seed)
    band = np.linspace(0, 1, num_bands)
    centre, width = (
        rng.random((num_endmembers, 3, 1)),
        rng.uniform(0.05, 0.25, (num_endmembers, 3, 1)),
    )
    height = rng.uniform(0.3, 1.0, (num_endmembers, 3, 1))
    spectra = 0.05 + (height * np.exp(-(((band - centre) / width) ** 2))).sum(1)
    spectra /= spectra.max()
    smooth = max(shape) / 10
    fields = np.stack(
        [
            gaussian_filter(rng.normal(size=shape), smooth, mode="wrap")
            for _ in range(num_endmembers)
        ],
        -1,
    )
    fields = fields.reshape(-1, num_endmembers)
    logits = 3.0 * fields / fields.std()
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    pixels = shares @ spectra + noise * rng.normal(size=(len(shares), num_bands))
    return Scene(pixels, (shape[0], shape[1]), spectra, shares)


def load_scene(name: str) -> Scene:
    """A public scene with its reference materials, from the folder ``PPL_MODELS_DATA`` names.

    "urban": 307 x 307 pixels, 162 bands, five materials, as the files Urban_R162.mat and
    end5_groundTruth.mat (Zhu 2017, arXiv:1708.05125). "jasper_ridge": 100 x 100 pixels, 198 bands,
    four materials, as jasper_ridge.npz.

    Args:
        name: "urban" or "jasper_ridge".

    Raises:
        ValueError: for another name, or a file of other shapes.
        FileNotFoundError: if a file is not in that folder.
    """
    if name not in SCENES:
        raise ValueError(f"load_scene: name must be one of {sorted(SCENES)}, got {name!r}")
    files, num_bands = SCENES[name]
    tables: dict[str, Any] = {}
    for file in files:
        path = local_file(file)
        if path is None:
            raise FileNotFoundError(
                f"{file} is not in the folder that {FOLDER_VARIABLE} names; it may not be passed on"
                " with the library"
            )
        tables |= _read(path)
    if name == "urban":
        height, width = int(np.ravel(tables["nRow"])[0]), int(np.ravel(tables["nCol"])[0])
        spectra, shares = np.asarray(tables["M"], float).T, np.asarray(tables["A"], float).T
    else:
        height, width = int(tables["h"]), int(tables["w"])
        spectra = np.asarray(tables["endmembers"], float)
        shares = np.asarray(tables["abundances"], float).reshape(height * width, -1, order="F")
    columns = np.asarray(tables["Y"], float)
    if (
        columns.shape != (num_bands, height * width)
        or len(shares) != height * width
        or spectra.shape != (shares.shape[1], num_bands)
    ):
        raise ValueError(
            f"{files[0]}: {num_bands} bands of {height} x {width} pixels were expected, with the"
            f" spectra and abundances of the same materials, got {columns.shape}, {spectra.shape}"
            f" and {shares.shape}"
        )
    order = (
        np.arange(height * width).reshape(width, height).T.ravel()
    )  # files count down the columns, we along the rows
    return Scene(columns.T[order] / columns.max(), (height, width), spectra, shares[order])


def _read(path: Path) -> dict[str, Any]:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file}
    from scipy.io import loadmat

    return dict(loadmat(path))
