"""Starts of factorizations: random positive factors, double singular value decomposition."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from inference.base.structure import Problem
from inference.programs.program import Params
from ppl_models.data.sparse import SparseTable


def random_factors(
    x: Tensor | SparseTable, num_components: int, num_restarts: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Random positive activities (R, N, K) and signatures (R, K, J) around the mean row.

    Activities sum to the row totals; signatures lie on the simplex.

    ``x``: (N, J), not negative, complete.
    """
    generator = torch.Generator().manual_seed(seed)
    n, j = x.shape
    rows, columns, mean = _sums(x)
    z = (
        torch.rand(num_restarts, n, num_components, generator=generator, dtype=torch.float64).to(
            rows
        )
        + 0.1
    )
    z = z * (rows[:, None] / z.sum(-1, keepdim=True)).clamp(min=1e-6)
    phi = (
        -torch.rand(num_restarts, num_components, j, generator=generator, dtype=torch.float64)
        .log()
        .to(rows)
    )
    phi = (phi + 0.01) * (columns + 1e-3 * mean + 1e-12)
    return z, phi / phi.sum(-1, keepdim=True)


def _sums(x: Tensor | SparseTable) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of the rows (N,), means of the columns (J,) and of all cells ()."""
    if not isinstance(x, SparseTable):
        return x.sum(-1), x.mean(0), x.mean()
    rows = x.row_sums(x.values)
    columns = x.column_sums(x.values) / len(x)
    return rows, columns, columns.mean()


def nndsvd(x: Tensor | SparseTable, num_components: int, seed: int) -> tuple[Tensor, Tensor]:
    """Non-negative double singular value decomposition, zeros filled at random.

    Source: Boutsidis and Gallopoulos (2008), doi:10.1016/j.patcog.2007.09.010.

    Returns:
        Activities (N, K), and signatures (K, J) on the simplex; all positive, for zeros absorb.
    """
    if isinstance(x, SparseTable):
        u, s, vt = _leading(x, num_components, seed)
    else:
        u, s, vt = torch.linalg.svd(x, full_matrices=False)
    mean = _sums(x)[2]
    generator = torch.Generator().manual_seed(seed)
    z, phi = s.new_zeros(len(x), num_components), s.new_zeros(num_components, x.shape[1])
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
        noise = torch.rand(factor.shape, generator=generator, dtype=torch.float64).to(mean)
        small = (mean / 100).clamp(min=1e-6) * (noise + 0.01)
        factor.copy_(torch.where(factor > 0, factor, small))
    total = phi.sum(-1)
    return z * total, phi / total[:, None]


def _leading(x: SparseTable, num: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Leading singular vectors and values, by a randomised range finder."""
    from sklearn.utils.extmath import randomized_svd

    found = randomized_svd(x.with_values(x.values), num, n_iter=7, random_state=seed % 2**32)
    u, s, vt = (torch.from_numpy(np.ascontiguousarray(part)).to(x.values) for part in found)
    return u, s, vt


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
