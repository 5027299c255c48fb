r"""Laplace's approximation: a normal posterior around the optimum of EM, latents summed out.

In the coordinates :math:`\phi` of :mod:`inference.programs.coordinates` (logits, logs, log-ratios),

.. math:: \phi \mid x \approx N(\hat\phi, H^{-1}), \quad
    H = -\nabla^2_\phi \left[ \log p(x \mid \theta(\phi)) + \log p(\theta(\phi)) \right]_{\phi =
    \hat\phi},

with :math:`\hat\theta` the maximum of the posterior density in the parameters' own units. Entries
that are exactly zero or on a bound stay there, so what is said is conditional on the estimated
graph. Where a spread of random effects is zero or near it, its logarithm has little curvature
there, and all others given a spread of zero would be too narrow. In programs of the user the
density of the coordinates,

.. math:: \log p(x \mid \theta(\phi)) + \log p(\theta(\phi)) + \log |\theta'(\phi)| ,

which has its maximum inside, takes the place of the log-posterior then.

Source: L. Tierney and J. B. Kadane (1986), doi:10.1080/01621459.1986.10478240.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.base.outcome import ConvergenceWarning, Outcome
from inference.base.progress import Progress
from inference.base.structure import is_method, refuse_open_sites
from inference.engines.em import EM
from inference.engines.importance import log_posteriors, warn_of_ratios
from inference.engines.integration import refined
from inference.programs.coordinates import Coordinates
from inference.programs.curvature import (
    climb,
    data_chunks,
    inverse_information,
    minus_hessian,
)
from inference.programs.program import Params, Program
from ppl_models.data.tables import map_tensors
from ppl_models.parts.repr import listed
from ppl_models.parts.validation import check_size, plain_fields

if TYPE_CHECKING:
    from inference.base.structure import Problem

REACH, MOST_STEPS = 1.0, 100  # of Newton's method, in coordinates


@dataclasses.dataclass(frozen=True)
class Laplace:
    """Laplace approximation of the posterior: a normal at the optimum.

    Args:
        num_draws: draws from it, in one chain.
        optimum: the engine that finds the optimum.

    Raises:
        ValueError: for fewer than 4 draws; at ``fit``, for latents that cannot be enumerated, a
            support without coordinates, or an optimum where the log-posterior does not curve down,
            naming the parameters.

    Example:
        >>> import numpy as np
        >>> from inference import Laplace, fit
        >>> from ppl_models import Mixture
        >>> rng = np.random.default_rng(0)
        >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
        >>> classes = fit(Mixture(2), answers)
        >>> drawn = fit(Mixture(2), answers, Laplace(num_draws=500), init=classes)
        >>> tuple(drawn.draws["weights"].shape)
        (1, 500, 2)
    """

    num_draws: int = 1000
    optimum: EM = dataclasses.field(default_factory=EM)

    def __post_init__(self) -> None:
        plain_fields(self)
        check_size("Laplace", "num_draws", self.num_draws, 4, "an integer of 4 or more")
        if not is_method(self.optimum):
            raise ValueError(
                f"Laplace: optimum must be an engine such as EM(), got {self.optimum!r}"
            )

    @property
    def max_iterations(self) -> int:
        """Iteration limit of the search for the optimum."""
        return self.optimum.max_iterations

    def run(
        self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None
    ) -> Outcome:
        """Run Laplace; a checkpoint holds the search for the optimum."""
        program = problem.program()
        refuse_open_sites("Laplace", problem.structure, program)
        program.check_enumerable()
        outcome = self.optimum.run(problem, start, progress, checkpoint)
        if isinstance(self.optimum, EM) and problem.program().integrated:
            outcome = refined(problem, outcome, self.optimum, progress)
            problem = dataclasses.replace(problem, model=outcome.model or problem.model, cache={})
        best = int(torch.where(outcome.objective.isnan(), -torch.inf, outcome.objective).argmax())
        problem = dataclasses.replace(
            problem,
            data=map_tensors(
                lambda x: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x,
                problem.data,
            ),
        )
        program = problem.program()  # single precision is too coarse for curvature
        mode = problem.canonical(
            {name: value[best].double() for name, value in outcome.params.items()}
        )
        given, ties = (
            (None, None) if problem.fixed is None else (problem.fixed.values, problem.fixed.ties)
        )
        coordinates = Coordinates.of(program, mode, given=given, ties=ties)
        held = coordinates.at_bound()
        coordinates = coordinates.without(held)
        log_posterior = functools.partial(_log_posterior, program)
        near_zero = [] if program.is_own else coordinates.at_zero(log_posterior)
        if held:
            warnings.warn(
                f"Laplace: the optimum of {listed(held)} is on the bound of its interval and is"
                " held there: the draws of all others are conditional on that, and too narrow"
                " where it may be off the bound; NUTS() draws it too",
                ConvergenceWarning,
                stacklevel=2,
            )
        if not coordinates.names:
            raise ValueError(
                "Laplace: every parameter is known or lies on the bound of its interval, where no"
                " curvature says how sure it is; give it priors, or more rows"
            )
        center = coordinates.vector()
        if not near_zero:
            covariance = inverse_information(
                _information(problem, program, coordinates, center), coordinates.names, "Laplace"
            )
            if not program.is_own:
                near_zero = coordinates.near_zero(covariance)
        if near_zero:
            warnings.warn(
                f"Laplace: the optimum of {listed(near_zero)} is zero or near it, where its"
                " logarithm has little curvature: fit.params holds the optimum, and the draws are"
                " normal around the largest density of the logarithm",
                ConvergenceWarning,
                stacklevel=2,
            )
            density = functools.partial(_log_density, program, coordinates)
            center = _mode_inside(density, coordinates, near_zero)
            covariance = inverse_information(
                minus_hessian(density, center), coordinates.names, "Laplace"
            )
        factor = torch.linalg.cholesky(covariance)
        generator = torch.Generator().manual_seed(problem.seed)
        noise = torch.randn(
            self.num_draws, len(center), generator=generator, dtype=torch.float64
        ).to(center)
        points = center + noise @ factor.mT
        each = [coordinates.params(point) for point in points]
        draws = {name: torch.stack([params[name] for params in each]) for name in mode}
        draws, inside = coordinates.clamped(draws)
        endless = sorted(name for name, value in draws.items() if not bool(value.isfinite().all()))
        if endless:
            raise ValueError(
                f"Laplace: the data and the priors say so little of {', '.join(endless)} that draws"
                " around the optimum run to infinity; give them tighter priors, or more rows, or"
                " take NUTS, which needs no optimum"
            )
        log_guide = (
            -0.5 * noise.square().sum(-1)
            - factor.diagonal().log().sum()
            - 0.5 * len(center) * math.log(2 * math.pi)
        )
        log_joint = log_posteriors(program, draws) + coordinates.log_jacobian(draws)
        ratio = torch.where(inside, log_joint - log_guide, -torch.inf).double().cpu()
        warn_of_ratios(ratio, "Laplace", "NUTS draws from the posterior itself")
        return dataclasses.replace(
            outcome,
            params={name: value[None].to(outcome.params[name]) for name, value in mode.items()},
            objective=outcome.objective[best : best + 1],
            log_likelihood=outcome.log_likelihood[best : best + 1],
            history=outcome.history[:, best : best + 1],
            history_log_likelihood=outcome.history_log_likelihood[:, best : best + 1],
            converged=outcome.converged[best : best + 1],
            num_iterations=outcome.num_iterations[best : best + 1],
            draws={name: value[None] for name, value in draws.items()},
            sample_stats={"lp": log_joint[None].double().cpu(), "log_importance": ratio[None]},
        )


def _information(
    problem: Problem, program: Program, coordinates: Coordinates, center: Tensor
) -> Tensor:
    """Minus the second derivatives of the log-posterior, (P, P)."""
    total = minus_hessian(lambda free: program.log_prior(coordinates.params(free)), center)
    is_labelled = problem.labels is not None  # which chunks of rows know nothing of
    for part in [program] if is_labelled else data_chunks(problem.model, problem.data):
        total = total + minus_hessian(functools.partial(_log_likelihood, part, coordinates), center)
    return total


def _log_posterior(program: Program, params: Params) -> Tensor:
    return program.log_marginal(params) + program.log_prior(params)


def _log_likelihood(program: Program, coordinates: Coordinates, free: Tensor) -> Tensor:
    return program.log_marginal(coordinates.params(free))


def _log_density(program: Program, coordinates: Coordinates, free: Tensor) -> Tensor:
    """Log-posterior density of the free coordinates (P,), ()."""
    params = coordinates.params(free)
    one = {name: value.unsqueeze(0) for name, value in params.items()}
    return _log_posterior(program, params) + coordinates.log_jacobian(one)[0]


def _mode_inside(
    density: Callable[[Tensor], Tensor], coordinates: Coordinates, near_zero: Sequence[str]
) -> Tensor:
    """Maximum of a density of free coordinates (P,), some of them logarithms of small numbers."""
    start = coordinates.vector()
    places = torch.tensor([name in near_zero for name in coordinates.names], device=start.device)

    def first(at: Tensor) -> tuple[Tensor, Tensor]:
        leaf = at[0].detach().requires_grad_()
        with torch.enable_grad():
            value = density(leaf)
            (slope,) = torch.autograd.grad(value, leaf)
        return value.detach().unsqueeze(0), slope.unsqueeze(0)

    def second(at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return *first(at), -minus_hessian(density, at[0]).unsqueeze(0)

    with torch.no_grad():
        powers = [torch.where(places, float(power), start) for power in range(-4, 5)]
        start = max([start, *powers], key=lambda at: float(density(at).nan_to_num(-torch.inf)))
    end, arrived = climb(first, second, start[None], torch.full_like(start, REACH), MOST_STEPS)
    if not bool(arrived.all()):
        raise ValueError(
            f"Laplace: the density of the logarithm of {listed(near_zero)}, whose optimum is near"
            f" zero, has no maximum within {MOST_STEPS} steps of Newton's method; NUTS() draws it"
        )
    return end[0]
