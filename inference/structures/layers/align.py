r"""Alignment of binary latents of generalised-linear layers: permutation and sign.

The distribution of a model of binary latents does not know their order, nor which of their two
values is called 1. For layer d with loadings :math:`W_d` and intercepts :math:`b_d`, renaming the
values of latent k,

.. math::
    b_d \leftarrow b_d + W_{d,\cdot k}, \quad W_{d,\cdot k} \leftarrow -W_{d,\cdot k}, \quad
    (b_{d+1,k}, W_{d+1,k\cdot}) \leftarrow -(b_{d+1,k}, W_{d+1,k\cdot}),

or, of independent latents in the deepest layer, :math:`\pi_k \leftarrow 1 - \pi_k`, leaves every
probability of the items unchanged; so does permuting the latents of a layer. A layer of K latents
therefore has :math:`K! \, 2^K` equivalent labellings, and two fits, or a fit and a truth, can only
be compared after one is relabelled like the other. That is for scoring and for comparing: no fit
may use it.

Source: S. Lee and Y. Gu (2025), arXiv:2501.01414, Assumption 1; assignment by H. W. Kuhn (1955),
doi:10.1002/nav.3800020109.

Children that depend on products of latents: with :math:`\eta = b + \sum_S W_S \prod_{k \in S} a_k`,
renaming the values of latent k (:math:`a_k = 1 - a'_k`) gives

.. math:: W'_S = -W_S, \quad W'_{S \setminus k} = W_{S \setminus k} + W_S \qquad (k \in S),

with b in the place of :math:`W_\emptyset`. The result is of the same form only if every item that
uses S also has a coefficient for :math:`S \setminus k`: always with all interactions, never for a
latent that a conjunction, a disjunction or a curve of chances ties to others. A layer without
products is the case of subsets with one member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from inference.base.align import Alignment, matched
from ppl_models.descriptions.layers import GeneralizedLinearLayer, Root
from ppl_models.parts.responses import Normal

ZERO = 1e-12  # a column sum or entry of this size has no sign


def align_layers(
    params: Mapping[str, Tensor],
    reference: Mapping[str, Tensor],
    layers: Sequence[GeneralizedLinearLayer],
    root: Root | None = None,
    signs: bool = True,
) -> Alignment:
    r"""Relabel the latents of generalised-linear layers like a reference.

    For layer d = 1, ..., D the columns of the loadings are matched by the assignment of least total
    cost :math:`c_{kl} = \min_{s \in \{1, -1\}} \|s \hat W_{\cdot k} - W_{\cdot l}\|^2` (s = 1
    without ``signs``), after the rows have been relabelled like the layer below; loadings of normal
    items are divided by the standard deviation of their noise. Where the layer's
    graph is given, latents are named by their edges, and a column is matched to one with the same
    edges as long as that is possible. A graph that was estimated names no latent: the distribution
    that it was chosen in does not know the order of the latents, and the graph is relabelled along
    with them.

    Args:
        params: the parameters to relabel, by site name, without leading dims.
        reference: the parameters to relabel them like; only the loadings are looked at.
        layers: bottom-up.
        root: the distribution of the deepest latents; None where it has no sites among the
            parameters.
        signs: whether latents may be flipped.

    Raises:
        ValueError: if a site is missing, has another shape than the layers say, or holds NaN or
            infinities.
    """
    _check(params, layers, root, "params")
    _check(reference, layers, None, "reference", only_loadings=True)
    permutations: dict[str, Tensor] = {}
    flips: dict[str, Tensor] = {}
    cost = 0.0
    rows: Tensor | None = None
    for layer in layers:
        loadings = params[layer.loadings]
        signs_below = torch.ones(len(loadings), dtype=loadings.dtype, device=loadings.device)
        order = torch.arange(len(loadings), device=loadings.device) if rows is None else rows
        if layer.child in flips:
            signs_below[flips[layer.child]] = -1
        estimate = signs_below[:, None] * layer.effects(loadings)[order]
        forbidden, edges = None, layer.edges
        if _keeps_names(layer, root):
            forbidden = ~torch.eye(layer.num_parents, dtype=torch.bool, device=loadings.device)
            edges = None
        if edges is not None and not layer.estimated:
            edges = edges.to(loadings.device)
            forbidden = (edges[order].mT[:, None, :] != edges.mT).any(-1)  # (K, K): old k, new l
        allowed = _flippable(layer, root).to(loadings.device) if signs else False
        theirs = layer.effects(reference[layer.loadings].to(loadings))
        matching = matched(
            without_units(layer, params, estimate),
            without_units(layer, params, theirs),
            allowed,
            forbidden,
        )
        permutations[layer.parent], flips[layer.parent] = matching.permutation, matching.flips
        cost += matching.cost
        rows = matching.permutation
    return Alignment(relabel(params, layers, root, permutations, flips), permutations, flips, cost)


def without_units(
    layer: GeneralizedLinearLayer, params: Mapping[str, Tensor], loadings: Tensor
) -> Tensor:
    """Loadings (..., J, K), of normal items divided by the standard deviation of their noise."""
    if layer.dispersion is None or layer.dispersion not in params:
        return loadings
    noise = torch.ones_like(loadings[..., 0])
    for part in layer.parts():
        if isinstance(part.family, Normal):
            noise[..., part.rows] = params[layer.dispersion][..., part.dispersion].sqrt()
    return loadings / noise.unsqueeze(-1)


def relabel(
    params: Mapping[str, Tensor],
    layers: Sequence[GeneralizedLinearLayer],
    root: Root | None,
    permutations: Mapping[str, Tensor],
    flips: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Parameters of the same distribution under other names of the latents.

    Args:
        params: by site name; leading dims (restarts, chains, draws) are allowed and share one
            relabelling.
        layers: bottom-up.
        root: the distribution of the deepest latents, or None.
        permutations: latent site -> (K,) long, new latent l is old latent ``permutation[l]``; a
            site left out stays.
        flips: latent site -> (K,) bool in the new order; a site left out stays.
    """
    out = dict(params)
    for layer in layers:
        out[layer.loadings] = permuted(
            layer, params[layer.loadings], permutations.get(layer.parent)
        )
    for layer in layers:  # what stands in the role of a child
        out[layer.loadings] = _permuted(out[layer.loadings], permutations.get(layer.child), -2)
        out[layer.intercepts] = _permuted(
            params[layer.intercepts], permutations.get(layer.child), -1
        )
        if layer.child in flips:
            flip = flips[layer.child]
            out[layer.loadings] = torch.where(
                flip[:, None], -out[layer.loadings], out[layer.loadings]
            )
            out[layer.intercepts] = torch.where(flip, -out[layer.intercepts], out[layer.intercepts])
        if layer.parent in flips:
            out[layer.loadings], out[layer.intercepts] = flipped(
                layer, out[layer.loadings], out[layer.intercepts], flips[layer.parent]
            )
    if root is not None:
        out |= root.rename(params, permutations.get(root.latent), flips.get(root.latent))
    return out


