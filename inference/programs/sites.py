"""What a program says at its sample sites."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributions import constraints

__all__ = ["MAX_SUMMED", "Site", "is_large", "law_of", "sample_nodes", "unchanging_laws"]

MAX_SUMMED = 2**24  # rows times configurations that a generic program may sum over
MAX_VALUES = 2**16  # of one latent site


@dataclass(frozen=True)
class Site:
    """One sample site.

    Args:
        name: its name.
        kind: "parameter", "latent", "local" or "observed".
        shape: own batch and event shape, without restarts; for latents and observed sites with the rows.
        support: the constraint its values satisfy.
        plates: names of the plates it stands in, outermost first.
        num_values: size of the enumerated support, None where it is not enumerated.
        law: name of its distribution, such as ``Categorical``.
        in_chain: whether it is a step of a ``pyro.markov`` loop.
        line: where it stands in the user's file, in words; "" where that is not looked for.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    support: constraints.Constraint
    plates: tuple[str, ...]
    num_values: int | None
    law: str = ""
    in_chain: bool = False
    line: str = ""

    @property
    def is_binary(self) -> bool:
        """Whether its values are bits, or vectors of bits."""
        return getattr(self.support, "base_constraint", self.support) is constraints.boolean


def law_of(fn: Any) -> str:
    """The name of a distribution, without what expands, masks or groups it."""
    while type(fn).__name__ in ("Independent", "ExpandedDistribution", "MaskedDistribution"):
        fn = fn.base_dist
    return type(fn).__name__


def sample_nodes(trace: Any) -> dict[str, Any]:
    """Sample sites of a trace, without the index draws of plates."""
    return {
        name: node
        for name, node in trace.nodes.items()
        if node["type"] == "sample" and type(node["fn"]).__name__ != "_Subsample"
    }


def unchanging_laws(names: Sequence[str], first: Any, second: Any) -> dict[str, Any] | None:
    """The distributions of these sites, by name, where they are the same in two traces whose values differ; None where one depends on another's value, is scaled or masked."""
    found = {}
    for name in names:
        one, other = first.nodes[name], second.nodes[name]
        if any(node["scale"] not in (None, 1.0) or node["mask"] is not None for node in (one, other)):
            return None
        values = torch.stack([one["value"], other["value"]])
        alone = torch.stack([one["fn"].log_prob(one["value"]), other["fn"].log_prob(other["value"])])
        if not all(torch.equal(node["fn"].log_prob(values), alone) for node in (one, other)):
            return None
        found[name] = one["fn"]
    return found


def is_large(sites: Iterable[Site]) -> bool:
    """Whether a latent site has too many values for a program to sum over."""
    return any(site.kind == "latent" and (site.num_values or math.inf) > MAX_VALUES for site in sites)
