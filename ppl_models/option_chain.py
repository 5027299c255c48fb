r"""State-action sequences steered by a hidden option: their law with the options summed out, and its parts.

Given the states, the hidden options are a Markov chain whose transition and emission are chosen by the state, so the
likelihood is a product of small matrices, one a step: see :mod:`ppl_models.word_tree` for how that product is taken.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from pyro.distributions import Dirichlet, TorchDistribution
from torch import Tensor
from torch.distributions import biject_to, constraints, transform_to, transforms

from ppl_models.distributions import broadcast_shapes
from ppl_models.word_tree import WordTree, unique_codes

__all__ = [
    "ChainDescription",
    "ChainPlan",
    "DirichletMatrix",
    "MatrixSimplex",
    "OptionChain",
    "draw_categorical",
    "draw_paths",
    "high_of_termination",
    "log_recursion",
    "plan_of",
    "products",
    "remember",
    "with_high",
]


@dataclass(frozen=True)
class ChainDescription:
    """How a model of hidden options describes itself: the names of its sites, its sizes and its Dirichlet priors.

    Args:
        num_states, num_actions, num_options: S, A and O.
        initial, low, high, environment: names of the sites, (S, O), (S, O, A), (S, O, O), (A, S, S).
        concentration: of every Dirichlet prior.
        stickiness: added to the concentration of staying in an option.
        termination, choice: names of the sites (S, O), (S, O) that stand in the place of ``high`` where it is made of the
            chance that an option ends and the choice of the next; None where ``high`` is free.
    """

    num_states: int
    num_actions: int
    num_options: int
    initial: str
    low: str
    high: str
    environment: str
    concentration: float
    stickiness: float
    termination: str | None = None
    choice: str | None = None


def high_of_termination(termination: Tensor, choice: Tensor) -> Tensor:
    r"""(\*batch, S, O), (\*batch, S, O) -> (\*batch, S, O, O): kept, or ended and chosen anew (itself perhaps)."""
    return torch.diag_embed(1 - termination) + termination[..., None] * choice[..., None, :]


def with_high(chain: ChainDescription, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters with the high-level policy among them, where it is not a site of its own."""
    if chain.termination is None or chain.choice is None or chain.high in params or chain.termination not in params:
        return dict(params)
    return {**params, chain.high: high_of_termination(params[chain.termination], params[chain.choice])}


# ---------------------------------------------------------------- a Dirichlet over the entries of a matrix


class MatrixSimplex(constraints.Constraint):
    """Matrices of non-negative numbers that sum to one."""

    event_dim = 2
    is_discrete = False

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        return constraints.simplex.check(value.flatten(-2))


@biject_to.register(MatrixSimplex)
@transform_to.register(MatrixSimplex)
def _biject_to_matrix(constraint: MatrixSimplex) -> transforms.Transform:
    rows, columns = constraint.shape
    return transforms.ComposeTransform(
        [biject_to(constraints.simplex), transforms.ReshapeTransform(torch.Size([rows * columns]), torch.Size([rows, columns]))]
    )


