"""Pictures of topics and of surveys: word lists, latents by group, heat maps of skills.

As in :mod:`inference.plots.fit`, every function draws on the ``ax`` it is given or on a figure of
its own and returns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from inference.plots._common import symmetric_limit
from inference.plots.fit import _axes

if TYPE_CHECKING:
    from inference.inspection.topics import GroupMeans


DIVERGING = "RdBu_r"


def plot_topic_words(
    topics: Sequence[Sequence[str]], names: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """One column a topic, its words from the first down.

    Args:
        topics: ranked words of each topic, as
            :func:`inference.inspection.topics.representative_words` gives them.
        names: one a topic; "topic 1" and so on if None.
        ax: where to draw; a new figure if None.

    Raises:
        ValueError: if there is no topic, or another number of names.
    """
    if not topics:
        raise ValueError("plot_topic_words: at least one topic was expected, got none")
    titles = [f"topic {k}" for k in range(len(topics))] if names is None else list(names)
    if len(titles) != len(topics):
        raise ValueError(f"plot_topic_words: {len(topics)} names were expected, got {len(titles)}")
    longest = max(1, max(len(topic) for topic in topics))
    if ax is None:
        ax = Figure(
            figsize=(1.35 * len(topics), 0.24 * longest + 0.6), layout="constrained"
        ).subplots()
    for k, (topic, title) in enumerate(zip(topics, titles, strict=True)):
        ax.text(k, -1, title, ha="center", va="center", weight="bold", fontsize=9)
        for row, word in enumerate(topic):
            ax.text(k, row, word, ha="center", va="center", fontsize=8)
    ax.set_xlim(-0.5, len(topics) - 0.5)
    ax.set_ylim(longest - 0.5, -1.7)
    ax.axis("off")
    return ax


def plot_group_means(
    table: GroupMeans,
    group_names: Sequence[str],
    latent_names: Sequence[str],
    ax: Axes | None = None,
) -> Axes:
    """Plot mean latents by group as coloured cells, with twice the standard error.

    Args:
        table: of :func:`inference.inspection.group_means`.
        group_names, latent_names: of its rows and columns.
        ax: where to draw; a new figure if None.

    Raises:
        ValueError: if the names do not fit the table.
    """
    num_groups, num_latents = table.means.shape
    if (len(group_names), len(latent_names)) != (num_groups, num_latents):
        raise ValueError(
            f"plot_group_means: {num_groups} group and {num_latents} latent names were expected,"
            f" got {len(group_names)} and {len(latent_names)}"
        )
    ax = _axes(ax, 1.25 * num_latents + 1.6, 0.45 * num_groups + 1.2)
    image = ax.imshow(table.means, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for g in range(num_groups):
        for k in range(num_latents):
            mean, error = table.means[g, k], table.standard_errors[g, k]
            text = f"{mean:.2f}" if np.isnan(error) else f"{mean:.2f} ± {2 * error:.2f}"
            ax.text(
                k,
                g,
                text,
                ha="center",
                va="center",
                fontsize=7,
                color="black" if mean > 0.5 else "white",
            )
    ax.set_xticks(range(num_latents), latent_names, rotation=20, ha="right")
    ax.set_yticks(
        range(num_groups),
        [f"{name} ({size})" for name, size in zip(group_names, table.sizes, strict=True)],
    )
    figure = ax.figure
    figure.colorbar(image, ax=ax, label="mean latent (± 2 standard errors)")
    return ax


def plot_skill_effects(
    intercepts: Any,
    loadings: Any,
    q_matrix: Any,
    latent_names: Sequence[str],
    item_names: Sequence[str] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Intercepts and loadings of items as a heat map, cells off the Q-matrix left blank.

    Args:
        intercepts: (J,).
        loadings: (J, K).
        q_matrix: (J, K) of 0 and 1.
        latent_names: K names.
        item_names: J names, numbers from 1 if None.
        title: above the map, for example the unit of the predictor.
        ax: where to draw; a new figure if None.

    Raises:
        ValueError: if shapes or names do not fit.
    """
    base, effects, edges = (
        np.asarray(value, dtype=float) for value in (intercepts, loadings, q_matrix)
    )
    items = [str(j + 1) for j in range(len(effects))] if item_names is None else list(item_names)
    if effects.ndim != 2 or edges.shape != effects.shape or base.shape != effects.shape[:1]:
        raise ValueError(
            "plot_skill_effects: intercepts (J,), loadings (J, K) and q_matrix (J, K) were"
            f" expected, got {base.shape}, {effects.shape} and {edges.shape}"
        )
    if len(latent_names) != effects.shape[1] or len(items) != len(effects):
        raise ValueError(f"plot_skill_effects: names for {effects.shape} were expected")
    table = np.column_stack([base, np.where(edges > 0, effects, np.nan)])
    if ax is None:
        ax = Figure(
            figsize=(0.7 * table.shape[1] + 1.8, 0.17 * len(table) + 1.5), layout="constrained"
        ).subplots()
    limit = symmetric_limit(table[np.isfinite(table)])[0]
    image = ax.imshow(table, cmap=DIVERGING, vmin=-limit, vmax=limit, aspect="auto")
    ax.set_facecolor("#e8e8e8")
    ax.axvline(0.5, color="black", linewidth=1)
    ax.set_xticks(range(table.shape[1]), ["intercept", *latent_names], rotation=30, ha="right")
    ax.set_yticks(range(len(items)), items, fontsize=6)
    ax.set_ylabel("item")
    ax.set_title(title, fontsize=9)
    ax.figure.colorbar(image, ax=ax)
    return ax
