r"""Student t components: ECME (Peel and McLachlan 2000, doi:10.1023/A:1008981510081).

Given its component, a row is :math:`N(\mu, \Lambda^{-1} / u)` with :math:`u \sim
\mathrm{Gamma}(\nu/2, \nu/2)`, so that with :math:`d = (x - \mu)^\top \Lambda (x - \mu)` one expects
:math:`g = (\nu + J) / (\nu + d)` of u. Means are averages weighted by r g; the scatter about them
gives a matrix of precisions :math:`\Lambda^* = N (S + \epsilon D)^{-1}`. Letting u have any mean
:math:`\alpha` is a larger model that says the same of the rows at :math:`\Lambda = \alpha
\Lambda^*` (the parameter expansion of Liu, Rubin and Wu 1998, doi:10.1093/biomet/85.4.755); the
maximum over :math:`\alpha` solves :math:`\epsilon\, \mathrm{tr}(D \Lambda^*) \alpha^2 + N \nu
\alpha - \nu \sum r g = 0`. The degrees of freedom then climb the density of the rows itself, u
summed out, by Newton steps in :math:`\log \nu`, each halved until it does not fall.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from inference.base.component_distributions.base import ends, log_diagonal, outer_products, whitened
from inference.base.component_distributions.normal import (
    EMPTY,
    WholeRowDistribution,
    posterior_precisions,
)
from inference.programs.program import Params
from ppl_models.descriptions.row_distributions import FREEDOM
from ppl_models.parts.ascent import climb_logarithms

FIRST_FREEDOM = 10.0  # at a start
NUM_STEPS = 2  # of Newton, an iteration
BLOCK = 2**20  # numbers of whitened rows in memory at once


@dataclass(frozen=True)
class TStatistics:
    """Expected sufficient statistics of t components: sums over rows.

    Args:
        weights: sums of r g, (R, K).
        sums: of r g times the centred rows, (R, K, J).
        squares: of r g times their outer products, (R, K, J, J).
        centre: about which they are taken, (J,).
        values: the rows, (J, N) or (R, J, N).
        shares: responsibilities of the rows, (R, K, N).
    """

    weights: Tensor
    sums: Tensor
    squares: Tensor
    centre: Tensor = field(metadata={"sum": False})
    values: Tensor = field(metadata={"join": -1})
    shares: Tensor = field(metadata={"join": -1})


class TDistribution(WholeRowDistribution):
    """Component distributions of :class:`ppl_models.MultivariateT`."""

    spread = "scale"
    equation = "Student t(μ_{k}, scale Σ_{k}, ν_{k} degrees of freedom)"

    @property
    def of_sums(self) -> bool:
        """False: the M-step of the degrees of freedom reads the rows once more."""
        return False

    def log_densities(self, params: Params, data: Tensor) -> Tensor:
        distance = distances(params, data)  # (..., K, N)
        factor = torch.linalg.cholesky(params["precisions"])
        each = log_tails(distance, params["freedom"].unsqueeze(-1), self.about.num_items)
        return (each + log_diagonal(factor).unsqueeze(-1)).mT

    def statistics(
        self, data: Tensor, responsibilities: Tensor, centre: Tensor, params: Params | None
    ) -> TStatistics:
        share, t = responsibilities.mT, data - centre  # (R, K, n)
        weight = share
        if params is not None:
            nu = params["freedom"].unsqueeze(-1)
            weight = share * (nu + self.about.num_items) / (nu + distances(params, data))
        return TStatistics(
            weight.sum(-1), weight @ t, outer_products(weight, t), centre, data.mT, share
        )

    def m_step(
        self, statistics: TStatistics, counts: Tensor, params: Params, floor: Tensor
    ) -> Params:
        empty = (counts <= EMPTY).unsqueeze(-1)
        number = counts.clamp(min=EMPTY).unsqueeze(-1)
        weight = statistics.weights.clamp(min=1e-300).unsqueeze(-1)
        kept = (statistics.sums / weight + statistics.centre).clamp(
            *ends(self.about.limits, statistics.sums)
        )
        centred = kept - statistics.centre
        crossed = centred.unsqueeze(-1) * statistics.sums.unsqueeze(-2)
        scatter = (
            statistics.squares
            - crossed
            - crossed.mT
            + weight.unsqueeze(-1) * centred.unsqueeze(-1) * centred.unsqueeze(-2)
        )
        ridge = self.ridge(scatter)
        precisions = posterior_precisions(scatter, number, ridge)
        nu = params["freedom"].unsqueeze(-1)
        prior = (ridge * precisions.diagonal(dim1=-2, dim2=-1)).sum(-1, keepdim=True)
        root = (number * nu) + ((number * nu).square() + 4 * prior * nu * weight).sqrt()
        precisions = (2 * nu * weight / root).unsqueeze(-1) * precisions
        new = {
            "means": torch.where(empty, params["means"], kept),
            "precisions": torch.where(empty.unsqueeze(-1), params["precisions"], precisions),
        }
        distance = distances(new, statistics.values.mT)
        return new | {
            "freedom": maximise_freedom(
                distance, statistics.shares, params["freedom"], self.about.num_items
            )
        }

    def first(
        self, data: Tensor, responsibilities: Tensor, centre: Tensor, blank: Params, floor: Tensor
    ) -> Params:
        return super().first(
            data,
            responsibilities,
            centre,
            blank | {"freedom": torch.full_like(blank["freedom"], FIRST_FREEDOM)},
            floor,
        )

    def inverse_spread(self, params: Params) -> Tensor:
        nu = params["freedom"]
        return params["precisions"] * ((nu - 2) / nu)[..., None, None]

    def at_bound(self, params: Params) -> list[str]:
        """Degrees of freedom at their lower end; at the upper one the distribution is normal."""
        low = (params["freedom"] <= 1.001 * FREEDOM[0]).nonzero().tolist()
        return [*super().at_bound(params), *(f"freedom{index}" for index in low)]

    def scores(self, params: Params, data: Tensor, rng: np.random.Generator) -> np.ndarray:
        r"""Scores of each column given those before (doi:10.1214/aoms/1177729394).

        A column of a t distribution given those before it has more degrees of freedom:
        :math:`e_j \{(\nu + \sum_{i<j} e_i^2) / (\nu + j - 1)\}^{-1/2} \sim t_{\nu + j - 1}`.
        """
        from scipy.special import ndtri, stdtr

        factor = torch.linalg.cholesky(params["precisions"])
        e = whitened(factor, params["means"], data).numpy()  # (N, K, J)
        nu = params["freedom"].numpy()[:, None]
        before = np.cumsum(e**2, -1) - e**2
        freedom = nu + np.arange(e.shape[-1])
        t = e / np.sqrt((nu + before) / freedom)
        values: np.ndarray = -np.sign(t) * ndtri(np.maximum(stdtr(freedom, -np.abs(t)), 1e-300))
        return values


def distances(params: Params, data: Tensor) -> Tensor:
    """Squared distances from the means in the metric of the precisions, ([R], K, N).

    Args:
        params: ([R], K, ...); data: (N, J), or (R, N, J).
    """
    factor = torch.linalg.cholesky(params["precisions"])
    rows = max(1, BLOCK // max(1, factor[..., 0].numel()))
    if data.dim() == 3:
        return torch.cat(
            [
                whitened(factor, params["means"], part).square().sum(-1)
                for part in data.split(rows, 1)
            ],
            -1,
        )
    return torch.cat(
        [whitened(factor, params["means"], part).square().sum(-1) for part in data.split(rows)]
    ).movedim(0, -1)


def log_tails(distance: Tensor, nu: Tensor, num_items: int) -> Tensor:
    """Log-density of a unit-scale t distribution, by squared distance and freedom."""
    half = (nu + num_items) / 2
    constant = (
        torch.lgamma(half) - torch.lgamma(nu / 2) - 0.5 * num_items * (nu.log() + math.log(math.pi))
    )
    return constant - half * torch.log1p(distance / nu)


def maximise_freedom(distance: Tensor, shares: Tensor, freedom: Tensor, num_items: int) -> Tensor:
    """Maximise degrees of freedom (R, K); the weighted log-density does not fall.

    Args:
        distance: squared, (R, K, N); shares: responsibilities, (R, K, N).
        freedom: start, (R, K).
    """

    def objective(t: Tensor) -> Tensor:
        return (shares * log_tails(distance, t.exp().unsqueeze(-1), num_items)).sum(-1)

    def derivatives(t: Tensor) -> tuple[Tensor, Tensor]:
        nu = t.exp().unsqueeze(-1)
        both, half = nu + distance, (nu + num_items) / 2
        g = 2 * half / both
        slope = torch.digamma(half) - torch.digamma(nu / 2) - torch.log1p(distance / nu) + 1 - g
        bend = (
            (torch.polygamma(1, half) - torch.polygamma(1, nu / 2)) / 2
            + distance / (nu * both)
            + (g - 1) / both
        )
        gradient = t.exp() * (shares * slope).sum(-1) / 2
        return gradient, gradient + t.exp().square() * (shares * bend).sum(-1) / 2

    return climb_logarithms(freedom, objective, derivatives, FREEDOM, NUM_STEPS)
