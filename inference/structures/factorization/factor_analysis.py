r"""Factor analysis: EM with the activities integrated in closed form.

With the observed items of a row, :math:`G_n = I + \sum_j \phi_j \phi_j^T / \sigma_j^2` and
:math:`b_n = \sum_j \phi_j (x_{nj} - \mu_j) / \sigma_j^2`, the activities are :math:`N(G_n^{-1} b_n,
G_n^{-1})` and

.. math::

    \log p(x_n) = -\tfrac12 \Big\{ \sum_j \log 2 \pi \sigma_j^2 + \log |G_n| + \sum_j (x_{nj} -
    \mu_j)^2 / \sigma_j^2 - b_n^T G_n^{-1} b_n \Big\} .

The M-step regresses every item on (1, z) with the second moments of z expected (Rubin and Thayer
1982).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Generator, Tensor

from inference.base.component_noise import NoiseDraws, gaussian_split
from inference.base.steps import EStep, RunningSum, Steps
from inference.base.structure import (
    Capability,
    Problem,
    Recommendation,
    Structure,
    component_noise,
    marginal_rows,
    num_density_items,
)
from inference.engines.em import EM
from inference.programs.program import Params, Program
from inference.structures.factorization.factorize import SCALE_RANGE
from ppl_models.descriptions.components import FactorDescription
from ppl_models.parts.responses import Normal, filled

AT_ONCE = 2**20  # numbers of the rows
ON_BOUND = 0.999  # of a bound
HEYWOOD = 0.005  # of an item's variance, noise below which makes a solution improper
MOST_SHOWN = 8  # items of a warning


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior of the activities, with the log-density of the rows.

    Args:
        mean: (R, N, K); covariance: (R, N or 1, K, K); log_likelihood: (R, N).
    """

    mean: Tensor
    covariance: Tensor
    log_likelihood: Tensor


def posterior(params: Params, x: Tensor, mask: Tensor | None) -> Posterior:
    """Posterior of every row; x is (N, J), mask (N, J) 0 where missing, or None."""
    # (R, K, J), (R, J)
    phi, precision = (params["signatures"], params["scales"].square().reciprocal())
    residual = x - params["intercepts"].unsqueeze(-2)  # (R, N, J)
    residual = residual if mask is None else residual * mask
    scaled = phi * precision.unsqueeze(-2)
    seen = x.new_ones(1, x.shape[1]) if mask is None else mask
    gram = torch.einsum("nj,rkj,rlj->rnkl", seen, scaled, phi) + torch.eye(phi.shape[-2]).to(x)
    factor = torch.linalg.cholesky(gram)
    linear = residual @ scaled.mT  # (R, N, K)
    covariance = torch.cholesky_inverse(factor)
    mean = (covariance @ linear.unsqueeze(-1)).squeeze(-1)
    constant = (seen * (2 * torch.pi / precision).log().unsqueeze(-2)).sum(-1)  # (R, N or 1)
    determinant = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    distance = (residual.square() * precision.unsqueeze(-2)).sum(-1) - (linear * mean).sum(-1)
    return Posterior(mean, covariance, -0.5 * (constant + determinant + distance))


