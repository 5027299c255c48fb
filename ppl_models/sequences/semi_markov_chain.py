r"""Hidden semi-Markov chains: sequence distributions with states and durations summed out.

A visit to state k lasts n steps with chance :math:`d_k(n)`, and is followed by one to state l with
chance :math:`A_{kl}`, :math:`A_{kk} = 0`. Over all ways to cut T steps into visits :math:`k_1, n_1,
k_2, n_2, ..., k_M, n_M`, the first of which begins with the sequence,

.. math::

    p(x_1, ..., x_T) = \sum \pi_{k_1} \prod_{m < M} d_{k_m}(n_m) A_{k_m k_{m+1}} \; S_{k_M}(n_M)
    \prod_t F_{s_t}(x_t) ,

:math:`S_k(n) = P(D \ge n)`: the last visit goes on beyond the end (Y. Guédon 2003,
doi:10.1198/1061860032030). With :math:`C_t(k)` the log-density of the first t steps in state k, the
visits that begin and end at t are summed by

.. math::

    \text{out}_t(k) = \sum_{n \le t} d_k(n) \, \text{in}_{t-n+1}(k) \, e^{C_t(k) - C_{t-n}(k)},
    \qquad \text{in}_{t+1}(l) = \sum_k \text{out}_t(k) A_{kl},

with logarithms. This is the forward algorithm of a hidden Markov chain of states and steps since
they were entered, whose moves are all forced but the last of a visit.
"""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor

from ppl_models.parts.distributions import broadcast_shapes
from ppl_models.parts.durations import NEVER, DurationTables
from ppl_models.sequences.hidden_chain import HiddenChain
from ppl_models.sequences.option_chain import draw_categorical


def log_chances(chances: Tensor) -> Tensor:
    """Logs of chances, :data:`~ppl_models.parts.durations.NEVER` of zero; slopes are finite."""
    possible = chances > 0
    return torch.where(possible, torch.where(possible, chances, 1.0).log(), NEVER)


def log_semi_markov_chain(
    initial: Tensor, transitions: Tensor, tables: DurationTables, log_densities: Tensor
) -> Tensor:
    """Log-density of sequences, states and durations summed out; derivatives of any order.

    Args:
        initial: (R, K); transitions: (R, K, K), zero on the diagonal.
        tables: (R, K, D).
        log_densities: of every step in every state, (R, B, T, K); zeros where nothing was seen, as
            after the end of a sequence.

    Returns:
        (R, B).
    """
    steps, most = log_densities.shape[2], tables.durations.shape[-1]
    moves = log_chances(transitions).unsqueeze(1)  # (R, 1, K, K)
    peak = log_densities.detach().amax(-1, keepdim=True)
    peak = torch.where(peak.isfinite(), peak, 0.0)
    total = (log_densities - peak).clamp(min=NEVER).cumsum(2)  # (R, B, T, K)
    backward, survival = (part.flip(-1).unsqueeze(1) for part in tables)
    entered = log_chances(initial).unsqueeze(1).expand_as(total[:, :, 0])
    window = entered.unsqueeze(-1)  # begun, less the log-density of the steps before (R, B, K, n)
    for t in range(steps - 1):
        ended = total[:, :, t] + (window + backward[..., -window.shape[-1] :]).logsumexp(-1)
        entered = (ended.unsqueeze(-1) + moves).logsumexp(-2)
        begun = (entered - total[:, :, t]).unsqueeze(-1)
        window = torch.cat([window[..., max(0, window.shape[-1] + 1 - most) :], begun], -1)
    last = total[:, :, -1] + (window + survival[..., -window.shape[-1] :]).logsumexp(-1)
    found = last.logsumexp(-1)
    found = torch.where(found < NEVER / 2, -torch.inf, found)
    return found + peak.sum((2, 3)) + 0.0 * transitions.sum((-2, -1)).unsqueeze(-1)


class SemiMarkovChain(HiddenChain):
    r"""Distribution of T rows that depend on a hidden semi-Markov chain, states summed out.

    Args:
        initial: :math:`\pi` (\*batch, K); transitions: A (\*batch, K, K), zero on the diagonal.
        tables: logs of d and S, (\*batch, K, D), T <= D or no visit being longer than D.
        emission: the distribution of a row, of batch shape (\*batch, 1, K).
        num_steps: length of a drawn sequence.
    """

    def __init__(
        self,
        initial: Tensor,
        transitions: Tensor,
        tables: DurationTables,
        emission: TorchDistribution,
        num_steps: int,
        validate_args: bool | None = None,
    ) -> None:
        self.tables = tables
        shape = broadcast_shapes(transitions.shape[:-2], tables.durations.shape[:-2])
        transitions = transitions.expand(shape + transitions.shape[-2:])
        super().__init__(initial, transitions, emission, num_steps)

    def expand(self, batch_shape: Any, _instance: Any = None) -> SemiMarkovChain:
        parts = self.initial, self.transitions, self.tables, self.emission
        new = SemiMarkovChain(*parts, self.num_steps)
        new._batch_shape, new.labels = torch.Size(batch_shape), self.labels
        return new

    def _log_chain(
        self, initial: Tensor, transitions: Tensor, densities: Tensor, shape: torch.Size
    ) -> Tensor:
        own = DurationTables(
            *(
                part.expand(shape + part.shape[-2:]).reshape(-1, *part.shape[-2:])
                for part in self.tables
            )
        )
        return log_semi_markov_chain(initial, transitions, own, densities)

    def _draw_path(self, shape: torch.Size) -> Tensor:
        size = self.initial.shape[-1]
        # P(a visit ends | it lasts so long)
        leave = (self.tables.durations - self.tables.survival).exp()
        leave = leave.expand(shape + leave.shape[-2:])
        moves = self.transitions.expand(shape + (size, size))
        state = draw_categorical(self.initial.expand(shape + (size,)))
        age, states = torch.zeros_like(state), [state]
        for _ in range(self.num_steps - 1):
            own = leave.gather(-2, state[..., None, None].expand(*shape, 1, leave.shape[-1]))
            chance = own.squeeze(-2).gather(-1, age.unsqueeze(-1)).squeeze(-1)
            goes = torch.rand_like(chance) < chance
            row = moves.gather(-2, state[..., None, None].expand(*shape, 1, size)).squeeze(-2)
            state = torch.where(goes, draw_categorical(row), state)
            age = torch.where(goes, 0, age + 1)
            states.append(state)
        return torch.stack(states, -1)
