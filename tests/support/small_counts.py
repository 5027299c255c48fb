"""Counts of three signatures, and fits of one to five."""

from __future__ import annotations

import functools

import numpy as np

from inference.selection import fit_grid
from ppl_models import PoissonFactorization
from ppl_models.datasets import simulate_mutations


def small_counts(seed=0):
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(48, 0.2), size=3)
    z = rng.gamma(1.0, 300.0, size=(150, 3)) * (rng.random((150, 3)) < 0.8) + 20
    return simulate_mutations(phi, z, seed=seed), phi, z


@functools.cache
def small_grid():
    x, phi, z = small_counts()
    return x, phi, z, fit_grid(lambda k: PoissonFactorization(48, k), x, range(1, 6), num_restarts=5, seed=1)
