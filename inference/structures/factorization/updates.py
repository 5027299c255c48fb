"""Monotone alternating updates of factorizations, many restarts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from inference.base.steps import RunningSum
from inference.base.streaming.rows import CheckedRows
from inference.programs.fixed import Fixed
from inference.programs.program import Params
from inference.structures.factorization.newton import MOST_COMPONENTS, Corner, bettered, newton
from ppl_models.descriptions.components import FactorizationDescription
from ppl_models.parts.responses import Poisson, filled

Sums = dict[str, Tensor]
FIRST_PUSH, GROWTH, GROWTH_OF_LIMIT, SHRINKAGE = 0.5, 1.05, 1.01, 1.5


@dataclass(frozen=True, eq=False)
class Alternating:
    """Alternating updates of activities z (R, N, K) and signatures phi (R, K, J).

    Where rows come in blocks, z are those of this process's rows, which stay with it, and sums over
    rows are those of all processes. A subclass says of rows in memory what their activities, sums
    and values are.

    Args:
        rows: all rows, where they come in blocks; None where they are in memory.
        fixed: known signatures; None where all are free.
    """

    rows: CheckedRows | None = field(default=None, kw_only=True)
    fixed: Fixed | None = field(default=None, kw_only=True)

    @property
    def parts(self) -> Iterable[tuple[slice, Self]]:
        """The rows in memory, so many at a time, and their places."""
        return [(slice(None), self)]

    def on(self, data: Tensor) -> Self:
        """The same updates of other rows, in memory."""
        raise NotImplementedError

    def at(self, index: Tensor) -> Self:
        """Updates of some of the rows in memory."""
        raise NotImplementedError

    def activities(self, z: Tensor, phi: Tensor) -> Tensor:
        """The update of z given phi of rows in memory, (R, N, K)."""
        raise NotImplementedError

    def pulls(self, z: Tensor, phi: Tensor) -> Sums:
        """Sums over rows in memory from which the signatures follow."""
        raise NotImplementedError

    def moved(self, z: Tensor, phi: Tensor, pulls: Sums) -> tuple[Tensor, Tensor]:
        """Signatures from the sums over all rows, and the activities in their scale."""
        raise NotImplementedError

    def values(self, z: Tensor, phi: Tensor) -> Tensor:
        """The objective of each row in memory up to a constant, (R, N)."""
        raise NotImplementedError

    def constant(self) -> float:
        """The log-likelihood of all rows less their values."""
        return 0.0

    def log_prior(self, phi: Tensor) -> Tensor:
        """Log-prior of the signatures up to a constant, (R,)."""
        return phi.new_zeros(len(phi))

    def row_means(self) -> Tensor:
        """Mean of each row in memory, none below zero, (N, 1)."""
        raise NotImplementedError

    def summed(self, of_part: Callable[[slice, Self], Sums], like: Sums | None = None) -> Sums:
        """Sum over all rows of a function of places and their updates.

        ``like`` as :meth:`CheckedRows.summed_at` has it.
        """
        if self.rows is None:
            total = RunningSum[Sums]()
            for place, part in self.parts:
                total.add(of_part(place, part))
            return total.total()

        def of_block(place: slice, data: Tensor) -> Sums:
            block = range(place.start, place.stop)
            return self.on(data).summed(
                lambda own, part: of_part(slice(block[own].start, block[own].stop), part)
            )

        return self.rows.summed_at(of_block, like)

    def total(self, value: Tensor) -> Tensor:
        """Add up the sums of all processes."""
        return value if self.rows is None else self.rows.processes.total(value.double()).to(value)

    def pulled(self, z: Tensor, phi: Tensor) -> tuple[Tensor, Sums]:
        """Activities of all rows given signatures, and the sums from which these follow."""
        new = torch.empty_like(z)

        def of_part(place: slice, part: Self) -> Sums:
            new[:, place] = own = part.activities(z[:, place], phi)
            return part.pulls(own, phi)

        return new, self.summed(of_part)

    def of_first(self, phi: Tensor) -> Tensor:
        """Signatures of process 0, where several share the rows."""
        if self.rows is None:
            return phi
        return self.rows.processes.params_of_first({"signatures": phi})["signatures"]

    def sweep(self, z: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        """Activities, then signatures, in one pass over the rows."""
        new, pulls = self.pulled(z, phi)
        moved, phi = self.moved(new, phi, pulls)
        if self.fixed is not None:
            whole = ~self.fixed.values["signatures"].isnan().any(-1).to(new.device)
            phi = self.fixed.restored({"signatures": phi})["signatures"]
            moved = torch.where(whole, new, moved)  # their scale is their own
        return moved, self.of_first(phi)

    def with_known(self, start: Params) -> Params:
        """Start (R, ...) with known signatures, whose activities begin anew, alike and positive."""
        assert self.fixed is not None  # as the caller has seen
        known = self.fixed.restored(start)
        z = start["activities"]
        total = z.sum(-1, keepdim=True).clamp(min=1e-6) / z.shape[-1]
        return known | {"activities": total.expand_as(z).clone()}

    def varying(self, z: Tensor, phi: Tensor) -> Tensor:
        """The objective up to a constant, (R,)."""
        found = self.summed(lambda place, part: {"value": part.values(z[:, place], phi).sum(-1)})
        return found["value"] + self.log_prior(phi)

    def improved(self, z: Tensor, phi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Activities, then signatures, moved; the objective (R,) there up to a constant."""
        raise NotImplementedError

    def begin(self, z: Tensor, phi: Tensor) -> Sums:
        """Course of the extrapolation.

        Where the next step starts, and (R,) beta, its limit, and the objective so far.
        """
        ones = z.new_ones(len(z))
        return {
            "activities": z.clone(),
            "signatures": phi.clone(),
            "push": FIRST_PUSH * ones,
            "limit": ones,
            "explained": -torch.inf * ones,
        }

    def extrapolated(self, z: Tensor, phi: Tensor, ahead: Sums) -> tuple[Tensor, Tensor, Sums]:
        r"""Iterate and course after one step F of :meth:`improved`.

        The step that follows an iterate :math:`v_t = (z, \phi)` starts from

        .. math:: \max\{0, v_t + \beta_t (v_t - v_{t-1})\}

        (A. Ang and N. Gillis 2019, doi:10.1162/neco_a_01157, with their constants). A gain raises
        :math:`\beta` by a twentieth, up to a limit that rises by a hundredth to 1; where the step
        loses, its result is dropped, the limit falls to :math:`\beta`, :math:`\beta` by a third,
        and the next step starts from :math:`v_t` itself, which cannot lose.
        """
        new_z, new_phi, value = self.improved(ahead["activities"], ahead["signatures"])
        better = value >= ahead["explained"]  # False for NaN
        keep, push = better[:, None, None], ahead["push"]
        step = torch.where(better, push, 0.0)[:, None, None]
        old_z, old_phi = z, phi
        z, phi = torch.where(keep, new_z, z), torch.where(keep, new_phi, phi)
        limit = torch.where(better, (GROWTH_OF_LIMIT * ahead["limit"]).clamp(max=1.0), push)
        grown = torch.minimum(GROWTH * push, ahead["limit"])
        return (
            z,
            phi,
            {
                "activities": torch.addcmul(z, step, z - old_z).clamp_(min=0),
                "signatures": torch.addcmul(phi, step, phi - old_phi).clamp_(min=0),
                "push": torch.where(better, grown, push / SHRINKAGE),
                "limit": limit,
                "explained": torch.where(better, value, ahead["explained"]),
            },
        )


