"""Wishart distribution of precision matrices, with a bijection to the real line."""

from __future__ import annotations

import math
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import biject_to, constraints, transform_to, transforms


class PositiveDefinite(type(constraints.positive_definite)):  # type: ignore[misc]
    """Constraint of positive definite matrices of a known size, with a bijection."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        """Check each matrix by itself, its entries for finiteness too.

        torch looks at no factor where one of them is not symmetric, and lets infinite entries pass.
        """
        symmetric = torch.isclose(value, value.mT, atol=1e-6) & value.isfinite()
        return symmetric.flatten(-2).all(-1) & (torch.linalg.cholesky_ex(value).info == 0)


class LogCholesky(transforms.Transform):
    r"""Transform of vectors of length J (J + 1) / 2 to matrices :math:`L L^\top`.

    The lower triangle of L, its diagonal by the logarithm.

    The Jacobian's determinant is :math:`2^J \prod_i L_{ii}^{J + 2 - i}`, i = 1, ..., J.

    Args:
        size: J.
    """

    bijective = True
    domain = constraints.real_vector

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.rows, self.columns = torch.tril_indices(size, size)

    @property
    def codomain(self) -> constraints.Constraint:
        return constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        lower = x.new_zeros(*x.shape[:-1], self.size, self.size)
        lower[..., self.rows, self.columns] = x
        factor = lower.tril(-1) + torch.diag_embed(lower.diagonal(dim1=-2, dim2=-1).exp())
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        factor = torch.linalg.cholesky(y)
        factor = factor.tril(-1) + torch.diag_embed(factor.diagonal(dim1=-2, dim2=-1).log())
        return factor[..., self.rows, self.columns]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        logs = x[..., self.rows == self.columns]
        powers = torch.arange(self.size + 1, 1, -1).to(x)
        return self.size * math.log(2) + (powers * logs).sum(-1)

    def forward_shape(self, shape: torch.Size) -> torch.Size:
        return shape[:-1] + torch.Size([self.size, self.size])

    def inverse_shape(self, shape: torch.Size) -> torch.Size:
        return shape[:-2] + torch.Size([self.size * (self.size + 1) // 2])


@biject_to.register(PositiveDefinite)
@transform_to.register(PositiveDefinite)
def _biject_to_positive_definite(constraint: PositiveDefinite) -> transforms.Transform:
    return LogCholesky(constraint.size)


class Precision(dist.Wishart):
    """Wishart distribution with a bijection of its support.

    It draws without torch's repeated check for singular draws, which warns where the scale is
    large.
    """

    @property
    def support(self) -> constraints.Constraint:
        return PositiveDefinite(self.event_shape[-1])

    def rsample(self, sample_shape: Any = torch.Size(), max_try_correction: Any = None) -> Tensor:
        draw = self._bartlett_sampling(torch.Size(sample_shape))
        return (draw + draw.mT) / 2
