"""Updates of a non-negative factorization by least squares, for many restarts at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["LeastSquares"]


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Updates of a non-negative factorization by least squares, one component at a time (Cichocki and Phan 2009).

    Args:
        x: (N, J).
    """

    x: Tensor

    def activities(self, z: Tensor, phi: Tensor) -> Tensor:
        """One pass over the components of z given phi."""
        cross, gram = self.x @ phi.mT, phi @ phi.mT  # (R, N, K), (R, K, K)
        return _coordinate_pass(z, cross, gram)

    def sweep(self, z: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        """Activities, then signatures; an unused component starts anew at the row that is explained worst."""
        z = self.activities(z, phi)
        cross, gram = self.x.mT @ z, z.mT @ z
        phi = _coordinate_pass(phi.mT, cross, gram).mT
        length = phi.norm(dim=-1, keepdim=True)
        dead = (length.squeeze(-1) <= 1e-12) | (z.sum(-2) <= 1e-12)
        if bool(dead.any()):
            residual = (self.x - z @ phi).clamp(min=0)
            worst = residual.square().sum(-1).argmax(-1)  # (R,)
            rows = residual[torch.arange(len(z)), worst].unsqueeze(-2)
            phi = torch.where(dead.unsqueeze(-1), rows + 1e-12, phi)
            z = torch.where(dead.unsqueeze(-2), torch.zeros_like(z), z)
            length = phi.norm(dim=-1, keepdim=True)
        return z * length.mT, phi / length

    def varying(self, z: Tensor, phi: Tensor) -> Tensor:
        """Minus the sum of squares, (R,)."""
        return -(self.x - z @ phi).square().sum((-2, -1))


def _coordinate_pass(z: Tensor, cross: Tensor, gram: Tensor) -> Tensor:
    """Minimise over each column of z >= 0 in turn: |x - z phi|^2 with cross = x phi^T, gram = phi phi^T."""
    z = z.clone()
    for k in range(z.shape[-1]):
        own = gram[:, k, k].clamp(min=1e-300)[:, None]
        slope = cross[..., k] - (z @ gram[..., k : k + 1]).squeeze(-1)
        z[..., k] = (z[..., k] + slope / own).clamp(min=0)
    return z
