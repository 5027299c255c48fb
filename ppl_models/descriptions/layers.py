"""Descriptions of layered models, so that engines need not know the family.

A description is derived from the same fields as the program and never holds a fitted number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor

from ppl_models.parts.blocks import Blocks
from ppl_models.parts.distributions import BinaryVector
from ppl_models.parts.responses import ResponseFamily, sizes

if TYPE_CHECKING:
    from ppl_models.parts.item_curves import CurvedItems
    from ppl_models.parts.monotone import MonotoneItems
    from ppl_models.parts.penalties import Penalty


Params = dict[str, Tensor]
FAINT = 0.05  # of the unit of the predictors: an effect that is next to none
PROPORTION_LIMIT = 1e-6  # estimated proportions stay so far from 0 and 1
START_RANGE = (0.05, 0.95)  # of a proportion at the start


def products(bits: Tensor, terms: Tensor, disjunctive: Tensor | None = None) -> Tensor:
    """Products of 0/1 entries over each subset, as one matrix product; or disjunctions.

    Args:
        bits: (..., K), 0 or 1.
        terms: bool (T, K), the members of each subset.
        disjunctive: bool (T,), True where one member of a subset is enough; None where all are
            needed everywhere.

    Returns:
        (..., T), 0 or 1.
    """
    members = terms.to(bits)
    needed = members.sum(-1)
    if disjunctive is not None:
        needed = needed.masked_fill(disjunctive.to(bits.device), 1.0)
    return (bits @ members.mT > needed - 0.5).to(bits.dtype)


@dataclass(frozen=True)
class PredictorPrior:
    r"""Weak normal prior of every child's predictor, not of single coefficients.

    The predictor is :math:`\eta_j(a) = b_j + W_j \cdot h(a)`.

    Over the configurations a of the parents, each as likely as any other, the predictor has the
    mean :math:`m_j = b_j + W_j \cdot \mu` and the variance :math:`W_j^\top \Sigma W_j`, with
    :math:`\mu = E\,h(a)` and :math:`\Sigma = \mathrm{Cov}\,h(a)`. The prior density is proportional
    to

    .. math:: \exp\Big( -\frac{m_j^2}{2 s_j^2} - \frac{4\, W_j^\top \Sigma W_j}{2 u_j^2} \Big),

    so :math:`W_j \sim N(0, (4\Sigma/u_j^2)^{-1})` and :math:`b_j \mid W_j \sim N(-W_j \cdot \mu,
    s_j^2)`. Where h(a) = a that is :math:`W_{jk} \sim N(0, u_j^2)`, independent, and :math:`b_j
    \mid W_j \sim N(-\sum_k W_{jk} / 2, s_j^2)`. Neither mean nor variance over configurations knows
    which latent is which, or which of its two values is called 1: the density is the same under
    every renaming of latents, as the likelihood is.

    Args:
        level: s, one a child: standard deviation of the mean predictor.
        effect: u, one a child: standard deviation of a latent's effect on the predictor.
    """

    level: tuple[float, ...]
    effect: tuple[float, ...]

    @classmethod
    def of(cls, response: ResponseFamily, num_children: int) -> PredictorPrior:
        """Default prior scales of each child's family, for predictors linear in their parents."""
        scales: list[tuple[float, float]] = []
        for family, columns, _ in response.blocks(num_children):
            scales += [family.prior_scales] * family.num_linear(columns.stop - columns.start)
        return cls(tuple(level for level, _ in scales), tuple(effect for _, effect in scales))


@dataclass(frozen=True)
class LayerPart:
    """Part of a layer: consecutive items of one family, and their positions.

    Args:
        family: of the items; items: their columns in the data.
        rows: of the loadings and intercepts, one an item, but C - 1 of an item of C categories
            without an order.
        statistics: in the vector of statistics; dispersion, thresholds: in these vectors.
    """

    family: ResponseFamily
    items: slice
    rows: slice
    statistics: slice
    dispersion: slice
    thresholds: slice

    @cached_property
    def num_items(self) -> int:
        return self.items.stop - self.items.start

    @cached_property
    def tabled(self) -> bool:
        """Tell whether the items are categorical, with a statistic of their own."""
        return bool(self.family.category_names(self.num_items))


