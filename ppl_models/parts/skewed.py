"""A multivariate skew-normal distribution."""

from __future__ import annotations

import math

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, constraints

from ppl_models.parts.distributions import broadcast_shapes


class SkewedRows(TorchDistribution):
    r"""Skew-normal rows :math:`x = \mu + \delta |u| + e`.

    u is standard normal and :math:`e \sim N(0, \Lambda^{-1})` (Azzalini and Dalla Valle 1996).

    With :math:`M^2 = 1 / (1 + \delta^\top \Lambda \delta)` and :math:`m = M^2\, \delta^\top \Lambda
    (x - \mu)`,

    .. math::

        \log p(x) = \log 2 + \log N(x; \mu, \Lambda^{-1} + \delta \delta^\top) + \log \Phi(m / M).

    Args:
        location: mu, (\*batch, J); skew: delta, (\*batch, J).
        factor: lower triangular L of the precisions Lambda = L L^T, (\*batch, J, J).
    """

    arg_constraints = {
        "location": constraints.real_vector,
        "skew": constraints.real_vector,
        "factor": constraints.lower_cholesky,
    }
    support = constraints.real_vector

    def __init__(
        self, location: Tensor, skew: Tensor, factor: Tensor, validate_args: bool | None = None
    ) -> None:
        self.location, self.skew, self.factor = location, skew, factor
        batch = broadcast_shapes(location.shape[:-1], skew.shape[:-1], factor.shape[:-2])
        super().__init__(batch, location.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: torch.Size, _instance: Distribution | None = None) -> SkewedRows:
        new = self._get_checked_instance(SkewedRows, _instance)
        # kept unexpanded: log_prob broadcasts
        new.location, new.skew, new.factor = (self.location, self.skew, self.factor)
        super(SkewedRows, new).__init__(
            torch.Size(batch_shape), self.event_shape, validate_args=False
        )
        new._validate_args = self._validate_args
        return new

    @property
    def mean(self) -> Tensor:
        return (self.location + math.sqrt(2 / math.pi) * self.skew).expand(
            self.batch_shape + self.event_shape
        )

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        with torch.no_grad():
            shape = torch.Size(sample_shape) + self.batch_shape
            u = torch.randn(shape, dtype=self.location.dtype, device=self.location.device).abs()
            noise = torch.randn(*shape, *self.event_shape, 1, dtype=u.dtype, device=u.device)
            e = torch.linalg.solve_triangular(
                self.factor.mT.expand(*shape, *self.factor.shape[-2:]), noise, upper=True
            )
            return self.location + u.unsqueeze(-1) * self.skew + e.squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = ((value - self.location).unsqueeze(-2) @ self.factor).squeeze(-2)  # L^T (x - mu)
        d = (self.skew.unsqueeze(-2) @ self.factor).squeeze(-2)
        shrink = 1 + d.square().sum(-1)  # 1 / M^2
        along = (y * d).sum(-1)
        half = self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) - 0.5 * shrink.log()
        distance = y.square().sum(-1) - along.square() / shrink
        constant = math.log(2) - 0.5 * self.event_shape[0] * math.log(2 * math.pi)
        log_density = constant + half - distance / 2 + torch.special.log_ndtr(along / shrink.sqrt())
        return log_density.expand(broadcast_shapes(log_density.shape, self.batch_shape))
