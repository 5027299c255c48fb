"""Stochastic-approximation EM: Gibbs draws of latents, statistics with falling steps."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from inference.base.checkpoint import Checkpoint
from inference.base.gibbs import GenericGibbs, Latents, Scan
from inference.base.outcome import ConvergenceWarning, Outcome
from inference.base.progress import Progress
from inference.base.steps import Averages, DrawSteps, FixedDraws, GenericDraws
from inference.base.structure import draw_steps_of, refuse_open_sites, separates
from inference.engines.gibbs_estimates import log_likelihood_rows
from inference.programs.devices import seeded
from inference.programs.program import Params, Program
from ppl_models.data.tables import first_tensor
from ppl_models.parts.validation import check_flag, check_number, check_size, plain_fields

if TYPE_CHECKING:
    from inference.base.structure import Problem


TRACE_NAME = "complete-data log-posterior"  # at the draw of each iteration: it fluctuates
# iteration t of the averaging weighs about t^3: early ones are forgotten, later ones are many
AVERAGING = 3
BURN_IN_ROWS = 2000
# tolerances between two estimates of one optimum: they were 2 to 20 apart, and those of two optima
# more than half a nat apart 28 and more
SPREAD = 20.0
FIRST_SWEEPS = 4  # from the prior towards the posterior, at the start's parameters


@dataclass(frozen=True)
class SAEM:
    r"""Stochastic-approximation EM (Delyon et al. 1999, doi:10.1214/aos/1018031103).

    Iteration t draws the latents of all rows by ``num_draws`` Gibbs sweeps, averages the
    statistics,

    .. math:: S_t = (1 - \rho_t) S_{t-1} + \rho_t s(x, a^{(t)}), \qquad
        \rho_t = (t / b)^{-\kappa} \text{ and, after } c \text{ iterations, } (c / b)^{-\kappa} (1 +
        (t - c) / w)^{-\kappa},

    and maximises the averaged complete-data log-posterior; in the first b iterations :math:`\rho_t
    = 1`. The estimate is the average of the parameters over iterations, later ones weighing more
    (Polyak and Juditsky 1992, doi:10.1137/0330046). No sum over the :math:`2^K` configurations is
    ever taken, and memory does not grow with iterations: see :mod:`inference.base.steps`. A
    fit stops by what its iterates do over passes through the data, not by how little their average
    still moves, which is slow by its weights: with :math:`m_1, \dots, m_4` the means of the
    parameters over the last four halves of a window,

    .. math:: D = \lVert \tfrac12 (m_3 + m_4) - \tfrac12 (m_1 + m_2) \rVert, \qquad
        E^2 = \tfrac12 (\lVert m_2 - m_1 \rVert^2 + \lVert m_4 - m_3 \rVert^2).

    Where the iterates only fluctuate, with variance :math:`\sigma^2` of a mean, :math:`E D^2 =
    \sigma^2` and :math:`E E^2 = 2 \sigma^2`; where they drift evenly, :math:`D^2 = 4 E^2`. A
    restart has settled when D is less than ``tolerance`` times the size of the estimate; or when no
    drift shows above the noise, :math:`D \le E`, and the noise of the average over the n windows so
    far, about :math:`E / \sqrt{2 n}`, is less than that.

    The trace holds the complete-data log-posterior at the draws. The objective reported is the
    log-posterior with the latents summed out where that is affordable; else the log-likelihood in
    it is an estimate by annealed importance sampling
    (:func:`inference.engines.gibbs_estimates.log_likelihood_rows`), with ``log_likelihood_error``
    and a lower bound, ``elbo``.

    Args:
        max_iterations: at most so many passes through the rows after the burn-in: iterations, where
            ``batch_rows`` is None.
        num_burn_in: b.
        num_relaxed: iterations after the burn-in under the Lasso of the same slope, where the model
            is penalised and the start is our own: see :class:`~inference.engines.em.EM`. With the
            burn-in, the c iterations that the estimate leaves out.
        rate: :math:`\kappa` in (1/2, 1].
        num_draws: sweeps an iteration, their statistics averaged.
        synchronous: draw every latent given the previous values of all others, as the published
            algorithm (Lee and Gu 2025, Algorithm 3) does: the draws are then not from the
            posterior.
        batch_rows: rows swept in one iteration; all if None. A pass is then as many iterations as
            it takes to sweep N rows.
        window: w, passes between two looks at the iterates; in the steps :math:`\rho_t`,
            iterations.
        tolerance: of the stopping rule.
        accelerate: use the model's own layers where it describes them; the generic route evaluates
            the program twice a latent and keeps the last ``num_kept`` draws.
        num_kept: see ``accelerate``.

    Raises:
        ValueError: for settings out of range; at ``fit``, for latents that are not bits in one
            plate over rows (named).
    """

    max_iterations: int = 500
    num_burn_in: int = 10
    num_relaxed: int = 10
    rate: float = 0.7
    num_draws: int = 1
    synchronous: bool = False
    batch_rows: int | None = None
    window: int = 10
    tolerance: float = 5e-3
    accelerate: bool = True
    num_kept: int = 16

    def __post_init__(self) -> None:
        plain_fields(self)
        for name in ("max_iterations", "num_draws", "window", "num_kept"):
            check_size("SAEM", name, getattr(self, name))
        for name in ("num_burn_in", "num_relaxed"):
            check_size("SAEM", name, getattr(self, name), least=0)
        check_number("SAEM", "rate", self.rate, "lie in (1/2, 1]", above=0.5, most=1)
        check_number("SAEM", "tolerance", self.tolerance, "be positive and finite", above=0)
        for name in ("synchronous", "accelerate"):
            check_flag("SAEM", name, getattr(self, name))
        if self.batch_rows is not None:
            check_size("SAEM", "batch_rows", self.batch_rows, wanted="a positive integer or None")

    @property
    def spread(self) -> float:
        """Tolerated relative distance between restarts of one optimum."""
        return SPREAD * self.tolerance

    def steps(self, problem: Problem) -> DrawSteps:
        """Statistics of draws: by layers where the model describes them, else by the program."""
        steps = draw_steps_of(problem.structure, problem) if self.accelerate else None
        fixed = problem.fixed
        if steps is not None and (
            fixed is None or not fixed.ties and separates(problem.structure, fixed)
        ):
            return steps if fixed is None else FixedDraws(steps, fixed)
        program = problem.program()
        refuse_open_sites("SAEM", problem.structure, program)
        return GenericDraws(GenericGibbs(program), self.num_kept)

    def step(self, iteration: int, lead: int) -> float:
        """Step size rho of an iteration, counted from 0, after ``lead`` burn-in ones."""
        slow = (max(1, self.num_burn_in) / (1 + min(iteration, lead))) ** self.rate
        return cast(
            float, min(1.0, slow) * (1 + max(0, iteration - lead) / self.window) ** -self.rate
        )

    def run(
        self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None
    ) -> Outcome:
        """Run every restart from ``start`` (R, ...)."""
        return self._outcome(problem, *self.climb(problem, start, progress, checkpoint))

    def climb(
        self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None
    ) -> tuple[SAEMState, DrawSteps, torch.Generator]:
        """Run every restart, and return its last state; the likelihood is not estimated there."""
        if self.batch_rows is not None and self.batch_rows > problem.num_rows:
            raise ValueError(
                f"SAEM: batch_rows = {self.batch_rows} exceeds the {problem.num_rows} rows of the"
                " data"
            )
        steps = self.steps(problem)
        prior = problem.program_of_one_row()
        store = (
            None if checkpoint is None else Checkpoint(checkpoint, problem.fingerprint(self, start))
        )
        state = None if store is None else store.load(SAEMState)
        generator = seeded(first_tensor(problem.data), problem.seed)
        if state is None:
            latents = steps.gibbs.begin(start, generator)
            for _ in range(FIRST_SWEEPS):
                latents, _ = steps.gibbs.sweep(start, latents, generator)
            state = SAEMState.begin(start, latents, generator)
        generator.set_state(state.generator)
        relaxed = None if problem.start_given else steps.relax()
        lead = self.num_burn_in + (0 if relaxed is None else self.num_relaxed)
        state = self._iterate(
            steps, relaxed or steps, lead, prior, state, generator, progress, store
        )
        if not state.converged.all() and not progress.stopped:
            warnings.warn(
                f"{int((~state.converged).sum())} of {len(state.converged)} restarts did not settle"
                f" in {self.max_iterations}"
                f" {'iterations' if self.batch_rows is None else 'passes through the rows'} after a"
                f" burn-in of {lead:,}: raise"
                " max_iterations, loosen tolerance, or try fewer latents",
                ConvergenceWarning,
                stacklevel=3,
            )
        return state, steps, generator

    def _iterate(
        self,
        steps: DrawSteps,
        relaxed: DrawSteps,
        lead: int,
        prior: Program,
        state: SAEMState,
        generator: torch.Generator,
        progress: Progress,
        store: Checkpoint | None,
    ) -> SAEMState:
        began = time.monotonic() - state.seconds
        num_rows, scan = next(iter(state.latents.values())).shape[-1], Scan(self.synchronous)
        per_pass = 1 if self.batch_rows is None else math.ceil(num_rows / self.batch_rows)
        try:
            while (
                state.iteration < lead + self.max_iterations * per_pass
                and not state.converged.all()
                and not (progress.stopped and state.iteration)
            ):
                is_burn_in = state.iteration < self.num_burn_in
                now = penalised = relaxed if state.iteration < lead else steps
                rows = None
                batch = self.batch_rows
                if (
                    batch is None
                    and is_burn_in
                    and num_rows > 2 * BURN_IN_ROWS
                    and not isinstance(now, GenericDraws)
                ):
                    batch = BURN_IN_ROWS  # a single draw of all rows is hardly a better guide
                if batch is not None:
                    rows = torch.randperm(num_rows, generator=generator, device=generator.device)[
                        :batch
                    ]
                    now = now.rows(rows)
                latents = (
                    state.latents
                    if rows is None
                    else {k: v[..., rows] for k, v in state.latents.items()}
                )
                drawn: Averages | None = None
                params = state.params
                for draw in range(self.num_draws):
                    latents, chances = now.gibbs.sweep(params, latents, generator, scan)
                    if not is_burn_in:
                        statistics = now.statistics(params, latents, chances)
                        drawn = now.average(drawn, statistics, 1 / (draw + 1))
                if drawn is None:
                    averages, new = {}, now.maximise_draw(params, latents, chances)
                else:
                    rate = self.step(state.iteration, lead)
                    averages = steps.average(state.averages or None, drawn, rate)
                    new = penalised.maximise(averages, params)
                objective = now.log_joint(params, latents) + prior.log_prior(params)
                if rows is not None:
                    latents = {
                        k: v.index_copy(-1, rows, latents[k]) for k, v in state.latents.items()
                    }
                state = state.advance(
                    new,
                    latents,
                    averages,
                    objective,
                    generator,
                    self,
                    lead,
                    per_pass,
                    time.monotonic() - began,
                )
                progress.update(
                    1 + (state.iteration - 1) // per_pass,
                    objective=float(objective.max()),
                    active=int((~state.converged).sum()),
                    engine="SAEM",
                )
                if store is not None and state.iteration % store.every == 0:
                    store.save(state)
        except BaseException:
            if store is not None:
                store.save(state)
            raise
        if store is not None:
            store.save(state)
        return state

    def _outcome(
        self, problem: Problem, state: SAEMState, steps: DrawSteps, generator: torch.Generator
    ) -> Outcome:
        params = state.estimate()
        params = params if problem.fixed is None else problem.fixed.restored(params)
        exact = problem.structure.exact_objective(problem, params)
        elbo = error = None
        if exact is None:
            estimate = log_likelihood_rows(steps.gibbs, params, generator)
            log_likelihood, elbo = estimate.rows.sum(-1).cpu(), estimate.bounds.sum(-1).cpu()
            error = estimate.variances.sum(-1).sqrt().cpu()
            objective = (
                log_likelihood + problem.program_of_one_row().log_prior(params).double().cpu()
            )
        else:
            log_likelihood, objective = exact
        return Outcome(
            params=params,
            objective=objective,
            objective_name="log-posterior",
            log_likelihood=log_likelihood,
            log_likelihood_error=error,
            history=state.history,
            history_log_likelihood=torch.full_like(state.history, math.nan),
            converged=state.converged,
            num_iterations=torch.full((len(state.converged),), state.iteration),
            elbo=elbo,
            trace_name=TRACE_NAME,
        )


@dataclass(frozen=True)
class SAEMState:
    """State of a resumed run, whose size depends on iterations by its history alone.

    Args:
        params: (R, ...); latents: (R, K, N) by site; averages: of statistics, empty in the burn-in.
        generator: state of the random numbers.
        iteration: iterations done; history: (iterations, R), complete-data log-posterior.
        mean: average of the parameters, later iterations weighing more; present: the same of their
            being non-zero.
        sums: of the parameters over the half window under way; halves: their means over up to four
            halves before, (4, R, ...).
        converged: (R,) bool; seconds: time spent.
    """

    params: Params
    latents: Latents
    averages: Averages
    generator: Tensor
    iteration: int
    history: Tensor
    mean: Params
    present: Params
    sums: Params
    halves: Params
    converged: Tensor
    seconds: float

    @classmethod
    def begin(cls, start: Params, latents: Latents, generator: torch.Generator) -> SAEMState:
        num_restarts = len(next(iter(start.values())))
        history, converged = (
            torch.zeros(0, num_restarts, dtype=torch.float64),
            torch.zeros(num_restarts).bool(),
        )
        return cls(
            dict(start),
            latents,
            {},
            generator.get_state(),
            0,
            history,
            {},
            {},
            {},
            {},
            converged,
            0.0,
        )

    def advance(
        self,
        params: Params,
        latents: Latents,
        averages: Averages,
        objective: Tensor,
        generator: torch.Generator,
        method: SAEM,
        lead: int,
        per_pass: int,
        seconds: float,
    ) -> SAEMState:
        """Record one iteration; at the end of a window, compare it with the one before."""
        state = replace(
            self,
            params=params,
            latents=latents,
            averages=averages,
            generator=generator.get_state(),
            iteration=self.iteration + 1,
            history=torch.cat([self.history, objective.double().cpu().unsqueeze(0)]),
            seconds=seconds,
        )
        count = state.iteration - lead
        if count <= 0:
            return state
        weight = (1 + AVERAGING) / (count + AVERAGING)
        present = {name: (value != 0).to(value) for name, value in params.items()}
        mean = params
        if self.mean:
            present = {
                name: torch.lerp(self.present[name], value, weight)
                for name, value in present.items()
            }
            mean = {
                name: torch.lerp(self.mean[name], value, weight) for name, value in params.items()
            }
            # what stands still stands on its bound: the way there is no part of its average
            still = {
                name: (value == self.params[name]) & (value != 0) for name, value in params.items()
            }
            mean = {
                name: torch.where(still[name], params[name] * present[name], value)
                for name, value in mean.items()
            }
        sums = {
            name: value + self.sums[name] if self.sums else value for name, value in params.items()
        }
        half = max(1, round(method.window * per_pass / 2))  # iterations
        if count % half:
            return replace(state, mean=mean, present=present, sums=sums)
        halves = {name: (value / half).unsqueeze(0) for name, value in sums.items()}
        halves = {
            name: torch.cat([self.halves[name], value])[-4:] if self.halves else value
            for name, value in halves.items()
        }
        state = replace(state, mean=mean, present=present, sums={}, halves=halves)
        if count % (2 * half) or count < 4 * half:
            return state
        return replace(
            state, converged=state.converged | state._settled(method.tolerance, count // (2 * half))
        )

    def _settled(self, tolerance: float, num_windows: int) -> Tensor:
        """Mask of restarts that neither drift nor scatter beyond the tolerance, (R,)."""
        size = _norm(list(self.estimate().values()))
        drift = _norm([(m[2] + m[3] - m[0] - m[1]) / 2 for m in self.halves.values()])
        noise = (
            (
                _norm([m[1] - m[0] for m in self.halves.values()]).square()
                + _norm([m[3] - m[2] for m in self.halves.values()]).square()
            )
            .div(2)
            .sqrt()
        )
        still = drift < tolerance * size
        return cast(
            Tensor,
            (
                still | ((drift <= noise) & (noise < (2 * num_windows) ** 0.5 * tolerance * size))
            ).cpu(),
        )

    def estimate(self) -> Params:
        """Averaged parameters; zero where zero in most iterations."""
        if not self.mean:
            return self.params
        return {
            name: torch.where(
                self.present[name] >= 0.5, value / self.present[name].clamp(min=0.5), 0.0
            )
            for name, value in self.mean.items()
        }


def _norm(values: list[Tensor]) -> Tensor:
    """Euclidean norm over all sites, (R,)."""
    return (
        torch.stack([value.square().reshape(len(value), -1).sum(-1) for value in values])
        .sum(0)
        .sqrt()
    )
