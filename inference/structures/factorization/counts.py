"""Monotone updates of a Poisson factorization, for many restarts at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ppl_models.parts.responses import Poisson, filled

if TYPE_CHECKING:
    from ppl_models.descriptions.components import FactorizationDescription

__all__ = ["BLOCK_ELEMENTS", "FLOOR", "Counts"]

FLOOR = 1e-12  # of an expected count
BLOCK_ELEMENTS = 2**17  # entries of the table times restarts at once: beyond, they leave the processor's cache


@dataclass(frozen=True, eq=False)
class Counts:
    r"""Updates of a Poisson factorization: EM with the components' shares of each count as missing data.

    :math:`E[y_{nkj} \mid x] = x_{nj} z_{nk} \phi_{kj} / \mu_{nj}`; a missing entry is missing data as well, so every update
    keeps :math:`\sum_j \phi_{kj} = 1` and never lowers the log-posterior. With flat priors and complete data these are the
    multiplicative updates of Lee and Seung (2001) for the Kullback-Leibler divergence.

    Args:
        x: (N, J) counts; mask: (N, J), 0 where missing, or None.
        concentration: of the signatures' Dirichlet prior; shape, rate: of the activities' Gamma prior (1, 0 for flat).
    """

    x: Tensor
    mask: Tensor | None
    concentration: float = 1.0
    shape: float = 1.0
    rate: float = 0.0

    @classmethod
    def of(cls, data: Tensor, about: FactorizationDescription) -> Counts:
        """For a table with NaN where missing."""
        x, mask = filled(Poisson(), data)
        shape, rate = about.activity_prior or (1.0, 0.0)
        return cls(x, mask, about.concentration, shape, rate)

    def ratio(self, z: Tensor, phi: Tensor) -> Tensor:
        """x / mu, (R, N, J); 1 where missing, for there the expected count is mu itself."""
        ratio = self.x / (z @ phi).clamp_(min=FLOOR)
        return ratio if self.mask is None else ratio * self.mask + (1 - self.mask)

    def activities(self, z: Tensor, phi: Tensor, ratio: Tensor | None = None) -> Tensor:
        """The update of z given phi, (R, N, K)."""
        ratio = self.ratio(z, phi) if ratio is None else ratio
        return (z * (ratio @ phi.mT) + (self.shape - 1)) / (1 + self.rate)

    def signatures(self, z: Tensor, phi: Tensor, ratio: Tensor | None = None) -> Tensor:
        """The update of phi given z, (R, K, J)."""
        ratio = self.ratio(z, phi) if ratio is None else ratio
        return self._signatures(phi, z.mT @ ratio)

    def _signatures(self, phi: Tensor, pulls: Tensor) -> Tensor:
        new = phi * pulls + (self.concentration - 1)
        total = new.sum(-1, keepdim=True)
        return torch.where(total > 0, new / total.clamp(min=1e-300), phi)  # a component that nobody uses stays as it is

    def log_likelihood_rows(self, z: Tensor, phi: Tensor) -> Tensor:
        """Given the activities, (R, N)."""
        mu = (z @ phi).clamp_(min=FLOOR)
        terms = self.x * mu.log() - mu - torch.lgamma(self.x + 1)
        return (terms if self.mask is None else terms * self.mask).sum(-1)

    def varying(self, z: Tensor, phi: Tensor) -> Tensor:
        """Log-posterior up to a constant, (R,)."""
        total = z.new_zeros(len(z))
        for rows, block in self.blocks:
            mu = (z[:, rows] @ phi).clamp_(min=FLOOR)
            terms = mu.log().mul_(block.x).sub_(mu)  # half the time of xlogy; mu is above zero
            total = total + (terms if block.mask is None else terms * block.mask).sum((-2, -1))
        if self.concentration > 1:
            total = total + (self.concentration - 1) * phi.clamp(min=1e-300).log().sum((-2, -1))
        if self.shape > 1 or self.rate > 0:
            total = total + ((self.shape - 1) * z.clamp(min=1e-300).log() - self.rate * z).sum((-2, -1))
        return total

    def sweep(self, z: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        """Activities, then signatures; a tall table by blocks of rows, each of which stays in the processor's cache."""
        parts, pulls = [], torch.zeros_like(phi)
        for rows, block in self.blocks:
            own = block.activities(z[:, rows], phi)
            pulls += own.mT @ block.ratio(own, phi)
            parts.append(own)
        return torch.cat(parts, 1), self._signatures(phi, pulls)

    @cached_property
    def blocks(self) -> list[tuple[slice, Counts]]:
        """The table by blocks of rows."""
        size = max(1, BLOCK_ELEMENTS // self.x.shape[1])
        places = [slice(start, start + size) for start in range(0, len(self.x), size)]
        mask = self.mask
        return [(rows, replace(self, x=self.x[rows], mask=None if mask is None else mask[rows])) for rows in places]
