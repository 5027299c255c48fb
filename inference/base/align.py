r"""Alignment of latents between draws, without which R-hat, ESS and means mean nothing.

The posterior of interchangeable latents repeats itself under every renaming, and a sampler may
wander from one copy to another, within a chain or between chains. Each draw is renamed like a
reference: first like one draw of high density, then like the mean of the renamed draws, until
nothing changes (M. Stephens 2000, doi:10.1111/1467-9868.00265, with squared differences of the
latents' own parameters as the loss).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from inference.programs.program import Params
from ppl_models.parts.repr import shows_briefly

ROUNDS = 10


@dataclass(frozen=True, eq=False)
class Labels:
    """Latents that may exchange names.

    Args:
        name: of the latent site.
        features: parameters (D, ...) -> (D, K, F), what a latent is recognised by.
        rename: (parameters (D, ...), permutation (K,), flips (K,)) -> the same distributions under
            other names; new latent l is old latent ``permutation[l]``, then flipped where
            ``flips[l]``.
        signs: whether the two values of a latent may change names; its features then change sign.
        kinds: (K,) integers; latents of different kinds are distinct in the model and never
            exchange names.
    """

    name: str
    features: Callable[[Params], Tensor]
    rename: Callable[[Params, Tensor, Tensor], Params]
    signs: bool = False
    kinds: Tensor | None = None


def places_of_first(values: list[float]) -> list[float]:
    """Place of the first entry equal to each, which tells what is equal to what."""
    first: dict[float, int] = {}
    return [first.setdefault(value, place) for place, value in enumerate(values)]


def keeping(
    label: Labels,
    params: Params,
    sites: Iterable[str],
    pattern: Callable[[list[float]], list[float]] = list,
) -> Labels | None:
    """The label, renamings that change some sites taken away; None where none is left.

    Args:
        label: what may be renamed; params: (1, ...), NaN in entries of the sites that may be any.
        sites: that are to stay; pattern: what of their entries, all together by default.
    """
    size, sites = label.features(params).shape[1], tuple(sites)
    still = torch.zeros(size, dtype=torch.bool)

    def seen(value: Tensor) -> list[float]:
        return pattern(value.nan_to_num(nan=math.inf).ravel().tolist())

    def stays(order: Tensor, flips: Tensor) -> bool:
        renamed = label.rename(params, order, flips)
        return all(seen(renamed[name]) == seen(params[name]) for name in sites)

    kinds, same = torch.arange(size), torch.arange(size)
    for i, k in itertools.combinations(range(size), 2):
        order = same.clone()
        order[i], order[k] = k, i
        if (label.kinds is None or label.kinds[i] == label.kinds[k]) and stays(order, still):
            kinds[kinds == kinds[k]] = kinds[i].clone()
    signs = label.signs and all(stays(same, same == k) for k in range(size))
    if not signs and len(kinds.unique()) == size:
        return None
    return replace(label, signs=signs, kinds=kinds)


def relabel_draws(
    params: Params,
    labels: Sequence[Labels],
    reference: Params,
    inside: Callable[[Params], Tensor] | None = None,
) -> tuple[Params, Tensor]:
    """Rename the latents of every draw.

    A prior on an interval, which the user may have named, is not always the same under other names:
    an intercept takes up the loadings of a latent whose two values change names. A draw that would
    leave the interval is renamed without flips, and keeps the names it has where it would leave it
    still.

    Args:
        params: (D, ...) by site name.
        labels: what may be renamed, in the order in which it is to be done.
        reference: parameters without leading dim that the first names come from.
        inside: parameters (D, ...) -> which of them the prior allows, (D,), as
            :meth:`inference.programs.program.Program.inside` says; None where it allows every name.

    Returns:
        The renamed parameters, and which draws another name was given in, (D,).
    """
    num_draws = len(next(iter(params.values())))
    changed = torch.zeros(num_draws, dtype=torch.bool)
    for label in labels:
        target = label.features({name: value.unsqueeze(0) for name, value in reference.items()})[0]
        moved = torch.zeros_like(changed)
        for _ in range(ROUNDS):
            features = label.features(params)
            permutations, flips = match_all(features, target, label.signs, label.kinds)
            size = permutations.shape[1]
            differs = _differs(permutations, flips)
            renamed = _renamed(params, label, permutations, flips, differs)
            if inside is not None and differs.any():
                for signs in (False, None):  # other names without flips, then its own
                    outside = differs & ~inside(renamed).cpu() & inside(params).cpu()
                    if not outside.any():
                        break
                    permutations, flips = permutations.clone(), flips & ~outside.unsqueeze(-1)
                    permutations[outside] = (
                        torch.arange(size)
                        if signs is None
                        else match_all(features[outside], target, False, label.kinds)[0]
                    )
                    differs = _differs(permutations, flips)
                    renamed = _renamed(params, label, permutations, flips, differs)
            params, moved = renamed, moved | differs
            target = label.features(params).mean(0)
            if not differs.any():
                break
        changed |= moved
    return params, changed


def _differs(permutations: Tensor, flips: Tensor) -> Tensor:
    """Mask of draws (D,) whose labels a renaming changes."""
    return (permutations != torch.arange(permutations.shape[1])).any(-1) | flips.any(-1)


def match_all(
    features: Tensor, target: Tensor, signs: bool, kinds: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Match every draw by least squares: permutations (D, K) and flips (D, K)."""
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
        from scipy.optimize import linear_sum_assignment  # takes a while, and is seldom needed

        rows, columns = linear_sum_assignment(cost[draw].numpy())
        permutations[draw, torch.as_tensor(columns)] = torch.as_tensor(rows)
    return permutations, flipped.gather(1, permutations.unsqueeze(1)).squeeze(1)


