r"""Search over starts: a race of many, long runs of the best.

Every batch of starts runs as one, and every ten iterations a :class:`Race` looks at the objectives
:math:`f_t` of the starts that still run:

- *rungs*: at the iterations that the rule names, only the best go on; a solution that is degenerate
  ranks last.
- *met*: a start that gained less than ``MEETS`` nats over the last ten iterations, and stands
  within a tenth of that below another such start, or one that has ended, is on its hill: it leaves,
  and counts as its replicate.
- *late*: let the best start that has ended have taken :math:`t_b` iterations, and let r be the
  largest gain an iteration of the last thirty. A start below it leaves after :math:`20 t_b + 50`
  iterations, or where even at its best pace it would not come up to it by then. The present pace is
  held, never a slowing one, for EM waits on plateaus and rises again.
- *creeping*: from iteration 100 on a start that gained less than ``CREEPS`` nats over twenty
  iterations, and no more over the last ten than over the ten before, is set aside as ended. The
  winner alone is run on to the tolerance of the engine at last.

"Ended" and "best" mean solutions that are not degenerate. The rules read objectives and
iterations, never seconds.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from inference.base.checkpoint import Checkpoint
from inference.base.optima import degenerate_restarts, rank_restarts, rounding, same_value
from inference.base.outcome import ConvergenceWarning, Outcome
from inference.base.progress import Progress
from inference.base.starts import StartSearch
from inference.base.structure import Problem
from inference.engines.em import DROPPED, EM, RUNNING, SET_ASIDE, EMState
from inference.programs.global_state import quiet
from inference.programs.program import Params

OVERHEAD = (
    1e5  # numbers that could be worked through in the time that an iteration takes on no data
)
# of the way from the best estimate to another start: far enough to leave the flat top of a saddle
NUDGE = 0.2
SURE = 0.4  # of the starts: where so many came to the best, no other place is looked for
GAIN = 1e-6  # relative: what a nudged run must gain for the best estimate to have been a saddle
LOOK, FIRST_LOOK = 10, 20  # iterations between two looks at a race, and before the first
MEETS = 0.01  # nats gained over LOOK iterations by a start that is on its hill
CREEPS, FIRST_CREEP = 0.002, 100  # nats over 2 LOOK iterations, and the iteration they count from
SPARE, SPARE_STEPS = 20, 50  # a start may take SPARE t_b + SPARE_STEPS iterations

logger = logging.getLogger(__name__)
Draw = Callable[[int], Params]


def search_starts(
    search: StartSearch,
    method: EM,
    problem: Problem,
    draw: Draw,
    progress: Progress,
    checkpoint: Path | None,
    before: SearchState | None = None,
) -> SearchState:
    """Run batches of starts as ``search`` says, and hand back those that were run to the end.

    The best estimate is moved a little at last and run again: from a saddle the objective then
    rises. That is left out where two fifths of the starts, and twice ``search.replicates``, came to
    the best: so many do not end on a saddle.

    Args:
        search: the rule.
        method: the engine.
        problem: model and data.
        draw: the starts of batch 0, 1, ..., each (B, ...).
        progress: told of iterations over all batches.
        checkpoint: file from which an interrupted search goes on; the running batch lies in files
            beside it.
        before: an earlier search for the same problem, not ``done``, which goes on under this rule;
            None to begin one. Where it is ``settled``, the best estimate is not moved.

    Warns:
        ConvergenceWarning: if the best start did not converge.
    """
    run = _Run(search, method, problem, draw, progress, checkpoint)
    store = None
    if checkpoint is not None:
        first = {name: value[:1] for name, value in run.starts(0).items()}
        store = Checkpoint(checkpoint, problem.fingerprint((search, method), first))
    state = (None if store is None else store.load(SearchState)) or before or SearchState()
    if store is not None:
        store.save(state)
    while not state.done and not (progress.stopped and state.params):
        run.done_before = state.iterations
        state = run.step(state)
        logger.info(
            "%s starts tried, best %s %.4f",
            f"{state.num_tried:,}",
            state.objective_name,
            float(state.objective.nan_to_num(-torch.inf).max()),
        )
        if store is not None:
            store.save(state)
            run.forget(state)
    if not state.converged[state.best] and not progress.stopped:
        warnings.warn(
            f"the best of {len(state.converged)} starts did not converge in"
            f" {method.max_iterations} iterations{state.outcome().left_in_words()}: raise"
            " max_iterations, loosen tolerance, try fewer latents, a penalty, or another start",
            ConvergenceWarning,
            stacklevel=4,
        )
    return state


ROWS = ("objective", "log_likelihood", "converged", "num_iterations", "objective_left")
COURSES = ("history", "history_log_likelihood")


@dataclass(frozen=True)
class SearchState:
    """Everything a resumed search needs: the starts run to the end so far, and what they cost.

    Args:
        params: (n, ...) by site; objective, log_likelihood, converged, num_iterations,
            objective_left: (n,).
        replicates: starts that each of them stands for, itself and those that met it, (n,);
            sound: whether its solution is not degenerate, (n,).
        history, history_log_likelihood: (iterations, n), NaN after a start stopped.
        values: objective of every start of the last batch where it ended, left, or met another,
            -inf for degenerate solutions, (B,).
        objective_name: what was maximised.
        num_tried: starts drawn; batch: batches done; work: numbers worked through; iterations:
            of the longest start of every
            batch, added up; stalled: batches in a row that did not raise the best objective.
        nudged: times that the best estimate was moved; settled: whether that is done; done: whether
            the search has ended.
    """

    params: Params = field(default_factory=dict)
    objective: Tensor = torch.zeros(0, dtype=torch.float64)
    log_likelihood: Tensor = torch.zeros(0, dtype=torch.float64)
    converged: Tensor = torch.zeros(0, dtype=torch.bool)
    num_iterations: Tensor = torch.zeros(0, dtype=torch.long)
    objective_left: Tensor = torch.zeros(0, dtype=torch.float64)
    replicates: Tensor = torch.zeros(0, dtype=torch.long)
    sound: Tensor = torch.zeros(0, dtype=torch.bool)
    history: Tensor = torch.zeros(0, 0, dtype=torch.float64)
    history_log_likelihood: Tensor = torch.zeros(0, 0, dtype=torch.float64)
    values: Tensor = torch.zeros(0, dtype=torch.float64)
    objective_name: str = ""
    num_tried: int = 0
    batch: int = 0
    work: float = 0.0
    iterations: int = 0
    stalled: int = 0
    nudged: int = 0
    settled: bool = False
    done: bool = False

    @property
    def best(self) -> int:
        """Index of the best start: of those whose solution is not degenerate, if any."""
        value = self.objective.nan_to_num(-torch.inf)
        allowed = torch.where(self.sound, value, -torch.inf)
        return int((allowed if bool(allowed.isfinite().any()) else value).argmax())

    def num_reached(self, problem: Problem) -> int:
        """Starts whose objective is that of the best, none if that is degenerate."""
        if not bool(self.sound.any()):
            return 0
        top = float(self.objective[self.best])
        near = self.sound & (self.objective >= top - same_value(self.params, top))
        return int(self.replicates[near].sum())

    def take_in(self, run: Outcome, sound: Tensor, replicates: Tensor) -> SearchState:
        """Add starts that were run to the end.

        Args:
            run: of n' starts; sound, replicates: (n',).
        """
        left = run.objective_left
        new: dict[str, Tensor] = {
            name: getattr(run, name) for name in (*ROWS, *COURSES) if name != "objective_left"
        } | {
            "objective_left": torch.full_like(run.objective, torch.nan) if left is None else left,
            "sound": sound,
            "replicates": replicates,
        }
        every: dict[str, Any] = {
            name: torch.cat([getattr(self, name), new[name]]) for name in (*ROWS, *EVIDENCE)
        }
        every |= {name: _beside(getattr(self, name), new[name]) for name in COURSES}
        every["params"] = {
            name: torch.cat([self.params[name], value]) if self.params else value
            for name, value in run.params.items()
        }
        return replace(self, objective_name=run.objective_name, **every)

    def merged(self, index: int, same: Tensor) -> tuple[SearchState, int]:
        """Let one start stand for others on its hill, ``same``; its index afterwards."""
        replicates = self.replicates.clone()
        replicates[index] = replicates[torch.cat([same, torch.tensor([index])]).unique()].sum()
        kept = torch.ones(len(replicates), dtype=torch.bool)
        kept[same] = False
        kept[index] = True
        self = replace(self, replicates=replicates)
        left: dict[str, Any] = {name: getattr(self, name)[kept] for name in (*ROWS, *EVIDENCE)}
        left |= {name: getattr(self, name)[:, kept] for name in COURSES}
        params = {name: value[kept.to(value.device)] for name, value in self.params.items()}
        return replace(self, params=params, **left), int(kept[:index].sum())

    def replaced(self, index: int, run: Outcome, is_longer: bool) -> SearchState:
        """Put the one start of a run in the place of another, or behind its course."""
        before = int(self.num_iterations[index]) if is_longer else 0
        courses: dict[str, Any] = {}
        for name in COURSES:
            course = torch.cat([getattr(self, name)[:before, index], getattr(run, name)[:, 0]])
            kept = getattr(self, name).clone()
            kept[:, index] = torch.nan
            table = _beside(kept, course.unsqueeze(1))
            table[:, index] = table[:, -1]
            courses[name] = table[:, :-1]
        rows: dict[str, Any] = {}
        for name in ROWS:
            value = getattr(run, name)
            rows[name] = getattr(self, name).clone()
            rows[name][index] = torch.nan if value is None else value[0]
        rows["num_iterations"][index] += before
        params = {name: value.clone() for name, value in self.params.items()}
        for name, value in params.items():
            value[index] = run.params[name][0]
        return replace(self, params=params, **rows, **courses)

    def outcome(self) -> Outcome:
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
            num_tried=self.num_tried,
            replicates=self.replicates,
        )


EVIDENCE = ("replicates", "sound")


def _beside(left: Tensor, right: Tensor) -> Tensor:
    """Courses of unequal length in one table, NaN where one has ended."""
    length = max(len(left), len(right))
    padded = [
        torch.cat([part, part.new_full((length - len(part), part.shape[1]), torch.nan)])
        for part in (left, right)
    ]
    return torch.cat(padded, 1)


@dataclass
class Race:
    """Rules by which starts of one batch leave it; see the module.

    Args:
        rungs: pairs of an iteration and of how many starts go on from it.
        problem: model and data.
        before: starts that ended in earlier batches. In ``EMState.fate`` they are numbered first,
            those of the batch follow.
    """

    rungs: tuple[tuple[int, int], ...]
    problem: Problem
    before: SearchState
    faults: dict[tuple[int, int], bool] = field(default_factory=dict)

    def __call__(self, state: EMState) -> EMState:
        """Take out the starts that need not run on."""
        t, rung = state.iteration, dict(self.rungs).get(state.iteration)
        if not len(state.active) or (rung is None and (t < FIRST_LOOK or t % LOOK)):
            return state
        num_before = len(self.before.objective)
        fate = torch.full_like(state.num_iterations, RUNNING) if state.fate is None else state.fate
        fate, value = fate.clone(), state.objective.nan_to_num(-torch.inf)
        ended = (fate == SET_ASIDE) | state.converged
        runs = torch.zeros_like(ended)
        runs[state.active] = True
        grain = self._grain(state)
        gains = self._gains(state)  # (3, R): over the last three times LOOK iterations
        slow = runs & (gains[-1] < grain) if t >= FIRST_LOOK else runs & False
        order = value.argsort(descending=True, stable=True).tolist()

        heads = [
            (float(self.before.objective[i]), i) for i in range(num_before) if self.before.sound[i]
        ] + [(float(value[r]), num_before + r) for r in order if ended[r]]
        for r in (r for r in order if slow[r]):
            own = float(value[r])
            met = [head for height, head in heads if 0 <= height - own <= grain / 10]
            if met:
                fate[r] = met[0]
            else:
                heads.append((own, num_before + r))

        best = self._best_ended(state, value, [r for r in order if ended[r]])
        if best is not None:
            top, iterations = best
            limit = SPARE * iterations + SPARE_STEPS
            tolerance = same_value(state.params, top)
            low = runs & (value < top - tolerance)
            pace = gains.max(0).values / LOOK
            late = low & ((t > limit) | ((t >= 40) & (value + pace * (limit - t) < top)))
            fate[late & (fate == RUNNING)] = DROPPED
        if t >= FIRST_CREEP:
            creeping = runs & (gains[-2:].sum(0) < CREEPS) & (gains[-1] <= gains[-2])
            fate[creeping & (fate == RUNNING)] = SET_ASIDE
        if rung is not None:
            rest = [r for r in order if (runs[r] or ended[r]) and fate[r] in (RUNNING, SET_ASIDE)]
            for r in self._behind(state, rest, rung):
                if runs[r] and fate[r] == RUNNING:
                    fate[r] = DROPPED
        return state.leave(fate) if bool((fate[state.active] != RUNNING).any()) else state

    def _gains(self, state: EMState) -> Tensor:
        """Gains over the last three times LOOK iterations, (3, R), infinite where unknown."""
        places = [state.iteration - 1 - LOOK * back for back in (3, 2, 1, 0)]
        course = torch.stack(
            [
                state.history[place] if place >= 0 else torch.full_like(state.objective, -torch.inf)
                for place in places
            ]
        )
        return course.diff(dim=0).nan_to_num(torch.inf)

    def _grain(self, state: EMState) -> float:
        """Gain of a start that is on its hill: ``MEETS``, or what the precision can tell."""
        value = state.objective[state.objective.isfinite()]
        top = float(value.abs().max()) if len(value) else 1.0
        return max(MEETS, 0.1 * rounding(state.params) * top)

    def _best_ended(self, state: EMState, value: Tensor, ended: list[int]) -> Any:
        """Objective and iterations of the best start that has ended, or None."""
        best = None
        if bool(self.before.sound.any()):
            index = self.before.best
            best = float(self.before.objective[index]), int(self.before.num_iterations[index])
        higher = [r for r in ended if best is None or float(value[r]) > best[0]]
        for place, r in enumerate(higher):
            if self._is_sound(state, r):
                return float(value[r]), int(state.num_iterations[r])
            self._look(state, higher[place + 1 : 2 * place + 3])  # as many again, at once
        return best

    def _behind(self, state: EMState, order: list[int], num: int) -> list[int]:
        """Starts behind the best ``num``, degenerate ones last."""
        self._look(state, order[:num])
        chosen: list[int] = []
        for r in order:
            if len(chosen) == num:
                break
            if self._is_sound(state, r):
                chosen.append(r)
        others = [r for r in order if r not in chosen]
        return others[num - len(chosen) :]

    def _is_sound(self, state: EMState, r: int) -> bool:
        """Tell whether the solution that a start stands at is not degenerate."""
        self._look(state, [r])
        return self.faults[r, int(state.num_iterations[r])]

    def _look(self, state: EMState, starts: list[int]) -> None:
        """Look at the solutions that starts stand at, as one batch."""
        places = [(r, int(state.num_iterations[r])) for r in starts]
        new = [at for at in places if at not in self.faults]
        if new:
            own = {name: value[[r for r, _ in new]] for name, value in state.estimates.items()}
            for at, words in zip(new, degenerate_restarts(self.problem, own), strict=True):
                self.faults[at] = not words


@dataclass
class _Run:
    """One search, its engine and its files."""

    search: StartSearch
    method: EM
    problem: Problem
    draw: Draw
    progress: Progress
    checkpoint: Path | None
    done_before: int = 0
    drawn: dict[int, Params] = field(default_factory=dict)

    def starts(self, batch: int) -> Params:
        """The starts of a batch; the last that were drawn are kept."""
        if batch not in self.drawn:
            self.drawn = {batch: self.draw(batch)}
        return self.drawn[batch]

    def step(self, state: SearchState) -> SearchState:
        """A batch; where there were enough, the best moved once more, or run on to its end."""
        search = self.search
        if not (
            state.params
            and (
                state.num_tried >= search.cap
                or state.work >= search.budget
                or state.stalled >= search.stall
                or state.num_reached(self.problem) >= search.replicates
            )
        ):
            return self.batch(state)
        is_sure = state.num_reached(self.problem) >= max(
            SURE * state.num_tried, 2 * search.replicates
        )
        return self.polish(state) if state.settled or is_sure else self.nudge(state)

    def batch(self, state: SearchState) -> SearchState:
        """Race the starts of a batch."""
        outcome = self.engine(
            self.problem, self.starts(state.batch), str(state.batch), state, self.search.rungs
        )
        after = self.taken(state, outcome)
        if state.params and bool(state.sound.any()):
            top = float(state.objective[state.best])
            rose = after.objective[after.best] > top + same_value(state.params, top)
        else:
            rose = torch.tensor(True)
        return replace(
            after,
            num_tried=state.num_tried + len(outcome.objective),
            batch=state.batch + 1,
            work=state.work + self.work(outcome),
            iterations=state.iterations + int(outcome.num_iterations.max()),
            stalled=0 if bool(rose) else state.stalled + 1,
        )

    def taken(self, state: SearchState, outcome: Outcome) -> SearchState:
        """Take in the starts of a batch that ended, and count those that met them."""
        num = len(state.objective)
        fate = outcome.fate
        fate = torch.full((len(outcome.objective),), RUNNING) if fate is None else fate
        replicates = state.replicates.clone()
        values = torch.cat([state.objective, outcome.objective.double().cpu()]).nan_to_num(
            -torch.inf
        )
        ended = ((fate == RUNNING) | (fate == SET_ASIDE)).nonzero().flatten()
        place = {int(r): i for i, r in enumerate(ended)}
        new = torch.ones(len(ended), dtype=torch.long)
        met = {}
        for r in (fate >= 0).nonzero().flatten().tolist():
            head = int(fate[r])
            while head >= num and int(fate[head - num]) >= 0:
                head = int(fate[head - num])
            met[num + r] = head
            if head < num:
                replicates[head] += 1
            elif head - num in place:  # else it met a start that did not go on
                new[place[head - num]] += 1
        rows: dict[str, Any] = {name: getattr(outcome, name) for name in ROWS}
        rows = {name: None if value is None else value[ended] for name, value in rows.items()}
        rows |= {name: getattr(outcome, name)[:, ended] for name in COURSES}
        params = {name: value[ended.to(value.device)] for name, value in outcome.params.items()}
        chosen = replace(outcome, params=params, **rows)
        sound = torch.zeros(0, dtype=torch.bool)
        if len(ended):
            faults = degenerate_restarts(self.problem, chosen.params)
            sound = torch.tensor([not words for words in faults]) & chosen.objective.isfinite()
        values[num + ended[~sound]] = -torch.inf
        for r, head in met.items():
            values[r] = values[head]
        state = replace(state, replicates=replicates, values=values[num:])
        return state.take_in(chosen, sound, new) if len(ended) else state

    def nudge(self, state: SearchState) -> SearchState:
        """Move the best estimate towards another start and run again; a gain shows a saddle."""
        best = state.best
        other = self.starts(max(0, state.batch - 1))
        start = {
            name: (1 - NUDGE) * value[best : best + 1]
            + NUDGE * other[name][len(other[name]) - 1 - state.nudged :][:1]
            for name, value in state.params.items()
        }
        given = replace(self.problem, start_given=True)
        new = self.engine(given, start, f"nudge-{state.nudged}", state, ())
        gain = float(new.objective[0] - state.objective[best])
        rose = gain > GAIN * max(1.0, abs(float(state.objective[best])))
        rose = rose and not degenerate_restarts(self.problem, new.params)[0]
        after = replace(
            state,
            work=state.work + self.work(new),
            iterations=state.iterations + int(new.num_iterations.max()),
            nudged=state.nudged + 1,
            settled=not rose or state.nudged > 1,
        )
        if not rose:
            return after
        alone = replace(after, replicates=after.replicates.clone(), sound=after.sound.clone())
        alone.replicates[best], alone.sound[best] = 1, True
        return alone.replaced(best, new, is_longer=False)

    def polish(self, state: SearchState) -> SearchState:
        """Run the best start on to its end, where it was set aside."""
        best = state.best
        rest = self.method.max_iterations - int(state.num_iterations[best])
        if bool(state.converged[best]) or rest < 1:
            return replace(state, done=True)
        ranking = rank_restarts(self.problem, state.params, state.objective)
        state, best = state.merged(best, (ranking.optimum == 0).nonzero().flatten())
        with quiet(ConvergenceWarning):
            new = replace(self.method, max_iterations=rest).run(
                replace(self.problem, start_given=True),
                {name: value[best : best + 1] for name, value in state.params.items()},
                _Later(self.progress, self.done_before, state.batch),
                self.beside("polish"),
            )
        iterations = state.iterations + int(new.num_iterations.max())
        after = state.replaced(best, new, is_longer=True)
        return replace(after, iterations=iterations, done=True)

    def engine(
        self,
        problem: Problem,
        start: Params,
        name: str,
        before: SearchState,
        rungs: tuple[tuple[int, int], ...],
    ) -> Outcome:
        """One run of the engine that a race watches, quiet about what only the search may say."""
        with quiet(ConvergenceWarning):
            return self.method.run(
                problem,
                start,
                _Later(self.progress, self.done_before, before.batch),
                self.beside(name),
                Race(rungs, self.problem, before),
            )

    def work(self, outcome: Outcome) -> float:
        """Numbers worked through."""
        return (
            float(outcome.num_iterations.sum()) * self.problem.numbers
            + float(outcome.num_iterations.max()) * OVERHEAD
        )

    def forget(self, state: SearchState) -> None:
        """Remove the files of runs that the search itself remembers by now."""
        runs = [str(batch) for batch in range(state.batch)]
        runs += [f"nudge-{i}" for i in range(state.nudged)] + ["polish"] * state.done
        for name in runs:
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


@dataclass(frozen=True)
class _Later:
    """Progress whose iterations follow those of earlier runs."""

    progress: Progress
    before: int
    batch: int

    @property
    def stopped(self) -> bool:
        return self.progress.stopped

    def update(
        self,
        iteration: int,
        objective: float,
        active: int,
        gap: float | None = None,
        engine: str = "",
        batch: int | None = None,
    ) -> None:
        self.progress.update(self.before + iteration, objective, active, gap, engine, self.batch)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None: ...
