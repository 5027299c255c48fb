"""Penalties of loadings as proper priors: penalised estimation is MAP estimation."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, Protocol, cast

import numpy as np
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, constraints

from ppl_models.parts.distributions import broadcast_shapes
from ppl_models.parts.validation import check_number, plain_fields

FAR = 1e9  # a threshold no loading reaches


# a number, or one a point of a grid, (G,), along the leading dim of what is penalised
Constant = float | Tensor


class Penalty(Hashable, Protocol):
    """Symmetric penalty that rises with the size of its argument."""

    @property
    def threshold(self) -> Constant:
        """Threshold below which a loading's size counts as an absent edge."""
        ...

    @property
    def knots(self) -> tuple[Constant, ...]:
        """Knots: positive points where the penalty changes its formula."""
        ...

    def __call__(self, value: Tensor) -> Tensor: ...

    def slope(self, value: Tensor) -> Tensor:
        """Derivative by the size of ``value``, from the right at zero (linear majoriser)."""
        ...

    def prox(self, center: Tensor, curvature: Tensor) -> Tensor:
        """Proximal map: minimise ``curvature / 2 * (b - center)^2 + penalty(b)`` exactly."""
        ...

    def convex(self) -> Penalty:
        """Convex penalty with the same slope at zero, the start of a path to this one."""
        ...


def check_penalty(owner: str, name: str, value: Any) -> None:
    """Check that a value is a penalty, or None."""
    is_penalty = callable(getattr(value, "prox", None)) or type(value).__module__ == __name__
    if value is not None and (isinstance(value, type) or not is_penalty):
        raise ValueError(
            f"{owner}: {name} must be a penalty such as TruncatedLasso(2.0, 0.3), or None, got"
            f" {value!r}"
        )


def _positive(owner: str, name: str, value: Constant) -> None:
    if isinstance(value, Tensor):
        if (
            value.dim() != 1
            or value.is_complex()
            or not bool(((value > 0) & torch.isfinite(value)).all())
        ):
            raise ValueError(
                f"{owner}: {name} must be positive and finite, one a point of a grid, got {value!r}"
            )
        return
    check_number(owner, name, value, "be a positive finite number", above=0)


def _along(constant: Constant, value: Tensor) -> Constant:
    """Constant that broadcasts along the leading dim of ``value``."""
    if isinstance(constant, Tensor):
        return constant.reshape(-1, *(1,) * (value.dim() - 1))
    return constant


def stacked(penalties: Sequence[Penalty], like: Tensor) -> Penalty:
    """Stack penalties of one kind: value g of a batch is penalised by penalty g."""
    kind: Any = type(penalties[0])
    names = [field.name for field in fields(kind)]
    return kind(**{n: like.new_tensor([getattr(p, n) for p in penalties]) for n in names})


def taken(penalty: Penalty, index: Tensor) -> Penalty:
    """Select some of the penalties that are stacked into one, in the order of ``index``."""
    new = object.__new__(type(penalty))  # not the constructor: the constants were checked before
    for field in fields(cast("Any", penalty)):
        value = getattr(penalty, field.name)
        object.__setattr__(new, field.name, value[index] if isinstance(value, Tensor) else value)
    return new


