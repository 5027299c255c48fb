"""Joint distributions of binary attributes: their protocol, and independent attributes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyro.distributions as dist
from pyro.distributions import TorchDistribution
from torch import Tensor

from ppl_models.descriptions.layers import Root, RootLayer
from ppl_models.parts.validation import is_integer

Pair = tuple[Any, Any]


class AttributeRoot(Root, Protocol):
    """Attribute distribution of a program: a :class:`~ppl_models.descriptions.layers.Root`."""

    def priors(self, like: Tensor) -> dict[str, TorchDistribution]:
        """Prior of each of its sites, of the dtype and device of ``like``."""
        ...

    @property
    def dims(self) -> dict[str, tuple[str, ...]]:
        """Names of the dims of its sites."""
        ...

    def entry_names(self, attributes: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Names of the entries along those dims, by dim, under named attributes."""
        ...


class AttributeDistribution(Protocol):
    """Attribute distribution as a user writes it, before the number of attributes is known."""

    def root(
        self, latent: str, num_attributes: int, names: Sequence[str] | None = None
    ) -> AttributeRoot:
        """Distribution of a number of attributes.

        Args:
            latent: name of their site.
            num_attributes: K.
            names: of the attributes, by which pairs may speak of them.
        """
        ...


@dataclass(frozen=True)
class IndependentRoot(RootLayer):
    """Independent attributes of a program, one probability each."""

    def priors(self, like: Tensor) -> dict[str, TorchDistribution]:
        one = like.new_ones(())
        return {self.proportions: dist.Beta(one, one).expand([self.num_latents]).to_event(1)}

    @property
    def dims(self) -> dict[str, tuple[str, ...]]:
        return {self.proportions: ("attribute",)}

    def entry_names(self, attributes: Sequence[str]) -> dict[str, tuple[str, ...]]:
        return {}


@dataclass(frozen=True)
class Independent:
    r"""Independent attributes, one probability each.

    :math:`P(\alpha) = \prod_k \pi_k^{\alpha_k} (1 - \pi_k)^{1 - \alpha_k}`.

    The site ``proportions`` (K,) has a uniform prior. Skills of people are seldom independent:
    compare with :class:`~ppl_models.Saturated` or :class:`~ppl_models.HigherOrder` before you
    believe it.
    """

    def root(
        self, latent: str, num_attributes: int, names: Sequence[str] | None = None
    ) -> AttributeRoot:
        return IndependentRoot("proportions", latent, num_attributes)


def pairs_of(owner: str, argument: str, pairs: Any) -> tuple[Pair, ...]:
    """Convert pairs of attributes (numbers from 0, or names) to tuples."""
    wanted = f"{owner}: {argument} must be pairs of attributes, by number from 0 or by name"
    if isinstance(pairs, str) or not isinstance(pairs, Sequence):
        raise ValueError(f"{wanted}, got {pairs!r}")
    out: list[Pair] = []
    for pair in pairs:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise ValueError(f"{wanted}, got {pair!r} among them")
        for member in pair:
            if not (isinstance(member, str) or is_integer(member, 0)):
                raise ValueError(f"{wanted}, got {member!r} in {tuple(pair)!r}")
        if pair[0] == pair[1]:
            raise ValueError(f"{owner}: {argument} pairs attribute {pair[0]!r} with itself")
        if tuple(pair) in out:
            raise ValueError(f"{owner}: {argument} holds {tuple(pair)!r} twice")
        out.append((pair[0], pair[1]))
    return tuple(out)


def place_of(owner: str, member: Any, num_attributes: int, names: Sequence[str] | None) -> int:
    """Position of an attribute given by number or name."""
    if isinstance(member, str):
        if names is None or member not in names:
            known = (
                "which have no names" if names is None else f"which are called {', '.join(names)}"
            )
            raise ValueError(
                f"{owner}: attribute {member!r} is not among the {num_attributes}, {known}"
            )
        return list(names).index(member)
    if member >= num_attributes:
        raise ValueError(
            f"{owner}: attribute {member} is not among the {num_attributes}, which are numbered"
            " from 0"
        )
    return int(member)


def ordered(owner: str, edges: Sequence[tuple[int, int]], num_attributes: int) -> tuple[int, ...]:
    """Topological order of the attributes; a cycle is refused by its name."""
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(range(num_attributes))
    graph.add_edges_from(edges)
    try:
        return tuple(nx.lexicographical_topological_sort(graph))
    except nx.NetworkXUnfeasible:
        raise ValueError(
            f"{owner}: {' -> '.join(map(str, cycle_of(edges)))} is a cycle; no attribute may lead"
            " back to itself"
        ) from None


def cycle_of(edges: Iterable[tuple[int, int]]) -> list[int]:
    """Cycle of a cyclic graph, along its edges, its smallest member first and last."""
    import networkx as nx

    cycle = [start for start, _ in nx.find_cycle(nx.DiGraph(edges))]
    first = cycle.index(min(cycle))
    return [*cycle[first:], *cycle[:first], cycle[first]]
