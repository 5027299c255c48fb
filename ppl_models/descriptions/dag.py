r"""Attributes on a given directed graph: a table of conditional probabilities for each."""

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
from ppl_models.descriptions.layers import PROPORTION_LIMIT, Params
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.profile_distributions import BinaryNetwork, codes_of
from ppl_models.parts.validation import is_number, plain_fields

MAX_PARENTS = 10
MAX_FRONTIER = 20  # attributes whose joint distribution is held at once, for the marginals
START_ROWS = 0.5  # added to each cell


def _looked_up(table: Tensor, latents: Tensor, places: Sequence[int]) -> Tensor:
    """Entries of a table (R, 2^P) at the states of P of the latents (R, K, N), (R, N)."""
    powers = 2.0 ** torch.arange(len(places) - 1, -1, -1, device=latents.device)
    codes = (powers.to(latents) @ latents[:, list(places)]).long()
    return table.gather(-1, codes.expand(len(table), -1))


@dataclass(frozen=True)
class NetworkRoot:
    """Conditional probability tables (S,) ~ Beta(c, c) of attributes on a graph.

    A :class:`~ppl_models.descriptions.attribute_distribution.AttributeRoot`.

    Args:
        chances: name of their site: P(attribute = 1 | state of its parents), the tables one after
            another.
        latent: name of the site of the attributes.
        num_latents: K.
        parents: those of each attribute, rising.
        order: the attributes, parents before children.
        concentration: c.
    """

    chances: str
    latent: str
    num_latents: int
    parents: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    concentration: float
    renamable = False
    flippable = True
    profiles = None
    equation = "the product of P(attribute | its parents) along the given graph"

    @property
    def num_free(self) -> int:
        return sum(2 ** len(own) for own in self.parents)

    def sites(self) -> dict[str, tuple[int, ...]]:
        return {self.chances: (self.num_free,)}

    @property
    def dims(self) -> dict[str, tuple[str, ...]]:
        return {self.chances: ("conditional",)}

    def entry_names(self, attributes: Sequence[str]) -> dict[str, tuple[str, ...]]:
        names = []
        for k, own in enumerate(self.parents):
            for state in binary_configurations(len(own)).long().tolist():
                given = ",".join(
                    f"{attributes[parent]}={bit}" for parent, bit in zip(own, state, strict=True)
                )
                names.append(f"{attributes[k]}|{given}" if given else attributes[k])
        return {"conditional": tuple(names)}

    def priors(self, like: Tensor) -> dict[str, TorchDistribution]:
        c = like.new_tensor(self.concentration)
        return {self.chances: dist.Beta(c, c).expand([self.num_free]).to_event(1)}

    def distribution(self, params: Mapping[str, Tensor]) -> TorchDistribution:
        return BinaryNetwork(params[self.chances], self.parents, self.order)

    def start(self, latents: Tensor) -> Params:
        on, off = self._counted(latents.unsqueeze(0), latents.new_ones(1, len(latents)))
        return {self.chances: (on + START_ROWS) / (on + off + 2 * START_ROWS)}

    def uniform(self, like: Tensor) -> Params:
        return {self.chances: like.new_full((1, self.num_free), 0.5)}

    def marginals(self, params: Mapping[str, Tensor]) -> Tensor:
        """Marginal probabilities by elimination along the order.

        The joint distribution of those attributes that still have children to come is kept.
        """
        tables = params[self.chances].split([2 ** len(own) for own in self.parents], -1)
        lead = params[self.chances].shape[:-1]
        joint, held, out = params[self.chances].new_ones(lead), list[int](), {}
        for place, k in enumerate(self.order):
            if len(held) >= MAX_FRONTIER:
                raise ValueError(
                    f"Dag: the graph ties more than {MAX_FRONTIER} attributes together; their"
                    " proportions cannot be summed"
                )
            own = sorted(self.parents[k], key=held.index)
            table = tables[k].reshape((*lead, *(2,) * len(own)))
            swap = [len(lead) + self.parents[k].index(parent) for parent in own]
            table = table.permute((*range(len(lead)), *swap))
            chance = table.reshape((*lead, *(2 if parent in own else 1 for parent in held)))
            joint = torch.stack([joint * (1 - chance), joint * chance], -1)
            held.append(k)
            out[k] = joint.reshape((*lead, -1, 2)).sum(-2)[..., 1]
            later = {parent for child in self.order[place + 1 :] for parent in self.parents[child]}
            for done in [member for member in held if member not in later]:
                joint = joint.sum(len(lead) + held.index(done))
                held.remove(done)
        return torch.stack([out[k] for k in range(self.num_latents)], -1)

    def draw(self, params: Params, uniform: Tensor) -> Tensor:
        # (R, 1, S)
        network = BinaryNetwork(params[self.chances].unsqueeze(-2), self.parents, self.order)
        bits = torch.zeros_like(uniform.mT)  # (R, N, K)
        for k in self.order:
            bits[..., k] = (uniform[:, k] < network.chance(k, bits)).to(bits)
        return bits.mT

    def log_odds(self, params: Params, k: int, latents: Tensor) -> Tensor:
        tables = params[self.chances].split([2 ** len(own) for own in self.parents], -1)
        total = _looked_up(torch.logit(tables[k]), latents, self.parents[k])
        for child in (c for c, own in enumerate(self.parents) if k in own):
            own = self.parents[child]
            place = own.index(k)
            table = tables[child].reshape(len(tables[child]), 2**place, 2, -1)
            if_off, if_on = table[:, :, 0], table[:, :, 1]  # k; (R, states before, after)
            child_off = torch.log1p(-if_on) - torch.log1p(-if_off)
            steps = torch.stack([child_off, if_on.log() - if_off.log()], -1).flatten(1)
            others = (*own[:place], *own[place + 1 :], child)
            total = total + _looked_up(steps, latents, others)
        return total

    def expected(self, configurations: Tensor, counts: Tensor, params: Params) -> Tensor:
        """Expected counts of each attribute on, then off, by state of its parents, (R, 2 S)."""
        shared = configurations.unsqueeze(0).expand(len(counts), -1, -1)
        return torch.cat(self._counted(shared, counts), -1)

    def drawn(self, latents: Tensor, chances: Tensor, scale: float, params: Params) -> Tensor:
        bits = latents.mT
        return torch.cat(self._counted(bits, bits.new_full(bits.shape[:2], scale)), -1)

    def maximise(self, statistic: Tensor, params: Params) -> Params:
        on, off = (statistic + self.concentration - 1).chunk(2, -1)
        total = on + off
        share = torch.where(
            total > 0, on / total.clamp(min=torch.finfo(total.dtype).tiny), params[self.chances]
        )
        return {self.chances: share.clamp(PROPORTION_LIMIT, 1 - PROPORTION_LIMIT)}

    def rename(
        self, params: Mapping[str, Tensor], permutation: Tensor | None, flips: Tensor | None
    ) -> Params:
        if permutation is not None and not torch.equal(
            permutation.cpu(), torch.arange(self.num_latents)
        ):
            raise ValueError(
                f"{self.latent}: the graph gives the attributes their names; they cannot be"
                " exchanged"
            )
        own = params[self.chances]
        if flips is None:
            return {self.chances: own}
        tables = []
        for k, table in enumerate(own.split([2 ** len(parents) for parents in self.parents], -1)):
            states = binary_configurations(len(self.parents[k]))
            old = torch.where(flips.cpu()[list(self.parents[k])], 1 - states, states)
            table = table.index_select(-1, codes_of(old).to(own.device))
            tables.append(1 - table if bool(flips[k]) else table)
        return {self.chances: torch.cat(tables, -1)}

    def _counted(self, bits: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted counts of each attribute on and off by state of its parents, twice (R, S)."""
        on: list[Tensor] = []
        off: list[Tensor] = []
        for k, own in enumerate(self.parents):
            states = codes_of(bits[..., list(own)])
            for into, weight in ((on, weights * bits[..., k]), (off, weights * (1 - bits[..., k]))):
                into.append(
                    weight.new_zeros(len(weight), 2 ** len(own)).scatter_add(1, states, weight)
                )
        return torch.cat(on, -1), torch.cat(off, -1)


@dataclass(frozen=True)
class Dag:
    r"""Attributes on a directed acyclic graph.

    :math:`P(\alpha) = \prod_k P(\alpha_k \mid \alpha_{\mathrm{pa}(k)})`.

    The site ``conditionals`` (S,) holds P(attribute = 1 | state of its parents), attribute by
    attribute, the states in lexicographic order; each has a Beta(c, c) prior.

    Args:
        edges: (parent, child). Attributes by number from 0, or by name.
        concentration: c, at least 1; 1 is flat (maximum likelihood).

    Raises:
        ValueError: for a concentration below 1, an edge that names no attribute, a cycle, or more
            than ten parents of one.
    """

    edges: tuple[tuple[int | str, int | str], ...] = field(default=())
    concentration: float = 1.0

    def __post_init__(self) -> None:
        plain_fields(self)
        object.__setattr__(self, "edges", pairs_of("Dag", "edges", self.edges))
        if not (is_number(self.concentration) and self.concentration >= 1):
            raise ValueError(
                f"Dag: concentration must be a number of at least 1, got {self.concentration!r}"
            )

    def root(
        self, latent: str, num_attributes: int, names: Sequence[str] | None = None
    ) -> AttributeRoot:
        edges = [
            (place_of("Dag", a, num_attributes, names), place_of("Dag", b, num_attributes, names))
            for a, b in self.edges
        ]
        order = ordered("Dag", edges, num_attributes)
        parents = tuple(
            tuple(sorted({a for a, b in edges if b == k})) for k in range(num_attributes)
        )
        for k, own in enumerate(parents):
            if len(own) > MAX_PARENTS:
                raise ValueError(
                    f"Dag: attribute {k} has {len(own)} parents; at most {MAX_PARENTS} were"
                    " expected"
                )
        return NetworkRoot(
            "conditionals", latent, num_attributes, parents, order, float(self.concentration)
        )
