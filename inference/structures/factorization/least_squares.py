"""Updates of a non-negative factorization by least squares, for many restarts at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from inference.structures.factorization.alternating import Alternating, Sums


@dataclass(frozen=True, eq=False)
class LeastSquares(Alternating):
    """Updates of a non-negative factorization by least squares, one component at a time (Cichocki
    and Phan 2009).

    Args:
        x: (N, J).
    """

    x: Tensor

    def on(self, data: Tensor) -> LeastSquares:
        return LeastSquares(data)

    def at(self, index: Tensor) -> LeastSquares:
        return LeastSquares(self.x[index])

    def activities(self, z: Tensor, phi: Tensor) -> Tensor:
        """One pass over the components of z given phi."""
        cross, gram = self.x @ phi.mT, phi @ phi.mT  # (R, N, K), (R, K, K)
        return _coordinate_pass(z, cross, gram)

    def pulls(self, z: Tensor, phi: Tensor) -> Sums:
        return {"cross": self.x.mT @ z, "gram": z.mT @ z, "used": z.sum(-2)}

    def moved(self, z: Tensor, phi: Tensor, pulls: Sums) -> tuple[Tensor, Tensor]:
        """Signatures of length 1; an unused component starts anew at the row that is explained
        worst.
        """
        phi = _coordinate_pass(phi.mT, pulls["cross"], pulls["gram"]).mT
        length = phi.norm(dim=-1, keepdim=True)
        dead = (length.squeeze(-1) <= 1e-12) | (pulls["used"] <= 1e-12)
        if bool(dead.any()):
            phi = torch.where(dead.unsqueeze(-1), self._worst(z, phi).unsqueeze(-2) + 1e-12, phi)
            z = torch.where(dead.unsqueeze(-2), torch.zeros_like(z), z)
            length = phi.norm(dim=-1, keepdim=True)
        return z * length.mT, phi / length

    def _worst(self, z: Tensor, phi: Tensor) -> Tensor:
        """What is left of the row that is explained worst, (R, J)."""
        largest, left = z.new_full((len(z),), -1.0), z.new_zeros(len(z), phi.shape[-1])

        def of_part(place: slice, part: LeastSquares) -> Sums:
            residual = (part.x - z[:, place] @ phi).clamp(min=0)
            size, row = residual.square().sum(-1).max(-1)  # (R,)
            better = size > largest
            largest.copy_(torch.where(better, size, largest))
            left.copy_(torch.where(better.unsqueeze(-1), residual[torch.arange(len(z)), row], left))
            return {}

        self.summed(of_part, {})
        if self.rows is None:
            return left
        sizes, found = (
            torch.stack(parts)
            for parts in zip(*self.rows.processes.gathered((largest, left)), strict=True)
        )
        return found[sizes.argmax(0), torch.arange(len(z))]

    def values(self, z: Tensor, phi: Tensor) -> Tensor:
        """Minus the sum of squares of each row, (R, N)."""
        return -(self.x - z @ phi).square().sum(-1)


def _coordinate_pass(z: Tensor, cross: Tensor, gram: Tensor) -> Tensor:
    """Minimise over each column of z >= 0 in turn: |x - z phi|^2 with cross = x phi^T, gram = phi
    phi^T.
    """
    z = z.clone()
    for k in range(z.shape[-1]):
        own = gram[:, k, k].clamp(min=1e-300)[:, None]
        slope = cross[..., k] - (z @ gram[..., k : k + 1]).squeeze(-1)
        z[..., k] = (z[..., k] + slope / own).clamp(min=0)
    return z
