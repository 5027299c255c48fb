"""Pictures of the latents of a noisy-OR network: each as an image of what it switches on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from inference.plots._common import OBSERVED, SIMULATED, axes_of, heat_map, new_figure, panels_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from inference.inspection.noisy_or import LatentFilter
    from inference.programs.program import Params


def plot_latents(
    params: Params,
    image_shape: tuple[int, int],
    verdict: LatentFilter | None = None,
    order: Sequence[int] | None = None,
) -> Figure:
    """Plot latents as images of 1 - failure (black: always on), titled with their priors.

    Args:
        params: ``prior`` (m,) and ``failure`` (m, J).
        image_shape: rows and columns, with as many pixels as items.
        verdict: of :func:`inference.inspection.noisy_or.filter_latents`; what is discarded or
            double is said in the title.
        order: the latents to draw; all of them, by falling prior, if None.

    Raises:
        ValueError: if the pixels are not the items, or there is nothing to draw.
    """
    prior, failure = (params[name].detach().cpu().numpy() for name in ("prior", "failure"))
    if image_shape[0] * image_shape[1] != failure.shape[1]:
        raise ValueError(
            f"image_shape: {image_shape} pixels do not make the {failure.shape[1]} items of the"
            " data"
        )
    chosen = [int(i) for i in np.argsort(-prior, kind="stable")] if order is None else list(order)
    if not chosen:
        raise ValueError("order: at least one latent was expected, got none")
    figure, panels = panels_of(len(chosen), 8, 1.25, 1.5)
    for ax, latent in zip(panels, chosen, strict=True):
        shown = 1 - failure[latent].reshape(image_shape)
        ax.imshow(shown, "Greys", clim=(0, 1), interpolation="nearest")
        ax.set_title(f"{latent}: {prior[latent]:.3f}{_word(latent, verdict)}", fontsize=8)
        ax.set(xticks=[], yticks=[])
    return figure


def plot_failures(params: Params, item_names: Sequence[str] = (), most_names: int = 80) -> Figure:
    """Plot 1 - failure as a heat map (black: always on), latents by falling prior.

    Args:
        params: ``prior`` (m,) and ``failure`` (m, J).
        item_names: of the columns; numbers if empty.
        most_names: items beyond which names are left out.
    """
    prior, failure = (params[name].detach().cpu().numpy() for name in ("prior", "failure"))
    order = np.argsort(-prior, kind="stable")
    num_items = failure.shape[1]
    figure = new_figure(min(16, 2 + 0.16 * num_items), 1.4 + 0.25 * len(prior))
    ax, latents = figure.subplots(), [f"{i}: {prior[i]:.3f}" for i in order]
    items = list(item_names) or list(map(str, range(num_items)))
    most, names = (len(prior), most_names), items if num_items <= most_names else ()
    heat_map(ax, 1 - failure[order], latents, names, colours="Greys", most=most)
    ax.tick_params("x", rotation=90, labelsize=7)
    ax.set(xlabel="item", ylabel="latent: prior")
    return figure


def plot_matching_stability(
    stability: Sequence[float],
    times: Sequence[float] | None = None,
    num_true: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot how many true latents keep their last partner (Figure 3 of Buhai et al. 2020).

    Args:
        stability: (T,).
        times: (T,), iterations or epochs.
        num_true: drawn as a line.
        ax: where to draw; a new figure if None.
    """
    ax = axes_of(ax, 5, 3)
    times = range(len(stability)) if times is None else times
    label = "keep the partner they end with"
    ax.step(np.asarray(times), np.asarray(stability), where="post", color=OBSERVED, label=label)
    if num_true is not None:
        ax.axhline(num_true, color=SIMULATED, linestyle="--", linewidth=1, label="true latents")
        ax.legend(fontsize=8, loc="lower right")
    ax.set(xlabel="snapshot", ylabel="latents with their last partner", ylim=(0, None))
    return ax


def _word(latent: int, verdict: LatentFilter | None) -> str:
    if verdict is None:
        return ""
    if latent in verdict.discarded:
        return "\ndiscarded"
    return f"\ndouble of {verdict.doubles[latent]}" if latent in verdict.doubles else "\nkept"