def canonical_signs(
    params: Mapping[str, Tensor],
    layers: Sequence[GeneralizedLinearLayer],
    root: Root | None = None,
    convention: Literal["column_sum", "first", "as_is"] = "column_sum",
) -> Alignment:
    """Name the values of every latent by a convention on the signs of its loadings, bottom-up.

    The convention is not the meaning: a latent that suppresses most items has a negative column sum
    however natural its name is; ``as_is`` keeps the fit's own names.

    Args:
        params: by site name, without leading dims.
        layers: bottom-up.
        root: the distribution of the deepest latents, or None.
        convention: ``"column_sum"``, the loadings of a latent sum to a positive number (Assumption
            1(c) of Lee and Gu 2025; a sum within 1e-12 of zero is decided by the first nonzero
            entry); ``"first"``, its first nonzero loading is positive; ``"as_is"``, no change.
            Where items depend on products of latents, the loading of a latent is its mean effect; a
            latent that a conjunction ties to others has no second name and stays.

    Raises:
        ValueError: for another convention, a missing site, another shape, or values that are not
            finite.
    """
    if convention not in ("column_sum", "first", "as_is"):
        raise ValueError(
            "canonical_signs: convention must be 'column_sum', 'first' or 'as_is', got"
            f" {convention!r}"
        )
    _check(params, layers, root, "params")
    permutations = {layer.parent: torch.arange(layer.num_parents) for layer in layers}
    flips: dict[str, Tensor] = {}
    for layer in layers:
        loadings = params[layer.loadings]
        permutations[layer.parent] = permutations[layer.parent].to(loadings.device)
        if layer.child in flips:
            loadings = torch.where(flips[layer.child][:, None], -loadings, loadings)
        flips[layer.parent] = _is_negative(layer.effects(loadings), convention) & _flippable(
            layer, root
        ).to(loadings.device)
    return Alignment(relabel(params, layers, root, permutations, flips), permutations, flips, 0.0)


