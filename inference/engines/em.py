"""Expectation-maximisation: the loop, for every model and every pair of steps."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.distributions.constraints import Constraint

from inference.base.checkpoint import Checkpoint
from inference.base.outcome import ConvergenceWarning, Outcome
from inference.base.progress import NoProgress, Progress
from inference.base.steps import SET, FixedSteps, Steps, without_set
from inference.base.streaming.summed_steps import SharedCheckpoint, SummedGenericSteps, SummedSteps
from inference.base.structure import refuse_open_sites, set_steps
from inference.engines.extrapolation import PLAIN, SQUARED, Course, Extrapolation, all_of, any_of
from inference.engines.natural_scale import NaturalScale
from inference.engines.online_em import OnlineEM, beside
from inference.programs.devices import elements_at_once
from inference.programs.program import Params
from ppl_models.data.tables import first_tensor
from ppl_models.parts.validation import (
    check_flag,
    check_kind,
    check_number,
    check_size,
    plain_fields,
)

if TYPE_CHECKING:
    from inference.base.structure import Problem


CHUNK_ELEMENTS = 2**18
FLAT = 1e-3  # of the tolerance: the objective no longer tells drifting parameters apart
FLAT_COURSE = 0.1  # the same over the last rounds together
AITKEN = 5  # steps over which gains are seen to shrink
RUNNING, DROPPED, SET_ASIDE = -1, -2, -3  # fates of restarts, beside the one that a restart has met


@dataclass(frozen=True)
class EM:
    r"""Exact EM (Dempster, Laird and Rubin 1977, doi:10.1111/j.2517-6161.1977.tb01600.x).

    Maximises :math:`\log p(x \mid \theta) + \log p(\theta)`, latents summed out; with a flat prior
    that is maximum likelihood, with a penalty prior it is penalised maximum likelihood. Steps are
    extrapolated (:mod:`inference.engines.extrapolation`) as ``acceleration`` says. The objective
    never falls. A restart stops when a step of EM changes its objective relatively by less than
    ``tolerance`` and its parameters by less than ``parameter_tolerance``; or, where parameters
    drift along a flat ridge (data that separate), when it changes the objective by a thousandth of
    that, or, where steps are extrapolated, fifteen iterations together by a tenth.

    Args:
        max_iterations: at most so many iterations a restart, those among them whose extrapolated
            point was not kept.
        tolerance: relative change of the objective.
        parameter_tolerance: largest absolute change of a parameter.
        accelerate: use the model's own structure (generalised-linear layers) where it offers one;
            the generic route gives the same answer more slowly.
        acceleration: "auto" tries where the next steps would lead, by squared steps far from the
            optimum and by mixing of earlier ones near it: up to ten times fewer iterations to the
            same end, and from a poor start now and then to another optimum, higher or lower;
            "squarem" by squared steps alone; None takes the plain steps of EM.
        chunk_elements: rows times configurations times restarts in memory at once; None for 2^18 on
            the CPU, and on a GPU for as many as its free memory holds.
        num_relaxed: before the penalised run, at most so many iterations (and ``max_iterations``)
            under a plain Lasso of the same slope: the penalties are flat far from zero, so an
            estimate that starts beyond their threshold would stay there. Only for starts of our
            own; a start that is given is left as it is. These iterations belong to the start and
            are not in the trace.
        num_inner: Newton steps (accelerated), or twentieths of the L-BFGS iterations (generic), of
            one M-step.
        start: :class:`~inference.OnlineEM` to bring every start, given ones too, nearer to its
            optimum by a pass of stepwise EM first, which stands for many early iterations where
            rows are many; None for none. Its batches belong to the start and are not in the trace.
        integration_error: of continuous latents of the rows, which are integrated by quadrature
            (:mod:`inference.programs.quadrature`): by how much of its standard error twice as many
            nodes may move an estimate.

    Raises:
        ValueError: for numbers that are not positive, or a start by stepwise EM without
            acceleration by the model's own structure.
    """

    max_iterations: int = 2000
    tolerance: float = 1e-8
    parameter_tolerance: float = 1e-5
    accelerate: bool = True
    chunk_elements: int | None = None
    num_relaxed: int = 200
    num_inner: int = 1
    acceleration: Literal["auto", "squarem"] | None = "auto"
    start: OnlineEM | None = None
    integration_error: float = 0.01

    def __post_init__(self) -> None:
        plain_fields(self)
        for name in ("max_iterations", "num_inner"):
            check_size("EM", name, getattr(self, name))
        if self.chunk_elements is not None:
            check_size(
                "EM", "chunk_elements", self.chunk_elements, wanted="a positive integer or None"
            )
        check_size("EM", "num_relaxed", self.num_relaxed, least=0)
        for name in ("tolerance", "parameter_tolerance", "integration_error"):
            check_number("EM", name, getattr(self, name), "be positive and finite", above=0)
        check_flag("EM", "accelerate", self.accelerate)
        if self.acceleration is not None and (
            not isinstance(self.acceleration, str) or self.acceleration not in ("auto", "squarem")
        ):
            raise ValueError(
                f"EM: acceleration must be 'auto', 'squarem' or None, got {self.acceleration!r}"
            )
        if self.start is not None:
            check_kind("EM", "start", self.start, OnlineEM, "OnlineEM() or None")
            if not self.accelerate:
                raise ValueError(
                    "EM: start=OnlineEM() averages sums of the model's own steps, so"
                    " accelerate=True was expected, got False"
                )

    def elements_at_once(self, like: Any) -> int:
        """``chunk_elements`` on the device of a tensor."""
        return (
            elements_at_once(like, CHUNK_ELEMENTS)
            if self.chunk_elements is None
            else self.chunk_elements
        )

    def steps(self, problem: Problem) -> Steps[Any]:
        """Steps of EM for a model: accelerated where its structure allows, else generic."""
        steps = self._free_steps(problem)
        return steps if problem.fixed is None else FixedSteps(steps, problem.fixed)

    def _free_steps(self, problem: Problem) -> Steps[Any]:
        accelerated = (
            problem.steps(self.elements_at_once(first_tensor(problem.data)), self.num_inner)
            if self.accelerate
            else None
        )
        if accelerated is not None:
            return accelerated if problem.rows is None else SummedSteps(accelerated, problem.rows)
        program = problem.program()
        refuse_open_sites("EM", problem.structure, program)
        program.check_enumerable()
        if problem.rows is not None:
            return SummedGenericSteps(program, problem.rows, 20 * self.num_inner, problem.model)
        return problem.generic_steps(self.num_inner)

    def run(
        self,
        problem: Problem,
        start: Params,
        progress: Progress,
        checkpoint: Path | None,
        watch: Watch | None = None,
    ) -> Outcome:
        """Run every restart from ``start`` (R, ...) to convergence, or as ``watch`` decides."""
        store = None
        if problem.rows is not None:
            start = problem.rows.processes.params_of_first(start)
        if checkpoint is not None:
            known = problem.fingerprint(self, start)
            store = (
                Checkpoint(checkpoint, known)
                if problem.rows is None
                else SharedCheckpoint(checkpoint, known, problem.rows.processes)
            )
        steps = self.steps(problem)
        if self.start is not None:
            self.start.check(problem)
            easier = None if problem.start_given or not self.num_relaxed else steps.relax()
            passes = None
            if checkpoint is not None and store is not None:
                path = beside(checkpoint)
                passes = (
                    SharedCheckpoint(path, store.fingerprint, store.processes)
                    if isinstance(store, SharedCheckpoint)
                    else Checkpoint(path, store.fingerprint)
                )
            start = self.start.improved(problem, easier or steps, start, progress, passes)
        outcome = self.climb(
            steps, start, problem.start_given, progress, store, problem.supports, watch
        ).outcome()
        if problem.fixed is not None:
            outcome = replace(outcome, params=problem.fixed.restored(outcome.params))
        local = problem.structure.local_sites
        return (
            replace(outcome, objective_name=f"log-posterior of parameters and {', '.join(local)}")
            if local
            else outcome
        )

    def climb(
        self,
        steps: Steps[Any],
        start: Params,
        start_given: bool,
        progress: Progress,
        store: Checkpoint | None = None,
        supports: Callable[[], Mapping[str, Constraint]] | None = None,
        watch: Watch | None = None,
    ) -> EMState:
        """Run EM from a start to convergence, under the easier objective first if allowed.

        Steps are extrapolated in the sites whose ``supports`` are given, and asked for where that
        is wanted; None: in none. ``watch`` sees the state after every iteration and may take
        restarts out (:meth:`EMState.leave`); convergence is then its business too.
        """
        relaxed = None if start_given else steps.relax()
        scale = None
        if supports is not None and self.acceleration is not None:
            scale = NaturalScale(
                {
                    name: support
                    for name, support in supports().items()
                    if name not in steps.known_sites
                },
                start,
            )
        ahead = (
            Extrapolation(scale, self.acceleration == "auto")
            if scale is not None and scale.size
            else None
        )
        state = None if store is None else store.load(EMState)
        if state is None:
            state = EMState.begin(start, relaxed=relaxed is not None and self.num_relaxed > 0)
        if state.relaxed and relaxed is not None:
            loose = replace(
                self,
                max_iterations=min(self.num_relaxed, self.max_iterations),
                tolerance=max(self.tolerance, 1e-6),
                parameter_tolerance=1e-2,
            )
            state = loose._iterate(relaxed, state, ahead, progress, store).settled()
            state = EMState.begin(state.params, seconds=state.seconds)
        state = self._iterate(steps, state, ahead, progress, store, watch)
        if store is not None and progress.stopped:
            store.save(state)  # the call that goes on compares with the step before
        state = state.settled().finish(steps)
        if store is not None and not progress.stopped:
            store.save(state)
        if watch is None and not state.converged.all() and not progress.stopped:
            unfinished = int((~state.converged).sum())
            warnings.warn(
                f"{unfinished} of {len(state.converged)} restarts did not converge in"
                f" {self.max_iterations} iterations{state.outcome().left_in_words()}: raise"
                " max_iterations, loosen tolerance, try fewer latents, a penalty, or another"
                " start",
                ConvergenceWarning,
                stacklevel=4,
            )
        return state

    def gap(
        self,
        old: Params,
        new: Params,
        before: Tensor,
        objective: Tensor,
        extrapolated: bool = False,
    ) -> Tensor:
        """Stopping rule of each running restart as a ratio, (A,): it stops below 1.

        Args:
            old, new: parameters before and after a step of EM.
            before, objective: at the last accepted point, and at ``old``.
            extrapolated: whether the last rounds together are looked at too: one that gains less
                than single precision can tell says little.
        """
        gain = (objective - before).abs() / objective.abs().clamp(min=1.0) / self.tolerance
        if not bool((gain < 1.0).any()):
            return gain  # no restart stops, whatever its parameters do
        moved = [
            name
            for name, value in new.items()
            if value.numel() and value.data_ptr() != old[name].data_ptr()
        ]  # tables that are handed on as they are, are not read
        change = torch.zeros_like(objective)
        for name in moved:
            change = torch.maximum(
                change,
                (new[name] - old[name]).abs().reshape(len(change), -1).amax(-1).to(change),
            )
        settled = torch.maximum(gain, change / self.parameter_tolerance)
        return (
            settled
            if extrapolated and _grain(new) > FLAT * self.tolerance
            else torch.fmin(settled, gain / FLAT)
        )

    def _iterate(
        self,
        steps: Steps[Any],
        state: EMState,
        ahead: Extrapolation | None,
        progress: Progress,
        store: Checkpoint | None,
        watch: Watch | None = None,
    ) -> EMState:
        began = time.monotonic() - state.seconds
        try:
            while (
                len(state.active)
                and state.iteration < self.max_iterations
                and not (progress.stopped and state.iteration)
            ):
                with np.errstate(all="ignore"):  # an objective may be infinite
                    state = (
                        self._step(steps, state, began)
                        if ahead is None
                        else self._step_ahead(steps, state, ahead, began)
                    )
                state = state if watch is None else watch(state)
                progress.update(
                    state.iteration,
                    float(state.objective.max()),
                    len(state.active),
                    state.gap,
                    "EM",
                )
                if store is not None and state.iteration % store.every == 0:
                    store.save(state)
        except BaseException:
            if store is not None:
                store.save(state)  # nothing is lost: the last complete iteration is on disk
            raise
        return state

    def _step(self, steps: Steps[Any], state: EMState, began: float) -> EMState:
        """One step of EM of every running restart."""
        params, before = state.points, state.objective[state.active]
        statistics, objective, log_likelihood = _evaluated(steps, params, before)
        new = steps.m_step(statistics, params)
        return state.advance(
            new,
            objective,
            log_likelihood,
            self.gap(params, new, before, objective),
            time.monotonic() - began,
        )

    def _step_ahead(
        self, steps: Steps[Any], state: EMState, ahead: Extrapolation, began: float
    ) -> EMState:
        """Evaluate every running restart at its image or trial, and choose the next point."""
        params, before = state.points, state.objective[state.active]
        safe = state.image or params
        course = Course.of(state.course) if state.course else ahead.begin(params)
        try:
            statistics, objective, log_likelihood = _evaluated(steps, params, before)
        except (RuntimeError, ValueError):
            if all_of(course.kind == PLAIN):
                raise
            params, course = (
                safe,
                course.without_trials(),
            )  # nothing could be computed at a point on trial
            statistics, objective, log_likelihood = _evaluated(steps, params, before)
        value = objective.numpy()
        accepted = ahead.accepts(course, value)
        image = steps.m_step(statistics, params) if any_of(accepted) else params
        accepted, at, there = ahead.seen(course, accepted, params, image)
        gap = np.full(len(accepted), np.inf)
        ends = accepted & (course.kind != SQUARED)  # it may lead as high on the other side
        if any_of(ends):
            settled = self.gap(params, image, before, objective, extrapolated=True).numpy()
            gap[ends] = settled[ends]
        course, new, safe = ahead.advance(course, accepted, value, at, there, image, safe)
        scale = np.maximum(np.abs(course.value), 1.0) * (self.tolerance * FLAT_COURSE)
        gap = np.fmin(gap, course.flat / scale)
        if not all_of(accepted):
            log_likelihood = torch.where(
                torch.from_numpy(accepted), log_likelihood, state.log_likelihood[state.active]
            )
        ended = gap < 1.0
        left = None
        if any_of(ended):  # of the others it is asked when they leave, or at the end
            left = _placed(state.objective_left, state.active, torch.from_numpy(course.left))
        return state.advance(
            new,
            torch.from_numpy(course.value),
            log_likelihood,
            torch.from_numpy(gap),
            time.monotonic() - began,
            safe,
            vars(course.kept(~ended)),
            left,
        )


def _placed(every: Tensor, active: Tensor, new: Tensor) -> Tensor:
    """Values of all restarts, (R,), with those of the running ones in their places."""
    return new if len(active) == len(every) else every.index_copy(0, active, new)


def _chosen(params: Params, index: Tensor) -> Params:
    """Some restarts, by a mask or their numbers, on the CPU, wherever the parameters are."""
    return {name: value[index.to(value.device)] for name, value in params.items()}


def _of_all(every: Params, active: Tensor, new: Params, mask: Tensor | None = None) -> Params:
    """Parameters of all restarts, (R, ...), with the ``new`` ones (A, ...), where ``mask``, put in.

    Counts and objectives are kept on the CPU, parameters where the data are.
    """
    places, own = (active, new) if mask is None else (active[mask], _chosen(new, mask))
    if len(places) == len(next(iter(every.values()))):
        return own
    return {
        name: value.index_copy(0, places.to(value.device), own[name])
        for name, value in every.items()
    }


def _appended(course: Tensor, active: Tensor, new: Tensor) -> Tensor:
    """A course (T, R) with one more row: running restarts in their places, NaN elsewhere.

    Rows are kept in a buffer of twice the length, which the course is a view of.
    """
    length, buffer = len(course), course._base
    is_ours = (
        buffer is not None
        and buffer.dim() == 2
        and buffer.shape[1] == course.shape[1]
        and buffer.data_ptr() == course.data_ptr()
    )
    if buffer is None or not is_ours or len(buffer) <= length:
        buffer = course.new_full((max(64, 2 * length), course.shape[1]), math.nan)
        buffer[:length] = course
    buffer[length, active] = new
    return buffer[: length + 1]


def _grain(params: Params) -> float:
    """Relative gain below rounding in single precision; 0 in double precision."""
    return max(
        (torch.finfo(value.dtype).eps for value in params.values() if value.dtype == torch.float32),
        default=0.0,
    )


def _evaluated(steps: Steps[Any], params: Params, like: Tensor) -> tuple[Any, Tensor, Tensor]:
    """Expected statistics, objective and log-likelihood of running restarts, (A,)."""
    statistics, log_likelihood, log_prior = steps.e_step(params)
    log_likelihood = log_likelihood.double().cpu().expand_as(like)
    return statistics, log_likelihood + log_prior.double().cpu(), log_likelihood


@dataclass(frozen=True)
class EMState:
    """Everything a resumed run needs.

    Args:
        params: parameters of every restart, (R, ...); where ``running`` has others, of those that
            have stopped.
        active: indices of restarts still running.
        iteration: iterations done.
        objective, log_likelihood: latest values, (R,).
        history, history_log_likelihood: (iterations, R), NaN after a restart stopped.
        converged: (R,) bool; num_iterations: (R,).
        seconds: time spent.
        relaxed: whether this is still the run under convex penalties.
        gap: of the stopping rule, of the restart that is farthest from it.
        objective_left: what plain steps would still gain, an order of magnitude, (R,); NaN where
            steps do not tell.
        running: points at which the running restarts are evaluated next, (A, ...); empty before
            the first step.
        image: where steps are extrapolated, image of each last accepted point under EM, (A, ...);
            ``running`` are points on trial then.
        course: the fields of :class:`~inference.engines.extrapolation.Course`, of the running
            restarts.
        fate: of a restart that a search took out, (R,): the number of the start that it has met,
            DROPPED or SET_ASIDE; RUNNING for all others. None where no search watches.
    """

    params: Params
    active: Tensor
    iteration: int
    objective: Tensor
    log_likelihood: Tensor
    history: Tensor
    history_log_likelihood: Tensor
    converged: Tensor
    num_iterations: Tensor
    seconds: float
    relaxed: bool
    objective_left: Tensor
    gap: float = math.inf
    running: Params = field(default_factory=dict)
    image: Params = field(default_factory=dict)
    course: dict[str, Any] = field(default_factory=dict)
    fate: Tensor | None = None

    @classmethod
    def begin(cls, start: Params, relaxed: bool = False, seconds: float = 0.0) -> EMState:
        num_restarts = len(next(iter(start.values())))
        nothing = torch.full((num_restarts,), -math.inf, dtype=torch.float64)
        empty = torch.zeros(0, num_restarts, dtype=torch.float64)
        count = torch.zeros(num_restarts, dtype=torch.long)
        everyone = torch.arange(num_restarts)
        return cls(
            dict(start),
            everyone,
            0,
            nothing,
            nothing,
            empty,
            empty,
            count.bool(),
            count,
            seconds,
            relaxed,
            torch.full_like(nothing, math.nan),
        )

    def advance(
        self,
        new: Params,
        objective: Tensor,
        log_likelihood: Tensor,
        gap: Tensor,
        seconds: float,
        safe: Params | None = None,
        course: dict[str, Any] | None = None,
        objective_left: Tensor | None = None,
    ) -> EMState:
        """Record one iteration, and stop restarts whose ``gap`` is below 1."""
        active, done = self.active, gap < 1.0
        params, least, most = self.params, float(gap.min()), float(gap.max())
        new = {name: new[name].to(value.dtype) for name, value in params.items()}
        safe = {name: safe[name].to(new[name].dtype) for name in params} if safe else {}
        if least < 1.0:
            params = _of_all(params, active, safe or new, done)
            new, safe = _chosen(new, ~done), _chosen(safe, ~done)
        every = {
            "objective": objective,
            "log_likelihood": log_likelihood,
            "converged": done,
            "num_iterations": self.num_iterations[active] + 1,
        }
        if len(active) < len(self.objective):
            every = {n: getattr(self, n).index_copy(0, active, new) for n, new in every.items()}
        return EMState(
            params=params,
            active=active if least >= 1.0 else active[~done],
            iteration=self.iteration + 1,
            history=_appended(self.history, active, objective),
            history_log_likelihood=_appended(self.history_log_likelihood, active, log_likelihood),
            seconds=seconds,
            relaxed=self.relaxed,
            objective_left=self.objective_left if objective_left is None else objective_left,
            gap=most,
            running=new,
            image=safe,
            course=course or {},
            fate=self.fate,
            **every,
        )

    def leave(self, fate: Tensor) -> EMState:
        """Take out the running restarts that have a ``fate``, (R,), other than RUNNING."""
        stays = fate[self.active] == RUNNING
        images = self.image or self.points
        course = Course.of(self.course).kept(stays.numpy()) if self.course else None
        return replace(
            self,
            params=_of_all(self.params, self.active, images, ~stays),
            running=_chosen(self.points, stays),
            image=_chosen(self.image, stays),
            active=self.active[stays],
            fate=fate,
            course={} if course is None else vars(course),
            objective_left=self._left(),
        )

    def _left(self) -> Tensor:
        """Gain that plain steps would still bring running restarts, (R,), by their course."""
        if not self.course:
            return self.objective_left
        left = torch.from_numpy(Course.of(self.course).left)
        return _placed(self.objective_left, self.active, left)

    @property
    def points(self) -> Params:
        """Points at which the running restarts are evaluated next, (A, ...)."""
        if self.running or len(self.active) == len(self.objective):
            return self.running or self.params
        return _chosen(self.params, self.active)

    @property
    def estimates(self) -> Params:
        """Parameters that every restart has come to, (R, ...), with no point on trial."""
        return _of_all(self.params, self.active, self.image or self.points)

    def settled(self) -> EMState:
        """With no point on trial."""
        return replace(
            self,
            params=self.estimates,
            running={},
            image={},
            course={},
            objective_left=self._left(),
        )

    def finish(self, steps: Steps[Any]) -> EMState:
        """Compute objective and log-likelihood at the final parameters."""
        _, log_likelihood, log_prior = steps.e_step(self.params)
        objective = (log_likelihood + log_prior).double().cpu()
        left = torch.where(
            self.objective_left.isnan(), _left_by_steps(self.history), self.objective_left
        )
        return replace(
            self,
            objective=objective,
            log_likelihood=log_likelihood.double().cpu(),
            objective_left=left,
        )

    def outcome(self) -> Outcome:
        """As every engine hands it back."""
        return Outcome(
            params=self.params,
            objective=self.objective,
            # of the parameters, with the priors' constants; latents summed out
            objective_name="log-posterior",
            log_likelihood=self.log_likelihood,
            history=self.history,
            history_log_likelihood=self.history_log_likelihood,
            converged=self.converged,
            num_iterations=self.num_iterations,
            objective_left=self.objective_left,
            fate=self.fate,
        )


Watch = Callable[[EMState], EMState]


def _left_by_steps(history: Tensor) -> Tensor:
    """Gain left to plain steps after the last, (R,), by Aitken's rule; NaN if none shrinks."""
    last = history.isfinite().sum(0) - 1
    if len(history) < AITKEN + 2:
        return torch.full_like(history.sum(0), math.nan)
    places = (last - torch.arange(AITKEN + 1, -1, -1).unsqueeze(1)).clamp(min=0)
    gains = history.gather(0, places).diff(dim=0)  # (AITKEN + 1, R)
    rate = (gains[-1] / gains[0]) ** (1 / AITKEN)
    left = gains[-1] * rate.square() / (1 - rate)
    return torch.where((last > AITKEN) & (gains > 0).all(0) & (rate < 1), left, math.nan)


