r"""Scales of extrapolation: every estimate as a vector of coordinates, by its support.

Probabilities become log-odds, probability vectors logs of their shares, positive numbers logs,
positive definite matrices the Cholesky factor with the log of its diagonal; all else stays as it
is. A coordinate that comes back unchanged from the image of an M-step is that image, bit for bit:
what the M-step put on a bound or set to zero is moved by an M-step alone.

Estimates are small and the way to coordinates is gone several times a step, so that it is worked
out in NumPy, whose operations cost a third of torch's there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

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
Mask = NDArray[np.bool_]

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
    """Coordinates of one site: all values (A, ...), all coordinates (A, p), as arrays."""

    far: float  # how far a coordinate may lie from the image of the M-step
    limit: float  # beyond which, on either side, only M-steps bring a coordinate

    def inner(self, like: Array) -> tuple[float, float]:
        """Inner range of coordinates of a value (1, ...), not near its limits."""
        return -math.inf, math.inf

    def of(self, value: Array) -> Array: ...

    def back(self, z: Array, image: Array, same: Mask | None) -> Array:
        """Value at coordinates z, the image's where they are the ``same``, (A, p); None: none."""
        ...

    def outside(self, value: Tensor) -> Tensor | None:
        """Restarts with values that rounding took out of the support, (A,); None if none can be."""
        return None

    def weight(self, z: Array) -> Array | None:
        """Weight of a step in a coordinate, 0 to 1: root of the information of one observation.

        None where it is 1 everywhere.
        """
        return None


def _double(value: Array) -> Array:
    return value.astype(np.float64, copy=False)


def _flat(value: Array) -> Array:
    """Flatten values (A, ...) to (A, p)."""
    return value.reshape(len(value), -1)


def restart_wise(mask: Any, like: Any) -> Any:
    """Broadcast a mask of restarts (A,) against values (A, ...), arrays or tensors."""
    return mask.reshape((-1,) + (1,) * (like.ndim - 1))


def _kept(value: Array, image: Array, same: Mask | None) -> Array:
    value = value.astype(image.dtype, copy=False).reshape(image.shape)
    return value if same is None else np.where(same.reshape(image.shape), image, value)


@dataclass(frozen=True)
class _LogOdds(Coordinates):
    far: float = FAR
    limit: float = LIMIT

    def inner(self, like: Array) -> tuple[float, float]:
        return -OUTER, OUTER

    def of(self, value: Array) -> Array:
        chance = np.minimum(np.maximum(_double(value), LEAST), 1 - LEAST)
        return _flat(np.log(chance / (1 - chance)))

    def back(self, z: Array, image: Array, same: Mask | None) -> Array:
        return _kept(1 / (1 + np.exp(-z)), image, same)

    def weight(self, z: Array) -> Array:
        return np.asarray(1 / np.cosh(z / 2))


@dataclass(frozen=True)
class _LogShares(Coordinates):
    support: constraints.Constraint
    like: Tensor  # a value, on the device of the support
    far: float = FAR
    limit: float = math.inf

    def inner(self, like: Array) -> tuple[float, float]:
        return -math.log(like.shape[-1]) - OUTER_SHARE, math.inf

    def of(self, value: Array) -> Array:
        return _flat(np.log(np.maximum(_double(value), LEAST)))

    def back(self, z: Array, image: Array, same: Mask | None) -> Array:
        value = np.exp(z)
        value[_flat(image) == 0] = 0.0
        value = value.astype(image.dtype, copy=False).reshape(image.shape)
        value = (
            _array(self.support.scaled(torch.from_numpy(value).to(self.like)))
            if isinstance(self.support, Shares)
            else value / value.sum(-1, keepdims=True)
        )
        return _unless_all_same(value, image, same)

    def outside(self, value: Tensor) -> Tensor | None:
        is_close = value.dtype == torch.float64 and _is_finite(value)
        return None if is_close else _outside(self.support, value)

    def weight(self, z: Array) -> Array:
        return np.asarray(np.exp(z / 2))


def _outside(support: constraints.Constraint, value: Tensor) -> Tensor:
    inside: Tensor = support.check(value).reshape(len(value), -1).all(1)
    return ~inside


def _is_finite(value: Tensor) -> bool:
    """Tell whether the sum of all entries is finite, faster than looking at each."""
    return math.isfinite(value.sum())


