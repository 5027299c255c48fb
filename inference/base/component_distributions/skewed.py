r"""Skew-normal components: EM by half-normal latents (doi:10.1073/pnas.0903028106).

Given its component, :math:`x = \mu + \delta |u| + e`; with :math:`M^2 = 1/(1 + \delta^\top \Lambda
\delta)`, :math:`m = M^2 \delta^\top \Lambda (x - \mu)` and :math:`h = \phi(m/M) / \Phi(m/M)` one
expects :math:`m + M h` of :math:`|u|` and :math:`m^2 + M^2 + m M h` of its square. Location and
skew are a regression of the rows on :math:`|u|`. Letting u have any variance :math:`\alpha^2`,
whose maximum is the mean of the expected squares, is a larger model that says the same of the rows
with :math:`\alpha \delta` for :math:`\delta` (the parameter expansion of Liu, Rubin and Wu 1998,
doi:10.1093/biomet/85.4.755), and quicker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from torch import Tensor

from inference.base.component_distributions.base import (
    ends,
    log_diagonal,
    log_two_pi,
    outer_products,
    whitened,
)
from inference.base.component_distributions.normal import (
    EMPTY,
    WholeRowDistribution,
    posterior_precisions,
)
from inference.programs.program import Params

HALF_NORMAL = math.sqrt(2 / math.pi)  # mean of |u|
MOST_SKEW = 0.95  # of a column's standard deviation, at a start
MOST_SHARE = 0.9  # of the variance in the direction of the skew that it may explain at a start


@dataclass(frozen=True)
class SkewStatistics:
    """Expected sums over rows, with a and b the expected :math:`|u|` and its square.

    Args:
        first, second: of r a and r b, (R, K).
        sums, slopes: of r and r a times the centred rows, (R, K, J).
        squares: of r times their outer products, (R, K, J, J).
        centre: about which they are taken, (J,).
    """

    first: Tensor
    second: Tensor
    sums: Tensor
    slopes: Tensor
    squares: Tensor
    centre: Tensor = field(metadata={"sum": False})


class SkewNormalDistribution(WholeRowDistribution):
    """Component distributions of :class:`ppl_models.SkewNormal`."""

    site = "locations"
    spread = "scale"
    equation = "skew-normal(μ_{k}, skew δ_{k}, covariance Σ_{k} about them)"

    def log_densities(self, params: Params, data: Tensor) -> Tensor:
        factor = torch.linalg.cholesky(params["precisions"])
        y = whitened(factor, params["locations"], data)
        y = y.movedim(-2, 0) if data.dim() == 3 else y  # (N, [R], K, J)
        d = (params["skews"].unsqueeze(-2) @ factor).squeeze(-2)  # ([R], K, J)
        shrink = 1 + d.square().sum(-1)
        along = (y * d).sum(-1)
        distance = y.square().sum(-1) - along.square() / shrink
        constant = (
            math.log(2)
            + log_diagonal(factor)
            - 0.5 * shrink.log()
            - log_two_pi(self.about.num_items, data)
        )
        return cast(
            Tensor,
            (constant - distance / 2 + torch.special.log_ndtr(along / shrink.sqrt())).movedim(
                0, -2
            ),
        )

    def hidden(self, params: Params, data: Tensor) -> tuple[Tensor, Tensor]:
        """Location m and scale M of the half-normal latent of every row, ([R], N, K)."""
        # ([R], K, J)
        direction = (params["precisions"] @ params["skews"].unsqueeze(-1)).squeeze(-1)
        variance = 1 / (1 + (direction * params["skews"]).sum(-1))
        along = data @ direction.mT - (direction * params["locations"]).sum(-1).unsqueeze(-2)
        mean = variance.unsqueeze(-2) * along
        return mean, variance.sqrt().unsqueeze(-2).expand(mean.shape)

    def statistics(
        self, data: Tensor, responsibilities: Tensor, centre: Tensor, params: Params | None
    ) -> SkewStatistics:
        if params is None:
            raise ValueError(
                "skew-normal components start from moments, not from responsibilities alone"
            )
        mean, sd = self.hidden(params, data)
        z = mean / sd
        hazard = (-z.square() / 2 - 0.5 * math.log(2 * math.pi) - torch.special.log_ndtr(z)).exp()
        size = (mean + sd * hazard).clamp(min=0)
        square = torch.maximum(mean.square() + sd.square() + mean * sd * hazard, size.square())
        t, share = data - centre, responsibilities.mT
        first, second = (responsibilities * size).mT, (responsibilities * square).mT  # (R, K, n)
        return SkewStatistics(
            first.sum(-1), second.sum(-1), share @ t, first @ t, outer_products(share, t), centre
        )

    def m_step(
        self, statistics: SkewStatistics, counts: Tensor, params: Params, floor: Tensor
    ) -> Params:
        s, (low, high) = statistics, ends(self.about.limits, statistics.sums)
        half = (high - low) / 2
        empty = (counts <= EMPTY).unsqueeze(-1)
        number = counts.clamp(min=EMPTY).unsqueeze(-1)
        first, second = s.first.unsqueeze(-1), s.second.unsqueeze(-1)
        spread = (number * second - first.square()).clamp(min=1e-300)
        skews = ((number * s.slopes - first * s.sums) / spread).clamp(-half, half)
        locations = ((s.sums - first * skews) / number + s.centre).clamp(low, high)
        centred = locations - s.centre

        def product(a: Tensor, b: Tensor) -> Tensor:
            crossed = a.unsqueeze(-1) * b.unsqueeze(-2)
            return crossed + crossed.mT

        halved = (
            number.unsqueeze(-1) * product(centred, centred) / 2
            + second.unsqueeze(-1) * product(skews, skews) / 2
        )
        scatter = (
            s.squares
            - product(centred, s.sums)
            - product(skews, s.slopes)
            + halved
            + first.unsqueeze(-1) * product(skews, centred)
        )
        precisions = posterior_precisions(scatter, number, self.ridge(scatter))
        widened = (skews * (second / number).sqrt()).clamp(-half, half)
        return {
            "locations": torch.where(empty, params["locations"], locations),
            "skews": torch.where(empty, params["skews"], widened),
            "precisions": torch.where(empty.unsqueeze(-1), params["precisions"], precisions),
        }

    def first(
        self, data: Tensor, responsibilities: Tensor, centre: Tensor, blank: Params, floor: Tensor
    ) -> Params:
        """Moment start from the skewness, mean and covariance of every component."""
        share, (low, high) = responsibilities.mT, ends(self.about.limits, centre)
        half = (high - low) / 2
        number = share.sum(-1).clamp(min=EMPTY).unsqueeze(-1)
        t = data - centre
        mean = share @ t / number
        covariance = outer_products(share, t) / number.unsqueeze(-1) - mean.unsqueeze(
            -1
        ) * mean.unsqueeze(-2)
        covariance = covariance + torch.diag(self.ridge(t)) / number.unsqueeze(-1)
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        third = share @ t**3 / number - 3 * mean * (variance + mean.square()) + 2 * mean**3
        skewness = third / variance**1.5
        skews = (
            skewness.sign()
            * variance.sqrt()
            * (0.8 * skewness.abs() ** (1 / 3)).clamp(max=MOST_SKEW)
        )
        explained = (1 - HALF_NORMAL**2) * (skews * torch.linalg.solve(covariance, skews)).sum(
            -1, keepdim=True
        )
        skews = skews * (MOST_SHARE / explained.clamp(min=MOST_SHARE)).sqrt()
        left = covariance - (1 - HALF_NORMAL**2) * skews.unsqueeze(-1) * skews.unsqueeze(-2)
        inverse = torch.linalg.inv(left)
        empty = (number <= EMPTY).expand_as(mean)
        return {
            "locations": (
                torch.where(empty, blank["locations"], mean + centre - HALF_NORMAL * skews).clamp(
                    low, high
                )
            ),
            "skews": torch.where(empty, blank["skews"], skews).clamp(-half, half),
            "precisions": torch.where(
                empty.unsqueeze(-1), blank["precisions"], (inverse + inverse.mT) / 2
            ),
        }

    def means(self, params: Params) -> Tensor:
        return params["locations"] + HALF_NORMAL * params["skews"]

    def inverse_spread(self, params: Params) -> Tensor:
        skews = params["skews"]
        covariance = torch.linalg.inv(params["precisions"]) + (
            1 - HALF_NORMAL**2
        ) * skews.unsqueeze(-1) * skews.unsqueeze(-2)
        return cast(Tensor, torch.linalg.inv(covariance))

    @property
    def num_scores(self) -> int:
        return self.about.num_items + 1

    def scores(self, params: Params, data: Tensor, rng: np.random.Generator) -> np.ndarray:
        """Scores of |u|, drawn given the row, and of the residual, (N, K, J + 1)."""
        from scipy.special import log_ndtr, ndtri_exp

        mean, sd = self.hidden(params, data)
        z = (mean / sd).numpy()
        chance = np.log(rng.random(z.shape)) + log_ndtr(z)
        u = np.maximum(mean.numpy() - sd.numpy() * ndtri_exp(chance), 1e-300)
        of_u = -ndtri_exp(math.log(2) + log_ndtr(-u))
        left = (
            data.unsqueeze(-2)
            - params["locations"]
            - torch.as_tensor(u).unsqueeze(-1) * params["skews"]
        )  # (N, K, J)
        factor = torch.linalg.cholesky(params["precisions"])
        e = torch.einsum("nkj,kji->nki", left, factor).numpy()
        return np.concatenate([of_u[..., None], e], -1)
