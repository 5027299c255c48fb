r"""Draws whose latents carry the same names throughout: without it R-hat, ESS and means speak of nothing.

The posterior of interchangeable latents repeats itself under every renaming, and a sampler may wander from one copy to
another, within a chain or between chains. Each draw is renamed like a reference: first like one draw of high density,
then like the mean of the renamed draws, until nothing changes (M. Stephens 2000, doi:10.1111/1467-9868.00265, with
squared differences of the latents' own parameters as the loss).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inference.programs.program import Params

__all__ = ["Labels", "relabel_draws"]

ROUNDS = 10


@dataclass(frozen=True, eq=False)
class Labels:
    """Latents that may exchange names.

    Args:
        name: of the latent site.
        features: parameters (D, ...) -> (D, K, F), what a latent is recognised by.
        rename: (parameters (D, ...), permutation (K,), flips (K,)) -> the same laws under other names; new latent l is old
            latent ``permutation[l]``, then flipped where ``flips[l]``.
        signs: whether the two values of a latent may change names; its features then change sign.
        kinds: (K,) integers; latents of different kinds are told apart by the model and never exchange names.
    """

    name: str
    features: Callable[[Params], Tensor]
    rename: Callable[[Params, Tensor, Tensor], Params]
    signs: bool = False
    kinds: Tensor | None = None


def relabel_draws(params: Params, labels: Sequence[Labels], reference: Params | int = 0) -> tuple[Params, Tensor]:
    """Rename the latents of every draw.

    Args:
        params: (D, ...) by site name.
        labels: what may be renamed, in the order in which it is to be done.
        reference: parameters without leading dim that the first names come from, or the index of a draw.

    Returns:
        The renamed parameters, and which draws another name was given in, (D,).
    """
    num_draws = len(next(iter(params.values())))
    changed = torch.zeros(num_draws, dtype=torch.bool)
    for label in labels:
        if isinstance(reference, int):
            target = label.features({name: value[reference : reference + 1] for name, value in params.items()})[0]
        else:
            target = label.features({name: value.unsqueeze(0) for name, value in reference.items()})[0]
        moved = torch.zeros_like(changed)
        for _ in range(ROUNDS):
            features = label.features(params)
            permutations, flips = match_all(features, target, label.signs, label.kinds)
            size = permutations.shape[1]
            differs = (permutations != torch.arange(size)).any(-1) | flips.any(-1)
            moved |= differs
            params = _renamed(params, label, permutations, flips, differs)
            target = label.features(params).mean(0)
            if not differs.any():
                break
        changed |= moved
    return params, changed


def match_all(features: Tensor, target: Tensor, signs: bool, kinds: Tensor | None) -> tuple[Tensor, Tensor]:
    """The assignment of least squared difference of every draw: permutations (D, K) and flips (D, K)."""
    from scipy.optimize import linear_sum_assignment

    features, target = features.detach().cpu().double(), target.detach().cpu().double()
    norms = features.square().sum(-1).unsqueeze(-1) + target.square().sum(-1)  # (D, K, K)
    inner = features @ target.mT
    cost, flipped = norms - 2 * inner, torch.zeros_like(inner, dtype=torch.bool)
    if signs:
        cost, flipped = norms - 2 * inner.abs(), inner < 0
    if kinds is not None:
        cost = cost + (kinds[:, None] != kinds).cpu() * (1 + 4 * norms.amax())
    permutations = cost.argmin(1)  # the nearest old latent of every new one
    size = target.shape[0]
    clash = (permutations.sort(-1).values != torch.arange(size)).any(-1)
    for draw in clash.nonzero().ravel().tolist():
        rows, columns = linear_sum_assignment(cost[draw].numpy())
        permutations[draw, torch.as_tensor(columns)] = torch.as_tensor(rows)
    return permutations, flipped.gather(1, permutations.unsqueeze(1)).squeeze(1)


def _renamed(params: Params, label: Labels, permutations: Tensor, flips: Tensor, differs: Tensor) -> Params:
    """Draws that need the same renaming are renamed together."""
    if not differs.any():
        return params
    codes = torch.cat([permutations, flips.long()], 1)
    distinct, which = codes.unique(dim=0, return_inverse=True)
    out = {name: value.clone() for name, value in params.items()}
    size = permutations.shape[1]
    for i, code in enumerate(distinct):
        own = (which == i).nonzero().ravel()
        if not differs[own[0]]:
            continue
        device = next(iter(params.values())).device
        part = {name: value[own] for name, value in params.items()}
        renamed = label.rename(part, code[:size].to(device), code[size:].bool().to(device))
        for name, value in renamed.items():
            out[name][own] = value
    return out
