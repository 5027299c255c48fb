r"""M-step of duration distributions, from expected counts of visits.

With :math:`N_k(n)` visits of n steps that end, and :math:`M_k(n)` last ones of n steps so far,

.. math:: Q_k = \sum_n N_k(n) \log d_k(n) + \sum_n M_k(n) \log S_k(n)

grows by Newton's method in :math:`\log(\mu_k - 1)` and :math:`\log r_k`, a step halved until it
does not fall; free durations are counts over counts, open visits shared among the durations they
may reach. Geometric ones without a limit need the numbers of stays and of leaves alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inference.programs.program import Params
from ppl_models.parts.distributions import log_size_density
from ppl_models.parts.durations import MEANS, SIZES, Durations, FreeDurations

ROUNDS, HALVINGS = (3, 20)
LONGEST = 3.0  # step of a logarithm
SETTLED = 1e-4  # a step after which the next, about its square, is left to the next M-step
NONE = 1e-16  # expected visits
LIMITS = {"mean_durations": tuple(end - 1 for end in MEANS), "duration_sizes": SIZES}


def maximise_durations(
    durations: Durations, ended: Tensor, still_open: Tensor, params: Params, concentration: float
) -> Params:
    """Parameters whose expected log-density of visits is not below that of ``params``.

    Args:
        durations: their distribution.
        ended, still_open: N and M, (R, K, D).
        params: (R, K, ...).
        concentration: of the prior of free durations.
    """
    if isinstance(durations, FreeDurations):
        chances, survival = (
            part.exp() for part in durations.tables(params, durations.max_duration or 0)
        )
        reached = (still_open / survival.clamp(min=1e-300)).cumsum(-1) * chances
        counts = ended + reached + concentration - 1
        total = counts.sum(-1, keepdim=True)
        shares = counts / torch.where(total > 0, total, 1.0)
        return {"duration_chances": torch.where(total > 0, shares, params["duration_chances"])}
    names = tuple(durations.site_dims)
    low, high = (
        torch.tensor([LIMITS[name][end] for name in names]).to(ended).log() for end in (0, 1)
    )
    shape, most = ended.shape[:-1], ended.shape[-1]
    if durations.max_duration is None:  # longer visits than any that counts are one entry
        counted = (ended + still_open > NONE).flatten(0, -2).any(0).nonzero()
        most = min(most, 2 + int(counted.max()) if len(counted) else 2)
    every_ended, every_open = (part[..., :most].flatten(0, -2) for part in (ended, still_open))

    def of(point: Tensor) -> Params:
        own = dict(zip(names, point.exp().unbind(-1), strict=True))
        own["mean_durations"] = own["mean_durations"] + 1
        ends = {"mean_durations": MEANS, "duration_sizes": SIZES}
        return {name: value.clamp(*ends[name]) for name, value in own.items()}  # after rounding

    def bound(point: Tensor, states: Tensor) -> Tensor:
        logs, survival = durations.tables(of(point), most)
        found = (every_ended[states] * logs + every_open[states] * survival).sum(-1)
        if "duration_sizes" in names:
            found = found + log_size_density(point[..., names.index("duration_sizes")])
        return found

    start = dict(params) | {"mean_durations": params["mean_durations"] - 1}
    points = torch.stack([start[name] for name in names], -1).log().clamp(low, high).flatten(0, -2)
    states = torch.arange(len(points), device=points.device)  # of all restarts, that still climb
    for _ in range(ROUNDS):
        with torch.enable_grad():
            leaf = points[states].detach().requires_grad_()
            value = bound(leaf, states)
            (slope,) = torch.autograd.grad(value.sum(), leaf, create_graph=True)
            rows = [
                torch.autograd.grad(part.sum(), leaf, retain_graph=True)[0]
                for part in slope.unbind(-1)
            ]
        curvature, vectors = torch.linalg.eigh(torch.stack(rows, -2))
        along = (vectors.mT @ slope.detach().unsqueeze(-1)).squeeze(-1)
        step = (vectors @ (along / curvature.abs().clamp(min=1e-8)).unsqueeze(-1)).squeeze(-1)
        step, value = step.nan_to_num(0.0, 0.0, 0.0).clamp(-LONGEST, LONGEST), value.detach()
        tried = torch.arange(len(states), device=points.device)
        for _ in range(HALVINGS):
            moved = (points[states[tried]] + step[tried]).clamp(low, high)
            fine = bound(moved, states[tried]) >= value[tried]
            points[states[tried[fine]]] = moved[fine]
            tried = tried[~fine]
            step[tried] /= 2
            if not len(tried):
                break
        states = states[(step.abs() > SETTLED).any(-1)]
        if not len(states):
            break
    return of(points.unflatten(0, shape))


def geometric_means(moves: Tensor, means: Tensor) -> Tensor:
    """Mean durations (R, K) by counts of moves (R, K, K), stays on the diagonal."""
    total, stays = moves.sum(-1), moves.diagonal(dim1=-2, dim2=-1)
    leaves = total - stays
    found = total / torch.where(leaves > 0, leaves, 1.0)
    return torch.where(leaves > 0, found, torch.where(total > 0, MEANS[1], means)).clamp(*MEANS)
