r"""A rival of hidden options that has none: policies that look at what was done or seen a step
before.

With counts :math:`n_{sca}` of action a in state s after c, the action (or the state) a step before,

.. math::

    \log p(a_{1:T} \mid s_{1:T}) = \sum_{sca} n_{sca} \log \frac{n_{sca}}{n_{sc\cdot}}, \qquad
    \text{at a price of} \quad (A - 1) \sum_{sc:\, n_{sc\cdot} > 0} \log n_{sc\cdot}

(Schwarz 1978), each row read from its own number of steps, as the policies of options are
(:meth:`OptionsStructure.bic_price`). Hidden options make the present depend on the past as well;
where this law pays better than any number of them, the past that is seen is enough and options are
patches of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

MEMORIES = ("action", "state")


def memory_bic(
    packed: Tensor, num_states: int, num_actions: int, memory: str | None
) -> float | None:
    """-2 log-likelihood of the actions given the states and the price of the policies; None where
    an action is missing that a state follows.

    Args:
        packed: (B, T, 2), -1 after the end.
        num_states, num_actions: S and A.
        memory: "action" or "state", that of the step before; None for a policy that looks at the
            present state alone.
    """
    state, action = packed[..., 0].long(), packed[..., 1].long()
    known = (state >= 0) & (action >= 0)
    if bool(((state[:, :-1] >= 0) & (action[:, :-1] < 0) & (state[:, 1:] >= 0)).any()):
        return None
    before = torch.zeros_like(state)  # 0: the first step
    if memory is not None:
        before[:, 1:] = (action if memory == "action" else state)[:, :-1] + 1
    rows, place = torch.unique(
        (before * num_states + state)[known], return_inverse=True
    )  # those that are seen, R
    counts = (
        torch.bincount(place * num_actions + action[known], minlength=len(rows) * num_actions)
        .double()
        .reshape(-1, num_actions)
    )
    total = counts.sum(-1)
    log_likelihood = (
        torch.special.xlogy(counts, counts).sum() - torch.special.xlogy(total, total).sum()
    )
    return float(-2 * log_likelihood + (num_actions - 1) * total.log().sum())
