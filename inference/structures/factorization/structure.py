"""Factorizations: multiplicative and alternating updates for many restarts at once, and what fits need of the activities."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Generator, Tensor

from inference.base.checkpoint import Checkpoint
from inference.base.component_noise import (
    USED,
    ComponentNoise,
    gaussian_split,
    negative_binomial_scores,
    numpy_generator,
    poisson_scores,
    poisson_split,
)
from inference.base.progress import Progress
from inference.base.structure import Outcome, Recommendation, Structure
from inference.programs.program import Params
from inference.structures.factorization.starts import nndsvd, random_factors, truncated_svd
from inference.structures.factorization.updates import (
    BLOCK_ELEMENTS,
    CHECK_EVERY,
    Counts,
    DispersedCounts,
    LeastSquares,
    accelerated,
    polished,
)

if TYPE_CHECKING:
    from inference.base.steps import Steps
    from inference.engines.em import EM
    from inference.fitting.fit import Problem
    from ppl_models.descriptions.components import FactorizationDescription

__all__ = ["Factorization", "Factorize"]

RACE = (10, 20, 40)
CHECKPOINT_EVERY = 10  # iterations between two writes
START_DISPERSION = 0.1


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
        if isinstance(self.max_sweeps, bool) or not isinstance(self.max_sweeps, int) or self.max_sweeps < 1:
            raise ValueError(f"Factorize: max_sweeps must be a positive integer, got {self.max_sweeps!r}")
        if not isinstance(self.race, bool):
            raise ValueError(f"Factorize: race must be True or False, got {self.race!r}")
        if not self.tolerance > 0:
            raise ValueError(f"Factorize: tolerance must be positive, got {self.tolerance!r}")

    def run(self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None) -> Outcome:
        """Run every restart from ``start`` (R, ...) to convergence."""
        structure = problem.structure
        if not isinstance(structure, Factorization):
            raise ValueError(f"Factorize: a matrix factorization was expected, got {type(problem.model).__name__}")
        about, store = structure.about, None
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
        params = structure.with_scales(params, problem.data)
        log_likelihood, objective = structure.objectives(problem, params)
        shift = objective - history[-1].nan_to_num() if about.counts else None
        history = history + shift if shift is not None else history * math_nan(history)
        if not converged[objective.argmax()]:
            from inference.engines.em import ConvergenceWarning

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
            course.advance(value.double().cpu(), self.tolerance, self.race)
            progress.update(course.num_sweeps, objective=float(course.last.max()), active=len(course.active))
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

    def advance(self, value: Tensor, tolerance: float, race: bool) -> None:
        """Take in the objective of the active restarts, (A,), and stop those that gain no more or fall behind."""
        active = self.active
        done = (value - self.last[active]).abs() <= tolerance * value.abs().clamp(min=1e-300)
        self.last[active], self.converged[active] = value, done
        self.rounds[active] += 1
        active = active[~done]
        if race and len(self.history) + 1 in RACE and len(active):
            best = self.last[active].argsort(descending=True, stable=True)[: -(-len(active) // 2)]
            active = active[best.sort().values]
        self.active = active
        self.history = torch.cat([self.history, self.last[None]])
        self.num_sweeps += 3 * CHECK_EVERY


def updates_of(data: Tensor, about: FactorizationDescription, params: Params) -> Counts | LeastSquares:
    """The updates for a model's kind of entries, at the dispersion of ``params`` where it has one."""
    if not about.counts:
        return LeastSquares(data)
    return DispersedCounts.of_params(data, about, params) if about.dispersed else Counts.of(data, about)


def math_nan(like: Tensor) -> Tensor:
    """NaN in the shape of ``like``: a course that was not recorded."""
    return torch.full_like(like, torch.nan)


