"""Helpers of pictures: cut names, ticks, colour ranges, edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from inference.fitting.result import Fit
    from ppl_models.descriptions.layers import GeneralizedLinearLayer


def short_name(name: str, most: int = 24) -> str:
    """Cut a name in its middle, and make it safe to draw."""
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
        raise ValueError(
            f"{caller}: image_shape must be (height, width) of {num_items} items, got {image_shape}"
        )
    return int(image_shape[0]), int(image_shape[1])


def symmetric_limit(values: np.ndarray) -> tuple[float, bool]:
    """Half-width of a symmetric colour range, and whether some values lie beyond it.

    The largest size; but where that is more than twice the 90 % quantile of the sizes that differ
    from zero (a few entries at their bound, say), that quantile, so that the others keep their
    colours.
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
    """Return which loadings or mean effects (J, K) count as edges, and the cut for their size.

    By default that is the penalty's own threshold, for a graph that was estimated none, and else a
    tenth of the layer's largest loading.
    """
    if threshold is None and layer.penalty is not None:
        threshold = float(layer.penalty.threshold)
    elif threshold is None and layer.estimated:
        threshold = 0.0
    elif threshold is None:
        threshold = 0.1 * float(np.abs(weights).max(initial=0.0))
    present = np.abs(weights) > threshold
    return (present if layer.edges is None else present & layer.edges.cpu().numpy()), threshold


def layers_of(fit: Fit, caller: str) -> tuple[GeneralizedLinearLayer, ...]:
    """The layers a model describes, bottom-up, else a ValueError that names the caller."""
    if not fit.structure.layers:
        raise ValueError(
            f"{caller}: a model that describes its layers was expected, got"
            f" {type(fit.model).__name__}"
        )
    return fit.structure.layers


def site_matrix(fit: Fit, site: str | None, caller: str) -> tuple[str, np.ndarray]:
    """A parameter with two dims; the bottom layer's loadings unless named."""
    name = layers_of(fit, caller)[0].loadings if site is None else site
    if name not in fit.params:
        raise ValueError(f"{caller}: site must be one of {sorted(fit.params)}, got {name!r}")
    values = fit.params[name].detach().cpu().numpy()
    if values.ndim != 2:
        raise ValueError(
            f"{caller}: a site with two dims was expected, got {name!r} with shape {values.shape}"
        )
    return name, values
