"""What a factorization maximises, as functions of its description: the law of rows given
activities, and their prior.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.factorization.updates import updates_of

if TYPE_CHECKING:
    from inference.base.structure import Problem
    from ppl_models.descriptions.components import FactorizationDescription


START_DISPERSION = 0.1
SCALE_RANGE = (1e-6, 1e6)


def with_scales(about: FactorizationDescription, params: Params, problem: Problem) -> Params:
    """Parameters with the noise scale that fits the residuals best, for Normal entries; with a
    dispersion to start from.
    """
    if about.dispersed and "dispersion" not in params:
        return params | {
            "dispersion": torch.full_like(params["signatures"][:, :1, 0], START_DISPERSION)
        }
    if about.counts:
        return params
    z, phi = params["activities"], params["signatures"]
    squares = problem.summed_at(
        lambda place, data: (data - z[:, place] @ phi).square().sum((-2, -1))
    )
    return params | {
        "scales": (
            (squares / (problem.num_rows * about.num_items))
            .sqrt()
            .clamp(*SCALE_RANGE)
            .unsqueeze(-1)
        )
    }


def objectives(
    about: FactorizationDescription, problem: Problem, params: Params
) -> tuple[Tensor, Tensor]:
    """Log-likelihood given the activities, and log-joint density of data, activities and
    parameters, (R,).
    """

    def of_rows(place: slice, data: Tensor) -> dict[str, Tensor]:
        own = params | {"activities": params["activities"][:, place]}
        return {
            "likelihood": conditional_rows(about, own, data).sum(-1).double(),
            "prior": log_prior_activities(about, own),
        }

    found = problem.summed_at(of_rows)
    likelihood, activities = (found[name].double().cpu() for name in ("likelihood", "prior"))
    shared = {name: value for name, value in params.items() if name != "activities"}
    return (
        likelihood,
        likelihood
        + problem.program_of_one_row().log_prior(shared).detach().double().cpu()
        + activities,
    )


def conditional_rows(about: FactorizationDescription, params: Params, data: Tensor) -> Tensor:
    """Log-likelihood of each row given its activities, (N,) or (R, N)."""
    z, phi = params["activities"], params["signatures"]
    if about.counts:
        updates = updates_of(data.to(phi), about, params)
        return updates.log_likelihood_rows(z, phi)  # type: ignore[union-attr]
    scales = params["scales"].unsqueeze(-2)
    return (
        torch.distributions.Normal(z @ phi, scales, validate_args=False)
        .log_prob(data.to(phi))
        .sum(-1)
    )


def log_prior_activities(about: FactorizationDescription, params: Params) -> Tensor:
    """Log prior density of all activities, (R,)."""
    z = params["activities"]
    if about.activity_prior is not None:
        shape, rate = (
            torch.tensor(v, dtype=z.dtype, device=z.device) for v in about.activity_prior
        )
        law = torch.distributions.Gamma(shape, rate)
        return law.log_prob(z.clamp(min=1e-300)).sum((-2, -1)).double().cpu()
    width = about.bound if about.nonnegative else 2 * about.bound
    constant = -z[0].numel() * torch.tensor(width, dtype=torch.float64).log()
    return constant.expand(len(z))
