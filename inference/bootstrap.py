r"""Parametric bootstrap: the spread of an estimate if the fitted model had made the data.

Each replicate draws a data set of the fit's size from the fit, refits the model from the estimate,
and names the latents as in the fit; where EM has the steps for it, many replicates are refitted as
one batch. What comes back is the fit with the replicates as draws of one chain, (1, B, ...), so
that ``to_arviz`` and all that works on draws works on them; their spread estimates the sampling
distribution, it is no posterior.

Source: B. Efron (1979), Bootstrap methods, doi:10.1214/aos/1176344552.
"""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inference.base.align import relabel_draws
from inference.base.checkpoint import Checkpoint
from inference.base.outcome import ConvergenceWarning, Outcome
from inference.base.progress import NoProgress, Progress
from inference.base.structure import check_method, is_method, refuse_open_sites
from inference.engines.em import EM, fit_sets, fits_sets
from inference.programs.arguments import Call
from inference.programs.global_state import quiet
from inference.programs.posterior_predictive import drawn_data
from inference.programs.program import Params, simulate
from ppl_models.data.tables import checks_data
from ppl_models.parts.surface import promised as _promised
from ppl_models.parts.validation import Seed, as_seed, check_size, plain_fields

if TYPE_CHECKING:
    from inference.base.structure import Method, Problem
    from inference.fitting.result import Fit

__all__ = ["Bootstrap", "bootstrap"]
__dir__ = _promised(__name__)

BATCH_ELEMENTS = 2**21  # numbers in the data sets that are refitted as one batch


@dataclasses.dataclass(frozen=True)
class Bootstrap:
    """The estimate of another engine, and its replicates on data simulated from it as draws.

    Args:
        engine: the engine of the estimate and of the refits, which start at the estimate: other
            optima are not visited.
        num_replicates: B, at least 2.

    Raises:
        ValueError: for settings out of range; at ``fit``, for a program that cannot draw data like
            those of the fit.
    """

    engine: Method = dataclasses.field(default_factory=EM)
    num_replicates: int = 100

    def __post_init__(self) -> None:
        plain_fields(self)
        check_size("Bootstrap", "num_replicates", self.num_replicates, 2, "an integer of 2 or more")
        if not is_method(self.engine):
            raise ValueError(
                f"Bootstrap: engine must be an engine such as EM(), got {self.engine!r}"
            )

    @property
    def max_iterations(self) -> int:
        """Replicates."""
        return self.num_replicates

    def run(
        self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None
    ) -> Outcome:
        """See :class:`inference.base.structure.Method`; a checkpoint holds the replicates done."""
        check_method(problem.structure, self.engine)  # both refused before any work
        simulated(problem, {name: value[0] for name, value in start.items()}, 0)
        outcome = self.engine.run(problem, start, NoProgress(), None)
        best = int(torch.where(outcome.objective.isnan(), -torch.inf, outcome.objective).argmax())
        params = problem.structure.canonical(
            {name: value[best] for name, value in outcome.params.items()}
        )
        store = (
            None if checkpoint is None else Checkpoint(checkpoint, problem.fingerprint(self, start))
        )
        draws = replicates(
            problem, params, self.engine, self.num_replicates, problem.seed, progress, store
        )
        return dataclasses.replace(
            outcome, draws={name: value[None] for name, value in draws.items()}
        )


def bootstrap(
    estimate: Fit,
    data: Any = None,
    num_replicates: int = 100,
    method: Method | None = None,
    seed: Seed = 0,
) -> Fit:
    """Replicated estimates of a model on data simulated from its fit.

    Args:
        estimate: a point estimate.
        data: the data of the fit; entries missing there are missing in every replicate, and a
            program of your own draws what it observes at the covariates there. None for complete
            replicates of rows without covariates.
        num_replicates: B, at least 2.
        method: engine of the refits; the fit's own if None. Each starts at the estimate, so other
            optima are not visited.
        seed: of the simulated data.

    Returns:
        The fit with ``draws`` (1, B, ...), and :class:`Bootstrap` for its method.

    Raises:
        ValueError: for fewer than 2 replicates, posterior draws instead of an estimate, another
            number of rows than the fit has, or a program that cannot draw such data.

    Warns:
        ConvergenceWarning: with the number of refits that did not converge.
    """
    seed = as_seed("bootstrap", seed)
    from inference.fitting.columns import as_fitted
    from inference.fitting.problem import problem_of
    from inference.fitting.same_data import refuse_other_rows
    from inference.uncertainty import simulated_data

    check_size("bootstrap", "num_replicates", num_replicates, 2, "an integer of 2 or more")
    if estimate.draws is not None:
        raise ValueError("bootstrap: a point estimate was expected, got posterior draws")
    estimate.refuse_weights("bootstrap")
    estimate.refuse_labels("bootstrap")
    if data is not None:
        refuse_other_rows("bootstrap", estimate, data)
    rows = data
    if data is None and not isinstance(estimate.model, Call):
        rows = simulated_data(estimate, estimate.num_rows, seed)
    with quiet():  # of the data's columns: said when the estimate was made
        problem = problem_of(estimate.model, as_fitted(estimate, rows), seed)
    engine = (
        (estimate.method if estimate.method is not None else EM()) if method is None else method
    )
    draws = replicates(problem, estimate.params, engine, num_replicates, seed, NoProgress(), None)
    return dataclasses.replace(
        estimate,
        draws={name: value[None] for name, value in draws.items()},
        method=Bootstrap(engine, num_replicates),
    )


