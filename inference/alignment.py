r"""Comparing two labellings of the same latents: permutation and sign.

The law of a model of binary latents does not know their order, nor which of their two values is called 1. For layer
d with loadings :math:`W_d` and intercepts :math:`b_d`, renaming the values of latent k,

.. math::
    b_d \leftarrow b_d + W_{d,\cdot k}, \quad W_{d,\cdot k} \leftarrow -W_{d,\cdot k}, \quad
    (b_{d+1,k}, W_{d+1,k\cdot}) \leftarrow -(b_{d+1,k}, W_{d+1,k\cdot}),

or :math:`\pi_k \leftarrow 1 - \pi_k` in the deepest layer, leaves every probability of the items unchanged; so does
permuting the latents of a layer. A layer of K latents therefore has :math:`K! \, 2^K` equivalent labellings, and two
fits, or a fit and a truth, can only be compared after one is relabelled like the other. That is for scoring and for
comparing: no fit may use it.

Source: S. Lee and Y. Gu (2025), arXiv:2501.01414, Assumption 1; assignment by H. W. Kuhn (1955),
doi:10.1002/nav.3800020109.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from inference.structures.layers.renaming import flippable, flipped, permuted

if TYPE_CHECKING:
    from inference.fitting.result import Fit
    from ppl_models.descriptions.layers import GeneralizedLinearLayer, RootLayer

__all__ = ["Alignment", "Matching", "align", "align_layers", "canonical_signs", "match_columns", "relabel"]

ZERO = 1e-12  # a column sum or entry of this size has no sign


@dataclass(frozen=True, eq=False)
class Matching:
    """Which column of an estimate belongs to which column of a reference.

    Args:
        permutation: (num_reference_columns,) long; ``estimate[:, permutation]`` is in the reference's order.
        flips: bool, same shape and order; True where that column must then be negated.
        cost: sum of squared differences that remain.
    """

    permutation: Tensor
    flips: Tensor
    cost: float


@dataclass(frozen=True, eq=False)
class Alignment:
    """Parameters in other labels, and the relabelling that led there.

    Args:
        params: the relabelled parameters, by site name; sites outside the layers are as they were.
        permutations: latent site -> (K,) long; new latent l is old latent ``permutation[l]``.
        flips: latent site -> (K,) bool, in the new order; True where the values 0 and 1 changed names.
        cost: sum over layers of the squared differences between loadings that remain; 0 where nothing was matched.
    """

    params: dict[str, Tensor]
    permutations: dict[str, Tensor]
    flips: dict[str, Tensor]
    cost: float

    def apply_latents(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Relabel latents, or probabilities of theirs, of the fit that was aligned.

        Args:
            values: latent site -> (..., K): values in {0, 1}, booleans, or P(latent = 1 | row).

        Raises:
            ValueError: for a site that is not a latent of the fit, or another number of latents.
        """
        out = {}
        for site, value in values.items():
            if site not in self.permutations:
                raise ValueError(f"apply_latents: latent sites {sorted(self.permutations)} were expected, got {site!r}")
            permutation, flips = self.permutations[site], self.flips[site]
            if value.dim() == 0 or value.shape[-1] != len(permutation):
                raise ValueError(
                    f"apply_latents: {site} must have shape (..., {len(permutation)}), got {tuple(value.shape)}"
                )
            value = value[..., permutation]
            out[site] = value ^ flips if value.dtype == torch.bool else torch.where(flips, 1 - value, value)
        return out


# ---------------------------------------------------------------- public


def align(fit: Fit, reference: Fit | Mapping[str, Tensor], signs: bool = True) -> Alignment:
    """Relabel the latents of a fit so that its loadings are as near as possible to those of a reference.

    Layer by layer, bottom-up: see :func:`align_layers`; for hidden options see
    :func:`inference.structures.options.alignment.align_options` and :func:`~inference.structures.options.alignment.align_policies`.

    Args:
        fit: a fit of a model that describes its layers (``model.layers()`` and ``model.root()``).
        reference: another fit of the same sizes, or a dict of parameters (a known truth) by site name.
        signs: whether the values of a latent may change names too; False permutes only.

    Raises:
        ValueError: if the model does not describe layers, a site is missing or has another shape (naming it), or a
            value is not finite.
    """
    model: Any = getattr(fit, "model", None)
    if hasattr(model, "chain"):
        from inference.structures.options.alignment import align_options

        target = reference if isinstance(reference, Mapping) else reference.params
        return align_options(fit.params, target, model.chain())
    if hasattr(model, "policy_chain"):
        from inference.structures.options.alignment import align_policies

        return align_policies(fit.params, reference if isinstance(reference, Mapping) else reference.params, model.policy_chain())
    if not (hasattr(model, "layers") and hasattr(model, "root")):
        raise ValueError(
            f"align: a fit of a model with layers() and root() was expected, got {type(fit).__name__} of "
            f"{type(model).__name__}; components of other models are matched by match_columns"
        )
    other = reference if isinstance(reference, Mapping) else getattr(reference, "params", None)
    if other is None:
        raise ValueError(f"align: reference must be a fit or a dict of parameters, got {type(reference).__name__}")
    return align_layers(fit.params, other, model.layers(), model.root(), signs)


