"""Counts of three signatures on blocks of channels."""

from __future__ import annotations

import numpy as np

from ppl_models import PoissonFactorization


def counts(seed=0, n=80, j=16, alone=0):
    """Three signatures on blocks of channels; ``alone`` rows hold a fourth, and nothing else, in great numbers."""
    rng = np.random.default_rng(seed)
    phi = np.full((4, j), 0.2 / j)
    for k in range(4):
        phi[k, 4 * k : 4 * k + 4] += 0.2
    z = np.zeros((n, 4))
    z[:, :3] = rng.gamma(1.0, 150.0, (n, 3))
    z[:alone, 3] = 500.0
    return rng.poisson(z @ (phi / phi.sum(1, keepdims=True))).astype(float)


def factory(k):
    return PoissonFactorization(16, k)