def without_replicates(fit: Fit) -> Fit:
    """The point estimate of a fit whose draws are replicates; any other fit as it is."""
    if not isinstance(fit.method, Bootstrap):
        return fit
    return dataclasses.replace(fit, draws=None, method=fit.method.engine)


def replicates(
    problem: Problem,
    params: Params,
    engine: Method,
    num_replicates: int,
    seed: int,
    progress: Progress,
    store: Checkpoint | None,
) -> Params:
    """Return estimates on data sets simulated at ``params``, (B, ...), latents aligned.

    With gaps as in the problem's data.
    """
    from inference.fitting.problem import problem_of

    start = {name: value.unsqueeze(0) for name, value in params.items()}
    is_batch = fits_sets(problem, engine)
    at_once = max(1, BATCH_ELEMENTS // problem.data.numel()) if is_batch else 1
    done = (None if store is None else store.load(_Done)) or _Done({}, 0)
    saved = done
    try:
        while done.count < num_replicates and not (progress.stopped and done.count > 1):
            seeds = range(seed + done.count, seed + min(num_replicates, done.count + at_once))
            sets = [simulated(problem, params, seed_b) for seed_b in seeds]
            with (
                quiet(),
                torch.enable_grad(),
            ):  # bounds and constant columns of replicates are part of the answer
                if is_batch and isinstance(engine, EM):
                    refits = fit_sets(problem, engine, torch.stack(sets), start)
                else:
                    refits = engine.run(
                        problem_of(problem.model, sets[0], seeds[0], True),
                        start,
                        NoProgress(),
                        None,
                    )
            done = done.joined(
                {name: refits.params[name][: len(seeds)] for name in params},
                int((~refits.converged).sum()),
            )
            best = float(refits.objective[-1])
            progress.update(done.count, best, active=len(seeds), engine="Bootstrap")
            if store is not None and (
                done.count - saved.count >= store.every or done.count == num_replicates
            ):
                store.save(done)
                saved = done
    except BaseException:
        if store is not None and done is not saved:
            store.save(done)
        raise
    if done.unfinished:
        warnings.warn(
            f"{done.unfinished} of {num_replicates} bootstrap refits did not converge: raise"
            " max_iterations of their method",
            ConvergenceWarning,
            stacklevel=3,
        )
    return relabel_draws(done.params, problem.structure.labels(), dict(params))[0]


@dataclasses.dataclass(frozen=True)
class _Done:
    """Refits so far: their parameters, (B, ...), and how many of them did not converge."""

    params: Params
    unfinished: int

    @property
    def count(self) -> int:
        return len(next(iter(self.params.values()))) if self.params else 0

    def joined(self, more: Params, unfinished: int) -> _Done:
        parts = {
            name: [self.params[name], value] if self.params else [value]
            for name, value in more.items()
        }
        return _Done(
            {name: torch.cat(part) for name, part in parts.items()}, self.unfinished + unfinished
        )


def simulated(problem: Problem, params: Params, seed: int) -> Any:
    """One data set of the problem's size, with its gaps, and the covariates of a user's program.

    Raises:
        ValueError: for a model that cannot draw one, see :func:`simulated_table` and
            :func:`inference.programs.posterior_predictive.drawn_data`.
    """
    if checks_data(problem.model):
        return simulated_table(problem, params, seed)
    if problem.rows is not None:
        raise ValueError("bootstrap: the rows in memory were expected, got blocks of them")
    program = problem.program()
    refuse_open_sites("bootstrap", problem.structure, program)
    return drawn_data(program, params, seed)


def simulated_table(problem: Problem, params: Params, seed: int) -> Tensor:
    """One data set of the problem's size, with its gaps.

    Raises:
        ValueError: for a model with local sites, or a program that does not draw rows of one table.
    """
    if problem.structure.local_sites:
        raise ValueError(
            f"bootstrap: a model with local sites {problem.structure.local_sites} has no replicates"
            " here"
        )
    observed = problem.program_of_one_row().names("observed")
    if len(observed) != 1 or not isinstance(problem.data, Tensor):
        raise ValueError(
            f"bootstrap: a program with one observed table was expected, got {observed}"
        )
    like = problem.structure.simulate_like(
        params, problem.data, seed
    )  # of sequences: their lengths and gaps
    try:
        drawn = (
            simulate(problem.model, params, seed, None, problem.num_rows) if like is None else like
        )[observed[0]]
    except TypeError as error:
        raise ValueError(
            "bootstrap: the program must take (data, num_rows), and draw that many rows where data"
            " is None"
        ) from error
    if drawn.shape[1:] != problem.data.shape[1:]:
        raise ValueError(
            f"bootstrap: rows of {tuple(problem.data.shape[1:])} numbers were expected from the"
            f" model, which draws {tuple(drawn.shape[1:])}: its rows hold columns that are given,"
            " and new rows of these are not simulated here; standard_errors(fit, data) has"
            " intervals without replicates"
        )
    drawn = drawn.to(problem.data.dtype)
    return (
        drawn.masked_fill(torch.isnan(problem.data), torch.nan)
        if drawn.is_floating_point()
        else drawn
    )