@dataclass(frozen=True, eq=False)
class FactorStatistics:
    """Expected moments of the design (1, z), summed over rows.

    Args:
        cross: of the design, by item where entries are missing, (R, J or 1, K + 1, K + 1).
        with_x: of the design with x, (R, J, K + 1).
        squares: of x, (J,).
    """

    cross: Tensor
    with_x: Tensor
    squares: Tensor


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over complete rows, all that EM needs to know of them.

    Args:
        num_rows: N; mean: of the items, (J,).
        cross: cross-products of the items about their means, (J, J).
    """

    num_rows: int
    mean: Tensor
    cross: Tensor

    @classmethod
    def of(cls, x: Tensor, mask: Tensor | None) -> Moments | None:
        """Moments of a table (N, J); None where they say less, or take more than its rows."""
        if mask is not None or len(x) <= x.shape[1]:
            return None
        centred = x - x.mean(0)
        return cls(len(x), x.mean(0), centred.mT @ centred)

    def sums(self, params: Params) -> tuple[FactorStatistics, Tensor]:
        r"""Expected moments and log-likelihood (R,) of all rows.

        Posterior means are :math:`A (x - \mu)` with :math:`A = G^{-1} \phi \sigma^{-2}`, so that
        their sums of squares follow from those of the rows.
        """
        phi, precision = params["signatures"], params["scales"].square().reciprocal()
        scaled, n = phi * precision.unsqueeze(-2), self.num_rows
        factor = torch.linalg.cholesky(scaled @ phi.mT + torch.eye(phi.shape[-2]).to(phi))
        covariance = torch.cholesky_inverse(factor)
        slope = covariance @ scaled  # (R, K, J)
        shift = self.mean - params["intercepts"]  # (R, J)
        about = self.cross @ slope.mT  # (R, J, K)
        moved = (slope @ shift.unsqueeze(-1)).squeeze(-1)  # (R, K), mean activities
        second = slope @ about + n * (covariance + moved.unsqueeze(-1) * moved.unsqueeze(-2))
        design = torch.nn.functional.pad(n * moved, (1, 0), value=float(n)).unsqueeze(-2)
        cross = torch.cat([design, torch.cat([design[..., 1:].mT, second], -1)], -2)
        with_z = about + n * self.mean.unsqueeze(-1) * moved.unsqueeze(-2)
        ones = (n * self.mean).expand(len(phi), -1).unsqueeze(-1)
        squares = self.cross.diagonal() + n * self.mean.square()
        spread = self.cross.diagonal() + n * shift.square()  # (R, J), squares about the intercepts
        explained = (scaled * about.mT).sum((-2, -1)) + n * (
            (scaled @ shift.unsqueeze(-1)).squeeze(-1) * moved
        ).sum(-1)
        determinant = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        constant = (2 * torch.pi / precision).log().sum(-1)
        value = n * (constant + determinant) + (spread * precision).sum(-1) - explained
        statistics = FactorStatistics(cross.unsqueeze(1), torch.cat([ones, with_z], -1), squares)
        return statistics, -0.5 * value


@dataclass(frozen=True, eq=False)
class FactorSteps(Steps[FactorStatistics]):
    """Both halves of EM.

    Args:
        about: the model's description; program: of one row, for the prior.
        centre: near the means of the items, (J,), which squares about zero would lose digits to.
        x: less the centre, (N, J); mask: (N, J), or None.
        moments: of all rows, where they are complete; None to go through the rows.
    """

    about: FactorDescription
    program: Program
    centre: Tensor
    x: Tensor
    mask: Tensor | None
    moments: Moments | None = None

    def on(self, data: Tensor, weights: Tensor | None = None) -> FactorSteps:
        self.refuse_weights(weights)
        x, mask = filled(Normal(), data - self.centre, with_mask=self.mask is not None)
        return replace(self, x=x, mask=mask, moments=None)

    def e_step(self, params: Params) -> EStep[FactorStatistics]:
        """Expected moments, log-likelihood and log-prior."""
        prior = self.program.log_prior(params)
        params = params | {"intercepts": params["intercepts"] - self.centre}
        if self.moments is not None:
            return EStep(*self.moments.sums(params), prior)
        parts, total = RunningSum[FactorStatistics](), self.x.new_zeros(())
        for x, mask in _some_rows(self.x, self.mask):
            own, value = self._sums(params, x, mask)
            parts.add(own)
            total = total + value
        return EStep(parts.total(), total, prior)

    def _sums(
        self, params: Params, x: Tensor, mask: Tensor | None
    ) -> tuple[FactorStatistics, Tensor]:
        """Expected moments and log-likelihood (R,) of some rows."""
        found = posterior(params, x, mask)
        design = torch.nn.functional.pad(found.mean, (1, 0), value=1.0)  # (R, N, K + 1)
        second = torch.nn.functional.pad(found.covariance, (1, 0, 1, 0))
        if mask is None:
            cross = (design.mT @ design + len(x) * second.mean(-3)).unsqueeze(1)
            with_x, squares = x.mT @ design, x.square().sum(0)
        else:
            second = second + design.unsqueeze(-1) * design.unsqueeze(-2)
            cross = torch.einsum("nj,rnkl->rjkl", mask, second)
            with_x, squares = (x * mask).mT @ design, (x.square() * mask).sum(0)
        return FactorStatistics(cross, with_x, squares), found.log_likelihood.sum(-1)

    def m_step(self, statistics: FactorStatistics, params: Params) -> Params:
        """Regressions of the items on the expected design, inside the bounds."""
        cross, with_x, squares = statistics.cross, statistics.with_x, statistics.squares
        beta = torch.linalg.solve(cross, with_x.unsqueeze(-1)).squeeze(-1)  # (R, J, K + 1)
        centre = torch.nn.functional.pad(self.centre.unsqueeze(-1), (0, beta.shape[-1] - 1))
        whole = (beta + centre).clamp(-self.about.bound, self.about.bound)
        beta = whole - centre
        fitted = (beta.unsqueeze(-2) @ cross @ beta.unsqueeze(-1)).flatten(-3)
        variance = (squares - 2 * (beta * with_x).sum(-1) + fitted) / cross[..., 0, 0]
        scales = variance.clamp(min=0).sqrt().clamp(*SCALE_RANGE)
        return {
            "signatures": whole[..., 1:].mT.contiguous(),
            "intercepts": whole[..., 0],
            "scales": scales,
        }


class FactorAnalysisStructure(Structure):
    """A model that offers ``factors()``."""

    integrated_sites = ("activities",)
    capabilities = frozenset({Capability.BLOCKS})

    @cached_property
    def about(self) -> FactorDescription:
        about: FactorDescription = self.model.factors()
        return about

    @classmethod
    def of(cls, model: Callable[..., object]) -> FactorAnalysisStructure | None:
        """Structure of a model that offers ``factors()``, or None."""
        return cls(model) if hasattr(model, "factors") else None

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Principal components with half of every variance to noise, or random ones."""
        about, generator = self.about, torch.Generator().manual_seed(problem.seed)
        x, mask = filled(Normal(), problem.data)
        number = len(x) if mask is None else mask.sum(0)
        mean = (x if mask is None else x * mask).sum(0) / number
        centred = x - mean if mask is None else (x - mean).mul_(mask)
        sd = (centred.square().sum(0) / number).sqrt().clamp(min=1e-3 * float(centred.std()) + 1e-6)
        shape = (num_restarts, about.num_components, about.num_items)
        phi = (
            torch.randn(shape, generator=generator, dtype=torch.float64).to(x)
            / about.num_items**0.5
        )
        if init == "spectral":
            scaled = centred.div_(sd)
            values, vectors = torch.linalg.eigh(scaled.mT @ scaled)  # ascending
            k = min(about.num_components, *x.shape)
            phi[0, :k] = (
                vectors.mT.flip(0)[:k] * (values.flip(0)[:k, None].clamp(min=0) / len(x)).sqrt()
            )
        own = (1 - phi.square().sum(-2)).clamp(min=0.5).sqrt()
        scales = (sd * own).clamp(*SCALE_RANGE)
        return {
            "signatures": phi * sd,
            "intercepts": mean.expand(num_restarts, -1).clone(),
            "scales": scales,
        }

    def steps(self, problem: Problem, chunk_elements: int, num_inner: int) -> FactorSteps:
        centre = problem.data.nanmean(0)
        x, mask = filled(Normal(), problem.data - centre)
        moments = Moments.of(x, mask) if problem.rows is None else None
        return FactorSteps(self.about, problem.program_of_one_row(), centre, x, mask, moments)

    def exact_objective(self, problem: Problem, params: Params) -> tuple[Tensor, Tensor]:
        rows = _some_rows(*filled(Normal(), problem.data))
        likelihood = (
            torch.stack([posterior(params, x, mask).log_likelihood.sum(-1) for x, mask in rows])
            .sum(0)
            .double()
            .cpu()
        )
        return (
            likelihood,
            likelihood + problem.program_of_one_row().log_prior(params).double().cpu(),
        )

    def canonical(self, params: Params) -> Params:
        """Rotate signatures to be orthogonal in units of the noise, largest first.

        Sums are positive; signatures stay where that leaves their bound.
        """
        left, _, _ = torch.linalg.svd(params["signatures"] / params["scales"], full_matrices=False)
        phi = left.mT @ params["signatures"]
        if float(phi.abs().max()) > self.about.bound:
            return params
        return params | {
            "signatures": phi * torch.where(phi.sum(-1, keepdim=True) < 0, -1.0, 1.0).to(phi)
        }

    def at_bound(self, params: Params) -> list[str]:
        """Scales at an end of their interval, and signatures and intercepts at theirs."""
        low, high = SCALE_RANGE
        off = (params["scales"] <= low / ON_BOUND) | (params["scales"] >= ON_BOUND * high)
        found = [f"scales[{j}]" for j in off.nonzero().ravel().tolist()]
        return found + [
            f"{name}{place}"
            for name in ("signatures", "intercepts")
            for place in (params[name].abs() >= ON_BOUND * self.about.bound).nonzero().tolist()
        ]

    def noise_shares(self, params: Params) -> Tensor:
        r"""Share of each item's variance that is noise, (J,).

        :math:`\sigma_j^2 / (\sigma_j^2 + \sum_k \phi_{kj}^2)`.
        """
        noise = params["scales"].square()
        return noise / (noise + params["signatures"].square().sum(0))

    def concerns(self, problem: Problem, params: Params) -> list[str]:
        r"""Heywood cases: items with next to no noise.

        :math:`\sigma_j^2 < 0.005 \, (\sigma_j^2 + \sum_k \phi_{kj}^2)`.

        Source of the limit: K. G. Joreskog (1967), Some contributions to maximum likelihood factor
        analysis, doi:10.1007/BF02289658.
        """
        shares = self.noise_shares(params)
        items = problem.item_names or tuple(map(str, range(len(shares))))
        worst = [j for j in shares.argsort().tolist() if float(shares[j]) < HEYWOOD]
        if not worst:
            return []
        shown = ", ".join(f"{items[j]} ({float(shares[j]):.2g})" for j in worst[:MOST_SHOWN])
        more = f" and {len(worst) - MOST_SHOWN} more" if len(worst) > MOST_SHOWN else ""
        return [
            "a Heywood case: the noise is next to nothing of the variance (share of it in"
            f" brackets) of {shown}{more}. The components reproduce these columns without error,"
            " the solution is improper, and loadings and activities follow these columns alone."
            " Fit fewer components, leave out one of columns that nearly repeat each other or add"
            " up to others, or collect more rows"
        ]

    def why_no_standard_errors(self, params: Params) -> str | None:
        if len(params["signatures"]) == 1:
            return "activities of the rows are continuous; Bootstrap() gives intervals here"
        return (
            "loadings are determined up to a rotation only; of intercepts and scales Bootstrap()"
            " gives intervals"
        )

    def num_free(self, params: Params, problem: Problem | None = None) -> int:
        """Signatures up to rotation, intercepts, scales."""
        k, j = params["signatures"].shape
        return k * j - k * (k - 1) // 2 + 2 * j

    def latent_means(self, program: Program, params: Params) -> Params:
        """E[activities | row], (N, K)."""
        return {"activities": posterior(_one(params), *filled(Normal(), program.args[0])).mean[0]}

    def latent_modes(self, program: Program, params: Params) -> Params:
        """Nothing: no latent is discrete."""
        return {}  # nothing discrete

    def recommended(self, problem: Problem) -> Recommendation:
        """EM with tight tolerances, as entries creep in flat directions."""
        # entries creep along near-flat directions for long after the density has settled
        return Recommendation(
            EM(max_iterations=5000, tolerance=1e-8, parameter_tolerance=1.0), "spectral", 3
        )


