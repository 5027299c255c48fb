r"""Newton steps of a factorization of counts, many restarts at once.

Given the signatures the rows are K-dimensional problems with z >= 0, and given the activities the
columns are. With s the slope and c > 0 the curvature of a cell's term by its mean, a half moves to
the maximum over values >= 0 of

.. math:: \sum_k d_k \sum_j s_{nj} \phi_{kj} - \tfrac12 \sum_{kl} d_k d_l \sum_j c_{nj} \phi_{kj}
    \phi_{lj} ;

a row (column) that loses takes a shorter step, or none. The rounds are extrapolated
(:meth:`~inference.structures.factorization.updates.Alternating.extrapolated`): fifteen EM updates
cost what two or three rounds do, and stop on plateaus from which these go on, so that nearly every
start reaches the same optimum.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

PASSES = 5  # over the components, of a Newton step
RIDGE = 1e-5  # of the diagonal of a Hessian
ROUNDING = 1e-12  # of a row's value, which a step may lose
SHARES = (0.3, 0.03)  # of a Newton step that is too long
MOST_COMPONENTS = 64  # Hessians of more cost more than they save


class Corner:
    """Upper corners of symmetric matrices (K, K) as K (K + 1) / 2 numbers."""

    def __init__(self, size: int) -> None:
        self.size = size
        first, second = torch.triu_indices(size, size)
        self.num = len(first)
        places = torch.zeros(size, size, dtype=torch.long)
        places[first, second] = torch.arange(self.num)
        self.places = torch.maximum(places, places.T).ravel()

    def of(self, factor: Tensor) -> Tensor:
        """Products of the components of (..., K, n) by twos, (..., K (K + 1) / 2, n)."""
        *batch, _, n = factor.shape
        if factor.stride(-1) > factor.stride(-2):  # the layout of the factor is kept
            out = factor.new_empty(*batch, n, self.num).mT
        else:
            out = factor.new_empty(*batch, self.num, n)
        begin = 0
        for k in range(self.size):
            end = begin + self.size - k
            torch.mul(factor[..., k : k + 1, :], factor[..., k:, :], out=out[..., begin:end, :])
            begin = end
        return out

    def whole(self, corners: Tensor) -> Tensor:
        """Matrices (..., K, K, n) of corners (..., K (K + 1) / 2, n)."""
        return corners.index_select(-2, self.places).unflatten(-2, (self.size, self.size))


def newton(start: Tensor, slope: Tensor, hessian: Tensor) -> Tensor:
    """Maximise quadratic models over values >= 0, component after component.

    Args:
        start: (..., K, n); slope: there, (..., K, n), changed in place.
        hessian: minus the second derivatives, (..., K, K, n), changed in place.
    """
    value = start.clone()
    diagonal = hessian.diagonal(dim1=-3, dim2=-2).mT  # (..., K, n), a view
    diagonal.mul_(1 + RIDGE)
    # a component without curvature has a cost and no pull, and goes to zero in one step
    inverse = diagonal.clamp(min=1e-300).reciprocal()
    for _ in range(PASSES):
        for k in range(value.shape[-2]):
            old = value[..., k, :]
            new = torch.addcmul(old, slope[..., k, :], inverse[..., k, :]).clamp_(min=0)
            slope.addcmul_(hessian[..., k, :, :], (new - old).unsqueeze(-2), value=-1.0)
            value[..., k, :] = new
    return value


def bettered(
    start: Tensor, far: Tensor, before: Tensor, cells: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Values (R, K, n) that lose nothing: the far ones, nearer ones or the start.

    Args:
        start, far: (R, K, n); before: terms of the objective of each of the n there, (R, n, J).
        cells: the same at other values.

    Returns:
        The values, and the terms there, (R, n, J).
    """
    after, new, value = cells(far), far, before.sum(-1)
    least = value - ROUNDING * value.abs()
    for share in (*SHARES, 0.0):
        worse = ~(after.sum(-1) >= least)  # True of NaN
        if not bool(worse.any()):
            break
        new = torch.where(worse.unsqueeze(-2), torch.lerp(start, far, share), new)
        after = cells(new) if share else torch.where(worse.unsqueeze(-1), before, after)
    return new, after
