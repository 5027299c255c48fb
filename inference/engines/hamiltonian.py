r"""The no-U-turn sampler as a coroutine: it asks for densities, whoever runs it answers.

A chain yields the point where it next needs :math:`\ell(z)` and its gradient, and is sent both.
Several chains thus run as one batch, none waiting for another's longer trajectory, and the
algorithm below reads as if there were one.

A trajectory of :math:`H(z, p) = -\ell(z) + \frac12 p^\top \Sigma p` (inverse mass matrix
:math:`\Sigma`) is doubled until it turns back on itself, and a point is drawn from it with
probability proportional to :math:`e^{-H}`.

Source: M. D. Hoffman and A. Gelman (2014), The No-U-Turn Sampler, JMLR 15; multinomial draws and
the turning criterion :math:`\rho^\top \Sigma p`, with :math:`\rho` the sum of momenta, by M.
Betancourt (2017), arXiv:1701.02434.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy import ndarray as Array

DIVERGENT = 1000.0  # an energy error that no accurate trajectory has
Ask = Generator[Array, "tuple[float, Array]", object]


@dataclass(frozen=True, eq=False)
class Metric:
    """Inverse mass matrix of a Hamiltonian sampler.

    Args:
        covariance: (P, P), or its diagonal (P,).
    """

    covariance: Array

    def __post_init__(self) -> None:
        dense = self.covariance.ndim == 2
        object.__setattr__(
            self,
            "_factor",
            np.linalg.cholesky(self.covariance) if dense else np.sqrt(self.covariance),
        )

    def velocity(self, momentum: Array) -> Array:
        """Covariance times momentum, (P,)."""
        return cast(
            "Array",
            self.covariance @ momentum if self.covariance.ndim == 2 else self.covariance * momentum,
        )

    def draw(self, rng: np.random.Generator) -> Array:
        """Draw a momentum with precision ``covariance``, (P,)."""
        from scipy.linalg import solve_triangular

        noise = rng.standard_normal(len(self.covariance))
        factor: Array = self._factor  # type: ignore[attr-defined]
        if self.covariance.ndim == 2:
            out: Array = solve_triangular(factor, noise, lower=True, trans=1, check_finite=False)
            return out
        return cast("Array", noise / factor)


@dataclass(frozen=True, eq=False)
class _Point:
    """Phase-space point with its density and gradient."""

    position: Array
    momentum: Array
    log_density: float
    gradient: Array
    velocity: Array

    @property
    def energy(self) -> float:
        return float(0.5 * self.momentum @ self.velocity - self.log_density)


@dataclass(frozen=True, eq=False)
class _Tree:
    """Trajectory tree: its ends in time, a draw from it, and whether it must stop."""

    left: _Point
    right: _Point
    chosen: _Point
    log_weight: float
    momentum_sum: Array
    num_steps: int
    acceptance: float  # summed over the steps
    turning: bool
    diverging: bool

    @property
    def stop(self) -> bool:
        return self.turning or self.diverging


@dataclass(frozen=True, eq=False)
class Transition:
    """Result of one transition of the chain.

    Args:
        position: (P,); log_density, gradient: there.
        acceptance: mean Metropolis acceptance over the trajectory; num_steps: leapfrog steps;
            depth: doublings.
        diverging: whether an energy error was so large that the trajectory was given up; energy: H
            at the point drawn.
    """

    position: Array
    log_density: float
    gradient: Array
    acceptance: float
    num_steps: int
    depth: int
    diverging: bool
    energy: float


def transition(
    position: Array,
    log_density: float,
    gradient: Array,
    step: float,
    metric: Metric,
    rng: np.random.Generator,
    max_depth: int,
) -> Generator[Array, tuple[float, Array], Transition]:
    """One no-U-turn transition from a point whose density and gradient are known."""
    momentum = metric.draw(rng)
    origin = _Point(position, momentum, log_density, gradient, metric.velocity(momentum))
    tree = _Tree(origin, origin, origin, 0.0, momentum, 0, 0.0, False, False)
    depth = 0
    while depth < max_depth and not tree.stop:
        forward = rng.random() < 0.5
        edge = tree.right if forward else tree.left
        new = yield from _grow(depth, edge, step if forward else -step, metric, rng, origin.energy)
        # the new half is favoured: its draw replaces the old one with probability min(1, weight /
        # weight)
        tree = _joined(tree, new, forward, rng, favour_new=True)
        depth += 1
    point = tree.chosen
    return Transition(
        point.position,
        point.log_density,
        point.gradient,
        tree.acceptance / max(tree.num_steps, 1),
        tree.num_steps,
        depth,
        tree.diverging,
        point.energy,
    )


def _grow(
    depth: int, edge: _Point, step: float, metric: Metric, rng: np.random.Generator, energy: float
) -> Generator[Array, tuple[float, Array], _Tree]:
    """Grow a tree of 2^depth steps beyond an edge, until it turns or diverges."""
    if depth == 0:
        point = yield from _leapfrog(edge, step, metric)
        log_weight = energy - point.energy
        log_weight = log_weight if np.isfinite(log_weight) else -np.inf
        diverging = log_weight < -DIVERGENT
        acceptance = float(np.exp(min(0.0, log_weight)))
        return _Tree(
            point, point, point, log_weight, point.momentum, 1, acceptance, False, diverging
        )
    first = yield from _grow(depth - 1, edge, step, metric, rng, energy)
    if first.stop:
        return first
    second = yield from _grow(
        depth - 1, first.right if step > 0 else first.left, step, metric, rng, energy
    )
    return _joined(first, second, step > 0, rng, favour_new=False)


def _leapfrog(
    start: _Point, step: float, metric: Metric
) -> Generator[Array, tuple[float, Array], _Point]:
    momentum = start.momentum + 0.5 * step * start.gradient
    position = start.position + step * metric.velocity(momentum)
    log_density, gradient = yield position
    momentum = momentum + 0.5 * step * gradient
    return _Point(position, momentum, log_density, gradient, metric.velocity(momentum))


def _joined(
    old: _Tree, new: _Tree, forward: bool, rng: np.random.Generator, favour_new: bool
) -> _Tree:
    left, right = (old, new) if forward else (new, old)
    log_weight = float(np.logaddexp(old.log_weight, new.log_weight))
    steps, acceptance = old.num_steps + new.num_steps, old.acceptance + new.acceptance
    if new.stop:  # an invalid half gives no draw
        return replace(
            old,
            num_steps=steps,
            acceptance=acceptance,
            turning=new.turning,
            diverging=new.diverging,
            log_weight=log_weight,
        )
    chance = new.log_weight - (old.log_weight if favour_new else log_weight)
    chosen = new.chosen if np.log(rng.random()) < chance else old.chosen
    total = old.momentum_sum + new.momentum_sum
    turning = (
        _turns(total, left.left, right.right)
        or _turns(
            left.momentum_sum + right.left.momentum, left.left, right.left
        )  # between the halves
        or _turns(right.momentum_sum + left.right.momentum, left.right, right.right)
    )
    return _Tree(
        left.left, right.right, chosen, log_weight, total, steps, acceptance, turning, False
    )


def _turns(momentum_sum: Array, left: _Point, right: _Point) -> bool:
    return bool(momentum_sum @ left.velocity <= 0 or momentum_sum @ right.velocity <= 0)


# ---------------------------------------------------------------- step size


@dataclass(frozen=True)
class DualAveraging:
    """Dual averaging of the step size (Hoffman and Gelman 2014, section 3.2).

    Args:
        center: log of ten times the first step size.
        log_step, log_mean: current and averaged; error: averaged; count: updates so far.
    """

    center: float
    log_step: float
    log_mean: float = 0.0
    error: float = 0.0
    count: int = 0

    @classmethod
    def begin(cls, step: float) -> DualAveraging:
        return cls(float(np.log(10 * step)), float(np.log(step)))

    def updated(self, acceptance: float, target: float) -> DualAveraging:
        count = self.count + 1
        rate = 1 / (count + 10)
        error = (1 - rate) * self.error + rate * (target - acceptance)
        log_step = self.center - error * np.sqrt(count) / 0.05
        weight = count**-0.75
        return DualAveraging(
            self.center,
            float(log_step),
            float(weight * log_step + (1 - weight) * self.log_mean),
            float(error),
            count,
        )


def first_step_size(
    position: Array,
    log_density: float,
    gradient: Array,
    step: float,
    metric: Metric,
    rng: np.random.Generator,
) -> Generator[Array, tuple[float, Array], float]:
    """Initial step size, doubled or halved until the acceptance crosses 0.8."""
    direction = 0
    for _ in range(50):
        momentum = metric.draw(rng)
        start = _Point(position, momentum, log_density, gradient, metric.velocity(momentum))
        end = yield from _leapfrog(start, step, metric)
        change = start.energy - end.energy
        now = 1 if np.isfinite(change) and change > np.log(0.8) else -1
        if direction not in (0, now):
            break
        direction = now
        step *= 2.0**now
    return step
