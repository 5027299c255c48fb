"""Monotone updates of factorizations of overdispersed counts, for many restarts at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.factorization.alternating import Sums
from inference.structures.factorization.counts import FLOOR, Counts
from ppl_models.parts.responses import Poisson, filled

__all__ = ["DispersedCounts", "LinearlyDispersedCounts"]

DISPERSION = (1e-6, 1e3)
LARGE = 1e4


@dataclass(frozen=True, eq=False)
class DispersedCounts(Counts):
    r"""Updates of a negative binomial factorization, variance :math:`\mu + \delta \mu^2` (Gouvert, Oberlin and Fevotte 2020).

    Missing data are the components' shares y and a factor :math:`a \sim \mathrm{Gamma}(1/\delta, 1/\delta)` of every cell, given
    which counts are :math:`\mathrm{Poisson}(a \mu)`. The split does not depend on a, and
    :math:`w = E[a \mid x] = (x + 1/\delta) / (\mu + 1/\delta)`, so EM multiplies z by
    :math:`\sum_j \phi x/\mu \, / \sum_j \phi w`, and :math:`\phi` likewise. Missing entries drop out.

    Args:
        size: :math:`1/\delta`, (R, 1, 1) or (1, 1).
    """

    size: Tensor = field(default_factory=lambda: torch.ones(1, 1, dtype=torch.float64))

    @classmethod
    def of_params(cls, data: Tensor, params: Params) -> DispersedCounts:
        """For a table with NaN where missing, at the dispersion of ``params``."""
        x, mask = filled(Poisson(), data)
        return cls(x, mask, size=params["dispersion"].reciprocal().unsqueeze(-1))

    def _parts(self, z: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        """x / mu and E[a | x], (R, N, J); 0 where missing."""
        mu = (z @ phi).clamp_(min=FLOOR)
        ratio, weight = self.x / mu, (self.x + self.size) / (mu + self.size)
        return (ratio, weight) if self.mask is None else (ratio * self.mask, weight * self.mask)

    def activities(self, z: Tensor, phi: Tensor) -> Tensor:
        ratio, weight = self._parts(z, phi)
        return z * (ratio @ phi.mT) / (weight @ phi.mT).clamp(min=1e-300)

    def pulls(self, z: Tensor, phi: Tensor) -> Sums:
        ratio, weight = self._parts(z, phi)
        return {"ratio": z.mT @ ratio, "weight": z.mT @ weight}

    def moved(self, z: Tensor, phi: Tensor, pulls: Sums) -> tuple[Tensor, Tensor]:
        """Signatures, whose sums move into the activities."""
        new = phi * pulls["ratio"] / pulls["weight"].clamp(min=1e-300)
        total = new.sum(-1, keepdim=True)
        alive = total > 0  # a component that nobody uses stays as it is
        return torch.where(alive.mT, z * total.mT, z), torch.where(alive, new / total.clamp(min=1e-300), phi)

    def log_likelihood_rows(self, z: Tensor, phi: Tensor) -> Tensor:
        """Given the activities, (R, N)."""
        return self._seen(self._terms((z @ phi).clamp_(min=FLOOR), self.size) - torch.lgamma(self.x + 1)).sum(-1)

    def values(self, z: Tensor, phi: Tensor) -> Tensor:
        """Log-likelihood of each row up to a constant, (R, N)."""
        return self._seen(self._terms((z @ phi).clamp_(min=FLOOR), self.size)).sum(-1)

    def _seen(self, terms: Tensor) -> Tensor:
        return terms if self.mask is None else terms * self.mask

    def _terms(self, mu: Tensor, size: Tensor) -> Tensor:
        odds = torch.log1p(mu / size)  # log((size + mu) / size)
        return torch.lgamma(self.x + size) - torch.lgamma(size) - size * odds + self.x * (mu.log() - size.log() - odds)

    def _derivatives(self, mu: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """First and second derivative of an entry's term by log size, (R, N, J)."""
        psi = torch.special.digamma(self.x + size) - torch.special.digamma(size)
        both = mu + size
        first = psi - torch.log1p(mu / size) + 1 - (self.x + size) / both
        second = torch.special.polygamma(1, self.x + size) - torch.special.polygamma(1, size)
        second = second + 1 / size - 2 / both + (self.x + size) / both.square()
        return size * first, size * first + size.square() * second

    def dispersed(self, z: Tensor, phi: Tensor) -> tuple[Self, Tensor]:
        """With the dispersion moved by a Newton step of its logarithm, shortened until it gains; and the new objective."""
        size = self.size

        def slopes(place: slice, part: Self) -> Sums:
            mu = (z[:, place] @ phi).clamp_(min=FLOOR)
            slope, bend = (part._seen(value).sum((-2, -1), keepdim=True) for value in part._derivatives(mu, size))
            return {"slope": slope, "bend": bend}

        found = self.summed(slopes)
        slope, bend = found["slope"], found["bend"]
        step = torch.where(bend < 0, -slope / bend, slope.sign()).clamp(-2.0, 2.0)
        trials = [size, *((size * (shrink * step).exp()).clamp(1 / DISPERSION[1], 1 / DISPERSION[0]) for shrink in (1.0, 0.25, 0.0625))]

        def totals(place: slice, part: Self) -> Sums:
            mu = (z[:, place] @ phi).clamp_(min=FLOOR)
            return {"values": torch.stack([part._seen(part._terms(mu, trial)).sum((-2, -1)) for trial in trials])}  # (4, R)

        now, *gained = self.summed(totals)["values"]
        for trial, value in zip(trials[1:], gained, strict=True):
            better = value > now
            now, size = torch.where(better, value, now), torch.where(better[:, None, None], trial, size)
        return replace(self, size=size), now


