"""One order of the options for two sets of parameters: options have no names of their own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import torch
from torch import Tensor

from inference.base.align import Alignment, match_columns
from inference.programs.program import Params
from ppl_models.descriptions.options import ChainDescription, PolicyDescription, with_high
from ppl_models.parts.policies import Network
from ppl_models.sequences.policy_chain import switch_order

FEW_OPTIONS = 7  # up to here every order is tried


def align_options(
    params: Mapping[str, Tensor], reference: Mapping[str, Tensor], chain: ChainDescription
) -> Alignment:
    """Rename options so that both policies are as near as possible to those of a reference.

    One permutation for all states. Up to seven options every order is tried, by the squared
    differences of the low- and high-level policies; beyond, options are matched by their low-level
    policies.

    Raises:
        ValueError: if a policy is missing from ``reference`` or has another shape.
    """
    from scipy.optimize import linear_sum_assignment

    own, params, reference = params, with_high(chain, params), with_high(chain, reference)
    for site in (chain.low, chain.high):
        if site not in reference or tuple(reference[site].shape) != tuple(params[site].shape):
            found = tuple(reference[site].shape) if site in reference else "nothing"
            raise ValueError(
                f"align: reference must hold {site} of shape {tuple(params[site].shape)}, got"
                f" {found}"
            )
    low, target = params[chain.low], reference[chain.low].to(params[chain.low])
    high, target_high = params[chain.high], reference[chain.high].to(params[chain.high])
    if chain.num_options <= FEW_OPTIONS:
        orders = [torch.tensor(order) for order in itertools.permutations(range(chain.num_options))]

        def cost(order: Tensor) -> float:
            moved = high[:, order][:, :, order]
            return float(
                (low[:, order] - target).square().sum() + (moved - target_high).square().sum()
            )

        order = min(orders, key=cost)
    else:
        distance = (
            (target.transpose(0, 1)[:, None] - low.transpose(0, 1)[None]).square().sum((-2, -1))
        )
        order = torch.from_numpy(linear_sum_assignment(distance.cpu().numpy())[1])
    new = permute_options(chain, dict(own), order.to(low.device))
    kept = torch.zeros(chain.num_options, dtype=torch.bool)
    return Alignment(
        new, {"options": order}, {"options": kept}, policy_error(new, reference, chain) ** 2
    )


def policy_error(
    params: Mapping[str, Tensor], reference: Mapping[str, Tensor], chain: ChainDescription
) -> float:
    """Frobenius norm of the differences of both policies, all entries together; align first."""
    params, reference = with_high(chain, params), with_high(chain, reference)
    parts = [
        (params[site] - reference[site].to(params[site])).square().sum()
        for site in (chain.low, chain.high)
    ]
    return float(torch.stack(parts).sum().sqrt())


def align_policies(
    params: Mapping[str, Tensor], reference: Mapping[str, Tensor], about: PolicyDescription
) -> Alignment:
    """Rename options so that the weights of policies along continuous states are as near as
    possible to a reference's.

    Up to seven options every order is tried, by the squared differences of all weights and
    intercepts; beyond, options are matched by their low-level policies. Hidden units are first
    matched by the weights that lead to them: those of a network have neither names nor signs, as
    :math:`w \\tanh(x) = -w \\tanh(-x)`.

    Raises:
        ValueError: if a site is missing from ``reference`` or has another shape.
    """
    from scipy.optimize import linear_sum_assignment

    sites = [name for name in params if name != "initial"]
    for site in sites:
        if site not in reference or tuple(reference[site].shape) != tuple(params[site].shape):
            found = tuple(reference[site].shape) if site in reference else "nothing"
            raise ValueError(
                f"align: reference must hold {site} of shape {tuple(params[site].shape)}, got"
                f" {found}"
            )
    target = {site: reference[site].to(params[site]) for site in sites}
    if isinstance(about.policy, Network):
        params = _match_units(params, target)

    def cost(order: Tensor) -> float:
        moved = permute_policy_options(dict(params), order)
        return float(sum((moved[site] - target[site]).square().sum() for site in sites))

    if about.num_options <= FEW_OPTIONS:
        order = min(
            (torch.tensor(order) for order in itertools.permutations(range(about.num_options))),
            key=cost,
        )
    else:
        flat = [
            torch.cat([v["low_weights"].flatten(1), v["low_intercepts"]], 1)
            for v in (target, params)
        ]
        order = torch.from_numpy(
            linear_sum_assignment(torch.cdist(flat[0], flat[1]).square().cpu().numpy())[1]
        )
    new = permute_policy_options(dict(params), order.to(params["initial"].device))
    kept = torch.zeros(about.num_options, dtype=torch.bool)
    return Alignment(new, {"options": order}, {"options": kept}, cost(order))


def _match_units(params: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> Params:
    """The same functions of the state, hidden units in the order and with the signs of a
    reference.
    """
    into, other = (
        torch.cat([own["hidden_weights"], own["hidden_intercepts"][:, None]], 1)
        for own in (params, target)
    )  # (H, D + 1)
    matching = match_columns(into.mT, other.mT, signs=True)
    sign = torch.where(matching.flips, -1.0, 1.0).to(into)
    out = dict(params)
    for name in ("hidden_weights", "hidden_intercepts"):
        out[name] = params[name][matching.permutation] * (
            sign[:, None] if name == "hidden_weights" else sign
        )
    for name in ("low_weights", "high_weights"):
        if name in params:
            out[name] = params[name][..., matching.permutation] * sign
    return out


def permute_policy_options(params: Params, order: Tensor) -> Params:
    """The same law with option ``order[i]`` named i."""
    out = {
        name: value[order] if name.startswith(("low_", "initial")) else value
        for name, value in params.items()
    }
    if "high_weights" not in params:
        return out
    old = switch_order(len(order)).to(order.device)
    place = order.argsort()  # the new name of an old option
    named = place[old[order]]  # (O, O): the new names of the classes of each new option
    rank = named[:, 1:].argsort(-1)
    for name in ("high_weights", "high_intercepts"):
        value = params[name][order]
        out[name] = torch.stack([row[own] for row, own in zip(value, rank, strict=True)])
    return out


def permute_options(
    chain: ChainDescription, params: Params, order: Tensor, num_leading: int = 0
) -> Params:
    """The same law with option ``order[i]`` named i; ``num_leading`` dims stand before each site's
    own.
    """
    by_option = (chain.initial, chain.low, chain.high, chain.termination, chain.choice)
    dim = num_leading + 1  # after the states
    out = {
        name: value.index_select(dim, order) if name in by_option else value
        for name, value in params.items()
    }
    return out | (
        {chain.high: out[chain.high].index_select(dim + 1, order)} if chain.high in out else {}
    )
