r"""Normal guides in units of the posterior's curvature, as Pyro's automatic guides.

Pyro's guides measure every coordinate of the unconstrained scale alike; a loading known to 0.1
inside an interval of length 2,000 and a probability known to 0.1 differ there by a factor of
thousands, and no learning rate suits both. These draw

.. math:: z = \hat z + F u, \quad u \sim N(m, S),

with :math:`\hat z` the start, F the inverse root of the curvature there, and (m, S) learnt from (0,
I): they start as Laplace's approximation. F is diagonal where independence or low rank is meant
coordinate by coordinate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import torch
from pyro.distributions import (
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
    TorchDistribution,
    TransformedDistribution,
    constraints,
)
from pyro.infer.autoguide import AutoContinuous
from pyro.infer.autoguide.initialization import init_to_value
from pyro.nn import PyroParam
from torch import Tensor, nn
from torch.distributions import transforms

from inference.programs.potential import POINT, Potential
from inference.programs.program import Params
from ppl_models.parts.validation import check_size, plain_fields

MOST_CURVED = 400  # coordinates up to which the curvature at the start is computed
LEAST_CURVATURE = 0.1


class _Whitened(transforms.Transform):
    """Affine map u -> center + factor u, with a triangular factor or a diagonal."""

    domain = constraints.real_vector
    codomain = constraints.real_vector
    bijective = True

    def __init__(self, center: Tensor, factor: Tensor) -> None:
        super().__init__()
        self.center, self.factor = center, factor

    def _call(self, x: Tensor) -> Tensor:
        return self.center + (x @ self.factor.mT if self.factor.dim() == 2 else x * self.factor)

    def _inverse(self, y: Tensor) -> Tensor:
        shift = y - self.center
        if self.factor.dim() == 1:
            return shift / self.factor
        return cast(
            Tensor,
            torch.linalg.solve_triangular(self.factor, shift.unsqueeze(-1), upper=False).squeeze(
                -1
            ),
        )

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        diagonal = self.factor.diagonal() if self.factor.dim() == 2 else self.factor
        return diagonal.log().sum().expand(x.shape[:-1])


class _NormalGuide(AutoContinuous):
    """Normal guide of the whitened coordinates u; subclasses say which."""

    scale: Any  # a tensor when read, a PyroParam when set
    scale_tril: Any

    def __init__(
        self, model: Callable[..., Any], values: Params, center: Tensor, factor: Tensor
    ) -> None:
        self._whitened = _Whitened(center, factor)
        super().__init__(model, init_loc_fn=init_to_value(values=values))  # type: ignore[no-untyped-call]

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        super()._setup_prototype(*args, **kwargs)  # type: ignore[no-untyped-call]
        self.loc = nn.Parameter(torch.zeros_like(self._whitened.center))
        self.scale = PyroParam(
            torch.ones_like(self._whitened.center), constraints.softplus_positive
        )

    def base(self) -> TorchDistribution:
        """Base distribution of u."""
        return cast("TorchDistribution", Normal(self.loc, self.scale).to_event(1))

    def get_posterior(self, *args: Any, **kwargs: Any) -> TorchDistribution:
        return cast("TorchDistribution", TransformedDistribution(self.base(), [self._whitened]))


class _FullGuide(_NormalGuide):
    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        super()._setup_prototype(*args, **kwargs)
        unit = torch.eye(len(self.loc), dtype=self.loc.dtype, device=self.loc.device)
        self.scale_tril = PyroParam(unit, constraints.unit_lower_cholesky)

    def base(self) -> TorchDistribution:
        return MultivariateNormal(self.loc, scale_tril=self.scale.unsqueeze(-1) * self.scale_tril)


class _LowRankGuide(_NormalGuide):
    def __init__(
        self,
        model: Callable[..., Any],
        values: Params,
        center: Tensor,
        factor: Tensor,
        rank: int | None,
    ) -> None:
        self._rank = round(len(center) ** 0.5) if rank is None else rank
        super().__init__(model, values, center, factor)

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        super()._setup_prototype(*args, **kwargs)
        generator = torch.Generator().manual_seed(0)
        start = (
            0.1
            * torch.randn(len(self.loc), self._rank, generator=generator, dtype=torch.float64)
            / self._rank**0.5
        )
        self.cov_factor = nn.Parameter(start.to(self.loc))

    def base(self) -> TorchDistribution:
        return LowRankMultivariateNormal(
            self.loc, self.scale.unsqueeze(-1) * self.cov_factor, self.scale.square()
        )


@dataclasses.dataclass(frozen=True)
class MeanField:
    """Mean-field guide: independent normals, one an unconstrained coordinate."""

    def build(
        self, model: Callable[..., Any], potential: Potential, point: Tensor
    ) -> AutoContinuous:
        """Build the guide around a point (P,)."""
        return _NormalGuide(model, _values(potential, point), point, _units(potential, point))


@dataclasses.dataclass(frozen=True)
class FullRank:
    """Full-rank guide: one multivariate normal with a full covariance."""

    def build(
        self, model: Callable[..., Any], potential: Potential, point: Tensor
    ) -> AutoContinuous:
        """Build the guide around a point (P,)."""
        if potential.size > MOST_CURVED:
            raise ValueError(
                f"SVI: FullRank() has {potential.size}^2 numbers for {potential.size} coordinates;"
                f" up to {MOST_CURVED} were expected: use LowRank() or MeanField()"
            )
        values, vectors = torch.linalg.eigh(potential.curvature(point))
        covariance = (vectors / values.clamp(min=LEAST_CURVATURE)) @ vectors.mT
        return _FullGuide(
            model, _values(potential, point), point, torch.linalg.cholesky(covariance)
        )


@dataclasses.dataclass(frozen=True)
class LowRank:
    """Low-rank guide: a multivariate normal of diagonal plus low-rank covariance.

    Args:
        rank: of the second part; None for the square root of the number of coordinates.
    """

    rank: int | None = None

    def __post_init__(self) -> None:
        plain_fields(self)
        if self.rank is not None:
            check_size("LowRank", "rank", self.rank, wanted="a positive integer or None")

    def build(
        self, model: Callable[..., Any], potential: Potential, point: Tensor
    ) -> AutoContinuous:
        """Build the guide around a point (P,)."""
        return _LowRankGuide(
            model, _values(potential, point), point, _units(potential, point), self.rank
        )


def _values(potential: Potential, point: Tensor) -> Params:
    params = {name: value[0].detach() for name, value in potential.params(point[None]).items()}
    return params | {POINT: point.detach()}


def _units(potential: Potential, point: Tensor) -> Tensor:
    """Inverse root of each coordinate's own curvature, (P,)."""
    if potential.size > MOST_CURVED:
        return torch.full_like(point, 0.1)
    return potential.curvature(point).diagonal().clamp(min=LEAST_CURVATURE).rsqrt()
