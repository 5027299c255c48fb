r"""Tree width of the sums over latents: what they cost, and crossed plates summed over jointly.

Latents that share a factor are neighbours in a graph. Summed out one by one, a latent leaves a
factor of all its neighbours, a table of all their values; the fewest neighbours that the last of
them can have is the tree width of the graph (Dechter 1999, doi:10.1016/S0004-3702(99)00059-4; the
order here is greedy). Plates of alike entries are
summed once for all of them (Obermeyer et al. 2019, arXiv:1902.03210), which is impossible where
data in two crossed plates depend on latents in each: the latents w_1, ..., w_J of the smaller one,

.. math:: p(x) = \sum_{w} \prod_j p(w_j) \prod_i \sum_{z_i} p(z_i) \prod_j p(x_{ij} \mid z_i, w_j)

then are J latents, or those of both are, where few pairs are seen.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from pyro.ops import packed
from pyro.ops.rings import LogRing, MapRing
from torch import Tensor

MOST_ENTRIES, MOST_WORK = 2**24, 2**28  # of a table of many latents, and times the factors
MOST_FACTORS = 2**12  # that one factor is split into
FIRST_SYMBOL = 0xE000  # of those that Pyro gives to no dim of its own
ENTRIES_OF_FACTOR = 2**12  # of a table that takes as long as one more factor does
Terms = OrderedDict[frozenset[str], list[Tensor]]  # by plate symbols, packed


@dataclass(frozen=True)
class SumPlan:
    """Cost of the sums over latents.

    Args:
        unrolled: plates whose entries are latents of their own.
        latents: how many latents the largest table is of; entries: its size.
        most: entries that it may have.
        crossed: plates that keep the sums apart; none where they can be taken.
    """

    unrolled: frozenset[str] = frozenset()
    latents: int = 0
    entries: int = 0
    most: int = MOST_ENTRIES
    crossed: frozenset[str] = frozenset()

    @property
    def is_ordered(self) -> bool:
        """Tell whether the order matters in which latents are summed out."""
        return bool(self.unrolled) or self.latents > 4

    @property
    def is_too_large(self) -> bool:
        """Tell whether the largest table is one of many latents, and does not fit."""
        return self.latents > 2 and self.entries > self.most

    def refusal(self, latents: str) -> str:
        """Why the sums over latents of these names cannot be taken, and what to do."""
        remedy = (
            "observe fewer pairs (NaN where there is none), or take an engine that draws latents,"
            " SVI with a guide of your own"
        )
        if self.crossed:
            crossed = " and ".join(map(repr, sorted(self.crossed)))
            return (
                f"the sums over {latents} cannot be taken: data in the crossed plates {crossed}"
                " depend on latents in each of them, and neither is small enough to sum over all"
                f" its entries jointly: {remedy}"
            )
        return (
            f"the sums over {latents} are too large: {self.latents} latents depend on each other"
            f" jointly (tree width {self.latents - 1}), a table of {self.entries:,} entries, where"
            f" at most {self.most:,} were expected: {remedy}"
        )


@dataclass
class Unrolled:
    """Latents and factors of plates, one for each entry of the plate.

    Args:
        plates: their symbols; sizes: of all symbols.
        latents: symbol of a latent -> the plates among them that it stands in.
        symbols: (symbol of a latent, entries of its plates) -> symbol of that latent alone.
    """

    plates: tuple[str, ...]
    sizes: Mapping[str, int]
    latents: Mapping[str, tuple[str, ...]]
    symbols: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, plates: Collection[str], sizes: Mapping[str, int], stands: Mapping[str, frozenset[str]]
    ) -> Unrolled:
        """Unrolled plates.

        Args:
            plates: symbols; sizes: of all symbols.
            stands: symbol of a latent -> symbols of its plates.
        """
        ordered = tuple(sorted(plates))
        latents = {
            symbol: inside
            for symbol, around in stands.items()
            if (inside := tuple(plate for plate in ordered if plate in around))
        }
        new = cls(ordered, sizes, latents)
        fresh = (s for s in map(chr, itertools.count(FIRST_SYMBOL)) if s not in sizes)
        for symbol, inside in latents.items():
            for entry in itertools.product(*(range(sizes[plate]) for plate in inside)):
                new.symbols[symbol, entry] = next(fresh)
        return new

    @property
    def all_sizes(self) -> dict[str, int]:
        """Sizes of all symbols, those of single latents too."""
        return {**self.sizes, **{new: self.sizes[old] for (old, _), new in self.symbols.items()}}

    def alone(self, latents: Collection[str]) -> set[str]:
        """Symbols of latents, of unrolled plates those of single ones."""
        return {*latents} - self.latents.keys() | {*self.symbols.values()}

    def split(self, tree: Terms, seen: Mapping[int, Tensor]) -> Terms:
        """Factors of every entry.

        Args:
            tree: packed factors by plates.
            seen: by the id of a factor, whether its entries add anything, packed; all where absent.
        """
        out: Terms = OrderedDict()
        for ordinal, terms in tree.items():
            inside = tuple(plate for plate in self.plates if plate in ordinal)
            to = out.setdefault(ordinal - set(inside), [])
            for term in terms:
                for entry in itertools.product(*(range(self.sizes[plate]) for plate in inside)):
                    at = dict(zip(inside, entry, strict=True))
                    if id(term) not in seen or bool(_at(seen[id(term)], at).any()):
                        to.append(self._renamed(_at(term, at), at))
        return OrderedDict((ordinal, terms) for ordinal, terms in out.items() if terms)

    def _renamed(self, term: Tensor, at: Mapping[str, int]) -> Tensor:
        dims = "".join(
            self.symbols[s, tuple(at[plate] for plate in self.latents[s])]
            if s in self.latents
            else s
            for s in dims_of(term)
        )
        return with_dims(term, dims)


def dims_of(term: Tensor) -> str:
    """Symbols of the dims of a packed factor."""
    return cast(str, term._pyro_dims)  # type: ignore[attr-defined]


def with_dims(term: Tensor, dims: str) -> Tensor:
    """A packed factor."""
    term._pyro_dims = dims  # type: ignore[attr-defined]
    return term


def _at(term: Tensor, at: Mapping[str, int]) -> Tensor:
    """A packed factor at entries of plates."""
    dims = dims_of(term)
    index = tuple(at.get(symbol, slice(None)) for symbol in dims)
    return with_dims(term[index], "".join(symbol for symbol in dims if symbol not in at))


class DirectRing(LogRing):
    """Sums of log-densities in which those that share no latent to sum out are added as they are.

    Pyro takes their exponentials, and the logarithm of the product.
    """

    def sumproduct(self, terms: Sequence[Tensor], dims: Collection[str]) -> Tensor:
        if any(set(dims) & set(dims_of(term)) for term in terms):
            total: Tensor = super().sumproduct(terms, dims)  # type: ignore[no-untyped-call]
            return total
        if len(terms) == 1:
            return terms[0]
        first, *others = packed.broadcast_all(*terms)
        total = sum(others, first)
        total._pyro_dims = first._pyro_dims  # type: ignore[attr-defined]
        return total


class OrderedRing(DirectRing):
    """Sums of log-densities, latents summed out one by one in a greedy order."""

    def sumproduct(self, terms: Sequence[Tensor], dims: Collection[str]) -> Tensor:
        terms = list(terms)
        order, *_ = elimination_order(map(dims_of, terms), dims, self._dim_to_size)
        for symbol in order:
            near = [term for term in terms if symbol in dims_of(term)]
            terms = [term for term in terms if symbol not in dims_of(term)]
            terms.append(super().sumproduct(near, {symbol}))
        return super().sumproduct(terms, set())


class MaxRing(OrderedRing):
    """Maxima of log-densities over latents, taken one by one in a greedy order."""

    _backend = MapRing._backend


def elimination_order(
    factors: Iterable[Collection[str]], latents: Collection[str], sizes: Mapping[str, int]
) -> tuple[list[str], int, int]:
    """Greedy order of summing out, with how many symbols and entries the largest table has.

    Args:
        factors: symbols of each; latents: those to be summed out; sizes: of all.
    """
    near: dict[str, set[str]] = {symbol: set() for symbol in latents}
    for factor in map(set, factors):
        for symbol in factor & near.keys():
            near[symbol] |= factor
    cost = {symbol: math.prod(sizes.get(s, 1) for s in around) for symbol, around in near.items()}
    order, most, entries = [], 0, 1
    while cost:
        symbol = min(cost, key=cost.__getitem__)
        around = near.pop(symbol) | {symbol}
        order.append(symbol)
        if cost.pop(symbol) >= entries:
            most, entries = len(around), math.prod(sizes.get(s, 1) for s in around)
        for other in around & near.keys():
            near[other] = (near[other] | around) - {symbol}
            cost[other] = math.prod(sizes.get(s, 1) for s in near[other] | {other})
    return order, most, entries


def plan_of(tree: Terms, latents: Collection[str], sizes: Mapping[str, int]) -> SumPlan:
    """Cost of the sums over latents, or the crossed plates that keep them apart.

    Args:
        tree: packed factors by plates; latents: symbols that are summed over; sizes: of all.
    """
    factors = [(ordinal, frozenset(dims_of(t))) for ordinal, terms in tree.items() for t in terms]
    plan = SumPlan(most=min(MOST_ENTRIES, MOST_WORK // max(1, len(factors))))
    for component in _connected(factors, latents):
        plan = _costlier(plan, _plan_of_component(component, latents, sizes))
        if plan.crossed:
            break
    return plan


Factor = tuple[frozenset[str], frozenset[str]]  # plates, and symbols of dims


def _plan_of_component(
    factors: list[Factor], latents: Collection[str], sizes: Mapping[str, int]
) -> SumPlan:
    """Cost of the sums over latents that hang together, from the innermost plates outwards."""
    root, plan = frozenset.intersection(*(ordinal for ordinal, _ in factors)), SumPlan()
    stands: dict[str, frozenset[str]] = {}
    for ordinal, dims in factors:
        for symbol in dims.intersection(latents):
            stands[symbol] = stands.get(symbol, ordinal) & ordinal
    while any(dims.intersection(latents) for _, dims in factors):
        leaf = max((ordinal for ordinal, _ in factors), key=len)
        inner = {symbol for symbol, ordinal in stands.items() if ordinal == leaf}
        inside = [factor for factor in factors if factor[0] == leaf]
        factors = [factor for factor in factors if factor[0] != leaf]
        for part in _connected(inside, inner):
            here = inner.intersection(*[frozenset[str]().union(*(dims for _, dims in part))])
            every = frozenset[str]().union(*(dims for _, dims in part))
            _, most, entries = elimination_order([dims for _, dims in part], here, sizes)
            outer = every - here - leaf
            if not here:
                most, entries = len(every), math.prod(sizes.get(s, 1) for s in every)
            plan = _costlier(plan, SumPlan(latents=most - len(every & leaf), entries=entries))
            left = outer.intersection(latents)
            parent = root if leaf == root else root.union(*(stands[symbol] for symbol in left))
            if leaf != root and not parent < leaf:
                return SumPlan(crossed=leaf - root)
            factors.append((parent, every - here - (leaf - parent)))
        if leaf == root:
            break
    return plan


def _costlier(plan: SumPlan, other: SumPlan) -> SumPlan:
    costlier = other if other.crossed or other.entries > plan.entries else plan
    return replace(costlier, most=plan.most)


def _connected(factors: Sequence[Factor], latents: Collection[str]) -> list[list[Factor]]:
    """Groups of factors that share latents."""
    groups: list[tuple[set[str], list[Factor]]] = []
    for factor in factors:
        symbols, together = set(factor[1].intersection(latents)), [factor]
        for group in [group for group in groups if group[0] & symbols]:
            groups.remove(group)
            symbols |= group[0]
            together = group[1] + together
        groups.append((symbols, together))
    return [together for _, together in groups]


def best_plan(
    tree: Terms,
    seen: Mapping[int, Tensor],
    stands: Mapping[str, frozenset[str]],
    sizes: Mapping[str, int],
) -> SumPlan:
    """The sums over latents that cost least: plates as they are, else some of them unrolled.

    Args:
        tree: packed factors by plates; seen: see :meth:`Unrolled.split`.
        stands: symbol of a latent -> symbols of its plates; sizes: of all symbols.
    """
    plain = plan_of(tree, stands, sizes)
    if not plain.crossed:
        return plain
    best, least = plain, math.inf
    plates = sorted(plain.crossed)
    for number in range(1, len(plates) + 1):
        for chosen in itertools.combinations(plates, number):
            if math.prod(sizes[plate] for plate in chosen) > MOST_FACTORS:
                continue
            unrolled = Unrolled.of(chosen, sizes, stands)
            parts = unrolled.split(tree, seen)
            plan = plan_of(parts, unrolled.alone(stands), unrolled.all_sizes)
            cost = plan.entries + ENTRIES_OF_FACTOR * sum(map(len, parts.values()))
            if not plan.crossed and cost < least:
                best = replace(plan, unrolled=frozenset(chosen))
                least = cost
    return best
