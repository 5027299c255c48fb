r"""Distributions of K dependent bits, enumerated jointly as one site.

As with :class:`~ppl_models.parts.distributions.BinaryVector`, the support is the list of joint
configurations ("profiles"), and expanding a distribution over a plate costs nothing. Profiles are
in lexicographic order, so entry 0 is the most significant bit of a profile's code.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Categorical, Distribution, constraints

from ppl_models.parts.distributions import (
    binary_configurations,
    broadcast_shapes,
    draw_bits,
    pairwise_dot,
    softplus,
)

MAX_BITS = 62  # of a code


def codes_of(bits: Tensor) -> Tensor:
    """Codes of 0/1 vectors (..., K), entry 0 first, as integers (...)."""
    size = bits.shape[-1]
    if size > MAX_BITS:
        raise ValueError(f"a profile of {size} bits has no code; at most {MAX_BITS} were expected")
    powers = 2 ** torch.arange(size - 1, -1, -1, device=bits.device)
    return (bits.long() * powers).sum(-1)


def places_of(bits: Tensor, profiles: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Positions of 0/1 vectors (..., K) among the profiles (C, K), and membership.

    All 2^K profiles, and None for membership, if ``profiles`` is None.
    """
    codes = codes_of(bits)
    if profiles is None:
        return codes, None
    known = codes_of(profiles).to(bits.device)
    places = torch.searchsorted(known, codes.contiguous()).clamp(max=len(known) - 1)
    return places, known[places] == codes


def entries(table: Tensor, places: Tensor) -> Tensor:
    """Entries ``table[..., places]``, with the leading dims of both broadcast.

    The gradient is as small as the table.
    """
    batch = table.shape[:-1]
    offsets = torch.arange(batch.numel(), device=table.device).reshape(batch) * table.shape[-1]
    return table.reshape(-1)[offsets + places]


class _ProfileDistribution(TorchDistribution):
    """Common base of profile distributions; a subclass keeps its parameters unexpanded."""

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.independent(constraints.boolean, 1)
    has_enumerate_support = True

    def expand(
        self, batch_shape: torch.Size, _instance: Distribution | None = None
    ) -> _ProfileDistribution:
        new = copy.copy(self)
        new._batch_shape = torch.Size(batch_shape)
        return new

    def log_prob(self, value: Tensor) -> Tensor:
        density = self._log_density(value)
        return density.expand(broadcast_shapes(density.shape, self.batch_shape))

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        with torch.no_grad():
            return self._draw(torch.Size(sample_shape) + self.batch_shape)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = self._profiles()
        values = values.reshape(values.shape[:1] + (1,) * len(self.batch_shape) + self.event_shape)
        if expand:
            return values.expand(values.shape[:1] + self.batch_shape + self.event_shape)
        return values

    def _log_density(self, value: Tensor) -> Tensor:
        raise NotImplementedError

    def _draw(self, shape: torch.Size) -> Tensor:
        raise NotImplementedError

    def _profiles(self) -> Tensor:
        raise NotImplementedError


class ProfileTable(_ProfileDistribution):
    r"""Table of profile probabilities, :math:`P(a = \alpha_c) = e^{w_c}`.

    Args:
        log_weights: w, (\*batch, C), normalised.
        num_bits: K.
        profiles: the profiles that there are, (C, K), in lexicographic order; None for all 2^K.
    """

    def __init__(self, log_weights: Tensor, num_bits: int, profiles: Tensor | None = None) -> None:
        self.log_weights, self.size, self.profiles = log_weights, num_bits, profiles
        super().__init__(log_weights.shape[:-1], torch.Size([num_bits]), validate_args=False)

    def _profiles(self) -> Tensor:
        like = self.log_weights
        if self.profiles is None:
            return binary_configurations(self.size, like.dtype, like.device)
        return self.profiles.to(like)

    def _log_density(self, value: Tensor) -> Tensor:
        places, known = places_of(value, self.profiles)
        density = entries(self.log_weights, places)
        return density if known is None else torch.where(known, density, -torch.inf)

    def _draw(self, shape: torch.Size) -> Tensor:
        return self._profiles()[Categorical(logits=self.log_weights).expand(shape).sample()]


class TraitBits(_ProfileDistribution):
    r"""Bits that depend on one continuous trait, summed out on quadrature nodes.

    :math:`\sum_q w_q \prod_k \mathrm{Bernoulli}(a_k; \sigma(l_{qk}))`.

    Args:
        logits: l, (\*batch, Q, K).
        log_weights: log w, (Q,), normalised.
    """

    def __init__(self, logits: Tensor, log_weights: Tensor) -> None:
        self.logits, self.log_weights = logits, log_weights
        super().__init__(logits.shape[:-2], logits.shape[-1:], validate_args=False)

    @property
    def num_bits(self) -> int:
        """Number of bits, K; there are 2^K values."""
        return self.event_shape[0]

    def _profiles(self) -> Tensor:
        return binary_configurations(self.num_bits, self.logits.dtype, self.logits.device)

    def log_joint(self, value: Tensor) -> Tensor:
        """Log-density of bits (..., K) and each node, (..., Q)."""
        return (
            pairwise_dot(value.unsqueeze(-2), self.logits)
            - softplus(self.logits).sum(-1)
            + self.log_weights
        )

    def _log_density(self, value: Tensor) -> Tensor:
        return self.log_joint(value).logsumexp(-1)

    def _draw(self, shape: torch.Size) -> Tensor:
        nodes = Categorical(logits=self.log_weights).sample(shape)  # the index of each
        logits = self.logits.expand(*shape, *self.logits.shape[-2:])
        picked = logits.gather(-2, nodes[..., None, None].expand(*shape, 1, self.num_bits)).squeeze(
            -2
        )
        return draw_bits(torch.sigmoid(picked))


class BinaryNetwork(_ProfileDistribution):
    r"""Bayesian network of bits on a directed acyclic graph, a table each.

    :math:`\prod_k P(a_k \mid a_{\mathrm{pa}(k)})`.

    Args:
        chances: P(a_k = 1 | state of the parents), the tables one after another, (\*batch, S);
            within a table the states are in lexicographic order.
        parents: those of each bit, rising.
        order: the bits, parents before children.
    """

    def __init__(
        self, chances: Tensor, parents: Sequence[Sequence[int]], order: Sequence[int]
    ) -> None:
        self.chances, self.parents, self.order = chances, parents, order
        sizes = torch.tensor([2 ** len(own) for own in parents])
        self.first = (sizes.cumsum(0) - sizes).tolist()
        super().__init__(chances.shape[:-1], torch.Size([len(parents)]), validate_args=False)

    @property
    def num_bits(self) -> int:
        """Number of bits, K; there are 2^K values."""
        return self.event_shape[0]

    def _profiles(self) -> Tensor:
        return binary_configurations(self.num_bits, self.chances.dtype, self.chances.device)

    def chance(self, k: int, value: Tensor) -> Tensor:
        """Conditional P(bit k = 1 | its parents), for bits (..., K)."""
        return entries(self.chances, self.first[k] + codes_of(value[..., list(self.parents[k])]))

    def _log_density(self, value: Tensor) -> Tensor:
        terms = []
        for k in range(self.num_bits):
            chance = self.chance(k, value)
            terms.append(torch.where(value[..., k] > 0.5, chance, 1 - chance).log())
        return torch.stack(torch.broadcast_tensors(*terms)).sum(0)

    def _draw(self, shape: torch.Size) -> Tensor:
        out = self.chances.new_zeros(*shape, self.num_bits)
        for k in self.order:
            out[..., k] = draw_bits(self.chance(k, out).expand(shape))
        return out
