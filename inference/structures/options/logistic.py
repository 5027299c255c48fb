r"""Weighted multinomial logistic regressions, many at once: one step of Newton's method with
backtracking.

For problem (r, g) the objective is

.. math::

    \sum_n \sum_c y_{ngc} \log \mathrm{softmax}_c(0, W_1 x_n, \dots) - \lVert W \rVert^2 / (2
    \sigma^2)

with targets y not negative and not summing to one: expected counts. It is concave, so halving a
Newton step that does not gain leads uphill in the end.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 2**22  # entries of the largest temporary
NUM_HALVINGS = 12


def _log_softmax(weights: Tensor, design: Tensor) -> Tensor:
    """(R, G, C - 1, P), (R or 1, n, P) -> (R, n, G, C)."""
    r, g, c, p = weights.shape
    flat = design @ weights.reshape(r, g * c, p).mT
    return torch.nn.functional.pad(flat.reshape(r, -1, g, c), (1, 0)).log_softmax(-1)


def _chunks(weights: Tensor, design: Tensor) -> list[slice]:
    r, g, c, p = weights.shape
    rows = max(1, CHUNK // (r * g * (c + 1) * max(p, c + 1)))
    return [slice(start, start + rows) for start in range(0, design.shape[1], rows)]


def _value(weights: Tensor, design: Tensor, targets: Tensor, variance: float) -> Tensor:
    """(R, G)."""
    total = -weights.square().sum((-2, -1)) / (2 * variance)
    for rows in _chunks(weights, design):
        total = total + (targets[:, rows] * _log_softmax(weights, design[:, rows])).sum((1, 3))
    return total


def newton_step(weights: Tensor, design: Tensor, targets: Tensor, variance: float) -> Tensor:
    """Weights whose objective is not below that of ``weights``.

    Args:
        weights: (R, G, C - 1, P); class 0 is the reference.
        design: (R or 1, n, P).
        targets: (R, n, G, C).
        variance: of the Normal prior of the weights.
    """
    r, g, c, p = weights.shape
    value = -weights.square().sum((-2, -1)) / (2 * variance)
    gradient = -weights / variance
    identity = torch.eye(c * p, dtype=weights.dtype, device=weights.device) / variance
    curvature = identity.expand(r, g, c * p, c * p).clone()
    for rows in _chunks(weights, design):
        x, y = design[:, rows], targets[:, rows]
        log_chance = _log_softmax(weights, x)
        value = value + (y * log_chance).sum((1, 3))
        chance = log_chance[..., 1:].exp()  # (R, n, G, C - 1)
        total = y.sum(-1, keepdim=True)
        residual = y[..., 1:] - total * chance
        gradient = gradient + (residual.flatten(2).mT @ x).reshape(r, g, c, p)
        block = curvature.view(r, g, c, p, c, p)
        for i in range(c):
            for j in range(i, c):
                weight = (
                    total[..., 0] * chance[..., i] * (float(i == j) - chance[..., j])
                )  # (R, n, G)
                part = torch.stack(
                    [x.mT @ (weight[:, :, k, None] * x) for k in range(g)], 1
                )  # (R, G, P, P)
                block[:, :, i, :, j, :] += part
                if i != j:
                    block[:, :, j, :, i, :] += part
    factor = torch.linalg.cholesky(curvature)
    step = torch.cholesky_solve(gradient.reshape(r, g, c * p, 1), factor).reshape(r, g, c, p)
    size = torch.ones_like(value)
    for _ in range(NUM_HALVINGS):
        new = weights + size[..., None, None] * step
        worse = ~(_value(new, design, targets, variance) >= value)
        if not worse.any():
            return new
        size = torch.where(worse, size / 2, size)
    return torch.where(worse[..., None, None], weights, new)
