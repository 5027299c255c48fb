r"""Growing and pruning the latents of a noisy-OR network: the search that finds all of them.

EM from a random start ends in a poor optimum most of the time: one latent stands for the union of
two, two share one. Both faults show in the data. Ones that no latent explains are blamed on the
leak, and the pattern of such a row is a good first guess of a missing latent; a row that a latent
explains badly holds the half of a union. So latents are added one at a time from the patterns of
such rows, many proposals improved by a few EM steps as one batch, and the best is kept while the
description length

.. math::

    -\log p(x \mid \theta) + \sum_i \left[\tfrac12 (1 + e_i) \log N + \log \binom{J}{e_i} + \log (J
    + 1)\right]

of latents with e_i edges falls; then latents are taken away while it falls. The truth has no part
in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.noisy_or.em_steps import CauseRows, CauseSteps
from ppl_models.descriptions.noisy_or import PROBABILITY_LIMIT, IndependentCauses, weight_of_leak
from ppl_models.parts.distributions import binary_configurations

SCREENED = 4096  # configurations among which the likely ones are sought
MAX_RANKED = 18  # of so many latents all configurations are ranked by prior mass
ON, OFF = 0.2, 0.95  # failures of a proposed latent on and off its pattern
NEW_PRIOR = 0.1
# failures below it are edges while latents are sought; the last EM judges each by its worth
EDGE = 0.98
FIRST_LEAK = 0.02


@dataclass(frozen=True, eq=False)
class Search:
    """The data at several sizes, and the moves.

    Parameters have a leading dim; one model is a batch of one.

    Args:
        causes: the description; its number of causes is the limit of the answer.
        rows: all rows, single precision; sample: those the search sees; screen: those that rank
            proposals.
        generator: of all draws.
        num_proposals, num_kept: proposals of a new latent, and how many of them survive the screen.
        num_configurations: enumerated in a step of the search.
        leak_cap: largest leak while latents grow: what is not explained must not vanish in the
            leak.
    """

    causes: IndependentCauses
    rows: CauseRows
    sample: CauseRows
    screen: CauseRows
    generator: torch.Generator
    num_proposals: int
    num_kept: int
    num_configurations: int
    leak_cap: float

    def price(self, params: Params, rows: CauseRows) -> float:
        """Description length of the latents, as the share that ``rows`` are of all rows; which
        edges there are is told too.
        """
        items = self.causes.num_items
        edges = (params[self.causes.failure][0] < EDGE).sum(1).double()  # (m,)
        numbers = 0.5 * math.log(max(2.0, self.rows.num_rows)) * (1 + edges)
        which = (
            math.lgamma(items + 1)
            - torch.lgamma(edges + 1)
            - torch.lgamma(items - edges + 1)
            + math.log(items + 1)
        )
        return float((numbers + which).sum()) * rows.num_rows / self.rows.num_rows

    def sites(self) -> tuple[str, str, str]:
        """Names of prior, failure and leak."""
        return self.causes.prior, self.causes.failure, self.causes.leak

    def size(self, params: Params) -> int:
        """Number of latents."""
        return params[self.causes.prior].shape[-1]

    def steps(self, rows: CauseRows, configurations: Tensor, num_newton: int) -> CauseSteps:
        """EM over some configurations."""
        causes = replace(self.causes, num_causes=configurations.shape[-1])
        return CauseSteps(causes, rows, configurations, num_newton, chunk_elements=2**19)

    def climb(
        self, steps: CauseSteps, params: Params, num_iterations: int, cap: float | None
    ) -> tuple[Params, Tensor]:
        """A few EM iterations, and the log-likelihood after them, (R,)."""
        for _ in range(num_iterations):
            params = steps.m_step(steps.e_step(params)[0], params)
            if cap is not None:
                params = {**params, self.causes.leak: params[self.causes.leak].clamp(max=cap)}
        return params, steps.e_step(params)[1]

    def room(self, num_latents: int) -> int:
        """Configurations enumerated for so many latents: up to nine of them all with the
        default.
        """
        return self.num_configurations * (1 if num_latents <= 8 else 2 if num_latents <= 11 else 4)

    def likely(
        self, rows: CauseRows, params: Params, num_configurations: int, screened: int = SCREENED
    ) -> Tensor:
        """The configurations (C, m) with most of the rows in them; all of them where they are few.

        Args:
            rows: the rows that vote.
            num_configurations: at most so many; screened: the vote is among so many of largest
                prior mass.
        """
        chance = params[self.causes.prior][0].clamp(PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)
        size = len(chance)
        if 2**size <= num_configurations:
            return binary_configurations(size, chance.dtype, chance.device)
        ranked = min(size, MAX_RANKED)
        top = chance.topk(ranked).indices  # the others are tried alone
        every = binary_configurations(ranked, chance.dtype, chance.device)
        every = every[(every @ chance[top].logit()).topk(min(screened, len(every))).indices]
        found = chance.new_zeros(len(every), size)
        found[:, top] = every
        if ranked < size:
            alone = torch.eye(size, dtype=chance.dtype, device=chance.device)
            found = torch.unique(torch.cat([found, alone]), dim=0)
        votes = self.steps(rows, found, 0).e_step(params)[0].per_configuration[0]
        return found[votes.topk(min(num_configurations, len(votes))).indices]

    # ---------------------------------------------------------------- growing

    def empty(self) -> Params:
        """No latent, a small leak."""
        like, items = self.rows.ones, self.causes.num_items
        prior, failure, leak = self.sites()
        return {
            prior: like.new_zeros(1, 0),
            failure: like.new_zeros(1, 0, items),
            leak: like.new_full((1, items), FIRST_LEAK),
        }

    def grown(self, params: Params) -> tuple[Params, float]:
        """One latent more: the best of many proposals, improved; with its log-likelihood on the
        sample.
        """
        prior, failure, leak = self.sites()
        if self.size(params):
            seen = self.likely(self.sample, params, max(1, self.room(self.size(params) + 1) // 2))
        else:
            seen = params[prior]  # (1, 0): the one configuration of no latent
        pattern = self.proposals(params, seen)
        count = len(pattern)
        batch = {
            prior: torch.cat(
                [params[prior].expand(count, -1), pattern.new_full((count, 1), NEW_PRIOR)], 1
            ),
            failure: torch.cat(
                [
                    params[failure].expand(count, -1, -1),
                    torch.where(pattern > 0.5, ON, OFF).unsqueeze(1),
                ],
                1,
            ),
            leak: params[leak].expand(count, -1).clone(),
        }
        doubled = torch.cat(
            [torch.nn.functional.pad(seen, (0, 1), value=float(bit)) for bit in (0, 1)]
        )
        batch, score = self.climb(self.steps(self.screen, doubled, 0), batch, 2, self.leak_cap)
        kept = score.topk(min(self.num_kept, count)).indices
        batch = {name: value[kept] for name, value in batch.items()}
        batch, score = self.climb(self.steps(self.sample, doubled, 0), batch, 3, self.leak_cap)
        best = int(score.argmax())
        one = {name: value[best : best + 1] for name, value in batch.items()}
        one, _ = self.climb(self.steps(self.sample, doubled, 1), one, 4, self.leak_cap)
        chosen = self.likely(
            self.sample, one, self.room(self.size(one))
        )  # for one latent more, other ones matter
        one, score = self.climb(self.steps(self.sample, chosen, 1), one, 3, self.leak_cap)
        return one, float(score)

    def proposals(self, params: Params, configurations: Tensor) -> Tensor:
        """Patterns (P, J) of probabilities: half from unexplained ones, half from rows that a
        latent explains badly.
        """
        rows = self.sample
        if not self.size(params):
            return rows.ones[
                self._draw(rows.counts * (rows.ones.sum(1) + 1e-9), self.num_proposals)
            ]
        steps = self.steps(rows, configurations, 0)
        eta, logits, log_prior = steps.log_joint(params)
        blame = (
            -torch.expm1(-eta[0])
        ).reciprocal()  # (C, J): the inverse probability that anything fires
        leaked = -torch.expm1(-weight_of_leak(params[self.causes.leak][0]))
        pieces = [steps.responsibilities(eta, logits, log_prior, part) for part in steps.parts(1)]
        posterior = torch.cat([piece[0][0] for piece in pieces])  # (U, C)
        surprise = -torch.cat([piece[1][0] for piece in pieces])
        unexplained = (posterior @ blame) * leaked * rows.ones
        num_new = (self.num_proposals + 1) // 2
        found = [unexplained[self._draw(rows.counts * (unexplained.sum(1) + 1e-9), num_new)]]
        on = (posterior @ configurations).clamp(min=1e-9) * (
            rows.counts * (surprise - surprise.min() + 1e-3)
        ).unsqueeze(1)
        fires = 1 - params[self.causes.failure][0]
        blamed = on.sum(
            0
        )  # different latents first, for one that holds the union of two is among many
        num_split = min(self.num_proposals - num_new, self.size(params))
        for latent in (
            torch.multinomial(blamed.cpu(), num_split, generator=self.generator).tolist()
            if num_split
            else ()
        ):
            row = self._draw(on[:, latent], 1)
            with_it = posterior[row] * configurations[:, latent]
            found.append(
                (((with_it @ blame) * fires[latent] * rows.ones[row]) + unexplained[row]).clamp(
                    max=1
                )
            )
        return torch.cat(found)

    def _draw(self, weights: Tensor, num: int) -> Tensor:
        return torch.multinomial(weights.cpu(), num, replacement=True, generator=self.generator).to(
            weights.device
        )

    # ---------------------------------------------------------------- pruning

    def without(self, params: Params, latent: int) -> Params:
        """The same model without one latent."""
        prior, failure, leak = self.sites()
        kept = [i for i in range(self.size(params)) if i != latent]
        return {
            prior: params[prior][:, kept],
            failure: params[failure][:, kept],
            leak: params[leak],
        }

    def pruned(
        self,
        params: Params,
        score: float,
        rows: CauseRows,
        num_configurations: int | None,
        cap: float | None,
        limit: int,
    ) -> tuple[Params, float]:
        """Latents taken away while the description length falls, or while there are more than
        ``limit``.

        Every latent is judged by the likelihood without it, as it stands; the two that matter least
        are tried in turn, the others refitted each time.
        """
        while self.size(params) > 1:
            size = self.size(params)
            seen = self.likely(rows, params, num_configurations or self.room(size))
            judged = []
            for latent in range(size):
                others = [i for i in range(size) if i != latent]
                off = seen[seen[:, latent] == 0][:, others]
                if not len(off):  # on in all of them
                    judged.append(-math.inf)
                    continue
                judged.append(
                    float(self.steps(self.screen, off, 0).e_step(self.without(params, latent))[1])
                )
            best: tuple[float, float, Params] | None = None  # length, log-likelihood, parameters
            whole = self.price(params, rows) - score
            for latent in sorted(range(size), key=lambda i: -judged[i])[:2]:
                others = [i for i in range(size) if i != latent]
                steps = self.steps(rows, torch.unique(seen[:, others], dim=0), 1)
                trial, value = self.climb(steps, self.without(params, latent), 8, cap)
                length = self.price(trial, rows) - float(value)
                if best is None or length < best[0]:
                    best = length, float(value), trial
                if best[0] < whole:
                    break
            if best is None or (best[0] >= whole and size <= limit):
                break
            score, params = best[1:]
        return params, score
