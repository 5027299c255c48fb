r"""Alignment of hidden options: order under a reference, labels within groups of states.

Given states and actions seen, options enter the likelihood through the first options :math:`P(o_1
\mid s_1)`, the low-level policies :math:`L(a \mid s, o)` and the high-level ones :math:`H(o' \mid
s', o)`, where s' is the new state. Rename the options of every state s by a permutation
:math:`\pi_s` of its own. Each factor but H takes the names of one state; H takes o under the names
of the state before and o' under those of the new one. So the distribution is the same if all states
from which s' is entered share one permutation, whatever s':

.. math:: \pi_s = \pi_r \quad\text{where s and r lead to a common next state.}

The finest partition that this asks for is the connected components of "leads to a common next
state". Where there is more than one, options can be renamed in one of them alone: on a board
without staying, the states of even and of odd places. No data of such moves tell these namings
apart, nor does a symmetric prior; a prior for keeping options (``stickiness``), or endings as
parameters, do. Of all namings, the one is taken under which the chance of keeping an option is
largest, averaged over options and arrivals:

.. math::

    \max_\pi \sum_{s'} n_{s'} \sum_o H\bigl(\pi_{s'}(o) \mid s', \pi_{\mathrm{before}(s')}(o)\bigr),

:math:`n_{s'}` the arrivals in s'. It is linear in the permutation of one group given the others, so
that each is an assignment problem, and groups are gone through until nothing changes: the largest
value for two groups, and for more a value that renaming one group alone cannot raise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
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
    policies, reference = with_high(chain, params), with_high(chain, reference)
    _check_sites(policies, reference, (chain.low, chain.high))
    low, target = policies[chain.low], reference[chain.low].to(policies[chain.low])
    high, target_high = policies[chain.high], reference[chain.high].to(policies[chain.high])

    def cost(order: Tensor) -> float:
        moved = high[:, order][:, :, order]
        return float((low[:, order] - target).square().sum() + (moved - target_high).square().sum())

    def distance() -> Tensor:
        return (target.transpose(0, 1)[:, None] - low.transpose(0, 1)[None]).square().sum((-2, -1))

    order = _best_order(chain.num_options, cost, distance)
    new = permute_options(chain, dict(params), order.to(low.device))
    kept = torch.zeros(chain.num_options, dtype=torch.bool)
    return Alignment(
        new, {"options": order}, {"options": kept}, policy_error(new, reference, chain) ** 2
    )


def _check_sites(
    params: Mapping[str, Tensor], reference: Mapping[str, Tensor], sites: Sequence[str]
) -> None:
    for site in sites:
        if site not in reference or tuple(reference[site].shape) != tuple(params[site].shape):
            shape = tuple(reference[site].shape) if site in reference else "nothing"
            raise ValueError(
                f"align: reference must hold {site} of shape {tuple(params[site].shape)}, got"
                f" {shape}"
            )


def _best_order(
    num_options: int, cost: Callable[[Tensor], float], distance: Callable[[], Tensor]
) -> Tensor:
    """Order of least cost; beyond seven options an assignment of least distance."""
    from scipy.optimize import linear_sum_assignment

    if num_options > FEW_OPTIONS:
        return torch.from_numpy(linear_sum_assignment(distance().cpu().numpy())[1])
    return min((torch.tensor(o) for o in itertools.permutations(range(num_options))), key=cost)


def policy_error(
    params: Mapping[str, Tensor], reference: Mapping[str, Tensor], chain: ChainDescription
) -> float:
    """Policy error: Frobenius norm of both policies' differences; align first."""
    params, reference = with_high(chain, params), with_high(chain, reference)
    parts = [
        (params[site] - reference[site].to(params[site])).square().sum()
        for site in (chain.low, chain.high)
    ]
    return float(torch.stack(parts).sum().sqrt())


def align_policies(
    params: Mapping[str, Tensor], reference: Mapping[str, Tensor], about: PolicyDescription
) -> Alignment:
    r"""Rename options of policies along continuous states like a reference's.

    As near as possible by the squared differences of all weights and intercepts of states in their
    units, or beyond seven options of the low-level policies. Hidden units are first matched by the
    weights that lead to them: those of a network have neither names nor signs, as :math:`w
    \tanh(x) = -w \tanh(-x)`.

    Raises:
        ValueError: if a site is missing from ``reference`` or has another shape.
    """
    sites = [name for name in params if name != "initial"]
    _check_sites(params, reference, sites)
    target = about.standardised({site: reference[site].to(params[site]) for site in sites})
    params = about.standardised(params)
    if isinstance(about.policy, Network):
        params = _match_units(params, target)

    def cost(order: Tensor) -> float:
        moved = permute_policy_options(dict(params), order)
        return float(sum((moved[site] - target[site]).square().sum() for site in sites))

    def distance() -> Tensor:
        flat = [
            torch.cat([v["low_weights"].flatten(1), v["low_intercepts"]], 1)
            for v in (target, params)
        ]
        return torch.cdist(flat[0], flat[1]).square()

    order = _best_order(about.num_options, cost, distance)
    new = about.plain(permute_policy_options(dict(params), order.to(params["initial"].device)))
    kept = torch.zeros(about.num_options, dtype=torch.bool)
    return Alignment(new, {"options": order}, {"options": kept}, cost(order))


