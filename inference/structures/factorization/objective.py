"""What a factorization maximises, as functions of its description: the law of rows given activities, and their prior."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.factorization.updates import updates_of

if TYPE_CHECKING:
    from inference.base.structure import Problem
    from ppl_models.descriptions.components import FactorizationDescription

__all__ = ["conditional_rows", "log_prior_activities", "objectives", "with_scales"]

START_DISPERSION = 0.1


def with_scales(about: FactorizationDescription, params: Params, data: Tensor) -> Params:
    """Parameters with the noise scale that fits the residuals best, for Normal entries; with a dispersion to start from."""
    if about.dispersed and "dispersion" not in params:
        return params | {"dispersion": torch.full_like(params["signatures"][:, :1, 0], START_DISPERSION)}
    if about.counts:
        return params
    residual = data - params["activities"] @ params["signatures"]
    return params | {"scales": residual.square().mean((-2, -1)).sqrt().clamp(1e-6, 1e6).unsqueeze(-1)}


def objectives(about: FactorizationDescription, problem: Problem, params: Params) -> tuple[Tensor, Tensor]:
    """Log-likelihood given the activities, and log-joint density of data, activities and parameters, (R,)."""
    likelihood = conditional_rows(about, params, problem.data).sum(-1).double().cpu()
    prior = problem.program().log_prior(params).detach().double().cpu()
    return likelihood, likelihood + prior + log_prior_activities(about, params)


def conditional_rows(about: FactorizationDescription, params: Params, data: Tensor) -> Tensor:
    """Log-likelihood of each row given its activities, (N,) or (R, N)."""
    z, phi = params["activities"], params["signatures"]
    if about.counts:
        updates = updates_of(data.to(phi), about, params)
        return updates.log_likelihood_rows(z, phi)  # type: ignore[union-attr]
    scales = params["scales"].unsqueeze(-2)
    return torch.distributions.Normal(z @ phi, scales, validate_args=False).log_prob(data.to(phi)).sum(-1)


def log_prior_activities(about: FactorizationDescription, params: Params) -> Tensor:
    """Log prior density of all activities, (R,)."""
    z = params["activities"]
    if about.activity_prior is not None:
        shape, rate = (torch.tensor(v, dtype=z.dtype, device=z.device) for v in about.activity_prior)
        law = torch.distributions.Gamma(shape, rate)
        return law.log_prob(z.clamp(min=1e-300)).sum((-2, -1)).double().cpu()
    width = about.bound if about.nonnegative else 2 * about.bound
    constant = -z[0].numel() * torch.tensor(width, dtype=torch.float64).log()
    return constant.expand(len(z))
