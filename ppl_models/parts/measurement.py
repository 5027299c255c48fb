r"""Measurement models: main effects, conjunction, disjunction, or all interactions.

With :math:`Q` the graph of the bottom layer (a Q-matrix; item j asks for the attributes
:math:`\mathrm{pa}(j)`), the predictor of an item is linear in products of its attributes,

.. math:: \eta_j(a) = b_j + \sum_{S \in \mathcal{S}_j} W_{jS} \prod_{k \in S} a_k,

and a bottom layer is a choice of the families of subsets :math:`\mathcal{S}_j`. Column S of the
loadings belongs to the same product in every item that uses it. A disjunctive item has :math:`1 -
\prod_{k \in S} (1 - a_k)` in the place of its product.

Where the distribution of the attributes leaves some profiles out, products of an item may be
linearly dependent over the profiles that there are, and no data tell their coefficients apart. Such
an item keeps as many as it has distinct predictors, less its intercept; the others are fixed at
zero. Under a hierarchy products are dependent where they are equal, and the one with all attributes
that its members need stays: with A before B a saturated item of both has the main effect of A and
the interaction of A and B, which is the effect of B nested in A, and no main effect of B. That is
the hierarchical diagnostic classification model.

Source: J. Templin and L. Bradshaw (2014), doi:10.1007/s11336-013-9362-0 (the nested effects).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ppl_models.parts.validation import check_size, plain_fields

MAX_TERMS = 1024  # coefficients of one item: ten attributes with every interaction
DEPENDENT = 1e-9  # of a column's length, that is left of it beside the columns that it depends on

Subset = tuple[int, ...]


class Layout(NamedTuple):
    """Layout of a layer's products: which items use them.

    Args:
        terms: bool (T, K), the members of each, by size and then in lexicographic order.
        uses: bool (J, T), True where an item has a coefficient of one.
        disjunctive: bool (T,), True where one member is enough; None where all are needed
            everywhere.
    """

    terms: Tensor
    uses: Tensor
    disjunctive: Tensor | None


class Bottom(Protocol):
    """Measurement model of a bottom layer: the products it is linear in."""

    @property
    def disjunctive(self) -> bool:
        """Tell whether one attribute of a subset is enough, in place of their product."""
        ...

    @property
    def curve(self) -> str | None:
        """Constraint on the products' coefficients; None where each is free."""
        ...

    def subsets(self, attributes: Subset) -> list[Subset] | None:
        """Attribute subsets of an item that have a coefficient; None for main effects."""
        ...


@dataclass(frozen=True)
class Additive:
    r"""Main effects, :math:`\eta_j = b_j + \sum_k W_{jk} a_k`; the graph may be unknown."""

    disjunctive = False
    curve = None

    def subsets(self, attributes: Subset) -> list[Subset] | None:
        return None


@dataclass(frozen=True)
class ExpDINA:
    r"""Conjunction: all attributes of an item, or nothing.

    :math:`\eta_j = b_j + W_j \prod_{k \in \mathrm{pa}(j)} a_k`.

    With Bernoulli items it is the DINA model of cognitive diagnosis, with guessing probability
    :math:`g_j = \sigma(b_j)` and slipping probability :math:`s_j = 1 - \sigma(b_j + W_j)`.

    Source: S. Lee and Y. Gu (2025), arXiv:2501.01414, supplement S.1.5; B. W. Junker and K. Sijtsma
    (2001), doi:10.1177/01466210122032064.
    """

    disjunctive = False
    curve = None

    def subsets(self, attributes: Subset) -> list[Subset] | None:
        return [attributes]


@dataclass(frozen=True)
class ExpDINO:
    r"""Disjunction: any attribute of an item is enough.

    :math:`\eta_j = b_j + W_j (1 - \prod_{k \in \mathrm{pa}(j)} (1 - a_k))`.

    With Bernoulli items it is the DINO model, whose attributes are disorders rather than skills.

    Source: J. L. Templin and R. A. Henson (2006), doi:10.1037/1082-989X.11.3.287.
    """

    disjunctive = True
    curve = None

    def subsets(self, attributes: Subset) -> list[Subset] | None:
        return [attributes]


