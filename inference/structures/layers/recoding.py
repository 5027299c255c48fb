r"""Posterior codes of a layer's latents, before the number above it is asked.

Signs of factor scores err in the same way in all rows: rare bits, and bits that share children, are
wrong in a share that does not shrink with more rows, and what these errors have in common looks
like latents above. Here the codes are drawn from the posterior of a fitted layer instead.

Bits a (N, K) start at the signs, and the graph G of the layer at the thresholded directions. A
round estimates, by maximum likelihood given a, the layer's coefficients on G, and a dependency
network of the bits, one ridge regression for each,

.. math::

    \operatorname{logit} P(a_k = 1 \mid a_{-k}) = c_k + \sum_{l \ne k} d_{kl} a_l,

which says what the layers above say without their number. Then two Gibbs sweeps draw the bits from
the two together, :math:`\operatorname{logit} P(a_k = 1 \mid a_{-k}, x) = c_k + \sum_l d_{kl} a_l +
\log p(x \mid a_k = 1, a_{-k}) - \log p(x \mid a_k = 0, a_{-k})`. After fifteen rounds both stay,
and the chances of twenty more sweeps are averaged.

Source of the dependency network: D. Heckerman, D. M. Chickering, C. Meek, R. Rounthwaite and C.
Kadie (2000), Journal of Machine Learning Research 1, 49-75. Rounds and their use here are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inference.base.gibbs import PLAIN, uniform_like
from inference.structures.layers.gibbs import sweep_layer
from inference.structures.layers.glm import Params
from inference.structures.layers.spectral import (
    CUTS,
    EPSILONS,
    layer_factors,
    regression,
)
from ppl_models.descriptions.layers import GeneralizedLinearLayer
from ppl_models.parts.responses import filled

ROUNDS, SWEEPS = 15, 2  # of estimation, and Gibbs sweeps in each
WARM_UP, KEPT = 5, 20  # sweeps at the last estimates
RIDGE, INTERCEPT_RIDGE, NEWTON_STEPS = 1.0, 0.001, 6
DOUBT = 0.08  # mean min(m, 1 - m): of codes with more, the layer above may be lost


@dataclass(frozen=True, eq=False)
class Codes:
    """Bits of a layer in every row, from its children.

    Args:
        chances: that each is 1, (N, K).
        layer: the layer, with the graph that the children were coded by.
    """

    chances: Tensor
    layer: GeneralizedLinearLayer

    @property
    def bits(self) -> Tensor:
        """The likelier value of each, (N, K)."""
        return (self.chances > 0.5).to(self.chances)

    @property
    def doubt(self) -> float:
        """Mean chance that a bit is wrong, min(m, 1 - m)."""
        return float(torch.minimum(self.chances, 1 - self.chances).mean())


def layer_codes(layer: GeneralizedLinearLayer, x: Tensor, depth: int, seed: int) -> Codes:
    """Codes of the latents of layer ``depth``, counted from 0.

    Where children depend on products of latents, the signs of the factor scores.

    Args:
        layer: the layer's description; its graph is kept where given.
        x: the children, (N, J), NaN where missing.
        depth: of the layer, for the thresholds of its factors; seed: of the draws.
    """
    cut, epsilon = CUTS[depth > 0], EPSILONS[depth > 0]
    factors = layer_factors(x, layer.num_parents, layer.response, cut, seed, epsilon=epsilon)
    if layer.terms is not None:
        return Codes(factors.latents, layer)
    if layer.graph is None:
        edges = layer.by_child(layer.by_item(factors.loadings != 0))
        layer = replace(layer, graph=edges)
    return Codes(_posterior(layer, x, factors.latents, seed), layer)


def _posterior(layer: GeneralizedLinearLayer, x: Tensor, start: Tensor, seed: int) -> Tensor:
    """Posterior chances of the bits, (N, K), from a start (N, K)."""
    generator = torch.Generator(device=x.device).manual_seed(seed)
    complete, observed = filled(layer.response, x)
    statistic = layer.response.statistic(complete)
    mask = None
    if observed is not None:
        statistic, mask = statistic * layer.response.spread(observed), observed.mT.contiguous()
    below = statistic.mT.contiguous()
    codes = x.nan_to_num(0.0).mT.contiguous() if layer.tabled else None
    bits = start.mT.unsqueeze(0)  # (1, K, N)

    def swept(params: Params, network: Tensor, bits: Tensor) -> tuple[Tensor, Tensor]:
        def prior(k: int, state: Tensor, part: slice) -> Tensor:
            own = network[k].to(state)
            return own[0] + torch.einsum("l,rln->rn", own[1:], state)

        uniform = uniform_like(bits, generator)
        latents = {layer.parent: bits}
        return sweep_layer(layer, params, latents, below, mask, prior, uniform, PLAIN, codes)

    for _ in range(ROUNDS):
        params = regression(layer, x, bits[0].mT)
        network = dependency_network(bits[0].mT)
        for _ in range(SWEEPS):
            bits, _ = swept(params, network, bits)
    total = torch.zeros_like(bits)
    for sweep in range(WARM_UP + KEPT):
        bits, chances = swept(params, network, bits)
        if sweep >= WARM_UP:
            total += chances
    return total[0].mT / KEPT


def unsure_codes(depth: int, doubt: float) -> str:
    """Caution about the number above layer ``depth``, counted from 0, whose codes are unsure."""
    return (
        f"the latents of layer {depth + 1} are unsure in single rows (wrong in {doubt:.0%} on"
        f" average): the number of latents of layer {depth + 2} by singular values may be wrong."
        " Compare with criterion='ebic'"
    )


def dependency_network(bits: Tensor) -> Tensor:
    """Ridge logistic regressions of each bit on the others, (K, 1 + K) from bits (N, K).

    Row k holds the intercept :math:`c_k` and the coefficients :math:`d_{kl}`, zero at l = k.
    """
    num_rows, size = bits.shape
    design = torch.cat([torch.ones_like(bits[:, :1]), bits], 1)  # (N, 1 + K)
    ridge = bits.new_full((size, 1 + size), RIDGE)
    ridge[:, 0] = INTERCEPT_RIDGE
    own = torch.arange(size, device=bits.device)
    weights = bits.new_zeros(size, 1 + size)
    for _ in range(NEWTON_STEPS):
        chances = torch.sigmoid(design @ weights.mT)  # (N, K)
        gradient = (bits - chances).mT @ design - ridge * weights
        spread = chances * (1 - chances)
        hessian = torch.stack([design.mT @ (spread[:, k, None] * design) for k in range(size)])
        hessian += torch.diag_embed(ridge)
        # the bit itself is no predictor: its equation is d_kk = 0
        gradient[own, own + 1] = 0.0
        hessian[own, own + 1, :] = 0.0
        hessian[own, :, own + 1] = 0.0
        hessian[own, own + 1, own + 1] = 1.0
        weights = weights + torch.linalg.solve(hessian, gradient)
    return weights
