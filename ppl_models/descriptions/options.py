"""Descriptions of hidden-option models for engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ppl_models.parts.policies import Policy


@dataclass(frozen=True)
class ChainDescription:
    """Description of a hidden-option model: site names, sizes and Dirichlet priors.

    Args:
        num_states, num_actions, num_options: S, A and O.
        initial, low, high, environment: names of the sites, (S, O), (S, O, A), (S, O, O), (A, S,
            S).
        concentration: of every Dirichlet prior.
        stickiness: added to the concentration of staying in an option.
        termination, choice: names of the sites (S, O), (S, O) that stand in the place of ``high``
            where it is made of the chance that an option ends and the choice of the next; None
            where ``high`` is free.
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
    r"""High-level policy (\*batch, S, O, O) of termination and choice, each (\*batch, S, O)."""
    return torch.diag_embed(1 - termination) + termination[..., None] * choice[..., None, :]


def with_high(chain: ChainDescription, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters with the high-level policy among them, where it is not a site of its own."""
    if (
        chain.termination is None
        or chain.choice is None
        or chain.high in params
        or chain.termination not in params
    ):
        return dict(params)
    return {
        **params,
        chain.high: high_of_termination(params[chain.termination], params[chain.choice]),
    }


@dataclass(frozen=True)
class PolicyDescription:
    """Description of a hidden-option model along continuous states.

    Args:
        num_features, num_actions, num_options: D, A and O.
        policy: the features that both policies see.
        prior_scale: standard deviation of the Normal prior of weights and intercepts.
        concentration: of the Dirichlet prior of ``initial``.

    Sites: ``initial`` (O,), ``low_weights`` (O, A - 1, F), ``low_intercepts`` (O, A - 1), and, with
    several options, ``high_weights`` (O, O - 1, F), ``high_intercepts`` (O, O - 1); the policy's
    own beside them.
    """

    num_features: int
    num_actions: int
    num_options: int
    policy: Policy
    prior_scale: float
    concentration: float