def fits_sets(problem: Problem, method: object) -> bool:
    """Tell whether :func:`fit_sets` applies: EM of a table, with steps for many data sets."""
    if (
        not isinstance(method, EM)
        or not method.accelerate
        or method.start is not None
        or not isinstance(problem.data, Tensor)
    ):
        return False
    return (
        set_steps(
            problem.structure,
            problem,
            problem.data.unsqueeze(0),
            method.elements_at_once(problem.data),
            method.num_inner,
        )
        is not None
    )


def fit_sets(problem: Problem, method: EM, sets: Tensor, start: Params) -> Outcome:
    """EM on each data set, as one batch.

    Args:
        problem: of one data set of the same shape.
        method: the engine.
        sets: (S, N, J), NaN where missing.
        start: parameters, (1, ...) for all of them, or (S R, ...), R starts a data set, those of
            the first one first.

    Returns:
        What the engine hands back, restart s R + r that of start r of data set s.

    Raises:
        ValueError: where :func:`fits_sets` says no.
    """
    steps = set_steps(
        problem.structure, problem, sets, method.elements_at_once(problem.data), method.num_inner
    )
    if steps is None:
        raise ValueError(
            "fit_sets: a model with steps for many data sets was expected, got"
            f" {type(problem.model).__name__}"
        )
    num = max(len(sets), len(next(iter(start.values()))))
    every = {
        name: (
            value.expand(num, *value.shape[1:]).to(
                sets if value.is_floating_point() else sets.device, copy=True
            )
        )
        for name, value in start.items()
    }
    owner = torch.arange(len(sets), device=sets.device, dtype=sets.dtype)
    with problem.threads(num):
        outcome = method.climb(
            steps,
            every | {SET: owner.repeat_interleave(num // len(sets))},
            True,
            NoProgress(),
            supports=problem.supports,
        ).outcome()
    return replace(outcome, params=without_set(outcome.params))
