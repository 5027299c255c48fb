"""Monotone updates of the factors, for many restarts at once: counts, overdispersed counts, least squares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.programs.program import Params

if TYPE_CHECKING:
    from ppl_models.descriptions.components import FactorizationDescription

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from ppl_models.parts.responses import Poisson, filled

if TYPE_CHECKING:
    from inference.programs.program import Params
    from ppl_models.descriptions.components import FactorizationDescription

__all__ = [
    "BLOCK_ELEMENTS",
    "CHECK_EVERY",
    "Counts",
    "DispersedCounts",
    "LeastSquares",
    "accelerated",
    "polished",
    "updates_of",
]

FLOOR = 1e-12  # of an expected count
MAX_STRETCH = 64.0  # of an extrapolated step
CHECK_EVERY = 5  # accelerated steps between two looks at the objective's gain
DISPERSION = (1e-6, 1e3)
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
    def of_params(cls, data: Tensor, about: FactorizationDescription, params: Params) -> DispersedCounts:
        """For a table with NaN where missing, at the dispersion of ``params``."""
        x, mask = filled(Poisson(), data)
        return cls(x, mask, size=params["dispersion"].reciprocal().unsqueeze(-1))

    def _parts(self, z: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        """x / mu and E[a | x], (R, N, J); 0 where missing."""
        mu = (z @ phi).clamp_(min=FLOOR)
        ratio, weight = self.x / mu, (self.x + self.size) / (mu + self.size)
        return (ratio, weight) if self.mask is None else (ratio * self.mask, weight * self.mask)

    def activities(self, z: Tensor, phi: Tensor, ratio: Tensor | None = None) -> Tensor:
        ratio, weight = self._parts(z, phi)
        return z * (ratio @ phi.mT) / (weight @ phi.mT).clamp(min=1e-300)

    def sweep(self, z: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        """Activities, then signatures, whose sums move into the activities."""
        z = self.activities(z, phi)
        ratio, weight = self._parts(z, phi)
        new = phi * (z.mT @ ratio) / (z.mT @ weight).clamp(min=1e-300)
        total = new.sum(-1, keepdim=True)
        alive = total > 0  # a component that nobody uses stays as it is
        return torch.where(alive.mT, z * total.mT, z), torch.where(alive, new / total.clamp(min=1e-300), phi)

    def log_likelihood_rows(self, z: Tensor, phi: Tensor) -> Tensor:
        """Given the activities, (R, N)."""
        terms = self._terms((z @ phi).clamp_(min=FLOOR), self.size) - torch.lgamma(self.x + 1)
        return (terms if self.mask is None else terms * self.mask).sum(-1)

    def varying(self, z: Tensor, phi: Tensor) -> Tensor:
        """Log-likelihood up to a constant, (R,)."""
        return self._total((z @ phi).clamp_(min=FLOOR), self.size)

    def _total(self, mu: Tensor, size: Tensor) -> Tensor:
        terms = self._terms(mu, size)
        return (terms if self.mask is None else terms * self.mask).sum((-2, -1))

    def _terms(self, mu: Tensor, size: Tensor) -> Tensor:
        odds = torch.log1p(mu / size)  # log((size + mu) / size)
        return torch.lgamma(self.x + size) - torch.lgamma(size) - size * odds + self.x * (mu.log() - size.log() - odds)

    def dispersed(self, z: Tensor, phi: Tensor) -> tuple[DispersedCounts, Tensor]:
        """With the dispersion moved by a Newton step of log(1 / dispersion), shortened until it gains; and the new objective."""
        mu, size = (z @ phi).clamp_(min=FLOOR), self.size
        psi = torch.special.digamma(self.x + size) - torch.special.digamma(size)
        both = mu + size
        first = psi - torch.log1p(mu / size) + 1 - (self.x + size) / both
        second = torch.special.polygamma(1, self.x + size) - torch.special.polygamma(1, size)
        second = second + 1 / size - 2 / both + (self.x + size) / both.square()
        if self.mask is not None:
            first, second = first * self.mask, second * self.mask
        slope = size * first.sum((-2, -1), keepdim=True)
        bend = slope + size.square() * second.sum((-2, -1), keepdim=True)
        step = torch.where(bend < 0, -slope / bend, slope.sign()).clamp(-2.0, 2.0)
        now, chosen = self._total(mu, size), size
        for shrink in (1.0, 0.25, 0.0625):
            trial = (size * (shrink * step).exp()).clamp(1 / DISPERSION[1], 1 / DISPERSION[0])
            value = self._total(mu, trial)
            better = value > now
            now, chosen = torch.where(better, value, now), torch.where(better[:, None, None], trial, chosen)
        return replace(self, size=chosen), now


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


Pair = tuple[Tensor, Tensor]


def accelerated(
    updates: Counts, step: Callable[[Tensor, Tensor], Pair], z: Tensor, phi: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Two EM steps and an extrapolation of their logarithms (Varadhan and Roland 2008), kept only where it gains.

    Args:
        value: the log-posterior at z, phi up to a constant, (R,).

    Returns:
        z, phi, and ``value`` there; three updates of cost.
    """
    first = step(z, phi)
    second = step(*first)
    pairs = [tuple(v.clamp(min=1e-300).log() for v in triple) for triple in zip((z, phi), first, second, strict=True)]
    moves = [(b - a, c - 2 * b + a) for a, b, c in pairs]
    weights = (first[0], first[0].sum(-2).unsqueeze(-1) * first[1])  # both in counts
    speed = sum((w * r.square()).sum((-2, -1)) for w, (r, _) in zip(weights, moves, strict=True))
    turn = sum((w * v.square()).sum((-2, -1)) for w, (_, v) in zip(weights, moves, strict=True))
    stretch = (speed / torch.as_tensor(turn).clamp(min=1e-300)).sqrt().clamp(1.0, MAX_STRETCH)[:, None, None]
    far = [
        (logs[0] + 2 * stretch * r + stretch.square() * v).clamp(max=60.0).exp()
        for logs, (r, v) in zip(pairs, moves, strict=True)
    ]
    far = list(step(far[0], far[1] / far[1].sum(-1, keepdim=True)))
    gained = updates.varying(*far)
    better = gained > value  # False for NaN
    if bool(better.all()):
        return far[0], far[1], gained
    keep = better[:, None, None]
    return (
        torch.where(keep, far[0], second[0]),
        torch.where(keep, far[1], second[1]),
        torch.where(better, gained, updates.varying(*second)),
    )


