r"""Truncated EM of noisy-OR networks: rows summed over likely states, by branching.

With a set of states :math:`K_n` for row n,

.. math:: \log p(x_n) \ge \log \sum_{h \in K_n} p(x_n, h \mid \theta),

and EM of that bound never lets it fall (Luecke and Eggert 2010, Expectation truncation, JMLR 11).
Between iterations the sets are exchanged for better ones: the states one flip away from a row's
best ones are tried, and the best of all are kept (as in Guiraud, Drefs and Luecke 2018,
doi:10.1145/3205455.3205553). A latent that a row's zeros rule out is not tried: given the zeros
alone its log-odds are :math:`\mathrm{logit}\, \pi_i - \sum_{j: x_j = 0} w_{ij}`. The cost does not
depend on :math:`2^m`.

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
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from inference.base.steps import EStep
from inference.programs.program import Params
from inference.structures.noisy_or.em_steps import (
    CauseRows,
    CauseStatistics,
    CauseSteps,
    log_beta_prior,
)
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
    """Rows with the latents that each leaves open.

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
        """Likeliest settings of each row, (U, num_states, m), the best repeated if fewer."""
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
        """Rows (n,), open latents (n, k), settings (2^k, k) and their log-terms (n, 2^k)."""
        number = self.open.sum(1)
        for k in number.unique().tolist():
            settings = binary_configurations(k, self.failure.dtype, self.failure.device)
            size = max(1, ELEMENTS // (len(settings) * self.failure.shape[1]))
            for row in (number == k).nonzero().ravel().split(size):
                latents = self.open[row].nonzero()[:, 1].reshape(len(row), k)
                yield row, latents, settings, self._terms(row, latents, settings)

    def _terms(self, row: Tensor, latents: Tensor, settings: Tensor) -> Tensor:
        # (n, 1, J), P(x_j = 0) at the ones, and 0 elsewhere
        off = (self.no_leak * self.rows.ones[row]).unsqueeze(1)
        for latent in reversed(latents.mT):  # the last one first, as the settings count
            off = torch.cat([off, off * self.failure[latent].unsqueeze(1)], 1)
        # of at least 1e-6: their product is no underflow
        factors = 32 if off.dtype == torch.float64 else 4
        log_ones = sum(part.prod(-1).log() for part in off.neg_().add_(1).split(factors, -1))
        log_odds = self.log_odds[row].gather(1, latents)
        log_prior = log_odds @ settings.mT - softplus(log_odds).sum(1, keepdim=True)
        return log_ones + log_prior + self.log_zeros[row].unsqueeze(1)


def _first(score: Tensor, num: int) -> Tensor:
    """Mark the ``num`` largest of each row, (U, m) bool."""
    best = score.topk(min(num, score.shape[1]), dim=1).indices
    return torch.zeros_like(score, dtype=torch.bool).scatter(1, best, True)


MAX_BITS = 62  # latents that fit into one integer
NUM_STATES = 64  # of a row
NUM_PARENTS = 4  # states of a row whose neighbours are tried
KEPT = -18.0  # log-odds against a row's best state beyond which one is dropped
POSSIBLE = -16.0  # log-odds given the zeros of a row below which a latent is not tried
# the state of all latents above such log-odds is tried: one flip after another does not lead there
FULL = (-8.0, 0.0)
NUM_OPEN = 10  # latents of a row among whose settings its first states are sought
PAIRS = 2**15  # of rows and states held at once


@dataclass(frozen=True, eq=False)
class TruncatedSteps(CauseSteps):
    """EM steps of truncated EM, for one restart.

    ``configurations`` (C, m) are the distinct states of all rows.

    Args:
        states: (U, K), for each row indices of configurations; -1 where the row has fewer.
    """

    states: Tensor | None = None

    @classmethod
    def begin(
        cls, causes: IndependentCauses, rows: CauseRows, configurations: Tensor, params: Params
    ) -> TruncatedSteps:
        """Initial states: the best of some configurations (C, m) for each row."""
        steps = CauseSteps(causes, rows, configurations, 1, chunk_elements=2**19)
        eta, logits, log_prior = steps.log_joint(params)
        size, found = min(NUM_STATES, len(configurations)), []
        for part in steps.parts(1):
            posterior, _ = steps.responsibilities(eta, logits, log_prior, part)
            best = posterior[0].topk(size)
            found.append(torch.where(best.values > 1e-6 * best.values[:, :1], best.indices, -1))
        return cls(causes, rows, configurations, 1, states=torch.cat(found))

    @classmethod
    def open(cls, causes: IndependentCauses, rows: CauseRows, params: Params) -> TruncatedSteps:
        """Initial states: the likeliest settings of each row's open latents."""
        opened = OpenRows(
            causes, rows, {name: value[0] for name, value in params.items()}, NUM_OPEN
        )
        likely = opened.likeliest(NUM_STATES // 2)  # (U, K, m)
        bits = 2 ** torch.arange(likely.shape[2], device=likely.device)
        codes = (likely.long() * bits).sum(-1).sort(1).values
        distinct, states = torch.unique(codes, return_inverse=True)
        states[:, 1:][codes.diff(dim=1) == 0] = -1  # repeated
        configurations = ((distinct.unsqueeze(1) & bits) > 0).to(rows.ones)
        return cls(causes, rows, configurations, 1, states=states)

    def _filled(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows and configurations of the pairs, (P,), and their places in ``states``."""
        assert self.states is not None
        there = self.states >= 0
        return there.nonzero()[:, 0], self.states[there], there

    def _log_joint_of_pairs(self, params: Params, row: Tensor, state: Tensor) -> Tensor:
        """Log-joint density of pairs of rows and configurations, (P,)."""
        eta, logits, log_prior = (value[0] for value in self.log_joint(params))
        if self.rows.seen is None:
            log_prior = log_prior - eta.sum(-1)
        out = log_prior[state]
        for part in range(0, len(row), PAIRS):
            r, c = row[part : part + PAIRS], state[part : part + PAIRS]
            out[part : part + PAIRS] += (self.rows.ones[r] * logits[c]).sum(-1)
            if self.rows.seen is not None:
                out[part : part + PAIRS] -= (self.rows.seen[r] * eta[c]).sum(-1)
        return out

    def _scores(self, params: Params) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Log-joints of the rows' states (U, K), -inf where there is none; and :meth:`_filled`."""
        row, state, there = self._filled()
        scores = torch.full(
            there.shape, -torch.inf, dtype=self.rows.ones.dtype, device=there.device
        )
        scores[there] = self._log_joint_of_pairs(params, row, state)
        return scores, row, state, there

    def log_likelihood_rows(self, params: Params) -> Tensor:
        """Lower bound of every merged row, (U,)."""
        return self._scores(params)[0].logsumexp(1)

    def posterior(self, params: Params) -> tuple[Tensor, Tensor]:
        """P(latent = 1 | row) and the likeliest state, both (U, m)."""
        scores, _, _, there = self._scores(params)
        assert self.states is not None
        states = torch.where(there, self.states, 0)
        best = states.gather(1, scores.argmax(1, keepdim=True)).ravel()
        return (
            torch.einsum("uk,ukm->um", scores.softmax(1), self.configurations[states]),
            self.configurations[best],
        )

    @torch.no_grad()
    def e_step(self, params: Params) -> EStep[CauseStatistics]:
        """Expected counts of the configurations that rows hold."""
        scores, row, state, there = self._scores(params)
        bound = scores.logsumexp(1)
        weight = (scores - bound.unsqueeze(1)).exp()[there] * self.rows.counts[row]
        like, num = self.rows.ones, len(self.configurations)
        per_configuration = like.new_zeros(num).index_add_(0, state, weight)
        totals = []
        for values in (self.rows.ones, self.rows.seen):
            if values is None:
                continue
            total = like.new_zeros(num, values.shape[1])
            for part in range(0, len(row), PAIRS):
                pick = slice(part, part + PAIRS)
                total.index_add_(0, state[pick], values[row[pick]] * weight[pick].unsqueeze(1))
            totals.append(total.unsqueeze(0))
        seen = totals[1] if len(totals) > 1 else None
        statistics = CauseStatistics(per_configuration.unsqueeze(0), seen, totals[0])
        return EStep(
            statistics, (bound @ self.rows.counts).unsqueeze(0), log_beta_prior(self.causes, params)
        )

    def on(self, data: Tensor, weights: Tensor | None = None) -> TruncatedSteps:
        raise ValueError("states belong to their rows: begin or open truncated steps on the others")

    @torch.no_grad()
    def refreshed(self, params: Params) -> TruncatedSteps:
        """Improve the states by neighbours of each row's best; the bound does not fall."""
        size = self.configurations.shape[1]
        bits = 2 ** torch.arange(size, device=self.configurations.device)
        codes = (self.configurations.long() * bits).sum(1)  # (C,)
        scores, row, state, _ = self._scores(params)
        best = scores.topk(min(NUM_PARENTS, scores.shape[1]), dim=1)
        parents = torch.where(best.values.isfinite(), self.states.gather(1, best.indices), -1)  # type: ignore[union-attr]
        owner, slot = (parents >= 0).nonzero(as_tuple=True)
        parent = codes[parents[owner, slot]]  # (Q,)
        given_zeros = self._log_odds_given_zeros(params)  # (U, m)
        possible = given_zeros > POSSIBLE
        # a latent that is on may go off
        allowed = possible[owner] | (self.configurations[parents[owner, slot]] > 0)
        which, latent = allowed.nonzero(as_tuple=True)
        first = (slot == 0).nonzero().ravel()
        on = self.configurations[parents[owner[first], 0]] > 0  # (U, m)
        swap, off, onto = (on.unsqueeze(2) & (possible & ~on).unsqueeze(1)).nonzero(as_tuple=True)
        full = [((given_zeros > least) * bits).sum(1) for least in FULL]
        tried = [
            codes[state],
            parent[which] ^ bits[latent],
            parent[first[swap]] ^ bits[off] ^ bits[onto],
            *full,
        ]
        every = torch.arange(len(possible), device=row.device)
        all_rows = torch.cat([row, owner[which], owner[first[swap]], *[every] * len(FULL)])
        distinct, index = torch.unique(torch.cat(tried), return_inverse=True)
        pair = torch.unique(all_rows * len(distinct) + index)  # sorted by row
        row, state = pair // len(distinct), pair % len(distinct)
        configurations = ((distinct.unsqueeze(1) & bits) > 0).to(self.rows.ones)
        wide = replace(self, configurations=configurations)
        value = wide._log_joint_of_pairs(params, row, state)
        count = torch.bincount(row, minlength=len(self.rows.ones))
        place = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]
        table = torch.full(
            (len(count), int(count.max())), -torch.inf, dtype=value.dtype, device=value.device
        )
        table[row, place] = value
        chosen = torch.full(table.shape, -1, device=row.device)
        chosen[row, place] = state
        top = table.topk(min(NUM_STATES, table.shape[1]), dim=1)
        kept = torch.where(top.values > top.values[:, :1] + KEPT, chosen.gather(1, top.indices), -1)
        used, renamed = torch.unique(kept[kept >= 0], return_inverse=True)
        states = torch.full_like(kept, -1)
        states[kept >= 0] = renamed
        return replace(self, configurations=configurations[used], states=states)

    def _log_odds_given_zeros(self, params: Params) -> Tensor:
        chance = params[self.causes.prior][0].clamp(PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)
        zeros = 1 - self.rows.ones if self.rows.seen is None else self.rows.seen - self.rows.ones
        return chance.logit() - zeros @ weight_of_failure(params[self.causes.failure][0]).mT
