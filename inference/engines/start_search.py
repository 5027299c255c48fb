"""Search over starts: short runs of many, long runs of the best."""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from inference.base.checkpoint import Checkpoint
from inference.base.optima import Ranking, degenerate_restarts, rank_restarts
from inference.base.outcome import ConvergenceWarning, Outcome
from inference.base.progress import Progress
from inference.base.starts import StartSearch
from inference.base.structure import Method, Problem
from inference.programs.global_state import quiet
from inference.programs.program import Params
from ppl_models.data.tables import first_tensor

OVERHEAD = (
    1e5  # numbers that could be worked through in the time that an iteration takes on no data
)
# of the way from the best estimate to another start: far enough to leave the flat top of a saddle
NUDGE = 0.2
GAIN = 1e-6  # relative: what a nudged run must gain for the best estimate to have been a saddle

logger = logging.getLogger(__name__)
Draw = Callable[[int], Params]


def search_starts(
    search: StartSearch,
    method: Method,
    problem: Problem,
    draw: Draw,
    progress: Progress,
    checkpoint: Path | None,
) -> Outcome:
    """Run batches of starts as ``search`` says, and hand back those that were run to the end.

    The best estimate is moved a little at last and run again: from a saddle the objective then
    rises.

    Args:
        search: the rule.
        method: the engine, with a field ``max_iterations``.
        problem: model and data.
        draw: the starts of batch 0, 1, ..., each (B, ...).
        progress: told of iterations over all batches.
        checkpoint: file from which an interrupted search goes on; the running batch lies in files
            beside it.

    Warns:
        ConvergenceWarning: if the best start did not converge.
    """
    run = _Run(search, method, problem, progress, checkpoint)
    store = None
    if checkpoint is not None:
        store = Checkpoint(checkpoint, problem.fingerprint((search, method), _first(draw(0))))
    state = (None if store is None else store.load(SearchState)) or SearchState()
    if store is not None:
        store.save(state)
    while not state.done:
        run.done_before = state.iterations
        state = (
            run.nudge(state, draw)
            if _enough(search, problem, state)
            else run.batch(state, draw(state.batch))
        )
        logger.info(
            "%s starts tried, best %s %.4f",
            f"{state.batch * search.batch:,}",
            state.objective_name,
            float(state.objective.nan_to_num(-torch.inf).max()),
        )
        if store is not None:
            store.save(state)
            run.forget(state)
    outcome = state.outcome(search)
    best = rank_restarts(problem, outcome.params, outcome.objective).best
    if not outcome.converged[best]:
        warnings.warn(
            f"the best of {len(outcome.converged)} starts did not converge in"
            f" {getattr(method, 'max_iterations', 0)} iterations{outcome.left_in_words()}: raise"
            " max_iterations, loosen tolerance, try fewer latents, a penalty, or another start",
            ConvergenceWarning,
            stacklevel=4,
        )
    return outcome


