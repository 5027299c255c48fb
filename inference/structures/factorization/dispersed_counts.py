"""Monotone updates of factorizations of overdispersed counts, for many restarts at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.factorization.alternating import Sums
from inference.structures.factorization.counts import FLOOR, Counts
from ppl_models.parts.responses import Poisson, filled

DISPERSION = (1e-6, 1e3)
LARGE = 1e4
# of the logarithm of a dispersion: a shorter step is not tried again, for its gain is rounding
SETTLED = 1e-6


@dataclass(frozen=True, eq=False)
class DispersedCounts(Counts):
    r"""Updates of a negative binomial factorization, variance :math:`\mu + \delta \mu^2` (Gouvert,
    Oberlin and Fevotte 2020).

    Missing data are the components' shares y and a factor :math:`a \sim \mathrm{Gamma}(1/\delta,
    1/\delta)` of every cell, given which counts are :math:`\mathrm{Poisson}(a \mu)`. The split does
    not depend on a, and :math:`w = E[a \mid x] = (x + 1/\delta) / (\mu + 1/\delta)`, so EM
    multiplies z by :math:`\sum_j \phi x/\mu \, / \sum_j \phi w`, and :math:`\phi` likewise. Missing
    entries drop out.

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
        return torch.where(alive.mT, z * total.mT, z), torch.where(
            alive, new / total.clamp(min=1e-300), phi
        )

    def log_likelihood_rows(self, z: Tensor, phi: Tensor) -> Tensor:
        """Given the activities, (R, N)."""
        return self._seen(
            self._terms((z @ phi).clamp_(min=FLOOR), self.size) - torch.lgamma(self.x + 1)
        ).sum(-1)

    def values(self, z: Tensor, phi: Tensor) -> Tensor:
        """Log-likelihood of each row up to a constant, (R, N)."""
        return (
            self._seen(self._of_mean((z @ phi).clamp_(min=FLOOR), self.size)).sum(-1)
            + self._own_fixed
        )

    def _seen(self, terms: Tensor) -> Tensor:
        return terms if self.mask is None else terms * self.mask

    def _terms(self, mu: Tensor, size: Tensor) -> Tensor:
        return self._of_mean(mu, size) + self._fixed(size)

    def _of_mean(self, mu: Tensor, size: Tensor) -> Tensor:
        """What of an entry's term depends on its mean."""
        odds = torch.log1p(mu / size)  # log((size + mu) / size)
        return self.x * mu.log() - (self.x + size) * odds

    def _fixed(self, size: Tensor) -> Tensor:
        """What does not."""
        return torch.lgamma(self.x + size) - torch.lgamma(size) - self.x * size.log()

    @cached_property
    def _own_fixed(self) -> Tensor:
        """The same of each row at the own dispersion, (R, N)."""
        return self._seen(self._fixed(self.size)).sum(-1)

    def _derivatives(self, mu: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """First and second derivative of an entry's term by log size, (R, N, J)."""
        psi = torch.special.digamma(self.x + size) - torch.special.digamma(size)
        both = mu + size
        first = psi - torch.log1p(mu / size) + 1 - (self.x + size) / both
        second = torch.special.polygamma(1, self.x + size) - torch.special.polygamma(1, size)
        second = second + 1 / size - 2 / both + (self.x + size) / both.square()
        return size * first, size * first + size.square() * second

    def dispersed(self, z: Tensor, phi: Tensor) -> tuple[Self, Tensor]:
        """With the dispersion moved by a Newton step of its logarithm, shortened until it gains;
        and the new objective.
        """

        def slopes(place: slice, part: Self) -> Sums:
            mu = (z[:, place] @ phi).clamp_(min=FLOOR)
            slope, bend = (
                part._seen(value).sum((-2, -1), keepdim=True)
                for value in part._derivatives(mu, self.size)
            )
            return {"slope": slope, "bend": bend}

        found = self.summed(slopes)
        slope, bend = found["slope"], found["bend"]
        step = torch.where(bend < 0, -slope / bend, slope.sign()).clamp(-2.0, 2.0)

        def totals(*sizes: Tensor) -> Tensor:
            def of_part(place: slice, part: Self) -> Sums:
                mu = (z[:, place] @ phi).clamp_(min=FLOOR)
                return {
                    "values": torch.stack(
                        [part._seen(part._terms(mu, one)).sum((-2, -1)) for one in sizes]
                    )
                }

            return self.summed(of_part)["values"]

        def shortened(shrink: float) -> Tensor:
            return (self.size * (shrink * step).exp()).clamp(1 / DISPERSION[1], 1 / DISPERSION[0])

        trial = shortened(1.0)
        before, value = totals(self.size, trial)
        better = value > before
        now, size = (
            torch.where(better, value, before),
            torch.where(better[:, None, None], trial, self.size),
        )
        done = better | (step.abs()[:, 0, 0] < SETTLED)
        for shrink in (0.25, 0.0625):
            if bool(done.all()):
                break
            trial = shortened(shrink)
            value = totals(trial)[0]
            better = ~done & (value > now)
            now, size = (
                torch.where(better, value, now),
                torch.where(better[:, None, None], trial, size),
            )
            done = done | better
        return replace(self, size=size), now


@dataclass(frozen=True, eq=False)
class LinearlyDispersedCounts(DispersedCounts):
    r"""Updates of a negative binomial factorization of variance :math:`(1 + \theta) \mu`.

    With :math:`m = \mu / \theta`, :math:`\log\Gamma(x + m) - \log\Gamma(m) = \sum_{i < x} \log(m +
    i)` and :math:`m = \sum_k m_k`; Jensen's inequality on each term, with shares :math:`m_k / (m +
    i)` and :math:`i / (m + i)`, leaves :math:`\sum_k m_k \{\psi(x + m) - \psi(m)\} \log m_k`, so EM
    multiplies z by :math:`\sum_j \phi w / \sum_j \phi` and :math:`\phi` by :math:`\sum_n z w /
    \sum_n z`,

    .. math:: w = \{\psi(x + m) - \psi(m)\} / \log(1 + \theta),

    which is :math:`x / \mu` as :math:`\theta \to 0` (Lee and Seung). The missing data are how many
    tables of a Chinese restaurant with strength m each count fills. Missing entries drop out.

    Args:
        size: :math:`1/\theta`, (R, 1, 1) or (1, 1).
    """

    def _parts(self, z: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        """w (R, N, J), 0 where missing, and where an entry was seen, (N, J) or (1, J) if all
        were.
        """
        m = (z @ phi).clamp_(min=FLOOR).mul_(self.size)
        weight = (self.x + m).digamma_().sub_(m.digamma_()).div_(self.size.reciprocal().log1p())
        return (
            (weight, weight.new_ones(1, weight.shape[-1]))
            if self.mask is None
            else (weight.mul_(self.mask), self.mask)
        )

    def pulls(self, z: Tensor, phi: Tensor) -> Sums:
        weight, seen = self._parts(z, phi)
        return {
            "ratio": z.mT @ weight,
            "weight": z.mT @ seen if self.mask is not None else z.sum(-2).unsqueeze(-1) * seen,
        }

    @property
    def _own_fixed(self) -> Tensor:
        return self.x.new_zeros(())

    def _of_mean(self, mu: Tensor, size: Tensor) -> Tensor:
        return self._terms(mu, size)

    def _terms(self, mu: Tensor, size: Tensor) -> Tensor:
        m, rate = mu * size, size.reciprocal().log1p()  # x log theta + x log m = x log mu
        return _log_rising(self.x, m) + self.x * (mu.log() - rate) - m * rate

    def _derivatives(self, mu: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        m, theta = mu * size, size.reciprocal()
        psi = torch.special.digamma(self.x + m) - torch.special.digamma(m)
        bend = torch.special.polygamma(1, self.x + m) - torch.special.polygamma(1, m)
        gap, rate = (self.x - mu) / (1 + theta), theta.log1p()
        first = m * (psi - rate) - gap
        return first, m * (psi - rate) + m.square() * bend + mu / (1 + theta) - theta * gap / (
            1 + theta
        )


def _log_rising(x: Tensor, m: Tensor) -> Tensor:
    r""":math:`\log\Gamma(x + m) - \log\Gamma(m) - x \log m`; by Stirling's series where m is large,
    for the difference would drown in rounding.
    """
    far = m > LARGE
    if bool(far.all()):
        return _rising_far(x, m)
    near = m.clamp(max=LARGE)
    risen = _log_gamma_ratio(x, near).sub_(near.log().mul_(x))
    return torch.where(far, _rising_far(x, m.clamp(min=LARGE)), risen) if bool(far.any()) else risen


def _rising_far(x: Tensor, m: Tensor) -> Tensor:
    high = x + m
    return (
        (high - 0.5) * torch.log1p(x / m) - x - x / (12 * m * high)
    )  # the next term is below 1 / (360 LARGE^3)


def _log_gamma_ratio(x: Tensor, m: Tensor) -> Tensor:
    r""":math:`\log\Gamma(x + m) - \log\Gamma(m)` by Stirling's series eight steps higher, in half
    the time of two logarithms of gamma; error below 1e-13 of the larger.
    """
    high = x + m
    return (_eight(m) / _eight(high)).log() + (_stirling(high + 8) - _stirling(m + 8))


def _eight(y: Tensor) -> Tensor:
    """y (y + 1) ... (y + 7)."""
    pair = y * (y + 7)
    return pair * (pair + 6) * ((pair + 10) * (pair + 12))


def _stirling(y: Tensor) -> Tensor:
    r""":math:`\log\Gamma(y) - \log(2 \pi) / 2` of :math:`y \ge 8`."""
    inverse = y.reciprocal()
    square = inverse * inverse
    series = inverse * (
        1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))
    )
    return (y - 0.5) * y.log() - y + series