def signed_inside(
    params: dict[str, Tensor], layers: Sequence[GeneralizedLinearLayer], root: Root | None = None
) -> dict[str, Tensor]:
    """Apply :func:`canonical_signs`, unless a loading would leave the prior's interval."""
    signed = canonical_signs(params, layers, root).params
    for layer in layers:
        limit = layer.bounds(signed[layer.intercepts])
        if bool((signed[layer.intercepts].abs() > limit).any()) or bool(
            (signed[layer.loadings].abs() > limit.unsqueeze(-1)).any()
        ):
            return params
    return signed


def _keeps_names(layer: GeneralizedLinearLayer, root: Root | None) -> bool:
    """Tell whether the root ties the layer's parents to their names."""
    return root is not None and root.latent == layer.parent and not root.renamable


def _flippable(layer: GeneralizedLinearLayer, root: Root | None) -> Tensor:
    """Mask of parents (K,) whose values may be exchanged within the same model."""
    tied = root is not None and root.latent == layer.parent and not root.flippable
    return flippable(layer) & (not tied)


def _permuted(value: Tensor, permutation: Tensor | None, dim: int) -> Tensor:
    return value if permutation is None else value.index_select(dim, permutation)


def _is_negative(loadings: Tensor, convention: str) -> Tensor:
    """Mask of the columns (K,) that the convention would flip."""
    if convention == "as_is":
        return torch.zeros(loadings.shape[1], dtype=torch.bool, device=loadings.device)
    # first nonzero entry; 0 in an empty column
    place = (loadings.abs() > ZERO).to(torch.uint8).argmax(0)
    first = loadings.gather(0, place[None, :])[0]
    total = loadings.sum(0)
    decided = first if convention == "first" else torch.where(total.abs() > ZERO, total, first)
    return decided < -ZERO


def _check(
    params: Mapping[str, Any],
    layers: Sequence[GeneralizedLinearLayer],
    root: Root | None,
    argument: str,
    only_loadings: bool = False,
) -> None:
    """Refuse parameters where a site of the layers is absent, misshapen or not finite."""
    if not layers:
        raise ValueError("layers must hold at least one layer, got none")
    expected: dict[str, tuple[int, ...]] = {}
    for layer in layers:
        expected[layer.loadings] = (layer.num_children, layer.num_features)
        if not only_loadings:
            expected[layer.intercepts] = (layer.num_children,)
    if root is not None:
        expected |= root.sites()
    for site, shape in expected.items():
        value = params.get(site)
        if not isinstance(value, Tensor):
            raise ValueError(
                f"{argument}: a tensor {site!r} of shape {shape} was expected, got"
                f" {type(value).__name__}"
            )
        if tuple(value.shape) != shape:
            raise ValueError(
                f"{argument}: {site} must have shape {shape}, got {tuple(value.shape)}"
            )
        if not torch.isfinite(value).all():
            raise ValueError(f"{argument}: {site} must be finite")


Subset = frozenset[int]


def _subsets(terms: Tensor) -> list[Subset]:
    return [frozenset(row.nonzero().ravel().tolist()) for row in terms]


def _is_disjunctive(layer: GeneralizedLinearLayer, term: int) -> bool:
    return layer.disjunctive is not None and bool(layer.disjunctive[term])


def flippable(layer: GeneralizedLinearLayer) -> Tensor:
    """Mask of latents (K,) whose values may be exchanged within the same model."""
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
    """Loadings (..., J, P) and intercepts (..., J) after latents with ``flip`` (K,) flip."""
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
    """Loadings (..., J, P) once new latent l is old latent ``permutation[l]``."""
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
