"""Names of the dims and entries of a fit's sites, shared by export, plots and report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from inference.fitting.result import Fit
    from ppl_models.descriptions.layers import GeneralizedLinearLayer

__all__ = [
    "Names",
    "check_image_shape",
    "dims_of",
    "labels_of",
    "layers_of",
    "present_edges",
    "short_name",
    "site_matrix",
    "symmetric_limit",
    "tick_labels",
]

Names = Mapping[str, Sequence[str]]


def dims_of(fit: Fit, site: str, shape: Sequence[int]) -> tuple[str, ...]:
    """Names of the dims of a site, without rows.

    A model that declares ``site_dims`` is believed; any other site gets dims of its own (``weights_dim_0``), because
    one dim name has one size in a whole data set.

    Args:
        fit: the fit.
        site: name of the site.
        shape: its shape, without rows.

    Raises:
        ValueError: if the model declares another number of dims than the site has.
    """
    declared = getattr(fit.model, "site_dims", {}).get(site)
    if declared is None:
        return tuple(f"{site}_dim_{i}" for i in range(len(shape)))
    if len(declared) != len(shape):
        raise ValueError(
            f"site_dims[{site!r}] must name {len(shape)} dims for shape {tuple(shape)}, got {tuple(declared)}"
        )
    return tuple(declared)


def labels_of(fit: Fit, dim: str, size: int, names: Names | None = None) -> list[str] | list[int]:
    """Names of the entries along a dim: the user's, the item names, or 0, 1, ...; of a subset those of its members, as in 0*2.

    Args:
        fit: the fit.
        dim: name of the dim.
        size: its size.
        names: the user's names by dim, for example ``{"latent_1": ["stroke", "loop"]}``.

    Raises:
        ValueError: if ``names`` holds another number of names than the dim has entries.
    """
    if names is not None and dim in names:
        chosen = [str(name) for name in names[dim]]
        if len(chosen) != size:
            raise ValueError(f"names[{dim!r}] must hold {size} names, got {len(chosen)}")
        return chosen
    subsets = getattr(fit.model, "subset_dims", {}).get(dim)
    if subsets is not None:
        members = labels_of(fit, subsets[0], 1 + max(k for subset in subsets[1] for k in subset), names)
        return ["*".join(str(members[k]) for k in subset) for subset in subsets[1]]
    items = list(fit.item_names)
    if dim == "item" and len(items) == size:
        return items
    dispersed = _dispersed_items(fit.model, items)
    if dim == "dispersed_item" and len(dispersed) == size:
        return dispersed
    return list(range(size))


def _dispersed_items(model: Any, items: list[str]) -> list[str]:
    """The items whose family has a dispersion, in the order of the dispersion vector."""
    if not hasattr(model, "layers"):
        return []
    response = model.layers()[0].response
    blocks = response.blocks(len(items))
    return [name for _, columns, part in blocks if part.stop > part.start for name in items[columns]]


def short_name(name: str, most: int = 24) -> str:
    """A name cut in its middle to ``most`` characters (its end often tells it from others), safe to draw."""
    head = (most - 1) * 2 // 3
    text = name if len(name) <= most else name[:head] + "…" + name[len(name) - (most - 1 - head) :]
    return text.replace("$", r"\$")  # a dollar in a name is not mathematics


def tick_labels(labels: Sequence[str | int], most: int) -> tuple[list[int], list[str]]:
    """Positions and texts of at most ``most`` tick labels, evenly spaced, long names cut."""
    step = max(1, -(-len(labels) // most))
    places = list(range(0, len(labels), step))
    return places, [short_name(str(labels[i])) for i in places]


def check_image_shape(image_shape: tuple[int, int], num_items: int, caller: str) -> tuple[int, int]:
    """``image_shape`` as two integers that hold ``num_items`` pixels, else a ValueError."""
    if len(image_shape) != 2 or image_shape[0] * image_shape[1] != num_items:
        raise ValueError(f"{caller}: image_shape must be (height, width) of {num_items} items, got {image_shape}")
    return int(image_shape[0]), int(image_shape[1])


def symmetric_limit(values: np.ndarray) -> tuple[float, bool]:
    """Half-width of a symmetric colour range, and whether some values lie beyond it.

    The largest size; but where that is more than twice the 90 % quantile of the sizes that differ from zero (a few
    entries at their bound, say), that quantile, so that the others keep their colours.
    """
    sizes = np.abs(values[np.isfinite(values)])
    largest = float(sizes.max(initial=0.0))
    if largest == 0.0:
        return 1.0, False
    usual = float(np.quantile(sizes[sizes > 0.02 * largest], 0.9))
    return (usual, True) if largest > 2 * usual else (largest, False)


def present_edges(
    layer: GeneralizedLinearLayer, weights: np.ndarray, threshold: float | None = None
) -> tuple[np.ndarray, float]:
    """Which loadings or mean effects (num_children, num_parents) count as edges, and the size they must exceed.

    By default that is the penalty's own threshold, or without a penalty a tenth of the layer's largest loading.
    """
    if threshold is None and layer.penalty is not None:
        threshold = float(layer.penalty.threshold)
    elif threshold is None:
        threshold = 0.1 * float(np.abs(weights).max(initial=0.0))
    present = np.abs(weights) > threshold
    return (present if layer.edges is None else present & layer.edges.cpu().numpy()), threshold


def layers_of(fit: Fit, caller: str) -> tuple[GeneralizedLinearLayer, ...]:
    """The layers a model describes, bottom-up, else a ValueError that names the caller."""
    if not hasattr(fit.model, "layers"):
        raise ValueError(f"{caller}: a model that describes its layers was expected, got {type(fit.model).__name__}")
    return tuple(fit.model.layers())


def site_matrix(fit: Fit, site: str | None, caller: str) -> tuple[str, np.ndarray]:
    """A parameter with two dims; the bottom layer's loadings unless named."""
    name = layers_of(fit, caller)[0].loadings if site is None else site
    if name not in fit.params:
        raise ValueError(f"{caller}: site must be one of {sorted(fit.params)}, got {name!r}")
    values = fit.params[name].detach().cpu().numpy()
    if values.ndim != 2:
        raise ValueError(f"{caller}: a site with two dims was expected, got {name!r} with shape {values.shape}")
    return name, values
