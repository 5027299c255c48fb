r"""Gain of a free table over the profiles of binary latents, items held fixed.

A layer of independent latents, or any other distribution :math:`p_0` of profiles, gives row i the
posterior :math:`\varphi_{i\alpha} \propto p_{0\alpha} L_{i\alpha}`. With the items held, the
log-likelihood under another table p is higher by

.. math::

    \ell(p) - \ell(p_0) = \sum_i \log \sum_\alpha \varphi_{i\alpha} \frac{p_\alpha}{p_{0\alpha}},

concave in p, and EM (each p the mean of its posteriors) climbs to its maximum. The items would move
too, so the gain of a refit is larger still; where the distribution holds, twice the gain is about
chi-square with as many degrees of freedom as the table has more parameters.

Whether two latents are independent given the model is asked by a score test. At the estimate the
derivative by the covariance of latents j and k is :math:`s_i = E[(\alpha_j - \pi_j)(\alpha_k -
\pi_k) \mid x_i]`, and :math:`z = \sum_i s_i / (\sum_i r_i^2)^{1/2}` is about standard normal or
less spread out, with r the residuals of s on the scores :math:`E[\alpha \mid x_i] - \pi` (the
scores of the items are left out, which makes the test cautious).

Source: Rao (1948), doi:10.1017/S0305004100023987 (score tests).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_ITERATIONS = 500
STEP = 1e-3  # nats that a last step of EM may still gain
FLOOR = 1e-300


@dataclass(frozen=True, eq=False)
class TableGain:
    """Gain of a free table over the profiles.

    Args:
        gain: of the log-likelihood, nats, the items held.
        table: of the profiles, (C,).
        correlations: of the latents under it, (K, K).
        z: of the score test that two latents are independent under the distribution that was
            fitted, (K, K); for independent latents only.
    """

    gain: float
    table: Tensor
    correlations: Tensor
    z: Tensor


def table_gain(posterior: Tensor, profiles: Tensor, chances: Tensor) -> TableGain:
    """Gain of a free table of profiles, fitted with the items held fixed.

    Args:
        posterior: P(profile | row) under the distribution, (N, C).
        profiles: (C, K) of 0 and 1.
        chances: P(profile), (C,), positive where the posterior is.
    """
    values = profiles.to(posterior)
    ratios = posterior / chances.clamp(min=FLOOR)  # L up to a factor a row
    table, reached = chances, 0.0
    for _ in range(MAX_ITERATIONS):
        mixed = ratios @ table  # (N,)
        now = float(mixed.log().sum())
        if now - reached < STEP and table is not chances:
            break
        reached = now
        table = table * (mixed.reciprocal() @ ratios) / len(ratios)
    share = chances @ values
    centred = values - share
    size = values.shape[1]
    first, second = torch.triu_indices(size, size, 1)
    scores = posterior @ (centred[:, first] * centred[:, second])  # (N, pairs)
    own = posterior @ values - share
    residual = scores - own @ torch.linalg.lstsq(own, scores).solution if size else scores
    z = posterior.new_zeros(size, size)
    z[first, second] = scores.sum(0) / residual.square().sum(0).sqrt().clamp(min=FLOOR)
    return TableGain(reached, table, _correlations(table, values), z + z.mT)


def _correlations(table: Tensor, values: Tensor) -> Tensor:
    centred = values - table @ values
    covariance = (centred * table.unsqueeze(-1)).mT @ centred
    spread = covariance.diagonal().clamp(min=FLOOR).sqrt()
    return covariance / torch.outer(spread, spread)
