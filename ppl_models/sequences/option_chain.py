r"""State-action sequences with hidden options: distribution with options summed out.

Given the states, the hidden options are a Markov chain whose transition and emission are chosen by
the state, so the likelihood is a product of small matrices, one a step: see
:mod:`ppl_models.sequences.word_tree` for how that product is taken.
"""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions import Dirichlet, TorchDistribution
from torch import Tensor
from torch.distributions import biject_to, constraints, transform_to, transforms

from ppl_models.parts.distributions import broadcast_shapes
from ppl_models.parts.probability_tables import Shares
from ppl_models.sequences.chain_plan import plan_of

# ---------------------------------------------------------------- a Dirichlet over the entries of a
# matrix


class MatrixSimplex(Shares):
    """Constraint of matrices of non-negative numbers that sum to one."""

    event_dim = 2

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        super().__init__()

    def __repr__(self) -> str:
        return "matrices of shares that sum to one"

    def check(self, value: Tensor) -> Tensor:
        return constraints.simplex.check(value.flatten(-2))

    def scaled(self, value: Tensor) -> Tensor:
        return value / value.sum((-2, -1), keepdim=True)


@biject_to.register(MatrixSimplex)
@transform_to.register(MatrixSimplex)
def _biject_to_matrix(constraint: MatrixSimplex) -> transforms.Transform:
    rows, columns = constraint.shape
    return transforms.ComposeTransform(
        [
            biject_to(constraints.simplex),
            transforms.ReshapeTransform(torch.Size([rows * columns]), torch.Size([rows, columns])),
        ]
    )