FLOOR = 1e-12  # of an expected count


def _means(rows: Tensor, phi: Tensor) -> Tensor:
    """Means (R, n, J) of activities (R, K, n) and signatures (R, K, J)."""
    return (rows.mT @ phi).clamp_(min=FLOOR)


# entries of the table times restarts at once: beyond, they leave the processor's cache
BLOCK_ELEMENTS = 2**17


@dataclass(frozen=True, eq=False)
class Counts(Alternating):
    r"""EM updates of a Poisson factorization, shares of each count as missing data.

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

    def row_means(self) -> Tensor:
        return self.x.clamp(min=0).mean(-1, keepdim=True)

    def ratio(self, z: Tensor, phi: Tensor) -> Tensor:
        """Ratio x / mu, (R, N, J); 1 where missing, for there mu itself is expected."""
        ratio = self.x / (z @ phi).clamp_(min=FLOOR)
        return ratio if self.mask is None else ratio * self.mask + (1 - self.mask)

    def activities(self, z: Tensor, phi: Tensor) -> Tensor:
        return (z * (self.ratio(z, phi) @ phi.mT) + (self.shape - 1)) / (1 + self.rate)

    def pulls(self, z: Tensor, phi: Tensor) -> Sums:
        """Sums over rows of z times the ratio, (R, K, J)."""
        return {"pulls": z.mT @ self.ratio(z, phi)}

    def moved(self, z: Tensor, phi: Tensor, pulls: Sums) -> tuple[Tensor, Tensor]:
        """Signatures on the simplex; one without any pull stays."""
        new = phi * pulls["pulls"] + (self.concentration - 1)
        total = new.sum(-1, keepdim=True)
        # a component that no row uses stays as it is
        return z, torch.where(total > 0, new / total.clamp(min=1e-300), phi)

    def log_likelihood_rows(self, z: Tensor, phi: Tensor) -> Tensor:
        """Given the activities, (R, N)."""
        return replace(self, shape=1.0, rate=0.0).values(z, phi) - self.log_factorials()

    def log_factorials(self) -> Tensor:
        """Sums of the logarithms of the factorials of a row's counts, (N,)."""
        logs = torch.lgamma(self.x + 1)
        return (logs if self.mask is None else logs * self.mask).sum(-1)

    def constant(self) -> float:
        return -float(self.summed(lambda _, part: {"logs": part.log_factorials().sum()})["logs"])

    def cells(self, mu: Tensor) -> Tensor:
        """Log-density of each cell of these means up to a constant, (R, N, J); 0 where missing."""
        terms = mu.log().mul_(self.x).sub_(mu)  # half the time of xlogy; mu is above zero
        return terms if self.mask is None else terms * self.mask

    def slopes(self, mu: Tensor) -> tuple[Tensor, Tensor]:
        """Derivative of the cells by their means, and minus the second."""
        ratio = self.x / mu
        slope, bend = ratio - 1, ratio.div_(mu)
        return (slope, bend) if self.mask is None else (slope * self.mask, bend * self.mask)

    def takes_newton(self, num_components: int) -> bool:
        """Tell whether Newton steps pay: under flat priors, with Hessians that are not large."""
        is_flat = self.concentration == 1 and self.shape == 1 and self.rate == 0
        return is_flat and self.fixed is None and num_components <= MOST_COMPONENTS

    def improved(self, z: Tensor, phi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A Newton step of the activities, then of the signatures, which lose nothing."""
        corner, start = Corner(phi.shape[-2]), z.mT.contiguous()  # (R, K, N)
        rows = torch.empty_like(start)

        def of_rows(place: slice, part: Self) -> Sums:
            own, cells = part._better_rows(start[..., place], phi, corner)
            slope, bend = part.slopes(_means(own, phi))
            rows[..., place] = own
            return {
                "slope": own @ slope,
                "bend": corner.of(own) @ bend,
                "cells": cells.sum(-2),
                "fixed": part.fixed_part.sum(-1),
            }

        def of_columns(signatures: Tensor) -> Tensor:
            def of_part(place: slice, part: Self) -> Sums:
                return {"cells": part.cells(_means(rows[..., place], signatures)).sum(-2)}

            return self.summed(of_part)["cells"].unsqueeze(-1)

        found = self.summed(of_rows)
        far = self.of_first(newton(phi, found["slope"], corner.whole(found["bend"])))
        phi, after = bettered(phi, far, found["cells"].unsqueeze(-1), of_columns)
        mass = phi.sum(-1, keepdim=True)
        alive = mass > 0  # a component that no row uses stays as it is
        rows = rows * torch.where(alive, mass, 1.0)
        phi = torch.where(alive, phi / mass.clamp(min=1e-300), phi)
        return rows.mT, phi, after.sum((-2, -1)) + found["fixed"]

    def _better_rows(self, rows: Tensor, phi: Tensor, corner: Corner) -> tuple[Tensor, Tensor]:
        """Activities (R, K, n) after a Newton step given the signatures, and their cells."""
        mu = _means(rows, phi)
        slope, bend = self.slopes(mu)
        far = newton(rows, phi @ slope.mT, corner.whole(corner.of(phi) @ bend.mT))
        return bettered(rows, far, self.cells(mu), lambda own: self.cells(_means(own, phi)))

    def values(self, z: Tensor, phi: Tensor) -> Tensor:
        total = self.cells((z @ phi).clamp_(min=FLOOR)).sum(-1) + self.fixed_part
        if self.shape > 1 or self.rate > 0:
            total = total + ((self.shape - 1) * z.clamp(min=1e-300).log() - self.rate * z).sum(-1)
        return total

    @cached_property
    def fixed_part(self) -> Tensor:
        """Part of a row's value that does not depend on its means, () or (R, N)."""
        return self.x.new_zeros(())

    def log_prior(self, phi: Tensor) -> Tensor:
        """Log-density of the Dirichlet prior up to a constant, (R,)."""
        if self.concentration > 1:
            return (self.concentration - 1) * phi.clamp(min=1e-300).log().sum((-2, -1))
        return phi.new_zeros(len(phi))

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


DISPERSION = (1e-6, 1e3)
LEAST_BEND = 0.1  # of a cell's curvature, as a share of the expected one
LARGE = 1e4
AT_ONCE = 2**13  # of functions with many steps in between
# of the logarithm of a dispersion: a shorter step is not tried again, for its gain is rounding
SETTLED = 1e-6


@dataclass(frozen=True, eq=False)
class DispersedCounts(Counts):
    r"""Updates of a negative binomial factorization, variance :math:`\mu + \delta \mu^2`.

    Source: Gouvert, Oberlin and Fevotte (2020).

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
        """Ratio x / mu and E[a | x], (R, N, J); 0 where missing."""
        mu = (z @ phi).clamp_(min=FLOOR)
        ratio, weight = self.x / mu, (self.x + self.size) / (mu + self.size)
        return (ratio, weight) if self.mask is None else (ratio * self.mask, weight * self.mask)

    def activities(self, z: Tensor, phi: Tensor) -> Tensor:
        ratio, weight = self._parts(z, phi)
        return z * (ratio @ phi.mT) / (weight @ phi.mT).clamp(min=1e-300)

    def pulls(self, z: Tensor, phi: Tensor) -> Sums:
        """Sums over rows of z times ratio and weight, (R, K, J) each."""
        ratio, weight = self._parts(z, phi)
        return {"ratio": z.mT @ ratio, "weight": z.mT @ weight}

    def moved(self, z: Tensor, phi: Tensor, pulls: Sums) -> tuple[Tensor, Tensor]:
        """Signatures, whose sums move into the activities."""
        new = phi * pulls["ratio"] / pulls["weight"].clamp(min=1e-300)
        total = new.sum(-1, keepdim=True)
        alive = total > 0  # a component that no row uses stays as it is
        return torch.where(alive.mT, z * total.mT, z), torch.where(
            alive, new / total.clamp(min=1e-300), phi
        )

    def cells(self, mu: Tensor) -> Tensor:
        odds = torch.log1p(mu / self.size)  # log((size + mu) / size)
        return self._seen(self.x * mu.log() - (self.x + self.size) * odds)

    def slopes(self, mu: Tensor) -> tuple[Tensor, Tensor]:
        """Derivative of the cells by their means, and minus the second.

        The second is at least a share of the variance of the first, for few counts bend upwards.
        """
        both = mu + self.size
        ratio, total = self.x / mu, (self.x + self.size) / both
        bend = torch.maximum(ratio / mu - total / both, LEAST_BEND * self.size / (mu * both))
        return self._seen(ratio - total), self._seen(bend)

    def _seen(self, terms: Tensor) -> Tensor:
        return terms if self.mask is None else terms * self.mask

    @cached_property
    def fixed_part(self) -> Tensor:
        size = self.size
        fixed = _piecewise(_log_rising, self.x, size + torch.zeros_like(self.x))
        return self._seen(fixed).sum(-1)

    def _derivatives(self, mu: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """First and second derivative of an entry's term by log size, (R, N, J)."""
        both, every = mu + size, size + torch.zeros_like(mu)
        psi = _piecewise(_psi_rise, self.x, every)
        first = psi - torch.log1p(mu / size) + (mu - self.x) / both
        second = (mu.square() / size + self.x) / both.square()
        second = second - _piecewise(_trigamma_fall, self.x, every)
        return size * first, size * first + size.square() * second

    def dispersed(self, z: Tensor, phi: Tensor) -> tuple[Self, Tensor]:
        """Move the dispersion by a shortened Newton step of its log; the new objective."""

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
                found = [replace(part, size=one).values(z[:, place], phi) for one in sizes]
                return {"values": torch.stack(found).sum(-1)}

            return self.summed(of_part)["values"]

        def shortened(shrink: float) -> Tensor:
            return (self.size * (shrink * step).exp()).clamp(1 / DISPERSION[1], 1 / DISPERSION[0])

        trial = shortened(1.0)
        before, value = totals(self.size, trial)
        better = value > before
        now = torch.where(better, value, before)
        size = torch.where(better[:, None, None], trial, self.size)
        done = better | (step.abs()[:, 0, 0] < SETTLED)
        for shrink in (0.25, 0.0625):
            if bool(done.all()):
                break
            trial = shortened(shrink)
            value = totals(trial)[0]
            better = ~done & (value > now)
            now = torch.where(better, value, now)
            size = torch.where(better[:, None, None], trial, size)
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
        """Weights w (R, N, J), 0 where missing, and the mask, (1, J) if complete."""
        m = (z @ phi).clamp_(min=FLOOR).mul_(self.size)
        weight = _piecewise(_psi_rise, self.x, m).div_(self.size.reciprocal().log1p())
        if self.mask is None:
            return (weight, weight.new_ones(1, weight.shape[-1]))
        return (weight.mul_(self.mask), self.mask)

    def pulls(self, z: Tensor, phi: Tensor) -> Sums:
        """Sums over rows of z times w and the mask, (R, K, J) each."""
        weight, seen = self._parts(z, phi)
        return {
            "ratio": z.mT @ weight,
            "weight": z.mT @ seen if self.mask is not None else z.sum(-2).unsqueeze(-1) * seen,
        }

    def slopes(self, mu: Tensor) -> tuple[Tensor, Tensor]:
        """Derivative of the cells by their means, and minus the second."""
        m = mu * self.size
        slope = _piecewise(_psi_rise, self.x, m).sub_(self.size.reciprocal().log1p())
        bend = _piecewise(_trigamma_fall, self.x, m)
        return self._seen(slope.mul_(self.size)), self._seen(bend.mul_(self.size.square()))

    @property
    def fixed_part(self) -> Tensor:
        return self.x.new_zeros(())

    def cells(self, mu: Tensor) -> Tensor:
        # x log theta + x log m = x log mu
        m, rate = mu * self.size, self.size.reciprocal().log1p()
        rising = _piecewise(_log_rising, self.x, m)
        return self._seen(rising + self.x * (mu.log() - rate) - m * rate)

    def _derivatives(self, mu: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        m, theta = mu * size, size.reciprocal()
        psi = _piecewise(_psi_rise, self.x, m)
        bend = -_piecewise(_trigamma_fall, self.x, m)
        gap, rate = (self.x - mu) / (1 + theta), theta.log1p()
        first = m * (psi - rate) - gap
        return first, m * (psi - rate) + m.square() * bend + mu / (1 + theta) - theta * gap / (
            1 + theta
        )


def _piecewise(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, m: Tensor) -> Tensor:
    """Function of x (N, J) and m (R, N, J), cell by cell, so many at once as a cache holds.

    Of more cells the many steps in between take five times as long. Large numbers cancel in it, so
    that it is worked out in double precision.
    """
    pieces = (v.reshape(-1).split(AT_ONCE) for v in (x.expand_as(m), m))
    parts = [function(a.double(), b.double()).to(m) for a, b in zip(*pieces, strict=True)]
    return torch.cat(parts).view(m.shape)


def _psi_rise(x: Tensor, m: Tensor) -> Tensor:
    r""":math:`\psi(x + m) - \psi(m)`."""
    return (x + m).digamma_().sub_(m.digamma())


def _trigamma_fall(x: Tensor, m: Tensor) -> Tensor:
    r""":math:`\psi'(m) - \psi'(x + m)`."""
    return torch.special.polygamma(1, m) - torch.special.polygamma(1, x + m)


def _log_rising(x: Tensor, m: Tensor) -> Tensor:
    r""":math:`\log\Gamma(x + m) - \log\Gamma(m) - x \log m`, by a series for large m."""
    far = m > LARGE
    if bool(far.all()):
        return _rising_far(x, m)
    near = m.clamp(max=LARGE)
    risen = _log_gamma_ratio(x, near).sub_(near.log().mul_(x))
    return torch.where(far, _rising_far(x, m.clamp(min=LARGE)), risen) if bool(far.any()) else risen


def _rising_far(x: Tensor, m: Tensor) -> Tensor:
    high = x + m
    # the next term is below 1 / (360 LARGE^3)
    return (high - 0.5) * torch.log1p(x / m) - x - x / (12 * m * high)


def _log_gamma_ratio(x: Tensor, m: Tensor) -> Tensor:
    r""":math:`\log\Gamma(x + m) - \log\Gamma(m)`, relative error below 1e-13.

    Stirling's series eight steps higher takes half the time of two logarithms of gamma.
    """
    high = x + m
    return (_eight(m) / _eight(high)).log() + (_stirling(high + 8) - _stirling(m + 8))


def _eight(y: Tensor) -> Tensor:
    """Product y (y + 1) ... (y + 7)."""
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


@dataclass(frozen=True, eq=False)
class LeastSquares(Alternating):
    """Non-negative least squares, one component at a time (Cichocki and Phan 2009), extrapolated.

    Args:
        x: (N, J).
    """

    x: Tensor

    def on(self, data: Tensor) -> LeastSquares:
        return LeastSquares(data)

    def at(self, index: Tensor) -> LeastSquares:
        return LeastSquares(self.x[index])

    def row_means(self) -> Tensor:
        """Mean of each row, (N, 1), entries below zero as zero."""
        return self.x.clamp(min=0).mean(-1, keepdim=True)

    def activities(self, z: Tensor, phi: Tensor) -> Tensor:
        """One pass over the components of z given phi."""
        cross = (phi.flatten(0, 1) @ self.x.mT).view(*phi.shape[:2], -1)  # (R, K, N)
        return _coordinate_pass(z.mT, cross, phi @ phi.mT).mT

    def pulls(self, z: Tensor, phi: Tensor) -> Sums:
        """Cross products with z, its Gram matrix, and its sums."""
        rows = z.mT.contiguous()  # (R, K, N)
        cross = (rows.flatten(0, 1) @ self.x).view(*rows.shape[:2], -1)
        return {"cross": cross, "gram": rows @ rows.mT, "used": rows.sum(-1)}

    def moved(self, z: Tensor, phi: Tensor, pulls: Sums) -> tuple[Tensor, Tensor]:
        """Signatures of length 1; an unused one starts anew at the worst row."""
        return self._scaled(z, _coordinate_pass(phi, pulls["cross"], pulls["gram"]), pulls["used"])

    def _scaled(self, z: Tensor, phi: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        length = phi.norm(dim=-1, keepdim=True)
        dead = (length.squeeze(-1) <= 1e-12) | (used <= 1e-12)
        if bool(dead.any()):
            phi = torch.where(dead.unsqueeze(-1), self._worst(z, phi).unsqueeze(-2) + 1e-12, phi)
            z = torch.where(dead.unsqueeze(-2), torch.zeros_like(z), z)
            length = phi.norm(dim=-1, keepdim=True)
        return z * length.mT, phi / length

    def improved(self, z: Tensor, phi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A sweep, and minus the squares that it leaves, up to a constant."""
        new_z, pulls = self.pulled(z, phi)
        cross, gram = pulls["cross"], pulls["gram"]
        new_phi = _coordinate_pass(phi, cross, gram)
        explained = (2 * cross * new_phi - gram @ new_phi * new_phi).sum((-2, -1))
        new_z, new_phi = self._scaled(new_z, new_phi, pulls["used"])
        return new_z, self.of_first(new_phi), explained

    def _worst(self, z: Tensor, phi: Tensor) -> Tensor:
        """Residual of the row that is explained worst, (R, J)."""
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
        return (z @ phi).sub_(self.x).square_().sum(-1).neg_()


def _coordinate_pass(z: Tensor, cross: Tensor, gram: Tensor) -> Tensor:
    """Minimise |x - z^T phi|^2 over each row of z >= 0 (R, K, N) in turn.

    cross = phi x^T, (R, K, N); gram = phi phi^T.
    """
    # a component's numbers lie side by side: a third of the time of columns of (R, N, K)
    value = z.clone(memory_format=torch.contiguous_format)
    inverse = gram.diagonal(dim1=-2, dim2=-1).clamp(min=1e-300).reciprocal().unsqueeze(-1)
    for k in range(value.shape[1]):
        slope = torch.baddbmm(cross[:, k : k + 1], gram[:, k : k + 1], value, alpha=-1.0)
        torch.addcmul(value[:, k], slope[:, 0], inverse[:, k], out=value[:, k]).clamp_(min=0)
    return value


MAX_STRETCH = 64.0  # of an extrapolated step
POLISH_STEPS, POLISHED = 500, 1e-10  # of activities at most, and relative gain of the last
# of a row's value: a smaller gain may be the rounding of sums, which depends on the rows beside it
ROUNDING = 1e-12
CHECK_EVERY = 5  # accelerated steps between two looks at the objective's gain

Pair = tuple[Tensor, Tensor]


def accelerated(
    updates: Counts, step: Callable[[Tensor, Tensor], Pair], z: Tensor, phi: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Two EM steps and a log-extrapolation (Varadhan and Roland 2008), kept if it gains.

    ``value``: the log-posterior at z, phi up to a constant, (R,).

    Returns:
        z, phi, and ``value`` there; three updates of cost.
    """
    first = step(z, phi)
    second = step(*first)
    pairs = [_logs(*triple) for triple in zip((z, phi), first, second, strict=True)]
    own = [(first[0] * move.square()).sum((-2, -1)) for move in pairs[0][1:]]
    # (R, 2 + K), of all rows
    found = updates.total(torch.cat([torch.stack(own, -1), first[0].sum(-2)], -1))
    weight = found[:, 2:].unsqueeze(-1) * first[1]  # in counts, as first[0]
    speed, turn = (
        found[:, i] + (weight * pairs[1][1 + i].square()).sum((-2, -1)) for i in range(2)
    )
    stretch = _stretch(speed, turn)[:, None, None]
    far = [_far(*logs, stretch) for logs in pairs]
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


def _logs(start: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logarithm of the start, the first move of it, and the change of moves."""
    a, b, c = (v.clamp(min=1e-300).log() for v in (start, first, second))
    return a, b - a, c - 2 * b + a


def _stretch(speed: Tensor, turn: Tensor) -> Tensor:
    return (speed / turn.clamp(min=1e-300)).sqrt().clamp(1.0, MAX_STRETCH)


def _far(log: Tensor, move: Tensor, change: Tensor, stretch: Tensor) -> Tensor:
    return (log + 2 * stretch * move + stretch.square() * change).clamp(max=60.0).exp()


def polished(updates: Counts | LeastSquares, phi: Tensor) -> Tensor:
    """Activities (N, K) of every row for given signatures (K, J), to convergence.

    Rows are extrapolated and stop one by one, so that what a row gets does not depend on the rows
    beside it.
    """
    return torch.cat([_polished(part, phi.unsqueeze(0)) for _, part in updates.parts])


def _polished(updates: Counts | LeastSquares, phi: Tensor) -> Tensor:
    mean = updates.row_means()
    z = mean.new_ones(1, len(mean), phi.shape[1]) * mean.clamp(min=1e-3)
    if isinstance(updates, Counts) and updates.takes_newton(phi.shape[1]):
        corner = Corner(phi.shape[1])

        def newton_step(own: Counts, z: Tensor, value: Tensor) -> Pair:
            z = own._better_rows(z.mT.contiguous(), phi, corner)[0].mT
            return z, own.values(z, phi)

        z = _settled(updates, z, phi, newton_step)  # where no such step gains, EM goes on
    return _settled(updates, z, phi, lambda own, z, value: _row_step(own, z, phi, value))[0]


def _settled(
    updates: Any, z: Tensor, phi: Tensor, step: Callable[[Any, Tensor, Tensor], Pair]
) -> Tensor:
    """Activities (1, N, K) after steps of each row until these gain next to nothing."""
    solved = z.clone()
    running = torch.arange(z.shape[1], device=z.device)
    last = updates.values(z, phi)
    for _ in range(POLISH_STEPS):
        value = last
        for _ in range(CHECK_EVERY):
            z, value = step(updates, z, value)
        solved[:, running] = z
        going = ((value - last).abs() > POLISHED * value.abs().clamp(min=1.0))[0].nonzero().ravel()
        if not len(going):
            break
        if len(going) < len(running):
            updates = updates.at(going)
            running = running[going]
            z = z[:, going]
            value = value[:, going]
        last = value
    return solved


def _row_step(updates: Counts | LeastSquares, z: Tensor, phi: Tensor, value: Tensor) -> Pair:
    """As :func:`accelerated`, row by row given the signatures; z and the rows' values."""
    first = updates.activities(z, phi)
    if not isinstance(updates, Counts):
        return first, updates.values(first, phi)
    second = updates.activities(first, phi)
    logs = _logs(z, first, second)
    speed, turn = ((first * move.square()).sum(-1, keepdim=True) for move in logs[1:])
    far = updates.activities(_far(*logs, _stretch(speed, turn)), phi)
    gained = updates.values(far, phi)
    better = gained > value + ROUNDING * value.abs()  # False for NaN
    safe = gained if bool(better.all()) else updates.values(second, phi)
    return torch.where(better.unsqueeze(-1), far, second), torch.where(better, gained, safe)
