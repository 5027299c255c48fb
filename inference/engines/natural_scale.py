r"""Scales of extrapolation: every estimate as a vector of coordinates, by its support.

Probabilities become log-odds, probability vectors logs of their shares, positive numbers logs,
positive definite matrices the Cholesky factor with the log of its diagonal; all else stays as it
is. A coordinate that comes back unchanged from the image of an M-step is that image, bit for bit:
what the M-step put on a bound or set to zero is moved by an M-step alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import biject_to, constraints

from inference.programs.program import Params
from ppl_models.parts.covariances import InFamily
from ppl_models.parts.distributions import OnGraph
from ppl_models.parts.monotone import Rising
from ppl_models.parts.precisions import PositiveDefinite
from ppl_models.parts.probability_tables import Shares

Array = NDArray[np.float64]

LEAST = 1e-12  # share or probability whose log is taken
FAR = 2.0  # log-odds, or logs of shares, that a coordinate may lie from the image of the M-step
FAR_LOGS = 5.0  # the same of logs
OUTER = 3.0  # log-odds beyond which a chance counts as near its limit
OUTER_SHARE = 2.0  # logs below an even share beyond which a share does
# log-odds beyond which only M-steps go, some of which take no chance within 1e-6 of its limits
LIMIT = 13.5
BOX = 15.0  # half the width of an interval of predictors on the scale of log-odds
HALVINGS = 4  # of the way from the image, to stay inside a support that no coordinates keep


class Coordinates(Protocol):
    """Coordinates of one site: all values (A, ...), all coordinates (A, p)."""

    far: float  # how far a coordinate may lie from the image of the M-step
    limit: float  # beyond which, on either side, only M-steps bring a coordinate

    def inner(self, like: Tensor) -> tuple[float, float]:
        """Inner range of coordinates of a value (1, ...), not near its limits."""
        return -torch.inf, torch.inf

    def of(self, value: Tensor) -> Tensor: ...

    def back(self, z: Tensor, image: Tensor, same: Tensor | None) -> Tensor:
        """Value at coordinates z, the image's where they are the ``same``, (A, p); None: none."""
        ...

    def outside(self, value: Tensor) -> Tensor | None:
        """Restarts with values that rounding took out of the support, (A,); None if none can be."""
        return None

    def weight(self, z: Tensor) -> Tensor | None:
        """Weight of a step in a coordinate, 0 to 1: root of the information of one observation.

        None where it is 1 everywhere.
        """
        return None


def _flat(value: Tensor) -> Tensor:
    """Flatten values (A, ...) to (A, p)."""
    return value.reshape(len(value), -1)


def restart_wise(mask: Tensor, like: Tensor) -> Tensor:
    """Broadcast a mask of restarts (A,) against values (A, ...)."""
    return mask.reshape((-1,) + (1,) * (like.dim() - 1))


def _kept(value: Tensor, image: Tensor, same: Tensor | None) -> Tensor:
    value = value.to(image.dtype).reshape(image.shape)
    return value if same is None else torch.where(same.reshape(image.shape), image, value)


@dataclass(frozen=True)
class _LogOdds(Coordinates):
    far: float = FAR
    limit: float = LIMIT

    def inner(self, like: Tensor) -> tuple[float, float]:
        return -OUTER, OUTER

    def of(self, value: Tensor) -> Tensor:
        return value.double().clamp(LEAST, 1 - LEAST).logit().reshape(len(value), -1)

    def back(self, z: Tensor, image: Tensor, same: Tensor | None) -> Tensor:
        return _kept(z.sigmoid(), image, same)

    def weight(self, z: Tensor) -> Tensor:
        return (z / 2).cosh().reciprocal()


@dataclass(frozen=True)
class _LogShares(Coordinates):
    support: constraints.Constraint
    far: float = FAR
    limit: float = torch.inf

    def inner(self, like: Tensor) -> tuple[float, float]:
        return -math.log(like.shape[-1]) - OUTER_SHARE, torch.inf

    def of(self, value: Tensor) -> Tensor:
        return value.double().clamp(min=LEAST).log().reshape(len(value), -1)

    def back(self, z: Tensor, image: Tensor, same: Tensor | None) -> Tensor:
        value = torch.where(_flat(image) == 0, 0.0, z.exp()).to(image.dtype).reshape(image.shape)
        value = (
            self.support.scaled(value)
            if isinstance(self.support, Shares)
            else value / value.sum(-1, keepdim=True)
        )
        return _unless_all_same(value, image, same)

    def outside(self, value: Tensor) -> Tensor | None:
        is_close = value.dtype == torch.float64 and _is_finite(value)
        return None if is_close else _outside(self.support, value)

    def weight(self, z: Tensor) -> Tensor:
        return (z / 2).exp()


