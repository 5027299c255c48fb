"""Starts of hidden options: policies at random, counted parts, moments."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.options.moments import (
    REFINING,
    START_MIX,
    MomentWarning,
    count_moments,
    refine_moments,
    state_by_state,
)
from ppl_models.descriptions.options import ChainDescription, with_high
from ppl_models.sequences.chain_plan import ChainPlan


def moment_start(
    data: Tensor, num_states: int, num_actions: int, num_options: int
) -> tuple[Tensor, Tensor] | None:
    """Policies ``low`` (S, O, A) and ``high`` (S, O, O) by moments, or None.

    Warns:
        MomentWarning: why there is no such start.
    """
    try:
        moments = count_moments(data, num_states, num_actions)
        estimate = refine_moments(moments, state_by_state(moments, num_options), REFINING)
    except (ValueError, np.linalg.LinAlgError) as error:
        warnings.warn(
            f"all starts are random, as the data give none by moments: {error}. That does no harm"
            " where several starts reached the best optimum",
            MomentWarning,
            stacklevel=4,
        )
        return None
    low, high = (
        torch.from_numpy((1 - START_MIX) * part + START_MIX / part.shape[-1])
        for part in (estimate.low, estimate.high)
    )
    return low, high


START_NOISE = 0.01  # share of the uniform law in a start: EM never leaves an exact zero


def random_policies(
    chain: ChainDescription, plan: ChainPlan, num_restarts: int, seed: int
) -> Params:
    """Random rows of both policies; initial options equally likely; environment as counted."""
    generator = torch.Generator().manual_seed(seed)

    def rows(*shape: int) -> Tensor:
        weight = (
            -torch.rand((num_restarts, *shape), generator=generator, dtype=torch.float64)
            .clamp(min=1e-12)
            .log()
        )
        return (weight / weight.sum(-1, keepdim=True)).to(plan.begin.device)

    s, a, o = chain.num_states, chain.num_actions, chain.num_options
    return with_counted_parts(chain, plan, {chain.low: rows(s, o, a), chain.high: rows(s, o, o)})


def alike_policies(chain: ChainDescription, plan: ChainPlan, num_restarts: int) -> Params:
    """All probabilities of both policies equal."""
    s, a, o = chain.num_states, chain.num_actions, chain.num_options
    shapes = {chain.low: (s, o, a), chain.high: (s, o, o)}
    device = plan.begin.device
    return with_counted_parts(
        chain,
        plan,
        {
            n: torch.full((num_restarts, *v), 1 / v[-1], dtype=torch.float64, device=device)
            for n, v in shapes.items()
        },
    )


def split_policies(chain: ChainDescription, plan: ChainPlan, smaller: Params, seed: int) -> Params:
    """Starts with one option of ``smaller`` split in two, moved apart at random.

    ``smaller``: without restarts, by site name.
    """
    generator = torch.Generator().manual_seed(seed)
    low, high = smaller[chain.low], with_high(chain, smaller)[chain.high]
    num = low.shape[1]
    lows, highs = [], []
    for o in range(num):
        apart = (
            -torch.rand((2, *low[:, o].shape), generator=generator, dtype=torch.float64)
            .clamp(min=1e-12)
            .log()
            .to(low)
        )
        apart = (low[:, o] + apart / apart.sum(-1, keepdim=True)) / 2  # (2, S, A)
        lows.append(
            torch.cat([low[:, :o], apart[0][:, None], low[:, o + 1 :], apart[1][:, None]], 1)
        )
        into = high.clone()
        into[:, :, o] /= 2  # (S, O, O), by the option before: into both halves alike
        into = torch.cat([into, into[:, :, o : o + 1]], 2)
        rows = torch.cat([into, into[:, o : o + 1]], 1)  # (S, O + 1, O + 1)
        # a half is left for the other one time in five
        both = rows[:, [o, num]][:, :, [o, num]].sum(-1)
        rows[:, o, o], rows[:, num, num], rows[:, o, num], rows[:, num, o] = (
            0.8 * both[:, 0],
            0.8 * both[:, 1],
            0.2 * both[:, 0],
            0.2 * both[:, 1],
        )
        highs.append((1 - START_NOISE) * rows + START_NOISE / (num + 1))
    return with_counted_parts(
        chain, plan, {chain.low: torch.stack(lows), chain.high: torch.stack(highs)}
    )


def with_counted_parts(chain: ChainDescription, plan: ChainPlan, policies: Params) -> Params:
    """Add to policies (R, ...) the counted first states and environment."""
    s, o = chain.num_states, chain.num_options
    num_restarts = len(policies[chain.low])
    first = torch.bincount(plan.begin, minlength=s).to(torch.float64)
    first = (1 - START_NOISE) * first / first.sum() + START_NOISE / s
    moves = plan.move_counts(s, chain.num_actions).to(torch.float64) + START_NOISE
    initial = (first / o)[:, None].expand(s, o)
    environment = moves / moves.sum(-1, keepdim=True)
    upper = {chain.high: policies[chain.high]}
    if chain.termination is not None and chain.choice is not None:
        choice = policies[chain.high].mean(-2)  # (R, S, O)
        left = 1 - policies[chain.high].diagonal(dim1=-2, dim2=-1)
        upper = {
            chain.choice: choice,
            chain.termination: (
                (left / (1 - choice).clamp(min=1e-6)).clamp(START_NOISE, 1 - START_NOISE)
            ),
        }
    return {
        chain.initial: initial.expand(num_restarts, s, o).contiguous(),
        chain.low: policies[chain.low],
        **upper,
        chain.environment: environment.expand(num_restarts, *environment.shape).contiguous(),
    }
