"""Gibbs estimates of rows whose latents have too many configurations to sum over."""

from __future__ import annotations

import torch
from torch import Tensor

from inference.base.gibbs import Gibbs, Latents, Scan
from inference.programs.program import Params

SMALLEST = 1e-8  # chances are drawn in single precision


def posterior_means(
    gibbs: Gibbs,
    params: Params,
    generator: torch.Generator,
    num_sweeps: int = 200,
    num_burn_in: int = 50,
) -> tuple[Latents, Latents]:
    """Posterior means P(latent = 1 | row), (R, K, N) by site, from draws, and the last state."""
    latents = gibbs.begin(params, generator)
    for _ in range(num_burn_in):
        latents, _ = gibbs.sweep(params, latents, generator)
    total = {name: torch.zeros_like(value) for name, value in latents.items()}
    for _ in range(num_sweeps):
        latents, chances = gibbs.sweep(params, latents, generator)
        total = {name: value + chances[name] for name, value in total.items()}
    return {name: value / num_sweeps for name, value in total.items()}, latents


def log_likelihood_rows(
    gibbs: Gibbs, params: Params, latents: Latents, generator: torch.Generator, num_sweeps: int = 20
) -> Tensor:
    r"""Log of an unbiased estimate of p(row), (R, N): a lower bound in expectation.

    With T the distribution of a sweep and :math:`a^*` any configuration, :math:`p(a^* \mid x)` is
    the mean of :math:`T(a^* \mid a)` over posterior draws a, and :math:`p(x) = p(x, a^*) / p(a^*
    \mid x)`. A chain of ``num_sweeps`` states with :math:`a^*` attached at a random place makes the
    estimate of p(x) unbiased (Murray and Salakhutdinov 2008, Advances in Neural Information
    Processing Systems
    21). Here :math:`a^*` is the mode of the marginals over some sweeps.

    Args:
        gibbs: the sampler; params: (R, ...).
        latents: a state near the posterior, (R, K, N) by site.
        generator: of the draws.
        num_sweeps: states of the chain.
    """
    own = getattr(gibbs, "log_likelihood_rows", None)
    if own is not None:  # a sampler that knows better, such as one of activities beside the bits
        better: Tensor = own(params, latents, generator, num_sweeps)
        return better
    total: Latents = {name: torch.zeros_like(value) for name, value in latents.items()}
    for _ in range(num_sweeps):
        latents, chances = gibbs.sweep(params, latents, generator)
        total = {name: value + chances[name] for name, value in total.items()}
    chosen = {name: (value > num_sweeps / 2).to(value) for name, value in total.items()}
    place = int(torch.randint(num_sweeps, (), generator=generator, device=generator.device))
    middle, _ = gibbs.sweep(params, chosen, generator, Scan(backwards=True))
    moves = [_log_move(gibbs, params, middle, chosen, generator)]
    for backwards, length in ((False, num_sweeps - 1 - place), (True, place)):
        state = middle
        for _ in range(length):
            state, _ = gibbs.sweep(params, state, generator, Scan(backwards=backwards))
            moves.append(_log_move(gibbs, params, state, chosen, generator))
    log_posterior = torch.stack(moves).double().logsumexp(0) - torch.tensor(float(num_sweeps)).log()
    return gibbs.log_joint_rows(params, chosen) - log_posterior


def _log_move(
    gibbs: Gibbs, params: Params, state: Latents, target: Latents, generator: torch.Generator
) -> Tensor:
    """Log T(target | state), (R, N)."""
    _, chances = gibbs.sweep(params, state, generator, Scan(forced=target))
    total = torch.zeros(())
    for name, chance in chances.items():
        hit = torch.where(target[name] > 0.5, chance, 1 - chance).double()
        total = total + hit.clamp(min=SMALLEST).log().sum(-2)
    return total
