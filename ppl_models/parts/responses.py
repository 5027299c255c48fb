r"""Response families: how an observed item depends on a real predictor.

Every family here is an exponential family given its dispersion,

.. math:: \log f(x \mid \eta, \gamma) = s(\gamma) \{ T(x)\, \eta - A(\eta) \} + h(x, \gamma),

with statistic T, log-partition A, scale :math:`s` (1, or :math:`1/\gamma` for the Normal) and base measure h. The
log-density of all rows against all enumerated configurations is therefore one matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ppl_models.parts.distributions import pairwise_dot, softplus

__all__ = ["Bernoulli", "Blocks", "LogNormal", "Normal", "Poisson", "ResponseFamily", "dispersed_items", "filled", "num_densities"]

TotalIncrement = Callable[[Tensor, Tensor | None], Tensor]
MAX_LOG_PRODUCT = 80.0  # e^80 is a finite number in single precision


@dataclass(frozen=True)
class ResponseFamily:
    """What a family must say of itself. All methods act elementwise on (..., J) tensors unless they say otherwise."""

    @property
    def bound(self) -> float:
        """Default half-width of the interval that holds intercepts and loadings."""
        return 15.0

    def item_bounds(self, num_items: int) -> tuple[float, ...]:
        """The half-width item by item: each has that of its own family."""
        return tuple(family.bound for family, columns, _ in self.blocks(num_items) for _ in range(num_items)[columns])

    @property
    def prior_scales(self) -> tuple[float, float]:
        """Standard deviations of the default prior: of an item's mean predictor, and of the effect of a latent on it."""
        return 5.0, 4.0

    def blocks(self, num_items: int) -> list[tuple[ResponseFamily, slice, slice]]:
        """Elementary families with their columns and their part of the dispersion vector."""
        return [(self, slice(0, num_items), slice(0, self.num_dispersed(num_items)))]

    @property
    def is_continuous(self) -> bool:
        """Whether an item has a density (its log-likelihood depends on the unit of measurement), not a probability."""
        return False

    def num_dispersed(self, num_items: int) -> int:
        """Length of the dispersion vector for ``num_items`` items."""
        return 0

    def statistic(self, x: Tensor) -> Tensor:
        """T(x)."""
        return x

    def log_partition(self, eta: Tensor) -> Tensor:
        """A(eta)."""
        raise NotImplementedError(f"{type(self).__name__} does not define log_partition")

    def mean(self, eta: Tensor) -> Tensor:
        """A'(eta), the expected statistic; the expected response where T is the identity."""
        raise NotImplementedError(f"{type(self).__name__} does not define mean")

    def curvature(self, eta: Tensor) -> Tensor:
        """A''(eta)."""
        raise NotImplementedError(f"{type(self).__name__} does not define curvature")

    def moments(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        """A'(eta) and A''(eta)."""
        return self.mean(eta), self.curvature(eta)

    def total_increment(self, step: Tensor, scale: Tensor | None = None) -> TotalIncrement:
        r"""The sum over children of :math:`s_j \{A(\eta_j + \delta_j) - A(\eta_j)\}`, as a function of the predictors.

        Args:
            step: :math:`\delta`, (R, C, 1).
            scale: s, (R, C, 1), None for 1.

        Returns:
            A function of :math:`\eta` (R, C, n) and of a 0/1 mask (C, n), None where nothing is missing, to (R, n).
        """

        def total(eta: Tensor, mask: Tensor | None) -> Tensor:
            change = self.log_partition(eta + step) - self.log_partition(eta)
            change = change if mask is None else change * mask
            return (change if scale is None else change * scale).sum(1)

        return total

    def expected_response(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        """E[x | eta, dispersion]."""
        return self.mean(eta)

    def scale(self, dispersion: Tensor | None, num_items: int) -> Tensor | None:
        """s(dispersion), (..., J), or None where it is 1."""
        return None

    def base_measure(self, x: Tensor, mask: Tensor, dispersion: Tensor | None) -> Tensor:
        """Sum over observed items of h(x, dispersion), shape of the rows; ``x`` is filled where ``mask`` is 0."""
        return x.new_zeros(x.shape[:-1])

    def draw(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        """One response for each predictor."""
        raise NotImplementedError(f"{type(self).__name__} does not define draw")

    @property
    def fill(self) -> float:
        """A valid value to stand where an entry is missing."""
        return 0.0

    def linearise(self, mean: Tensor, epsilon: float) -> Tensor:
        """The predictor whose expected statistic is ``mean``, after clipping into the family's range by ``epsilon``."""
        return mean

    @property
    def is_linear(self) -> bool:
        """True where the expected statistic is the predictor itself."""
        return False

    def problem(self, x: Tensor) -> str | None:
        """What is wrong with a column of finite values, or None."""
        return None


@dataclass(frozen=True)
class Bernoulli(ResponseFamily):
    r"""x in {0, 1}; :math:`\eta` is the log-odds; :math:`A = \log(1 + e^\eta)`."""

    def log_partition(self, eta: Tensor) -> Tensor:
        return softplus(eta)

    def mean(self, eta: Tensor) -> Tensor:
        return torch.sigmoid(eta)

    def curvature(self, eta: Tensor) -> Tensor:
        return self.moments(eta)[1]

    def moments(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        p = torch.sigmoid(eta)
        return p, p * (1 - p)

    def total_increment(self, step: Tensor, scale: Tensor | None = None) -> TotalIncrement:
        r"""As products: with :math:`\eta^-` the smaller of the two predictors, a factor is :math:`1 + \sigma(\eta^-)(e^{|\delta|} - 1)`.

        Every factor is at least 1, so nothing cancels, in single precision either; a logarithm is taken of each run of
        factors whose product cannot overflow, not of each factor. The scale of the family is 1.
        """
        down = step.clamp(max=0.0)
        grown, shrunk = torch.expm1(step.clamp(min=0.0)), torch.expm1(-down)
        size = step.abs().amax((0, 2)).tolist()
        if any(s > MAX_LOG_PRODUCT for s in size):
            return super().total_increment(step, scale)
        runs, start, total_size = [], 0, 0.0
        for j, s in enumerate(size):
            if total_size + s > MAX_LOG_PRODUCT:
                runs.append(slice(start, j))
                start, total_size = j, 0.0
            total_size += s
        runs.append(slice(start, len(size)))
        sides = [(factor, sign) for factor, sign in ((grown, 1.0), (shrunk, -1.0)) if bool((factor != 0).any())]

        def total(eta: Tensor, mask: Tensor | None) -> Tensor:
            chance = torch.sigmoid(eta if len(sides) == 1 and sides[0][1] > 0 else eta + down)
            chance = chance if mask is None else chance * mask
            out = eta.new_zeros(len(eta), eta.shape[-1])
            for factor, sign in sides:
                for run in runs:
                    out.add_((chance[:, run] * factor[:, run]).add_(1.0).prod(1).log_(), alpha=sign)
            return out

        return total

    def draw(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        return torch.bernoulli(torch.sigmoid(eta))

    def linearise(self, mean: Tensor, epsilon: float) -> Tensor:
        return torch.logit(mean.clamp(epsilon, 1 - epsilon))

    def problem(self, x: Tensor) -> str | None:
        bad = x[(x != 0) & (x != 1)]
        return f"Bernoulli items take the values 0 and 1, found {bad[0].item():g}" if len(bad) else None


@dataclass(frozen=True)
class Poisson(ResponseFamily):
    r"""x in {0, 1, 2, ...}; :math:`\eta` is the log of the mean; :math:`A = e^\eta`, :math:`h = -\log x!`."""

    def log_partition(self, eta: Tensor) -> Tensor:
        return eta.exp()

    def mean(self, eta: Tensor) -> Tensor:
        return eta.exp()

    def curvature(self, eta: Tensor) -> Tensor:
        return eta.exp()

    def moments(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        mean = eta.exp()
        return mean, mean

    def total_increment(self, step: Tensor, scale: Tensor | None = None) -> TotalIncrement:
        return _weighted(torch.expm1(step), scale, torch.exp)

    def base_measure(self, x: Tensor, mask: Tensor, dispersion: Tensor | None) -> Tensor:
        return -(torch.lgamma(x + 1) * mask).sum(-1)

    def draw(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        return torch.poisson(eta.exp())

    def linearise(self, mean: Tensor, epsilon: float) -> Tensor:
        return mean.clamp(min=epsilon).log()

    def problem(self, x: Tensor) -> str | None:
        if (x < 0).any():
            return f"Poisson items are counts, found the negative value {x.min().item():g}"
        fractional = x[x != x.round()]
        return f"Poisson items are whole counts, found {fractional[0].item():g}" if len(fractional) else None


@dataclass(frozen=True)
class Normal(ResponseFamily):
    r"""x real; :math:`\eta` is the mean, :math:`\gamma` the **variance**; :math:`A = \eta^2 / 2`, scale :math:`1/\gamma`."""

    @property
    def bound(self) -> float:
        return 1000.0

    @property
    def prior_scales(self) -> tuple[float, float]:
        return 1e4, 2e4  # in units of the item, which nobody knows here: wide enough to say nothing

    @property
    def is_continuous(self) -> bool:
        return True

    def num_dispersed(self, num_items: int) -> int:
        return num_items

    def log_partition(self, eta: Tensor) -> Tensor:
        return eta.square() / 2

    def mean(self, eta: Tensor) -> Tensor:
        return eta

    def curvature(self, eta: Tensor) -> Tensor:
        return torch.ones_like(eta)

    def total_increment(self, step: Tensor, scale: Tensor | None = None) -> TotalIncrement:
        return _weighted(step, scale, lambda eta: eta + step / 2)

    def scale(self, dispersion: Tensor | None, num_items: int) -> Tensor | None:
        return None if dispersion is None else dispersion.reciprocal()

    def base_measure(self, x: Tensor, mask: Tensor, dispersion: Tensor | None) -> Tensor:
        assert dispersion is not None  # the program always samples it for this family
        value = self.statistic(x) * mask
        squares = pairwise_dot(value.square(), (2 * dispersion).reciprocal())
        return -squares - pairwise_dot(mask, 0.5 * (2 * math.pi * dispersion).log())

    def draw(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        assert dispersion is not None
        return eta + dispersion.sqrt() * torch.randn_like(eta + dispersion)

    @property
    def is_linear(self) -> bool:
        return True


@dataclass(frozen=True)
class LogNormal(Normal):
    r"""x > 0; :math:`\log x \sim N(\eta, \gamma)`; the density carries the Jacobian :math:`-\log x`."""

    def statistic(self, x: Tensor) -> Tensor:
        return x.log()

    def base_measure(self, x: Tensor, mask: Tensor, dispersion: Tensor | None) -> Tensor:
        return super().base_measure(x, mask, dispersion) - (x.log() * mask).sum(-1)

    def expected_response(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        assert dispersion is not None
        return (eta + dispersion / 2).exp()

    def draw(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        return super().draw(eta, dispersion).exp()

    @property
    def fill(self) -> float:
        return 1.0

    def problem(self, x: Tensor) -> str | None:
        return f"LogNormal items are positive, found {x.min().item():g}" if (x <= 0).any() else None


@dataclass(frozen=True)
class Blocks(ResponseFamily):
    """Items of several families side by side: ``Blocks((Bernoulli(), 29), (LogNormal(), 29))``.

    Args:
        *parts: pairs (family, number of consecutive columns), from left to right.

    Raises:
        ValueError: if a part is not such a pair or a number of columns is not positive.
    """

    parts: tuple[tuple[ResponseFamily, int], ...] = field(default=())

    def __init__(self, *parts: tuple[ResponseFamily, int] | Sequence) -> None:
        for part in parts:
            if not isinstance(part, tuple | list) or len(part) != 2 or not isinstance(part[0], ResponseFamily) or isinstance(part[0], Blocks):
                raise ValueError(f"Blocks: each part is a pair (elementary family, num_columns), got {part!r}")
            if not isinstance(part[1], int | np.integer) or isinstance(part[1], bool) or part[1] < 1:
                raise ValueError(f"Blocks: num_columns must be a positive integer, got {part[1]!r}")
        if not parts:
            raise ValueError("Blocks: at least one (family, num_columns) pair is needed, got none")
        object.__setattr__(self, "parts", tuple((family, int(columns)) for family, columns in parts))

    @property
    def bound(self) -> float:
        return max(family.bound for family, _ in self.parts)

    def blocks(self, num_items: int) -> list[tuple[ResponseFamily, slice, slice]]:
        out, start, dispersed = [], 0, 0
        for family, columns in self.parts:
            extra = family.num_dispersed(columns)
            out.append((family, slice(start, start + columns), slice(dispersed, dispersed + extra)))
            start, dispersed = start + columns, dispersed + extra
        if start != num_items:
            raise ValueError(f"Blocks: the parts hold {start} columns, but there are num_items = {num_items}")
        return out

    def num_dispersed(self, num_items: int) -> int:
        return sum(family.num_dispersed(columns) for family, columns in self.parts)

    def _map(self, method: str, x: Tensor) -> Tensor:
        parts = self.blocks(x.shape[-1])
        return torch.cat([getattr(family, method)(x[..., columns]) for family, columns, _ in parts], -1)

    def statistic(self, x: Tensor) -> Tensor:
        return self._map("statistic", x)

    def log_partition(self, eta: Tensor) -> Tensor:
        return self._map("log_partition", eta)

    def mean(self, eta: Tensor) -> Tensor:
        return self._map("mean", eta)

    def curvature(self, eta: Tensor) -> Tensor:
        return self._map("curvature", eta)

    def expected_response(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        parts = self.blocks(eta.shape[-1])
        return torch.cat([f.expected_response(eta[..., c], _part(dispersion, d)) for f, c, d in parts], -1)

    def scale(self, dispersion: Tensor | None, num_items: int) -> Tensor | None:
        if dispersion is None or not dispersion.shape[-1]:
            return None
        scales = []
        for family, columns, part in self.blocks(num_items):
            scale = family.scale(_part(dispersion, part), columns.stop - columns.start)
            ones = dispersion.new_ones(*dispersion.shape[:-1], columns.stop - columns.start)
            scales.append(ones if scale is None else scale)
        return torch.cat(scales, -1)

    def base_measure(self, x: Tensor, mask: Tensor, dispersion: Tensor | None) -> Tensor:
        total = x.new_zeros(())
        for family, columns, part in self.blocks(x.shape[-1]):
            total = total + family.base_measure(x[..., columns], mask[..., columns], _part(dispersion, part))
        return total

    def draw(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        parts = self.blocks(eta.shape[-1])
        return torch.cat([f.draw(eta[..., c], _part(dispersion, d)) for f, c, d in parts], -1)

    def linearise(self, mean: Tensor, epsilon: float) -> Tensor:
        parts = self.blocks(mean.shape[-1])
        return torch.cat([family.linearise(mean[..., columns], epsilon) for family, columns, _ in parts], -1)


def _part(dispersion: Tensor | None, part: slice) -> Tensor | None:
    return None if dispersion is None or part.stop == part.start else dispersion[..., part]


def _weighted(weight: Tensor, scale: Tensor | None, change: Callable[[Tensor], Tensor]) -> TotalIncrement:
    """Where an increment is a function of the predictor times one of the step: a product of a row and a matrix."""
    row = (weight if scale is None else weight * scale).mT  # (R, 1, C)

    def total(eta: Tensor, mask: Tensor | None) -> Tensor:
        value = change(eta)
        return (row @ (value if mask is None else value * mask)).squeeze(1)

    return total


def dispersed_items(family: ResponseFamily, items: Sequence[str]) -> list[str]:
    """The items whose family has a dispersion, in the order of the dispersion vector."""
    blocks = family.blocks(len(items))
    return [name for _, columns, part in blocks if part.stop > part.start for name in items[columns]]


def num_densities(family: ResponseFamily, num_items: int) -> int:
    """How many of the items have a density, as against a probability."""
    return sum(columns.stop - columns.start for part, columns, _ in family.blocks(num_items) if part.is_continuous)


def filled(family: ResponseFamily, x: Tensor, with_mask: bool = False) -> tuple[Tensor, Tensor | None]:
    """``x`` with a valid value at missing entries, and the 0/1 mask of observed ones (None if all are, but ``with_mask``)."""
    missing = torch.isnan(x)
    if not missing.any():
        return x, torch.ones_like(x) if with_mask else None
    out = x.clone()
    for part, columns, _ in family.blocks(x.shape[-1]):
        out[..., columns] = x[..., columns].masked_fill(missing[..., columns], part.fill)
    return out, (~missing).to(x.dtype)