@dataclass(frozen=True)
class TruncatedLasso:
    r"""Truncated Lasso penalty :math:`\lambda \min(|b|, \tau)` in slope form.

    Source: Shen, Pan and Zhu (2012), doi:10.1080/01621459.2011.645783.

    Args:
        slope_at_zero: :math:`\lambda`, the slope at zero, on the scale of the total log-likelihood.
        threshold: :math:`\tau`, where the penalty becomes flat.

    Each may be a tensor (G,), one number a point of a grid; what is penalised then has G as its
    leading dim.

    Raises:
        ValueError: if either is not a positive finite number.
    """

    slope_at_zero: Constant
    threshold: Constant

    def __post_init__(self) -> None:
        plain_fields(self, tensors=False)
        _positive("TruncatedLasso", "slope_at_zero", self.slope_at_zero)
        _positive("TruncatedLasso", "threshold", self.threshold)

    @classmethod
    def from_level(cls, level: float, threshold: float) -> TruncatedLasso:
        """Penalty in level form, ``level * min(|b| / threshold, 1)``."""
        _positive("TruncatedLasso.from_level", "level", level)
        _positive("TruncatedLasso.from_level", "threshold", threshold)
        return cls(level / threshold, threshold)

    @classmethod
    def for_rows(cls, num_rows: int) -> TruncatedLasso:
        """Setting of Lee and Gu (2025): slope N^(1/4) and threshold 3 N^(-0.3).

        Source: arXiv:2501.01414, section 5.
        """
        _positive("TruncatedLasso.for_rows", "num_rows", num_rows)
        return cls(num_rows**0.25, 3.0 * num_rows**-0.3)

    @classmethod
    def bic(cls, num_rows: int) -> TruncatedLasso:
        """BIC setting: level (log N) / 2 and threshold 3 N^(-0.3).

        Beyond the threshold a loading costs what BIC asks of a parameter.

        The threshold falls more slowly than the loadings' standard errors, the level more slowly
        than the log-likelihood of a true loading grows: the conditions for a consistent graph.
        """
        _positive("TruncatedLasso.bic", "num_rows", num_rows)
        return cls.from_level(math.log(max(num_rows, 2)) / 2, 3.0 * num_rows**-0.3)

    @classmethod
    def candidates(cls, num_rows: int) -> tuple[TruncatedLasso, TruncatedLasso]:
        """Candidates :meth:`for_rows` and :meth:`bic`, weaker and stronger.

        Neither is the better one for every graph.

        With few rows and a dense graph the level of BIC empties true edges; with many rows the
        other keeps false ones. Let EBIC say: ``penalty_path(model, data,
        TruncatedLasso.candidates(len(data)))`` in :mod:`inference.selection.sparsity`.
        """
        return cls.for_rows(num_rows), cls.bic(num_rows)

    def convex(self) -> TruncatedLasso:
        return TruncatedLasso(self.slope_at_zero, FAR)

    @property
    def knots(self) -> tuple[Constant, ...]:
        return (self.threshold,)

    @cached_property
    def _shaped(self) -> dict[int, tuple[Constant, Constant]]:
        """Slope and threshold that broadcast along values, by the number of dims of these."""
        return {}

    def _along(self, value: Tensor) -> tuple[Constant, Constant]:
        out = _along(self.slope_at_zero, value), _along(self.threshold, value)
        self._shaped[value.dim()] = out
        return out

    def __call__(self, value: Tensor) -> Tensor:
        slope, threshold = self._shaped.get(value.dim()) or self._along(value)
        return slope * value.abs().clamp(max=threshold)

    def slope(self, value: Tensor) -> Tensor:
        slope, threshold = self._shaped.get(value.dim()) or self._along(value)
        return slope * (value.abs() < threshold).to(value.dtype)

    def prox(self, center: Tensor, curvature: Tensor) -> Tensor:
        slope, threshold = self._shaped.get(center.dim()) or self._along(center)
        shift = slope / curvature
        near = center.sign() * torch.nn.functional.relu(center.abs() - shift)
        far = torch.where(
            shift < 2 * threshold, threshold + shift / 2, (2 * shift * threshold).sqrt()
        )  # shrinking pays below
        return torch.where(center.abs() > far, center, near)


@dataclass(frozen=True)
class SCAD:
    r"""Smoothly clipped absolute deviation, times a multiplier.

    Source: Fan and Li (2001), doi:10.1198/016214501753382273.

    With :math:`u = |b|`, the derivative is :math:`m\,\omega` for :math:`u \le \omega`, :math:`m
    (a\omega - u)_+ / (a - 1)` beyond; the value is the constant :math:`m (a+1) \omega^2 / 2` for
    :math:`u \ge a\omega`.

    Args:
        knot: :math:`\omega`, end of the linear part.
        multiplier: :math:`m`, on the scale of the total log-likelihood.
        shape: :math:`a > 2`.

    Each may be a tensor (G,), one number a point of a grid; what is penalised then has G as its
    leading dim.

    Raises:
        ValueError: if an argument is not positive and finite, or shape is not above 2.
    """

    knot: Constant
    multiplier: Constant
    shape: Constant = 3.7

    def __post_init__(self) -> None:
        plain_fields(self, tensors=False)
        _positive("SCAD", "knot", self.knot)
        _positive("SCAD", "multiplier", self.multiplier)
        if not isinstance(self.shape, Tensor):
            check_number("SCAD", "shape", self.shape, "be finite and exceed 2", above=2)
        elif self.shape.is_complex() or not bool(
            (torch.isfinite(self.shape) & (self.shape > 2)).all()
        ):
            raise ValueError(f"SCAD: shape must be finite and exceed 2, got {self.shape!r}")

    @classmethod
    def matching(cls, penalty: TruncatedLasso, shape: float = 3.7) -> SCAD:
        """SCAD flat from the same threshold at the same level as a truncated Lasso."""
        knot = penalty.threshold / shape
        level = penalty.slope_at_zero * penalty.threshold
        return cls(knot, level / ((shape + 1) * knot**2 / 2), shape)

    def convex(self) -> TruncatedLasso:
        return TruncatedLasso(self.multiplier * self.knot, FAR)

    @property
    def threshold(self) -> Constant:
        return self.shape * self.knot

    @property
    def knots(self) -> tuple[Constant, ...]:
        return (self.knot, self.threshold)

    def _constants(self, value: Tensor) -> tuple[Any, Any, Any, Any]:
        """Knot, multiplier, shape and threshold, along the leading dim of ``value``."""
        own = (self.knot, self.multiplier, self.shape, self.threshold)
        knot, multiplier, shape, threshold = (_along(constant, value) for constant in own)
        return knot, multiplier, shape, threshold

    def __call__(self, value: Tensor) -> Tensor:
        size = value.abs()
        knot, multiplier, shape, threshold = self._constants(value)
        middle = (2 * shape * knot * size - size.square() - knot**2) / (2 * (shape - 1))
        inner = torch.where(size <= threshold, middle, (shape + 1) * knot**2 / 2)
        return multiplier * torch.where(size <= knot, knot * size, inner)

    def slope(self, value: Tensor) -> Tensor:
        size = value.abs()
        knot, multiplier, shape, threshold = self._constants(value)
        outer = (threshold - size).clamp(min=0) / (shape - 1)
        return multiplier * torch.where(size <= knot, knot, outer)

    def prox(self, center: Tensor, curvature: Tensor) -> Tensor:
        size = center.abs()
        knot, m, shape, threshold = self._constants(center)
        inner = (size - m * knot / curvature).clamp(min=0.0).clamp(max=knot)
        bend = curvature - m / (shape - 1)  # the middle piece is concave where this is negative
        middle = (curvature * size - m * threshold / (shape - 1)) / bend
        middle = torch.where(bend > 0, middle, size).clamp(min=knot).clamp(max=threshold)
        outer = size.clamp(min=threshold)
        return _best(self, center, curvature, (inner, middle, outer))


