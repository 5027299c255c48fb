r"""Actions along continuous states with hidden options: distribution of the actions.

As in :mod:`ppl_models.sequences.option_chain` the likelihood is a product of small matrices, one a
step, but every step has a matrix of its own: its state chose the transition and the emission
through softmax-linear policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from ppl_models.parts.distributions import broadcast_shapes
from ppl_models.parts.policies import Policy
from ppl_models.sequences.chain_plan import log_products, remember, version_of
from ppl_models.sequences.option_chain import draw_categorical
from ppl_models.sequences.word_tree import WordTree

PERSISTENCE = 0.9  # of the stand-in states of a draw without data


def switch_order(num_options: int) -> Tensor:
    """Order of each option's high-level classes, itself first, then rising, (O, O)."""
    options = range(num_options)
    return torch.tensor([[o, *(other for other in options if other != o)] for o in options])


def _logits(weights: Tensor, intercepts: Tensor, features: Tensor) -> Tensor:
    """Log-probabilities (R, N, O, C), class 0 with log-odds 0.

    weights (R, O, C - 1, F), intercepts (R, O, C - 1), features (R or 1, N, F).
    """
    restarts, options, classes, width = weights.shape
    flat = features @ weights.reshape(restarts, options * classes, width).mT  # (R, N, O (C - 1))
    free = flat.reshape(restarts, -1, options, classes) + intercepts[:, None]
    return torch.nn.functional.pad(free, (1, 0)).log_softmax(-1)