class DirichletMatrix(TorchDistribution):
    r"""Dirichlet distribution over all entries of a matrix.

    Args:
        concentration: (\\*batch, rows, columns), positive.
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 2)}

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        self.concentration = concentration
        super().__init__(
            concentration.shape[:-2], concentration.shape[-2:], validate_args=validate_args
        )

    def expand(self, batch_shape: torch.Size, _instance: Any = None) -> DirichletMatrix:
        return DirichletMatrix(
            self.concentration.expand(torch.Size(batch_shape) + self.event_shape),
            validate_args=False,
        )

    @property
    def support(self) -> constraints.Constraint:
        return MatrixSimplex((self.event_shape[0], self.event_shape[1]))

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        flat = Dirichlet(self.concentration.flatten(-2)).rsample(torch.Size(sample_shape))
        return flat.unflatten(-1, self.event_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return Dirichlet(self.concentration.flatten(-2), validate_args=False).log_prob(
            value.flatten(-2)
        )


# ---------------------------------------------------------------- the distribution


class OptionChain(TorchDistribution):
    r"""Distribution of a sequence of states and actions, the options summed out.

    .. math::

        p(s, a) = \sum_o \pi_{s_1 o_1} \prod_t L_{s_t o_t a_t} \, \Phi_{a_t s_t s_{t+1}} \,
        H_{s_{t+1} o_t o_{t+1}}

    Missing actions are summed out too. A value is packed, (T, 2): see
    :mod:`ppl_models.data.sequences`.

    Args:
        initial: (\*batch, S, O); low: (\*batch, S, O, A); high: (\*batch, S, O, O); environment:
            (\*batch, A, S, S).
        num_steps: length of a drawn sequence.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.independent(constraints.integer_interval(-1, 2**31), 2)
    latent = "options"  # that labels of steps speak of
    labels: Tensor | None = None

    def __init__(
        self,
        initial: Tensor,
        low: Tensor,
        high: Tensor,
        environment: Tensor,
        num_steps: int,
        validate_args: bool | None = None,
    ) -> None:
        self.parts = (initial, low, high, environment)
        events = (2, 3, 3, 3)
        shapes = [
            part.shape[: part.dim() - event] for part, event in zip(self.parts, events, strict=True)
        ]
        self._own = broadcast_shapes(*shapes)
        self.num_steps = num_steps
        super().__init__(self._own, torch.Size([num_steps, 2]), validate_args=False)

    def expand(self, batch_shape: torch.Size, _instance: Any = None) -> OptionChain:
        new = OptionChain(*self.parts, self.num_steps)
        new._batch_shape, new.labels = torch.Size(batch_shape), self.labels
        return new

    def with_labels(self, table: Tensor) -> OptionChain:
        """Distribution of sequences and labels of their options.

        Args:
            table: log p(label | option) of every step, (B, T, O), zeros where nothing is known;
                where options stand by their ages, each option's for all of them.
        """
        new = self.expand(self.batch_shape)
        new.labels = table.repeat_interleave(self.parts[0].shape[-1] // table.shape[-1], -1)
        return new

    def _flat(self) -> list[Tensor]:
        """Parameters with their own batch flattened, (R, ...)."""
        return [
            part.expand(self._own + part.shape[part.dim() - event :]).reshape(
                -1, *part.shape[part.dim() - event :]
            )
            for part, event in zip(self.parts, (2, 3, 3, 3), strict=True)
        ]

    def log_prob(self, value: Tensor) -> Tensor:
        shape = broadcast_shapes(self.batch_shape, value.shape[:-2])
        flat = self._flat()
        num_actions, num_states = self.parts[3].shape[-3], self.parts[3].shape[-1]
        labels = self.labels
        if len(shape) == 0:
            return self._rows(flat, value[None], num_states, num_actions, labels).reshape(())
        if (
            self._own[-1:] in (torch.Size(), torch.Size([1]))
            and value.shape[:-2].numel() == value.shape[-3]
        ):
            data = value if value.dim() == 3 else value.reshape(value.shape[-3:])
            rows = self._rows(flat, data, num_states, num_actions, labels)  # (R, B)
            return rows.reshape(self._own[:-1] + rows.shape[-1:]).expand(shape)
        index = (
            torch.arange(len(flat[0]), device=value.device)
            .reshape(self._own)
            .expand(shape)
            .reshape(-1)
        )
        data = value.expand(shape + value.shape[-2:]).reshape(-1, *value.shape[-2:])
        if labels is not None:
            labels = labels.expand(shape + labels.shape[-2:]).reshape(-1, *labels.shape[-2:])
        pairs = [
            self._rows(
                [p[i : i + 1] for p in flat],
                data[n : n + 1],
                num_states,
                num_actions,
                None if labels is None else labels[n : n + 1],
            )
            for n, i in enumerate(index)
        ]
        return torch.cat(pairs).reshape(shape)

    @staticmethod
    def _rows(
        flat: list[Tensor], data: Tensor, num_states: int, num_actions: int, labels: Tensor | None
    ) -> Tensor:
        plan = plan_of(data, num_states, num_actions, labels)
        return plan.log_actions(*flat) + plan.log_moves(flat[3])

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        shape = torch.Size(sample_shape) + self.batch_shape
        with torch.no_grad():
            flat = self._flat()
            index = (
                torch.arange(len(flat[0]), device=flat[0].device)
                .reshape(self._own)
                .expand(shape)
                .reshape(-1)
            )
            state, _, action = draw_paths(
                [part[index] if len(part) > 1 else part for part in flat],
                len(index),
                self.num_steps,
            )
        return torch.stack([state, action], -1).reshape(shape + self.event_shape)


def draw_paths(flat: list[Tensor], num_rows: int, num_steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw states, options and actions (num_rows, num_steps); parameters (num_rows or 1, ...)."""
    initial, low, high, environment = flat
    if len(initial) > 1:
        row = torch.arange(num_rows, device=initial.device)
    else:
        row = torch.zeros(num_rows, dtype=torch.long)
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
    """Draw one category a row, (N, K) -> (N,)."""
    total = probabilities.cumsum(-1)
    uniform = (
        torch.rand(total.shape[:-1] + (1,), dtype=total.dtype, device=total.device)
        * total[..., -1:]
    )
    return torch.searchsorted(total, uniform, right=True).squeeze(-1).clamp(max=total.shape[-1] - 1)