@dataclass(frozen=True)
class Ridge:
    r"""Ridge penalty :math:`b^2 / (2 s^2)`: a normal prior of loadings.

    Source: Hoerl and Kennard (1970), doi:10.1080/00401706.1970.10488634.

    It sets no loading to zero, and so says nothing of the graph. It is for posteriors: where few
    rows leave loadings undetermined, a flat prior makes long ridges that are slow to sample.

    Args:
        scale: :math:`s`, the standard deviation; 2 to 3 is weak on the scale of log-odds and log
            means. It may be a tensor (G,), one number a point of a grid; what is penalised then has
            G as its leading dim.

    Raises:
        ValueError: if it is not a positive finite number.
    """

    scale: Constant

    def __post_init__(self) -> None:
        plain_fields(self, tensors=False)
        _positive("Ridge", "scale", self.scale)

    def convex(self) -> Ridge:
        return self

    @property
    def threshold(self) -> float:
        """Threshold zero: only a loading of exactly zero is an absent edge."""
        return 0.0

    @property
    def knots(self) -> tuple[Constant, ...]:
        """Knots for quadrature near the mass; the formula is one everywhere."""
        return (self.scale, 3 * self.scale, 6 * self.scale, 10 * self.scale, 20 * self.scale)

    def __call__(self, value: Tensor) -> Tensor:
        return (value / _along(self.scale, value)).square() / 2

    def slope(self, value: Tensor) -> Tensor:
        return value.abs() / _along(self.scale, value) ** 2

    def prox(self, center: Tensor, curvature: Tensor) -> Tensor:
        return center * curvature / (curvature + 1 / _along(self.scale, center) ** 2)


@dataclass(frozen=True)
class ToBeChosen:
    """Penalty left open: a plain ``fit`` chooses one, and with it the graph.

    As a Pyro program the model is then the one without a penalty, and a method that is named
    (``fit(model, data, EM())``) fits that.
    """


def _best(penalty: Penalty, center: Tensor, curvature: Tensor, sizes: tuple[Tensor, ...]) -> Tensor:
    """Best of several stationary sizes, one a piece of the penalty, with center's sign."""
    objective = torch.stack(
        [curvature / 2 * (size - center.abs()).square() + penalty(size) for size in sizes]
    )
    best = torch.stack(sizes).gather(0, objective.argmin(0, keepdim=True)).squeeze(0)
    return best * torch.where(center < 0, -1.0, 1.0).to(best.dtype)