def _outside(support: constraints.Constraint, value: Tensor) -> Tensor:
    return ~_flat(support.check(value)).all(1)


def _is_finite(value: Tensor) -> bool:
    """Tell whether the sum of all entries is finite, faster than looking at each."""
    return math.isfinite(value.sum())


@dataclass(frozen=True)
class _Logs(Coordinates):
    support: constraints.Constraint
    origin: Tensor
    low: Tensor
    high: Tensor
    far: float = FAR_LOGS
    limit: float = torch.inf

    def of(self, value: Tensor) -> Tensor:
        logs = (value - self.origin).double().clamp(min=1e-300).log()
        return logs.reshape(len(value), -1)

    def back(self, z: Tensor, image: Tensor, same: Tensor | None) -> Tensor:
        value = (z.exp().reshape(image.shape).to(image.dtype) + self.origin).clamp(
            self.low, self.high
        )
        return _kept(value, image, same)

    def outside(self, value: Tensor) -> Tensor | None:
        return _outside(self.support, value)


@dataclass(frozen=True)
class _Plain(Coordinates):
    """Identity coordinates of values on the whole line.

    Zeros are made and unmade by M-steps alone: where a site has some, nothing else changes its
    sign.
    """

    support: constraints.Constraint
    low: Tensor | None = None
    high: Tensor | None = None
    far: float = torch.inf
    limit: float = torch.inf

    def of(self, value: Tensor) -> Tensor:
        return value.double().reshape(len(value), -1)

    def back(self, z: Tensor, image: Tensor, same: Tensor | None) -> Tensor:
        value = z.to(image.dtype).reshape(image.shape)
        if self.low is not None:
            value = value.clamp(self.low, self.high)
        zeros = image == 0
        if bool(zeros.any()):
            has_zeros = restart_wise(zeros.reshape(len(image), -1).any(1), image)
            value = torch.where(has_zeros & (value.sign() != image.sign()), image, value)
        value = _kept(value, image, same)
        if isinstance(self.support, constraints._Real | constraints._Interval):
            return value  # inside its interval by now
        for share in (*[0.5] * HALVINGS, 0.0):
            outside = _outside(self.support, value)
            if not bool(outside.any()):
                break
            value = torch.where(
                restart_wise(outside, image), torch.lerp(image, value, share), value
            )
        return value

    def weight(self, z: Tensor) -> Tensor | None:
        if math.isinf(self.far):
            return None  # without an interval
        # that of log-odds where the interval is BOX wide
        return (z * (FAR / (2 * self.far))).cosh().reciprocal()


@dataclass(frozen=True)
class _Free(Coordinates):
    support: constraints.Constraint
    far: float = FAR_LOGS
    limit: float = torch.inf

    def of(self, value: Tensor) -> Tensor:
        return _flat(biject_to(self.support).inv(value).double())

    def back(self, z: Tensor, image: Tensor, same: Tensor | None) -> Tensor:
        transform = biject_to(self.support)
        value = transform(z.to(image.dtype).reshape(transform.inverse_shape(image.shape)))
        return _unless_all_same(value, image, same)

    def outside(self, value: Tensor) -> Tensor | None:
        return _outside(self.support, value)


@dataclass(frozen=True)
class _LogCholesky(Coordinates):
    """Lower triangles of the Cholesky factors of positive definite matrices, diagonals as logs."""

    support: constraints.Constraint
    places: Tensor  # of the lower triangle, among all entries of a matrix
    on_diagonal: Tensor  # which of these are on the diagonal, bool
    far: float = FAR_LOGS
    limit: float = torch.inf

    def of(self, value: Tensor) -> Tensor:
        lower = torch.linalg.cholesky(value).double().flatten(-2)[..., self.places]
        return _flat(torch.where(self.on_diagonal.to(lower.device), lower.log(), lower))

    def back(self, z: Tensor, image: Tensor, same: Tensor | None) -> Tensor:
        z = z.to(image.dtype).reshape(*image.shape[:-2], -1)
        factor = image.new_zeros(image.shape).flatten(-2)
        factor[..., self.places] = torch.where(self.on_diagonal.to(z.device), z.exp(), z)
        factor = factor.reshape(image.shape)
        return _unless_all_same(factor @ factor.mT, image, same)

    def outside(self, value: Tensor) -> Tensor | None:
        if not _is_finite(value):
            return _outside(self.support, value)
        return ~_flat(torch.linalg.cholesky_ex(value).info == 0).all(1)


@dataclass(frozen=True)
class _Held(Coordinates):
    """No coordinates: the value moves by M-steps alone."""

    far: float = torch.inf
    limit: float = torch.inf

    def of(self, value: Tensor) -> Tensor:
        return value.new_zeros(len(value), 0, dtype=torch.float64)

    def back(self, z: Tensor, image: Tensor, same: Tensor | None) -> Tensor:
        return image