@dataclass(frozen=True)
class _Logs(Coordinates):
    support: constraints.Constraint
    origin: Array
    low: Array
    high: Array
    far: float = FAR_LOGS
    limit: float = math.inf

    def of(self, value: Array) -> Array:
        return _flat(np.log(np.maximum(_double(value - self.origin), 1e-300)))

    def back(self, z: Array, image: Array, same: Mask | None) -> Array:
        value = np.exp(z).reshape(image.shape).astype(image.dtype, copy=False) + self.origin
        return _kept(np.minimum(np.maximum(value, self.low), self.high), image, same)

    def outside(self, value: Tensor) -> Tensor | None:
        return _outside(self.support, value)


@dataclass(frozen=True)
class _Plain(Coordinates):
    """Identity coordinates of values on the whole line.

    Zeros are made and unmade by M-steps alone: where a site has some, nothing else changes its
    sign.
    """

    support: constraints.Constraint
    like: Tensor
    low: Array | None = None
    high: Array | None = None
    far: float = math.inf
    limit: float = math.inf

    def of(self, value: Array) -> Array:
        return _flat(_double(value))

    def back(self, z: Array, image: Array, same: Mask | None) -> Array:
        value = z.astype(image.dtype, copy=False).reshape(image.shape)
        if self.low is not None and self.high is not None:
            value = np.minimum(np.maximum(value, self.low), self.high)
        zeros = _flat(image == 0)
        if zeros.any():
            has_zeros = restart_wise(zeros.any(1), image)
            value = np.where(has_zeros & (np.sign(value) != np.sign(image)), image, value)
        value = _kept(value, image, same)
        if isinstance(self.support, constraints._Real | constraints._Interval):
            return value  # inside its interval by now
        for share in (*[0.5] * HALVINGS, 0.0):
            outside = _array(_outside(self.support, torch.from_numpy(value).to(self.like)))
            if not outside.any():
                break
            value = np.where(restart_wise(outside, image), image + share * (value - image), value)
        return value

    def weight(self, z: Array) -> Array | None:
        if math.isinf(self.far):
            return None  # without an interval
        # that of log-odds where the interval is BOX wide
        return np.asarray(1 / np.cosh(z * (FAR / (2 * self.far))))


@dataclass(frozen=True)
class _Free(Coordinates):
    support: constraints.Constraint
    like: Tensor
    far: float = FAR_LOGS
    limit: float = math.inf

    def of(self, value: Array) -> Array:
        transform = biject_to(self.support)
        return _flat(_double(_array(transform.inv(torch.from_numpy(value).to(self.like)))))

    def back(self, z: Array, image: Array, same: Mask | None) -> Array:
        transform = biject_to(self.support)
        shape = transform.inverse_shape(image.shape)
        free = torch.from_numpy(z.astype(image.dtype).reshape(shape)).to(self.like)
        value = _array(transform(free))
        return _unless_all_same(value, image, same)

    def outside(self, value: Tensor) -> Tensor | None:
        return _outside(self.support, value)


@dataclass(frozen=True)
class _LogCholesky(Coordinates):
    """Lower triangles of the Cholesky factors of positive definite matrices, diagonals as logs."""

    support: constraints.Constraint
    places: NDArray[np.intp]  # of the lower triangle, among all entries of a matrix
    diagonal: NDArray[np.intp]  # of those on the diagonal, among the places
    far: float = FAR_LOGS
    limit: float = math.inf

    def of(self, value: Array) -> Array:
        factor = torch.linalg.cholesky(torch.from_numpy(value)).numpy()
        lower = _double(factor.reshape(*factor.shape[:-2], -1).take(self.places, -1))
        lower[..., self.diagonal] = np.log(lower[..., self.diagonal])
        return _flat(lower)

    def back(self, z: Array, image: Array, same: Mask | None) -> Array:
        z = z.astype(image.dtype).reshape(*image.shape[:-2], -1)
        z[..., self.diagonal] = np.exp(z[..., self.diagonal])
        factor = np.zeros((*z.shape[:-1], image.shape[-1] ** 2), image.dtype)
        factor[..., self.places] = z
        factor = factor.reshape(image.shape)
        return _unless_all_same(factor @ factor.swapaxes(-1, -2), image, same)

    def outside(self, value: Tensor) -> Tensor | None:
        if not _is_finite(value):
            return _outside(self.support, value)
        failed: Tensor = torch.linalg.cholesky_ex(value).info != 0
        return failed.reshape(len(value), -1).any(1)