@lru_cache(maxsize=256)
def _parts(response: ResponseFamily, num_items: int) -> tuple[LayerPart, ...]:
    out, row, gap = [], 0, 0
    families = zip(response.blocks(num_items), response.predictors(num_items), strict=True)
    for (family, items, dispersion), statistics in families:
        size = items.stop - items.start
        rows = slice(row, row + family.num_linear(size))
        gaps = slice(gap, gap + family.num_thresholds(size))
        out.append(LayerPart(family, items, rows, statistics, dispersion, gaps))
        row, gap = rows.stop, gaps.stop
    return tuple(out)


def _places(parts: Sequence[LayerPart]) -> tuple[list[int], list[int], list[int]]:
    """Child, statistic and item numbers of some parts."""
    slices = [
        [part.rows for part in parts],
        [part.statistics for part in parts],
        [part.items for part in parts],
    ]
    rows, entries, items = (
        [i for own in each for i in range(own.start, own.stop)] for each in slices
    )
    return rows, entries, items


@dataclass(frozen=True, eq=False)
class GeneralizedLinearLayer:
    """Generalised-linear layer ``child_j | parent ~ response(eta_j, dispersion_j)``.

    ``eta = intercepts + loadings @ features``.

    The features are the entries of the parent, or products of some of them (``terms``). The parent
    is a binary vector; the child is the observed item vector or the binary vector of the layer
    below (then ``response`` is Bernoulli with a logit link). A child here is a predictor: of an
    item of C categories without an order there are C - 1, which all have its edges.

    Args:
        loadings: name of the site with the loadings W, shape (num_children, num_features).
        intercepts: name of the site with the intercepts b, shape (num_children,).
        parent: name of the binary latent site above, event shape (num_parents,).
        child: name of the site below, event shape (num_children,).
        num_children, num_parents: the two sizes.
        response: the family of the child given its predictor.
        dispersion: name of the dispersion site, shape (response.num_dispersed(num_children),), or
            None.
        penalty: the sparsity prior of the loadings, None for a flat one.
        graph: bool (num_children, num_features), True where a loading is free; None when all are.
        bound: intercepts and loadings lie in [-bound, bound].
        item_bounds: the same child by child, num_children of them, where they differ (``bound`` is
            then the widest).
        terms: bool (num_features, num_parents), the parents whose product each feature is; None
            where the features are the parents themselves.
        disjunctive: bool (num_features,), True where a feature is 1 as soon as one of its parents
            is; None for products only.
        curved: children whose coefficients of all products follow from their intercept and the
            loadings of single parents.
        rising: children that no parent lowers; all that are not curved, or none.
        prior: a normal prior of the predictors, in whose place the interval is the whole line; None
            for none. Curved children have that of their curve then.
        estimated: whether ``graph`` was read off data: the distribution that it was chosen in has
            all edges, and does not know the latents by their names.
        every_child: whether a graph that is estimated leaves every child an edge; latents keep one
            in any case.
        items: how many observed items there are, where some have several predictors; None where
            each child is one.
        thresholds: name of the site with what lies between the categories of ordinal items, shape
            (response.num_thresholds(items),), or None.
    """

    loadings: str
    intercepts: str
    parent: str
    child: str
    num_children: int
    num_parents: int
    response: ResponseFamily
    dispersion: str | None
    penalty: Penalty | None
    graph: Tensor | None
    bound: float
    item_bounds: tuple[float, ...] | None = None
    terms: Tensor | None = None
    disjunctive: Tensor | None = None
    curved: tuple[CurvedItems, ...] = ()
    rising: tuple[MonotoneItems, ...] = ()
    prior: PredictorPrior | None = None
    estimated: bool = False
    every_child: bool = False
    items: int | None = None
    thresholds: str | None = None

    @cached_property
    def memory(self) -> dict[Any, Any]:
        """Values made of this layer alone by its users, by name, so that each is made once."""
        return {}

    @cached_property
    def num_items(self) -> int:
        """Number of items of the response family."""
        return self.num_children if self.items is None else self.items

    def parts(self) -> list[LayerPart]:
        """Parts of the items by family, from left to right."""
        return list(_parts(self.response, self.num_items))

    @cached_property
    def tabled(self) -> bool:
        """Tell whether there are categorical items among the children."""
        return any(part.tabled for part in self.parts())

    def without_categories(
        self,
    ) -> tuple[GeneralizedLinearLayer, list[int], list[int], list[int]] | None:
        """Layer of the items without tables; numbers of their children, statistics, items."""
        parts = [part for part in self.parts() if not part.tabled]
        if not parts:
            return None
        rows, entries, items = _places(parts)
        if len(items) == self.num_items:
            return self, rows, entries, items
        prior = self.prior
        if prior is not None:
            prior = replace(
                prior,
                level=tuple(prior.level[i] for i in rows),
                effect=tuple(prior.effect[i] for i in rows),
            )
        if len(parts) == 1:
            response = parts[0].family
        else:
            response = Blocks(*((part.family, part.num_items) for part in parts))
        own = replace(
            self,
            num_children=len(rows),
            items=None,
            thresholds=None,
            response=response,
            dispersion=self.dispersion if response.num_dispersed(len(items)) else None,
            graph=None if self.graph is None else self.graph[..., rows, :],
            item_bounds=(
                None if self.item_bounds is None else tuple(self.item_bounds[i] for i in rows)
            ),
            prior=prior,
        )
        return own, rows, entries, items

    def item_of(self) -> list[int]:
        """Item number of each child, (num_children,)."""
        out = []
        for part in self.parts():
            for j in range(part.num_items):
                if part.rows.stop - part.rows.start == part.num_items:
                    rows = 1
                else:
                    rows = part.family.item(j).num_linear(1)
                out += [part.items.start + j] * rows
        return out

    def by_item(self, values: Tensor) -> Tensor:
        """Item mask (items, ...) of a child mask (num_children, ...): true where any child is."""
        if self.items is None:
            return values
        index = torch.tensor(self.item_of(), device=values.device)
        return (
            values.new_zeros(self.items, *values.shape[1:], dtype=torch.long).index_add_(
                0, index, values.long()
            )
            > 0
        )

    def by_child(self, values: Tensor) -> Tensor:
        """Values of each child (num_children, ...) from values of the items (items, ...)."""
        if self.items is None:
            return values
        return values[torch.tensor(self.item_of(), device=values.device)]

    @cached_property
    def num_features(self) -> int:
        """Number of columns of the loadings: parents, or products with a coefficient."""
        return self.num_parents if self.terms is None else len(self.terms)

    def features(self, parents: Tensor) -> Tensor:
        """Features (..., num_features) of 0/1 parents (..., num_parents)."""
        return parents if self.terms is None else products(parents, self.terms, self.disjunctive)

    def coefficients(self, intercepts: Tensor, loadings: Tensor) -> tuple[Tensor, Tensor]:
        """Predictor coefficients (..., num_children) and (..., num_children, num_features)."""
        if not self.curved:
            return intercepts, loadings
        intercepts, loadings = intercepts.clone(), loadings.clone()
        for group in self.curved:
            own = group.coefficients(group.own(intercepts, loadings))
            intercepts[..., group.items] = own[..., 0]
            loadings[..., group.items.unsqueeze(-1), group.columns] = own[..., 1:]
        return intercepts, loadings

    @cached_property
    def edges(self) -> Tensor | None:
        """Edges, bool (num_children, num_parents); None where the graph is not given."""
        if self.terms is None or self.graph is None:
            return self.graph
        return (self.graph.double() @ self.terms.double()) > 0

    @cached_property
    def item_edges(self) -> Tensor | None:
        """Edges of the items, bool (num_items, num_parents); None if not given."""
        edges = self.edges
        return None if edges is None else self.by_item(edges)

    @cached_property
    def form(self) -> Literal["additive", "dina", "gdm"]:
        """Form of the dependence on parents: main effects, conjunction, or interactions."""
        if self.terms is None or self.graph is None:
            return "additive"
        return "dina" if bool((self.graph.sum(-1) == 1).all()) else "gdm"

    def unit(self, params: Mapping[str, Tensor]) -> float:
        """Unit of the predictors: 1 of log-odds and logarithms, a standard deviation of noise.

        Of normal items the smallest standard deviation; where there are others too, at most 1.
        """
        if self.dispersion is None or self.dispersion not in params:
            return 1.0
        variances = torch.as_tensor(params[self.dispersion])[
            ~sizes(self.response, self.num_items)
        ].cpu()
        noise = variances.sqrt().tolist()
        return float(min(noise if len(noise) == self.num_items else [1.0, *noise]))

    def effects(self, loadings: Tensor) -> Tensor:
        """Average effect of each parent on the predictor, (..., children, parents)."""
        if self.terms is None:
            return loadings
        # of either kind
        share = self.terms.to(loadings) * 0.5 ** (self.terms.sum(-1, keepdim=True) - 1).to(loadings)
        return loadings @ share

    def centre(self, like: Tensor) -> Tensor:
        """Mean of the features over all configurations of the parents, (num_features,)."""
        if self.terms is None:
            return like.new_full((self.num_features,), 0.5)
        chance = 0.5 ** self.terms.sum(-1).to(like)
        if self.disjunctive is None:
            return chance
        return torch.where(self.disjunctive.to(like.device), 1 - chance, chance)

    def spread(self, like: Tensor) -> Tensor:
        """Covariance of the features times four, the identity where features are parents."""
        if self.terms is None:
            return torch.eye(self.num_features, dtype=like.dtype, device=like.device)
        members = self.terms.to(like)
        sizes, shared = members.sum(-1), members @ members.mT
        # the product of the chances that all members are 1, or that all are 0
        apart = 0.5 ** (sizes[:, None] + sizes)
        alike = 0.5 ** (sizes[:, None] + sizes - shared) - apart
        if self.disjunctive is None:
            return 4 * alike
        either = self.disjunctive.to(like.device)
        return 4 * torch.where(either[:, None] == either, alike, apart * (shared > 0))

    def precision(self, columns: slice, like: Tensor) -> Tensor | None:
        """Prior precision of (intercept, loadings) of children of one family."""
        if self.prior is None:
            return None
        centre = torch.cat([like.new_ones(1), self.centre(like)])
        out = torch.outer(centre, centre) / self.prior.level[columns.start] ** 2
        out[1:, 1:] += self.spread(like) / self.prior.effect[columns.start] ** 2
        return out

    def bounds(self, like: Tensor) -> Tensor:
        """Half-width of each child's interval, (num_children,), typed like ``like``."""
        own = (self.bound,) * self.num_children if self.item_bounds is None else self.item_bounds
        return like.new_tensor(own)

    def block_bound(self, columns: slice) -> float:
        """Half-width of the interval of consecutive children of one family."""
        return self.bound if self.item_bounds is None else self.item_bounds[columns.start]


