r"""Engine: growing and pruning of noisy-OR latents by description length, then exact EM.

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
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from inference.base.checkpoint import Checkpoint
from inference.base.outcome import ConvergenceWarning, Outcome
from inference.base.progress import Progress
from inference.base.structure import Problem
from inference.engines.em import EM
from inference.programs.global_state import quiet
from inference.programs.program import Params
from inference.structures.noisy_or.em_steps import CauseRows, CauseSteps, check_switches_only_on
from inference.structures.noisy_or.likelihood import total_of_merged
from inference.structures.noisy_or.truncated_em import MAX_BITS, TruncatedSteps
from ppl_models.descriptions.noisy_or import (
    MAX_CAUSES,
    PROBABILITY_LIMIT,
    IndependentCauses,
    weight_of_leak,
)
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.validation import check_number, check_size, plain_fields

SCREENED = 4096  # configurations among which the likely ones are sought
MAX_RANKED = 18  # of so many latents all configurations are ranked by prior mass
ON, OFF = 0.2, 0.95  # failures of a proposed latent on and off its pattern
NEW_PRIOR = 0.1
# failures below it are edges while latents are sought; the last EM judges each by its worth
EDGE = 0.98
FIRST_LEAK = 0.02


@dataclass(frozen=True, eq=False)
class Search:
    """Search over numbers of latents: data at several sizes, and the moves.

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
        """Description length of latents and edges, scaled to the share of ``rows``."""
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
        """EM steps over some configurations."""
        causes = replace(self.causes, num_causes=configurations.shape[-1])
        return CauseSteps(causes, rows, configurations, num_newton, chunk_elements=2**19)

    def climb(
        self, steps: CauseSteps, params: Params, num_iterations: int, cap: float | None
    ) -> tuple[Params, Tensor]:
        """Run a few EM iterations; the parameters, and their log-likelihood, (R,)."""
        for _ in range(num_iterations):
            params = steps.m_step(steps.e_step(params)[0], params)
            if cap is not None:
                params = {**params, self.causes.leak: params[self.causes.leak].clamp(max=cap)}
        return params, steps.e_step(params)[1]

    def room(self, num_latents: int) -> int:
        """Number of configurations enumerated for a number of latents."""
        return self.num_configurations * (1 if num_latents <= 8 else 2 if num_latents <= 11 else 4)

    def likely(
        self, rows: CauseRows, params: Params, num_configurations: int, screened: int = SCREENED
    ) -> Tensor:
        """Configurations (C, m) with most of the rows in them; all where they are few.

        ``rows``: the rows that vote; ``num_configurations``: at most so many; ``screened``: the
        vote is among so many of largest prior mass.
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
        """Parameters of no latent, with a small leak."""
        like, items = self.rows.ones, self.causes.num_items
        prior, failure, leak = self.sites()
        return {
            prior: like.new_zeros(1, 0),
            failure: like.new_zeros(1, 0, items),
            leak: like.new_full((1, items), FIRST_LEAK),
        }

    def grown(self, params: Params) -> tuple[Params, float]:
        """Add the best of many proposed latents; the parameters and log-likelihood."""
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
        # for one latent more, other ones matter
        chosen = self.likely(self.sample, one, self.room(self.size(one)))
        one, score = self.climb(self.steps(self.sample, chosen, 1), one, 3, self.leak_cap)
        return one, float(score)

    def proposals(self, params: Params, configurations: Tensor) -> Tensor:
        """Patterns (P, J) of probabilities: unexplained ones, and rows a latent explains badly."""
        rows = self.sample
        if not self.size(params):
            return rows.ones[
                self._draw(rows.counts * (rows.ones.sum(1) + 1e-9), self.num_proposals)
            ]
        steps = self.steps(rows, configurations, 0)
        eta, logits, log_prior = steps.log_joint(params)
        # (C, J): the inverse probability that anything fires
        blame = (-torch.expm1(-eta[0])).reciprocal()
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
        # different latents first, for one that holds the union of two is among many
        blamed = on.sum(0)
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
        """Parameters without one latent."""
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
        """Remove latents while the description length falls, or above ``limit``.

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


EXACT = 10  # up to so many latents the last EM enumerates all configurations
LIKELY = 1024  # configurations from which truncated EM begins
NUM_THINNINGS = 3  # times that edges are judged
LEAST_GAIN = 0.2  # of the mean price of a latent
SPARE = 3  # latents beyond the limit that the search may hold for a while


