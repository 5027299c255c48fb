"""Noise of mixture components: rows drawn to components by their responsibilities, then transformed to normal scores."""

from __future__ import annotations

import numpy as np
import torch
from torch import Generator, Tensor

from inference.base.component_noise import Cells, ComponentNoise, numpy_generator, poisson_scores
from inference.programs.program import Params
from ppl_models.descriptions.components import MixtureComponents
from ppl_models.parts.item_response import ItemResponse
from ppl_models.parts.responses import Bernoulli, Normal, Poisson, ResponseFamily

__all__ = ["mixture_noise"]


def mixture_noise(
    about: MixtureComponents, params: Params, data: Tensor, responsibilities: Tensor, generator: Generator, num_draws: int
) -> ComponentNoise:
    """Draws of the noise of every component.

    Args:
        params: without restarts; data: (N, J); responsibilities: (N, K).
        num_draws: M.

    Raises:
        ValueError: for a response family without a known distribution function.
    """
    labels = torch.multinomial(responsibilities, num_draws, replacement=True, generator=generator).mT  # (M, N)
    used = torch.nn.functional.one_hot(labels, about.num_components).bool().numpy()
    rng = numpy_generator(generator)
    scores = np.stack([_scores(about, params, data, rng) for _ in range(num_draws)])
    shares = responsibilities.mean(0)
    return ComponentNoise(scores, used, shares.numpy(), _cells(about, params, data, responsibilities))


def _scores(about: MixtureComponents, params: Params, data: Tensor, rng: np.random.Generator) -> np.ndarray:
    """(N, K, J); entries that are missing are drawn from the model."""
    if not isinstance(about.component, ResponseFamily):
        factor = torch.linalg.cholesky(params["precisions"])  # Lambda = L L^T, so L^T (x - mu) is standard
        return torch.einsum("nkj,kji->nki", data.unsqueeze(-2) - params["means"], factor).numpy()
    parts = []
    for family, columns, dispersed in about.component.blocks(about.num_items):
        x, eta = data[:, columns].unsqueeze(-2), params["predictors"][:, columns]
        if isinstance(family, Normal):
            value = ((family.statistic(x) - eta) / params["dispersion"][:, dispersed].sqrt()).numpy()
        elif isinstance(family, Poisson):
            y, rate = (v.numpy() for v in torch.broadcast_tensors(x, eta.exp()))
            value = np.where(np.isnan(y), np.nan, poisson_scores(np.nan_to_num(y), rate, rng))
        elif isinstance(family, Bernoulli):
            from scipy.special import ndtri

            y, chance = (v.numpy() for v in torch.broadcast_tensors(x, eta.sigmoid()))
            u = rng.random(y.shape)
            value = ndtri(np.clip(np.where(y == 1, 1 - chance + chance * u, (1 - chance) * u), 1e-300, 1 - 1e-16))
            value = np.where(np.isnan(y), np.nan, value)
        else:
            raise ValueError(f"acdc: noise of {type(family).__name__} components is not known")
        parts.append(np.where(np.isnan(value), rng.standard_normal(value.shape), value))
    return np.concatenate(parts, -1)


def _cells(about: MixtureComponents, params: Params, data: Tensor, responsibilities: Tensor) -> Cells | None:
    """Weights and log-probabilities of the distinct rows, where all items are discrete and complete."""
    component = about.component
    if not isinstance(component, ResponseFamily) or data.isnan().any():
        return None
    if not all(isinstance(family, Bernoulli | Poisson) for family, _, _ in component.blocks(about.num_items)):
        return None
    patterns, index = torch.unique(data, dim=0, return_inverse=True)
    weights = responsibilities.new_zeros(len(patterns), about.num_components).index_add(0, index, responsibilities)
    law = ItemResponse(component, params["predictors"].unsqueeze(-3), None)
    return Cells(weights.mT, law.log_prob(patterns.unsqueeze(-2)).mT)