def polished(updates: Counts | LeastSquares, phi: Tensor, num_steps: int = 500, tolerance: float = 1e-10) -> Tensor:
    """Activities of every row for given signatures (K, J), from an even start, to convergence; (N, K)."""
    phi = phi.unsqueeze(0)
    z = updates.x.new_ones(1, len(updates.x), phi.shape[1]) * updates.x.clamp(min=0).mean(-1, keepdim=True).clamp(
        min=1e-3
    )
    last = value = updates.varying(z, phi)

    def step(a: Tensor, b: Tensor) -> Pair:
        return updates.activities(a, b), b

    for _ in range(num_steps):
        for _ in range(CHECK_EVERY):
            if isinstance(updates, Counts):
                z, _, value = accelerated(updates, step, z, phi, value)
            else:
                z, _ = step(z, phi)
                value = updates.varying(z, phi)
        if bool((value - last).abs() <= tolerance * value.abs().clamp(min=1.0)):
            break
        last = value
    return z[0]


def updates_of(data: Tensor, about: FactorizationDescription, params: Params) -> Counts | LeastSquares:
    """The updates for a model's kind of entries, at the dispersion of ``params`` where it has one."""
    if not about.counts:
        return LeastSquares(data)
    return DispersedCounts.of_params(data, about, params) if about.dispersed else Counts.of(data, about)
