"""Multivariate normal of rows with missing entries: the marginal of the observed ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ppl_models.parts.distributions import broadcast_shapes


def patterns_of(missing: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Missing patterns of bool (N, J): rows (n,) and observed entries (J,) of each."""
    kinds, which = torch.unique(missing, dim=0, return_inverse=True)
    for g, kind in enumerate(kinds):
        yield (which == g).nonzero().ravel(), ~kind


class RowNormal(dist.MultivariateNormal):
    r"""Multivariate normal that integrates out NaN entries of rows (N, J).

    As :class:`pyro.distributions.MultivariateNormal` otherwise.

    With o the entries of a row that are there, :math:`\log p(x_o) = \log N(x_o; \mu_o,
    \Sigma_{oo})`, worked out once for all rows that have the same; a row without any has
    :math:`\log 1`.

    Args:
        loc: means, (..., J).
        precision_matrix: (..., J, J).
    """

    def __init__(
        self, loc: Tensor, precision_matrix: Tensor, validate_args: bool | None = None
    ) -> None:
        # not torch's, which loads a computer algebra system to compare two shapes
        batch = broadcast_shapes(precision_matrix.shape[:-2], loc.shape[:-1])
        self.precision_matrix = precision_matrix.expand((*batch, -1, -1))
        self.loc = loc.expand((*batch, -1))
        Distribution.__init__(self, batch, loc.shape[-1:], validate_args=validate_args)
        upside_down = torch.linalg.cholesky(precision_matrix.flip(-2, -1))  # of Lambda
        inverse = upside_down.flip(-2, -1).mT
        self._unbroadcasted_scale_tril = torch.linalg.solve_triangular(
            inverse, torch.eye(loc.shape[-1]).to(inverse), upper=False
        )

    def expand(self, batch_shape: Any, _instance: Any = None) -> RowNormal:
        new: RowNormal = super().expand(
            batch_shape, self._get_checked_instance(RowNormal, _instance)
        )
        return new

    def log_prob(self, value: Tensor) -> Tensor:
        missing = value.isnan()
        # steps of sequences are complete, or hidden by their chain
        if missing.dim() != 2 or not bool(missing.any()):
            return super().log_prob(value)
        lower = self._unbroadcasted_scale_tril
        covariance = lower @ lower.mT
        is_shared = covariance.dim() == 2 or covariance.shape[-3] == 1  # by all rows
        off = value - self.loc  # (..., N, J)
        off = off.expand(*broadcast_shapes(off.shape[:-1], covariance.shape[:-2]), off.shape[-1])
        parts, places = [], []
        for rows, seen in patterns_of(missing):
            x = off[..., rows, :][..., seen]  # (..., n, O)
            own = covariance if is_shared else covariance[..., rows, :, :]
            factor = torch.linalg.cholesky(own[..., seen, :][..., seen])
            if is_shared:
                factor = factor if factor.dim() == 2 else factor[..., 0, :, :]
                white = torch.linalg.solve_triangular(factor, x.mT, upper=False).square().sum(-2)
                volume = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1, keepdim=True)
            else:
                white = (
                    torch.linalg.solve_triangular(factor, x.unsqueeze(-1), upper=False)
                    .squeeze(-1)
                    .square()
                    .sum(-1)
                )
                volume = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            constant = 0.5 * int(seen.sum()) * torch.log(off.new_tensor(2 * torch.pi))
            parts.append(-volume - white / 2 - constant)
            places.append(rows)
        return torch.cat(parts, -1)[..., torch.cat(places).argsort()]