def _some_rows(x: Tensor, mask: Tensor | None) -> list[tuple[Tensor, Tensor | None]]:
    """A table and its mask, so many rows at a time."""
    parts = x.split(max(1, AT_ONCE // x.shape[1]))
    return list(
        zip(parts, [None] * len(parts) if mask is None else mask.split(len(parts[0])), strict=True)
    )


def _one(params: Params) -> Params:
    return {name: value.unsqueeze(0) for name, value in params.items()}


@num_density_items.register(FactorAnalysisStructure)
def _(structure: FactorAnalysisStructure, num_items: int) -> int:
    return num_items


@component_noise.register(FactorAnalysisStructure)
def _(
    structure: FactorAnalysisStructure,
    params: Params,
    data: Tensor,
    generator: Generator,
    num_draws: int,
) -> NoiseDraws:
    """Split the residual at posterior draws by the noise shares; missing entries are drawn."""
    phi, scales = params["signatures"], params["scales"]
    data = data.to(phi)
    found = posterior(_one(params), *filled(Normal(), data))
    factor = torch.linalg.cholesky(found.covariance[0])
    share = torch.tensor(structure.about.noise_shares, dtype=phi.dtype)
    own = share.sqrt().unsqueeze(-1) * scales  # (K, J)
    scores = []
    for _ in range(num_draws):
        noise, other = (
            torch.randn(shape, generator=generator, dtype=torch.float64).to(phi)
            for shape in (found.mean[0].shape, data.shape)
        )
        z = found.mean[0] + (factor @ noise.unsqueeze(-1)).squeeze(-1)
        residual = data - params["intercepts"] - z @ phi
        residual = torch.where(residual.isnan(), other * scales, residual)
        scores.append(gaussian_split(residual, own, generator, 1)[0])
    stacked = torch.stack(scores).numpy()
    power = (phi / scales).square().sum(-1)
    return NoiseDraws(
        stacked, np.ones(stacked.shape[:3], dtype=bool), (power / power.sum()).numpy()
    )


@marginal_rows.register(FactorAnalysisStructure)
def _(structure: FactorAnalysisStructure, program: Program, params: Params) -> Tensor:
    """Activities integrated, (N,)."""
    return posterior(_one(params), *filled(Normal(), program.args[0])).log_likelihood[0]