def _renamed(
    params: Params, label: Labels, permutations: Tensor, flips: Tensor, differs: Tensor
) -> Params:
    """Rename draws that need the same renaming together."""
    if not differs.any():
        return params
    codes = torch.cat([permutations, flips.long()], 1)
    distinct, which = codes.unique(dim=0, return_inverse=True)
    out = {name: value.clone() for name, value in params.items()}
    size = permutations.shape[1]
    for i, code in enumerate(distinct):
        members = (which == i).nonzero().ravel()
        if not differs[members[0]]:
            continue
        device = next(iter(params.values())).device
        part = {name: value[members] for name, value in params.items()}
        renamed = label.rename(part, code[:size].to(device), code[size:].bool().to(device))
        for name, value in renamed.items():
            out[name][members] = value
    return out


@shows_briefly
@dataclass(frozen=True, eq=False)
class Matching:
    """Matching of an estimate's columns to those of a reference.

    Args:
        permutation: (num_reference_columns,) long; ``estimate[:, permutation]`` is in the
            reference's order.
        flips: bool, same shape and order; True where that column must then be negated.
        cost: sum of squared differences that remain.
    """

    permutation: Tensor
    flips: Tensor
    cost: float


@shows_briefly
@dataclass(frozen=True, eq=False)
class Alignment:
    """Parameters in other labels, and the relabelling that led there.

    Args:
        params: the relabelled parameters, by site name; sites outside the layers are as they were.
        permutations: latent site -> (K,) long; new latent l is old latent ``permutation[l]``.
        flips: latent site -> (K,) bool, in the new order; True where the values 0 and 1 changed
            names.
        cost: sum over layers of the squared differences between loadings that remain; 0 where
            nothing was matched.
        graphs: the fit's graphs (see ``Fit.graphs``) under the same names; empty for models
            without, or where no fit was aligned.
    """

    params: dict[str, Tensor]
    permutations: dict[str, Tensor]
    flips: dict[str, Tensor]
    cost: float
    graphs: dict[str, Tensor] = field(default_factory=dict)


