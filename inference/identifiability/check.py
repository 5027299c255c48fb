r"""Identifiability of layers of binary latents (Lee and Gu), with margins and repairs.

A layer whose children depend on K binary latents through a graph G and loadings W is, up to the
labels of the latents,

* **strict**\ly identified if every latent has two exclusive children (A), and the other children
  distinguish any two configurations (B);
* **generic**\ally identified, outside a set of parameters of measure zero, if every latent has two
  children of its own choosing, all different, and a further one among the rest (C);
* **not established** otherwise. The conditions are sufficient, not necessary: this is no proof that
  it is not identified.

A layer sees the one below as its data, so the verdict on a model is that on its weakest layer.
"Three children for each latent" is necessary for C, not sufficient.

Source: S. Lee and Y. Gu (2025), arXiv:2501.01414, Theorems 1 and 2, Assumption 1, supplement S.1.5.
Margins, proofs of failure and repairs are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.fitting.record import FitRecord
from inference.identifiability.conditions import configurations
from inference.identifiability.of_fit import IdentifiabilityText, identifiability_of, report_of
from inference.identifiability.q_matrix import ItemKind, QMatrixReport, judge
from inference.identifiability.verdicts import (
    MAX_TABLE_LATENTS,
    VERDICTS,
    Bottom,
    EntryChange,
    IdentifiabilityReport,
    LayerReport,
    Violation,
    decide,
    nearest_changes,
    repairs,
)
from inference.structures.layers.attributes import AttributeStructure
from inference.structures.layers.structure import LayeredStructure
from inference.structures.registry import structure_of
from ppl_models.descriptions.layers import FAINT, GeneralizedLinearLayer, Root
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.responses import LogNormal, NegativeBinomial, Normal, Poisson

BOTTOMS = ("additive", "dina", "gdm")
PROPORTION_EDGE = 1e-4  # a proportion this near to 0 or 1 is on its bound
SAME = 1e-9  # relative difference of two columns that are equal
ZERO_SUM = 1e-12


def check_identifiability(
    fit: FitRecord | Mapping[str, Tensor] | Any,
    threshold: float | None = None,
    item_names: Sequence[str] | None = None,
    latent_names: Mapping[str, Sequence[str]] | None = None,
    layers: Sequence[GeneralizedLinearLayer] | None = None,
    root: Root | None = None,
    bottom: Bottom | None = None,
    predictors: Tensor | None = None,
    data: Any = None,
) -> Any:
    r"""Decide the identifiability of a fit: of its layers, its Q-matrix, or by its kind.

    An edge is a loading with :math:`|W_{jk}| \ge` threshold, not zero, and in the layer's graph
    where that is given.

    The conditions are about the distributions of the items under each configuration, and the
    predictor of an ordinal item with its thresholds is one to one with its distribution: such items
    are judged as all others. An item of categories without an order has several loadings on a
    latent, one of which makes an edge; a layer with such items is judged by its graph alone, which
    says "strict" only where it holds for all values of the loadings.

    A :class:`~ppl_models.LatentAttributeModel` with a Q-matrix, or a fit of one, is judged by its
    Q, rules, responses and distribution of the attributes
    (:mod:`inference.identifiability.q_matrix`), which says more than the conditions of a layer. A
    fit of any other model that describes no layers gets the report of its own kind
    (:func:`~inference.identifiability.of_fit.identifiability_of`), for which most kinds need its
    rows: theorems 1 and 2 for independent classifiers, three successive steps for hidden options,
    else the information in the rows.

    Args:
        fit: a fit of a model with ``layers()``, or parameters by site name (then ``layers`` is
            needed); or a :class:`~ppl_models.LatentAttributeModel` before any fit.
        threshold: least size of an edge, in every layer; None for the penalty's own; of a graph
            that was found, a twentieth of the predictors' unit; and 0 of any other.
        item_names: J names; None for the fit's.
        latent_names: names by latent site, for example ``{"latents_1": ["Number", "Algebra"]}``.
        layers: the layers of the parameters, bottom-up; None for the model's.
        root: the distribution of the deepest latents; None for the model's, or where it has no
            sites.
        bottom: how items depend on their latents: ``"additive"``; ``"dina"``, on the product of all
            of them; ``"gdm"``, on every interaction. The last two need the bottom layer's graph,
            and its verdict then holds under sign rules of its own (Lee and Gu, S.1.5). None for
            the rule that the bottom layer declares.
        predictors: (2^K, J), for "gdm": the items' predictors under all configurations, in
            lexicographic order; None for those of the estimate where the layer has interactions and
            at most 12 latents, else to judge by the graph alone.
        data: the rows of the fit, for models that describe no layers.

    Raises:
        ValueError: if there are no layers and nothing else can be said, a site is missing or has
            another shape or values that are not finite, the threshold is negative, or names do not
            fit.

    Example:
        >>> import numpy as np
        >>> from inference import fit
        >>> from inference.identifiability import check_identifiability
        >>> from ppl_models import Mixture
        >>> rng = np.random.default_rng(0)
        >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
        >>> classes = fit(Mixture(2), answers)
        >>> check_identifiability(classes, data=answers).text().split(":")[0]
        'Near this estimate the answers determine the 2 classes'
    """
    settings = (threshold, layers, root, bottom, predictors)
    if all(value is None for value in settings) and not isinstance(fit, Mapping):
        found: Any = _attribute_report(fit, item_names, latent_names)
        if found is None and isinstance(fit, FitRecord) and not fit.structure.layers:
            found = identifiability_of(fit, data)
        if found is not None:
            return found
    params, layers, root, item_names = _unpack(fit, layers, root, item_names)
    if threshold is not None and not threshold >= 0:
        raise ValueError(
            f"check_identifiability: threshold must not be negative, got {threshold!r}"
        )
    parents = sorted({layer.parent for layer in layers})
    if not set(latent_names or {}) <= set(parents):
        raise ValueError(
            f"check_identifiability: latent_names is by {parents}, got {sorted(latent_names or {})}"
        )
    latent_names = latent_names or {}
    if bottom is not None:
        _check_bottom(bottom)
    reports, thresholds = [], []
    for d, layer in enumerate(layers):
        edges = None if layer.item_edges is None else layer.item_edges.cpu().numpy().astype(bool)
        least = 0.0 if threshold is None else float(threshold)
        if threshold is None and layer.penalty is not None and edges is None:
            least = float(layer.penalty.threshold)
        elif threshold is None and layer.estimated:
            least = FAINT * layer.unit(params)
        thresholds.append(least)
        proportions = None
        if root is not None and root.latent == layer.parent:
            sites = {
                name: torch.tensor(_array(params.get(name), name, shape))
                for name, shape in root.sites().items()
            }
            proportions = root.marginals(sites).numpy()
        kind: Bottom = bottom if d == 0 and bottom is not None else layer.form
        table: Tensor | np.ndarray | None = predictors if d == 0 else None
        if table is None and layer.terms is not None and _is_small(layer):
            table = _table(params, layer)
        graph, loadings = edges, None
        if kind == "additive":
            shape = (layer.num_children, layer.num_parents)
            loadings = _array(params.get(layer.loadings), layer.loadings, shape)
            large = torch.as_tensor((np.abs(loadings) >= least) & (loadings != 0))
            graph = layer.by_item(large).numpy()
            graph = graph if edges is None else graph & edges
            if layer.items is not None:  # several loadings an edge: judged by the graph
                loadings = None
            elif edges is not None:
                loadings = loadings * edges
        if graph is None:
            raise ValueError(
                f"check_identifiability: a {bottom!r} bottom layer must have its graph given, got"
                " None"
            )
        children = item_names if d == 0 else latent_names.get(layer.child)
        report = _check_layer(
            graph,
            loadings,
            kind,
            table,
            _names(children, layer.child, layer.num_items),
            _names(latent_names.get(layer.parent), layer.parent, layer.num_parents),
            f"{layer.child} given {layer.parent}",
            "item" if d == 0 else "child",
            proportions,
        )
        reports.append(report)
    verdict = min((report.verdict for report in reports), key=VERDICTS.index)
    return IdentifiabilityReport(verdict, tuple(reports), tuple(thresholds))


def check_graph(
    graph: Tensor | np.ndarray | Sequence[Sequence[int]],
    loadings: Tensor | np.ndarray | None = None,
    bottom: Bottom = "additive",
    predictors: Tensor | np.ndarray | None = None,
    child_names: Sequence[str] | None = None,
    parent_names: Sequence[str] | None = None,
) -> LayerReport:
    """Decide the conditions for one graph (a Q-matrix), before or after any fit.

    Args:
        graph: (J, K) of 0 and 1: child j depends on latent k.
        loadings: (J, K); what they hold off the graph counts as too small to be an edge. None to
            judge by the graph alone: condition B is then established only where it holds for all
            values of the loadings.
        bottom: how children depend on their latents, see :func:`check_identifiability`.
        predictors: (2^K, J), for "gdm" only.
        child_names: J names.
        parent_names: K names.

    Raises:
        ValueError: for a graph that is not a matrix of 0 and 1, values of other shapes or not
            finite, or names that do not fit.
    """
    matrix = _numbers(graph, "check_graph: graph must be a matrix (J, K) of 0 and 1")
    if matrix.ndim != 2 or 0 in matrix.shape or not np.isin(matrix, (0, 1)).all():
        raise ValueError(
            f"check_graph: graph must be a matrix (J, K) of 0 and 1, got shape {matrix.shape}"
        )
    _check_bottom(bottom)
    edges = matrix.astype(bool)
    values = None if loadings is None else _array(loadings, "loadings", matrix.shape)
    if values is not None and bottom != "additive":
        raise ValueError(
            f"check_graph: loadings belong to an additive layer; a {bottom!r} one is judged by its"
            " graph"
        )
    if values is not None and (values[edges] == 0).any():
        child, latent = (int(i) for i in np.argwhere(edges & (values == 0))[0])
        raise ValueError(f"check_graph: loadings[{child}, {latent}] is 0 on an edge of the graph")
    children = _names(child_names, "items", len(edges))
    parents = _names(parent_names, "latents", edges.shape[1])
    return _check_layer(
        edges, values, bottom, predictors, children, parents, "items given latents", "item", None
    )


def _attribute_report(
    given: Any, item_names: Sequence[str] | None, latent_names: Mapping[str, Sequence[str]] | None
) -> QMatrixReport | None:
    """Report of a latent attribute model with a Q-matrix; None for another model."""
    params = getattr(given, "params", None)
    model = given if params is None else given.model
    structure = structure_of(model) if callable(model) else None
    if not isinstance(structure, AttributeStructure) or structure.layers[0].edges is None:
        return None
    layer, root = structure.layers[0], structure.root
    graph = layer.item_edges.cpu().numpy().astype(bool)  # type: ignore[union-attr]
    binary, several = np.zeros(layer.num_items, dtype=bool), np.zeros(layer.num_items, dtype=bool)
    for family, columns, _ in layer.response.blocks(layer.num_items):
        binary[columns] = not isinstance(family, Normal | LogNormal | Poisson | NegativeBinomial)
    for item, categories in layer.response.category_names(layer.num_items).items():
        several[item] = len(categories) > 2
    profiles = None if root.profiles is None else root.profiles.cpu().numpy().astype(int)
    num_profiles = 2.0**layer.num_parents if profiles is None else len(profiles)
    fitted_names = tuple(getattr(given, "item_names", None) or ())[: layer.num_items]
    item_names = item_names or getattr(structure.model, "item_names", None) or fitted_names
    names = (latent_names or {}).get(layer.parent)
    names = names or getattr(structure.model, "attribute_names", None)
    return judge(
        graph,
        _kinds(layer),
        binary,
        profiles,
        root.num_free == num_profiles - 1,
        _table(params, layer, root.profiles) if params is not None and _is_small(layer) else None,
        _own_names(item_names, "item", layer.num_items),
        _own_names(names, "attribute", layer.num_parents),
        several,
    )


def _is_small(layer: GeneralizedLinearLayer) -> bool:
    """A layer whose predictors can be listed: few parents, one predictor an item."""
    return layer.num_parents <= MAX_TABLE_LATENTS and layer.items is None


def _own_names(names: Sequence[str] | None, noun: str, size: int) -> tuple[str, ...]:
    """Names to be read in a sentence: numbers get a noun."""
    numbered = names is None or tuple(names) == tuple(str(i) for i in range(len(names)))
    return _names([f"{noun} {i}" for i in range(size)] if numbered else names, noun, size)


def _kinds(layer: GeneralizedLinearLayer) -> list[ItemKind]:
    if layer.graph is None or layer.edges is None:
        raise ValueError("_kinds: a layer with a graph was expected")
    out: list[ItemKind] = []
    if layer.terms is None:
        return ["pure" if int(row.sum()) == 1 else "additive" for row in layer.by_item(layer.edges)]
    sizes = layer.terms.sum(-1)
    curved = {j: group.curve for group in layer.curved for j in group.items.tolist()}
    graph, edges = layer.by_item(layer.graph), layer.by_item(layer.edges)
    for j, uses in enumerate(graph):
        own = uses.nonzero().ravel()
        if int(edges[j].sum()) == 1:
            out.append("pure")
        elif j in curved or bool((sizes[own] == 1).all()):
            out.append("additive")
        elif len(own) == 1:
            is_any = layer.disjunctive is not None and bool(layer.disjunctive[own[0]])
            out.append("disjunctive" if is_any else "conjunctive")
        else:
            out.append("general")
    return out


def _check_layer(
    graph: np.ndarray,
    loadings: np.ndarray | None,
    bottom: Bottom,
    predictors: Tensor | np.ndarray | None,
    child_names: tuple[str, ...],
    parent_names: tuple[str, ...],
    title: str,
    child_noun: str,
    proportions: np.ndarray | None,
) -> LayerReport:
    num_children, num_latents = graph.shape
    table = None
    if predictors is not None:
        if bottom == "additive" or num_latents > MAX_TABLE_LATENTS:
            raise ValueError(
                f"predictors are for a 'gdm' layer of at most {MAX_TABLE_LATENTS} latents, got"
                f" {bottom!r}, {num_latents}"
            )
        table = _array(predictors, "predictors", (2**num_latents, num_children))
    edges = None if loadings is None else loadings * graph
    decision = decide(graph, edges, bottom, table)
    violations = (*_violations(graph, edges, proportions), *_not_highest(graph, table))
    changes: tuple[EntryChange | None, EntryChange | None] = (None, None)
    better = repairs(graph, loadings, bottom, decision)
    if any(violation.kind == "proportion on its bound" for violation in violations):
        decision, better = replace(decision, verdict=VERDICTS[0]), ()  # no condition helps then
    elif loadings is not None:
        changes = nearest_changes(graph, loadings, decision)
    return LayerReport(
        title,
        decision.verdict,
        child_names,
        parent_names,
        child_noun,
        bottom,
        decision,
        violations,
        *changes,
        better,
    )


def _violations(
    graph: np.ndarray, loadings: np.ndarray | None, proportions: np.ndarray | None
) -> tuple[Violation, ...]:
    out = [Violation("empty column", (int(k),)) for k in np.flatnonzero(~graph.any(0))]
    if proportions is not None:
        for k, value in enumerate(proportions.tolist()):
            if not PROPORTION_EDGE < value < 1 - PROPORTION_EDGE:
                out.append(Violation("proportion on its bound", (k,), value))
    if loadings is not None:
        scale = np.abs(loadings).max(0)
        for k in range(graph.shape[1]):
            for m in range(k + 1, graph.shape[1]):
                gap = min(np.abs(loadings[:, k] - s * loadings[:, m]).max() for s in (1, -1))
                if scale[k] > 0 and gap <= SAME * scale[k]:
                    out.append(Violation("equal columns", (k, m)))
        for k, total in enumerate(loadings.sum(0)):
            if scale[k] > 0 and total <= ZERO_SUM:
                out.append(Violation("column sum not positive", (k,), float(total)))
    return tuple(out)


def _not_highest(graph: np.ndarray, table: np.ndarray | None) -> tuple[Violation, ...]:
    """Children that break the sign rule of conjunctions and interactions."""
    if table is None:
        return ()
    has_all = configurations(graph.shape[1]) @ graph.T == graph.sum(1)  # (2^K, J)
    highest = np.where(has_all, -np.inf, table).max(0)
    low = np.flatnonzero(table[-1] <= highest)
    if not len(low):
        return ()
    latents = tuple(np.flatnonzero(graph[low].any(0)).tolist())
    return (Violation("not the highest", latents, children=tuple(low.tolist())),)


def _table(
    params: Mapping[str, Tensor], layer: GeneralizedLinearLayer, profiles: Tensor | None = None
) -> np.ndarray:
    """Predictors under all configurations of the parents, or some, (C, J)."""
    shapes = {
        layer.intercepts: (layer.num_children,),
        layer.loadings: (layer.num_children, layer.num_features),
    }
    values = [torch.as_tensor(_array(params.get(name), name, shapes[name])) for name in shapes]
    intercepts, loadings = (value.numpy() for value in layer.coefficients(*values))
    if profiles is None:
        profiles = binary_configurations(layer.num_parents)
    return layer.features(profiles.cpu().double()).numpy() @ loadings.T + intercepts


def _unpack(
    fit: Any,
    layers: Sequence[GeneralizedLinearLayer] | None,
    root: Root | None,
    item_names: Sequence[str] | None,
) -> tuple[
    Mapping[str, Tensor], Sequence[GeneralizedLinearLayer], Root | None, Sequence[str] | None
]:
    """Parameters, layers, root and item names, whichever way they came."""
    params = fit if isinstance(fit, Mapping) else getattr(fit, "params", None)
    if params is None:
        raise ValueError(
            "check_identifiability: a fit or a dict of parameters was expected, got"
            f" {type(fit).__name__}"
        )
    model = getattr(fit, "model", None)
    if layers is None and model is not None:
        structure = structure_of(model)
        layers, root = structure.layers, root or structure.root
    if not layers:
        message = (
            "check_identifiability: layers must be given, or a fit of a model that describes them"
        )
        if model is not None:
            message += (
                ", or the rows of the fit for other models: check_identifiability(fit, data=rows);"
                f" got a fit of {type(model).__name__}"
            )
        raise ValueError(message)
    if item_names is None:
        names = tuple(getattr(fit, "item_names", ()))
        numbered = names == tuple(str(j) for j in range(len(names)))
        item_names = names if len(names) == layers[0].num_items and not numbered else None
    return params, layers, root, item_names


def _numbers(value: Any, wanted: str) -> np.ndarray:
    """An array of numbers in double precision; ``wanted`` says what must come."""
    try:
        return np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, dtype=float)
    except (TypeError, ValueError):
        several = repr(value)
        if isinstance(value, list | tuple) and all(hasattr(part, "shape") for part in value):
            shapes = ", ".join(str(tuple(part.shape)) for part in value)
            several = f"{len(value)} arrays of shapes {shapes}: ask for one of them at a time"
        raise ValueError(f"{wanted}, got {several}") from None


def _array(value: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if value is None:
        raise ValueError(f"check_identifiability: params must hold {name!r}")
    array = _numbers(value, f"{name} must have shape {shape}")
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite")
    return array


def _names(names: Sequence[str] | None, site: str, size: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{site}[{i}]" for i in range(size))
    if len(names) != size:
        raise ValueError(f"names of {site}: {size} were expected, got {len(names)}")
    return tuple(str(name) for name in names)


def _check_bottom(bottom: str) -> None:
    if bottom not in BOTTOMS:
        raise ValueError(f"bottom must be 'additive', 'dina' or 'gdm', got {bottom!r}")


@report_of.register
def _(structure: LayeredStructure, fit: FitRecord, data: Any) -> IdentifiabilityText:
    return check_identifiability(fit)
