r"""Rows of a noisy-OR network summed over the latents that each row leaves open.

A zero asks every latent that is on, so given a row's zeros alone the latents stay independent, with
log-odds :math:`\lambda_i = \mathrm{logit}\, \pi_i - \sum_{j: x_j = 0} w_{ij}`, and

.. math:: p(x) = Z \; E\Bigl[\prod_{j: x_j = 1} (1 - e^{-\eta_j})\Bigr], \qquad
    Z = \prod_{j: x_j = 0} (1 - l_j) \prod_i \Bigl(1 - \pi_i + \pi_i \prod_{j: x_j = 0}
    f_{ij}\Bigr).

The expectation is summed over the settings of some latents, the open ones, as if no other explained
a one: a lower bound. What it lacks is bounded, latent by latent, in two ways. What latent i adds to
any setting is at most the share :math:`\sigma(\lambda_i) (G_i - 1)` with :math:`G_i = \prod_{j: x_j
= 1} (1 - (1 - l_j) f_{ij}) / l_j`, for a cause adds most where no other one is on; and all settings
with it on together hold at most :math:`Z \sigma(\lambda_i)`. The latents with the largest bounds
are opened. The cost grows with the open latents of a row, not with all latents.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from inference.programs.program import Params
from inference.structures.noisy_or.em_steps import CauseRows
from ppl_models.descriptions.noisy_or import (
    PROBABILITY_LIMIT,
    IndependentCauses,
    log_expm1,
    weight_of_failure,
    weight_of_leak,
)
from ppl_models.parts.distributions import binary_configurations

TOLERANCE = 1e-7  # share of a row's probability: below it no latent is opened
FIRST = 8  # latents of a first look, for a lower bound to judge by
ELEMENTS = 2**20  # rows times settings times items held at once


class OpenRows:
    """Rows, and the latents that each leaves open.

    Args:
        causes: the description.
        rows: the data.
        params: of one network, prior (m,), failure (m, J), leak (J,).
        most: latents that a row may open; it sums over 2^most settings.

    ``bound`` (U,) is a lower bound of every row's log-likelihood, and ``lacking`` (U,) an upper
    bound of what it lacks; mostly that is far less.
    """

    def __init__(
        self, causes: IndependentCauses, rows: CauseRows, params: Params, most: int = 12
    ) -> None:
        self.rows, self.failure = rows, params[causes.failure]
        prior = params[causes.prior].clamp(PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)
        leaks, weights = weight_of_leak(params[causes.leak]), weight_of_failure(self.failure)
        self.no_leak = (-leaks).exp()
        zeros = 1 - rows.ones if rows.seen is None else rows.seen - rows.ones
        self.log_odds = prior.logit() - zeros @ weights.mT  # (U, m)
        self.log_zeros = (softplus(self.log_odds) - softplus(prior.logit())).sum(1) - zeros @ leaks
        gain = torch.log(torch.expm1(-weights - leaks) / torch.expm1(-leaks))
        by_setting = logsigmoid(self.log_odds) + log_expm1(rows.ones @ gain.mT)
        self.open = _first(self.log_odds + by_setting.clamp(max=0.0), min(FIRST, most))
        by_sum = logsigmoid(self.log_odds) + self.log_zeros.unsqueeze(1)
        share = torch.minimum(by_setting, by_sum - self._summed().unsqueeze(1))
        self.open = _first(share, most) & (share.exp() > TOLERANCE / len(prior))
        self.bound = self._summed()
        by_sum = by_sum - self.bound.unsqueeze(1)
        closed, of_sum = ~self.open, by_sum < by_setting
        factor = torch.where(closed & ~of_sum, softplus(by_setting), 0.0).sum(1)
        self.lacking = torch.logaddexp(
            factor, torch.where(closed & of_sum, by_sum, -torch.inf).logsumexp(1)
        )

    def _summed(self) -> Tensor:
        out = torch.empty_like(self.log_zeros)
        for row, _, _, terms in self._parts():
            out[row] = terms.logsumexp(1)
        return out

    def means(self) -> Tensor:
        """P(latent = 1 | row), (U, m); of a latent that is not open, given the zeros alone."""
        out = self.log_odds.sigmoid()
        for row, latents, settings, terms in self._parts():
            out[row.unsqueeze(1), latents] = terms.softmax(1) @ settings
        return out

    def likeliest(self, num_states: int) -> Tensor:
        """The likeliest settings of each row, (U, num_states, m); one that has fewer repeats its
        best.
        """
        out = torch.zeros(
            len(self.open),
            num_states,
            self.open.shape[1],
            dtype=self.failure.dtype,
            device=self.failure.device,
        )
        every = torch.arange(num_states, device=out.device)
        for row, latents, settings, terms in self._parts():
            best = terms.topk(min(num_states, len(settings)), dim=1).indices
            best = torch.cat([best, best[:, :1].expand(-1, num_states - best.shape[1])], 1)
            out[row.reshape(-1, 1, 1), every.reshape(1, -1, 1), latents.unsqueeze(1)] = settings[
                best
            ]
        return out

    def _parts(self) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Rows (n,), their k open latents (n, k), the settings (2^k, k), and the log of what each
        adds to p(x), (n, 2^k).
        """
        number = self.open.sum(1)
        for k in number.unique().tolist():
            settings = binary_configurations(k, self.failure.dtype, self.failure.device)
            size = max(1, ELEMENTS // (len(settings) * self.failure.shape[1]))
            for row in (number == k).nonzero().ravel().split(size):
                latents = self.open[row].nonzero()[:, 1].reshape(len(row), k)
                yield row, latents, settings, self._terms(row, latents, settings)

    def _terms(self, row: Tensor, latents: Tensor, settings: Tensor) -> Tensor:
        off = (self.no_leak * self.rows.ones[row]).unsqueeze(
            1
        )  # (n, 1, J), P(x_j = 0) at the ones, and 0 elsewhere
        for latent in reversed(latents.mT):  # the last one first, as the settings count
            off = torch.cat([off, off * self.failure[latent].unsqueeze(1)], 1)
        factors = (
            32 if off.dtype == torch.float64 else 4
        )  # of at least 1e-6: their product is no underflow
        log_ones = sum(part.prod(-1).log() for part in off.neg_().add_(1).split(factors, -1))
        log_odds = self.log_odds[row].gather(1, latents)
        log_prior = log_odds @ settings.mT - softplus(log_odds).sum(1, keepdim=True)
        return log_ones + log_prior + self.log_zeros[row].unsqueeze(1)


def _first(score: Tensor, num: int) -> Tensor:
    """Where the ``num`` largest of each row are, (U, m) bool."""
    best = score.topk(min(num, score.shape[1]), dim=1).indices
    return torch.zeros_like(score, dtype=torch.bool).scatter(1, best, True)