class Root(Protocol):
    """Distribution of the deepest latents, K bits: a protocol for engines.

    Parameters are by site name and may hold more than the root's own sites; unless said otherwise
    they have a leading dim of R restarts. The program draws the latents from the same distribution
    as one enumerated site.
    """

    @property
    def latent(self) -> str:
        """Name of the site of the latents, event shape (K,)."""
        ...

    @property
    def num_latents(self) -> int:
        """Number of latents, K."""
        ...

    @property
    def num_free(self) -> int:
        """Number of free parameters."""
        ...

    @property
    def renamable(self) -> bool:
        """Tell whether the latents may exchange names."""
        ...

    @property
    def flippable(self) -> bool:
        """Tell whether the two values of a latent may exchange names."""
        ...

    @property
    def profiles(self) -> Tensor | None:
        """Allowed profiles (C, K) of 0/1 in lexicographic order; None where all 2^K are."""
        ...

    @property
    def equation(self) -> str:
        """Distribution in symbols for a page; with ``_k`` where latents are independent."""
        ...

    def sites(self) -> dict[str, tuple[int, ...]]:
        """Parameter sites and their shapes, without restarts."""
        ...

    def distribution(self, params: Mapping[str, Tensor]) -> TorchDistribution:
        """Distribution of the latents as one enumerable site, for parameters (..., K)."""
        ...

    def start(self, latents: Tensor) -> Params:
        """Starting parameters, (1, ...), from guessed latents, (N, K)."""
        ...

    def uniform(self, like: Tensor) -> Params:
        """Parameters (1, ...) of the uniform distribution, dtype and device of ``like``."""
        ...

    def marginals(self, params: Mapping[str, Tensor]) -> Tensor:
        """Marginal P(latent = 1), (..., K), for parameters with any leading dims."""
        ...

    def draw(self, params: Params, uniform: Tensor) -> Tensor:
        """Draw latents (R, K, N) by as many uniform numbers."""
        ...

    def log_odds(self, params: Params, k: int, latents: Tensor) -> Tensor:
        """Log-odds (R, N) of latent k given the others (R, K, N), (R, 1) if these do not matter.

        The others may be of another floating-point type than the parameters.
        """
        ...

    def expected(self, configurations: Tensor, counts: Tensor, params: Params) -> Tensor:
        """Expected sufficient statistic of :meth:`maximise`, (R, S), a sum over rows.

        Args:
            configurations: (C, K), 0/1.
            counts: expected rows in each, (R, C).
            params: under which the rows are expected, for a distribution with latents of its own.
        """
        ...

    def drawn(self, latents: Tensor, chances: Tensor, scale: float, params: Params) -> Tensor:
        """Sufficient statistic of drawn latents, (R, S), to be averaged over draws.

        Args:
            latents: (R, K, N), 0/1; chances: P(latent = 1 | all else) as each was drawn, (R, K, N).
            scale: weight of a row.
            params: under which they were drawn.
        """
        ...

    def maximise(self, statistic: Tensor, params: Params) -> Params:
        """Maximise the expected complete-data log-posterior over the root's sites.

        The result is at least as good as ``params``.
        """
        ...

    def rename(
        self, params: Mapping[str, Tensor], permutation: Tensor | None, flips: Tensor | None
    ) -> Params:
        """Rename the latents in the root's sites, for parameters with any leading dims.

        Args:
            permutation: (K,) long, new latent l is old latent ``permutation[l]``; None where they
                stay.
            flips: (K,) bool in the new order, whose values change names; None for none.
        """
        ...


