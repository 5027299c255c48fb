"""Distributions of whole vectors: joint enumeration as one site, matrix products."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from pyro.distributions import TorchDistribution, Uniform
from torch import Tensor
from torch.distributions import Distribution, biject_to, constraints, transform_to, transforms

LOG_SIZE_SCALE = 3.0  # standard deviation of the prior of a size's logarithm
MAX_ENUMERABLE = 24  # 2^24 configurations; beyond it exact enumeration is a mistake, not a wait


def broadcast_shapes(*shapes: torch.Size) -> torch.Size:
    """Common broadcast shape, by numpy, as torch's loads a computer algebra system."""
    return torch.Size(np.broadcast_shapes(*shapes))


EXACT = 40.0  # above it log(1 + e^x) is x to rounding


def softplus(x: Tensor) -> Tensor:
    """Softplus log(1 + e^x), exact to rounding also for x > 20, unlike torch's."""
    return torch.nn.functional.softplus(x, threshold=EXACT)


def log_rising(size: Tensor, more: Tensor) -> Tensor:
    r"""Log of :math:`\Gamma(s + x) / \Gamma(s)`, in double precision: both may be far larger."""
    low = size.double()
    return (torch.lgamma(low + more.double()) - torch.lgamma(low)).to(size)


def pairwise_dot(left: Tensor, right: Tensor) -> Tensor:
    r"""Sum over the last dim of ``left * right`` after broadcasting, as one matrix product.

    Batch dims that only one side has become rows or columns of the product, so that no
    (rows, configurations, items) intermediate is built.

    Args:
        left: (\\*batch_left, J).
        right: (\\*batch_right, J).

    Returns:
        (\\*broadcast(batch_left, batch_right)). In memory the leftmost dims of ``right`` come last,
        so that a reduction over an enumerated dim of ``right`` runs over contiguous entries.
    """
    ndim = max(left.dim(), right.dim())
    left = left.reshape((1,) * (ndim - left.dim()) + left.shape)
    right = right.reshape((1,) * (ndim - right.dim()) + right.shape)
    plan = _product_plan(left.shape, right.shape)
    if plan is None:
        return (left * right).sum(-1)
    swapped, order, left_shape, right_shape, shape, back = plan
    if swapped:
        left, right = right, left
    a, b = left.permute(order).reshape(left_shape), right.permute(order).reshape(right_shape)
    return (a @ b.mT).reshape(shape).permute(back)


_Dims = tuple[int, ...]


@lru_cache(maxsize=512)
def _product_plan(
    left: _Dims, right: _Dims
) -> tuple[bool, _Dims, _Dims, _Dims, _Dims, _Dims] | None:
    """Plan of a matrix product: swap of the sides, and shapes there and back."""
    batch = range(len(left) - 1)
    rows = [d for d in batch if left[d] > 1 and right[d] == 1]
    columns = [d for d in reversed(batch) if left[d] == 1 and right[d] > 1]
    if not rows and not columns:
        return None
    swapped = not rows  # one side carries every batch dim: a matrix-vector product
    if swapped:
        left, right, rows, columns = right, left, columns, rows
    shared = [d for d in batch if d not in rows and d not in columns]
    order = shared + rows + columns
    shared_shape = [left[d] for d in shared]
    return (
        swapped,
        (*order, len(batch)),
        (*shared_shape, math.prod(left[d] for d in rows), left[-1]),
        (*shared_shape, math.prod(right[d] for d in columns), right[-1]),
        tuple(max(left[d], right[d]) for d in order),
        tuple(order.index(d) for d in batch),
    )


def draw_bits(chances: Tensor) -> Tensor:
    """Draw 0 or 1 for each probability; NaN counts as one half.

    A line search may trace a program at parameters that are not numbers.
    """
    return torch.bernoulli(chances.nan_to_num(0.5))


