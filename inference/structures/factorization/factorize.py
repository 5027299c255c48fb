"""Engine: monotone updates of factorizations, many restarts at once."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor

from inference.base.checkpoint import Checkpoint, read_tensors, refuse_other, write_tensors
from inference.base.optima import better_half
from inference.base.outcome import ConvergenceWarning, Outcome
from inference.base.progress import Progress
from inference.base.streaming.processes import Processes
from inference.base.streaming.summed_steps import SharedCheckpoint
from inference.base.structure import Problem
from inference.programs.program import Params
from inference.structures.factorization.dispatch import in_cells, updates_of
from inference.structures.factorization.sparse_counts import SparseCounts, climbed
from inference.structures.factorization.starts import truncated_svd
from inference.structures.factorization.updates import (
    BLOCK_ELEMENTS,
    CHECK_EVERY,
    Counts,
    DispersedCounts,
    LeastSquares,
    Sums,
    accelerated,
    polished,
)
from ppl_models.data.sparse import SparseTable
from ppl_models.descriptions.components import FactorizationDescription
from ppl_models.parts.validation import check_flag, check_number, check_size, plain_fields

START_DISPERSION = 0.1
SCALE_RANGE = (1e-6, 1e6)


def with_scales(about: FactorizationDescription, params: Params, problem: Problem) -> Params:
    """Parameters with the best noise scale (Normal entries), or a dispersion to start from."""
    if about.dispersed and "dispersion" not in params:
        return params | {
            "dispersion": torch.full_like(params["signatures"][:, :1, 0], START_DISPERSION)
        }
    if about.counts:
        return params
    z, phi = params["activities"], params["signatures"]
    squares = problem.summed_at(
        lambda place, data: (data - z[:, place] @ phi).square().sum((-2, -1))
    )
    return params | {
        "scales": (
            (squares / (problem.num_rows * about.num_items))
            .sqrt()
            .clamp(*SCALE_RANGE)
            .unsqueeze(-1)
        )
    }


def objectives(
    about: FactorizationDescription, problem: Problem, params: Params
) -> tuple[Tensor, Tensor]:
    """Log-likelihood given the activities, and log-joint density of everything, (R,)."""

    def of_rows(place: slice, data: Tensor) -> dict[str, Tensor]:
        own = params | {"activities": params["activities"][:, place]}
        return {
            "likelihood": conditional_rows(about, own, data).sum(-1).double(),
            "prior": log_prior_activities(about, own),
        }

    found = problem.summed_at(of_rows)
    likelihood, activities = (found[name].double().cpu() for name in ("likelihood", "prior"))
    shared = {name: value for name, value in params.items() if name != "activities"}
    return (
        likelihood,
        likelihood
        + problem.program_of_one_row().log_prior(shared).detach().double().cpu()
        + activities,
    )


def conditional_rows(about: FactorizationDescription, params: Params, data: Tensor) -> Tensor:
    """Log-likelihood of each row given its activities, (N,) or (R, N)."""
    z, phi = params["activities"], params["signatures"]
    if about.counts:
        updates = updates_of(data.to(phi), about, params)
        return updates.log_likelihood_rows(z, phi)  # type: ignore[union-attr]
    scales = params["scales"].unsqueeze(-2)
    return (
        torch.distributions.Normal(z @ phi, scales, validate_args=False)
        .log_prob(data.to(phi))
        .sum(-1)
    )


def log_prior_activities(about: FactorizationDescription, params: Params) -> Tensor:
    """Log prior density of all activities, (R,)."""
    z = params["activities"]
    if about.activity_prior is not None:
        shape, rate = (
            torch.tensor(v, dtype=z.dtype, device=z.device) for v in about.activity_prior
        )
        distribution = torch.distributions.Gamma(shape, rate)
        return distribution.log_prob(z.clamp(min=1e-300)).sum((-2, -1)).double().cpu()
    width = about.bound if about.nonnegative else 2 * about.bound
    constant = -z[0].numel() * torch.tensor(width, dtype=torch.float64).log()
    return constant.expand(len(z))


State = TypeVar("State")
RACE = (10, 20, 40)
RACE_OF_NEWTON = (2, 4, 8)  # of five extrapolated Newton steps, after one of EM updates
RACE_IN_CELLS = (1, 2, 4)  # of rounds of Newton steps, of which few tell starts apart
RACE_OF_SQUARES = (3, 5, 10)
SMOOTHED = 0.01  # share of a row's mean in activities that a fit of blocks starts from
CHECKPOINT_EVERY = 10  # iterations between two writes


@dataclass(frozen=True)
class Factorize:
    """Point estimates of signatures and activities by monotone updates, restarts as one batch.

    Rows may come in blocks (:class:`~inference.base.streaming.row_blocks.RowBlocks`): every pass
    moves them block by block and adds up slopes and Hessians of the signatures, J K (K + 3) / 2
    numbers a restart (K J of updates without Hessians), by the same code as rows in memory. The
    activities stay in the memory of the process that has the rows, about ten numbers a row and
    component beside one a restart, for an update starts from those of the one before.

    Counts with flat priors, of at most 64 components: rows and columns move by Newton steps
    (:mod:`inference.structures.factorization.newton`), of a dense table extrapolated and after
    fifteen multiplicative updates; a sparse table, or a large one that is mostly zero, is read by
    its non-zero cells. Other counts: multiplicative updates (EM), extrapolated by SQUAREM
    (Varadhan and Roland 2008, doi:10.1111/j.1467-9469.2007.00585.x). A dispersion moves by a Newton
    step an iteration. Normal entries: alternating non-negative updates, extrapolated (Ang and
    Gillis 2019, doi:10.1162/neco_a_01157), or the exact truncated singular value decomposition
    where nothing is bounded. A restart stops when its objective gains relatively less than
    ``tolerance`` over fifteen updates or five Newton steps, which count as one iteration.

    Args:
        max_sweeps: updates a restart at most.
        tolerance: relative gain of the objective, for counts of the whole log-likelihood.
        race: after 10, 20 and 40 iterations (2, 4 and 8 of Newton steps, 1, 2 and 4 of a sparse
            table; 3, 5 and 10 of Normal entries) only the better half of the restarts still
            running goes on; the others keep what they have reached and count as not converged.

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

    def check_fixed(self, problem: Problem) -> None:
        """Refuse known parameters but signatures of counts, in memory, known as wholes.

        Raises:
            ValueError: saying what was expected.
        """
        fixed, about = problem.fixed, problem.structure.about
        counts = isinstance(about, FactorizationDescription) and about.counts
        if fixed is None:
            return
        if not counts or problem.rows is not None or isinstance(problem.data, SparseTable):
            raise ValueError(
                "fixed: a factorization of counts in a dense table in memory was expected, whose"
                " updates hold known signatures, or SVI() or NUTS() of another"
            )
        if fixed.ties or fixed.values.keys() != {"signatures"}:
            raise ValueError(
                "fixed: Factorize() holds known 'signatures' and nothing else, got"
                f" {sorted(fixed.values)}"
            )
        known = ~fixed.values["signatures"].isnan()
        if about.dispersed and bool((known.any(-1) != known.all(-1)).any()):
            raise ValueError(
                "fixed: 'signatures' of counts with a dispersion are known as wholes or not at all"
            )

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
        problem = in_cells(problem) if problem.fixed is None else problem
        processes = Processes() if problem.rows is None else problem.rows.processes
        start = processes.params_of_first(start)
        if checkpoint is not None:
            known = problem.fingerprint(self, start)
            if processes.group is None:
                store = Checkpoint(checkpoint, known, CHECKPOINT_EVERY)
            else:
                store = SharedCourse(checkpoint, known, processes)
        updates = replace(updates_of(problem.data, about, start), rows=problem.rows)
        if problem.fixed is not None:
            updates = replace(updates, fixed=problem.fixed)
            start = updates.with_known(start)
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
            params = course.params
            history = course.history
            converged = course.converged
            sweeps = course.rounds
        else:
            params = truncated_svd(problem, about.num_components, len(start["signatures"]))
            history = updates.varying(params["activities"], params["signatures"])[None]
            converged = torch.ones(len(history[0]), dtype=torch.bool)
            sweeps = torch.ones(len(history[0]), dtype=torch.long)
        params = with_scales(about, params, problem)
        log_likelihood, objective = objectives(about, problem, params)
        shift = objective - history[-1].nan_to_num() if about.counts else None
        # by what all rows use of them, of which a process sees its own
        if problem.rows is not None:
            order = updates.total(params["activities"].abs().sum(-2)).argsort(descending=True)
            params = params | {
                "signatures": _ordered(params["signatures"], order, -2),
                "activities": _ordered(params["activities"], order, -1),
            }
        history = history + shift if shift is not None else history * math_nan(history)
        if not converged[objective.argmax()] and not progress.stopped:
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
            is_named=problem.rows is not None or problem.is_named,
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

        ``updates``: of all rows; ``course``: where the restarts are, changed in place;
        ``progress``, ``store``: what is told and written on the way; ``num_rows``: of all
        processes.
        """
        z, phi = course.params["activities"], course.params["signatures"]
        takes_newton = isinstance(updates, Counts) and updates.takes_newton(phi.shape[1])
        rungs: tuple[int, ...] = RACE_IN_CELLS if takes_newton else RACE
        width = updates.x.shape[-1]
        begins = math.inf  # iterations before the extrapolation
        if isinstance(updates, LeastSquares):
            rungs, width = RACE_OF_SQUARES, phi.shape[1]  # its sweeps make tables of N x K
            begins = 0
        elif takes_newton and not isinstance(updates, SparseCounts):
            rungs, begins = RACE_OF_NEWTON, 1
        rungs, constant = rungs if self.race else (), updates.constant()
        size = max(1, BLOCK_ELEMENTS // (num_rows * width))
        while (
            len(course.active)
            and course.num_sweeps < self.max_sweeps
            and not (progress.stopped and course.num_sweeps)
        ):
            if len(course.history) >= begins:
                course.ahead = course.ahead or updates.begin(z, phi)
            values = [self._climb(updates, course, block) for block in course.active.split(size)]
            value = torch.cat(values).double().cpu() + constant
            gap = course.advance(value, self.tolerance, rungs)
            best = float(course.last.max())
            progress.update(course.num_sweeps, best, len(course.active), gap, "Factorize")
            if store is not None and (len(course.history) % store.every == 0 or progress.stopped):
                store.save(course)
        return course

    def _climb(self, updates: Counts | LeastSquares, course: Course, active: Tensor) -> Tensor:
        """One iteration of some of the restarts, in place; their objectives up to a constant."""
        params = course.params
        a, b = params["activities"][active], params["signatures"][active]
        if isinstance(updates, SparseCounts) and updates.takes_newton(b.shape[1]):
            found = [climbed(updates, *pair, CHECK_EVERY) for pair in zip(a, b, strict=True)]
            for name, place in (("activities", 0), ("signatures", 1)):
                params[name][active] = torch.stack([own[place] for own in found])
            return torch.stack([own[2] for own in found])
        if isinstance(updates, DispersedCounts):
            updates = replace(updates, size=params["dispersion"][active].reciprocal().unsqueeze(-1))
        ahead = {name: value[active] for name, value in course.ahead.items()}
        if ahead:
            for _ in range(3 * CHECK_EVERY if isinstance(updates, LeastSquares) else CHECK_EVERY):
                a, b, ahead = updates.extrapolated(a, b, ahead)
            value = (
                updates.varying(a, b) if isinstance(updates, LeastSquares) else ahead["explained"]
            )
        elif isinstance(updates, Counts):
            value = updates.varying(a, b)
            for _ in range(CHECK_EVERY):
                a, b, value = accelerated(updates, updates.sweep, a, b, value)
        if isinstance(updates, DispersedCounts):
            updates, value = updates.dispersed(a, b)
            params["dispersion"][active] = updates.size.reciprocal().squeeze(-1)
            if ahead:
                ahead["explained"] = value
        for name, own in ahead.items():
            course.ahead[name][active] = own
        params["activities"][active], params["signatures"][active] = a, b
        return value


@dataclass(eq=False)
class Course:
    """State of the restarts, from which an interrupted run goes on.

    Args:
        params: (R, ...) by site; last: objective up to a constant, (R,); rounds, converged: of each
            restart, (R,).
        active: indices of the restarts still running; history: of ``last``, (T, R); num_sweeps:
            updates done; ahead: course of the extrapolation of least squares, (R, ...), else empty.
    """

    params: Params
    last: Tensor
    rounds: Tensor
    converged: Tensor
    active: Tensor
    history: Tensor
    num_sweeps: int = 0
    ahead: Params = field(default_factory=dict)

    @classmethod
    def begin(cls, params: Params) -> Course:
        """Before the first update."""
        num = len(params["signatures"])
        rounds = torch.zeros(num, dtype=torch.long)
        last = torch.full((num,), -torch.inf, dtype=torch.float64)
        return cls(params, last, rounds, rounds.bool(), torch.arange(num), last.new_zeros(0, num))

    def advance(self, value: Tensor, tolerance: float, rungs: tuple[int, ...]) -> float:
        """Take in objectives (A,), stop finished and slow restarts; return the largest gain.

        ``rungs``: iterations after which as many as the better half go on; restarts that have
        converged take their places among these.
        """
        active = self.active
        gain, least = (value - self.last[active]).abs(), tolerance * value.abs().clamp(min=1e-300)
        done = gain <= least
        self.last[active], self.converged[active] = value, done
        self.rounds[active] += 1
        active = active[~done]
        if len(self.history) + 1 in rungs and len(active):
            active = better_half(self.last, active, self.converged)
        self.active = active
        self.history = torch.cat([self.history, self.last[None]])
        self.num_sweeps += 3 * CHECK_EVERY
        return float((gain / least).max())


class SharedCourse(SharedCheckpoint):
    """Course of several processes: process 0 writes the shared part, each its activities.

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
        """Write this process's activities, then the shared part."""
        error = None
        try:
            write_tensors(
                self._own(state),
                {
                    part: own["activities"]
                    for part, own in (("params", state.params), ("ahead", state.ahead))
                    if own
                },
                {"fingerprint": self.fingerprint, "iterations": len(state.history)},
            )
        except (OSError, ValueError) as caught:
            error = f"checkpoint {self._own(state)} cannot be written: {caught}"
        self.processes.refuse(self.processes.gathered(error))
        params, ahead = (
            {name: value for name, value in part.items() if name != "activities"}
            for part in (state.params, state.ahead)
        )
        super().save(replace(state, params=params, ahead=ahead))

    def load(self, kind: type[State]) -> State | None:
        """Read the shared part and this process's activities; None if there are none."""
        course: Any = super().load(kind)
        if course is None:
            return None
        error, path = None, self._own(course)
        try:
            tensors, record = read_tensors(path)
            refuse_other(path, record, self.fingerprint)
            if record["iterations"] != len(course.history):
                raise ValueError(f"{path} is of another moment of the fit")
            for part, activities in tensors.items():
                getattr(course, part)["activities"] = activities
        except ValueError as caught:
            error = (
                f"checkpoint {self.path} goes on in as many processes as wrote it, each with the"
                f" activities of its rows beside it: {caught}. Start as many, or remove it"
            )
        self.processes.refuse(self.processes.gathered(error))
        return cast("State", course)


def _with_activities(updates: Counts | LeastSquares, start: Params, start_given: bool) -> Params:
    """Start (R, ...) with activities of all rows, solved for where rows come in blocks."""
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
        # zeros would stay, and how near zero they are is chance
        z = torch.lerp(z, z.mean(-1, keepdim=True), SMOOTHED)
    return start | {"activities": z}


def _ordered(value: Tensor, order: Tensor, dim: int) -> Tensor:
    return torch.stack(
        [own.index_select(dim, places) for own, places in zip(value, order, strict=True)]
    )


def math_nan(like: Tensor) -> Tensor:
    """NaN in the shape of ``like``: a course that was not recorded."""
    return torch.full_like(like, torch.nan)
