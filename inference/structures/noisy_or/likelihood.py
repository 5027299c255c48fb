r"""Rows of a noisy-OR network, latents summed out, however many latents there are.

Latents without edges change no probability and are left out. Up to 16 others all configurations are
summed. Beyond, rows with at most 10 ones are still exact, by the alternating sum of
Heckerman (1990, Quickscore, doi:10.1016/B978-0-444-88738-2.50020-8),

.. math:: p(x) = \sum_{S \subseteq x^+} (-1)^{|S|} \prod_{j \in S \cup x^-} (1 - l_j)
    \prod_i \Bigl(1 - \pi_i + \pi_i \prod_{j \in S \cup x^-} f_{ij}\Bigr),

with :math:`x^+` the ones and :math:`x^-` the zeros of the row, whose terms grow with the ones and
not with the latents. Other rows take the better of two lower bounds, the sum over the latents that
the row leaves open (:mod:`inference.structures.noisy_or.truncated_em`) and that over its likeliest
states (:mod:`inference.structures.noisy_or.truncated_em`), and their posteriors.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.noisy_or.em_steps import NEGLIGIBLE, CauseRows, CauseSteps, has_edges
from inference.structures.noisy_or.truncated_em import MAX_BITS, OpenRows, TruncatedSteps
from ppl_models.descriptions.noisy_or import (
    MAX_CAUSES,
    PROBABILITY_LIMIT,
    IndependentCauses,
    weight_of_failure,
    weight_of_leak,
)
from ppl_models.parts.distributions import binary_configurations

MAX_ONES = 10  # of a row, for the alternating sum
BLOCK = (2048, 128)  # configurations and rows
ELEMENTS = 2**20  # rows times configurations, or times subsets and latents, held at once
CANCELLED = 1e-8  # of its largest term: a smaller alternating sum has lost its digits
SETTLED = 1e-6  # nats a row
ROWS = 4096  # whose states are held at once


def log_likelihood_rows(causes: IndependentCauses, data: Tensor, params: Params) -> Tensor:
    """Log-likelihood of every row (N,), or a lower bound.

    A bound for rows of more than 10 ones in a network of more than 16 latents.
    """
    return judged_rows(causes, data, params)[0]


def judged_rows(causes: IndependentCauses, data: Tensor, params: Params) -> tuple[Tensor, Tensor]:
    """Log-likelihoods or lower bounds of rows (N,), and which are exact, (N,) bool.

    A bound that is known to lack less than 1e-6 nats counts as exact.
    """
    causes, params, _ = _reduced(causes, params)
    if causes.num_causes <= MAX_CAUSES:
        found = summed_rows(causes, CauseRows.of(data), params)
        return found, torch.ones_like(found, dtype=torch.bool)
    found = quickscore(causes, data, params)
    is_exact = ~found.isnan()
    unknown = found.isnan()
    if bool(unknown.any()):
        bound, _, lacking = _bounded(causes, data[unknown], params)
        found[unknown], is_exact[unknown] = bound, lacking <= SETTLED
    return found, is_exact


def total_log_likelihood(
    causes: IndependentCauses, data: Tensor, params: Params
) -> tuple[float, float]:
    """Log-likelihood of all rows, NaN unless exact, and its best lower bound."""
    return total_of_merged(causes, CauseRows.of(data), params)


def total_of_merged(
    causes: IndependentCauses, rows: CauseRows, params: Params
) -> tuple[float, float]:
    """Log-likelihood of merged rows, NaN unless exact, and its best lower bound."""
    data = rows.ones if rows.seen is None else rows.ones.masked_fill(rows.seen == 0, torch.nan)
    found, is_exact = judged_rows(causes, data, params)
    total = float(found.to(rows.counts) @ rows.counts)
    return (total if bool(is_exact.all()) else float("nan")), total


def latent_means(causes: IndependentCauses, data: Tensor, params: Params) -> Tensor:
    """P(latent = 1 | row), (N, m); a latent without edges keeps its prior."""
    out = params[causes.prior].expand(len(data), -1).clone()
    causes, params, there = _reduced(causes, params)
    if causes.num_causes <= MAX_CAUSES:
        every = binary_configurations(causes.num_causes, data.dtype, data.device)
        out[:, there] = torch.cat(
            [posterior @ every for posterior, _ in _enumerated(causes, data, params)]
        )
    else:
        means = out[:, there]
        unknown = quickscore(causes, data, params, means).isnan()
        if bool(unknown.any()):
            means[unknown] = _bounded(causes, data[unknown], params)[1]
        out[:, there] = means
    return out.clamp(0, 1)  # rounding may leave the range


def latent_modes(causes: IndependentCauses, data: Tensor, params: Params) -> Tensor:
    """Most probable setting of all latents, (N, m)."""
    out = (params[causes.prior] > 0.5).to(data).expand(len(data), -1).clone()
    causes, params, there = _reduced(causes, params)
    if causes.num_causes <= MAX_CAUSES:
        every = binary_configurations(causes.num_causes, data.dtype, data.device)
        out[:, there] = every[
            torch.cat([posterior.argmax(1) for posterior, _ in _enumerated(causes, data, params)])
        ]
    else:
        out[:, there] = _likeliest(causes, data, params)
    return out


def quickscore(
    causes: IndependentCauses, data: Tensor, params: Params, means: Tensor | None = None
) -> Tensor:
    """Exact log-likelihood (N,) of rows with at most 10 ones; NaN for others.

    NaN too where the alternating sum cancels. P(latent = 1 | row) is written to ``means`` (N, m).
    In double precision: what cancels leaves single precision no digits.
    """
    like, data = params[causes.prior], data.double()
    params = {name: value.double() for name, value in params.items()}
    prior = params[causes.prior].clamp(PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)
    weights, leaks = weight_of_failure(params[causes.failure]), weight_of_leak(params[causes.leak])
    ones, zeros = (data == 1).to(weights), (data == 0).to(weights)
    asked, log_leak = zeros @ weights.mT, -(zeros @ leaks)  # (N, m), (N,)
    out = torch.full((len(data),), torch.nan, dtype=weights.dtype, device=data.device)
    number = ones.sum(1).long()
    for k in number[number <= MAX_ONES].unique().tolist():
        subsets = binary_configurations(k, weights.dtype, weights.device)  # (2^k, k)
        sign = 1 - 2 * (subsets.sum(1) % 2)
        for row in (
            (number == k).nonzero().ravel().split(max(1, ELEMENTS // (len(subsets) * len(weights))))
        ):
            item = ones[row].nonzero()[:, 1].reshape(len(row), k)
            eta = subsets @ weights.mT[item] + asked[row].unsqueeze(1)  # (n, 2^k, m)
            log_term = torch.log1p(prior * torch.expm1(-eta)).sum(-1) - leaks[item] @ subsets.mT
            peak = log_term.amax(1, keepdim=True)
            term = (log_term - peak).exp() * sign
            total = term.sum(1)
            if means is not None:
                on = prior * (-eta).exp() / (1 + prior * torch.expm1(-eta))  # given each subset
                means[row] = ((term.unsqueeze(1) @ on).squeeze(1) / total.unsqueeze(1)).to(means)
            value = total.clamp(min=CANCELLED).log() + peak.squeeze(1) + log_leak[row]
            out[row] = torch.where(total > CANCELLED, value, torch.nan)
    return out.to(like)


@torch.no_grad()
def summed_rows(causes: IndependentCauses, rows: CauseRows, params: Params) -> Tensor:
    """Log-likelihood of every row (U,), all configurations summed in cache-sized blocks."""
    like = rows.ones
    total = torch.full_like(rows.counts, -torch.inf)
    for block in binary_configurations(causes.num_causes, like.dtype, like.device).split(BLOCK[0]):
        steps = CauseSteps(causes, rows, block, chunk_elements=BLOCK[0] * BLOCK[1])
        eta, logits, log_prior = steps.log_joint(_one(params))
        for part in steps.parts(1):
            density = steps.log_densities(eta, logits, log_prior, part)[0]
            peak = density.amax(1, keepdim=True)
            own = density.sub_(peak).clamp_(min=NEGLIGIBLE).exp_().sum(1).log() + peak.squeeze(1)
            total[part] = torch.logaddexp(total[part], own)
    return total


def _one(params: Params) -> Params:
    """Parameters as a batch of one."""
    return {name: value.unsqueeze(0) for name, value in params.items()}


def _reduced(causes: IndependentCauses, params: Params) -> tuple[IndependentCauses, Params, Tensor]:
    """The network of the latents with an edge, and which these are, (m,) bool."""
    there = has_edges(causes, params)
    sites = (causes.prior, causes.failure, causes.spared)
    kept = {name: params[name][there] for name in sites if name is not None}
    return replace(causes, num_causes=int(there.sum())), {**params, **kept}, there


def _enumerated(
    causes: IndependentCauses, data: Tensor, params: Params
) -> list[tuple[Tensor, Tensor]]:
    """Posteriors of configurations (n, C) and log-likelihoods (n,) of chunks of rows."""
    every = binary_configurations(causes.num_causes, data.dtype, data.device)
    steps = CauseSteps(
        causes, CauseRows.of(data), every, 0, chunk_elements=max(ELEMENTS, 16 * len(every))
    )
    eta, logits, log_prior = steps.log_joint(_one(params))
    found = (steps.responsibilities(eta, logits, log_prior, part) for part in steps.parts(1))
    return [(posterior[0], log_rows[0]) for posterior, log_rows in found]


def _bounded(
    causes: IndependentCauses, data: Tensor, params: Params
) -> tuple[Tensor, Tensor, Tensor]:
    """Lower bounds (N,), posterior means (N, m), and upper bounds of what they lack, (N,)."""
    found = []
    for part in data.split(ROWS):
        rows = CauseRows.of(part)
        opened = OpenRows(causes, rows, params)
        bound, means = opened.bound, opened.means()
        if causes.num_causes <= MAX_BITS and bool((opened.lacking > SETTLED).any()):
            steps = _settled(causes, rows, params)
            other = steps.log_likelihood_rows(_one(params))
            means = torch.where(
                (other > bound).unsqueeze(1), steps.posterior(_one(params))[0], means
            )
            lacking = (opened.bound + opened.lacking - torch.maximum(bound, other)).clamp(min=0)
            bound = torch.maximum(bound, other)
        else:
            lacking = opened.lacking
        found.append((bound, means, lacking))
    bounds, means, lacking = (torch.cat(part) for part in zip(*found, strict=True))
    return bounds, means, lacking


def _likeliest(causes: IndependentCauses, data: Tensor, params: Params) -> Tensor:
    """Likeliest setting found, (N, m)."""
    parts = [CauseRows.of(part) for part in data.split(ROWS)]
    if causes.num_causes > MAX_BITS:
        return torch.cat([OpenRows(causes, rows, params).likeliest(1)[:, 0] for rows in parts])
    return torch.cat([_settled(causes, rows, params).posterior(_one(params))[1] for rows in parts])


def _settled(causes: IndependentCauses, rows: CauseRows, params: Params) -> TruncatedSteps:
    """Truncated states of every row, exchanged until the bound stops rising."""
    steps, bound = TruncatedSteps.open(causes, rows, _one(params)), -torch.inf
    for _ in range(2 * causes.num_causes):  # one flip at a time
        steps = steps.refreshed(_one(params))
        before, bound = bound, float(steps.log_likelihood_rows(_one(params)).sum())
        if bound - before < SETTLED * len(rows.ones):
            break
    return steps
