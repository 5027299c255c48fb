"""Pictures of topics and of surveys: word lists, latents by group, heat maps of skills.

As in :mod:`inference.plots.fit`, every function draws on the ``ax`` it is given or on a figure of
its own and returns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from inference.plots._common import axes_of, heat_map

if TYPE_CHECKING:
    from inference.inspection.topics import GroupMeans


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
    ax = axes_of(ax, 1.35 * len(topics), 0.24 * longest + 0.6)
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
    ax = axes_of(ax, 1.25 * num_latents + 1.6, 0.45 * num_groups + 1.2)
    cells = zip(table.means.ravel(), table.standard_errors.ravel(), strict=True)
    texts = [
        f"{mean:.2f}" if np.isnan(error) else f"{mean:.2f} ± {2 * error:.2f}"
        for mean, error in cells
    ]
    groups = [f"{name} ({size})" for name, size in zip(group_names, table.sizes, strict=True)]
    bar, cells_of = "mean latent (± 2 standard errors)", np.reshape(texts, table.means.shape)
    style: dict[str, Any] = {"colours": "cividis", "most": table.means.shape, "length": 60}
    heat_map(ax, table.means, groups, latent_names, bar, texts=cells_of, **style)
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
    ax = axes_of(ax, 0.7 * table.shape[1] + 1.8, 0.17 * len(table) + 1.5)
    columns, most = ["intercept", *latent_names], (len(items), table.shape[1])
    heat_map(ax, table, items, columns, "effect", None, most=most, length=60)
    ax.set_facecolor("#e8e8e8")
    ax.axvline(0.5, color="black", linewidth=1)
    ax.tick_params("y", labelsize=6)
    ax.set(ylabel="item", title=title)
    return ax