def _unless_all_same(value: Tensor, image: Tensor, same: Tensor | None) -> Tensor:
    """The image in restarts whose coordinates are all the same."""
    if same is None:
        return value
    done = same.all(1)
    return torch.where(restart_wise(done, image), image, value) if bool(done.any()) else value


def _coordinates(support: constraints.Constraint) -> Coordinates:
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    if isinstance(support, constraints._Simplex | Shares):
        return _LogShares(support)
    if isinstance(support, constraints._GreaterThan | constraints._GreaterThanEq):
        low = torch.as_tensor(support.lower_bound)
        return _Logs(support, low, low, torch.full_like(low, torch.inf))
    if isinstance(support, InFamily):  # whose axes may change places and signs
        return _Held()
    if isinstance(support, PositiveDefinite):
        first, second = torch.tril_indices(support.size, support.size)
        return _LogCholesky(support, first * support.size + second, first == second)
    entries = support.base if isinstance(support, OnGraph | Rising) else support
    if isinstance(entries, constraints._Interval):
        low, high = torch.as_tensor(entries.lower_bound), torch.as_tensor(entries.upper_bound)
        if bool((low < 0).any()) or entries is not support:
            return _Plain(support, low, high, FAR * float((high - low).min()) / (2 * BOX))
        is_chance = bool(((low == 0) & (high == 1)).all())
        return _LogOdds() if is_chance else _Logs(support, torch.zeros_like(low), low, high)
    return _Plain(support) if isinstance(entries, constraints._Real) else _Free(support)


class NaturalScale:
    """Natural scale of estimates: each restart as a vector of coordinates.

    Args:
        supports: by site. What stands beside these sites among the parameters is moved by M-steps
            alone.
        like: parameters of this model, (R, ...).
    """

    def __init__(self, supports: Mapping[str, constraints.Constraint], like: Params) -> None:
        self.sites: dict[str, tuple[Coordinates, slice]] = {}
        self.supports = supports
        first, limits = 0, [torch.zeros(4, 0, dtype=torch.float64)]
        for name, support in supports.items():
            value = like[name]
            if value.is_floating_point() and value.numel():
                coordinates = _coordinates(support)
                size = coordinates.of(value[:1]).shape[1]
                self.sites[name] = coordinates, slice(first, first + size)
                limits.append(
                    torch.tensor(
                        [coordinates.far, coordinates.limit, *coordinates.inner(value[:1])],
                        dtype=torch.float64,
                    )
                    .unsqueeze(1)
                    .expand(4, size)
                )
                first += size
        self.size = first
        self._far, self._limit, self._low, self._high = torch.cat(limits, 1).numpy()

    def of(self, params: Params) -> Tensor:
        """Coordinates of parameters, (A, P)."""
        return torch.cat([own.of(params[name]) for name, (own, _) in self.sites.items()], 1)

    def back(self, z: Tensor, image: Params, image_z: Tensor) -> Params:
        """Parameters at coordinates z (A, P); a site that leaves its support is the image's."""
        same, new = z == image_z, dict(image)
        is_apart = not bool(same.any())
        for name, (own, part) in self.sites.items():
            value = own.back(z[:, part], image[name], None if is_apart else same[:, part])
            outside = own.outside(value)  # by rounding, in the dtype of the image
            new[name] = (
                value
                if outside is None or not bool(outside.any())
                else torch.where(restart_wise(outside, value), image[name], value)
            )
        return new

    def near(self, z: Array, image: Array, inner: Array) -> Array:
        """Coordinates no farther from the ``image`` than can be trusted, (A, P).

        Args:
            z, image: (A, P).
            inner: restarts in which nothing may come nearer to a limit, where EM hardly moves any
                more, than an M-step brought it, bool (A,).
        """
        z = image + (z - image).clip(-self._far, self._far)
        low, high = (
            np.where(inner[:, None], near, limit)
            for near, limit in ((self._low, -self._limit), (self._high, self._limit))
        )
        return np.asarray(
            np.maximum(np.minimum(z, np.maximum(image, high)), np.minimum(image, low))
        )

    def weights(self, z: Tensor) -> Tensor:
        """Weights of a step in each coordinate, (A, P)."""
        weights = torch.ones_like(z)
        for own, part in self.sites.values():
            weight = own.weight(z[:, part])
            if weight is not None:
                weights[:, part] = weight
        return weights

    def zeros(self, params: Params) -> Tensor:
        """Mask of entries that are exactly zero, (A, entries)."""
        found = [
            _flat(params[name] == 0)
            for name, (own, _) in self.sites.items()
            if isinstance(own, _Plain)
        ]
        return (
            torch.cat(found, 1)
            if found
            else torch.zeros(len(next(iter(params.values()))), 0, dtype=torch.bool)
        )