@dataclass(frozen=True)
class _Held(Coordinates):
    """No coordinates: the value moves by M-steps alone."""

    far: float = math.inf
    limit: float = math.inf

    def of(self, value: Array) -> Array:
        return np.zeros((len(value), 0))

    def back(self, z: Array, image: Array, same: Mask | None) -> Array:
        return image


def _unless_all_same(value: Array, image: Array, same: Mask | None) -> Array:
    """The image in restarts whose coordinates are all the same."""
    if same is None:
        return value
    done = same.all(1)
    return np.where(restart_wise(done, image), image, value) if done.any() else value


def _coordinates(support: constraints.Constraint, like: Tensor) -> Coordinates:
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    if isinstance(support, constraints._Simplex | Shares):
        return _LogShares(support, like)
    if isinstance(support, constraints._GreaterThan | constraints._GreaterThanEq):
        low = _array(torch.as_tensor(support.lower_bound))
        return _Logs(support, low, low, np.full_like(low, math.inf))
    if isinstance(support, InFamily):  # whose axes may change places and signs
        return _Held()
    if isinstance(support, PositiveDefinite):
        first, second = np.tril_indices(support.size)
        return _LogCholesky(support, first * support.size + second, np.flatnonzero(first == second))
    entries = support.base if isinstance(support, OnGraph | Rising) else support
    if isinstance(entries, constraints._Interval):
        low, high = (
            _array(torch.as_tensor(end)) for end in (entries.lower_bound, entries.upper_bound)
        )
        if (low < 0).any() or entries is not support:
            return _Plain(support, like, low, high, FAR * float((high - low).min()) / (2 * BOX))
        is_chance = bool(((low == 0) & (high == 1)).all())
        return _LogOdds() if is_chance else _Logs(support, np.zeros_like(low), low, high)
    return _Plain(support, like) if isinstance(entries, constraints._Real) else _Free(support, like)


def _array(value: Tensor) -> Array:
    return np.asarray(value.detach().cpu().numpy())


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
        first, limits = 0, [np.zeros((4, 0))]
        for name, support in supports.items():
            value = like[name]
            if value.is_floating_point() and value.numel():
                coordinates, first_value = _coordinates(support, value[:1]), _array(value[:1])
                size = coordinates.of(first_value).shape[1]
                self.sites[name] = coordinates, slice(first, first + size)
                ends = coordinates.far, coordinates.limit, *coordinates.inner(first_value)
                limits.append(np.repeat(np.array(ends)[:, None], size, 1))
                first += size
        self.size = first
        self._far, self._limit, self._low, self._high = np.concatenate(limits, 1)

    def of(self, params: Params) -> Array:
        """Coordinates of parameters, (A, P)."""
        return np.concatenate(
            [own.of(_array(params[name])) for name, (own, _) in self.sites.items()], 1
        )

    def back(self, z: Array, image: Params, image_z: Array) -> Params:
        """Parameters at coordinates z (A, P); a site that leaves its support is the image's."""
        same, new = z == image_z, dict(image)
        is_apart = not same.any()
        with np.errstate(all="ignore"):  # numbers may be too large
            moved = {
                name: own.back(z[:, part], _array(image[name]), None if is_apart else same[:, part])
                for name, (own, part) in self.sites.items()
            }
        for name, (own, _) in self.sites.items():
            kept = image[name]
            value = torch.from_numpy(moved[name]).to(kept)
            outside = own.outside(value)  # by rounding, in the dtype of the image
            new[name] = (
                value
                if outside is None or not bool(outside.any())
                else torch.where(restart_wise(outside, value), kept, value)
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

    def weights(self, z: Array) -> Array:
        """Weights of a step in each coordinate, (A, P)."""
        weights = np.ones_like(z)
        for own, part in self.sites.values():
            weight = own.weight(z[:, part])
            if weight is not None:
                weights[:, part] = weight
        return weights

    def zeros(self, params: Params) -> Mask:
        """Mask of entries that are exactly zero, (A, entries)."""
        found = [
            _flat(_array(params[name]) == 0)
            for name, (own, _) in self.sites.items()
            if isinstance(own, _Plain)
        ]
        if not found:
            return np.zeros((len(next(iter(params.values()))), 0), np.bool_)
        return np.concatenate(found, 1)
