r"""Truncated EM of noisy-OR networks: each row sums over the few states of its latents that hold
its posterior.

With a set of states :math:`K_n` for row n,

.. math:: \log p(x_n) \ge \log \sum_{h \in K_n} p(x_n, h \mid \theta),

and EM of that bound never lets it fall (Luecke and Eggert 2010, Expectation truncation, JMLR 11).
Between iterations the sets are exchanged for better ones: the states one flip away from a row's
best ones are tried, and the best of all are kept (as in Guiraud, Drefs and Luecke 2018,
doi:10.1145/3205455.3205553). A latent that a row's zeros rule out is not tried: given the zeros
alone its log-odds are :math:`\mathrm{logit}\, \pi_i - \sum_{j: x_j = 0} w_{ij}`. The cost does not
depend on :math:`2^m`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.noisy_or.branching import OpenRows
from inference.structures.noisy_or.em_steps import (
    CauseRows,
    CauseStatistics,
    CauseSteps,
    log_beta_prior,
)
from ppl_models.descriptions.noisy_or import PROBABILITY_LIMIT, IndependentCauses, weight_of_failure

MAX_BITS = 62  # latents that fit into one integer
NUM_STATES = 64  # of a row
NUM_PARENTS = 4  # states of a row whose neighbours are tried
KEPT = -18.0  # log-odds against a row's best state beyond which one is dropped
POSSIBLE = -16.0  # log-odds given the zeros of a row below which a latent is not tried
# the state of all latents above such log-odds is tried: one flip after another does not lead there
FULL = (
    -8.0,
    0.0,
)
NUM_OPEN = 10  # latents of a row among whose settings its first states are sought
PAIRS = 2**15  # of rows and states held at once


@dataclass(frozen=True, eq=False)
class TruncatedSteps(CauseSteps):
    """Halves of truncated EM, for one restart; ``configurations`` (C, m) are the distinct states of
    all rows.

    Args:
        states: (U, K), for each row indices of configurations; -1 where the row has fewer.
    """

    states: Tensor | None = None

    @classmethod
    def begin(
        cls, causes: IndependentCauses, rows: CauseRows, configurations: Tensor, params: Params
    ) -> TruncatedSteps:
        """The best of some configurations (C, m) for each row; call :meth:`refreshed` for better
        ones.
        """
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
        """The likeliest settings of the latents that each row leaves open."""
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
        """Rows and configurations of the pairs there are, (P,), and where they stand in
        ``states``.
        """
        assert self.states is not None
        there = self.states >= 0
        return there.nonzero()[:, 0], self.states[there], there

    def _log_joint_of_pairs(self, params: Params, row: Tensor, state: Tensor) -> Tensor:
        """log p(x, h) of pairs of rows and configurations, (P,)."""
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
        """The bound of every merged row, (U,)."""
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
    def e_step(self, params: Params) -> tuple[CauseStatistics, Tensor, Tensor]:
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
        return (
            statistics,
            (bound @ self.rows.counts).unsqueeze(0),
            log_beta_prior(self.causes, params),
        )

    def on(self, data: Tensor) -> TruncatedSteps:
        raise ValueError("states belong to their rows: begin or open truncated steps on the others")

    @torch.no_grad()
    def refreshed(self, params: Params) -> TruncatedSteps:
        """The same with better states: neighbours of each row's best ones are tried; the bound does
        not fall.
        """
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
        allowed = possible[owner] | (
            self.configurations[parents[owner, slot]] > 0
        )  # a latent that is on may go off
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
