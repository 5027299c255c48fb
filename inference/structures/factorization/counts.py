"""Monotone updates of a Poisson factorization, for many restarts at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from inference.structures.factorization.alternating import Alternating, Sums
from ppl_models.parts.responses import Poisson, filled

if TYPE_CHECKING:
    from ppl_models.descriptions.components import FactorizationDescription


FLOOR = 1e-12  # of an expected count
BLOCK_ELEMENTS = (
    2**17
)  # entries of the table times restarts at once: beyond, they leave the processor's cache


@dataclass(frozen=True, eq=False)
class Counts(Alternating):
    r"""Updates of a Poisson factorization: EM with the components' shares of each count as missing
    data.

    :math:`E[y_{nkj} \mid x] = x_{nj} z_{nk} \phi_{kj} / \mu_{nj}`; a missing entry is missing data
    as well, so every update keeps :math:`\sum_j \phi_{kj} = 1` and never lowers the log-posterior.
    With flat priors and complete data these are the multiplicative updates of Lee and Seung (2001)
    for the Kullback-Leibler divergence.

    Args:
        x: (N, J) counts; mask: (N, J), 0 where missing, or None.
        concentration: of the signatures' Dirichlet prior; shape, rate: of the activities' Gamma
            prior (1, 0 for flat).
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

    def on(self, data: Tensor) -> Self:
        x, mask = filled(Poisson(), data)
        return replace(self, x=x, mask=mask, rows=None)

    def at(self, index: Tensor) -> Self:
        return replace(self, x=self.x[index], mask=None if self.mask is None else self.mask[index])

    def ratio(self, z: Tensor, phi: Tensor) -> Tensor:
        """x / mu, (R, N, J); 1 where missing, for there the expected count is mu itself."""
        ratio = self.x / (z @ phi).clamp_(min=FLOOR)
        return ratio if self.mask is None else ratio * self.mask + (1 - self.mask)

    def activities(self, z: Tensor, phi: Tensor) -> Tensor:
        return (z * (self.ratio(z, phi) @ phi.mT) + (self.shape - 1)) / (1 + self.rate)

    def pulls(self, z: Tensor, phi: Tensor) -> Sums:
        return {"pulls": z.mT @ self.ratio(z, phi)}

    def moved(self, z: Tensor, phi: Tensor, pulls: Sums) -> tuple[Tensor, Tensor]:
        new = phi * pulls["pulls"] + (self.concentration - 1)
        total = new.sum(-1, keepdim=True)
        return z, torch.where(
            total > 0, new / total.clamp(min=1e-300), phi
        )  # a component that nobody uses stays as it is

    def log_likelihood_rows(self, z: Tensor, phi: Tensor) -> Tensor:
        """Given the activities, (R, N)."""
        mu = (z @ phi).clamp_(min=FLOOR)
        terms = self.x * mu.log() - mu - torch.lgamma(self.x + 1)
        return (terms if self.mask is None else terms * self.mask).sum(-1)

    def values(self, z: Tensor, phi: Tensor) -> Tensor:
        """Log-posterior of each row up to a constant, (R, N)."""
        mu = (z @ phi).clamp_(min=FLOOR)
        terms = mu.log().mul_(self.x).sub_(mu)  # half the time of xlogy; mu is above zero
        total = (terms if self.mask is None else terms * self.mask).sum(-1)
        if self.shape > 1 or self.rate > 0:
            total = total + ((self.shape - 1) * z.clamp(min=1e-300).log() - self.rate * z).sum(-1)
        return total

    def log_prior(self, phi: Tensor) -> Tensor:
        return (
            (self.concentration - 1) * phi.clamp(min=1e-300).log().sum((-2, -1))
            if self.concentration > 1
            else phi.new_zeros(len(phi))
        )

    @cached_property
    def parts(self) -> list[tuple[slice, Self]]:
        """The table by blocks of rows, each of which stays in the processor's cache."""
        size = max(1, BLOCK_ELEMENTS // self.x.shape[1])
        places = [slice(start, start + size) for start in range(0, len(self.x), size)]
        mask = self.mask
        return [
            (rows, replace(self, x=self.x[rows], mask=None if mask is None else mask[rows]))
            for rows in places
        ]
