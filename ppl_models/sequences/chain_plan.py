"""Distinct steps of state-action sequences, and the order in which they follow.

They never change while a model of hidden options is fitted.

Given the states, the hidden options are a Markov chain whose transition and emission are chosen by
the state, so the likelihood is a product of small matrices, one a step: see
:mod:`ppl_models.sequences.word_tree` for how that product is taken. A plan is made in two passes
over the data, a slice at a time, and keeps a few bits of each step.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ppl_models.data.sequences import slices
from ppl_models.sequences.codes import TABLE_SIZE, Codes, small_integers
from ppl_models.sequences.word_tree import WordTree


@dataclass(frozen=True, eq=False)
class ChainPlan:
    """Distinct steps of packed sequences, and their order; see :meth:`build`.

    Args:
        tree: the order of the products.
        begin: (B,), the first state of every sequence.
        num_first: leaves that begin a sequence; they come first.
        states: (L,), the state of every leaf; emissions: (L,), its row in the table of emissions.
        emission_state, emission_action: (E,), observed actions of that table.
        gap_state, gap_next: (G,), missing actions between two states, next in the table; then one
            row of ones.
        moves: (M, 3), the distinct (action, state, next state); of_row: (M',) their places, row
            (M',) of which sequence, counts (M',) how often.
        label: (L,), the label of every leaf, a row of label_factors; label_factors: (V, O),
            p(label | option), ones in the first; None, both, where nothing is known.
        labels: table that these are of, (B, T, O).
    """

    tree: WordTree
    begin: Tensor
    num_first: int
    states: Tensor
    emissions: Tensor
    emission_state: Tensor
    emission_action: Tensor
    gap_state: Tensor
    gap_next: Tensor
    moves: Tensor
    of_row: Tensor
    row: Tensor
    counts: Tensor
    label: Tensor | None = None
    label_factors: Tensor | None = None
    labels: Tensor | None = None

    @property
    def lengths(self) -> np.ndarray:
        """Number of steps of every sequence, (B,)."""
        return self.tree.num_steps

    @classmethod
    def build(
        cls,
        trajectories: Tensor,
        num_states: int,
        num_actions: int,
        labels: Tensor | None = None,
    ) -> ChainPlan:
        """Plan for packed sequences (B, T, 2), and log p(label | option) (B, T, O)."""
        device = trajectories.device
        coded, factors = _Coded(trajectories.cpu().numpy(), num_states, num_actions), None
        if labels is not None:
            told, factors = _distinct_labels(labels)
            coded = replace(coded, labels=told.cpu().numpy(), num_labels=len(factors))
        lengths = coded.lengths()
        codes = Codes.of((coded.keys(part) for part in coded.parts()), coded.bound)
        assert codes is not None  # no limit was set
        leaves, label = np.divmod(codes.distinct, coded.num_labels)
        used_by_leaf = leaves % coded.num_codes
        words = np.empty(int(lengths.sum()), dtype=small_integers(len(leaves)))
        end = 0
        for part in coded.parts():
            places = codes.places(coded.keys(part))
            words[end : end + len(places)] = places
            end += len(places)
        used, emissions = np.unique(used_by_leaf, return_inverse=True)
        observed = used[used < coded.num_observed]
        gaps = (
            used[(used >= coded.num_observed) & (used < coded.num_codes - 1)] - coded.num_observed
        )
        row, move, counts = (
            np.concatenate(values)
            for values in zip(*(coded.moves(part) for part in coded.parts()), strict=True)
        )
        distinct, place = np.unique(move, return_inverse=True)
        split = np.stack(
            [distinct // num_states**2, distinct // num_states % num_states, distinct % num_states],
            -1,
        )

        def tensor(values: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(device)

        return cls(
            tree=WordTree.build(words, lengths, len(leaves), device),
            begin=trajectories[:, 0, 0].clone(),
            num_first=int((leaves < num_states * coded.num_codes).sum()),
            states=tensor(leaves // coded.num_codes % num_states),
            emissions=tensor(
                np.where(used_by_leaf == coded.num_codes - 1, len(observed) + len(gaps), emissions)
            ),
            emission_state=tensor(observed // num_actions),
            emission_action=tensor(observed % num_actions),
            gap_state=tensor(gaps // num_states),
            gap_next=tensor(gaps % num_states),
            moves=tensor(split),
            of_row=tensor(place),
            row=tensor(row),
            counts=tensor(counts),
            label=None if factors is None else tensor(label),
            label_factors=factors,
            labels=labels,
        )

    def emission_table(self, low: Tensor, environment: Tensor) -> Tensor:
        """Emission table (R, E + G + 1, O): P(action or next state | state, option).

        The next state where the action is missing; ones where nothing was seen.
        """
        # indices apart go first: (E, R, O)
        seen = low[:, self.emission_state, :, self.emission_action].movedim(0, 1)
        gap = environment[:, :, self.gap_state, self.gap_next]  # (R, A, G)
        unseen = (low[:, self.gap_state] * gap.mT[:, :, None, :]).sum(-1)  # (R, G, O)
        return torch.cat([seen, unseen, torch.ones_like(low[:, :1, :, 0])], 1)

    def leaves(self, initial: Tensor, low: Tensor, high: Tensor, environment: Tensor) -> Tensor:
        """Matrices of the distinct steps, (R, L, O, O).

        One that begins a sequence holds one row and else zeros.
        """
        emission = self.emission_table(low, environment)[:, self.emissions]  # (R, L, O)
        if self.label_factors is not None:
            emission = emission * self.label_factors[self.label]
        num, size = self.num_first, initial.shape[-1]
        first = torch.nn.functional.pad(
            (initial[:, self.states[:num]] * emission[:, :num])[:, :, None, :], (0, 0, 0, size - 1)
        )
        return torch.cat([first, high[:, self.states[num:]] * emission[:, num:, None, :]], 1)

    def log_actions(
        self, initial: Tensor, low: Tensor, high: Tensor, environment: Tensor
    ) -> Tensor:
        r"""Log-probability of the actions, (R, B), options summed out.

        :math:`\log \sum_{options} P(s_1, o_1) \prod_t P(a_t \mid s_t, o_t) P(o_{t+1} \mid s_{t+1},
        o_t)`.
        """
        leaves = self.leaves(initial, low, high, environment)
        return log_products(self.tree, leaves, lambda: _log(leaves))

    def log_actions_and_slopes(
        self, initial: Tensor, low: Tensor, high: Tensor, environment: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Sum of :meth:`log_actions` over sequences, (R,), and its requested gradients."""
        wanted = [value for value in (initial, low, high, environment) if value.requires_grad]
        with torch.enable_grad():
            leaves = self.leaves(initial, low, high, environment)
        value, slopes = self.tree.slopes(leaves)
        if value.isneginf().any():  # numbers too small for products of probabilities
            with torch.enable_grad():
                exact = log_products(self.tree, leaves, lambda: _log(leaves)).sum(-1)
            return exact.detach(), list(torch.autograd.grad(exact.sum(), wanted))
        return value, list(torch.autograd.grad(leaves, wanted, slopes))

    def log_moves(self, environment: Tensor) -> Tensor:
        """Log-probability (R, B) of next states given states and known actions."""
        action, state, following = self.moves.unbind(-1)
        each = environment[:, action, state, following].log()[:, self.of_row] * self.counts
        return each.new_zeros(len(each), len(self.lengths)).index_add(1, self.row, each)

    def move_counts(self, num_states: int, num_actions: int) -> Tensor:
        """Counts of moves by action, from a state to the next, (A, S, S)."""
        out = torch.zeros(
            num_actions, num_states, num_states, dtype=torch.int64, device=self.counts.device
        )
        return out.index_put(
            tuple(self.moves[self.of_row].unbind(-1)), self.counts, accumulate=True
        )


@dataclass(frozen=True, eq=False)
class _Coded:
    """Packed sequences (B, T, 2) as whole numbers, a slice of their steps at a time.

    The key of a step tells whether it begins a sequence, its state, and what is seen of its action:
    the action; where it is missing the next state; at the end of a sequence nothing. Last comes its
    label.

    Args:
        table: (B, T, 2); labels: (B, T), 0, ..., num_labels - 1; None where nothing is known.
    """

    table: np.ndarray
    num_states: int
    num_actions: int
    labels: np.ndarray | None = None
    num_labels: int = 1

    @property
    def num_observed(self) -> int:
        """Number of codes of known actions."""
        return self.num_states * self.num_actions

    @property
    def num_codes(self) -> int:
        """Number of codes of an action's observation, "nothing" last."""
        return self.num_observed + self.num_states**2 + 1

    @property
    def bound(self) -> int:
        """Bound of the keys."""
        return 2 * self.num_states * self.num_codes * self.num_labels

    def parts(self) -> list[slice]:
        return list(slices(self.table.shape[0] * self.table.shape[1]))

    def lengths(self) -> np.ndarray:
        """Number of steps of every sequence, (B,)."""
        return (self.table[..., 0] >= 0).sum(-1)

    def _steps(self, part: slice) -> tuple[np.ndarray, ...]:
        """Sequence, state, action, next state (-1 at the end) and first-step mask of a slice."""
        flat, width = self.table.reshape(-1, 2), self.table.shape[1]
        at = np.arange(part.start, part.stop)
        state, action = flat[part].T
        following = np.append(flat[part.start + 1 : part.stop + 1, 0], -1)[: len(at)]
        row, step = np.divmod(at, width)
        following = np.where(step == width - 1, -1, following)
        inside = state >= 0
        return row[inside], state[inside], action[inside], following[inside], step[inside] == 0

    def keys(self, part: slice) -> np.ndarray:
        """Integer keys of the steps of a slice."""
        _, state, action, following, first = self._steps(part)
        unseen = np.where(
            following < 0,
            self.num_codes - 1,
            self.num_observed + state * self.num_states + following,
        )
        code = np.where(action < 0, unseen, state * self.num_actions + action)
        key = np.where(first, state, self.num_states + state) * self.num_codes + code
        if self.labels is None:
            return key
        own = self.labels.reshape(-1)[part][self.table.reshape(-1, 2)[part, 0] >= 0]
        return key * self.num_labels + own

    def moves(self, part: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sequences, moves (action, state, next state) as one number, and their counts.

        Over the steps with known actions.
        """
        row, state, action, following, _ = self._steps(part)
        known = (action >= 0) & (following >= 0)
        num_moves = self.num_actions * self.num_states**2
        first = int(row[0]) if len(row) else 0
        code = (
            ((row - first) * self.num_actions + action) * self.num_states + state
        ) * self.num_states + following
        if len(row) and (int(row[-1]) - first + 1) * num_moves <= TABLE_SIZE:
            every = np.bincount(code[known])
            found = np.flatnonzero(every)
            counts = every[found]
        else:
            found, counts = np.unique(code[known], return_counts=True)
        return first + found // num_moves, found % num_moves, counts


def _distinct_labels(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Place of each label (B, T), and factors p(label | option) of the distinct ones (V, O)."""
    told = (labels != labels[..., :1]).any(-1)
    distinct, place = labels[told].unique(dim=0, return_inverse=True)
    places = torch.zeros(labels.shape[:-1], dtype=torch.int64, device=labels.device)
    places[told] = place + 1
    return places, torch.cat([torch.zeros_like(labels[0, :1]), distinct]).exp()


def log_products(tree: WordTree, leaves: Tensor, log_leaves: Callable[[], Tensor]) -> Tensor:
    """Log of the sum of all entries of every sequence's product, (R, B).

    The logarithms of the leaves are asked for where it underflows.
    """
    out = tree.log_sum(leaves)
    lost = out.isneginf()
    if not lost.any():
        return out
    # numbers too small for products of probabilities: take logs
    rows = lost.any(0).nonzero().ravel()
    return out.index_copy(
        1, rows, log_recursion(log_leaves(), tree.steps(), tree.num_steps, rows.cpu().numpy())
    )


def log_recursion(
    log_leaves: Tensor, words: np.ndarray, lengths: np.ndarray, rows: np.ndarray
) -> Tensor:
    """Log-space recursion for some sequences, (R, rows): slow, safe from underflow."""
    starts, out = np.cumsum(lengths) - lengths, []
    for b in rows:
        own = words[starts[b] : starts[b] + lengths[b]].tolist()
        alpha = log_leaves[:, own[0], 0]  # (R, O)
        for word in own[1:]:
            alpha = _logsumexp(alpha[:, :, None] + log_leaves[:, word])
            if alpha.isneginf().all():
                break  # impossible, whatever follows
        out.append(_logsumexp(alpha[:, :, None]).squeeze(-1))
    return torch.stack(out, -1)


def _log(x: Tensor) -> Tensor:
    """Logarithm; -inf, and no gradient, of nought."""
    return torch.where(x > 0, x, 1.0).log().masked_fill(x <= 0, -torch.inf)


def _logsumexp(x: Tensor) -> Tensor:
    """Log-sum-exp over dim 1; -inf, and no gradient, where all terms are -inf."""
    empty = x.isneginf().all(1, keepdim=True)
    total = torch.where(empty, torch.zeros_like(x), x).logsumexp(1)
    return torch.where(empty.squeeze(1), torch.full_like(total, -torch.inf), total)


_PLANS: dict[int, tuple[weakref.ref, int, Hashable, Any]] = {}
Plan = TypeVar("Plan")


def remember(data: Tensor, sort: Hashable, build: Callable[[Tensor], Plan]) -> Plan:
    """Cache of a plan by tensor, as long as the tensor lives unchanged."""
    key = id(data)
    held = _PLANS.get(key)
    if held is not None and held[0]() is data and held[1:3] == (data._version, sort):
        return held[3]
    plan = build(data.detach())

    def forget(_: Any) -> None:
        _PLANS.pop(key, None)

    _PLANS[key] = (weakref.ref(data, forget), data._version, sort, plan)
    return plan


def version_of(labels: Tensor | None) -> tuple[int, ...]:
    """Identity of labels, sound as long as a plan keeps them: no other tensor has it meanwhile."""
    return () if labels is None else (id(labels), labels._version)


def plan_of(
    trajectories: Tensor, num_states: int, num_actions: int, labels: Tensor | None = None
) -> ChainPlan:
    """Cached plan of a tensor and labels, kept as long as the tensor lives unchanged."""
    return remember(
        trajectories,
        (num_states, num_actions, *version_of(labels)),
        lambda data: ChainPlan.build(data, num_states, num_actions, labels),
    )