@dataclass(frozen=True)
class SearchState:
    """Everything a resumed search needs: the starts run to the end so far, and what they cost.

    Args:
        params: (n, ...) by site; objective, log_likelihood, converged, num_iterations,
            objective_left: (n,).
        history, history_log_likelihood: (iterations, n), NaN after a start stopped.
        objective_name: what was maximised.
        batch: batches done; work: numbers worked through; iterations: of the longest start of every
            batch, added up.
        nudged: times that the best estimate was moved; done: whether the search has ended.
    """

    params: Params = dataclasses.field(default_factory=dict)
    objective: Tensor = torch.zeros(0, dtype=torch.float64)
    log_likelihood: Tensor = torch.zeros(0, dtype=torch.float64)
    converged: Tensor = torch.zeros(0, dtype=torch.bool)
    num_iterations: Tensor = torch.zeros(0, dtype=torch.long)
    objective_left: Tensor = torch.zeros(0, dtype=torch.float64)
    history: Tensor = torch.zeros(0, 0, dtype=torch.float64)
    history_log_likelihood: Tensor = torch.zeros(0, 0, dtype=torch.float64)
    objective_name: str = ""
    batch: int = 0
    work: float = 0.0
    iterations: int = 0
    nudged: int = 0
    done: bool = False

    def without(self, index: int) -> SearchState:
        """All but one of the starts."""
        kept = torch.arange(len(self.objective)) != index
        names = ("objective", "log_likelihood", "converged", "num_iterations", "objective_left")
        rows: dict[str, Any] = {name: getattr(self, name)[kept] for name in names}
        columns = {
            name: getattr(self, name)[:, kept] for name in ("history", "history_log_likelihood")
        }
        return replace(
            self,
            params={name: value[kept] for name, value in self.params.items()},
            **rows,
            **columns,
        )

    def take_in(self, short: Outcome | None, chosen: Tensor, long: Outcome) -> SearchState:
        """Add starts that were run to the end: the ``chosen`` after a ``short`` run."""
        second = long.num_iterations
        first = torch.zeros_like(second) if short is None else short.num_iterations[chosen]
        blank = long.history.new_zeros(0, int(chosen.max()) + 1)

        def joined(before: Tensor, after: Tensor) -> Tensor:
            out = torch.full(
                (int((first + second).max()), len(chosen)), torch.nan, dtype=torch.float64
            )
            for i, r in enumerate(chosen.tolist()):
                out[: first[i] + second[i], i] = torch.cat(
                    [before[: first[i], r], after[: second[i], i]]
                )
            return out

        return replace(
            self,
            params={
                name: torch.cat([self.params[name], v]) if self.params else v
                for name, v in long.params.items()
            },
            objective=torch.cat([self.objective, long.objective]),
            log_likelihood=torch.cat([self.log_likelihood, long.log_likelihood]),
            converged=torch.cat([self.converged, long.converged]),
            num_iterations=torch.cat([self.num_iterations, first + second]),
            objective_left=torch.cat(
                [
                    self.objective_left,
                    (
                        torch.full_like(long.objective, torch.nan)
                        if long.objective_left is None
                        else long.objective_left
                    ),
                ]
            ),
            history=_beside(
                self.history, joined(blank if short is None else short.history, long.history)
            ),
            history_log_likelihood=_beside(
                self.history_log_likelihood,
                joined(
                    blank if short is None else short.history_log_likelihood,
                    long.history_log_likelihood,
                ),
            ),
            objective_name=long.objective_name,
            iterations=self.iterations
            + (0 if short is None else int(short.num_iterations.max()))
            + int(second.max()),
        )

    def outcome(self, search: StartSearch) -> Outcome:
        """As every engine hands it back."""
        return Outcome(
            params=self.params,
            objective=self.objective,
            objective_name=self.objective_name,
            log_likelihood=self.log_likelihood,
            history=self.history,
            history_log_likelihood=self.history_log_likelihood,
            converged=self.converged,
            num_iterations=self.num_iterations,
            objective_left=self.objective_left,
            num_tried=self.batch * search.batch,
        )


def _beside(left: Tensor, right: Tensor) -> Tensor:
    """Courses of unequal length in one table, NaN where one has ended."""
    length = max(len(left), len(right))
    padded = [
        torch.cat([part, part.new_full((length - len(part), part.shape[1]), torch.nan)])
        for part in (left, right)
    ]
    return torch.cat(padded, 1)


def _ranked(problem: Problem, state: SearchState) -> Ranking:
    return rank_restarts(problem, state.params, state.objective)


def _enough(search: StartSearch, problem: Problem, state: SearchState) -> bool:
    if not state.params:
        return False
    if state.batch * search.batch >= search.cap or state.work >= search.budget:
        return True
    ranking = _ranked(problem, state)
    many = len(state.objective) >= search.least and ranking.num_reached >= search.replicates
    return many and ranking.share_seen_once <= search.unseen


