"""Tables of counts of a known truth, for factorizations."""

from __future__ import annotations

import functools

import numpy as np
import torch

from inference.programs.program import simulate
from inference.selection import fit_grid
from ppl_models import PoissonFactorization, UsageFactorization
from ppl_models.datasets import simulate_mutations


def counts(seed=0, n=80, j=16, alone=0):
    """Three signatures on blocks of channels; ``alone`` rows hold a fourth, and nothing else, in
    great numbers.
    """
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


def small_counts(seed=0):
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(48, 0.2), size=3)
    z = rng.gamma(1.0, 300.0, size=(150, 3)) * (rng.random((150, 3)) < 0.8) + 20
    return simulate_mutations(phi, z, seed=seed), phi, z


@functools.cache
def small_grid():
    x, phi, z = small_counts()
    return (
        x,
        phi,
        z,
        fit_grid(lambda k: PoissonFactorization(48, k), x, range(1, 6), num_restarts=5, seed=1),
    )


F64 = torch.float64


def simulated(
    num_rows: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Four components of twenty columns, two of them in few rows: counts, usage, truth."""
    rng = np.random.default_rng(seed)
    truth = {
        "signatures": torch.tensor(rng.dirichlet(np.full(20, 0.3), 4)),
        "proportions": torch.tensor([0.8, 0.5, 0.3, 0.15], dtype=F64),
        "amounts": torch.tensor([80.0, 60.0, 100.0, 120.0], dtype=F64),
    }
    drawn = simulate(UsageFactorization(20, 4), truth, seed, None, num_rows)
    some = drawn["items"].sum(-1) > 0
    return drawn["items"][some], drawn["usage"][some], truth
