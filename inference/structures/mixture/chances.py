"""Chances of the components of a mixture before its items are seen: weights, or a multinomial logit
of covariates (:mod:`ppl_models.descriptions.logit`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from inference.programs.program import Params
from ppl_models.descriptions.components import MixtureComponents
from ppl_models.descriptions.covariates import Covariates
from ppl_models.descriptions.logit import chances_of_design


def items_of(about: MixtureComponents, data: Tensor) -> Tensor:
    """The columns that are drawn, (..., J)."""
    return data if about.covariates is None else data[..., : about.num_items]


def joined(about: MixtureComponents, items: Tensor, data: Tensor) -> Tensor:
    """Items with the covariates of ``data`` behind them, where there are some."""
    return (
        items
        if about.covariates is None
        else torch.cat([items, data[..., about.num_items :].to(items)], -1)
    )


def log_chances(about: MixtureComponents, params: Params, data: Tensor) -> Tensor:
    """Of the components of every row, before its items are seen: ([R], N, K), or ([R], 1, K) where
    all rows have the same.

    Args:
        params: ([R], ...); data: (N, J + P) or (R, N, J + P).
    """
    if "coefficients" not in params:
        return params["weights"].log().unsqueeze(-2)
    return chances_of_design(
        design_of(about, data), covariates_of(about).standardised(params["coefficients"])
    )


def design_of(about: MixtureComponents, data: Tensor) -> Tensor:
    """The terms of every row in their widths from their centres, (..., N, Q)."""
    return covariates_of(about).standardised_design(data[..., about.num_items :])


def covariates_of(about: MixtureComponents) -> Covariates:
    if about.covariates is None:
        raise ValueError("a mixture with covariates was expected")
    return about.covariates


def cross_products(about: MixtureComponents, share: Tensor, data: Tensor) -> Tensor | None:
    """S, sums over rows of what each is worth to each component but the first, times its terms, (R,
    K - 1, Q); None without covariates.

    Args:
        share: (R, N, K), times weights; data: (N, J + P) or (R, N, J + P).
    """
    if about.covariates is None or about.num_components == 1:
        return None
    return share[..., 1:].mT @ design_of(about, data)


def renamed_coefficients(coefficients: Tensor, order: Tensor) -> Tensor:
    """Log-odds (..., K - 1, Q) where new component l is the old component ``order[l]``, against the
    new component 0.
    """
    full = torch.cat([torch.zeros_like(coefficients[..., :1, :]), coefficients], -2)[..., order, :]
    return full[..., 1:, :] - full[..., :1, :]
