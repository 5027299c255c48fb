"""Factorizations: multiplicative and alternating updates for many restarts at once, and what fits need of the activities."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Generator, Tensor

from inference.factorization_start import nndsvd, random_factors
from inference.noise import USED, ComponentNoise, gaussian_split, numpy_generator, poisson_scores, poisson_split
from inference.program import Params
from inference.progress import Progress
from inference.structure import Outcome, Recommendation, Structure
from ppl_models.responses import Poisson, filled

if TYPE_CHECKING:
    from inference.em import EM
    from inference.fit import Problem
    from inference.steps import Steps
    from ppl_models.components import FactorizationDescription

__all__ = ["Counts", "Factorization", "Factorize", "LeastSquares", "polished"]

FLOOR = 1e-12  # of an expected count
MAX_STRETCH = 64.0  # of an extrapolated step
RACE = (10, 20, 40)
CHECK_EVERY = 5  # accelerated steps between two looks at the objective's gain


@dataclass(frozen=True, eq=False)
class Counts:
    r"""Updates of a Poisson factorization: EM with the components' shares of each count as missing data.

    :math:`E[y_{nkj} \mid x] = x_{nj} z_{nk} \phi_{kj} / \mu_{nj}`; a missing entry is missing data as well, so every update
    keeps :math:`\sum_j \phi_{kj} = 1` and never lowers the log-posterior. With flat priors and complete data these are the
    multiplicative updates of Lee and Seung (2001) for the Kullback-Leibler divergence.

    Args:
        x: (N, J) counts; mask: (N, J), 0 where missing, or None.
        concentration: of the signatures' Dirichlet prior; shape, rate: of the activities' Gamma prior (1, 0 for flat).
    """

    x: Tensor
    mask: Tensor | None
    concentration: float = 1.0
    shape: float = 1.0
    rate: float = 0.0

    @classmethod
    def of(cls, data: Tensor, about: FactorizationDescription) -> Counts:
        """For a table with NaN where missing."""
        x, mask = filled(Poisson(), data)
        shape, rate = about.activity_prior or (1.0, 0.0)
        return cls(x, mask, about.concentration, shape, rate)

    def ratio(self, z: Tensor, phi: Tensor) -> Tensor:
        """x / mu, (R, N, J); 1 where missing, for there the expected count is mu itself."""
        ratio = self.x / (z @ phi).clamp_(min=FLOOR)
        return ratio if self.mask is None else ratio * self.mask + (1 - self.mask)

    def activities(self, z: Tensor, phi: Tensor, ratio: Tensor | None = None) -> Tensor:
        """The update of z given phi, (R, N, K)."""
        ratio = self.ratio(z, phi) if ratio is None else ratio
        return (z * (ratio @ phi.mT) + (self.shape - 1)) / (1 + self.rate)

    def signatures(self, z: Tensor, phi: Tensor, ratio: Tensor | None = None) -> Tensor:
        """The update of phi given z, (R, K, J)."""
        ratio = self.ratio(z, phi) if ratio is None else ratio
        new = phi * (z.mT @ ratio) + (self.concentration - 1)
        total = new.sum(-1, keepdim=True)
        return torch.where(total > 0, new / total.clamp(min=1e-300), phi)  # a component that nobody uses stays as it is

    def log_likelihood_rows(self, z: Tensor, phi: Tensor) -> Tensor:
        """Given the activities, (R, N)."""
        mu = (z @ phi).clamp_(min=FLOOR)
        terms = torch.xlogy(self.x, mu) - mu - torch.lgamma(self.x + 1)
        return (terms if self.mask is None else terms * self.mask).sum(-1)

    def varying(self, z: Tensor, phi: Tensor) -> Tensor:
        """Log-posterior up to a constant, (R,)."""
        mu = (z @ phi).clamp_(min=FLOOR)
        terms = torch.xlogy(self.x, mu).sub_(mu)
        total = (terms if self.mask is None else terms * self.mask).sum((-2, -1))
        if self.concentration > 1:
            total = total + (self.concentration - 1) * phi.clamp(min=1e-300).log().sum((-2, -1))
        if self.shape > 1 or self.rate > 0:
            total = total + ((self.shape - 1) * z.clamp(min=1e-300).log() - self.rate * z).sum((-2, -1))
        return total

    def sweep(self, z: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        """Activities, then signatures."""
        z = self.activities(z, phi)
        return z, self.signatures(z, phi)


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Updates of a non-negative factorization by least squares, one component at a time (Cichocki and Phan 2009).

    Args:
        x: (N, J).
    """

    x: Tensor

    def activities(self, z: Tensor, phi: Tensor) -> Tensor:
        """One pass over the components of z given phi."""
        cross, gram = self.x @ phi.mT, phi @ phi.mT  # (R, N, K), (R, K, K)
        return _coordinate_pass(z, cross, gram)

    def sweep(self, z: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        """Activities, then signatures; an unused component starts anew at the row that is explained worst."""
        z = self.activities(z, phi)
        cross, gram = self.x.mT @ z, z.mT @ z
        phi = _coordinate_pass(phi.mT, cross, gram).mT
        length = phi.norm(dim=-1, keepdim=True)
        dead = (length.squeeze(-1) <= 1e-12) | (z.sum(-2) <= 1e-12)
        if bool(dead.any()):
            residual = (self.x - z @ phi).clamp(min=0)
            worst = residual.square().sum(-1).argmax(-1)  # (R,)
            rows = residual[torch.arange(len(z)), worst].unsqueeze(-2)
            phi = torch.where(dead.unsqueeze(-1), rows + 1e-12, phi)
            z = torch.where(dead.unsqueeze(-2), torch.zeros_like(z), z)
            length = phi.norm(dim=-1, keepdim=True)
        return z * length.mT, phi / length

    def varying(self, z: Tensor, phi: Tensor) -> Tensor:
        """Minus the sum of squares, (R,)."""
        return -(self.x - z @ phi).square().sum((-2, -1))


def _coordinate_pass(z: Tensor, cross: Tensor, gram: Tensor) -> Tensor:
    """Minimise over each column of z >= 0 in turn: |x - z phi|^2 with cross = x phi^T, gram = phi phi^T."""
    z = z.clone()
    for k in range(z.shape[-1]):
        own = gram[:, k, k].clamp(min=1e-300)[:, None]
        slope = cross[..., k] - (z @ gram[..., k : k + 1]).squeeze(-1)
        z[..., k] = (z[..., k] + slope / own).clamp(min=0)
    return z


Pair = tuple[Tensor, Tensor]


def _accelerated(updates: Counts, step: Callable[[Tensor, Tensor], Pair], z: Tensor, phi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Two EM steps and an extrapolation of their logarithms (Varadhan and Roland 2008), kept only where it gains.

    Returns:
        z, phi, and the log-posterior up to a constant; three updates of cost.
    """
    first = step(z, phi)
    second = step(*first)
    pairs = [tuple(v.clamp(min=1e-300).log() for v in triple) for triple in zip((z, phi), first, second, strict=True)]
    moves = [(b - a, c - 2 * b + a) for a, b, c in pairs]
    weights = (first[0], first[0].sum(-2).unsqueeze(-1) * first[1])  # both in counts
    speed = sum((w * r.square()).sum((-2, -1)) for w, (r, _) in zip(weights, moves, strict=True))
    turn = sum((w * v.square()).sum((-2, -1)) for w, (_, v) in zip(weights, moves, strict=True))
    stretch = (speed / torch.as_tensor(turn).clamp(min=1e-300)).sqrt().clamp(1.0, MAX_STRETCH)[:, None, None]
    far = [
        (logs[0] + 2 * stretch * r + stretch.square() * v).clamp(max=60.0).exp()
        for logs, (r, v) in zip(pairs, moves, strict=True)
    ]
    far = list(step(far[0], far[1] / far[1].sum(-1, keepdim=True)))
    value, fallback = updates.varying(*far), updates.varying(*second)
    better = value > fallback  # False for NaN
    keep = better[:, None, None]
    return torch.where(keep, far[0], second[0]), torch.where(keep, far[1], second[1]), torch.where(better, value, fallback)


def polished(updates: Counts | LeastSquares, phi: Tensor, num_steps: int = 500, tolerance: float = 1e-10) -> Tensor:
    """Activities of every row for given signatures (K, J), from an even start, to convergence; (N, K)."""
    phi = phi.unsqueeze(0)
    z = updates.x.new_ones(1, len(updates.x), phi.shape[1]) * updates.x.clamp(min=0).mean(-1, keepdim=True).clamp(min=1e-3)
    last = updates.varying(z, phi)

    def step(a: Tensor, b: Tensor) -> Pair:
        return updates.activities(a, b), b

    for _ in range(num_steps):
        for _ in range(CHECK_EVERY):
            if isinstance(updates, Counts):
                z, _, value = _accelerated(updates, step, z, phi)
            else:
                z, _ = step(z, phi)
                value = updates.varying(z, phi)
        if bool((value - last).abs() <= tolerance * value.abs().clamp(min=1.0)):
            break
        last = value
    return z[0]


@dataclass(frozen=True)
class Factorize:
    r"""Point estimates of signatures and activities by monotone updates, all restarts as one batch.

    Counts: multiplicative updates (EM), extrapolated by SQUAREM (Varadhan and Roland 2008,
    doi:10.1111/j.1467-9469.2007.00585.x). Normal entries: alternating non-negative updates, or the exact truncated singular
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
        if checkpoint is not None:
            raise ValueError("checkpoint: factorizations are not checkpointed; leave it out")
        about = structure.about
        z, phi = start["activities"], start["signatures"]
        if about.counts or about.nonnegative:
            updates = Counts.of(problem.data, about) if about.counts else LeastSquares(problem.data)
            z, phi, history, converged, sweeps = self._iterate(updates, z, phi, progress)
        else:
            z, phi = _truncated_svd(problem.data, about.num_components, len(z))
            history = LeastSquares(problem.data).varying(z, phi)[None]
            converged, sweeps = torch.ones(len(z), dtype=torch.bool), torch.ones(len(z), dtype=torch.long)
        params = structure.with_scales({"signatures": phi, "activities": z}, problem.data)
        log_likelihood, objective = structure.objectives(problem, params)
        shift = objective - history[-1].nan_to_num() if about.counts else None
        history = history + shift if shift is not None else history * math_nan(history)
        if not converged[objective.argmax()]:
            from inference.em import ConvergenceWarning

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
        self, updates: Counts | LeastSquares, z: Tensor, phi: Tensor, progress: Progress
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        num_restarts = len(z)
        active = torch.arange(num_restarts)
        z, phi = z.clone(), phi.clone()
        last = torch.full((num_restarts,), -torch.inf, dtype=torch.float64)
        rounds = torch.zeros(num_restarts, dtype=torch.long)
        converged = rounds.bool()
        history: list[Tensor] = []
        done_sweeps = 0
        while len(active) and done_sweeps < self.max_sweeps:
            a, b = z[active], phi[active]
            for _ in range(CHECK_EVERY):
                if isinstance(updates, Counts):
                    a, b, value = _accelerated(updates, updates.sweep, a, b)
                else:
                    for _ in range(3):
                        a, b = updates.sweep(a, b)
                    value = updates.varying(a, b)
            done_sweeps += 3 * CHECK_EVERY
            z[active], phi[active] = a, b
            value = value.double().cpu()
            done = (value - last[active]).abs() <= self.tolerance * value.abs().clamp(min=1e-300)
            last[active] = value
            converged[active] = done
            rounds[active] += 1
            active = active[~done]
            if self.race and len(history) + 1 in RACE and len(active):
                best = last[active].argsort(descending=True, stable=True)[: -(-len(active) // 2)]
                active = active[best.sort().values]
            history.append(last.clone())
            progress.update(done_sweeps, objective=float(last.max()), active=len(active))
        return z, phi, torch.stack(history), converged, rounds


def math_nan(like: Tensor) -> Tensor:
    """NaN in the shape of ``like``: a course that was not recorded."""
    return torch.full_like(like, torch.nan)


def _truncated_svd(x: Tensor, num_components: int, num_restarts: int) -> Pair:
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    k = num_components
    sign = torch.where(vt[:k].sum(-1) < 0, -1.0, 1.0).to(x)
    z, phi = u[:, :k] * s[:k] * sign, vt[:k] * sign[:, None]
    return z.repeat(num_restarts, 1, 1), phi.repeat(num_restarts, 1, 1)


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
        """With the noise scale that fits the residuals best, for Normal entries."""
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
            return Counts.of(data.to(phi), about).log_likelihood_rows(z, phi)
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
        if about.counts:
            return {"activities": polished(Counts.of(data, about), phi)}
        if about.nonnegative:
            return {"activities": polished(LeastSquares(data), phi)}
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
            for _ in range(num_draws):
                whole = np.where(missing, rng.poisson(rates.sum(1)), np.nan_to_num(counts))
                draws.append(poisson_scores(poisson_split(whole, rates, rng), rates, rng))
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
        return k * (j - 1) + activities + (0 if self.about.counts else 1)

    def recommended(self, problem: Problem) -> Recommendation:
        exact = not (self.about.counts or self.about.nonnegative)
        return Recommendation(Factorize(), "spectral", 1 if exact else 10)
