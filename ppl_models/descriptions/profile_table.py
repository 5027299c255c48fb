r"""Profile probabilities: a table of all :math:`2^K`, or of those that a hierarchy allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor

from ppl_models.descriptions.attribute_distribution import (
    AttributeRoot,
    ordered,
    pairs_of,
    place_of,
)
from ppl_models.descriptions.layers import Params
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.profile_distributions import ProfileTable, codes_of, entries, places_of
from ppl_models.parts.repr import profile_name
from ppl_models.parts.validation import is_number, plain_fields

MAX_ATTRIBUTES = 14  # of a table over all profiles
MAX_PROFILES = 2**MAX_ATTRIBUTES
FLOOR = 1e-14  # estimated probabilities stay above it, so that their logarithms are finite
ABSENT = -1e4  # log-weight of a profile that there is not, where infinities would meet


@dataclass(frozen=True, eq=False)
class TableRoot:
    """Table of profile probabilities (C,) ~ Dirichlet(concentration).

    A :class:`~ppl_models.descriptions.attribute_distribution.AttributeRoot`.

    Args:
        weights: name of their site.
        latent: name of the site of the attributes.
        num_latents: K.
        concentration: of the prior.
        profiles: those that there are, (C, K), in lexicographic order; None for all 2^K.
    """

    weights: str
    latent: str
    num_latents: int
    concentration: float
    profiles: Tensor | None = None

    @property
    def num_profiles(self) -> int:
        """Number of profiles, C."""
        return 2**self.num_latents if self.profiles is None else len(self.profiles)

    @property
    def num_free(self) -> int:
        return self.num_profiles - 1

    @property
    def renamable(self) -> bool:
        return self.profiles is None

    flippable = renamable

    @property
    def equation(self) -> str:
        which = "all" if self.profiles is None else "the"
        return f"Categorical(π) over {which} {self.num_profiles:,} profiles" + (
            "" if self.profiles is None else " of the hierarchy"
        )

    def sites(self) -> dict[str, tuple[int, ...]]:
        return {self.weights: (self.num_profiles,)}

    @property
    def dims(self) -> dict[str, tuple[str, ...]]:
        return {self.weights: ("profile",)}

    def entry_names(self, attributes: Sequence[str]) -> dict[str, tuple[str, ...]]:
        rows = self._profiles(torch.zeros(())).tolist()
        return {"profile": tuple(profile_name(attributes, row) for row in rows)}

    def priors(self, like: Tensor) -> dict[str, TorchDistribution]:
        return {
            self.weights: dist.Dirichlet(like.new_full((self.num_profiles,), self.concentration))
        }

    def distribution(self, params: Mapping[str, Tensor]) -> TorchDistribution:
        return ProfileTable(params[self.weights].log(), self.num_latents, self.profiles)

    def start(self, latents: Tensor) -> Params:
        """Profile shares of guessed latents, one row more in each.

        A profile that is not allowed counts for the nearest.
        """
        places, known = places_of(latents, self.profiles)
        if known is not None:
            profiles = self._profiles(latents)
            apart = latents.sum(-1, keepdim=True) + profiles.sum(-1) - 2 * latents @ profiles.mT
            places = torch.where(known, places, apart.argmin(-1))
        counts = torch.bincount(places, minlength=self.num_profiles).to(latents) + 1
        return {self.weights: (counts / counts.sum()).unsqueeze(0)}

    def uniform(self, like: Tensor) -> Params:
        return {self.weights: like.new_full((1, self.num_profiles), 1 / self.num_profiles)}

    def marginals(self, params: Mapping[str, Tensor]) -> Tensor:
        return params[self.weights] @ self._profiles(params[self.weights])

    def draw(self, params: Params, uniform: Tensor) -> Tensor:
        edges = params[self.weights].cumsum(-1)
        places = torch.searchsorted(edges, uniform[:, 0].contiguous()).clamp(
            max=self.num_profiles - 1
        )  # (R, N)
        return self._profiles(edges)[places].mT

    def log_odds(self, params: Params, k: int, latents: Tensor) -> Tensor:
        sides = []
        for bit in (1.0, 0.0):
            bits = latents.mT.clone()
            bits[..., k] = bit
            places, known = places_of(bits, self.profiles)
            value = entries(params[self.weights].log().unsqueeze(-2), places)
            sides.append(value if known is None else value.masked_fill(~known, ABSENT))
        return sides[0] - sides[1]

    def expected(self, configurations: Tensor, counts: Tensor, params: Params) -> Tensor:
        """Expected counts of each profile, (R, C)."""
        places, _ = places_of(configurations, self.profiles)
        return counts.new_zeros(len(counts), self.num_profiles).index_add(1, places, counts)

    def drawn(self, latents: Tensor, chances: Tensor, scale: float, params: Params) -> Tensor:
        places, _ = places_of(latents.mT, self.profiles)  # (R, N)
        counts = latents.new_zeros(len(latents), self.num_profiles)
        return counts.scatter_add(1, places, latents.new_full(places.shape, scale))

    def maximise(self, statistic: Tensor, params: Params) -> Params:
        counts = (statistic + self.concentration - 1).clamp(min=0.0)
        share = (counts / counts.sum(-1, keepdim=True)).clamp(min=FLOOR)
        return {self.weights: share / share.sum(-1, keepdim=True)}

    def rename(
        self, params: Mapping[str, Tensor], permutation: Tensor | None, flips: Tensor | None
    ) -> Params:
        own = params[self.weights]
        if self.profiles is not None:
            stays = permutation is None or torch.equal(
                permutation.cpu(), torch.arange(self.num_latents)
            )
            if not stays or (flips is not None and bool(flips.any())):
                raise ValueError(
                    f"{self.latent}: the hierarchy gives the attributes their names; they cannot be"
                    " exchanged"
                )
            return {self.weights: own}
        new = self._profiles(own)
        old = new if flips is None else torch.where(flips.to(own.device), 1 - new, new)
        if permutation is not None:
            old = torch.empty_like(old).index_copy(1, permutation.to(own.device), old)
        return {self.weights: own.index_select(-1, codes_of(old))}

    def _profiles(self, like: Tensor) -> Tensor:
        if self.profiles is None:
            return binary_configurations(self.num_latents, like.dtype, like.device)
        return self.profiles.to(like)


@dataclass(frozen=True)
class Saturated:
    r"""Saturated distribution of profiles, :math:`P(\alpha) = \pi_\alpha`.

    There are :math:`2^K - 1` free numbers.

    The site ``profiles`` (2^K,) holds them in lexicographic order (``00``, ``01``, ``10``, ``11``),
    with a Dirichlet prior.

    Args:
        concentration: c of the prior :math:`\prod_\alpha \pi_\alpha^{c - 1}`, at least 1; 1 is flat
            (maximum likelihood), above it no profile has probability zero.

    Raises:
        ValueError: for a concentration below 1; for more than 14 attributes.
    """

    concentration: float = 1.0

    def __post_init__(self) -> None:
        plain_fields(self)
        _check_concentration("Saturated", self.concentration)

    def root(
        self, latent: str, num_attributes: int, names: Sequence[str] | None = None
    ) -> AttributeRoot:
        if num_attributes > MAX_ATTRIBUTES:
            raise ValueError(
                f"Saturated: {num_attributes} attributes make a table of {2**num_attributes:,}"
                f" profiles; at most {MAX_ATTRIBUTES} attributes were expected: use"
                " root=HigherOrder(), Hierarchy(pairs), Dag(edges) or Independent()"
            )
        return TableRoot("profiles", latent, num_attributes, float(self.concentration))


@dataclass(frozen=True)
class Hierarchy:
    r"""Attribute hierarchy: profiles that break a prerequisite have probability zero.

    Each other profile has a probability of its own.

    The site ``profiles`` (C,) holds the probabilities of the C profiles left, in lexicographic
    order, with a Dirichlet prior.

    Args:
        pairs: (needed, later): nobody has ``later`` without ``needed``. Attributes by number from
            0, or by name.
        concentration: as of :class:`Saturated`.

    Raises:
        ValueError: for a concentration below 1, a pair that names no attribute, a cycle, or more
            than 16,384 profiles left.

    Source: J. P. Leighton, M. J. Gierl and S. M. Hunka (2004),
    doi:10.1111/j.1745-3984.2004.tb01163.x; J. Templin and L. Bradshaw (2014),
    doi:10.1007/s11336-013-9362-0.
    """

    pairs: tuple[tuple[int | str, int | str], ...] = field(default=())
    concentration: float = 1.0

    def __post_init__(self) -> None:
        plain_fields(self)
        object.__setattr__(self, "pairs", pairs_of("Hierarchy", "pairs", self.pairs))
        _check_concentration("Hierarchy", self.concentration)

    def root(
        self, latent: str, num_attributes: int, names: Sequence[str] | None = None
    ) -> AttributeRoot:
        pairs = [
            (
                place_of("Hierarchy", a, num_attributes, names),
                place_of("Hierarchy", b, num_attributes, names),
            )
            for a, b in self.pairs
        ]
        profiles = torch.zeros(1, num_attributes, dtype=torch.float64)
        for later in ordered("Hierarchy", pairs, num_attributes):
            needed = [a for a, b in pairs if b == later]
            more = profiles[(profiles[:, needed] > 0).all(-1)].clone()
            more[:, later] = 1.0
            profiles = torch.cat([profiles, more])
            if len(profiles) > MAX_PROFILES:
                raise ValueError(
                    f"Hierarchy: more than {MAX_PROFILES:,} of the profiles of {num_attributes}"
                    " attributes are left; use root=HigherOrder(), Dag(edges) or Independent(), or"
                    " more pairs"
                )
        profiles = profiles[codes_of(profiles).argsort()]
        return TableRoot("profiles", latent, num_attributes, float(self.concentration), profiles)


def _check_concentration(owner: str, value: float) -> None:
    if not (is_number(value) and value >= 1):
        raise ValueError(f"{owner}: concentration must be a number of at least 1, got {value!r}")
