"""The engine of factorizations: monotone updates of many restarts at once, the slower half of them stopped early."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.base.checkpoint import Checkpoint
from inference.base.outcome import Outcome
from inference.base.progress import Progress
from inference.programs.program import Params
from inference.structures.factorization.counts import BLOCK_ELEMENTS, Counts
from inference.structures.factorization.dispersed_counts import DispersedCounts
from inference.structures.factorization.least_squares import LeastSquares
from inference.structures.factorization.objective import objectives, with_scales
from inference.structures.factorization.starts import truncated_svd
from inference.structures.factorization.updates import CHECK_EVERY, accelerated, updates_of
from ppl_models.descriptions.components import FactorizationDescription
from ppl_models.parts.validation import check_flag, check_number, check_size, plain_fields

if TYPE_CHECKING:
    from inference.base.structure import Problem

__all__ = ["Factorize"]


RACE = (10, 20, 40)
CHECKPOINT_EVERY = 10  # iterations between two writes


@dataclass(frozen=True)
class Factorize:
    r"""Point estimates of signatures and activities by monotone updates, all restarts as one batch.

    Counts: multiplicative updates (EM), extrapolated by SQUAREM (Varadhan and Roland 2008,
    doi:10.1111/j.1467-9469.2007.00585.x); a dispersion moves by Newton steps between them. Normal entries: alternating non-negative updates, or the exact truncated singular
    value decomposition where nothing is bounded. A restart stops when its objective gains relatively less than ``tolerance``
    over fifteen updates, which count as one iteration.

    Args:
        max_sweeps: updates a restart at most.
        tolerance: relative gain of the objective.
        race: after 10, 20 and 40 iterations only the better half of the restarts still running goes on; the others keep
            what they have reached and count as not converged.

    Raises:
        ValueError: for numbers that are not positive, or a race that is not a bool.
    """

    max_sweeps: int = 3000
    tolerance: float = 1e-7
    race: bool = True

    def __post_init__(self) -> None:
        plain_fields(self)
        check_size("Factorize", "max_sweeps", self.max_sweeps)
        check_flag("Factorize", "race", self.race)
        check_number("Factorize", "tolerance", self.tolerance, "be positive and finite", above=0)

    @property
    def max_iterations(self) -> int:
        """Updates a restart at most."""
        return self.max_sweeps

    def run(self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None) -> Outcome:
        """Run every restart from ``start`` (R, ...) to convergence."""
        about, store = problem.structure.about, None
        if not isinstance(about, FactorizationDescription):
            raise ValueError(f"Factorize: a matrix factorization was expected, got {type(problem.model).__name__}")
        if checkpoint is not None:
            store = Checkpoint(checkpoint, problem.fingerprint(self, start), CHECKPOINT_EVERY)
        z, phi = start["activities"], start["signatures"]
        params: Params = {"signatures": phi, "activities": z}
        if about.counts or about.nonnegative:
            updates = updates_of(problem.data, about, start)
            kept = {name: start[name].clone() for name in (*params, "dispersion") if name in start}
            course = store.load(Course) if store is not None else None
            course = self._iterate(updates, course or Course.begin(kept), progress, store)
            params, history, converged, sweeps = course.params, course.history, course.converged, course.rounds
        else:
            z, phi = truncated_svd(problem.data, about.num_components, len(z))
            params = {"signatures": phi, "activities": z}
            history = LeastSquares(problem.data).varying(z, phi)[None]
            converged, sweeps = torch.ones(len(z), dtype=torch.bool), torch.ones(len(z), dtype=torch.long)
        params = with_scales(about, params, problem.data)
        log_likelihood, objective = objectives(about, problem, params)
        shift = objective - history[-1].nan_to_num() if about.counts else None
        history = history + shift if shift is not None else history * math_nan(history)
        if not converged[objective.argmax()]:
            from inference.base.outcome import ConvergenceWarning

            warnings.warn(
                f"the best restart did not converge in {self.max_sweeps} sweeps: raise max_sweeps or loosen tolerance",
                ConvergenceWarning,
                stacklevel=3,
            )
        return Outcome(
            params, objective, "log-posterior of signatures and activities", log_likelihood, history, history * math_nan(history),
            converged, sweeps,
        )

    def _iterate(
        self, updates: Counts | LeastSquares, course: Course, progress: Progress, store: Checkpoint | None
    ) -> Course:
        size = max(1, BLOCK_ELEMENTS // updates.x.numel())
        while len(course.active) and course.num_sweeps < self.max_sweeps:
            values = [self._climb(updates, course.params, block) for block in course.active.split(size)]
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
        params: (R, ...) by site; last: objective up to a constant, (R,); rounds, converged: of each restart, (R,).
        active: indices of the restarts still running; history: of ``last``, (T, R); num_sweeps: updates done.
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
        """Take in the objective of the active restarts, (A,), and stop those that gain no more or fall behind; the largest gain over that at which one stops."""
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


def math_nan(like: Tensor) -> Tensor:
    """NaN in the shape of ``like``: a course that was not recorded."""
    return torch.full_like(like, torch.nan)
