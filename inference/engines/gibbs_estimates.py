"""Gibbs estimates of rows whose latents have too many configurations to sum over."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from inference.base.gibbs import Gibbs, Latents, Scan, drawn_bits, uniform_like
from inference.programs.program import Params

NUM_CHAINS, NUM_TEMPERED = 4, 16
NUM_BASE_SWEEPS = 5
STEPS_PER_DECADE, LEAST_STEPS, MOST_SPREAD = 10, 10, 1e9  # of the inverse temperature; nats
LEAST_LENGTH, MOST_LENGTH = 20, 320  # sweeps of a chain
LEAST_BIAS = 1e-3  # of the log of the mean weight of a row, nats
LEAST_CHANCE = 0.002  # of a bit at the start of a chain: a smaller one hides modes
CHUNK_ROWS = 2**17  # rows of all chains at once


def posterior_means(
    gibbs: Gibbs,
    params: Params,
    generator: torch.Generator,
    num_sweeps: int = 13,
    num_burn_in: int = 2,
) -> Latents:
    r"""Posterior means P(latent = 1 | row), (R, K, N) by site, over 16 chains of a row.

    The chains start at uniform bits, sweep at inverse temperatures :math:`\beta_s` that grow from
    about one over the spread D of the log-likelihood to 1, and are drawn anew by their weights
    where these grow uneven (sequential Monte Carlo: Del Moral, Doucet and Jasra 2006,
    doi:10.1111/j.1467-9868.2006.00553.x), so that modes that no sweep connects have their shares.

    .. math:: \beta_s = \frac{(1 + D)^{s / S} - 1}{D}, \quad
              S = \max\{10, 10 \log_{10}(1 + D)\}.

    Args:
        gibbs: the sampler; params: (R, ...); generator: of the draws.
        num_sweeps: of each chain, averaged; num_burn_in: of each, before.
    """
    state = gibbs.begin(params, generator)
    log_weights, means = [], []
    for num, own in _chains(params, state, NUM_TEMPERED):
        bits, weight = _tempered(gibbs, own, state, num, generator)
        for _ in range(num_burn_in):
            bits, _ = gibbs.sweep(own, bits, generator)
        total = {name: torch.zeros_like(value) for name, value in bits.items()}
        for _ in range(num_sweeps):
            bits, chance = gibbs.sweep(own, bits, generator)
            total = {name: value + chance[name] for name, value in total.items()}
        log_weights.append(weight + math.log(num))
        means.append({name: value.unflatten(0, (num, -1)).mean(0) for name, value in total.items()})
    shares = torch.stack(log_weights).softmax(0).unsqueeze(-2)  # of parts, (P, R, 1, N)
    return {
        name: ((shares * torch.stack([part[name] for part in means])).sum(0) / num_sweeps).to(value)
        for name, value in state.items()
    }


def _tempered(
    gibbs: Gibbs, params: Params, state: Latents, num: int, generator: torch.Generator
) -> tuple[Latents, Tensor]:
    """Draws of tempered chains, (num R, K, N), and the log of a row's mean weight, (R, N)."""
    flat = _repeated({name: torch.zeros_like(value) for name, value in state.items()}, num)
    bits = {name: drawn_bits(torch.sigmoid(value), generator) for name, value in flat.items()}

    def ratios() -> Tensor:
        found: Tensor = _log_ratio(gibbs, params, bits, flat).unflatten(0, (num, -1))
        return found.nan_to_num(neginf=-MOST_SPREAD)  # impossible values, from which a sweep leads

    ratio = ratios()
    width = float((ratio.amax(0) - ratio.amin(0)).amax().clamp(1.0, MOST_SPREAD))
    steps = max(LEAST_STEPS, math.ceil(STEPS_PER_DECADE * math.log10(1 + width)))
    total, last = torch.zeros_like(ratio), 0.0
    for step in range(1, steps + 1):
        power = ((1 + width) ** (step / steps) - 1) / width
        total, last = total + (power - last) * ratio, power
        bits, total = _resampled(bits, total, 1 if step == steps else 0.5, generator)
        bits, _ = gibbs.sweep(params, bits, generator, Scan(power=power, base=flat))
        ratio = ratios()
    return bits, total[0]


def _resampled(
    bits: Latents, log_weights: Tensor, least: float, generator: torch.Generator
) -> tuple[Latents, Tensor]:
    """Systematic resampling of the chains of a row by their weights (C, R, N).

    It is done where the effective number is at most a share ``least`` of theirs; their weights are
    the mean then.
    """
    num = len(log_weights)
    shares = log_weights.softmax(0)
    uneven = shares.square().sum(0) * num * least >= 1  # (R, N)
    place = torch.arange(num, device=shares.device).view(-1, 1, 1)
    start = (place + uniform_like(shares[0], generator)).movedim(0, -1).contiguous()
    ends = (shares.cumsum(0) * num).movedim(0, -1).contiguous()
    picked = torch.searchsorted(ends, start).movedim(-1, 0).clamp(max=num - 1)
    picked = torch.where(uneven, picked, place)
    moved = {}
    for name, value in bits.items():
        own = value.unflatten(0, (num, -1))
        moved[name] = own.gather(0, picked.unsqueeze(2).expand_as(own)).flatten(0, 1)
    even = (log_weights.logsumexp(0) - math.log(num)).expand_as(log_weights)
    return moved, torch.where(uneven, even, log_weights)


