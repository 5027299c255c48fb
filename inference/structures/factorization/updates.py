"""Which updates a factorization has, their extrapolation, and activities for given signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.factorization.counts import Counts
from inference.structures.factorization.dispersed_counts import (
    DispersedCounts,
    LinearlyDispersedCounts,
)
from inference.structures.factorization.least_squares import LeastSquares

if TYPE_CHECKING:
    from ppl_models.descriptions.components import FactorizationDescription


MAX_STRETCH = 64.0  # of an extrapolated step
# of a row's value: a smaller gain may be the rounding of sums, which depends on the rows beside it
ROUNDING = 1e-12
CHECK_EVERY = 5  # accelerated steps between two looks at the objective's gain

Pair = tuple[Tensor, Tensor]


def accelerated(
    updates: Counts, step: Callable[[Tensor, Tensor], Pair], z: Tensor, phi: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Two EM steps and an extrapolation of their logarithms (Varadhan and Roland 2008), kept only
    where it gains.

    Args:
        value: the log-posterior at z, phi up to a constant, (R,).

    Returns:
        z, phi, and ``value`` there; three updates of cost.
    """
    first = step(z, phi)
    second = step(*first)
    pairs = [_logs(*triple) for triple in zip((z, phi), first, second, strict=True)]
    own = [(first[0] * move.square()).sum((-2, -1)) for move in pairs[0][1:]]
    found = updates.total(
        torch.cat([torch.stack(own, -1), first[0].sum(-2)], -1)
    )  # (R, 2 + K), of all rows
    weight = found[:, 2:].unsqueeze(-1) * first[1]  # in counts, as first[0]
    speed, turn = (
        found[:, i] + (weight * pairs[1][1 + i].square()).sum((-2, -1)) for i in range(2)
    )
    stretch = _stretch(speed, turn)[:, None, None]
    far = [_far(*logs, stretch) for logs in pairs]
    far = list(step(far[0], far[1] / far[1].sum(-1, keepdim=True)))
    gained = updates.varying(*far)
    better = gained > value  # False for NaN
    if bool(better.all()):
        return far[0], far[1], gained
    keep = better[:, None, None]
    return (
        torch.where(keep, far[0], second[0]),
        torch.where(keep, far[1], second[1]),
        torch.where(better, gained, updates.varying(*second)),
    )


def _logs(start: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logarithm of the start, the first move of it, and the change of moves."""
    a, b, c = (v.clamp(min=1e-300).log() for v in (start, first, second))
    return a, b - a, c - 2 * b + a


def _stretch(speed: Tensor, turn: Tensor) -> Tensor:
    return (speed / turn.clamp(min=1e-300)).sqrt().clamp(1.0, MAX_STRETCH)


def _far(log: Tensor, move: Tensor, change: Tensor, stretch: Tensor) -> Tensor:
    return (log + 2 * stretch * move + stretch.square() * change).clamp(max=60.0).exp()


def polished(
    updates: Counts | LeastSquares, phi: Tensor, num_steps: int = 500, tolerance: float = 1e-10
) -> Tensor:
    """Activities of every row for given signatures (K, J), from an even start, to convergence; (N,
    K).

    Rows are extrapolated and stop one by one, so that what a row gets does not depend on the rows
    beside it.
    """
    return torch.cat(
        [_polished(part, phi.unsqueeze(0), num_steps, tolerance) for _, part in updates.parts]
    )


def _polished(
    updates: Counts | LeastSquares, phi: Tensor, num_steps: int, tolerance: float
) -> Tensor:
    x = updates.x
    z = x.new_ones(1, len(x), phi.shape[1]) * x.clamp(min=0).mean(-1, keepdim=True).clamp(min=1e-3)
    solved, running, last = (
        z[0].clone(),
        torch.arange(len(x), device=x.device),
        updates.values(z, phi),
    )
    for _ in range(num_steps):
        value = last
        for _ in range(CHECK_EVERY):
            z, value = _row_step(updates, z, phi, value)
        solved[running] = z[0]
        going = ((value - last).abs() > tolerance * value.abs().clamp(min=1.0))[0].nonzero().ravel()
        if not len(going):
            break
        if len(going) < len(running):
            updates, running, z, value = (
                updates.at(going),
                running[going],
                z[:, going],
                value[:, going],
            )
        last = value
    return solved


def _row_step(updates: Counts | LeastSquares, z: Tensor, phi: Tensor, value: Tensor) -> Pair:
    """As :func:`accelerated` for each row alone, given the signatures; activities (1, N, K), and
    the values of the rows (1, N) there.
    """
    first = updates.activities(z, phi)
    if not isinstance(updates, Counts):
        return first, updates.values(first, phi)
    second = updates.activities(first, phi)
    logs = _logs(z, first, second)
    speed, turn = ((first * move.square()).sum(-1, keepdim=True) for move in logs[1:])
    far = updates.activities(_far(*logs, _stretch(speed, turn)), phi)
    gained = updates.values(far, phi)
    better = gained > value + ROUNDING * value.abs()  # False for NaN
    safe = gained if bool(better.all()) else updates.values(second, phi)
    return torch.where(better.unsqueeze(-1), far, second), torch.where(better, gained, safe)


LAWS = {"quadratic": DispersedCounts, "linear": LinearlyDispersedCounts}


def updates_of(
    data: Tensor, about: FactorizationDescription, params: Params
) -> Counts | LeastSquares:
    """The updates for a model's kind of entries, at the dispersion of ``params`` where it has
    one.
    """
    if not about.counts:
        return LeastSquares(data)
    return (
        Counts.of(data, about)
        if about.variance is None
        else LAWS[about.variance].of_params(data, params)
    )