@dataclass(frozen=True)
class RootLayer:
    """Deepest layer: independent ``latent_k ~ Bernoulli(proportions_k)``, flat prior.

    A :class:`Root`.

    Args:
        proportions: name of the site with the proportions, shape (num_latents,).
        latent: name of the binary latent site, event shape (num_latents,).
        num_latents: its size.
    """

    proportions: str
    latent: str
    num_latents: int
    renamable = True
    flippable = True
    profiles = None
    equation = "Bernoulli(π_k)"

    @property
    def num_free(self) -> int:
        return self.num_latents

    def sites(self) -> dict[str, tuple[int, ...]]:
        return {self.proportions: (self.num_latents,)}

    def distribution(self, params: Mapping[str, Tensor]) -> TorchDistribution:
        return BinaryVector(torch.logit(params[self.proportions]))

    def start(self, latents: Tensor) -> Params:
        return {self.proportions: latents.mean(0).clamp(*START_RANGE).unsqueeze(0)}

    def uniform(self, like: Tensor) -> Params:
        return {self.proportions: like.new_full((1, self.num_latents), 0.5)}

    def marginals(self, params: Mapping[str, Tensor]) -> Tensor:
        return params[self.proportions]

    def draw(self, params: Params, uniform: Tensor) -> Tensor:
        # as a sweep would have them
        chances = torch.sigmoid(torch.logit(params[self.proportions])).unsqueeze(-1)
        return (uniform < chances).to(chances.dtype)

    def log_odds(self, params: Params, k: int, latents: Tensor) -> Tensor:
        return torch.logit(params[self.proportions][:, k, None])

    def expected(self, configurations: Tensor, counts: Tensor, params: Params) -> Tensor:
        """Counts of rows, and of rows with each latent on, (R, 1 + K)."""
        return torch.cat([counts.sum(-1, keepdim=True), counts @ configurations], -1)

    def drawn(self, latents: Tensor, chances: Tensor, scale: float, params: Params) -> Tensor:
        """Statistic of a draw: weight 1, and the mean probability of each latent."""
        share = chances.mean(-1)
        return torch.cat([torch.ones_like(share[:, :1]), share], -1)

    def maximise(self, statistic: Tensor, params: Params) -> Params:
        share = statistic[:, 1:] / statistic[:, :1]
        return {self.proportions: share.clamp(PROPORTION_LIMIT, 1 - PROPORTION_LIMIT)}

    def rename(
        self, params: Mapping[str, Tensor], permutation: Tensor | None, flips: Tensor | None
    ) -> Params:
        share = params[self.proportions]
        share = share if permutation is None else share.index_select(-1, permutation)
        return {self.proportions: share if flips is None else torch.where(flips, 1 - share, share)}
