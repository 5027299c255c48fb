"""How a family describes its own structure, so that engines can use it without knowing the family.

A description is derived from the same fields as the program and never holds a fitted number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torch import Tensor

if TYPE_CHECKING:
    from ppl_models.parts.penalties import Penalty
    from ppl_models.parts.responses import ResponseFamily

__all__ = ["GeneralizedLinearLayer", "RootLayer", "products"]


def products(bits: Tensor, terms: Tensor) -> Tensor:
    """The product of 0/1 entries over each subset, as one matrix product.

    Args:
        bits: (..., K), 0 or 1.
        terms: bool (T, K), the members of each subset.

    Returns:
        (..., T), 0 or 1.
    """
    members = terms.to(bits)
    return (bits @ members.mT > members.sum(-1) - 0.5).to(bits.dtype)


@dataclass(frozen=True, eq=False)
class GeneralizedLinearLayer:
    r"""One layer ``child_j | parent ~ response(eta_j, dispersion_j)``, ``eta = intercepts + loadings @ features``.

    The features are the entries of the parent, or products of some of them (``terms``). The parent is a binary vector; the child is the observed item vector or the binary vector of the layer below
    (then ``response`` is Bernoulli with a logit link).

    Args:
        loadings: name of the site with the loadings W, shape (num_children, num_features).
        intercepts: name of the site with the intercepts b, shape (num_children,).
        parent: name of the binary latent site above, event shape (num_parents,).
        child: name of the site below, event shape (num_children,).
        num_children, num_parents: the two sizes.
        response: the family of the child given its predictor.
        dispersion: name of the dispersion site, shape (response.num_dispersed(num_children),), or None.
        penalty: the sparsity prior of the loadings, None for a flat one.
        graph: bool (num_children, num_features), True where a loading is free; None when all are.
        bound: intercepts and loadings lie in [-bound, bound].
        item_bounds: the same child by child, num_children of them, where they differ (``bound`` is then the widest).
        terms: bool (num_features, num_parents), the parents whose product each feature is; None where the features are
            the parents themselves.
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

    @property
    def num_features(self) -> int:
        """Columns of the loadings: the parents, or the products of them that have a coefficient."""
        return self.num_parents if self.terms is None else len(self.terms)

    def features(self, parents: Tensor) -> Tensor:
        """What the predictor is linear in, (..., num_features), of 0/1 parents (..., num_parents)."""
        return parents if self.terms is None else products(parents, self.terms)

    @property
    def edges(self) -> Tensor | None:
        """bool (num_children, num_parents), True where a child depends on a parent; None where that is not given."""
        if self.terms is None or self.graph is None:
            return self.graph
        return (self.graph.double() @ self.terms.double()) > 0

    @property
    def form(self) -> Literal["additive", "dina", "gdm"]:
        """How children depend on their parents: each alone, all together, or through interactions."""
        if self.terms is None or self.graph is None:
            return "additive"
        return "dina" if bool((self.graph.sum(-1) == 1).all()) else "gdm"

    def effects(self, loadings: Tensor) -> Tensor:
        """The change of the predictor with a parent, averaged over the others' values, (..., children, parents)."""
        if self.terms is None:
            return loadings
        share = self.terms.to(loadings) * 0.5 ** (self.terms.sum(-1, keepdim=True) - 1).to(loadings)
        return loadings @ share

    def bounds(self, like: Tensor) -> Tensor:
        """The half-width child by child, (num_children,), of the dtype and device of ``like``."""
        own = (self.bound,) * self.num_children if self.item_bounds is None else self.item_bounds
        return like.new_tensor(own)

    def block_bound(self, columns: slice) -> float:
        """The half-width of consecutive children of one family."""
        return self.bound if self.item_bounds is None else self.item_bounds[columns.start]


@dataclass(frozen=True)
class RootLayer:
    """The deepest layer: ``latent_k ~ Bernoulli(proportions_k)``, independent.

    Args:
        proportions: name of the site with the proportions, shape (num_latents,).
        latent: name of the binary latent site, event shape (num_latents,).
        num_latents: its size.
    """

    proportions: str
    latent: str
    num_latents: int