class PenaltyPrior(TorchDistribution):
    """Prior density proportional to :math:`e^{-p(b)}` on [-bound, bound].

    Or to :math:`e^{-p(b) - b^2 / (2 s^2)}` on the whole line.

    Without an interval or a normal factor the density is improper, for the penalties here are flat
    far from zero. The normaliser is computed by Gauss-Legendre quadrature between the knots (exact
    to rounding for these smooth pieces).

    Args:
        penalty: the penalty p.
        bound: half the length of the interval; a tensor of the batch shape where it differs by
            entry. None with a scale.
        scale: s, in the place of an interval; a tensor of the batch shape where it differs by
            entry.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self,
        penalty: Penalty,
        bound: float | Tensor | None,
        batch_shape: torch.Size = torch.Size(),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
        scale: float | Tensor | None = None,
    ) -> None:
        self.penalty, self.bound, self.scale = penalty, bound, scale
        self.dtype, self.device = dtype, torch.device(device)
        own = bound if scale is None else scale
        self.log_normalizer: float | Tensor
        if isinstance(own, Tensor):
            widths, place = own.unique(return_inverse=True)
            self.log_normalizer = own.new_tensor(
                [_log_mass(penalty, w, scale is not None) for w in widths.tolist()]
            )[place]
        else:
            if own is None:
                raise ValueError("PenaltyPrior: a bound or a scale was expected, got neither")
            _positive("PenaltyPrior", "bound" if scale is None else "scale", own)
            self.log_normalizer = _log_mass(penalty, own, scale is not None)
        super().__init__(batch_shape, torch.Size(), validate_args=False)

    def expand(
        self, batch_shape: torch.Size, _instance: Distribution | None = None
    ) -> PenaltyPrior:
        return PenaltyPrior(
            self.penalty, self.bound, torch.Size(batch_shape), self.dtype, self.device, self.scale
        )

    @property
    def support(self) -> constraints.Constraint:
        if self.bound is None:
            return constraints.real
        return constraints.interval(-self.bound, self.bound)

    def log_prob(self, value: Tensor) -> Tensor:
        log_density = -self.penalty(value) - self.log_normalizer
        if self.scale is not None:
            log_density = log_density - (value / self.scale).square() / 2
        elif self.bound is not None:
            log_density = torch.where(value.abs() <= self.bound, log_density, -torch.inf)
        return log_density.expand(broadcast_shapes(value.shape, self.batch_shape))

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        """Inverse-CDF draws on a grid of 4,000 points a piece, interpolated linearly."""
        shape, normal = torch.Size(sample_shape) + self.batch_shape, self.scale is not None
        own = self.scale if normal else self.bound
        if isinstance(own, Tensor):
            out = torch.zeros(shape, dtype=self.dtype, device=self.device)
            for width in own.unique().tolist():
                bound, scale = (None, width) if normal else (width, None)
                drawn = PenaltyPrior(
                    self.penalty, bound, shape, self.dtype, self.device, scale
                ).sample()
                out = torch.where(own == width, drawn, out)
            return out
        edges = _pieces(self.penalty, float(own or 0.0), normal)
        grid = torch.cat(
            [
                torch.linspace(a, b, 4000, dtype=torch.float64)
                for a, b in zip(edges, edges[1:], strict=False)
            ]
        )
        density = torch.exp(-_energy(self.penalty, grid, self.scale))
        mass = torch.cat([grid.new_zeros(1), torch.cumulative_trapezoid(density, grid)])
        position = torch.rand(shape, dtype=self.dtype, device=self.device).cpu().numpy()
        sign = torch.where(torch.rand(shape, dtype=self.dtype, device=self.device) < 0.5, -1.0, 1.0)
        size = np.interp(position, (mass / mass[-1]).numpy(), grid.numpy())
        return sign.to(self.dtype) * torch.as_tensor(size, dtype=self.dtype, device=self.device)


def _energy(penalty: Penalty, size: Tensor, scale: float | Tensor | None) -> Tensor:
    return penalty(size) if scale is None else penalty(size) + (size / scale).square() / 2


def _pieces(penalty: Penalty, width: float, normal: bool) -> list[float]:
    """Ends of the smooth pieces of the density's right half, for quadrature."""
    end = 12 * width if normal else width
    inner = {float(k) for k in penalty.knots} | ({width, 3 * width, 6 * width} if normal else set())
    return [0.0, *sorted(k for k in inner if 0 < k < end), end]


@lru_cache(maxsize=256)
def _log_mass(penalty: Penalty, width: float, normal: bool = False) -> float:
    """Log of the normalising integral; ``width`` is the bound, or the normal factor's scale."""
    nodes, weights = (torch.from_numpy(v) for v in np.polynomial.legendre.leggauss(64))
    edges, scale = _pieces(penalty, width, normal), width if normal else None
    total = 0.0
    for low, high in zip(edges, edges[1:], strict=False):
        half = (high - low) / 2
        total += half * float(
            (weights * torch.exp(-_energy(penalty, low + half * (nodes + 1), scale))).sum()
        )
    return math.log(2 * total)
