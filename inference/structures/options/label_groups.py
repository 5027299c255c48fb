r"""Groups of states between which the names of options mean nothing, and the names under which
options last longest.

Given states and actions seen, options enter the likelihood through the first options :math:`P(o_1
\mid s_1)`, the low-level policies :math:`L(a \mid s, o)` and the high-level ones :math:`H(o' \mid
s', o)`, where s' is the new state. Rename the options of every state s by a permutation
:math:`\pi_s` of its own. Each factor but H takes the names of one state; H takes o under the names
of the state before and o' under those of the new one. So the law is the same if all states from
which s' is entered share one permutation, whatever s':

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

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from inference.programs.program import Params
from ppl_models.descriptions.options import ChainDescription

MOST_ROUNDS = 20
RARE = 0.01  # share of the steps below which a group is not worth a word


@dataclass(frozen=True, eq=False)
class LabelGroups:
    """States whose options share their names.

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
        """The states of each group from which a hundredth of all steps goes out; one list where the
        names of options mean the same nearly everywhere.
        """
        left = self.departures > 0
        often = np.bincount(self.group, self.departures)
        return [
            np.flatnonzero((self.group == g) & left).tolist()
            for g in np.flatnonzero(often >= RARE * often.sum())
            if often[g] > 0
        ]


def label_groups(moves: Tensor) -> LabelGroups:
    """Groups of states from how often each state followed each other one.

    Args:
        moves: (S, S), from row to column.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    counts = moves.detach().cpu().double().numpy()
    size = len(counts)
    source, target = counts.nonzero()
    edges = coo_array(
        (np.ones(len(source)), (source, size + target)), shape=(2 * size, 2 * size)
    )  # a state as one that is left, and as one that is entered
    found = connected_components(edges, directed=False)[1]
    group, entered = found[:size], counts.sum(0) > 0
    weight = np.bincount(group, counts.sum(1), minlength=found.max() + 1)
    rank = np.empty_like(np.argsort(-weight))
    rank[np.argsort(-weight, kind="stable")] = np.arange(len(weight))
    return LabelGroups(
        rank[group], np.where(entered, rank[found[size:]], -1), counts.sum(0), counts.sum(1)
    )


def under_lasting_names(chain: ChainDescription, params: Params, groups: LabelGroups) -> Params:
    """The same law with the options of every group of states renamed so that they last longest.

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
        pair, own = (
            (int(groups.before[state]), int(groups.group[state])),
            groups.arrivals[state] * high[state],
        )
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
    """Groups in the order in which they are reached from the first, then those that are not."""
    reached, queue = dict.fromkeys([0]), [0]
    while queue:
        for other in beside.get(queue.pop(0), ()):
            if other not in reached:
                reached[other] = None
                queue.append(other)
    return [*reached, *(g for g in range(num_groups) if g not in reached)]
