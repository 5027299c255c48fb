r"""Attributes that depend on one continuous trait of the row.

.. math::

    \theta \sim N(0, 1), \qquad P(\alpha_k = 1 \mid \theta) = \sigma(d_k + \lambda_k \theta), \qquad
    P(\alpha) = \int \prod_k P(\alpha_k \mid \theta) \, \phi(\theta) \, d\theta,

the integral by Gauss-Hermite quadrature. With expected rows :math:`n_\alpha` of each profile the
M-step climbs :math:`\sum_\alpha n_\alpha \log P(\alpha)` by Fisher scoring: with
:math:`\omega_{\alpha q}` the posterior of node q,

.. math::
    \frac{\partial \log P(\alpha)}{\partial d_k} = \alpha_k - \sum_q \omega_{\alpha q} \sigma_{qk},
    \qquad
    \frac{\partial \log P(\alpha)}{\partial \lambda_k} = \sum_q \omega_{\alpha q} \theta_q (\alpha_k
    - \sigma_{qk}),

and the information is the mean of the scores' outer products over all profiles. Where these are too
many the statistic is the expected rows at each node, and those of them with each attribute (the EM
of Bock and Aitkin).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor

from ppl_models.descriptions.attribute_distribution import AttributeRoot
from ppl_models.descriptions.layers import START_RANGE, Params
from ppl_models.parts.ascent import ascend
from ppl_models.parts.distributions import Flat, binary_configurations, softplus
from ppl_models.parts.profile_distributions import TraitBits, codes_of
from ppl_models.parts.validation import is_integer, plain_fields

BOUND = 10.0  # of slopes and intercepts
MAX_TABLE = 14  # attributes up to which the statistic is a table over profiles
START_SLOPE = 1.0


@dataclass(frozen=True)
class TraitRoot:
    """Attributes given a trait: an attribute root.

    Args:
        slopes, intercepts: names of the sites of lambda and d, (K,) each.
        latent: name of the site of the attributes.
        num_latents: K.
        num_nodes: of the quadrature.
    """

    slopes: str
    intercepts: str
    latent: str
    num_latents: int
    num_nodes: int
    renamable = True
    flippable = True
    profiles = None
    equation = "Bernoulli(σ(d_k + λ_k θ)), θ ~ N(0, 1) summed out"

    @property
    def num_free(self) -> int:
        return 2 * self.num_latents

    def sites(self) -> dict[str, tuple[int, ...]]:
        return {self.slopes: (self.num_latents,), self.intercepts: (self.num_latents,)}

    @property
    def dims(self) -> dict[str, tuple[str, ...]]:
        return {self.slopes: ("attribute",), self.intercepts: ("attribute",)}

    def entry_names(self, attributes: Sequence[str]) -> dict[str, tuple[str, ...]]:
        return {}

    def priors(self, like: Tensor) -> dict[str, TorchDistribution]:
        flat = Flat(like.new_tensor(-BOUND), like.new_tensor(BOUND))
        return {name: flat.expand([self.num_latents]).to_event(1) for name in self.sites()}

    def distribution(self, params: Mapping[str, Tensor]) -> TorchDistribution:
        return self._traits(params[self.slopes], params[self.intercepts])

    def start(self, latents: Tensor) -> Params:
        share = latents.mean(0).clamp(*START_RANGE)
        centred = latents - latents.mean(0)
        together = (centred.mT @ centred).fill_diagonal_(0.0).sum(-1)
        slopes = torch.where(together < 0, -START_SLOPE, START_SLOPE).to(latents)
        return _signed(
            {
                self.slopes: slopes.unsqueeze(0),
                self.intercepts: 1.2 * torch.logit(share).unsqueeze(0),
            },
            *self.sites(),
        )

    def uniform(self, like: Tensor) -> Params:
        """Parameters near equally likely profiles; no slope may be zero."""
        return {
            name: like.new_full((1, self.num_latents), value)
            for name, value in ((self.slopes, 0.5), (self.intercepts, 0.0))
        }

    def marginals(self, params: Mapping[str, Tensor]) -> Tensor:
        traits = self._traits(params[self.slopes], params[self.intercepts])
        return (torch.sigmoid(traits.logits) * traits.log_weights.exp().unsqueeze(-1)).sum(-2)

    def draw(self, params: Params, uniform: Tensor) -> Tensor:
        """Draw profiles by quadrature nodes.

        The first attribute's uniform number chooses the node and, rescaled within it, the
        attribute.
        """
        traits = self._traits(params[self.slopes], params[self.intercepts])
        edges = traits.log_weights.exp().cumsum(-1)
        first = uniform[:, 0].contiguous()
        node = torch.searchsorted(edges, first).clamp(max=self.num_nodes - 1)  # (R, N)
        width = traits.log_weights.exp()[node]
        again = (first - (edges[node] - width)) / width
        numbers = torch.cat([again.unsqueeze(1), uniform[:, 1:]], 1)
        chances = torch.sigmoid(
            torch.stack([own[places] for own, places in zip(traits.logits, node, strict=True)])
        )  # (R, N, K)
        return (numbers < chances.mT).to(uniform.dtype)

    def log_odds(self, params: Params, k: int, latents: Tensor) -> Tensor:
        # batch (R, 1)
        traits = self._traits(
            params[self.slopes].unsqueeze(-2), params[self.intercepts].unsqueeze(-2)
        )
        sides = []
        for bit in (1.0, 0.0):
            bits = latents.mT.to(params[self.slopes], copy=True)
            bits[..., k] = bit
            sides.append(traits.log_prob(bits))
        return sides[0] - sides[1]

    def expected(self, configurations: Tensor, counts: Tensor, params: Params) -> Tensor:
        """Expected rows of each profile, (R, 2^K).

        With many attributes: rows at each node, and those with each attribute, (R, Q (1 + K)).
        """
        if self.num_latents <= MAX_TABLE:
            places = codes_of(configurations)
            return counts.new_zeros(len(counts), 2**self.num_latents).index_add(1, places, counts)
        return self._at_nodes(
            configurations.unsqueeze(0).expand(len(counts), -1, -1), counts, params
        )

    def drawn(self, latents: Tensor, chances: Tensor, scale: float, params: Params) -> Tensor:
        bits = latents.mT
        weights = bits.new_full(bits.shape[:2], scale)
        if self.num_latents <= MAX_TABLE:
            return bits.new_zeros(len(bits), 2**self.num_latents).scatter_add(
                1, codes_of(bits), weights
            )
        return self._at_nodes(bits, weights, params)

    def maximise(self, statistic: Tensor, params: Params) -> Params:
        start = torch.cat([params[self.slopes], params[self.intercepts]], -1)
        climb = self._by_profiles if self.num_latents <= MAX_TABLE else self._by_nodes
        best = ascend(start, *climb(statistic), BOUND)
        slopes, intercepts = best.chunk(2, -1)
        return _signed({self.slopes: slopes, self.intercepts: intercepts}, *self.sites())

    def rename(
        self, params: Mapping[str, Tensor], permutation: Tensor | None, flips: Tensor | None
    ) -> Params:
        out = {name: params[name] for name in self.sites()}
        if permutation is not None:
            out = {name: value.index_select(-1, permutation) for name, value in out.items()}
        if flips is not None:
            out = {name: torch.where(flips, -value, value) for name, value in out.items()}
        return _signed(out, *self.sites())

    # ---------------------------------------------------------------- the two ways up

    def _by_profiles(
        self, counts: Tensor
    ) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], tuple[Tensor, Tensor]]]:
        """Objective and scoring step of expected rows of each profile, (R, 2^K)."""
        profiles = binary_configurations(self.num_latents, counts.dtype, counts.device)

        def joint(x: Tensor) -> tuple[TraitBits, Tensor]:
            traits = self._traits(*(part.unsqueeze(-2) for part in x.chunk(2, -1)))
            return traits, traits.log_joint(profiles)  # (R, C, Q)

        def objective(x: Tensor) -> Tensor:
            return (counts * joint(x)[1].logsumexp(-1)).sum(-1)

        def step(x: Tensor) -> tuple[Tensor, Tensor]:
            traits, log_joint = joint(x)
            log_density = log_joint.logsumexp(-1, keepdim=True)
            posterior = (log_joint - log_density).exp()
            nodes = _nodes(self.num_nodes, counts)[0]
            chances = torch.sigmoid(traits.logits.squeeze(1))  # (R, Q, K)
            by_slope = profiles * (posterior @ nodes).unsqueeze(-1) - posterior @ (
                nodes.unsqueeze(-1) * chances
            )
            scores = torch.cat([by_slope, profiles - posterior @ chances], -1)  # (R, C, 2 K)
            weighted = scores * log_density.exp() * counts.sum(-1)[:, None, None]
            return (counts.unsqueeze(-2) @ scores).squeeze(-2), weighted.mT @ scores

        return objective, step

    def _by_nodes(
        self, statistic: Tensor
    ) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], tuple[Tensor, Tensor]]]:
        """Objective and Newton step at the nodes: one logistic regression an attribute."""
        rows = statistic[:, : self.num_nodes].unsqueeze(-1)  # (R, Q, 1)
        on = statistic[:, self.num_nodes :].reshape(len(statistic), self.num_nodes, -1)  # (R, Q, K)
        nodes = _nodes(self.num_nodes, statistic)[0]

        def logits(x: Tensor) -> Tensor:
            slopes, intercepts = x.chunk(2, -1)
            return slopes.unsqueeze(-2) * nodes.unsqueeze(-1) + intercepts.unsqueeze(-2)

        def objective(x: Tensor) -> Tensor:
            eta = logits(x)
            return (on * eta - rows * softplus(eta)).sum((-2, -1))

        def step(x: Tensor) -> tuple[Tensor, Tensor]:
            chances = torch.sigmoid(logits(x))
            residual, weight = on - rows * chances, rows * chances * (1 - chances)
            gradient = torch.cat([nodes @ residual, residual.sum(-2)], -1)
            across = torch.diag_embed(nodes @ weight)
            upper = torch.cat([torch.diag_embed(nodes.square() @ weight), across], -1)
            return gradient, torch.cat(
                [upper, torch.cat([across, torch.diag_embed(weight.sum(-2))], -1)], -2
            )

        return objective, step

    def _at_nodes(self, bits: Tensor, weights: Tensor, params: Params) -> Tensor:
        traits = self._traits(
            params[self.slopes].unsqueeze(-2), params[self.intercepts].unsqueeze(-2)
        )
        posterior = torch.softmax(traits.log_joint(bits), -1) * weights.unsqueeze(-1)  # (R, M, Q)
        return torch.cat([posterior.sum(-2), (posterior.mT @ bits).flatten(1)], -1)

    def _traits(self, slopes: Tensor, intercepts: Tensor) -> TraitBits:
        nodes, log_weights = _nodes(self.num_nodes, slopes)
        return TraitBits(
            slopes.unsqueeze(-2) * nodes.unsqueeze(-1) + intercepts.unsqueeze(-2), log_weights
        )


def _nodes(num_nodes: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Quadrature nodes and log-weights of a standard normal trait."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
    log_weights = torch.as_tensor(np.log(weights / weights.sum()))
    return torch.as_tensor(nodes).to(like), log_weights.to(like)


def _signed(params: Params, slopes: str, intercepts: str) -> Params:
    """Fix the sign of the trait so that its slopes sum to a positive number.

    The distribution is the same, for the nodes lie symmetrically.
    """
    sign = torch.where(params[slopes].sum(-1, keepdim=True) < 0, -1.0, 1.0).to(params[slopes])
    return {slopes: sign * params[slopes], intercepts: params[intercepts]}


@dataclass(frozen=True)
class HigherOrder:
    r"""Attributes correlated through one continuous trait.

    Given the trait, :math:`P(\alpha_k = 1 \mid \theta) = \sigma(d_k + \lambda_k \theta)`,
    :math:`\theta \sim N(0, 1)`.

    2 K numbers instead of :math:`2^K - 1`: the sites ``trait_slopes`` :math:`\lambda` and
    ``trait_intercepts`` d, (K,) each, flat on [-10, 10]. The trait's own sign is arbitrary; slopes
    are reported with a positive sum.

    Args:
        num_nodes: of the Gauss-Hermite quadrature over the trait.

    Raises:
        ValueError: for fewer than three nodes or three attributes (two would have more parameters
            than profiles).

    Source: J. de la Torre and J. A. Douglas (2004), doi:10.1007/BF02295640; R. D. Bock and M.
    Aitkin (1981), doi:10.1007/BF02293801.
    """

    num_nodes: int = 31

    def __post_init__(self) -> None:
        plain_fields(self)
        if not is_integer(self.num_nodes, 3):
            raise ValueError(
                f"HigherOrder: num_nodes must be an integer of at least 3, got {self.num_nodes!r}"
            )

    def root(
        self, latent: str, num_attributes: int, names: Sequence[str] | None = None
    ) -> AttributeRoot:
        if num_attributes < 3:
            raise ValueError(
                f"HigherOrder: at least three attributes were expected, got {num_attributes}: with"
                " fewer it has more parameters than there are profiles; use root=Saturated()"
            )
        return TraitRoot("trait_slopes", "trait_intercepts", latent, num_attributes, self.num_nodes)
