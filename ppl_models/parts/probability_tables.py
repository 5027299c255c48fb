r"""Probability vectors of several items in one flat vector: sums, prior, coordinates.

Items may have different numbers of categories, so a table with one line an item would be ragged.
Here item j holds :math:`C_j` consecutive entries of a vector of length :math:`P = \\sum_j C_j`, and
nothing is padded but inside reductions.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, biject_to, constraints, transform_to, transforms

from ppl_models.parts.distributions import broadcast_shapes


class Segments:
    """Segments of a vector, one an item; all methods act along the last dim.

    Args:
        sizes: entries of each item, (J,), none of them zero.
        device: of the indices.
    """

    def __init__(self, sizes: tuple[int, ...], device: torch.device) -> None:
        self.sizes, self.num_items, self.num_entries = sizes, len(sizes), sum(sizes)
        counts = torch.tensor(sizes, dtype=torch.long, device=device)
        first = counts.cumsum(0) - counts
        self.owner = torch.arange(len(sizes), device=device).repeat_interleave(counts)  # (P,)
        self.code = torch.arange(self.num_entries, device=device) - first[self.owner]  # (P,)
        place = torch.arange(max(sizes, default=0), device=device)
        self.inside = place < counts.unsqueeze(-1)  # (J, H)
        self.entry = (first.unsqueeze(-1) + place).clamp(max=max(self.num_entries - 1, 0))  # (J, H)

    def spread(self, values: Tensor) -> Tensor:
        """Spread one value an item (..., J) over its entries, (..., P)."""
        return values[..., self.owner]

    def total(self, values: Tensor) -> Tensor:
        """Sums within items, (..., P) to (..., J)."""
        return values.new_zeros(*values.shape[:-1], self.num_items).index_add(
            -1, self.owner, values
        )

    def padded(self, values: Tensor, fill: float) -> Tensor:
        """Pad to one line an item, ``fill`` after its last entry, (..., P) to (..., J, H)."""
        return values[..., self.entry].masked_fill(~self.inside, fill)

    def log_total(self, values: Tensor) -> Tensor:
        """Log of the sum of exponentials within items, (..., P) to (..., J)."""
        return self.padded(values, -torch.inf).logsumexp(-1)


@lru_cache(maxsize=256)
def segments_of(sizes: tuple[int, ...], device: torch.device) -> Segments:
    """Cached segments of these sizes; their tensors are not to be written into."""
    return Segments(sizes, device)


class Shares(constraints.Constraint):
    """Constraint of non-negative numbers, some groups of which each sum to one."""

    is_discrete = False

    def scaled(self, value: Tensor) -> Tensor:
        """Divide non-negative numbers by the sums of their groups."""
        raise NotImplementedError


class Simplexes(Shares):
    """Constraint of vectors whose consecutive segments each sum to one."""

    event_dim = 1

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        super().__init__()

    def __repr__(self) -> str:
        return "shares of at least 0 that sum to one by item"

    def check(self, value: Tensor) -> Tensor:
        totals = segments_of(self.sizes, value.device).total(value)
        return (value >= 0).all(-1) & ((totals - 1).abs() < 1e-6).all(-1)

    def scaled(self, value: Tensor) -> Tensor:
        segments = segments_of(self.sizes, value.device)
        return value / segments.spread(segments.total(value))


class _SticksAbreast(transforms.Transform):
    """Stick breaking of probability vectors, all items of one size at once."""

    domain = constraints.real_vector
    bijective = True

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.sizes = sizes
        self.num_free = sum(sizes) - len(sizes)
        free, whole = segments_of_free(sizes), segments_of(sizes, torch.device("cpu"))
        self._groups: list[tuple[int, Tensor, Tensor]] = []  # size, its coordinates, its entries
        for size in sorted(set(sizes)):
            own = torch.tensor([c == size for c in sizes])
            self._groups.append(
                (size, own[free].nonzero().ravel(), own[whole.owner].nonzero().ravel())
            )
        self._order = torch.cat([entries for _, _, entries in self._groups]).argsort()
        self._free_order = torch.cat([places for _, places, _ in self._groups]).argsort()
        self._stick = transforms.StickBreakingTransform()

    @property
    def codomain(self) -> constraints.Constraint:
        return Simplexes(self.sizes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SticksAbreast) and other.sizes == self.sizes

    __hash__ = None  # type: ignore[assignment]

    def _call(self, x: Tensor) -> Tensor:
        parts = []
        for size, places, entries in self._groups:
            own = x[..., places].unflatten(-1, (-1, size - 1)) if size > 1 else None
            parts.append(
                x.new_ones(*x.shape[:-1], len(entries))
                if own is None
                else self._stick(own).flatten(-2)
            )
        return torch.cat(parts, -1)[..., self._order]

    def _inverse(self, y: Tensor) -> Tensor:
        parts = [
            self._stick.inv(y[..., entries].unflatten(-1, (-1, size))).flatten(-2)
            for size, _, entries in self._groups
            if size > 1
        ]
        return torch.cat([*parts, y.new_zeros(*y.shape[:-1], 0)], -1)[..., self._free_order]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        total = x.new_zeros(x.shape[:-1])
        for size, places, entries in self._groups:
            if size > 1:
                own = self._stick.log_abs_det_jacobian(
                    x[..., places].unflatten(-1, (-1, size - 1)),
                    y[..., entries].unflatten(-1, (-1, size)),
                )
                total = total + own.sum(-1)
        return total

    def forward_shape(self, shape: torch.Size) -> torch.Size:
        return shape[:-1] + torch.Size([sum(self.sizes)])

    def inverse_shape(self, shape: torch.Size) -> torch.Size:
        return shape[:-1] + torch.Size([self.num_free])


def segments_of_free(sizes: tuple[int, ...]) -> Tensor:
    """Item number of each free coordinate, (P - J,)."""
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes, dtype=torch.long) - 1)


@biject_to.register(Simplexes)
@transform_to.register(Simplexes)
def _biject_to_simplexes(constraint: Simplexes) -> transforms.Transform:
    return _SticksAbreast(constraint.sizes)


class DirichletTables(TorchDistribution):
    r"""Independent Dirichlet distributions of the items, side by side.

    .. math::

        p(\theta) = \prod_j \frac{\Gamma(\sum_h \alpha_{jh})}{\prod_h \Gamma(\alpha_{jh})} \prod_h
        \theta_{jh}^{\alpha_{jh} - 1}

    Args:
        concentration: :math:`\alpha`, (P,), positive.
        sizes: categories of each item, (J,), whose sum is P.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self, concentration: Tensor, sizes: tuple[int, ...], batch_shape: torch.Size = torch.Size()
    ) -> None:
        self.concentration, self.sizes = concentration, sizes
        super().__init__(batch_shape, concentration.shape, validate_args=False)

    def expand(
        self, batch_shape: torch.Size, _instance: Distribution | None = None
    ) -> DirichletTables:
        return DirichletTables(self.concentration, self.sizes, torch.Size(batch_shape))

    @property
    def support(self) -> constraints.Constraint:
        return Simplexes(self.sizes)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        shape = torch.Size(sample_shape) + self.batch_shape + self.event_shape
        tiny = torch.finfo(self.concentration.dtype).tiny
        amounts = torch._standard_gamma(self.concentration.expand(shape)).clamp(min=tiny)
        segments = segments_of(self.sizes, amounts.device)
        return amounts / segments.spread(segments.total(amounts))

    def log_prob(self, value: Tensor) -> Tensor:
        segments = segments_of(self.sizes, value.device)
        constant = (
            torch.lgamma(segments.total(self.concentration)).sum()
            - torch.lgamma(self.concentration).sum()
        )
        excess = self.concentration - 1
        own = excess != 0  # a flat prior has no slope, at zero either
        log_density = torch.xlogy(excess[own], value[..., own]).sum(-1) + constant
        return log_density.expand(broadcast_shapes(log_density.shape, self.batch_shape))
