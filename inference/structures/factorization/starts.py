"""Starts of factorizations: random positive factors, double singular value decomposition."""

from __future__ import annotations

import torch
from torch import Tensor

from inference.base.structure import Problem
from inference.programs.program import Params


def random_factors(
    x: Tensor, num_components: int, num_restarts: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Random positive activities (R, N, K) and signatures (R, K, J) around the mean row.

    Activities sum to the row totals; signatures lie on the simplex.

    ``x``: (N, J), not negative, complete.
    """
    generator = torch.Generator().manual_seed(seed)
    n, j = x.shape
    z = (
        torch.rand(num_restarts, n, num_components, generator=generator, dtype=torch.float64).to(x)
        + 0.1
    )
    z = z * (x.sum(-1)[:, None] / z.sum(-1, keepdim=True)).clamp(min=1e-6)
    phi = (
        -torch.rand(num_restarts, num_components, j, generator=generator, dtype=torch.float64)
        .log()
        .to(x)
    )
    phi = (phi + 0.01) * (x.mean(0) + 1e-3 * x.mean() + 1e-12)
    return z, phi / phi.sum(-1, keepdim=True)


def nndsvd(x: Tensor, num_components: int, seed: int) -> tuple[Tensor, Tensor]:
    """Non-negative double singular value decomposition, zeros filled at random.

    Source: Boutsidis and Gallopoulos (2008), doi:10.1016/j.patcog.2007.09.010.

    Returns:
        Activities (N, K), and signatures (K, J) on the simplex; all positive, for zeros absorb.
    """
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    generator = torch.Generator().manual_seed(seed)
    z, phi = x.new_zeros(len(x), num_components), x.new_zeros(num_components, x.shape[1])
    for k in range(num_components):
        left, right = u[:, k], vt[k]
        parts = [
            (left.clamp(min=0), right.clamp(min=0)),
            ((-left).clamp(min=0), (-right).clamp(min=0)),
        ]
        a, b = max(parts, key=lambda pair: float(pair[0].norm() * pair[1].norm()))
        size = (a.norm() * b.norm()).clamp(min=1e-300)
        z[:, k] = (s[k] * size).sqrt() * a / a.norm().clamp(min=1e-300)
        phi[k] = (s[k] * size).sqrt() * b / b.norm().clamp(min=1e-300)
    for factor in (z, phi):
        noise = torch.rand(factor.shape, generator=generator, dtype=torch.float64).to(x)
        small = (x.mean() / 100).clamp(min=1e-6) * (noise + 0.01)
        factor.copy_(torch.where(factor > 0, factor, small))
    total = phi.sum(-1)
    return z * total, phi / total[:, None]


def truncated_svd(problem: Problem, num_components: int, num_restarts: int) -> Params:
    """Exact least-squares factors (R, N, K), (R, K, J); signatures of positive sum.

    Of rows in blocks from the sum of their products, J x J.
    """
    k = num_components
    if problem.rows is None:
        u, s, vt = torch.linalg.svd(problem.data, full_matrices=False)
        z, phi = u[:, :k] * s[:k], vt[:k]
    else:
        gram = problem.summed(lambda x, _: x.mT @ x)
        phi = torch.linalg.eigh(gram).eigenvectors.mT.flip(0)[:k]  # ascending
        phi = problem.rows.processes.params_of_first({"phi": phi})["phi"]
        z = phi.new_empty(len(problem.rows.blocks), k)

        def of_rows(place: slice, x: Tensor) -> dict[str, Tensor]:
            z[place] = x @ phi.mT
            return {}

        problem.rows.summed_at(of_rows, {})
    sign = torch.where(phi.sum(-1) < 0, -1.0, 1.0).to(phi)
    return {
        "signatures": (phi * sign[:, None]).repeat(num_restarts, 1, 1),
        "activities": (z * sign).repeat(num_restarts, 1, 1),
    }