@dataclass(frozen=True, eq=False)
class LikelihoodEstimate:
    """Estimate of the log-likelihood of rows by importance weights; all (R, N).

    The log of a mean of weights is too low in expectation, by half of its variance to second order.

    Args:
        rows: log of the mean weight and half of ``variances``.
        variances: of the log of the mean weight, by the draws (delta method).
        bounds: mean of the log-weights, a lower bound in expectation that varies less.
    """

    rows: Tensor
    variances: Tensor
    bounds: Tensor

    @classmethod
    def of(cls, log_weights: Tensor) -> LikelihoodEstimate:
        """Estimate from independent log-weights (C, R, N)."""
        num, log_weights = len(log_weights), log_weights.double()
        log_mean = log_weights.logsumexp(0) - math.log(num)
        variances = (log_weights - log_mean).exp().var(0) / num
        return cls(log_mean + variances / 2, variances, log_weights.mean(0))


def log_likelihood_rows(
    gibbs: Gibbs, params: Params, generator: torch.Generator
) -> LikelihoodEstimate:
    r"""Annealed importance sampling (Neal 2001, doi:10.1023/A:1008923215028) of p(row).

    A chain of a row starts at a draw :math:`a_0` from independent bits with
    :math:`q(a) = \prod_k \sigma(\lambda_k)^{a_k} \sigma(-\lambda_k)^{1 - a_k}`, and sweeps once
    at each :math:`\beta_t = t / T`, t < T, with :math:`q^{1 - \beta} p^\beta` as stationary
    distribution: the log-odds of a bit are :math:`(1 - \beta) \lambda_k + \beta \ell_k`, with
    :math:`\ell_k` those of the posterior. Its weight

    .. math:: \log w = \frac 1 T \sum_{t=1}^{T} \{ \log p(x, a_{t-1}) - \log q(a_{t-1}) \}

    has the mean p(x), whatever :math:`\lambda` is, as long as its random numbers are others. That
    of few chains may sit in one mode, and the weights then look even while they miss the others:
    :math:`\lambda` are the log-odds of :func:`posterior_means`, kept within .002 and .998.

    T is 20 times the power of two that brings half the variance of a row, on average, below .001 if
    it falls like 1 / T from what other draws have at T = 20; at most 320. Draws that ended
    the search for T by their own variance would be biased: the less weights vary, the larger.

    Args:
        gibbs: the sampler, which may have an estimate of its own (one of activities beside bits).
        params: (R, ...).
        generator: of the draws.
    """
    draw = getattr(gibbs, "log_weights", None)
    if draw is not None:
        return LikelihoodEstimate.of(draw(params, generator))
    means = posterior_means(gibbs, params, generator, NUM_BASE_SWEEPS, 0)
    base = {
        name: torch.logit(mean.clamp(LEAST_CHANCE, 1 - LEAST_CHANCE))
        for name, mean in means.items()
    }

    def estimate(length: int) -> LikelihoodEstimate:
        parts = [
            _annealed(gibbs, own, _repeated(base, num), length, generator).unflatten(0, (num, -1))
            for num, own in _chains(params, base, NUM_CHAINS)
        ]
        return LikelihoodEstimate.of(torch.cat(parts))

    excess = float(estimate(LEAST_LENGTH).variances.mean(-1).max()) / (2 * LEAST_BIAS)
    needed = max(1.0, excess) if excess < MOST_LENGTH else MOST_LENGTH  # where it is NaN, too
    return estimate(min(MOST_LENGTH, LEAST_LENGTH * 2 ** math.ceil(math.log2(needed))))


def _chains(params: Params, state: Latents, num: int) -> Iterator[tuple[int, Params]]:
    """Parameters of as many chains at once as memory holds, (chains R, ...), chains slowest."""
    at_once = max(1, CHUNK_ROWS // max(1, next(iter(state.values())).shape[-1]))
    for start in range(0, num, at_once):
        size = min(at_once, num - start)
        yield size, _repeated(params, size)


def _repeated(values: dict[str, Tensor], num: int) -> dict[str, Tensor]:
    return {name: value.repeat(num, *[1] * (value.dim() - 1)) for name, value in values.items()}


def _annealed(
    gibbs: Gibbs, params: Params, base: Latents, length: int, generator: torch.Generator
) -> Tensor:
    """Log-weights of one chain a row for each of the parameters, (R, N)."""
    bits = {name: drawn_bits(torch.sigmoid(value), generator) for name, value in base.items()}
    total = _log_ratio(gibbs, params, bits, base)
    for step in range(1, length):
        bits, _ = gibbs.sweep(params, bits, generator, Scan(power=step / length, base=base))
        total = total + _log_ratio(gibbs, params, bits, base)
    return total / length


def _log_ratio(gibbs: Gibbs, params: Params, bits: Latents, base: Latents) -> Tensor:
    """Log p(row, bits) - log q(bits), (R, N)."""
    log_base = torch.zeros((), dtype=torch.float64)
    for name, odds in base.items():
        log_base = log_base + (bits[name] * odds - softplus(odds)).sum(-2).double()
    return gibbs.log_joint_rows(params, bits).double() - log_base