@lru_cache(maxsize=64)
def binary_configurations(
    num_latents: int, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> Tensor:
    """Binary vectors of length K in lexicographic order, (2^K, K); read-only."""
    if num_latents > MAX_ENUMERABLE:
        raise ValueError(
            f"num_latents = {num_latents} asks for 2^{num_latents} configurations; exact"
            f" enumeration stops at {MAX_ENUMERABLE}: use fewer latents, or an engine that samples"
            " the latents"
        )
    index = torch.arange(2**num_latents, device=device)
    shifts = torch.arange(num_latents - 1, -1, -1, device=device)
    return ((index[:, None] >> shifts) & 1).to(dtype)


def support_size(fn: TorchDistribution) -> int | None:
    """Number of values of an enumerable distribution, None if too many to list."""
    bits = getattr(fn, "num_bits", None)
    if bits is None:
        return len(fn.enumerate_support(expand=False))
    return 2**bits if bits <= MAX_ENUMERABLE else None


class BinaryVector(TorchDistribution):
    r"""Independent bits, enumerated jointly as one site.

    :math:`p(a) = \prod_k \sigma(l_k)^{a_k} (1-\sigma(l_k))^{1-a_k}`.

    Pyro does not enumerate event dims and stops at some 60 separate sites; this distribution's
    support is the :math:`2^K` joint configurations. Expanding it over a plate costs nothing:
    log-densities are computed on the shape of ``logits`` and expanded without copying.

    Args:
        logits: (\*batch, K), log-odds of each bit.
    """

    arg_constraints = {"logits": constraints.real_vector}
    support = constraints.independent(constraints.boolean, 1)
    has_enumerate_support = True

    def __init__(self, logits: Tensor, validate_args: bool | None = None) -> None:
        self.logits = logits
        super().__init__(logits.shape[:-1], logits.shape[-1:], validate_args=validate_args)

    def expand(
        self, batch_shape: torch.Size, _instance: Distribution | None = None
    ) -> BinaryVector:
        new = self._get_checked_instance(BinaryVector, _instance)
        new.logits = self.logits  # kept unexpanded: log_prob works on this shape
        super(BinaryVector, new).__init__(
            torch.Size(batch_shape), self.event_shape, validate_args=False
        )
        new._validate_args = self._validate_args
        return new

    @property
    def num_bits(self) -> int:
        """Number of bits, K; there are 2^K values."""
        return self.event_shape[0]

    @property
    def mean(self) -> Tensor:
        return torch.sigmoid(self.logits).expand(self.batch_shape + self.event_shape)

    @property
    def variance(self) -> Tensor:
        return self.mean * (1 - self.mean)

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        with torch.no_grad():
            return draw_bits(
                self.mean.expand(torch.Size(sample_shape) + self.batch_shape + self.event_shape)
            )

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        log_density = pairwise_dot(value, self.logits) - softplus(self.logits).sum(-1)
        return log_density.expand(broadcast_shapes(value.shape[:-1], self.batch_shape))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = binary_configurations(self.event_shape[0], self.logits.dtype, self.logits.device)
        values = values.reshape(values.shape[:1] + (1,) * len(self.batch_shape) + self.event_shape)
        if expand:
            return values.expand(values.shape[:1] + self.batch_shape + self.event_shape)
        return values


class Flat(Uniform):
    """Uniform distribution on a closed interval.

    An estimate on either end has a finite log-density (torch's leaves out the upper).
    """

    def log_prob(self, value: Tensor) -> Tensor:
        inside = (value >= self.low) & (value <= self.high)
        return torch.where(inside, -(self.high - self.low).log(), -torch.inf)


class Dispersions(TorchDistribution):
    r"""Prior of dispersions: variances uniform, negative binomial sizes log-normal.

    On their interval, :math:`p(s) \propto \exp(-(\log s)^2 / 18)` for sizes s.

    That is :math:`\log s \sim N(9, 3^2)`: nearly flat where counts vary more than Poisson ones, and
    falling beyond, where they cannot tell sizes apart.

    Args:
        is_size: bool, of the shape of the whole site, True where an entry is a size.
        low, high: both ends of the interval of all entries, ().
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self, is_size: Tensor, low: Tensor, high: Tensor, batch_shape: torch.Size = torch.Size()
    ) -> None:
        self.is_size, self.low, self.high = is_size, low, high
        super().__init__(batch_shape, is_size.shape, validate_args=False)

    def expand(self, batch_shape: torch.Size, _instance: Distribution | None = None) -> Dispersions:
        return Dispersions(self.is_size, self.low, self.high, torch.Size(batch_shape))

    @property
    def support(self) -> constraints.Constraint:
        return constraints.independent(
            constraints.interval(self.low, self.high), self.is_size.dim()
        )

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        shape = torch.Size(sample_shape) + self.batch_shape + self.event_shape
        first, last = self._chances()
        level = torch.special.ndtri(
            first + (last - first) * torch.rand_like(self.low.expand(shape))
        )
        size = (LOG_SIZE_SCALE * (level + LOG_SIZE_SCALE)).exp().clamp(self.low, self.high)
        return torch.where(
            self.is_size,
            size,
            self.low + (self.high - self.low) * torch.rand_like(self.low.expand(shape)),
        )

    def log_prob(self, value: Tensor) -> Tensor:
        inside = (value >= self.low) & (value <= self.high)
        first, last = self._chances()
        of_size = log_size_density(value.log()) - (last - first).log()
        each = torch.where(self.is_size, of_size, -(self.high - self.low).log())
        total = (
            torch.where(inside, each, -torch.inf).flatten(value.dim() - self.is_size.dim()).sum(-1)
        )
        return total.expand(broadcast_shapes(total.shape, self.batch_shape))

    def _chances(self) -> tuple[Tensor, Tensor]:
        """Probability that a size is below either end, on the whole half-line."""
        below, above = (
            torch.special.ndtr(end.log() / LOG_SIZE_SCALE - LOG_SIZE_SCALE)
            for end in (self.low, self.high)
        )
        return below, above


def log_size_density(log_size: Tensor) -> Tensor:
    """Log-density of a size s on the half-line, in units of s.

    log s is normal about the square of its standard deviation.
    """
    scale = LOG_SIZE_SCALE
    return (
        -(log_size / scale).square() / 2 - scale**2 / 2 - math.log(scale * math.sqrt(2 * math.pi))
    )


class OnGraph(constraints.Constraint):
    """Constraint of matrices: free entries satisfy ``base``, all others are zero."""

    event_dim = 2
    is_discrete = False

    def __init__(self, base: constraints.Constraint, graph: Tensor) -> None:
        self.base, self.graph = base, graph
        super().__init__()

    def __repr__(self) -> str:
        return "matrices of finite numbers with 0 where the graph has no edge"

    def check(self, value: Tensor) -> Tensor:
        return self.base.check(value[..., self.graph]).all(-1) & (value[..., ~self.graph] == 0).all(
            -1
        )


class _Scatter(transforms.Transform):
    """Scatter a vector of free entries to a matrix with zeros off the graph."""

    bijective = True
    domain = constraints.real_vector

    def __init__(self, graph: Tensor) -> None:
        super().__init__()
        self.graph = graph

    @property
    def codomain(self) -> constraints.Constraint:
        return constraints.independent(constraints.real, 2)

    def _call(self, x: Tensor) -> Tensor:
        out = x.new_zeros(x.shape[:-1] + self.graph.shape)
        out[..., self.graph] = x
        return out

    def _inverse(self, y: Tensor) -> Tensor:
        return y[..., self.graph]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[:-1])

    def forward_shape(self, shape: torch.Size) -> torch.Size:
        return shape[:-1] + self.graph.shape

    def inverse_shape(self, shape: torch.Size) -> torch.Size:
        return shape[:-2] + torch.Size([int(self.graph.sum())])


@biject_to.register(OnGraph)
@transform_to.register(OnGraph)
def _biject_to_graph(constraint: OnGraph) -> transforms.Transform:
    free = transforms.IndependentTransform(biject_to(constraint.base), 1)
    return transforms.ComposeTransform([free, _Scatter(constraint.graph)])


class Scattered(TorchDistribution):
    r"""Prior of a matrix with a known zero pattern.

    ``base`` independently on the free entries, zero elsewhere.

    Args:
        base: a univariate distribution with empty batch shape, or with one entry for each free one,
            row by row.
        graph: bool (J, K), True where an entry is free.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self,
        base: Distribution,
        graph: Tensor,
        batch_shape: torch.Size = torch.Size(),
        validate_args: bool | None = None,
    ) -> None:
        self.base, self.graph = base, graph
        super().__init__(batch_shape, graph.shape, validate_args=False)

    def expand(self, batch_shape: torch.Size, _instance: Distribution | None = None) -> Scattered:
        return Scattered(self.base, self.graph, torch.Size(batch_shape))

    @property
    def support(self) -> constraints.Constraint:
        return OnGraph(self.base.support or constraints.real, self.graph)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        own = torch.Size() if self.base.batch_shape else torch.Size([int(self.graph.sum())])
        free = self.base.sample(torch.Size(sample_shape) + self.batch_shape + own)
        return _Scatter(self.graph)(free)

    def log_prob(self, value: Tensor) -> Tensor:
        free = self.base.log_prob(value[..., self.graph]).sum(-1)
        return free.expand(broadcast_shapes(free.shape, self.batch_shape))