class Factorization(Structure):
    """A model that offers ``factorization()``."""

    local_sites = ("activities",)

    @property
    def about(self) -> FactorizationDescription:
        """The model's description."""
        about: FactorizationDescription = self.model.factorization()
        return about

    @classmethod
    def of(cls, model: Callable[..., Any]) -> Factorization | None:
        return cls(model) if hasattr(model, "factorization") else None

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        about = self.about
        x = problem.data.nan_to_num(nan=float(problem.data.nanmean())).clamp(min=0)
        z, phi = random_factors(x, about.num_components, num_restarts, problem.seed)
        if init == "spectral" and (about.nonnegative or about.counts):
            z[0], phi[0] = nndsvd(x, about.num_components, problem.seed)
        if not about.counts:
            length = phi.norm(dim=-1, keepdim=True)
            z, phi = z * length.mT, phi / length
        return self.with_scales({"signatures": phi, "activities": z}, problem.data)

    def complete_start(self, problem: Problem, params: Params) -> Params:
        """Activities for parameters (R, ...) that came without them."""
        rows = [self.solve_local({name: v[r] for name, v in params.items()}, problem.data) for r in range(len(params["signatures"]))]
        return params | {"activities": torch.stack([row["activities"] for row in rows])}

    def with_scales(self, params: Params, data: Tensor) -> Params:
        """With the noise scale that fits the residuals best, for Normal entries; with a dispersion to start from."""
        if self.about.dispersed and "dispersion" not in params:
            return params | {"dispersion": torch.full_like(params["signatures"][:, :1, 0], START_DISPERSION)}
        if self.about.counts:
            return params
        residual = data - params["activities"] @ params["signatures"]
        return params | {"scales": residual.square().mean((-2, -1)).sqrt().clamp(1e-6, 1e6).unsqueeze(-1)}

    def objectives(self, problem: Problem, params: Params) -> tuple[Tensor, Tensor]:
        """Log-likelihood given the activities, and log-joint density of data, activities and parameters, (R,)."""
        likelihood = self.conditional_rows(params, problem.data).sum(-1).double().cpu()
        prior = problem.program().log_prior(params).detach().double().cpu()
        return likelihood, likelihood + prior + self.log_prior_activities(params)

    def conditional_rows(self, params: Params, data: Tensor) -> Tensor:
        """Log-likelihood of each row given its activities, (N,) or (R, N)."""
        about, z, phi = self.about, params["activities"], params["signatures"]
        if about.counts:
            updates = updates_of(data.to(phi), about, params)
            return updates.log_likelihood_rows(z, phi)  # type: ignore[union-attr]
        scales = params["scales"].unsqueeze(-2)
        return torch.distributions.Normal(z @ phi, scales, validate_args=False).log_prob(data.to(phi)).sum(-1)

    def log_prior_activities(self, params: Params) -> Tensor:
        """Log prior density of all activities, (R,)."""
        about, z = self.about, params["activities"]
        if about.activity_prior is not None:
            shape, rate = (torch.tensor(v, dtype=z.dtype, device=z.device) for v in about.activity_prior)
            law = torch.distributions.Gamma(shape, rate)
            return law.log_prob(z.clamp(min=1e-300)).sum((-2, -1)).double().cpu()
        width = about.bound if about.nonnegative else 2 * about.bound
        constant = -z[0].numel() * torch.tensor(width, dtype=torch.float64).log()
        return constant.expand(len(z))

    def steps(self, problem: Problem, method: EM) -> Steps | None:
        return None

    def solve_local(self, params: Params, data: Tensor) -> Params:
        """Activities of the rows of ``data`` given the parameters, by site."""
        about, phi = self.about, params["signatures"]
        data = data.to(phi)
        if about.counts or about.nonnegative:
            return {"activities": polished(updates_of(data, about, params), phi)}
        return {"activities": torch.linalg.lstsq(phi.mT, data.mT).solution.mT}

    def component_noise(self, params: Params, data: Tensor, generator: Generator, num_draws: int) -> ComponentNoise:
        """Splits of every entry among the components, as normal scores; missing entries are drawn from the model."""
        about, z, phi = self.about, params["activities"], params["signatures"]
        expected = z.unsqueeze(-1) * phi  # (N, K, J)
        amount = z.abs().sum(0)
        shares = (amount / amount.sum()).numpy()
        if not about.counts:
            scales = (params["scales"] / about.num_components**0.5).expand(about.num_components, about.num_items)
            scores = gaussian_split(data - z @ phi, scales, generator, num_draws).numpy()
            used = (z != 0).numpy()
        else:
            rng, rates, counts = numpy_generator(generator), expected.numpy(), data.numpy()
            missing = np.isnan(counts)
            draws = []
            size = float(1 / params["dispersion"]) if about.dispersed else None
            for _ in range(num_draws):
                mean = rates.sum(1) if size is None else rng.gamma(size, rates.sum(1) / size)
                whole = np.where(missing, rng.poisson(mean), np.nan_to_num(counts))
                y = poisson_split(whole, rates, rng)  # given the whole, the split is the same under both laws
                draws.append(poisson_scores(y, rates, rng) if size is None else negative_binomial_scores(y, rates, size, rng))
            scores = np.stack(draws)
            used = (z > USED).numpy()
        return ComponentNoise(scores, np.broadcast_to(used, (num_draws, *used.shape)), shares)

    def canonical(self, params: Params) -> Params:
        """Components in the order of falling total activity (size, where activities may be negative)."""
        order = params["activities"].abs().sum(-2).argsort(descending=True)
        return params | {"signatures": params["signatures"][order], "activities": params["activities"][:, order]}

    def num_free(self, params: Params) -> int:
        """Signatures without their normalisation, activities where given, and the scale."""
        k, j = params["signatures"].shape
        activities = params["activities"].numel() if "activities" in params else 0
        return k * (j - 1) + activities + (1 if self.about.dispersed or not self.about.counts else 0)

    def recommended(self, problem: Problem) -> Recommendation:
        exact = not (self.about.counts or self.about.nonnegative)
        return Recommendation(Factorize(), "spectral", 1 if exact else 10)
