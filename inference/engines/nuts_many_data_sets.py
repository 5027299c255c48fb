"""Posterior draws for many data sets of one model as one batch of chains: what calibration studies
ask for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from inference.base.progress import NoProgress
from inference.engines.nuts import MOST_DENSE, NUTS, STATS, Chain, Run
from inference.programs.potential import PotentialOfSets
from inference.programs.program import Params, Program

MOST_SETS = 25  # at once: every chain's parameters meet the rows of all of them


def draws_of_sets(
    method: NUTS, program: Program, num_sets: int, starts: Sequence[Params], seed: int
) -> list[Params]:
    """NUTS on several data sets of equally many rows, all chains in one batch; each data set adapts
    on its own.

    Args:
        method: the sampler; ``warm_start`` is not used.
        program: the model with the rows of all sets one after the other.
        num_sets: S.
        starts: where the chains of each set start, S dicts of (C, ...).
        seed: one seed, one answer.

    Returns:
        Draws of each set, S dicts of (C, D, ...); latents are named as they come.
    """
    program.check_enumerable()
    joined = {name: torch.cat([start[name] for start in starts]) for name in starts[0]}
    potential = PotentialOfSets(program, joined, num_sets)
    dense = potential.size <= MOST_DENSE if method.dense is None else method.dense
    points = potential.vector(joined)
    values, gradients = (value.cpu().double().numpy() for value in potential(points))
    if not np.isfinite(values).all():
        raise ValueError("draws_of_sets: the log-posterior is not finite at a start")
    chains = [
        Chain(
            position=points[c].cpu().double().numpy(),
            log_density=float(values[c]),
            gradient=gradients[c],
            covariance=np.eye(potential.size) if dense else np.ones(potential.size),
            draws=np.zeros((method.num_draws, potential.size)),
            stats=np.zeros((method.num_draws, len(STATS))),
            group=c // method.num_chains,
        )
        for c in range(num_sets * method.num_chains)
    ]
    run = Run(method, potential, chains, seed)
    run.sample(NoProgress(), None)
    draws = torch.from_numpy(np.stack([chain.draws for chain in run.chains])).to(potential.like)
    params = {n: v.detach() for n, v in potential.params(draws.reshape(-1, potential.size)).items()}

    def own(value: Tensor, s: int) -> Tensor:
        by_set = value.reshape(num_sets, method.num_chains, method.num_draws, *value.shape[1:])
        return by_set[s]

    return [{name: own(value, s) for name, value in params.items()} for s in range(num_sets)]