def log_policies(
    params: Mapping[str, Tensor], states: Tensor, policy: Policy
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of both policies at every state.

    Args:
        params: by site, (R, ...).
        states: (N, D).

    Returns:
        log P(action | state, option) (R, N, O, A) and log P(new option | state, old option) (R, N,
        O, O).
    """
    features = policy.features(states, params)
    low = _logits(params["low_weights"], params["low_intercepts"], features)
    num_options = low.shape[-2]
    if num_options == 1:
        return low, torch.zeros_like(low[..., :1])
    # stay, then the others
    switch = _logits(params["high_weights"], params["high_intercepts"], features)
    place = switch_order(num_options).argsort(-1).to(switch.device)
    return low, switch.gather(-1, place.expand(switch.shape))


@dataclass(frozen=True, eq=False)
class PolicyPlan:
    """Packed sequences, their steps one after another; see :meth:`build`.

    Args:
        tree: the order of the products, every step a word of its own.
        states: (N, D); actions: (N,), 0 where missing; seen: (N,) bool; first: (N,) bool, where a
            sequence begins.
        told: log p(label | option) of each step, (N, O); None where nothing is known.
        labels: table that these are of, (B, T, O).
    """

    tree: WordTree
    states: Tensor
    actions: Tensor
    seen: Tensor
    first: Tensor
    told: Tensor | None = None
    labels: Tensor | None = None

    @property
    def lengths(self) -> np.ndarray:
        """Number of steps of every sequence, (B,)."""
        return self.tree.num_steps

    @classmethod
    def build(cls, data: Tensor, labels: Tensor | None = None) -> PolicyPlan:
        """Plan for packed sequences (B, T, D + 1), and log p(label | option) (B, T, O)."""
        inside = ~data[..., 0].isnan()
        lengths = inside.sum(-1).cpu().numpy()
        steps = data[inside]  # (N, D + 1)
        first = torch.zeros(len(steps), dtype=torch.bool, device=data.device)
        first[torch.from_numpy(np.cumsum(lengths) - lengths)] = True
        action = steps[:, -1]
        return cls(
            tree=WordTree.build(
                np.arange(len(steps)), lengths, len(steps), data.device, shared=False
            ),
            states=steps[:, :-1].contiguous(),
            actions=action.nan_to_num(nan=0.0).to(torch.int64),
            seen=~action.isnan(),
            first=first,
            told=None if labels is None else labels[inside],
            labels=labels,
        )

    def log_leaves(self, params: Mapping[str, Tensor], policy: Policy) -> Tensor:
        """Log of the matrices of all steps, (R, N, O, O).

        One that begins a sequence holds one row and else zeros.
        """
        low, high = log_policies(params, self.states, policy)
        index = self.actions[:, None, None].expand(*low.shape[1:3], 1)
        emission = low.gather(-1, index.expand(len(low), *index.shape)).squeeze(-1)  # (R, N, O)
        emission = torch.where(self.seen[:, None], emission, torch.zeros_like(emission))
        emission = emission if self.told is None else emission + self.told
        initial = params["initial"].log()  # (R, O)
        row = torch.full_like(high[0, 0], -torch.inf)
        row[0] = 0.0
        begin = initial[:, None, None, :] + row
        return torch.where(self.first[:, None, None], begin, high) + emission[:, :, None, :]

    def log_actions(self, params: Mapping[str, Tensor], policy: Policy) -> Tensor:
        r"""Log-probability of the actions, (R, B), options summed out."""
        return self.log_sum(self.log_leaves(params, policy))

    def log_sum(self, log_leaves: Tensor) -> Tensor:
        """Log-sum of the products of the steps' matrices, (R, B)."""
        return log_products(self.tree, log_leaves.exp(), lambda: log_leaves)


def policy_plan_of(data: Tensor, labels: Tensor | None = None) -> PolicyPlan:
    """Cached plan of a tensor and labels, kept as long as the tensor lives unchanged."""
    return remember(
        data, ("policies", *version_of(labels)), lambda data: PolicyPlan.build(data, labels)
    )


class PolicyChain(TorchDistribution):
    r"""Distribution of a sequence's actions given its states, the options summed out.

    .. math::

        p(a \mid s) = \sum_o \pi_{o_1} \prod_t P(a_t \mid s_t, o_t) \, P(o_{t+1} \mid s_{t+1}, o_t)

    A missing action contributes a factor of one. A value is packed, (T, D + 1): the state, then the
    action; NaN for a missing action and after the end. The density is that of the actions; a draw
    takes stand-in states: independent stationary autoregressions with correlation 0.9 from step to
    step, whose means and standard deviations are the units' centres and widths.

    Args:
        params: by site, (\*batch, \*shape).
        shapes: of each site, without batch.
        policy: the features.
        num_features: D.
        num_steps: length of a drawn sequence.
        units: centre and width of every column of the state; None for 0 and 1.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.independent(constraints.real, 2)
    latent = "options"  # that labels of steps speak of
    labels: Tensor | None = None

    def __init__(
        self,
        params: Mapping[str, Tensor],
        shapes: Mapping[str, tuple[int, ...]],
        policy: Policy,
        num_features: int,
        num_steps: int,
        units: tuple[tuple[float, float], ...] | None = None,
    ) -> None:
        self.params, self.shapes, self.policy = dict(params), dict(shapes), policy
        self.num_features, self.num_steps, self.units = num_features, num_steps, units
        self._own = broadcast_shapes(
            *(v.shape[: v.dim() - len(shapes[name])] for name, v in params.items())
        )
        super().__init__(self._own, torch.Size([num_steps, num_features + 1]), validate_args=False)

    def expand(self, batch_shape: torch.Size, _instance: Any = None) -> PolicyChain:
        sizes = (self.num_features, self.num_steps)
        new = PolicyChain(self.params, self.shapes, self.policy, *sizes, self.units)
        new._batch_shape, new.labels = torch.Size(batch_shape), self.labels
        return new

    def with_labels(self, table: Tensor) -> PolicyChain:
        """Distribution of actions and labels of their options.

        Args:
            table: log p(label | option) of every step, (B, T, O), zeros where nothing is known.
        """
        new = self.expand(self.batch_shape)
        new.labels = table
        return new

    def _flat(self) -> dict[str, Tensor]:
        """Parameters with their own batch flattened, (R, ...)."""
        return {
            n: v.expand(self._own + self.shapes[n]).reshape(-1, *self.shapes[n])
            for n, v in self.params.items()
        }

    def log_prob(self, value: Tensor) -> Tensor:
        shape, labels = broadcast_shapes(self.batch_shape, value.shape[:-2]), self.labels
        flat = self._flat()
        if len(shape) == 0:
            plan = policy_plan_of(value[None], labels)
            return plan.log_actions(flat, self.policy).reshape(())
        if (
            self._own[-1:] in (torch.Size(), torch.Size([1]))
            and value.shape[:-2].numel() == value.shape[-3]
        ):
            data = value if value.dim() == 3 else value.reshape(value.shape[-3:])
            rows = policy_plan_of(data, labels).log_actions(flat, self.policy)  # (R, B)
            return rows.reshape(self._own[:-1] + rows.shape[-1:]).expand(shape)
        index = (
            torch.arange(self._own.numel(), device=value.device)
            .reshape(self._own)
            .expand(shape)
            .reshape(-1)
        )
        data = value.expand(shape + value.shape[-2:]).reshape(-1, *value.shape[-2:])
        if labels is not None:
            labels = labels.expand(shape + labels.shape[-2:]).reshape(-1, *labels.shape[-2:])
        pairs = [
            policy_plan_of(
                data[n : n + 1], None if labels is None else labels[n : n + 1]
            ).log_actions({k: v[i : i + 1] for k, v in flat.items()}, self.policy)
            for n, i in enumerate(index)
        ]
        return torch.cat(pairs).reshape(shape)

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        shape = torch.Size(sample_shape) + self.batch_shape
        with torch.no_grad():
            flat = self._flat()
            kind: dict[str, Any] = {
                "dtype": flat["initial"].dtype,
                "device": flat["initial"].device,
            }
            rows = shape.numel()
            noise = torch.randn((self.num_steps, rows, self.num_features), **kind)
            states = [noise[0]]
            for step in noise[1:]:
                states.append(PERSISTENCE * states[-1] + (1 - PERSISTENCE**2) ** 0.5 * step)
            along = torch.stack(states, 1)  # (rows, T, D)
            if self.units is not None:
                centres, widths = along.new_tensor(self.units).unbind(-1)
                along = centres + widths * along
            index = (
                torch.arange(self._own.numel(), device=along.device)
                .reshape(self._own)
                .expand(shape)
                .reshape(-1)
            )
            actions = torch.empty(rows, self.num_steps, **kind)
            for own in index.unique():
                picked = index == own
                one = {name: value[own : own + 1] for name, value in flat.items()}
                actions[picked] = draw_along(one, along[picked], self.policy)[1].to(actions)
        return torch.cat([along, actions[..., None]], -1).reshape(shape + self.event_shape)


def draw_along(
    params: Mapping[str, Tensor], states: Tensor, policy: Policy
) -> tuple[Tensor, Tensor]:
    """Draw options and actions along given states.

    Args:
        params: by site, (1, ...).
        states: (B, T, D), NaN after the end.

    Returns:
        Options and actions, (B, T) each; whatever stands after the end means nothing.
    """
    rows, steps = states.shape[:2]
    low, high = (
        part[0] for part in log_policies(params, states.nan_to_num(nan=0.0).flatten(0, 1), policy)
    )
    low, high = low.exp().unflatten(0, (rows, steps)), high.exp().unflatten(0, (rows, steps))
    each = torch.arange(rows, device=states.device)
    option = draw_categorical(params["initial"].expand(rows, -1))
    options, actions = [], []
    for t in range(steps):
        if t > 0:
            option = draw_categorical(high[each, t, option])
        options.append(option)
        actions.append(draw_categorical(low[each, t, option]))
    return torch.stack(options, -1), torch.stack(actions, -1)
