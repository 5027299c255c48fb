r"""Coefficients of children that no parent lowers: the maximiser of a concave quadratic in a cone
(and a box).

With gradient g and information H at :math:`\beta`, steps A of the predictor along the lattice of
profiles, and an interval, the step d solves

.. math::

    \max_d \; g \cdot d - \tfrac{1}{2} d^\top H d \quad \text{with } A(\beta + d) \ge 0, \; |\beta +
    d| \le B,

exactly: with :math:`H = L L^\top` and :math:`z = L^\top d - L^{-1} g` it is the problem of least
distance :math:`\min \lVert z \rVert` with :math:`G L^{-\top} z \ge r`, which a nonnegative
least-squares problem solves (C. L. Lawson and R. J. Hanson 1974, chapter 23,
doi:10.1137/1.9781611971217).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

SLACK = 1e-10
ZERO = 1e-9  # a coefficient below it is zero: the active ones come out as rounding


def inside_cone(beta: Tensor, steps: Tensor) -> Tensor:
    """Whether no step falls, bool (...,) of (..., P)."""
    return (beta @ steps.mT >= -SLACK).all(-1)


def cone_step(
    beta: Tensor, gradient: Tensor, hessian: Tensor, steps: Tensor, bound: float | Tensor
) -> Tensor:
    """The maximisers of the quadratics about ``beta``, which lies in the cone, (M, P).

    Args:
        beta, gradient: (M, P); hessian: (M, P, P), positive semidefinite.
        steps: A, (E, P).
        bound: B, inf for none.
    """
    from scipy.optimize import nnls

    width = float(torch.as_tensor(bound).max())
    size = beta.shape[-1]
    limits = steps.double().cpu().numpy()
    low = np.zeros(len(limits))
    if np.isfinite(width):
        limits = np.concatenate([limits, np.eye(size), -np.eye(size)])
        low = np.concatenate([low, np.full(2 * size, -width)])
    out = []
    for b, g, h in zip(
        *(value.double().cpu().numpy() for value in (beta, gradient, hessian)), strict=True
    ):
        ridge = 1e-8 * max(1e-8, float(np.trace(h)) / size)
        factor = np.linalg.cholesky(h + ridge * np.eye(size))
        newton = np.linalg.solve(factor, g)
        across = np.linalg.solve(factor, limits.T)  # L^-1 G^T, (P, E)
        needed = low - limits @ b - across.T @ newton
        system = np.vstack([across, needed])
        target = np.zeros(size + 1)
        target[-1] = 1.0
        weights, _ = nnls(system, target)
        rest = system @ weights - target
        z = -rest[:-1] / rest[-1]
        found = b + np.linalg.solve(factor.T, z + newton)
        found[1:][np.abs(found[1:]) < ZERO] = 0.0
        out.append(torch.from_numpy(found))
    return torch.stack(out).to(beta)
