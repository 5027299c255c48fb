r"""Response families: how an observed item depends on a real predictor.

Every family here is an exponential family given its dispersion,

.. math:: \log f(x \mid \eta, \gamma) = s(\gamma) \{ T(x)\, \eta - A(\eta) \} + h(x, \gamma),

with statistic T, log-partition A, scale :math:`s` (1, or :math:`1/\gamma` for the Normal) and base
measure h. The log-density of all rows against all enumerated configurations is therefore one matrix
product.

Where the predictor is not the natural parameter (negative binomial: it is the log of the mean) the
distribution is that of a natural parameter and a partition that depend on predictor and dispersion
both, and for maximisers and sweeps, up to terms without the predictor,

.. math:: \log f(x \mid \eta, \gamma) = T(x) \, \eta - \{T(x) + \gamma\} A_\gamma(\eta).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ppl_models.parts.distributions import EXACT, log_rising, pairwise_dot, softplus

TotalIncrement = Callable[[Tensor, Tensor | None], Tensor]
MAX_LOG_PRODUCT = 80.0  # e^80 is a finite number in single precision
MOST_COUNTS = 2**53


@dataclass(frozen=True)
class ResponseFamily:
    """Response family: the protocol of every distribution of items.

    All methods act elementwise on (..., J) tensors unless they say otherwise.

    Where the statistic of an item is a vector (:mod:`ppl_models.parts.categorical`), statistics,
    means and predictors have P entries, not J.
    """

    @property
    def bound(self) -> float:
        """Default half-width of the interval that holds intercepts and loadings."""
        return 15.0

    @property
    def parameter_names(self) -> tuple[str, str]:
        """Users' names of the mean of an item and of its dispersion."""
        return "mean", "dispersion"

    def item_bounds(self, num_items: int) -> tuple[float, ...]:
        """Half-widths of the items' intervals, each by its own family."""
        return tuple(
            family.bound
            for family, columns, _ in self.blocks(num_items)
            for _ in range(num_items)[columns]
        )

    @property
    def prior_scales(self) -> tuple[float, float]:
        """Default prior scales: of an item's mean predictor, and of a latent's effect on it."""
        return 5.0, 4.0

    def blocks(self, num_items: int) -> list[tuple[ResponseFamily, slice, slice]]:
        """Elementary families with their columns and their part of the dispersion vector."""
        return [(self, slice(0, num_items), slice(0, self.num_dispersed(num_items)))]

    @property
    def own_items(self) -> int | None:
        """Number of items of the family; None for any number."""
        return None

    def num_predictors(self, num_items: int) -> int:
        """Length P of the predictor vector: one an item, more for vector statistics."""
        return num_items

    def num_items(self, num_predictors: int) -> int:
        """Number of items with a predictor vector of that length."""
        return num_predictors

    def predictors(self, num_items: int) -> list[slice]:
        """Slices of the predictor vector, one for each of :meth:`blocks`."""
        widths = [
            family.num_predictors(columns.stop - columns.start)
            for family, columns, _ in self.blocks(num_items)
        ]
        return [slice(sum(widths[:b]), sum(widths[: b + 1])) for b in range(len(widths))]

    def spread(self, values: Tensor) -> Tensor:
        """Spread one value an item (..., J) over its predictors, (..., P)."""
        return values

    def num_categories_of(self, num_items: int) -> tuple[int, ...]:
        """Numbers of categories of tabled items; () where the family has none."""
        return ()

    def num_thresholds(self, num_items: int) -> int:
        """Number of thresholds between categories of ordinal items, the same in all classes."""
        return 0

    def num_linear(self, num_items: int) -> int:
        """Number of predictors linear in latents: one an item, more for unordered categories."""
        return num_items

    def linked(self) -> ResponseFamily:
        """Family with the cumulative link for ordinal items without one.

        Where predictors are linear in latents, an order needs a link.
        """
        return self

    def whole(self, linear: Tensor, thresholds: Tensor | None) -> Tensor:
        """Predictor vector (..., P) of linear predictors and thresholds.

        (..., :meth:`num_linear`) and (..., :meth:`num_thresholds`).
        """
        return linear

    def category_names(self, num_items: int) -> dict[int, tuple[str, ...]]:
        """Names of the categories of the items that have some, by their place."""
        return {}

    @property
    def is_continuous(self) -> bool:
        """Tell whether the item has a density, which depends on the unit."""
        return False

    def num_dispersed(self, num_items: int) -> int:
        """Length of the dispersion vector for ``num_items`` items."""
        return 0

    def statistic(self, x: Tensor) -> Tensor:
        """Sufficient statistic T(x)."""
        return x

    def inner(self, x: Tensor, mask: Tensor | None, natural: Tensor) -> Tensor:
        r"""Inner products :math:`T(x) \cdot \eta`, rows against natural parameters.

        Over the broadcast batch dims of both.

        Args:
            x: (\*rows, J) without missing entries; mask: the same shape, 0 where an entry is to be
                left out, or None.
            natural: (\*batch, P).
        """
        statistic = self.statistic(x)
        return pairwise_dot(statistic if mask is None else statistic * self.spread(mask), natural)

    def log_partition(self, eta: Tensor) -> Tensor:
        """Log-partition A(eta)."""
        raise NotImplementedError(f"{type(self).__name__} does not define log_partition")

    def mean(self, eta: Tensor) -> Tensor:
        """Expected statistic A'(eta); the expected response where T is the identity."""
        raise NotImplementedError(f"{type(self).__name__} does not define mean")

    def curvature(self, eta: Tensor) -> Tensor:
        """Variance function A''(eta)."""
        raise NotImplementedError(f"{type(self).__name__} does not define curvature")

    def moments(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance functions A'(eta) and A''(eta)."""
        return self.mean(eta), self.curvature(eta)

    def total_increment(self, step: Tensor, scale: Tensor | None = None) -> TotalIncrement:
        r"""Sum over children of :math:`s_j \{A(\eta_j + \delta_j) - A(\eta_j)\}`.

        Returned as a function of the predictors.

        Args:
            step: :math:`\delta`, (R, C, 1).
            scale: s, (R, C, 1), None for 1.

        Returns:
            A function of :math:`\eta` (R, C, n) and of a 0/1 mask (C, n), None where nothing is
            missing, to (R, n).
        """

        def total(eta: Tensor, mask: Tensor | None) -> Tensor:
            change = self.log_partition(eta + step) - self.log_partition(eta)
            change = change if mask is None else change * mask
            return (change if scale is None else change * scale).sum(1)

        return total

    @property
    def is_canonical(self) -> bool:
        """Tell whether the link is canonical: the predictor is the natural parameter."""
        return True

    def natural(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        """Natural parameter."""
        return eta

    def partition(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        """Log-partition of the natural parameter."""
        return self.log_partition(eta)

    def given(self, dispersion: Tensor) -> ResponseFamily:
        r"""Family with log-partition :math:`A_\gamma` at this dispersion.

        The dispersion has the predictor's shape; a canonical family is returned as it is.
        """
        return self

    def take(self, items: Tensor) -> ResponseFamily:
        """Family of some of its items, (..., J, anything) of whatever it holds.

        Their places, (n,), or a mask (R, J) of items of restarts.
        """
        return self

    def expansion(
        self, eta: Tensor, statistic: Tensor, dispersion: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Residual and curvature of the log-density by the predictor, but for the scale.

        T less the slope, and minus the second derivative.
        """
        return self.moments(eta)

    def expected_response(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        """Expected response E[x | eta, dispersion]."""
        return self.mean(eta)

    def scale(self, dispersion: Tensor | None, num_items: int) -> Tensor | None:
        """Scale s(dispersion), (..., J), or None where it is 1."""
        return None

    def base_measure(self, x: Tensor, mask: Tensor, dispersion: Tensor | None) -> Tensor:
        """Base measure: the sum over observed items of h(x, dispersion), shape of the rows.

        None for the terms of Normal items that do not depend on their dispersion.
        """
        return x.new_zeros(x.shape[:-1])

    def draw(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        """Draw one response for each predictor."""
        raise NotImplementedError(f"{type(self).__name__} does not define draw")

    @property
    def fill(self) -> float:
        """Valid value in the place of a missing entry."""
        return 0.0

    def linearise(self, mean: Tensor, epsilon: float) -> Tensor:
        """Predictor with expected statistic ``mean``, clipped into the range by ``epsilon``."""
        return mean

    @property
    def is_linear(self) -> bool:
        """Tell whether the expected statistic is the predictor itself."""
        return False

    def item(self, place: int) -> ResponseFamily:
        """Family of one item of several."""
        return self

    def problem(self, x: Tensor) -> str | None:
        """Fault of a column of finite values, or None."""
        return None


@dataclass(frozen=True)
class Bernoulli(ResponseFamily):
    r"""Bernoulli x in {0, 1}; :math:`\eta` is the log-odds, :math:`A = \log(1 + e^\eta)`."""

    parameter_names = ("probability", "dispersion")

    def log_partition(self, eta: Tensor) -> Tensor:
        return torch.nn.functional.softplus(eta, threshold=EXACT)

    def mean(self, eta: Tensor) -> Tensor:
        return torch.sigmoid(eta)

    def curvature(self, eta: Tensor) -> Tensor:
        return self.moments(eta)[1]

    def moments(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        p = torch.sigmoid(eta)
        return p, p * (1 - p)

    def total_increment(self, step: Tensor, scale: Tensor | None = None) -> TotalIncrement:
        r"""Total increment of log-partitions, computed by products.

        With :math:`\eta^-` the smaller of the two predictors, a factor is :math:`1 +
        \sigma(\eta^-)(e^{|\delta|} - 1)`.

        Every factor is at least 1, so nothing cancels, in single precision either; a logarithm is
        taken of each run of factors whose product cannot overflow, not of each factor. The scale of
        the family is 1.
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
        sides = [
            (factor, sign)
            for factor, sign in ((grown, 1.0), (shrunk, -1.0))
            if bool((factor != 0).any())
        ]

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
        if len(bad):
            return f"Bernoulli items take the values 0 and 1, found {bad[0].item():g}"
        return None


@dataclass(frozen=True)
class Poisson(ResponseFamily):
    r"""Poisson counts x in {0, 1, 2, ...}; :math:`\eta` is the log of the mean.

    :math:`A = e^\eta`, :math:`h = -\log x!`.
    """

    parameter_names = ("rate", "dispersion")

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
        return _no_counts("Poisson", x)


@dataclass(frozen=True)
class NegativeBinomial(ResponseFamily):
    r"""Negative binomial counts, whose variance exceeds their mean.

    :math:`\eta` is the log of the mean :math:`\mu`, and the dispersion is the **size** s,

    .. math::

        P(x) = \frac{\Gamma(x + s)}{\Gamma(s)\, x!} \Big(\frac{\mu}{\mu + s}\Big)^x
        \Big(\frac{s}{\mu + s}\Big)^s, \qquad
        \mathrm{E}\, x = \mu, \quad \mathrm{Var}\, x = \mu + \mu^2 / s .

    A Poisson count whose mean varies as a Gamma distribution of shape s; large s is Poisson. The
    prior of a size, :math:`p(s) \propto \exp(-(\log s)^2 / 18)`, keeps it finite where counts vary
    no more than Poisson ones (use :class:`Poisson` for those).
    """

    is_canonical = False

    parameter_names = ("rate", "size")

    def num_dispersed(self, num_items: int) -> int:
        return num_items

    def mean(self, eta: Tensor) -> Tensor:
        return eta.exp()

    def natural(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        return -softplus(_given(dispersion).log() - eta)

    def partition(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        return _given(dispersion) * softplus(eta - _given(dispersion).log())

    def given(self, dispersion: Tensor) -> ResponseFamily:
        return _AtSize(dispersion.log())

    def expansion(
        self, eta: Tensor, statistic: Tensor, dispersion: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        size = _given(dispersion)
        share = torch.sigmoid(eta - size.log())
        mean = (statistic + size) * share
        return mean, mean * (1 - share)

    def base_measure(self, x: Tensor, mask: Tensor, dispersion: Tensor | None) -> Tensor:
        size = _given(dispersion)
        return ((log_rising(size, x) - torch.lgamma(x + 1)) * mask).sum(-1)

    def draw(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        size = _given(dispersion).expand(eta.shape)
        return torch.poisson(eta.exp() * torch._standard_gamma(size) / size)

    def linearise(self, mean: Tensor, epsilon: float) -> Tensor:
        return mean.clamp(min=epsilon).log()

    def problem(self, x: Tensor) -> str | None:
        return _no_counts("NegativeBinomial", x)


@dataclass(frozen=True, eq=False)
class _AtSize(ResponseFamily):
    r"""Negative binomial family of known size.

    :math:`A_\gamma(\eta) = \log(1 + e^{\eta - \log s})`.
    """

    log_size: Tensor

    def log_partition(self, eta: Tensor) -> Tensor:
        return softplus(eta - self.log_size)

    def mean(self, eta: Tensor) -> Tensor:
        return torch.sigmoid(eta - self.log_size)

    def moments(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        p = self.mean(eta)
        return p, p * (1 - p)

    def linearise(self, mean: Tensor, epsilon: float) -> Tensor:
        return torch.logit(mean) + self.log_size

    def take(self, items: Tensor) -> _AtSize:
        if items.dtype == torch.bool:
            return _AtSize(self.log_size.expand(*items.shape, -1)[items])
        return _AtSize(self.log_size[..., items, :])


@dataclass(frozen=True)
class Normal(ResponseFamily):
    r"""Normal values: :math:`\eta` is the mean, :math:`\gamma` the **variance**.

    :math:`A = \eta^2 / 2`, scale :math:`1/\gamma`.
    """

    bound = 1000.0
    prior_scales = (1e4, 2e4)  # in unknown units of the item: wide enough to say nothing
    is_continuous = True
    is_linear = True

    parameter_names = ("mean", "variance")

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
        if dispersion is None:
            return super().base_measure(x, mask, None)
        value = self.statistic(x) * mask
        squares = pairwise_dot(value.square(), (2 * dispersion).reciprocal())
        return -squares - pairwise_dot(mask, 0.5 * (2 * math.pi * dispersion).log())

    def draw(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        assert dispersion is not None
        return eta + dispersion.sqrt() * torch.randn_like(eta + dispersion)


@dataclass(frozen=True)
class LogNormal(Normal):
    r"""Log-normal values x > 0: :math:`\log x \sim N(\eta, \gamma)`.

    The density carries the Jacobian :math:`-\log x`.
    """

    parameter_names = ("mean_of_log", "variance_of_log")

    def statistic(self, x: Tensor) -> Tensor:
        return x.log()

    def base_measure(self, x: Tensor, mask: Tensor, dispersion: Tensor | None) -> Tensor:
        return super().base_measure(x, mask, dispersion) - (x.log() * mask).sum(-1)

    def expected_response(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        assert dispersion is not None
        return (eta + dispersion / 2).exp()

    def draw(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        return super().draw(eta, dispersion).exp()

    fill = 1.0

    def problem(self, x: Tensor) -> str | None:
        return f"LogNormal items are positive, found {x.min().item():g}" if (x <= 0).any() else None


def _given(dispersion: Tensor | None) -> Tensor:
    assert dispersion is not None  # the program always samples it for this family
    return dispersion


def _no_counts(name: str, x: Tensor) -> str | None:
    if (x < 0).any():
        return f"{name} items are counts, found the negative value {x.min().item():g}"
    if (x > MOST_COUNTS).any():
        return (
            f"{name} items are counts of at most {MOST_COUNTS:,}, beyond which neighbouring whole"
            f" numbers are one, found {x.max().item():g}"
        )
    fractional = x[x != x.round()]
    if len(fractional):
        return f"{name} items are whole counts, found {fractional[0].item():g}"
    return None


def _weighted(
    weight: Tensor, scale: Tensor | None, change: Callable[[Tensor], Tensor]
) -> TotalIncrement:
    """Increment as a predictor's function times a step's: a row times a matrix."""
    row = (weight if scale is None else weight * scale).mT  # (R, 1, C)

    def total(eta: Tensor, mask: Tensor | None) -> Tensor:
        value = change(eta)
        return (row @ (value if mask is None else value * mask)).squeeze(1)

    return total


def dispersed_items(family: ResponseFamily, items: Sequence[str]) -> list[str]:
    """Items whose family has a dispersion, in the order of the dispersion vector."""
    blocks = family.blocks(len(items))
    return [
        name for _, columns, part in blocks if part.stop > part.start for name in items[columns]
    ]


@lru_cache(maxsize=256)
def sizes(family: ResponseFamily, num_items: int) -> Tensor:
    """Mask of negative binomial sizes in the dispersion vector, bool (D,); read-only.

    The other entries are variances.
    """
    kinds = [
        isinstance(part, NegativeBinomial)
        for part, _, own in family.blocks(num_items)
        for _ in range(own.stop - own.start)
    ]
    return torch.tensor(kinds, dtype=torch.bool)


def num_densities(family: ResponseFamily, num_items: int) -> int:
    """Number of items with a density, as against a probability."""
    return sum(
        columns.stop - columns.start
        for part, columns, _ in family.blocks(num_items)
        if part.is_continuous
    )


def filled(
    family: ResponseFamily, x: Tensor, with_mask: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Fill missing entries with a valid value; also the 0/1 mask of observed ones.

    The mask is None if all are observed, but ``with_mask``.
    """
    missing = torch.isnan(x)
    if not missing.any():
        return x, torch.ones_like(x) if with_mask else None
    out = x.clone()
    for part, columns, _ in family.blocks(x.shape[-1]):
        out[..., columns].masked_fill_(missing[..., columns], part.fill)
    return out, missing.logical_not_().to(x.dtype)