class ProductEffects(TorchDistribution):
    r"""Normal prior of the coefficients of products of bits.

    The prior of each row is a function of the variance that it gives a predictor.

    The row w of a child has the density proportional to :math:`\exp(-w^\top S w / (2 u^2))` on its
    free entries, with S four times the covariance of the products under fair bits; it is zero
    elsewhere.

    Args:
        graph: bool (J, T), True where an entry is free.
        spread: S, (T, T).
        scales: u, (J,).
        constant: log-density at zero, (); None to work it out.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self,
        graph: Tensor,
        spread: Tensor,
        scales: Tensor,
        batch_shape: torch.Size = torch.Size(),
        constant: Tensor | None = None,
    ) -> None:
        self.graph, self.spread, self.scales = graph, spread, scales
        self.constant = self._log_constant() if constant is None else constant
        super().__init__(batch_shape, graph.shape, validate_args=False)

    def expand(
        self, batch_shape: torch.Size, _instance: Distribution | None = None
    ) -> ProductEffects:
        return ProductEffects(
            self.graph, self.spread, self.scales, torch.Size(batch_shape), self.constant
        )

    @property
    def support(self) -> constraints.Constraint:
        return OnGraph(constraints.real, self.graph)

    def _groups(self) -> list[tuple[Tensor, Tensor]]:
        """Children with the same products, and those products."""
        uses, group = torch.unique(self.graph, dim=0, return_inverse=True)
        return [
            ((group == g).nonzero().ravel(), own.nonzero().ravel()) for g, own in enumerate(uses)
        ]

    def _log_constant(self) -> Tensor:
        """Log density at zero, ()."""
        constant = self.spread.new_zeros(())
        for children, own in self._groups():
            each = torch.linalg.slogdet(self.spread[own][:, own])[1] - len(own) * math.log(
                2 * math.pi
            )
            constant = (
                constant + len(children) * each / 2 - len(own) * self.scales[children].log().sum()
            )
        return constant

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        shape = torch.Size(sample_shape) + self.batch_shape
        out = self.spread.new_zeros(*shape, *self.graph.shape)
        for children, own in self._groups():
            root = torch.linalg.cholesky(torch.linalg.inv(self.spread[own][:, own]))
            noise = (
                torch.randn(*shape, len(children), len(own), dtype=out.dtype, device=out.device)
                @ root.mT
            )
            out[..., children[:, None], own] = noise * self.scales[children, None]
        return out

    def log_prob(self, value: Tensor) -> Tensor:
        energy = ((value @ self.spread) * value).sum(-1) / self.scales.square()
        log_density = self.constant - energy.sum(-1) / 2
        return log_density.expand(broadcast_shapes(log_density.shape, self.batch_shape))
