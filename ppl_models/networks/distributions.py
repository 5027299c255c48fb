r"""Distributions of components without densities: row statistics, variates over marginals."""

from __future__ import annotations

import torch
from pyro.distributions import TorchDistribution
from pyro.ops.indexing import Vindex
from torch import Tensor
from torch.distributions import Distribution, constraints

from ppl_models.parts.distributions import broadcast_shapes


class Statistic(TorchDistribution):
    """Statistic of the rows, computed and not estimated.

    Its density is 1 wherever its support is; a draw is ``value``.

    Args:
        value: what stands in its place before the rows are known, of any shape.
        support: of its last dims.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    has_rsample = False

    def __init__(
        self, value: Tensor, support: constraints.Constraint, validate_args: bool | None = None
    ) -> None:
        self.value = value
        self._support = constraints.independent(support, value.dim() - support.event_dim)
        super().__init__(torch.Size(), value.shape, validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        return self._support

    def expand(self, batch_shape: torch.Size, _instance: Distribution | None = None) -> Statistic:
        new = self._get_checked_instance(Statistic, _instance)
        new.value, new._support = self.value, self._support
        super(Statistic, new).__init__(
            torch.Size(batch_shape), self.event_shape, validate_args=False
        )
        new._validate_args = self._validate_args
        return new

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        return self.value.expand(torch.Size(sample_shape) + self.batch_shape + self.event_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return value.new_zeros(value.shape[: value.dim() - len(self.event_shape)])


class RelativeToMarginal(TorchDistribution):
    r"""Distribution of one variate given the component, relative to its marginal.

    The density at a row, relative to the empirical marginal, is :math:`f^{(z)}(x) / P^*(x) =
    \beta^{(z)}(x) / \phi^{(z)}`.

    It is made for given rows and knows no others; nothing can be drawn from it without them.

    Args:
        log_ratio: :math:`\log \beta^{(i)} - \log \phi^{(i)}` at each row, (\*batch, C).
        component: z, of a shape that broadcasts with the batch.
        event_shape: of one row of the variate.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self,
        log_ratio: Tensor,
        component: Tensor,
        event_shape: torch.Size,
        validate_args: bool | None = None,
    ) -> None:
        self.log_ratio, self.component = log_ratio, component
        batch = broadcast_shapes(log_ratio.shape[:-1], component.shape)
        super().__init__(batch, torch.Size(event_shape), validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.real, len(self.event_shape))

    def expand(
        self, batch_shape: torch.Size, _instance: Distribution | None = None
    ) -> RelativeToMarginal:
        new = self._get_checked_instance(RelativeToMarginal, _instance)
        new.log_ratio, new.component = self.log_ratio, self.component
        super(RelativeToMarginal, new).__init__(
            torch.Size(batch_shape), self.event_shape, validate_args=False
        )
        new._validate_args = self._validate_args
        return new

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        raise ValueError(
            "rows of InClassNet cannot be drawn from its program alone: its components are defined"
            " by reweighting rows that are given; a fit draws them:"
            " fit.structure.simulate_like(fit.params, data, seed)"
        )

    def log_prob(self, value: Tensor) -> Tensor:
        return Vindex(self.log_ratio)[..., self.component]