@dataclass(frozen=True)
class GrowAndPrune:
    r"""Latents added one at a time and pruned by description length, then exact EM.

    For models that offer ``causes()``.

    Starting from no latent, patterns of badly explained rows are proposed as a new latent, improved
    by a few batched EM steps on a sample of the rows, and the best is kept, while :math:`-\log p(x
    \mid \theta) + \frac12 (m + e) \log N`, with e edges, falls; then latents are removed while it
    falls, on all rows, and at last edges. The model's ``num_latents`` is the limit: latents that
    are not paid for come back empty, with prior 1e-6 and failures one, which leaves the likelihood
    what it is without them. ``num_restarts`` independent searches are run one after the other, and
    the one with the best objective, the log-posterior less the description length, is reported. A
    start that is given is where each search begins. A checkpoint holds the network as it grows;
    resumed, the answer is the same.

    Up to 10 used latents the last EM is exact; beyond, each row sums over the states that hold its
    posterior (:mod:`inference.structures.noisy_or.truncated_em`), a lower bound. The log-likelihood
    reported is exact up to 16, and beyond it is NaN, with the bound in ``elbo``. Where data are no
    noisy-OR network, more latents are paid for the more of the rows the search sees: 4,000 rows, 32
    proposals and a patience of 6 find a better fit, in some four times the time.

    Args:
        num_search_rows: rows the search sees; the last EM sees all.
        num_proposals: patterns tried for each new latent.
        patience: so many new latents in vain end the growth.
        num_configurations: enumerated while searching (twice as many beyond 8 latents, four times
            beyond 10).
        leak_cap: largest leak while latents grow.
        max_iterations, tolerance: of the last EM, in relative change of the objective.

    Raises:
        ValueError: for settings that are not positive, at ``fit`` for a model without causes, or a
            start of more than 62 latents.
    """

    num_search_rows: int = 2000
    num_proposals: int = 16
    patience: int = 3
    num_configurations: int = 256
    leak_cap: float = 0.05
    max_iterations: int = 100
    tolerance: float = 1e-7

    def __post_init__(self) -> None:
        plain_fields(self)
        for name in (
            "num_search_rows",
            "num_proposals",
            "patience",
            "num_configurations",
            "max_iterations",
        ):
            check_size("GrowAndPrune", name, getattr(self, name))
        check_number("GrowAndPrune", "leak_cap", self.leak_cap, "lie in (0, 1)", above=0, below=1)
        check_number("GrowAndPrune", "tolerance", self.tolerance, "be positive and finite", above=0)

    def run(
        self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None
    ) -> Outcome:
        """Run as many searches as ``start`` has restarts."""
        causes = problem.structure.about
        if not isinstance(causes, IndependentCauses):
            raise ValueError(
                "method: GrowAndPrune is for models that offer causes() (NoisyOr), got"
                f" {problem.model!r}"
            )
        check_switches_only_on("method: GrowAndPrune", causes)
        rows = CauseRows.merge(problem.data)
        generator = torch.Generator().manual_seed(problem.seed)
        store = (
            None if checkpoint is None else Checkpoint(checkpoint, problem.fingerprint(self, start))
        )
        state = (store.load(_State) if store else None) or _State(
            0, generator.get_state(), generator.get_state(), {}, {}
        )
        while state.restart < (1 if progress.stopped else len(start[causes.prior])):
            generator.set_state(state.before)
            search = self._search(causes, rows, generator)
            if not state.params:
                one = {
                    name: value[state.restart : state.restart + 1].to(search.rows.ones)
                    for name, value in start.items()
                }
                begin = _without_empty(causes, one) if problem.start_given else search.empty()
                if search.size(begin) > MAX_BITS:
                    raise ValueError(
                        f"init: at most {MAX_BITS} latents that are not empty were expected, got"
                        f" {search.size(begin)}"
                    )
                state = replace(state, now=generator.get_state(), params=begin)
            generator.set_state(state.now)
            state = self._grown(search, state, progress, store)
            run = self._one(search, state.params, rows, progress)
            now = generator.get_state()
            state = _State(state.restart + 1, now, now, {}, state.done | run.tensors(state.restart))
            if store:
                store.save(state)
        outcome = _joined([_Run.of(state.done, restart) for restart in range(state.restart)])
        unfinished = int((~outcome.converged).sum())
        if unfinished and not progress.stopped:
            warnings.warn(
                f"the last EM of {unfinished} of {len(outcome.converged)} searches did not converge"
                f" in {self.max_iterations} iterations: the strengths of causes may still move;"
                " raise max_iterations of GrowAndPrune()",
                ConvergenceWarning,
                stacklevel=3,
            )
        return outcome

    def _search(
        self, causes: IndependentCauses, rows: CauseRows, generator: torch.Generator
    ) -> Search:
        single = rows.to(torch.float32)
        sample = single.sample(self.num_search_rows, generator)
        screen = sample.sample(max(1, self.num_search_rows * 3 // 10), generator)
        kept = min(3, self.num_proposals)
        return Search(
            causes,
            single,
            sample,
            screen,
            generator,
            self.num_proposals,
            kept,
            self.num_configurations,
            self.leak_cap,
        )

    def _one(self, search: Search, params: Params, rows: CauseRows, progress: Progress) -> _Run:
        if search.size(params) > EXACT:  # many configurations by all rows take minutes
            params = self._pruned(search, params, search.sample)
        if search.size(params) <= EXACT:
            params = self._pruned(search, params, search.rows)
        return self._polished(search, params, rows, progress)

    def _pruned(self, search: Search, params: Params, rows: CauseRows) -> Params:
        """Remove latents that these rows do not pay for."""
        room = search.room(search.size(params))
        steps = search.steps(rows, search.likely(rows, params, room), 1)
        params, score = search.climb(steps, params, 6, None)
        return search.pruned(params, float(score), rows, room, None, search.causes.num_causes)[0]

    def _grown(
        self, search: Search, state: _State, progress: Progress, store: Checkpoint | None
    ) -> _State:
        """Grow with a prune whenever growth stalls, until it stalls for good."""
        sample = search.sample
        limit = min(search.causes.num_causes + SPARE, MAX_BITS)
        if search.size(state.params) and state.score == -math.inf:
            configurations = search.likely(
                sample, state.params, search.room(search.size(state.params))
            )
            best, value = search.climb(
                search.steps(sample, configurations, 1), state.params, 3, search.leak_cap
            )
            state = replace(state, params=best, score=float(value))
        while (
            state.failures < self.patience
            and search.size(state.params) < limit
            and not (progress.stopped and search.size(state.params))
        ):
            trial, score = search.grown(state.params)
            length = search.price(state.params, sample) - state.score
            price = search.price(trial, sample)
            if price - score < length - LEAST_GAIN * price / search.size(trial):
                state = replace(state, params=trial, score=score, failures=0)
                size = search.size(trial)
                progress.update(size, objective=score - price, active=1, engine="GrowAndPrune")
            else:
                state = replace(state, failures=state.failures + 1)
                if state.failures in (2, self.patience):
                    size = search.size(state.params)
                    fewer, score = search.pruned(
                        state.params, state.score, sample, None, search.leak_cap, size
                    )
                    if search.size(fewer) < size:
                        state = replace(state, params=fewer, score=score, failures=0)
            state = replace(state, now=search.generator.get_state())
            if store:
                store.save(state)
        return state

    def _polished(
        self, search: Search, params: Params, rows: CauseRows, progress: Progress
    ) -> _Run:
        """Polish by EM on all rows, removal of unpaid edges, and EM again."""
        causes, like = replace(search.causes, num_causes=search.size(params)), rows.ones
        params = {name: value.to(like) for name, value in params.items()}
        if causes.num_causes <= EXACT:
            every = binary_configurations(causes.num_causes, like.dtype, like.device)
            steps = CauseSteps(causes, rows, every, 2, chunk_elements=2**19)
        else:
            likely = search.likely(
                search.sample, {name: v.float() for name, v in params.items()}, LIKELY, 4 * LIKELY
            )
            steps = TruncatedSteps.begin(causes, rows, likely.to(like), params)
        polish = Polish(steps, params, progress)
        polish.climb(self.max_iterations, 100 * self.tolerance)
        for _ in range(NUM_THINNINGS):
            if not polish.thin():
                break
            polish.climb(self.max_iterations, self.tolerance)
        exact = bound = polish.log_likelihood
        if causes.num_causes > EXACT:
            own = {name: value[0] for name, value in polish.params.items()}
            exact, better = total_of_merged(causes, rows, own)
            bound = bound if causes.num_causes <= MAX_CAUSES else better
        return _Run(
            padded(search.causes, polish.params),
            exact,
            bound,
            polish.objectives,
            polish.likelihoods,
            polish.converged,
        )


@dataclass(frozen=True, eq=False)
class _State:
    """Checkpoint of searches under way.

    Args:
        restart: the one that runs; before, now: states of the generator when it began, and now.
        params: of the growing network, none before it begins; done: the searches that have ended.
        score: its log-likelihood on the sample; failures: new latents in vain.
    """

    restart: int
    before: Tensor
    now: Tensor
    params: Params
    done: dict[str, Tensor]
    score: float = -math.inf
    failures: int = 0


@dataclass(frozen=True, eq=False)
class _Run:
    """Result of a search that has ended."""

    params: Params
    log_likelihood: float
    bound: float
    objectives: list[float]
    likelihoods: list[float]
    converged: bool

    def tensors(self, restart: int) -> dict[str, Tensor]:
        numbers = torch.tensor(
            [self.log_likelihood, self.bound, self.converged], dtype=torch.float64
        )
        course = torch.tensor([self.objectives, self.likelihoods], dtype=torch.float64)
        named = {
            "numbers": numbers,
            "course": course,
            **{f"params {name}": value for name, value in self.params.items()},
        }
        return {f"{restart} {name}": value for name, value in named.items()}

    @classmethod
    def of(cls, tensors: dict[str, Tensor], restart: int) -> _Run:
        """Build a run from :meth:`tensors`."""
        head = f"{restart} params "
        params = {
            name.removeprefix(head): value
            for name, value in tensors.items()
            if name.startswith(head)
        }
        log_likelihood, bound, converged = tensors[f"{restart} numbers"].tolist()
        objectives, likelihoods = tensors[f"{restart} course"].tolist()
        return cls(params, log_likelihood, bound, objectives, likelihoods, bool(converged))


def used_latents(causes: IndependentCauses, params: Params) -> list[int]:
    """Latents of one model (leading dim one or none) with a prior and an edge."""
    prior = params[causes.prior].reshape(causes.num_causes)
    sites = [name for name in (causes.failure, causes.spared) if name is not None]
    edges = torch.cat([params[name].reshape(causes.num_causes, -1) for name in sites], 1)
    used = (prior > 10 * PROBABILITY_LIMIT) & (edges.amin(1) < 1 - 10 * PROBABILITY_LIMIT)
    return [int(i) for i in used.nonzero().ravel()]


def _without_empty(causes: IndependentCauses, params: Params) -> Params:
    used = used_latents(causes, params)
    # the search may find edges where there are none
    failure = params[causes.failure][:, used].clamp(max=1 - PROBABILITY_LIMIT)
    return {
        causes.prior: params[causes.prior][:, used],
        causes.failure: failure,
        causes.leak: params[causes.leak],
    }


def padded(causes: IndependentCauses, params: Params) -> Params:
    """Pad with empty latents, of prior 1e-6 and failures of one; (R, ...)."""
    spare = causes.num_causes - params[causes.prior].shape[1]
    prior = torch.nn.functional.pad(params[causes.prior], (0, spare), value=PROBABILITY_LIMIT)
    failure = torch.nn.functional.pad(params[causes.failure], (0, 0, 0, spare), value=1.0)
    return {causes.prior: prior, causes.failure: failure, causes.leak: params[causes.leak]}


def _joined(runs: list[_Run]) -> Outcome:
    """Join runs as restarts of one outcome."""
    longest = max(len(run.objectives) for run in runs)

    def filled(values: list[float]) -> list[float]:
        return values + [float("nan")] * (longest - len(values))

    def table(column: Any) -> Tensor:
        return torch.tensor([filled(column(run)) for run in runs], dtype=torch.float64).T

    return Outcome(
        params={name: torch.cat([run.params[name] for run in runs]) for name in runs[0].params},
        objective=torch.tensor([run.objectives[-1] for run in runs], dtype=torch.float64),
        objective_name="log-posterior - description length",
        log_likelihood=torch.tensor([run.log_likelihood for run in runs], dtype=torch.float64),
        history=table(lambda run: run.objectives),
        history_log_likelihood=table(lambda run: run.likelihoods),
        converged=torch.tensor([run.converged for run in runs]),
        num_iterations=torch.tensor([len(run.objectives) for run in runs]),
        elbo=torch.tensor([run.bound for run in runs], dtype=torch.float64),
    )


# the states of truncated EM are exchanged in the first so many iterations, then at every eighth
OFTEN, SELDOM = (4, 8)


class Polish:
    r"""Final EM of one restart, with edge removal.

    The objective is the log-posterior less the description length :math:`\frac12 (m + e) \log N` of
    m priors and e edges; at first every latent has an edge to every item.

    Args:
        steps: exact or truncated halves of EM on all rows.
        params: where it begins, (1, ...).
    """

    def __init__(self, steps: CauseSteps, params: Params, progress: Progress) -> None:
        self.steps, self.params, self.progress = steps, params, progress
        self.objectives: list[float] = []
        self.likelihoods: list[float] = []
        self.converged = False

    @property
    def edge_price(self) -> float:
        """Price of an edge: half the logarithm of the number of rows."""
        return 0.5 * math.log(max(2.0, self.steps.rows.num_rows))

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood at the parameters; a lower bound where EM is truncated."""
        return self.likelihoods[-1]

    def climb(self, max_iterations: int, tolerance: float) -> None:
        """Run EM until the objective gains less than ``tolerance`` of itself."""
        causes = self.steps.causes
        if self.steps.edges is None:
            edges = torch.ones(causes.num_causes, causes.num_items)
        else:
            edges = self.steps.edges
        price = float(edges.sum() + (edges.sum(1) > 0).sum()) * self.edge_price
        if isinstance(self.steps, TruncatedSteps):
            self._climb_truncated(self.steps, price, max_iterations, tolerance)
        else:
            self._climb_exactly(price, max_iterations, tolerance)

    def _climb_exactly(self, price: float, max_iterations: int, tolerance: float) -> None:
        """Run exact EM by extrapolated steps."""
        method = EM(max_iterations=max_iterations, tolerance=tolerance, parameter_tolerance=1.0)
        with quiet():  # how far it came is in the outcome
            outcome = method.climb(
                self.steps,
                self.params,
                True,
                self.progress,
                supports=lambda: dict.fromkeys(self.params, constraints.unit_interval),
            ).outcome()
        self.params, self.converged = outcome.params, bool(outcome.converged[0])
        own = slice(int(outcome.num_iterations[0]))
        self.likelihoods += [
            *outcome.history_log_likelihood[own, 0].tolist(),
            float(outcome.log_likelihood[0]),
        ]
        self.objectives += [
            value - price
            for value in (*outcome.history[own, 0].tolist(), float(outcome.objective[0]))
        ]

    def _climb_truncated(
        self, steps: TruncatedSteps, price: float, max_iterations: int, tolerance: float
    ) -> None:
        """Run truncated EM by plain steps, each on the configurations likely by then."""
        first, self.converged = len(self.objectives), False
        for iteration in range(max_iterations + 1):
            if len(self.objectives) < OFTEN or iteration % SELDOM == 0:
                self.steps = steps = steps.refreshed(self.params)
            statistics, log_likelihood, log_prior = steps.e_step(self.params)
            self.likelihoods.append(float(log_likelihood))
            self.objectives.append(float(log_likelihood + log_prior) - price)
            done = len(self.objectives)
            self.progress.update(done, self.objectives[-1], 1, engine="GrowAndPrune")
            if len(self.objectives) > first + 1:
                gain = self.objectives[-1] - self.objectives[-2]
                self.converged = gain < tolerance * max(1.0, abs(self.objectives[-1]))
            if self.converged or iteration == max_iterations or self.progress.stopped:
                return
            self.params = steps.m_step(statistics, self.params)

    def thin(self) -> bool:
        """Remove edges that are not worth their price; whether there were any."""
        statistics = self.steps.e_step(self.params)[0]
        edges = self.steps.without_unpaid_edges(statistics, self.params, self.edge_price)
        before = edges.numel() if self.steps.edges is None else int(self.steps.edges.sum())
        self.steps = replace(self.steps, edges=edges)
        failure = self.params[self.steps.causes.failure]
        self.params = {
            **self.params,
            self.steps.causes.failure: torch.where(edges, failure, 1 - PROBABILITY_LIMIT),
        }
        return int(edges.sum()) < before
