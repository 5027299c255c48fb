"""The engine of factorizations: monotone updates of many restarts at once, the slower half of them
stopped early.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor

from inference.base.checkpoint import Checkpoint, read_tensors, refuse_other, write_tensors
from inference.base.outcome import Outcome
from inference.base.progress import Progress
from inference.base.streaming.processes import Processes
from inference.base.streaming.summed_steps import SharedCheckpoint
from inference.programs.program import Params
from inference.structures.factorization.alternating import Sums
from inference.structures.factorization.counts import BLOCK_ELEMENTS, Counts
from inference.structures.factorization.dispersed_counts import DispersedCounts
from inference.structures.factorization.least_squares import LeastSquares
from inference.structures.factorization.objective import objectives, with_scales
from inference.structures.factorization.starts import truncated_svd
from inference.structures.factorization.updates import (
    CHECK_EVERY,
    accelerated,
    polished,
    updates_of,
)
from ppl_models.descriptions.components import FactorizationDescription
from ppl_models.parts.validation import check_flag, check_number, check_size, plain_fields

if TYPE_CHECKING:
    from inference.base.structure import Problem


State = TypeVar("State")
RACE = (10, 20, 40)
SMOOTHED = 0.01  # share of a row's mean in activities that a fit of blocks starts from
CHECKPOINT_EVERY = 10  # iterations between two writes


@dataclass(frozen=True)
class Factorize:
    r"""Point estimates of signatures and activities by monotone updates, all restarts as one batch.

    Rows may come in blocks (:class:`~inference.base.streaming.row_blocks.RowBlocks`): every pass
    solves them block by block and adds up what the signatures want to know of them, K x J numbers a
    restart. The activities stay in the memory of the process that has the rows, about ten numbers a
    row and component beside one a restart, for an update starts from those of the one before.

    Counts: multiplicative updates (EM), extrapolated by SQUAREM (Varadhan and Roland 2008,
    doi:10.1111/j.1467-9469.2007.00585.x); a dispersion moves by Newton steps between them. Normal
    entries: alternating non-negative updates, or the exact truncated singular value decomposition
    where nothing is bounded. A restart stops when its objective gains relatively less than
    ``tolerance`` over fifteen updates, which count as one iteration.

    Args:
        max_sweeps: updates a restart at most.
        tolerance: relative gain of the objective.
        race: after 10, 20 and 40 iterations only the better half of the restarts still running goes
            on; the others keep what they have reached and count as not converged.

    Raises:
        ValueError: for numbers that are not positive, or a race that is not a bool.
    """

    max_sweeps: int = 3000
    tolerance: float = 1e-7
    race: bool = True
    solves_blocks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        plain_fields(self)
        check_size("Factorize", "max_sweeps", self.max_sweeps)
        check_flag("Factorize", "race", self.race)
        check_number("Factorize", "tolerance", self.tolerance, "be positive and finite", above=0)

    @property
    def max_iterations(self) -> int:
        """Updates a restart at most."""
        return self.max_sweeps

    def run(
        self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None
    ) -> Outcome:
        """Run every restart from ``start`` (R, ...) to convergence."""
        about, store = problem.structure.about, None
        if not isinstance(about, FactorizationDescription):
            raise ValueError(
                "Factorize: a matrix factorization was expected, got"
                f" {type(problem.model).__name__}"
            )
        processes = Processes() if problem.rows is None else problem.rows.processes
        start = processes.params_of_first(start)
        if checkpoint is not None:
            known = problem.fingerprint(self, start)
            store = (
                Checkpoint(checkpoint, known, CHECKPOINT_EVERY)
                if processes.group is None
                else SharedCourse(checkpoint, known, processes)
            )
        updates = replace(updates_of(problem.data, about, start), rows=problem.rows)
        if about.counts or about.nonnegative:
            course = store.load(Course) if store is not None else None
            if course is None:
                course = Course.begin(
                    {
                        name: value.clone()
                        for name, value in _with_activities(
                            updates, start, problem.start_given
                        ).items()
                        if name != "scales"
                    }
                )
            course = self.iterate(updates, course, progress, store, problem.num_rows)
            params, history, converged, sweeps = (
                course.params,
                course.history,
                course.converged,
                course.rounds,
            )
        else:
            params = truncated_svd(problem, about.num_components, len(start["signatures"]))
            history = updates.varying(params["activities"], params["signatures"])[None]
            converged, sweeps = (
                torch.ones(len(history[0]), dtype=torch.bool),
                torch.ones(len(history[0]), dtype=torch.long),
            )
        params = with_scales(about, params, problem)
        log_likelihood, objective = objectives(about, problem, params)
        shift = objective - history[-1].nan_to_num() if about.counts else None
        if (
            problem.rows is not None
        ):  # by what all rows use of them, of which a process sees its own
            order = updates.total(params["activities"].abs().sum(-2)).argsort(descending=True)
            params = params | {
                "signatures": _ordered(params["signatures"], order, -2),
                "activities": _ordered(params["activities"], order, -1),
            }
        history = history + shift if shift is not None else history * math_nan(history)
        if not converged[objective.argmax()]:
            from inference.base.outcome import ConvergenceWarning

            warnings.warn(
                f"the best restart did not converge in {self.max_sweeps} sweeps: raise max_sweeps"
                " or loosen tolerance",
                ConvergenceWarning,
                stacklevel=3,
            )
        return Outcome(
            params,
            objective,
            "log-posterior of signatures and activities",
            log_likelihood,
            history,
            history * math_nan(history),
            converged,
            sweeps,
            is_named=problem.rows is not None,
        )

    def iterate(
        self,
        updates: Counts | LeastSquares,
        course: Course,
        progress: Progress,
        store: Checkpoint | None,
        num_rows: int,
    ) -> Course:
        """All restarts to convergence.

        Args:
            updates: of all rows; course: where the restarts are, changed in place.
            progress, store: what is told and written on the way.
            num_rows: of all processes.
        """
        size = max(1, BLOCK_ELEMENTS // (num_rows * updates.x.shape[-1]))
        while len(course.active) and course.num_sweeps < self.max_sweeps:
            values = [
                self._climb(updates, course.params, block) for block in course.active.split(size)
            ]
            value = torch.cat(values)
            gap = course.advance(value.double().cpu(), self.tolerance, self.race)
            progress.update(course.num_sweeps, float(course.last.max()), len(course.active), gap)
            if store is not None and len(course.history) % store.every == 0:
                store.save(course)
        return course

    def _climb(self, updates: Counts | LeastSquares, params: Params, active: Tensor) -> Tensor:
        """One iteration of some of the restarts, in place; their objectives up to a constant."""
        a, b = params["activities"][active], params["signatures"][active]
        if isinstance(updates, DispersedCounts):
            updates = replace(updates, size=params["dispersion"][active].reciprocal().unsqueeze(-1))
        value = updates.varying(a, b)
        for _ in range(CHECK_EVERY):
            if isinstance(updates, Counts):
                a, b, value = accelerated(updates, updates.sweep, a, b, value)
            else:
                for _ in range(3):
                    a, b = updates.sweep(a, b)
                value = updates.varying(a, b)
        if isinstance(updates, DispersedCounts):
            updates, value = updates.dispersed(a, b)
            params["dispersion"][active] = updates.size.reciprocal().squeeze(-1)
        params["activities"][active], params["signatures"][active] = a, b
        return value


@dataclass(eq=False)
class Course:
    """Where the restarts are, so that an interrupted run goes on from there.

    Args:
        params: (R, ...) by site; last: objective up to a constant, (R,); rounds, converged: of each
            restart, (R,).
        active: indices of the restarts still running; history: of ``last``, (T, R); num_sweeps:
            updates done.
    """

    params: Params
    last: Tensor
    rounds: Tensor
    converged: Tensor
    active: Tensor
    history: Tensor
    num_sweeps: int = 0

    @classmethod
    def begin(cls, params: Params) -> Course:
        """Before the first update."""
        num = len(params["signatures"])
        rounds = torch.zeros(num, dtype=torch.long)
        last = torch.full((num,), -torch.inf, dtype=torch.float64)
        return cls(params, last, rounds, rounds.bool(), torch.arange(num), last.new_zeros(0, num))

    def advance(self, value: Tensor, tolerance: float, race: bool) -> float:
        """Take in the objective of the active restarts, (A,), and stop those that gain no more or
        fall behind; the largest gain over that at which one stops.
        """
        active = self.active
        gain, least = (value - self.last[active]).abs(), tolerance * value.abs().clamp(min=1e-300)
        done = gain <= least
        self.last[active], self.converged[active] = value, done
        self.rounds[active] += 1
        active = active[~done]
        if race and len(self.history) + 1 in RACE and len(active):
            best = self.last[active].argsort(descending=True, stable=True)[: -(-len(active) // 2)]
            active = active[best.sort().values]
        self.active = active
        self.history = torch.cat([self.history, self.last[None]])
        self.num_sweeps += 3 * CHECK_EVERY
        return float((gain / least).max())


class SharedCourse(SharedCheckpoint):
    """The course of several processes: process 0 writes what they share, each the activities of its
    own rows beside it.

    The activities have two files that take turns, and process 0 writes once all have written, so
    that what it says last is on every disk.
    """

    def __init__(self, path: Path, fingerprint: str, processes: Processes) -> None:
        super().__init__(path, fingerprint, processes)
        self.every = CHECKPOINT_EVERY

    def _own(self, course: Course) -> Path:
        turn = len(course.history) // self.every % 2
        return self.path.with_name(
            f"{self.path.name}.rows_{self.processes.rank}_of_{self.processes.size}.{turn}"
        )

    def save(self, state: Course) -> None:
        error = None
        try:
            write_tensors(
                self._own(state),
                {"activities": state.params["activities"]},
                {"fingerprint": self.fingerprint, "iterations": len(state.history)},
            )
        except (OSError, ValueError) as caught:
            error = f"checkpoint {self._own(state)} cannot be written: {caught}"
        self.processes.refuse(self.processes.gathered(error))
        super().save(
            replace(
                state,
                params={
                    name: value for name, value in state.params.items() if name != "activities"
                },
            )
        )

    def load(self, kind: type[State]) -> State | None:
        course: Any = super().load(kind)
        if course is None:
            return None
        error, path = None, self._own(course)
        try:
            tensors, record = read_tensors(path)
            refuse_other(path, record, self.fingerprint)
            if record["iterations"] != len(course.history):
                raise ValueError(f"{path} is of another moment of the fit")
            course.params = course.params | tensors
        except ValueError as caught:
            error = (
                f"checkpoint {self.path} goes on in as many processes as wrote it, each with the"
                f" activities of its rows beside it: {caught}. Start as many, or remove it"
            )
        self.processes.refuse(self.processes.gathered(error))
        return cast("State", course)


def _with_activities(updates: Counts | LeastSquares, start: Params, start_given: bool) -> Params:
    """A start (R, ...) with activities of all rows (of this process), which those of rows in blocks
    are solved for.
    """
    if updates.rows is None:
        return start
    phi, dispersion = start["signatures"], start.get("dispersion")
    z = phi.new_empty(len(phi), len(updates.rows.blocks), phi.shape[1])

    def of_part(place: slice, part: Counts | LeastSquares) -> Sums:
        for r, own in enumerate(phi):
            of_start = (
                part
                if dispersion is None
                else replace(part, size=dispersion[r].reciprocal().unsqueeze(-1))  # type: ignore[call-arg]
            )
            z[r, place] = polished(of_start, own)
        return {}

    updates.summed(of_part, {})
    if not start_given:
        z = torch.lerp(
            z, z.mean(-1, keepdim=True), SMOOTHED
        )  # zeros would stay, and how near zero they are is chance
    return start | {"activities": z}


def _ordered(value: Tensor, order: Tensor, dim: int) -> Tensor:
    return torch.stack(
        [own.index_select(dim, places) for own, places in zip(value, order, strict=True)]
    )


def math_nan(like: Tensor) -> Tensor:
    """NaN in the shape of ``like``: a course that was not recorded."""
    return torch.full_like(like, torch.nan)