def align_layers(
    params: Mapping[str, Tensor],
    reference: Mapping[str, Tensor],
    layers: Sequence[GeneralizedLinearLayer],
    root: RootLayer | None = None,
    signs: bool = True,
) -> Alignment:
    r"""Relabel the latents of generalised-linear layers like a reference.

    For layer d = 1, ..., D the columns of the loadings are matched by the assignment of least total cost
    :math:`c_{kl} = \min_{s \in \{1, -1\}} \|s \hat W_{\cdot k} - W_{\cdot l}\|^2` (s = 1 without ``signs``), after
    the rows have been relabelled like the layer below. Where the layer's graph is given, latents are named by their
    edges, and a column is matched to one with the same edges as long as that is possible.

    Args:
        params: the parameters to relabel, by site name, without leading dims.
        reference: the parameters to relabel them like; only the loadings are looked at.
        layers: bottom-up.
        root: the deepest layer's proportions; None where the deepest latents have none among the parameters.
        signs: whether latents may be flipped.

    Raises:
        ValueError: if a site is missing, has another shape than the layers say, or holds NaN or infinities.
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
        if edges is not None:
            edges = edges.to(loadings.device)
            forbidden = (edges[order].mT[:, None, :] != edges.mT).any(-1)  # (K, K): old k, new l
        allowed = flippable(layer).to(loadings.device) if signs else False
        matching = _match(estimate, layer.effects(reference[layer.loadings].to(loadings)), allowed, forbidden)
        permutations[layer.parent], flips[layer.parent] = matching.permutation, matching.flips
        cost += matching.cost
        rows = matching.permutation
    return Alignment(relabel(params, layers, root, permutations, flips), permutations, flips, cost)


def match_columns(estimate: Tensor, reference: Tensor, signs: bool = False) -> Matching:
    """Match the columns of two matrices by least total squared difference.

    For the components of a mixture or a factorization; components that are rows are matched by their transposes.

    Args:
        estimate: (P, K).
        reference: (P, L) with L <= K; the K - L columns of the estimate that fit worst are left out.
        signs: whether a column may be negated.

    Raises:
        ValueError: if the shapes do not agree, or a value is not finite.
    """
    for name, value in (("estimate", estimate), ("reference", reference)):
        if value.dim() != 2 or value.shape[1] == 0:
            raise ValueError(f"match_columns: {name} must be a matrix with columns, got shape {tuple(value.shape)}")
        if not torch.isfinite(value).all():
            raise ValueError(f"match_columns: {name} must be finite")
    if estimate.shape[0] != reference.shape[0] or estimate.shape[1] < reference.shape[1]:
        raise ValueError(
            f"match_columns: estimate must have {reference.shape[0]} rows and at least {reference.shape[1]} columns, as "
            f"reference has, got shape {tuple(estimate.shape)}"
        )
    return _match(estimate, reference, signs, None)


def relabel(
    params: Mapping[str, Tensor],
    layers: Sequence[GeneralizedLinearLayer],
    root: RootLayer | None,
    permutations: Mapping[str, Tensor],
    flips: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Parameters of the same law under other names of the latents.

    Args:
        params: by site name; leading dims (restarts, chains, draws) are allowed and share one relabelling.
        layers: bottom-up.
        root: the deepest layer's proportions, or None.
        permutations: latent site -> (K,) long, new latent l is old latent ``permutation[l]``; a site left out stays.
        flips: latent site -> (K,) bool in the new order; a site left out stays.
    """
    out = dict(params)
    for layer in layers:
        out[layer.loadings] = permuted(layer, params[layer.loadings], permutations.get(layer.parent))
    for layer in layers:  # what stands in the role of a child: the layer above, or the proportions
        out[layer.loadings] = _permuted(out[layer.loadings], permutations.get(layer.child), -2)
        out[layer.intercepts] = _permuted(params[layer.intercepts], permutations.get(layer.child), -1)
        if layer.child in flips:
            flip = flips[layer.child]
            out[layer.loadings] = torch.where(flip[:, None], -out[layer.loadings], out[layer.loadings])
            out[layer.intercepts] = torch.where(flip, -out[layer.intercepts], out[layer.intercepts])
        if layer.parent in flips:
            out[layer.loadings], out[layer.intercepts] = flipped(
                layer, out[layer.loadings], out[layer.intercepts], flips[layer.parent]
            )
    if root is not None:
        proportions = _permuted(params[root.proportions], permutations.get(root.latent), -1)
        flip = flips.get(root.latent, torch.zeros((), dtype=torch.bool, device=proportions.device))
        out[root.proportions] = torch.where(flip, 1 - proportions, proportions)
    return out


