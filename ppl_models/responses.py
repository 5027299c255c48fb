r"""Response families: how an observed item depends on a real predictor.

Every family here is an exponential family given its dispersion,

.. math:: \log f(x \mid \eta, \gamma) = s(\gamma) \{ T(x)\, \eta - A(\eta) \} + h(x, \gamma),

with statistic T, log-partition A, scale :math:`s` (1, or :math:`1/\gamma` for the Normal) and base measure h. The
log-density of all rows against all enumerated configurations is therefore one matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, constraints

from ppl_models.distributions import broadcast_shapes, pairwise_dot, softplus

__all__ = ["Bernoulli", "Blocks", "ItemResponse", "LinearPredictor", "LogNormal", "Normal", "Poisson", "ResponseFamily"]


@dataclass(frozen=True)
class ResponseFamily:
    """What a family must say of itself. All methods act elementwise on (..., J) tensors unless they say otherwise."""

    @property
    def bound(self) -> float:
        """Default half-width of the interval that holds intercepts and loadings."""
        return 15.0

    def blocks(self, num_items: int) -> list[tuple[ResponseFamily, slice, slice]]:
        """Elementary families with their columns and their part of the dispersion vector."""
        return [(self, slice(0, num_items), slice(0, self.num_dispersed(num_items)))]

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
        p = torch.sigmoid(eta)
        return p * (1 - p)

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

    def num_dispersed(self, num_items: int) -> int:
        return num_items

    def log_partition(self, eta: Tensor) -> Tensor:
        return eta.square() / 2

    def mean(self, eta: Tensor) -> Tensor:
        return eta

    def curvature(self, eta: Tensor) -> Tensor:
        return torch.ones_like(eta)

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
            if len(part) != 2 or not isinstance(part[0], ResponseFamily) or isinstance(part[0], Blocks):
                raise ValueError(f"Blocks: each part is a pair (elementary family, num_columns), got {part!r}")
            if not (isinstance(part[1], int) and part[1] > 0):
                raise ValueError(f"Blocks: num_columns must be a positive integer, got {part[1]!r}")
        if not parts:
            raise ValueError("Blocks: at least one (family, num_columns) pair is needed, got none")
        object.__setattr__(self, "parts", tuple((family, columns) for family, columns in parts))

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


def filled(family: ResponseFamily, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """``x`` with a valid value at missing entries, and the 0/1 mask of observed ones (None if all are)."""
    missing = torch.isnan(x)
    if not missing.any():
        return x, None
    out = x.clone()
    for part, columns, _ in family.blocks(x.shape[-1]):
        out[..., columns] = x[..., columns].masked_fill(missing[..., columns], part.fill)
    return out, (~missing).to(x.dtype)


class LinearPredictor:
    r"""The predictor :math:`\eta = b + W a`, kept in factors so that products with it go through the K latents.

    Args:
        latents: a, (\*batch, K).
        loadings: W, (\*batch, J, K).
        intercepts: b, (\*batch, J).
    """

    def __init__(self, latents: Tensor, loadings: Tensor, intercepts: Tensor) -> None:
        self.latents, self.loadings, self.intercepts = latents, loadings, intercepts

    def tensor(self) -> Tensor:
        r"""(\*batch, J)."""
        return (self.latents.unsqueeze(-2) @ self.loadings.mT).squeeze(-2) + self.intercepts

    def dot(self, x: Tensor, scale: Tensor | None) -> Tensor:
        """Sum over items of ``x * scale * eta``: first onto the K loadings, then onto the configurations."""
        weights = torch.cat([self.loadings, self.intercepts.unsqueeze(-1)], -1)  # (..., J, K + 1)
        weights = weights if scale is None else weights * scale.unsqueeze(-1)
        if weights.dim() == 2:
            projected = x @ weights  # (rows, K + 1)
        elif weights.shape[-3] == 1:
            projected = x @ weights.squeeze(-3)  # one product for all rows
        else:
            projected = (x.unsqueeze(-2) @ weights).squeeze(-2)
        latents = torch.nn.functional.pad(self.latents, (0, 1), value=1.0)
        return pairwise_dot(projected, latents)


class ItemResponse(TorchDistribution):
    r"""The item vector given its predictor: :math:`\log p(x) = \sum_j \log f_j(x_j \mid \eta_j, \gamma_j)`.

    A missing entry (NaN) drops out of the sum exactly. Against enumerated predictors the log-density is a matrix
    product; nothing of size (configurations, rows, items) is built.

    Args:
        family: the response family.
        predictor: eta, (\*batch, J), or a :class:`LinearPredictor` of that shape.
        dispersion: (\*batch, family.num_dispersed(J)), or None.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.real_vector

    def __init__(
        self,
        family: ResponseFamily,
        predictor: Tensor | LinearPredictor,
        dispersion: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.family, self.predictor, self.dispersion = family, predictor, dispersion
        self.eta = predictor.tensor() if isinstance(predictor, LinearPredictor) else predictor
        self._log_partition: Tensor | None = None
        batch_shape = self.eta.shape[:-1]
        if dispersion is not None:
            batch_shape = broadcast_shapes(batch_shape, dispersion.shape[:-1])
        super().__init__(batch_shape, self.eta.shape[-1:], validate_args=False)

    def expand(self, batch_shape: torch.Size, _instance: Distribution | None = None) -> ItemResponse:
        new = self._get_checked_instance(ItemResponse, _instance)
        new.family, new.predictor, new.dispersion = self.family, self.predictor, self.dispersion
        new.eta, new._log_partition = self.eta, self._log_partition
        super(ItemResponse, new).__init__(torch.Size(batch_shape), self.event_shape, validate_args=False)
        return new

    @property
    def mean(self) -> Tensor:
        """E[x], on the unexpanded shape of the predictor."""
        return self.family.expected_response(self.eta, self.dispersion)

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        shape = torch.Size(sample_shape) + self.batch_shape + self.event_shape
        dispersion = self.dispersion
        with torch.no_grad():
            return self.family.draw(self.eta.expand(shape), dispersion)

    def log_prob(self, value: Tensor) -> Tensor:
        inner, log_partition, base = self.log_prob_terms(*filled(self.family, value))
        log_density = inner - log_partition + base
        return log_density.expand(broadcast_shapes(value.shape[:-1], self.batch_shape))

    def log_prob_terms(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        r"""The three parts of ``log_prob``: inner products, log-partition (no rows unless masked), base measure (rows).

        Args:
            x: (\*rows, J) without missing entries; mask: the same shape, 0 where an entry is to be left out, or None.
        """
        scale = self.family.scale(self.dispersion, self.event_shape[0])
        statistic = self.family.statistic(x)
        if self._log_partition is None:
            partition = self.family.log_partition(self.eta)
            self._log_partition = partition if scale is None else partition * scale
        if mask is None:
            log_partition = self._log_partition.sum(-1)
        else:
            statistic = statistic * mask
            log_partition = pairwise_dot(mask, self._log_partition)
        if isinstance(self.predictor, LinearPredictor):
            inner = self.predictor.dot(statistic, scale)
        else:
            inner = pairwise_dot(statistic, self.eta if scale is None else self.eta * scale)
        base = self.family.base_measure(x, torch.ones_like(x) if mask is None else mask, self.dispersion)
        return inner, log_partition, base
