"""Which updates a factorization has, their extrapolation, and activities for given signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.factorization.counts import Counts
from inference.structures.factorization.dispersed_counts import DispersedCounts, LinearlyDispersedCounts
from inference.structures.factorization.least_squares import LeastSquares

if TYPE_CHECKING:
    from ppl_models.descriptions.components import FactorizationDescription

__all__ = ["CHECK_EVERY", "accelerated", "polished", "updates_of"]

MAX_STRETCH = 64.0  # of an extrapolated step
CHECK_EVERY = 5  # accelerated steps between two looks at the objective's gain

Pair = tuple[Tensor, Tensor]


def accelerated(
    updates: Counts, step: Callable[[Tensor, Tensor], Pair], z: Tensor, phi: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Two EM steps and an extrapolation of their logarithms (Varadhan and Roland 2008), kept only where it gains.

    Args:
        value: the log-posterior at z, phi up to a constant, (R,).

    Returns:
        z, phi, and ``value`` there; three updates of cost.
    """
    first = step(z, phi)
    second = step(*first)
    pairs = [tuple(v.clamp(min=1e-300).log() for v in triple) for triple in zip((z, phi), first, second, strict=True)]
    moves = [(b - a, c - 2 * b + a) for a, b, c in pairs]
    weights = (first[0], first[0].sum(-2).unsqueeze(-1) * first[1])  # both in counts
    speed = sum((w * r.square()).sum((-2, -1)) for w, (r, _) in zip(weights, moves, strict=True))
    turn = sum((w * v.square()).sum((-2, -1)) for w, (_, v) in zip(weights, moves, strict=True))
    stretch = (speed / torch.as_tensor(turn).clamp(min=1e-300)).sqrt().clamp(1.0, MAX_STRETCH)[:, None, None]
    far = [
        (logs[0] + 2 * stretch * r + stretch.square() * v).clamp(max=60.0).exp()
        for logs, (r, v) in zip(pairs, moves, strict=True)
    ]
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


def polished(updates: Counts | LeastSquares, phi: Tensor, num_steps: int = 500, tolerance: float = 1e-10) -> Tensor:
    """Activities of every row for given signatures (K, J), from an even start, to convergence; (N, K)."""
    phi = phi.unsqueeze(0)
    z = updates.x.new_ones(1, len(updates.x), phi.shape[1]) * updates.x.clamp(min=0).mean(-1, keepdim=True).clamp(
        min=1e-3
    )
    last = value = updates.varying(z, phi)

    def step(a: Tensor, b: Tensor) -> Pair:
        return updates.activities(a, b), b

    for _ in range(num_steps):
        for _ in range(CHECK_EVERY):
            if isinstance(updates, Counts):
                z, _, value = accelerated(updates, step, z, phi, value)
            else:
                z, _ = step(z, phi)
                value = updates.varying(z, phi)
        if bool((value - last).abs() <= tolerance * value.abs().clamp(min=1.0)):
            break
        last = value
    return z[0]


LAWS = {"quadratic": DispersedCounts, "linear": LinearlyDispersedCounts}


def updates_of(data: Tensor, about: FactorizationDescription, params: Params) -> Counts | LeastSquares:
    """The updates for a model's kind of entries, at the dispersion of ``params`` where it has one."""
    if not about.counts:
        return LeastSquares(data)
    return Counts.of(data, about) if about.variance is None else LAWS[about.variance].of_params(data, params)
