r"""Known parameters: entries of sites that keep a given value, all others free.

Free coordinates u lead to parameters :math:`\theta = F(T(u))`, with T the map of a site's support
and F what puts known entries :math:`c_i` in their places. Of a probability vector the free entries
share what is left,

.. math:: F(p)_i = c_i \; (i \text{ known}), \qquad
    F(p)_i = \Big(1 - \sum_{j \text{ known}} c_j\Big) \frac{p_i}{\sum_{j \text{ free}} p_j},

which is also the constrained maximum of :math:`\sum_i n_i \log p_i` where p is the free one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import biject_to, constraints

from ppl_models.parts.probability_tables import Shares, Simplexes, segments_of
from ppl_models.sequences.hidden_chain import AllowedRows


@dataclass(frozen=True, eq=False)
class Fixed:
    """Known entries of parameters.

    Args:
        values: by site, in its shape, NaN where an entry is free.
        supports: of these sites.
    """

    values: dict[str, Tensor]
    supports: dict[str, Any]

    def restored(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Parameters (..., *shape) with the known entries in their places; differentiable."""
        out = dict(params)
        for name, given in self.values.items():
            if name not in out:
                continue
            own = out[name]
            value = given.to(own)
            held = ~value.isnan()
            value = torch.where(held, value, torch.zeros_like(value))
            if is_shares(self.supports[name]):
                free = torch.where(held, torch.zeros_like(own), own)
                left = 1 - group_totals(self.supports[name], value)
                sums = group_totals(self.supports[name], free)
                even = (~held & _possible(self.supports[name], value)).to(own)
                nothing = sums <= 0
                free = torch.where(nothing, even.expand_as(own), free)
                sums = group_totals(self.supports[name], free)
                own = free * left / torch.where(sums > 0, sums, torch.ones_like(sums))
            out[name] = torch.where(held, value, own)
        return out

    def inside(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Parameters inside their supports whose :meth:`restored` values are these."""
        out = dict(params)
        for name, given in self.values.items():
            if name not in out:
                continue
            own, support, held = out[name], self.supports[name], ~given.isnan()
            if is_shares(support):
                most = torch.where(held, torch.full_like(own, 0.1), own.clamp(min=1e-12))
                most = torch.where(own.eq(0) & ~held, own, most)
                out[name] = most / group_totals(support, most)
            else:
                middle = biject_to(support)(torch.zeros_like(biject_to(support).inv(own)))
                out[name] = torch.where(held, middle, own)
        return out

    @property
    def num_entries(self) -> int:
        """Number of free parameters that the known entries take away."""
        total = 0
        for name, value in self.values.items():
            possible = _possible(self.supports[name], value)
            held = (~value.isnan() & possible).double()
            total += int(held.sum())
            if is_shares(self.supports[name]):  # the last free entry of a group follows
                sizes = group_totals(self.supports[name], possible.double())
                is_whole = group_totals(self.supports[name], held) == sizes
                total -= round(float((is_whole * possible / sizes).sum()))
        return total

    def is_partly(self, name: str) -> bool:
        """Tell whether some of the groups of a site have known and free entries."""
        if not is_shares(self.supports[name]):
            return False
        possible = _possible(self.supports[name], self.values[name])
        held = (~self.values[name].isnan() & possible).double()
        count = group_totals(self.supports[name], held)
        size = group_totals(self.supports[name], possible.double())
        return bool(((count > 0) & (count < size)).any())


def _base(support: Any) -> Any:
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support


def _possible(support: Any, like: Tensor) -> Tensor:
    """Mask of the entries that are not zero by a graph, in the shape of the site."""
    graph = getattr(_base(support), "graph", None)
    ones = torch.ones_like(like, dtype=torch.bool)
    return ones if graph is None else ones & graph.to(like.device)


def is_shares(support: Any) -> bool:
    """Tell whether entries of a support sum to one, in groups."""
    return isinstance(_base(support), constraints._Simplex | Shares)


def group_totals(support: Any, values: Tensor) -> Tensor:
    """Sums of the groups that add up to one, in the place of each of their entries, (..., *shape).

    Raises:
        ValueError: for a support whose groups are not known here.
    """
    base = _base(support)
    if isinstance(base, constraints._Simplex | AllowedRows):
        return values.sum(-1, keepdim=True).expand_as(values)
    if isinstance(base, Simplexes):
        segments = segments_of(base.sizes, values.device)
        return segments.spread(segments.total(values))
    raise ValueError(
        f"fixed: a site of probability vectors was expected, got one with support {base}"
    )