class DirichletMatrix(TorchDistribution):
    """A Dirichlet distribution over all entries of a matrix.

    Args:
        concentration: (\\*batch, rows, columns), positive.
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 2)}

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        self.concentration = concentration
        super().__init__(concentration.shape[:-2], concentration.shape[-2:], validate_args=validate_args)

    def expand(self, batch_shape: torch.Size, _instance: Any = None) -> DirichletMatrix:
        return DirichletMatrix(self.concentration.expand(torch.Size(batch_shape) + self.event_shape), validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        return MatrixSimplex((self.event_shape[0], self.event_shape[1]))

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        flat = Dirichlet(self.concentration.flatten(-2)).rsample(torch.Size(sample_shape))
        return flat.unflatten(-1, self.event_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return Dirichlet(self.concentration.flatten(-2), validate_args=False).log_prob(value.flatten(-2))


# ---------------------------------------------------------------- what of the data never changes


@dataclass(frozen=True, eq=False)
class ChainPlan:
    """The distinct steps of packed sequences, and how they follow each other; see :meth:`build`.

    Args:
        tree: the order of the products.
        words: (N,), the step of every time, sequences one after another; lengths: (B,).
        num_first: leaves that begin a sequence; they come first.
        states: (L,), the state of every leaf; emissions: (L,), its row in the table of emissions.
        emission_state, emission_action: (E,), observed actions of that table.
        gap_state, gap_next: (G,), missing actions between two states, next in the table; then one row of ones.
        moves: (M, 3), the distinct (action, state, next state); of_row: (M',) their places, row (M',) of which
            sequence, counts (M',) how often.
    """

    tree: WordTree
    words: np.ndarray
    lengths: np.ndarray
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

    @classmethod
    def build(cls, trajectories: Tensor, num_states: int, num_actions: int) -> ChainPlan:
        """Plan for packed sequences (B, T, 2)."""
        device = trajectories.device
        table = trajectories.cpu().numpy()
        inside = table[..., 0] >= 0
        lengths = inside.sum(-1)
        state, action = table[inside].T.astype(np.int64)
        ends = np.cumsum(lengths)
        first, last = np.zeros(len(state), dtype=bool), np.zeros(len(state), dtype=bool)
        first[ends - lengths], last[ends - 1] = True, True
        following = np.append(state[1:], 0)
        missing = action < 0
        num_observed, num_gaps = num_states * num_actions, num_states * num_states
        num_codes = num_observed + num_gaps + 1
        code = np.where(missing, num_observed + state * num_states + following, state * num_actions + action)
        code = np.where(missing & last, num_codes - 1, code)
        key = ((~first) * num_states + state) * num_codes + code
        leaves, words = unique_codes(key, 2 * num_states * num_codes)
        used, emissions = np.unique(leaves % num_codes, return_inverse=True)
        observed = used[used < num_observed]
        gaps = used[(used >= num_observed) & (used < num_codes - 1)] - num_observed
        if len(used) == len(observed) + len(gaps):  # the row of ones is there all the same
            used = np.append(used, num_codes - 1)
        leaf_state = leaves // num_codes % num_states
        known = ~missing & ~last
        sequence = np.repeat(np.arange(len(lengths)), lengths)[known]
        move = (action[known] * num_states + state[known]) * num_states + following[known]
        distinct, place = unique_codes(move, num_actions * num_gaps)
        pairs, inverse = unique_codes(sequence * max(1, len(distinct)) + place, len(lengths) * max(1, len(distinct)))
        counts = np.bincount(inverse, minlength=len(pairs))
        split = np.stack([distinct // num_gaps, distinct // num_states % num_states, distinct % num_states], -1)

        def tensor(values: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(device)

        return cls(
            tree=WordTree.build(words, lengths, len(leaves), device),
            words=words,
            lengths=lengths,
            num_first=int((leaves < num_states * num_codes).sum()),
            states=tensor(leaf_state),
            emissions=tensor(emissions),
            emission_state=tensor(observed // num_actions),
            emission_action=tensor(observed % num_actions),
            gap_state=tensor(gaps // num_states),
            gap_next=tensor(gaps % num_states),
            moves=tensor(split),
            of_row=tensor(pairs % max(1, len(distinct))),
            row=tensor(pairs // max(1, len(distinct))),
            counts=tensor(counts),
        )

    def emission_table(self, low: Tensor, environment: Tensor) -> Tensor:
        """(R, E + G + 1, O): P(action or, where missing, next state | state, option); ones where nothing was seen."""
        seen = low[:, self.emission_state, :, self.emission_action].movedim(0, 1)  # indices apart go first: (E, R, O)
        gap = environment[:, :, self.gap_state, self.gap_next]  # (R, A, G)
        unseen = (low[:, self.gap_state] * gap.mT[:, :, None, :]).sum(-1)  # (R, G, O)
        return torch.cat([seen, unseen, torch.ones_like(low[:, :1, :, 0])], 1)

    def leaves(self, initial: Tensor, low: Tensor, high: Tensor, environment: Tensor) -> Tensor:
        """The matrices of the distinct steps, (R, L, O, O); one that begins a sequence holds one row and else zeros."""
        emission = self.emission_table(low, environment)[:, self.emissions]  # (R, L, O)
        num, size = self.num_first, initial.shape[-1]
        first = torch.nn.functional.pad((initial[:, self.states[:num]] * emission[:, :num])[:, :, None, :], (0, 0, 0, size - 1))
        return torch.cat([first, high[:, self.states[num:]] * emission[:, num:, None, :]], 1)

    def log_actions(self, initial: Tensor, low: Tensor, high: Tensor, environment: Tensor) -> Tensor:
        r"""(R, B), :math:`\log \sum_{options} P(s_1, o_1) \prod_t P(a_t \mid s_t, o_t) P(o_{t+1} \mid s_{t+1}, o_t)`."""
        leaves = self.leaves(initial, low, high, environment)
        return products(self.tree, leaves, leaves.log, self.words, self.lengths)

    def log_moves(self, environment: Tensor) -> Tensor:
        """(R, B), the log-probability of the next states given states and actions, over steps with known actions."""
        action, state, following = self.moves.unbind(-1)
        each = environment[:, action, state, following].log()[:, self.of_row] * self.counts
        return each.new_zeros(len(each), len(self.lengths)).index_add(1, self.row, each)


def products(
    tree: WordTree, leaves: Tensor, log_leaves: Callable[[], Tensor], words: np.ndarray, lengths: np.ndarray
) -> Tensor:
    """(R, B), the log of the sum of all entries of every sequence's product; the logs are asked for where it underflows."""
    out = tree.log_sum(leaves)
    lost = out.isneginf()
    if not lost.any():
        return out
    rows = lost.any(0).nonzero().ravel()  # numbers too small for products of probabilities: take logs
    return out.index_copy(1, rows, log_recursion(log_leaves(), words, lengths, rows.cpu().numpy()))


def log_recursion(log_leaves: Tensor, words: np.ndarray, lengths: np.ndarray, rows: np.ndarray) -> Tensor:
    """The same step by step with logarithms, for some sequences: slow, and safe from underflow. (R, rows)."""
    starts, out = np.cumsum(lengths) - lengths, []
    for b in rows:
        own = words[starts[b] : starts[b] + lengths[b]]
        alpha = log_leaves[:, own[0], 0]  # (R, O)
        for word in own[1:]:
            alpha = _logsumexp(alpha[:, :, None] + log_leaves[:, word])
        out.append(_logsumexp(alpha[:, :, None]).squeeze(-1))
    return torch.stack(out, -1)


def _logsumexp(x: Tensor) -> Tensor:
    """Over dim 1; -inf, and no gradient, where all terms are -inf."""
    empty = x.isneginf().all(1, keepdim=True)
    total = torch.where(empty, torch.zeros_like(x), x).logsumexp(1)
    return torch.where(empty.squeeze(1), torch.full_like(total, -torch.inf), total)


_PLANS: dict[int, tuple[weakref.ref, int, Hashable, Any]] = {}
Plan = TypeVar("Plan")


def remember(data: Tensor, sort: Hashable, build: Callable[[Tensor], Plan]) -> Plan:
    """What ``build`` makes of a tensor, kept as long as the tensor lives unchanged and no other sort is asked for."""
    key = id(data)
    held = _PLANS.get(key)
    if held is not None and held[0]() is data and held[1:3] == (data._version, sort):
        kept: Plan = held[3]
        return kept
    plan = build(data.detach())

    def forget(_: Any) -> None:
        _PLANS.pop(key, None)

    _PLANS[key] = (weakref.ref(data, forget), data._version, sort, plan)
    return plan


def plan_of(trajectories: Tensor, num_states: int, num_actions: int) -> ChainPlan:
    """The plan of a tensor, kept as long as the tensor lives unchanged."""
    return remember(trajectories, (num_states, num_actions), lambda data: ChainPlan.build(data, num_states, num_actions))


# ---------------------------------------------------------------- the distribution


class OptionChain(TorchDistribution):
    r"""Law of a sequence of states and actions, the options summed out.

    .. math:: p(s, a) = \sum_o \pi_{s_1 o_1} \prod_t L_{s_t o_t a_t} \, \Phi_{a_t s_t s_{t+1}} \, H_{s_{t+1} o_t o_{t+1}}

    Missing actions are summed out too. A value is packed, (T, 2): see :mod:`ppl_models.trajectories`.

    Args:
        initial: (\*batch, S, O); low: (\*batch, S, O, A); high: (\*batch, S, O, O); environment: (\*batch, A, S, S).
        num_steps: length of a drawn sequence.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.independent(constraints.integer_interval(-1, 2**31), 2)

    def __init__(
        self, initial: Tensor, low: Tensor, high: Tensor, environment: Tensor, num_steps: int, validate_args: bool | None = None
    ) -> None:
        self.parts = (initial, low, high, environment)
        events = (2, 3, 3, 3)
        shapes = [part.shape[: part.dim() - event] for part, event in zip(self.parts, events, strict=True)]
        self._own = broadcast_shapes(*shapes)
        self.num_steps = num_steps
        super().__init__(self._own, torch.Size([num_steps, 2]), validate_args=False)

    def expand(self, batch_shape: torch.Size, _instance: Any = None) -> OptionChain:
        new = OptionChain(*self.parts, self.num_steps)
        new._batch_shape = torch.Size(batch_shape)
        return new

    def _flat(self) -> list[Tensor]:
        """Parameters with their own batch flattened, (R, ...)."""
        return [
            part.expand(self._own + part.shape[part.dim() - event :]).reshape(-1, *part.shape[part.dim() - event :])
            for part, event in zip(self.parts, (2, 3, 3, 3), strict=True)
        ]

    def log_prob(self, value: Tensor) -> Tensor:
        shape = broadcast_shapes(self.batch_shape, value.shape[:-2])
        flat = self._flat()
        num_actions, num_states = self.parts[3].shape[-3], self.parts[3].shape[-1]
        if len(shape) == 0:
            return self._rows(flat, value[None], num_states, num_actions).reshape(())
        if self._own[-1:] in (torch.Size(), torch.Size([1])) and value.shape[:-2].numel() == value.shape[-3]:
            data = value if value.dim() == 3 else value.reshape(value.shape[-3:])
            rows = self._rows(flat, data, num_states, num_actions)  # (R, B)
            return rows.reshape(self._own[:-1] + rows.shape[-1:]).expand(shape)
        index = torch.arange(len(flat[0]), device=value.device).reshape(self._own).expand(shape).reshape(-1)
        data = value.expand(shape + value.shape[-2:]).reshape(-1, *value.shape[-2:])
        pairs = [self._rows([p[i : i + 1] for p in flat], data[n : n + 1], num_states, num_actions) for n, i in enumerate(index)]
        return torch.cat(pairs).reshape(shape)

    @staticmethod
    def _rows(flat: list[Tensor], data: Tensor, num_states: int, num_actions: int) -> Tensor:
        plan = plan_of(data, num_states, num_actions)
        return plan.log_actions(*flat) + plan.log_moves(flat[3])

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        shape = torch.Size(sample_shape) + self.batch_shape
        with torch.no_grad():
            flat = self._flat()
            index = torch.arange(len(flat[0]), device=flat[0].device).reshape(self._own).expand(shape).reshape(-1)
            state, _, action = draw_paths([part[index] if len(part) > 1 else part for part in flat], len(index), self.num_steps)
        return torch.stack([state, action], -1).reshape(shape + self.event_shape)


def draw_paths(flat: list[Tensor], num_rows: int, num_steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """States, options and actions of ``num_rows`` sequences, each (num_rows, num_steps); parameters (num_rows or 1, ...)."""
    initial, low, high, environment = flat
    row = torch.arange(num_rows, device=initial.device) if len(initial) > 1 else torch.zeros(num_rows, dtype=torch.long)
    num_options = initial.shape[-1]
    start = draw_categorical(initial.flatten(-2)[row])
    state, option = start // num_options, start % num_options
    out = []
    for _ in range(num_steps):
        action = draw_categorical(low[row, state, option])
        out.append(torch.stack([state, option, action]))
        state = draw_categorical(environment[row, action, state])
        option = draw_categorical(high[row, state, option])
    states, options, actions = torch.stack(out, -1).unbind(0)
    return states, options, actions


def draw_categorical(probabilities: Tensor) -> Tensor:
    """One draw a row, (N, K) -> (N,)."""
    total = probabilities.cumsum(-1)
    uniform = torch.rand(total.shape[:-1] + (1,), dtype=total.dtype, device=total.device) * total[..., -1:]
    return torch.searchsorted(total, uniform, right=True).squeeze(-1).clamp(max=total.shape[-1] - 1)