def align_labels(
    params: Mapping[str, Tensor],
    reference: Mapping[str, Tensor],
    labels: Sequence[Labels],
    signs: bool = True,
) -> Alignment | None:
    """Align parameters by features of their latents; None if none are exchangeable.

    Args:
        params: without leading dims; reference: the same sites.
        labels: what may be renamed, in the order in which it is to be done.
        signs: whether flips are allowed where a label knows them.
    """
    if not labels:
        return None
    for name, value in params.items():
        other = reference.get(name)
        if not isinstance(other, Tensor):
            raise ValueError(
                f"align: reference must hold a tensor {name!r} of shape {tuple(value.shape)}, got"
                f" {sorted(reference)}"
            )
        if other.shape != value.shape:
            raise ValueError(
                f"align: {name} of the reference must have shape {tuple(value.shape)}, got"
                f" {tuple(other.shape)}"
            )
        if not (torch.isfinite(value).all() and torch.isfinite(other).all()):
            raise ValueError(f"align: {name} must be finite")
    ours = {name: value.unsqueeze(0) for name, value in params.items()}
    theirs = {name: reference[name].unsqueeze(0).to(value) for name, value in params.items()}
    orders, turned, cost = {}, {}, 0.0
    for label in labels:
        target = label.features(theirs)[0]
        permutations, flips = match_all(
            label.features(ours), target, label.signs and signs, label.kinds
        )
        ours = _renamed(ours, label, permutations, flips, torch.ones(1, dtype=torch.bool))
        orders[label.name], turned[label.name] = permutations[0], flips[0]
        cost += float((label.features(ours)[0] - target).square().sum())
    return Alignment({name: value[0] for name, value in ours.items()}, orders, turned, cost)


def match_columns(estimate: Tensor, reference: Tensor, signs: bool = False) -> Matching:
    """Match the columns of two matrices by least total squared difference.

    For the components of a mixture or a factorization; components that are rows are matched by
    their transposes.

    Args:
        estimate: (P, K).
        reference: (P, L) with L <= K; the K - L columns of the estimate that fit worst are left
            out.
        signs: whether a column may be negated.

    Raises:
        ValueError: if the shapes do not agree, or a value is not finite.
    """
    for name, value in (("estimate", estimate), ("reference", reference)):
        if value.dim() != 2 or value.shape[1] == 0:
            raise ValueError(
                f"match_columns: {name} must be a matrix with columns, got shape"
                f" {tuple(value.shape)}"
            )
        if not torch.isfinite(value).all():
            raise ValueError(f"match_columns: {name} must be finite")
    if estimate.shape[0] != reference.shape[0] or estimate.shape[1] < reference.shape[1]:
        raise ValueError(
            f"match_columns: estimate must have {reference.shape[0]} rows and at least"
            f" {reference.shape[1]} columns, as reference has, got shape {tuple(estimate.shape)}"
        )
    return matched(estimate, reference, signs, None)


def matched(
    estimate: Tensor, reference: Tensor, signs: bool | Tensor, forbidden: Tensor | None
) -> Matching:
    """Minimum-cost assignment; a ``forbidden`` pair (K, L) only where none avoids it.

    ``signs`` may be by column.
    """
    from scipy.optimize import linear_sum_assignment

    left, right = estimate.detach().to(torch.float64), reference.detach().to(torch.float64)
    # (K, L)
    as_is = torch.stack([(left - column[:, None]).square().sum(0) for column in right.mT], 1)
    negated = torch.stack([(left + column[:, None]).square().sum(0) for column in right.mT], 1)
    turned = (negated < as_is) & (signs if isinstance(signs, bool) else signs[:, None])
    cost = torch.where(turned, negated, as_is)
    penalised = (
        cost if forbidden is None else cost + forbidden * (1 + 2 * cost.max() * len(right.mT))
    )
    chosen, of = linear_sum_assignment(penalised.cpu().numpy())
    permutation = torch.empty(right.shape[1], dtype=torch.long)
    permutation[torch.as_tensor(of)] = torch.as_tensor(chosen)
    permutation = permutation.to(estimate.device)
    columns = torch.arange(right.shape[1], device=estimate.device)
    return Matching(
        permutation, turned[permutation, columns], float(cost[permutation, columns].sum())
    )
