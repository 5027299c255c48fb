r"""Other names of the latents of a layer whose children depend on products of them.

With :math:`\eta = b + \sum_S W_S \prod_{k \in S} a_k`, renaming the values of latent k (:math:`a_k
= 1 - a'_k`) gives

.. math:: W'_S = -W_S, \quad W'_{S \setminus k} = W_{S \setminus k} + W_S \qquad (k \in S),

with b in the place of :math:`W_\emptyset`. The result is of the same form only if every item that
uses S also has a coefficient for :math:`S \setminus k`: always with all interactions, never for a
latent that a conjunction, a disjunction or a curve of chances ties to others. A layer without
products is the case of subsets with one member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ppl_models.descriptions.layers import GeneralizedLinearLayer


Subset = frozenset[int]


def _subsets(terms: Tensor) -> list[Subset]:
    return [frozenset(row.nonzero().ravel().tolist()) for row in terms]


def _is_disjunctive(layer: GeneralizedLinearLayer, term: int) -> bool:
    return layer.disjunctive is not None and bool(layer.disjunctive[term])


def flippable(layer: GeneralizedLinearLayer) -> Tensor:
    """The latents (K,) whose values have other names within the same model."""
    answer = torch.ones(layer.num_parents, dtype=torch.bool)
    if layer.terms is None or layer.graph is None:
        return answer
    if layer.rising:  # the value that raises responses is 1
        return torch.zeros_like(answer)
    subsets = _subsets(layer.terms)
    place = {subset: t for t, subset in enumerate(subsets) if not _is_disjunctive(layer, t)}
    for group in layer.curved:
        answer[layer.terms[group.singles].any(0)] = False
    for t, subset in enumerate(subsets):
        if _is_disjunctive(layer, t):
            answer[list(subset)] = False
            continue
        for k in subset:
            rest = subset - {k}
            if rest and (
                rest not in place or bool((layer.graph[:, t] & ~layer.graph[:, place[rest]]).any())
            ):
                answer[k] = False
    return answer


def flipped(
    layer: GeneralizedLinearLayer, loadings: Tensor, intercepts: Tensor, flip: Tensor
) -> tuple[Tensor, Tensor]:
    """Loadings (..., J, P) and intercepts (..., J) once the values of the latents with ``flip``
    (K,) have changed names.

    Raises:
        ValueError: for a latent whose values have no other names.
    """
    if layer.terms is None:
        return torch.where(flip, -loadings, loadings), intercepts + (loadings * flip).sum(-1)
    turned = flip.nonzero().ravel().tolist()
    if not bool((flippable(layer) | ~flip.cpu()).all()):
        raise ValueError(
            f"{layer.parent}: the values of latents {turned} cannot change names: a product ties"
            " them to others"
        )
    subsets = _subsets(layer.terms)
    place = {subset: t for t, subset in enumerate(subsets) if not _is_disjunctive(layer, t)}
    loadings, intercepts = loadings.clone(), intercepts.clone()
    for k in turned:
        for t, subset in enumerate(subsets):  # each S goes with its own S without k
            if k in subset:
                rest = subset - {k}
                if rest:
                    loadings[..., place[rest]] += loadings[..., t]
                else:
                    intercepts += loadings[..., t]
                loadings[..., t] = -loadings[..., t]
    return loadings, intercepts


def permuted(layer: GeneralizedLinearLayer, loadings: Tensor, permutation: Tensor | None) -> Tensor:
    """Loadings (..., J, P) once new latent l is old latent ``permutation[l]``.

    Raises:
        ValueError: for an order of the latents under which an item would depend on others.
    """
    if permutation is None or layer.terms is None:
        return loadings if permutation is None else loadings.index_select(-1, permutation)
    order, subsets = permutation.tolist(), _subsets(layer.terms)
    kinds = [_is_disjunctive(layer, t) for t in range(len(subsets))]
    place = {known: t for t, known in enumerate(zip(subsets, kinds, strict=True))}
    old = [frozenset(order[k] for k in subset) for subset in subsets]
    index = torch.tensor([place.get(known, -1) for known in zip(old, kinds, strict=True)])
    if bool((index < 0).any()) or (
        layer.graph is not None and not torch.equal(layer.graph[:, index], layer.graph)
    ):
        raise ValueError(f"{layer.parent}: the graph is given and does not allow the order {order}")
    return loadings.index_select(-1, index.to(loadings.device))