@dataclass(frozen=True, eq=False)
class LinearlyDispersedCounts(DispersedCounts):
    r"""Updates of a negative binomial factorization of variance :math:`(1 + \theta) \mu`.

    With :math:`m = \mu / \theta`, :math:`\log\Gamma(x + m) - \log\Gamma(m) = \sum_{i < x} \log(m + i)` and
    :math:`m = \sum_k m_k`; Jensen's inequality on each term, with shares :math:`m_k / (m + i)` and :math:`i / (m + i)`, leaves
    :math:`\sum_k m_k \{\psi(x + m) - \psi(m)\} \log m_k`, so EM multiplies z by :math:`\sum_j \phi w / \sum_j \phi` and :math:`\phi` by
    :math:`\sum_n z w / \sum_n z`,

    .. math:: w = \{\psi(x + m) - \psi(m)\} / \log(1 + \theta),

    which is :math:`x / \mu` as :math:`\theta \to 0` (Lee and Seung). The missing data are how many tables of a Chinese restaurant with
    strength m each count fills. Missing entries drop out.

    Args:
        size: :math:`1/\theta`, (R, 1, 1) or (1, 1).
    """

    def _parts(self, z: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        """w and one, (R, N, J); 0 where missing."""
        m = (z @ phi).clamp_(min=FLOOR) * self.size
        weight = (torch.special.digamma(self.x + m) - torch.special.digamma(m)) / self.size.reciprocal().log1p()
        one = torch.ones_like(weight)
        return (weight, one) if self.mask is None else (weight * self.mask, one * self.mask)

    def _terms(self, mu: Tensor, size: Tensor) -> Tensor:
        m, rate = mu * size, size.reciprocal().log1p()  # x log theta + x log m = x log mu
        return _log_rising(self.x, m) + self.x * (mu.log() - rate) - m * rate

    def _derivatives(self, mu: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        m, theta = mu * size, size.reciprocal()
        psi = torch.special.digamma(self.x + m) - torch.special.digamma(m)
        bend = torch.special.polygamma(1, self.x + m) - torch.special.polygamma(1, m)
        gap, rate = (self.x - mu) / (1 + theta), theta.log1p()
        first = m * (psi - rate) - gap
        return first, m * (psi - rate) + m.square() * bend + mu / (1 + theta) - theta * gap / (1 + theta)


def _log_rising(x: Tensor, m: Tensor) -> Tensor:
    r""":math:`\log\Gamma(x + m) - \log\Gamma(m) - x \log m`; by Stirling's series where m is large, for the difference would drown in rounding."""
    far = m.clamp(min=LARGE)
    near = m.clamp(max=LARGE)
    series = (far + x - 0.5) * torch.log1p(x / far) - x - x / (12 * far * (far + x))  # the next term is below 1 / (360 LARGE^3)
    return torch.where(m > LARGE, series, torch.lgamma(x + near) - torch.lgamma(near) - x * near.log())
