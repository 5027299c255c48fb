"""Precision matrices and Cholesky factors: bijections to vectors, Wishart distribution."""

from __future__ import annotations

import math
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import biject_to, constraints, transform_to, transforms
from torch.distributions.utils import lazy_property


class PositiveDefinite(type(constraints.positive_definite)):  # type: ignore[misc]
    """Constraint of positive definite matrices of a known size, with a bijection."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__()

    def __repr__(self) -> str:
        return "symmetric positive definite matrices"

    def check(self, value: Tensor) -> Tensor:
        """Check each matrix by itself, its entries for finiteness too.

        torch looks at no factor where one of them is not symmetric, and lets infinite entries pass.
        """
        off = (value - value.mT).abs()
        symmetric = (off <= 1e-6 + 1e-5 * value.mT.abs()) & value.isfinite()
        return symmetric.flatten(-2).all(-1) & (torch.linalg.cholesky_ex(value).info == 0)


class LowerCholesky(type(constraints.lower_cholesky)):  # type: ignore[misc]
    """Constraint of lower triangular matrices of a known size with a positive diagonal."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__()


class LogFactor(transforms.Transform):
    r"""Transform of vectors of length J (J + 1) / 2 to lower triangular matrices L.

    The diagonal of L by its logarithm. The Jacobian's determinant is :math:`\prod_i L_{ii}`.

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
        return LowerCholesky(self.size)

    def _call(self, x: Tensor) -> Tensor:
        lower = x.new_zeros(*x.shape[:-1], self.size, self.size)
        lower[..., self.rows, self.columns] = x
        return lower.tril(-1) + torch.diag_embed(lower.diagonal(dim1=-2, dim2=-1).exp())

    def _inverse(self, y: Tensor) -> Tensor:
        factor = y.tril(-1) + torch.diag_embed(y.diagonal(dim1=-2, dim2=-1).log())
        return factor[..., self.rows, self.columns]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x[..., self.rows == self.columns].sum(-1)

    def forward_shape(self, shape: torch.Size) -> torch.Size:
        return shape[:-1] + torch.Size([self.size, self.size])

    def inverse_shape(self, shape: torch.Size) -> torch.Size:
        return shape[:-2] + torch.Size([self.size * (self.size + 1) // 2])


class LogCholesky(LogFactor):
    r"""Transform of vectors of length J (J + 1) / 2 to matrices :math:`L L^\top`.

    The lower triangle of L, its diagonal by the logarithm.

    The Jacobian's determinant is :math:`2^J \prod_i L_{ii}^{J + 2 - i}`, i = 1, ..., J.

    Args:
        size: J.
    """

    @property
    def codomain(self) -> constraints.Constraint:
        return constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = super()._call(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return super()._inverse(torch.linalg.cholesky(y))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        logs = x[..., self.rows == self.columns]
        powers = torch.arange(self.size + 1, 1, -1).to(x)
        return self.size * math.log(2) + (powers * logs).sum(-1)


@biject_to.register(LowerCholesky)
@transform_to.register(LowerCholesky)
def _biject_to_lower_cholesky(constraint: LowerCholesky) -> transforms.Transform:
    return LogFactor(constraint.size)


@biject_to.register(PositiveDefinite)
@transform_to.register(PositiveDefinite)
def _biject_to_positive_definite(constraint: PositiveDefinite) -> transforms.Transform:
    return LogCholesky(constraint.size)


class Precision(dist.Wishart):
    r"""Wishart distribution with a bijection of its support.

    With :math:`\nu` degrees of freedom and scale V the density of a matrix X of size p is

    .. math::

        \log p(X) = \tfrac{\nu - p - 1}{2} \log|X| - \tfrac{1}{2} \mathrm{tr}(V^{-1} X)
        - \tfrac{\nu p}{2} \log 2 - \tfrac{\nu}{2} \log|V| - \log\Gamma_p(\nu / 2),

    whose last three terms are worked out once, and the first where its factor is not 0; torch
    solves a system in V for each X. It draws without torch's repeated check for singular draws,
    which warns where the scale is large.
    """

    @property
    def support(self) -> constraints.Constraint:
        return PositiveDefinite(self.event_shape[-1])

    @lazy_property
    def _log_normalizer(self) -> Tensor:
        """Logarithm of the constant that the density is divided by."""
        size, root = self.event_shape[-1], self._unbroadcasted_scale_tril
        half_log_scale = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        whole: Tensor = self.df * (0.5 * size * math.log(2) + half_log_scale)
        return whole + torch.mvlgamma(self.df / 2, p=size)

    @lazy_property
    def _power(self) -> Tensor | None:
        """Power of the determinant in the density; None where it is 0."""
        power: Tensor = (self.df - self.event_shape[-1] - 1) / 2
        return power if bool((power != 0).any()) else None

    @lazy_property
    def _half_inverse(self) -> Tensor:
        half: Tensor = self.precision_matrix / 2
        return half

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of positive definite matrices (..., J, J)."""
        if self._validate_args:
            self._validate_sample(value)
        trace = (self._half_inverse * value).sum((-2, -1))
        density: Tensor = -trace - self._log_normalizer
        if self._power is None:
            return density
        return density + self._power * torch.linalg.slogdet(value).logabsdet

    def rsample(self, sample_shape: Any = torch.Size(), max_try_correction: Any = None) -> Tensor:
        draw = self._bartlett_sampling(torch.Size(sample_shape))
        return (draw + draw.mT) / 2
