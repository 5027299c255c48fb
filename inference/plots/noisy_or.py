"""Pictures of the latents of a noisy-OR network: each as an image of what it switches on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from inference.plots.fit import _axes

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
    prior, failure = (
        params["prior"].detach().cpu().numpy(),
        params["failure"].detach().cpu().numpy(),
    )
    if image_shape[0] * image_shape[1] != failure.shape[1]:
        raise ValueError(
            f"image_shape: {image_shape} pixels do not make the {failure.shape[1]} items of the"
            " data"
        )
    chosen = [int(i) for i in np.argsort(-prior, kind="stable")] if order is None else list(order)
    if not chosen:
        raise ValueError("order: at least one latent was expected, got none")
    columns = min(8, len(chosen))
    rows = -(-len(chosen) // columns)
    figure = Figure(figsize=(1.25 * columns, 1.5 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.set_axis_off()
    for ax, latent in zip(axes.flat, chosen, strict=False):
        ax.imshow(
            1 - failure[latent].reshape(image_shape),
            cmap="Greys",
            vmin=0,
            vmax=1,
            interpolation="nearest",
        )
        ax.set_title(f"{latent}: {prior[latent]:.3f}{_word(latent, verdict)}", fontsize=8)
        ax.add_patch(_frame(image_shape))
    return figure


def plot_failures(params: Params, item_names: Sequence[str] = (), most_names: int = 80) -> Figure:
    """Plot 1 - failure as a heat map (black: always on), latents by falling prior.

    Args:
        params: ``prior`` (m,) and ``failure`` (m, J).
        item_names: of the columns; numbers if empty.
        most_names: items beyond which names are left out.
    """
    prior, failure = (
        params["prior"].detach().cpu().numpy(),
        params["failure"].detach().cpu().numpy(),
    )
    order = np.argsort(-prior, kind="stable")
    num_items = failure.shape[1]
    figure = Figure(
        figsize=(min(16, 2 + 0.16 * num_items), 1.4 + 0.25 * len(prior)), layout="constrained"
    )
    ax = figure.subplots()
    ax.imshow(
        1 - failure[order], cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="nearest"
    )
    ax.set_yticks(range(len(prior)), [f"{i}: {prior[i]:.3f}" for i in order], fontsize=8)
    if num_items <= most_names:
        shown = list(item_names) or [str(j) for j in range(num_items)]
        ax.set_xticks(range(num_items), shown, rotation=90, fontsize=7)
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
    ax = _axes(ax, 5, 3)
    times = range(len(stability)) if times is None else times
    ax.step(
        np.asarray(times),
        np.asarray(stability),
        where="post",
        color="#222222",
        label="keep the partner they end with",
    )
    if num_true is not None:
        ax.axhline(num_true, color="#e08214", linestyle="--", linewidth=1, label="true latents")
        ax.legend(fontsize=8, loc="lower right")
    ax.set(xlabel="snapshot", ylabel="latents with their last partner", ylim=(0, None))
    return ax


def _word(latent: int, verdict: LatentFilter | None) -> str:
    if verdict is None:
        return ""
    if latent in verdict.discarded:
        return "\ndiscarded"
    return f"\ndouble of {verdict.doubles[latent]}" if latent in verdict.doubles else "\nkept"


def _frame(image_shape: tuple[int, int]) -> object:
    from matplotlib.patches import Rectangle

    return Rectangle(
        (-0.5, -0.5), image_shape[1], image_shape[0], fill=False, edgecolor="#999999", linewidth=0.8
    )