@dataclass
class _Run:
    """One search, its engine and its files."""

    search: StartSearch
    method: Method
    problem: Problem
    progress: Progress
    checkpoint: Path | None
    done_before: int = 0

    def __post_init__(self) -> None:
        sites = self.problem.program().sites
        values = sum(site.num_values or 1 for site in sites if site.kind == "latent")
        self.size = float(sum(part.numel() for part in _tensors(self.problem.data))) * max(
            1, min(values, 2**16)
        )

    def batch(self, state: SearchState, start: Params) -> SearchState:
        """Short runs of a batch, and long runs of the best of them."""
        few = min(
            self.search.short_iterations,
            getattr(self.method, "max_iterations", self.search.short_iterations),
        )
        short = self.engine(
            replace(self.method, max_iterations=few),  # type: ignore[type-var]
            self.problem,
            start,
            f"{state.batch}-short",
        )
        degenerate = torch.tensor(
            [bool(words) for words in degenerate_restarts(self.problem, short.params)]
        )
        value = torch.where(short.objective.isnan(), -torch.inf, short.objective)
        order = value.argsort(descending=True, stable=True)
        chosen = order[degenerate[order].long().argsort(stable=True)][: self.search.finalists]
        self.done_before += int(short.num_iterations.max())
        long = self.long(short, chosen, f"{state.batch}-long")
        work = self.work(short) + self.work(long)
        return replace(
            state.take_in(short, chosen, long), batch=state.batch + 1, work=state.work + work
        )

    def long(self, short: Outcome, chosen: Tensor, name: str) -> Outcome:
        start = {site: value[chosen] for site, value in short.params.items()}
        return self.engine(self.method, replace(self.problem, start_given=True), start, name)

    def nudge(self, state: SearchState, draw: Draw) -> SearchState:
        """Move the best estimate towards another start and run again; a gain shows a saddle."""
        best = _ranked(self.problem, state).best
        old = {name: value[best : best + 1] for name, value in state.params.items()}
        other = draw(state.batch + state.nudged)
        start = {
            name: (1 - NUDGE) * value + NUDGE * other[name][-1:] for name, value in old.items()
        }
        new = self.engine(
            self.method, replace(self.problem, start_given=True), start, f"nudge-{state.nudged}"
        )
        work = state.work + self.work(new)
        gain = float(new.objective[0] - state.objective[best])
        rose = gain > GAIN * max(1.0, abs(float(state.objective[best])))
        rose = rose and not degenerate_restarts(self.problem, new.params)[0]
        state = replace(
            state, work=work, nudged=state.nudged + 1, done=not rose or state.nudged > 1
        )
        return (
            state.without(best).take_in(None, torch.zeros(1, dtype=torch.long), new)
            if rose
            else state
        )

    def engine(self, method: Any, problem: Problem, start: Params, name: str) -> Outcome:
        """One run of the engine, quiet about what only the search may say."""
        with quiet(ConvergenceWarning):
            outcome: Outcome = method.run(
                problem, start, _Later(self.progress, self.done_before), self.beside(name)
            )
        return outcome

    def work(self, outcome: Outcome) -> float:
        return (
            float(outcome.num_iterations.sum()) * self.size
            + float(outcome.num_iterations.max()) * OVERHEAD
        )

    def forget(self, state: SearchState) -> None:
        """Remove the files of batches that the search itself remembers by now."""
        done = [f"{batch}-{part}" for batch in range(state.batch) for part in ("short", "long")]
        for name in (*done, *(f"nudge-{i}" for i in range(state.nudged))):
            file = self.beside(name)
            if file is not None:
                file.unlink(missing_ok=True)

    def beside(self, name: str) -> Path | None:
        """The file of one run of the engine."""
        return (
            None
            if self.checkpoint is None
            else self.checkpoint.with_name(f"{self.checkpoint.name}.{name}")
        )


def _tensors(data: Any) -> list[Tensor]:
    found = list(data.values()) if isinstance(data, dict) else [first_tensor(data)]
    return [part for part in found if isinstance(part, Tensor)]


def _first(start: Params) -> Params:
    return {name: value[:1] for name, value in start.items()}


@dataclass(frozen=True)
class _Later:
    """Progress whose iterations follow those of earlier runs."""

    progress: Progress
    before: int

    def update(
        self, iteration: int, objective: float, active: int, gap: float | None = None
    ) -> None:
        self.progress.update(self.before + iteration, objective, active, gap)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None: ...
