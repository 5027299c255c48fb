"""Endmembers and abundances of mixed rows, beside non-negative factorizations.

Simulated scenes of 2,000 rows, 60 columns and four endmembers whose largest share is below .8, so
that no row is pure; white noise at 10 to 40 dB, and noise whose neighbouring columns have a
correlation of .97; and the scene Jasper Ridge (needs the folder PPL_MODELS_DATA) with its reference
materials. One JSON line a scene and seed: by every method the mean spectral angle to the matched
reference in degrees, the root mean squared error of abundances, the soft adjusted Rand index (which
rewards hard abundances), sweeps and seconds. ``vertices`` are the rows from which a fit starts;
``nmf`` scikit-learn's NMF (abundances: its scores, made to sum to one), ``factorization`` our
GaussianFactorization. ``numbers``: what BIC and the component discrepancies choose among 2 to 6 of
a scene of three, four or five. Run: ``python benchmarks/unmixing.py [--replicates 3] [--cells 20
jasper]``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds
from papers.hyperspectral import Scene, load_scene
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import NMF

from inference import fit
from inference.acdc import acdc
from inference.metrics import soft_adjusted_rand_index
from inference.selection import fit_grid
from inference.structures.factorization.unmixing import nonnegative, pure_rows
from ppl_models import GaussianFactorization, Unmixing
from ppl_models.datasets.fetch import local_file

CELLS = ("10", "20", "30", "40", "correlated", "jasper", "numbers")
SIZES = range(2, 7)
Answer = tuple[np.ndarray, np.ndarray, int | None]  # endmembers, abundances, sweeps


def simulated(
    seed: int, decibels: float = 30.0, num: int = 4, correlation: float = 0.0, size: int = 2000
) -> Scene:
    """Mixtures of sums of three bumps, shares uniform where none exceeds .8."""
    rng, bands = np.random.default_rng(seed), np.linspace(0, 1, 60)
    centre, width = rng.random((num, 3, 1)), rng.uniform(0.05, 0.25, (num, 3, 1))
    height = rng.uniform(0.3, 1, (num, 3, 1))
    spectra = 0.05 + (height * np.exp(-(((bands - centre) / width) ** 2))).sum(1)
    spectra /= spectra.max()
    shares = rng.dirichlet(np.ones(num), 4 * size)
    shares = shares[shares.max(1) < 0.8][:size]
    pixels = shares @ spectra
    noise = rng.normal(size=pixels.shape)
    if correlation:
        apart = np.abs(np.subtract.outer(np.arange(60), np.arange(60)))
        noise = noise @ np.linalg.cholesky(correlation**apart).T
    pixels = pixels + noise * np.sqrt((pixels**2).mean() / 10 ** (decibels / 10))
    return Scene(pixels, (len(pixels), 1), spectra, shares)


def unmixed(noise: str, scene: Scene, num: int, seed: int) -> Answer:
    found = fit(Unmixing(num_components=num, noise=noise), scene.pixels, seed=seed)  # type: ignore[arg-type]
    abundances = found.posterior_latents(scene.pixels)["abundances"].numpy()
    return found.params["endmembers"].numpy(), abundances, len(found.trace.objective)


def vertices(scene: Scene, num: int, seed: int) -> Answer:
    x = torch.as_tensor(scene.pixels)
    phi = pure_rows(x, num, torch.Generator().manual_seed(seed)).clamp(min=0)
    found = nonnegative((phi @ phi.mT)[None], (x @ phi.mT)[None], shares=True)[0]
    return phi.numpy(), found.numpy(), None


def nmf(scene: Scene, num: int, seed: int) -> Answer:
    model = NMF(num, init="nndsvda", max_iter=1000, random_state=seed)
    scores = model.fit_transform(scene.pixels.clip(min=0))
    return model.components_, _shares(scores), model.n_iter_


def factorization(scene: Scene, num: int, seed: int) -> Answer:
    model = GaussianFactorization(num_components=num, nonnegative=True)
    found = fit(model, scene.pixels.clip(min=0), seed=seed)
    return found.params["signatures"].numpy(), _shares(found.local["activities"].numpy()), None


def _shares(scores: np.ndarray) -> np.ndarray:
    scores = scores + 1e-12
    return scores / scores.sum(1, keepdims=True)


METHODS: dict[str, Callable[[Scene, int, int], Answer]] = {
    "independent": partial(unmixed, "independent"),
    "correlated": partial(unmixed, "correlated"),
    "vertices": vertices,
    "nmf": nmf,
    "factorization": factorization,
}


def scores(scene: Scene, answer: Answer) -> dict[str, Any]:
    """How near endmembers and abundances are to the scene's own, matched by angles."""
    spectra, abundances, sweeps = answer
    unit = [
        part / np.linalg.norm(part, axis=1, keepdims=True) for part in (spectra, scene.endmembers)
    ]
    angles = np.degrees(np.arccos(np.clip(unit[0] @ unit[1].T, -1, 1)))
    ours, theirs = linear_sum_assignment(angles)
    errors = abundances[:, ours] - scene.abundances[:, theirs]
    return {
        "angle": round(float(angles[ours, theirs].mean()), 2),
        "rmse": round(float(np.sqrt((errors**2).mean())), 4),
        "index": round(soft_adjusted_rand_index(abundances, scene.abundances), 3),
        "sweeps": None if sweeps is None else int(sweeps),
    }


def measure(args: argparse.Namespace) -> Lines:
    warnings.simplefilter("ignore")
    for cell in args.cells:
        if cell == "jasper" and local_file("jasper_ridge.npz") is None:
            yield {"cell": cell, "missing": "jasper_ridge.npz is not in PPL_MODELS_DATA"}
            continue
        for seed in seeds(args):
            yield {"cell": cell, "seed": seed} | (
                _numbers(seed, args.rows) if cell == "numbers" else _scene(cell, seed, args)
            )


def _scene(cell: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    if cell == "jasper":
        whole = load_scene("jasper_ridge")
        some = np.random.default_rng(seed).permutation(len(whole.pixels))[: args.rows]
        scene = Scene(whole.pixels[some], (len(some), 1), whole.endmembers, whole.abundances[some])
    elif cell == "correlated":
        scene = simulated(seed, correlation=0.97, size=args.rows)
    else:
        scene = simulated(seed, float(cell), size=args.rows)
    out = {}
    for name, method in METHODS.items():
        began = time.process_time()
        answer = method(scene, len(scene.endmembers), seed)
        seconds = round(time.process_time() - began, 1)
        out[name] = scores(scene, answer) | {"cpu_seconds": seconds}
    return out


def _numbers(seed: int, rows: int) -> dict[str, Any]:
    truth = 3 + seed % 3
    scene, began = simulated(seed, num=truth, size=rows), time.process_time()
    fits = fit_grid(partial(Unmixing, 60), scene.pixels, SIZES, 1, seed)
    return {
        "truth": truth,
        "bic": min(SIZES, key=lambda k: fits[k].bic),
        "discrepancies": acdc(fits, scene.pixels, seed=seed).chosen,
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=3)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=CELLS, metavar="CELL")
    parser.add_argument("--rows", type=int, default=2000, help="of every scene")
    run(parser, measure, argv, {"replicates": 1, "rows": 300, "cells": ["20", "jasper"]})


if __name__ == "__main__":
    main()