@dataclass(frozen=True)
class ExpGDM:
    r"""General diagnostic model: main effects and interactions of an item's attributes.

    Without ``order`` it is saturated, :math:`2^{|\mathrm{pa}(j)|}` coefficients an item with its
    intercept; ``order=1`` leaves the main effects, ``order=2`` adds the interactions of pairs, and
    so on.

    Args:
        order: attributes in one interaction, at most; None for all.

    Raises:
        ValueError: for an order that is not a positive integer.

    Source: S. Lee and Y. Gu (2025), arXiv:2501.01414, supplement S.1.5; M. von Davier (2008),
    doi:10.1348/000711007X193957; with a logit link it is the LCDM of R. A. Henson, J. L. Templin
    and J. T. Willse (2009), doi:10.1007/s11336-008-9089-5.
    """

    order: int | None = None
    disjunctive = False
    curve = None

    def __post_init__(self) -> None:
        plain_fields(self)
        if self.order is not None:
            check_size("ExpGDM", "order", self.order, wanted="a positive integer or None")

    def subsets(self, attributes: Subset) -> list[Subset] | None:
        size = len(attributes)
        most = size if self.order is None else min(self.order, size)
        count = sum(math.comb(size, members) for members in range(most + 1))
        if count > MAX_TERMS:
            raise ValueError(
                f"{size} attributes make {count:,} coefficients; at most {MAX_TERMS:,} were"
                " expected: give fewer attributes, ExpGDM(order=2), or ExpDINA()"
            )
        return [
            s for members in range(1, most + 1) for s in itertools.combinations(attributes, members)
        ]


def layout(bottom: Bottom, graph: tuple[tuple[int, ...], ...] | None) -> Layout | None:
    """Layout of a layer's products; None for an additive layer.

    Args:
        bottom: the form of the items.
        graph: Q, (J, K) of 0 and 1, or None where it is not known.
    """
    if bottom.subsets((0,)) is None:
        return None
    if graph is None:
        raise ValueError(
            f"bottom={bottom!r} needs the graph of the items: give graphs=(Q, ...) with Q of shape"
            " (items, attributes), 1 where an item asks for an attribute, got None"
        )
    return layout_of_items((bottom,) * len(graph), graph, "graphs[0]")


def layout_of_items(
    bottoms: Sequence[Bottom],
    graph: tuple[tuple[int, ...], ...],
    owner: str,
    profiles: Tensor | None = None,
) -> Layout:
    """Layout of a layer whose items each have a rule of their own.

    Args:
        bottoms: the form of each item, J.
        graph: Q, (J, K) of 0 and 1.
        owner: of the message.
        profiles: the profiles that there are, (C, K) of 0 and 1; None for all. Items without a
            curve use no product that depends on others over these.
    """
    used: list[list[tuple[Subset, bool]]] = []
    for j, (bottom, row) in enumerate(zip(bottoms, graph, strict=True)):
        attributes = tuple(k for k, edge in enumerate(row) if edge)
        if not attributes:
            raise ValueError(
                f"{owner}: item {j} asks for no attribute; at least one was expected with"
                f" {bottom!r}"
            )
        try:
            subsets = bottom.subsets(attributes)
        except ValueError as error:
            raise ValueError(f"{owner}: item {j}: {error}") from None
        subsets = [(k,) for k in attributes] if subsets is None else subsets
        used.append([(subset, bottom.disjunctive and len(subset) > 1) for subset in subsets])
    every = sorted({term for own in used for term in own}, key=lambda term: (len(term[0]), *term))
    place = {term: t for t, term in enumerate(every)}
    if profiles is not None:
        bits = profiles.cpu().numpy() > 0
        kept = {
            tuple(own): _independent(own, bits)
            for bottom, own in zip(bottoms, used, strict=True)
            if bottom.curve is None
        }
        used = [
            kept[tuple(own)] if bottom.curve is None else own
            for bottom, own in zip(bottoms, used, strict=True)
        ]
    terms = torch.zeros(len(every), len(graph[0]), dtype=torch.bool)
    uses = torch.zeros(len(graph), len(every), dtype=torch.bool)
    for t, (subset, _) in enumerate(every):
        terms[t, list(subset)] = True
    for j, own in enumerate(used):
        uses[j, [place[term] for term in own]] = True
    kinds = torch.tensor([is_any for _, is_any in every])
    return Layout(terms, uses, kinds if bool(kinds.any()) else None)


def _independent(
    terms: list[tuple[Subset, bool]], profiles: np.ndarray
) -> list[tuple[Subset, bool]]:
    """Linearly independent features of an item beside the intercept, the largest first.

    Args:
        terms: members, and whether one of them is enough.
        profiles: bool (C, K).
    """
    asked = sorted({k for members, _ in terms for k in members})
    cells = np.unique(profiles[:, asked], axis=0)
    if len(terms) == 1 or len(cells) == 2 ** len(asked):
        return terms
    place = {k: i for i, k in enumerate(asked)}
    basis = np.ones((len(cells), 1)) / math.sqrt(len(cells))
    kept, seen = set(), set()
    for term in sorted(terms, key=lambda term: -len(term[0])):
        own = cells[:, [place[k] for k in term[0]]]
        values = (own.any(1) if term[1] else own.all(1)).astype(float)
        if values.tobytes() in seen:
            continue
        seen.add(values.tobytes())
        rest = values
        for _ in range(2):  # the second time for the rounding of the first
            rest = rest - basis @ (basis.T @ rest)
        length = float(np.linalg.norm(rest))
        if length > DEPENDENT * float(np.linalg.norm(values)):
            kept.add(term)
            basis = np.column_stack([basis, rest / length])
    return [term for term in terms if term in kept]