def canonical_signs(
    params: Mapping[str, Tensor],
    layers: Sequence[GeneralizedLinearLayer],
    root: RootLayer | None = None,
    convention: Literal["column_sum", "first", "as_is"] = "column_sum",
) -> Alignment:
    """Name the values of every latent by a convention on the signs of its loadings, bottom-up.

    The convention is not the meaning: a latent that suppresses most items has a negative column sum however natural
    its name is; ``as_is`` keeps the fit's own names.

    Args:
        params: by site name, without leading dims.
        layers: bottom-up.
        root: the deepest layer's proportions, or None.
        convention: ``"column_sum"``, the loadings of a latent sum to a positive number (Assumption 1(c) of Lee and Gu
            2025; a sum within 1e-12 of zero is decided by the first nonzero entry); ``"first"``, its first nonzero
            loading is positive; ``"as_is"``, no change. Where items depend on products of latents, the loading of a latent is
            its mean effect; a latent that a conjunction ties to others has no second name and stays.

    Raises:
        ValueError: for another convention, a missing site, another shape, or values that are not finite.
    """
    if convention not in ("column_sum", "first", "as_is"):
        raise ValueError(f"canonical_signs: convention must be 'column_sum', 'first' or 'as_is', got {convention!r}")
    _check(params, layers, root, "params")
    permutations = {layer.parent: torch.arange(layer.num_parents) for layer in layers}
    flips: dict[str, Tensor] = {}
    for layer in layers:
        loadings = params[layer.loadings]
        permutations[layer.parent] = permutations[layer.parent].to(loadings.device)
        if layer.child in flips:
            loadings = torch.where(flips[layer.child][:, None], -loadings, loadings)
        flips[layer.parent] = _is_negative(layer.effects(loadings), convention) & flippable(layer).to(loadings.device)
    return Alignment(relabel(params, layers, root, permutations, flips), permutations, flips, 0.0)


# ---------------------------------------------------------------- parts


def _match(estimate: Tensor, reference: Tensor, signs: bool | Tensor, forbidden: Tensor | None) -> Matching:
    """The assignment; a ``forbidden`` pair (K, L) is taken only where no assignment avoids it. ``signs`` may be by column."""
    from scipy.optimize import linear_sum_assignment

    left, right = estimate.detach().to(torch.float64), reference.detach().to(torch.float64)
    as_is = torch.stack([(left - column[:, None]).square().sum(0) for column in right.mT], 1)  # (K, L)
    negated = torch.stack([(left + column[:, None]).square().sum(0) for column in right.mT], 1)
    turned = (negated < as_is) & (signs if isinstance(signs, bool) else signs[:, None])
    cost = torch.where(turned, negated, as_is)
    penalised = cost if forbidden is None else cost + forbidden * (1 + 2 * cost.max() * len(right.mT))
    chosen, of = linear_sum_assignment(penalised.cpu().numpy())
    permutation = torch.empty(right.shape[1], dtype=torch.long)
    permutation[torch.as_tensor(of)] = torch.as_tensor(chosen)
    permutation = permutation.to(estimate.device)
    columns = torch.arange(right.shape[1], device=estimate.device)
    return Matching(permutation, turned[permutation, columns], float(cost[permutation, columns].sum()))


def _permuted(value: Tensor, permutation: Tensor | None, dim: int) -> Tensor:
    return value if permutation is None else value.index_select(dim, permutation)


def _is_negative(loadings: Tensor, convention: str) -> Tensor:
    """Which columns (K,) the convention would flip."""
    if convention == "as_is":
        return torch.zeros(loadings.shape[1], dtype=torch.bool, device=loadings.device)
    place = (loadings.abs() > ZERO).to(torch.uint8).argmax(0)  # first nonzero entry; 0 in an empty column
    first = loadings.gather(0, place[None, :])[0]
    total = loadings.sum(0)
    decided = first if convention == "first" else torch.where(total.abs() > ZERO, total, first)
    return decided < -ZERO


def _check(
    params: Mapping[str, Any],
    layers: Sequence[GeneralizedLinearLayer],
    root: RootLayer | None,
    argument: str,
    only_loadings: bool = False,
) -> None:
    """Every site of the layers must be there, in its shape, finite."""
    if not layers:
        raise ValueError("layers must hold at least one layer, got none")
    expected: dict[str, tuple[int, ...]] = {}
    for layer in layers:
        expected[layer.loadings] = (layer.num_children, layer.num_features)
        if not only_loadings:
            expected[layer.intercepts] = (layer.num_children,)
    if root is not None:
        expected[root.proportions] = (root.num_latents,)
    for site, shape in expected.items():
        value = params.get(site)
        if not isinstance(value, Tensor):
            raise ValueError(f"{argument}: a tensor {site!r} of shape {shape} was expected, got {type(value).__name__}")
        if tuple(value.shape) != shape:
            raise ValueError(f"{argument}: {site} must have shape {shape}, got {tuple(value.shape)}")
        if not torch.isfinite(value).all():
            raise ValueError(f"{argument}: {site} must be finite")
