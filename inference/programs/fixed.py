r"""Known and tied parameters: entries of sites with a given value, or with one in common.

Free coordinates u lead to parameters :math:`\theta = F(T(u))`, with T the map of a site's support
and F what puts known entries :math:`c_i` in their places. Of a probability vector the free entries
share what is left,

.. math:: F(p)_i = c_i \; (i \text{ known}), \qquad
    F(p)_i = \Big(1 - \sum_{j \text{ known}} c_j\Big) \frac{p_i}{\sum_{j \text{ free}} p_j},

which is also the constrained maximum of :math:`\sum_i n_i \log p_i` where p is the free one.

Of tied entries, or vectors, F takes the mean: supports are convex, so that it lies inside.

Engines that draw, or that know curvature, want a density of the free entries alone. Their
coordinates (:class:`FreeEntries`) are those of T without the known ones and without all but the
first of tied ones, and of the free shares of a vector those of a shorter vector, stretched to what
is left; the posterior is then that of the free entries given the known ones,
:math:`p(\theta_{free} \mid x, \theta_{known} = c)`, where the prior of each of tied entries counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.distributions import biject_to, constraints

from ppl_models.parts.distributions import OnGraph
from ppl_models.parts.probability_tables import Shares, Simplexes, segments_of
from ppl_models.sequences.hidden_chain import AllowedRows
from ppl_models.sequences.option_chain import MatrixSimplex


@dataclass(frozen=True, eq=False)
class Fixed:
    """Known and tied entries of parameters.

    Args:
        values: by site, in its shape, NaN where an entry is free.
        supports: of these sites.
        ties: by site, of ``values`` too: in its shape, the place in the flat site of the first of
            the entries that each is equal to.
    """

    values: dict[str, Tensor]
    supports: dict[str, Any]
    ties: dict[str, Tensor] = field(default_factory=dict)

    @property
    def known(self) -> dict[str, Tensor]:
        """Values of the sites of which some entry is known."""
        return {name: own for name, own in self.values.items() if not bool(own.isnan().all())}

    @property
    def shares_of_nought(self) -> list[str]:
        """Sites of probability vectors of which an entry is known to be zero."""
        return [
            name
            for name, own in self.known.items()
            if is_shares(self.supports[name]) and bool((own == 0).any())
        ]

    def tied(self, name: str, value: Tensor) -> Tensor:
        """Value (..., *shape) of a site with tied entries at their mean; differentiable."""
        if name not in self.ties:
            return value
        source = self.ties[name].to(value.device).ravel()
        flat = value.reshape(-1, len(source))
        sums = torch.zeros_like(flat).index_add(1, source, flat)
        counts = torch.bincount(source, minlength=len(source)).clamp(min=1)
        return (sums / counts)[:, source].reshape(value.shape)

    def restored(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Parameters (..., *shape) with the known entries in their places; differentiable."""
        out = dict(params)
        for name, given in self.values.items():
            if name not in out:
                continue
            own = self.tied(name, out[name])
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

    def coordinates(self, name: str) -> FreeEntries:
        """Coordinates of the free entries of a site.

        Raises:
            ValueError: for a matrix of which a part is known, whose others have no coordinates.
        """
        support, value = self.supports[name], self.values[name]
        source = self.ties.get(name)
        if is_shares(support):
            return _FreeShares(support, value, source)
        base = _base(support)
        on_graph = isinstance(base, OnGraph)
        graph = _possible(support, value)
        entry = _base(base.base) if on_graph else base
        if entry.event_dim == 0:
            return _FreeNumbers(biject_to(entry), value, graph if on_graph else None, source)
        held = (~value.isnan()).flatten(value.dim() - entry.event_dim)
        if bool((held.any(-1) != held.all(-1)).any()):
            raise ValueError(
                f"fixed: {name!r} holds matrices, of which EM() alone may know a part; all of a"
                " matrix, or NaN, was expected"
            )
        return _FreeBlocks(biject_to(base), value, held.all(-1))

    def held(self, name: str) -> Tensor:
        """Mask of the known entries of a site that its support leaves free."""
        value = self.values[name]
        return ~value.isnan() & _possible(self.supports[name], value)

    def counted(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Parameters whose known entries all count: none is zero or one, which would be no edge."""
        return {
            name: value.masked_fill(self.held(name).to(value.device), 0.5)
            if name in self.values and not is_shares(self.supports[name])
            else value
            for name, value in params.items()
        }

    @property
    def num_entries(self) -> int:
        """Number of free parameters that the known entries take away."""
        total = 0
        for name, value in self.values.items():
            possible = _possible(self.supports[name], value)
            held = self.held(name).double()
            total += int(held.sum())
            if is_shares(self.supports[name]):  # the last free entry of a group follows
                sizes = group_totals(self.supports[name], possible.double())
                is_whole = group_totals(self.supports[name], held) == sizes
                total -= round(float((is_whole * possible / sizes).sum()))
            if name in self.ties:
                alone = Fixed(self.values, self.supports)
                total += alone.coordinates(name).size - self.coordinates(name).size
        return total


class FreeEntries:
    """Bijection from coordinates (R, P) of the free entries of a site to its values, (R, *shape).

    Args:
        value: known entries in the shape of the site, NaN where free.
        source: place in the flat site of the entry that each is equal to; None for its own.
    """

    size: int  # P

    def __init__(self, value: Tensor, source: Tensor | None = None) -> None:
        every = torch.arange(value.numel(), device=value.device)
        self.value, self.source = value, every if source is None else source.ravel()
        self.is_first = self.source == every

    def inv(self, values: Tensor) -> Tensor:
        """Coordinates of values whose known entries may be any."""
        raise NotImplementedError

    def __call__(self, free: Tensor) -> Tensor:
        """Values at free coordinates, known entries in their places."""
        raise NotImplementedError

    def log_abs_det_jacobian(self, free: Tensor, values: Tensor) -> Tensor:
        """Log volume of free entries a unit of coordinates, (R,)."""
        raise NotImplementedError


class _FreeNumbers(FreeEntries):
    """Each entry by itself: those on the graph are ``entries`` of the transform, in order."""

    def __init__(
        self, transform: Any, value: Tensor, graph: Tensor | None, source: Tensor | None
    ) -> None:
        super().__init__(value, source)
        self.transform = transform
        every = torch.ones_like(value, dtype=torch.bool) if graph is None else graph
        self.shape = value.shape if graph is None else value[graph].shape
        self.places = every.ravel().nonzero().ravel()  # of the entries, in the flat site
        self.free = (value.ravel().isnan() & self.is_first)[self.places]
        self.size = int(self.free.sum())

    def inv(self, values: Tensor) -> Tensor:
        own = values.reshape(len(values), -1)[:, self.places.to(values.device)]
        inner: Tensor = self.transform.inv(own.reshape(-1, *self.shape))
        return inner.reshape(len(values), -1)[:, self.free.to(values.device)]

    def _entries(self, free: Tensor) -> tuple[Tensor, Tensor]:
        """Coordinates of all entries, and the entries."""
        full = free.new_zeros(len(free), len(self.free))
        full = full.masked_scatter(self.free.to(free.device).expand_as(full), free)
        full = full.reshape(len(free), *self.shape)
        return full, self.transform(full)

    def __call__(self, free: Tensor) -> Tensor:
        entries = self._entries(free)[1].reshape(len(free), -1)
        value = self.value.to(free).ravel()
        out = free.new_zeros(len(free), value.numel())
        out = out.index_copy(1, self.places.to(free.device), entries)
        out = out[:, self.source.to(free.device)]
        return torch.where(value.isnan(), out, value).reshape(len(free), *self.value.shape)

    def log_abs_det_jacobian(self, free: Tensor, values: Tensor) -> Tensor:
        volumes = self.transform.log_abs_det_jacobian(*self._entries(free))
        own: Tensor = volumes.reshape(len(free), -1)[:, self.free.to(free.device)]
        return own.sum(-1)


class _FreeBlocks(FreeEntries):
    """Matrices that are known or free altogether; ``held`` (*batch) says which."""

    def __init__(self, transform: Any, value: Tensor, held: Tensor) -> None:
        super().__init__(value)
        self.transform, self.held = transform, held
        self.inner = value[held.logical_not()].shape[1:]
        self.size = self.inv(torch.eye(self.inner[-1]).to(value).expand_as(value)[None]).shape[1]

    def inv(self, values: Tensor) -> Tensor:
        inner: Tensor = self.transform.inv(values[:, ~self.held.to(values.device)])
        return inner.reshape(len(values), -1)

    def _matrices(self, free: Tensor) -> tuple[Tensor, Tensor]:
        count = int((~self.held).sum())
        own = free.reshape(len(free), count, -1) if count else free.new_zeros(len(free), 0, 1)
        return own, (self.transform(own) if count else free.new_zeros(len(free), 0, *self.inner))

    def __call__(self, free: Tensor) -> Tensor:
        out = self.value.to(free).expand(len(free), *self.value.shape).clone()
        out[:, ~self.held.to(free.device)] = self._matrices(free)[1]
        return out

    def log_abs_det_jacobian(self, free: Tensor, values: Tensor) -> Tensor:
        if bool(self.held.all()):
            return free.new_zeros(len(free))
        volumes: Tensor = self.transform.log_abs_det_jacobian(*self._matrices(free))
        return volumes.reshape(len(free), -1).sum(-1)


class _FreeShares(FreeEntries):
    """Free entries of probability vectors, which share what the known ones leave."""

    def __init__(self, support: Any, value: Tensor, source: Tensor | None) -> None:
        super().__init__(value, source)
        numbers = group_numbers(support, value).ravel()
        free = (value.isnan() & _possible(support, value)).ravel() & self.is_first
        self.places = free.nonzero().ravel()
        order = numbers[self.places].argsort(stable=True)
        self.places = self.places[order]
        groups, sizes = numbers[self.places].unique_consecutive(return_counts=True)
        left = 1 - group_totals(support, value.nan_to_num(0.0)).ravel()
        self.left = left[self.places]
        self.sizes = tuple(sizes.tolist())
        self.size = sum(self.sizes) - len(self.sizes)
        ends = sizes.cumsum(0) - 1
        self.log_volume = float(((sizes - 1) * self.left[ends].log()).sum()) if len(groups) else 0.0
        self.sticks = biject_to(Simplexes(self.sizes)) if self.sizes else None

    def _shares(self, values: Tensor) -> Tensor:
        own = values.reshape(len(values), -1)[:, self.places.to(values.device)]
        return Simplexes(self.sizes).scaled(own)

    def inv(self, values: Tensor) -> Tensor:
        if self.sticks is None:
            return values.new_zeros(len(values), 0)
        out: Tensor = self.sticks.inv(self._shares(values))
        return out

    def __call__(self, free: Tensor) -> Tensor:
        value = self.value.to(free).nan_to_num(0.0).ravel()
        out = value.expand(len(free), -1)
        if self.sticks is not None:
            own = self.sticks(free) * self.left.to(free)
            out = out.index_copy(1, self.places.to(free.device), own)
        return out[:, self.source.to(free.device)].reshape(len(free), *self.value.shape)

    def log_abs_det_jacobian(self, free: Tensor, values: Tensor) -> Tensor:
        if self.sticks is None:
            return free.new_zeros(len(free))
        volumes: Tensor = self.sticks.log_abs_det_jacobian(free, self._shares(values))
        return volumes + self.log_volume


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


def group_numbers(support: Any, like: Tensor) -> Tensor:
    """Number of the group that each entry of a site adds up to one in, in its shape.

    Raises:
        ValueError: for a support whose groups are not known here.
    """
    base, size = _base(support), like.numel()
    every = torch.arange(size, device=like.device)
    if isinstance(base, Simplexes):
        owner = segments_of(base.sizes, like.device).owner
        numbers = every // len(owner) * len(base.sizes) + owner[every % len(owner)]
    elif isinstance(base, MatrixSimplex):
        numbers = every // (like.shape[-1] * like.shape[-2])
    elif isinstance(base, constraints._Simplex | AllowedRows):
        numbers = every // like.shape[-1]
    else:
        raise ValueError(
            f"fixed: a site of probability vectors was expected, got one with support {base}"
        )
    return numbers.reshape(like.shape)


def group_totals(support: Any, values: Tensor) -> Tensor:
    """Sums of the groups that add up to one, in the place of each of their entries.

    Args:
        support: of the site; values: (*shape), or with dims before it.
    """
    numbers = group_numbers(support, values)
    totals = values.new_zeros(int(numbers.max()) + 1).index_add(0, numbers.ravel(), values.ravel())
    return totals[numbers]