def _match_units(params: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> Params:
    """Permute and sign hidden units like those of a reference."""
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
    """Rename option ``order[i]`` to i in the same distribution."""
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
    """Rename option ``order[i]`` to i; ``num_leading`` dims stand before a site's own."""
    by_option = (chain.initial, chain.low, chain.high, chain.termination, chain.choice)
    dim = num_leading + 1  # after the states
    visits = () if chain.durations is None else tuple(chain.durations.site_dims)
    out = {
        name: value.index_select(dim - (name in visits), order)
        if name in by_option + visits
        else value
        for name, value in params.items()
    }
    twice = [chain.high] if chain.durations is None else [chain.high, chain.choice]
    return out | {name: out[name].index_select(dim + 1, order) for name in twice if name in out}


MOST_ROUNDS = 20
RARE = 0.01  # share of the steps below which a group is not worth a word


@dataclass(frozen=True, eq=False)
class LabelGroups:
    """Groups of states whose options share their names.

    Args:
        group: (S,), the number of the group of each state, the most visited first; states that are
            never left are groups of their own.
        before: (S,), the group of the states from which each is entered; -1 where none is.
        arrivals: (S,), steps into each state.
        departures: (S,), steps out of each state.
    """

    group: np.ndarray
    before: np.ndarray
    arrivals: np.ndarray
    departures: np.ndarray

    @property
    def apart(self) -> list[list[int]]:
        """States of each group that a hundredth of all steps leaves, by group."""
        left = self.departures > 0
        often = np.bincount(self.group, self.departures)
        return [
            np.flatnonzero((self.group == g) & left).tolist()
            for g in np.flatnonzero(often >= RARE * often.sum())
            if often[g] > 0
        ]


def label_groups(moves: Tensor) -> LabelGroups:
    """Label groups of states from how often each state followed each other one.

    Args:
        moves: (S, S), from row to column.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    counts = moves.detach().cpu().double().numpy()
    size = len(counts)
    source, target = counts.nonzero()
    # a state as one that is left, and as one that is entered
    edges = coo_array((np.ones(len(source)), (source, size + target)), shape=(2 * size, 2 * size))
    found = connected_components(edges, directed=False)[1]
    group, entered = found[:size], counts.sum(0) > 0
    weight = np.bincount(group, counts.sum(1), minlength=found.max() + 1)
    rank = np.empty_like(np.argsort(-weight))
    rank[np.argsort(-weight, kind="stable")] = np.arange(len(weight))
    return LabelGroups(
        rank[group], np.where(entered, rank[found[size:]], -1), counts.sum(0), counts.sum(1)
    )


def under_lasting_names(chain: ChainDescription, params: Params, groups: LabelGroups) -> Params:
    """Rename the options of every group of states so that they last longest.

    Args:
        chain: of a model with a free high-level policy.
        params: by site name, without leading dims.
        groups: of the data.
    """
    high = params[chain.high].detach().cpu().double().numpy()
    order = _orders(high, groups)  # (G, O): the old option behind each name
    here = torch.from_numpy(order[groups.group]).to(params[chain.high].device)  # (S, O)
    before = torch.from_numpy(order[np.where(groups.before < 0, groups.group, groups.before)]).to(
        here.device
    )
    out = dict(params)
    out[chain.initial] = params[chain.initial].gather(1, here)
    out[chain.low] = params[chain.low].gather(1, here[..., None].expand_as(params[chain.low]))
    rows = params[chain.high].gather(1, before[..., None].expand_as(params[chain.high]))
    out[chain.high] = rows.gather(2, here[:, None].expand_as(rows))
    return out


def _orders(high: np.ndarray, groups: LabelGroups) -> np.ndarray:
    from scipy.optimize import linear_sum_assignment

    num_groups, num_options = int(groups.group.max()) + 1, high.shape[1]
    links: dict[tuple[int, int], np.ndarray] = {}  # names of the first group by names of the second
    for state in np.flatnonzero((groups.before >= 0) & (groups.before != groups.group)):
        pair = (int(groups.before[state]), int(groups.group[state]))
        own = groups.arrivals[state] * high[state]
        for key, value in ((pair, own), (pair[::-1], own.T)):
            links[key] = links.get(key, 0.0) + value
    beside: dict[int, list[int]] = {}
    for first, second in links:
        beside.setdefault(first, []).append(second)
    order = np.tile(np.arange(num_options), (num_groups, 1))
    named = {0}
    for turn in range(MOST_ROUNDS):
        changed = False
        for g in _from_first(beside, num_groups):
            known = [h for h in beside.get(g, ()) if turn or h in named]
            named.add(g)
            if g == 0 or not known:
                continue
            kept = np.sum([links[g, h][:, order[h]] for h in known], axis=0)  # old option by name
            new = np.argsort(linear_sum_assignment(kept, maximize=True)[1])
            gain = (
                kept[new, np.arange(num_options)].sum()
                - kept[order[g], np.arange(num_options)].sum()
            )
            if gain > 1e-9 * max(1.0, abs(kept).sum()):
                order[g], changed = new, True
        if turn and not changed:
            break
    return order


def _from_first(beside: dict[int, list[int]], num_groups: int) -> list[int]:
    """Order groups as they are reached from the first, then the unreached ones."""
    reached, queue = dict.fromkeys([0]), [0]
    while queue:
        for other in beside.get(queue.pop(0), ()):
            if other not in reached:
                reached[other] = None
                queue.append(other)
    return [*reached, *(g for g in range(num_groups) if g not in reached)]
