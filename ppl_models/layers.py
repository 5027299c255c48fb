"""How a family describes its own structure, so that engines can use it without knowing the family.

A description is derived from the same fields as the program and never holds a fitted number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from ppl_models.penalties import Penalty
    from ppl_models.responses import ResponseFamily

__all__ = ["GeneralizedLinearLayer", "RootLayer"]


@dataclass(frozen=True, eq=False)
class GeneralizedLinearLayer:
    r"""One layer ``child_j | parent ~ response(eta_j, dispersion_j)``, ``eta = intercepts + loadings @ parent``.

    The parent is a binary vector; the child is the observed item vector or the binary vector of the layer below
    (then ``response`` is Bernoulli with a logit link).

    Args:
        loadings: name of the site with the loadings W, shape (num_children, num_parents).
        intercepts: name of the site with the intercepts b, shape (num_children,).
        parent: name of the binary latent site above, event shape (num_parents,).
        child: name of the site below, event shape (num_children,).
        num_children, num_parents: the two sizes.
        response: the family of the child given its predictor.
        dispersion: name of the dispersion site, shape (response.num_dispersed(num_children),), or None.
        penalty: the sparsity prior of the loadings, None for a flat one.
        graph: bool (num_children, num_parents), True where a loading is free; None when all are.
        bound: intercepts and loadings lie in [-bound, bound].
        item_bounds: the same child by child, num_children of them, where they differ (``bound`` is then the widest).
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
