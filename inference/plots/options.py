"""Pictures of options: policies, occupancy over time, switches.

As in :mod:`inference.plots.fit`, everything is drawn on the ``ax`` given or on a figure of its own,
and returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from inference.fitting.columns import Names, labels_of
from inference.inspection.options import smooth_options
from inference.plots._common import (
    DIVERGING,
    axes_of,
    colour_bar,
    colour_of,
    draw_shares,
    heat_map,
    new_figure,
    short_name,
)
from ppl_models.data.sequences import feature_lengths, trajectory_lengths
from ppl_models.descriptions.options import ChainDescription, PolicyDescription, with_high

if TYPE_CHECKING:
    from inference.fitting.result import Fit


MOST_ROWS = 40  # states that are numbered one by one


def _chain(fit: Fit, caller: str) -> ChainDescription:
    about = fit.structure.about
    if not isinstance(about, ChainDescription):
        raise ValueError(
            f"{caller}: a model of hidden options was expected, got {type(fit.model).__name__}"
        )
    return about


def plot_policies(
    fit: Fit,
    cells: Sequence[tuple[int, int]],
    moves: Sequence[tuple[int, int]],
    goals: Sequence[int] = (),
    figure: Figure | None = None,
) -> Figure:
    """Plot the low-level policy of every option as arrows of the mean move on a map.

    Args:
        fit: a fit of an options HMM whose states are cells of a map.
        cells: (row, column) of every state.
        moves: (rows, columns) that every action moves by; (0, 0) for one that does not move.
        goals: states to mark.
        figure: where to draw; a new one if None.

    Raises:
        ValueError: if the model has no options, or ``cells`` or ``moves`` do not fit its sizes.
    """
    chain = _chain(fit, "plot_policies")
    place, move = np.asarray(cells, dtype=float), np.asarray(moves, dtype=float)
    sizes = (("cells", place, chain.num_states), ("moves", move, chain.num_actions))
    for name, value, size in sizes:
        if value.shape != (size, 2):
            raise ValueError(
                f"plot_policies: {name} must hold {size} pairs (row, column), got shape"
                f" {value.shape}"
            )
    low = fit.params[chain.low].detach().cpu().numpy()
    height, width = np.ptp(place, axis=0) + 1
    size_of_figure = 2.0 + 0.45 * width * chain.num_options, 1.5 + 0.45 * height
    figure = new_figure(*size_of_figure) if figure is None else figure
    axes = figure.subplots(1, chain.num_options, squeeze=False)[0]
    style: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1.1, "width": 0.012}
    ring: dict[str, Any] = {"s": 120, "facecolors": "none", "edgecolors": "black"}
    (y, x), marked = place.T, list(goals)
    for option, ax in enumerate(axes):
        step = low[:, option] @ move  # (S, 2)
        ax.scatter(x, y, s=4, color="#bbbbbb")
        ax.quiver(x, y, step[:, 1], step[:, 0], color=colour_of(option), **style)
        ax.scatter(x[marked], y[marked], label="goal", **ring)
        ax.set(title=f"option {option}", xticks=[], yticks=[], aspect="equal")
        ax.set_xlim(x.min() - 0.8, x.max() + 0.8)
        ax.set_ylim(y.max() + 0.8, y.min() - 0.8)  # rows go down, as on the map
    return figure


def plot_option_occupancy(
    fit: Fit,
    data: Any,
    sequence: int | None = None,
    tasks: Any = None,
    max_steps: int = 300,
    ax: Axes | None = None,
) -> Axes:
    """Plot P(option | sequence) over time, of one sequence or averaged.

    Args:
        fit: a fit of an options HMM.
        data: sequences.
        sequence: which one; None for the average over all.
        tasks: (B, T), known sub-tasks, drawn as a strip below; only with one sequence.
        max_steps: draw at most so many.
        ax: where to draw; a new figure if None.

    Raises:
        ValueError: if the model has no options, ``data`` does not fit it, or ``sequence`` is out of
            range.
    """
    about = fit.structure.about
    if not isinstance(about, ChainDescription | PolicyDescription):
        raise ValueError(
            "plot_option_occupancy: a model of hidden options was expected, got"
            f" {type(fit.model).__name__}"
        )
    num_options = about.num_options
    packed, _ = fit.model.check_data(data, for_fit=False)  # type: ignore[attr-defined]
    if sequence is not None and not 0 <= sequence < len(packed):
        raise ValueError(
            f"plot_option_occupancy: sequence must lie in 0 to {len(packed) - 1}, got {sequence}"
        )
    chosen = packed if sequence is None else packed[sequence : sequence + 1]
    is_chain = isinstance(about, ChainDescription)
    lengths = trajectory_lengths(chosen) if is_chain else feature_lengths(chosen)
    steps = min(int(lengths.max()), max_steps)
    chosen = chosen[:, : int(lengths.max())]
    posterior = smooth_options(fit, chosen).option[:, :steps].numpy()
    share = posterior.sum(0) / np.maximum(posterior.sum((0, 2)), 1)[:, None]  # (steps, O)
    ax = axes_of(ax, 8.0, 2.6)
    draw_shares(ax, np.arange(steps + 1), share, [f"option {o}" for o in range(num_options)])
    bottom = 0.0
    if sequence is not None and tasks is not None:
        strip = np.asarray(tasks)[sequence, :steps]
        extent = (0, steps, -0.14, -0.04)
        ax.imshow(
            strip[None], "Greys", aspect="auto", interpolation="nearest", extent=extent, vmin=-1
        )
        bottom = -0.16
    ax.set(xlim=(0, steps), ylim=(bottom, 1), xlabel="step", ylabel="P(option | sequence)")
    ax.legend(loc="upper right", fontsize="small")
    return ax


def plot_policy_tables(fit: Fit, names: Sequence[str] | Names = ()) -> Figure:
    """Plot low-level policies as tables P(action | state), or weights of linear policies.

    Args:
        fit: a fit of a model of hidden options.
        names: of the columns of a continuous state; of other states and actions by dim, as in
            ``{"state": ["hall", "yard"], "action": ["stay", "go"]}``.

    Raises:
        ValueError: if the model has no options, or hidden units stand between states and actions.
    """
    about = fit.structure.about
    if isinstance(about, PolicyDescription):
        if about.policy.sites(about.num_features):
            raise ValueError(
                f"plot_policy_tables: weights on the state were expected, {about.policy!r} has"
                " hidden units between"
            )
        parts = fit.params["low_weights"], fit.params["low_intercepts"][..., None]
        weights = torch.cat(parts, -1)
        tables = weights.mT.detach().cpu().numpy()  # (O, F + 1, A - 1)
        rows = [*(names or [str(i) for i in range(about.num_features)]), "intercept"]
        columns, title = [str(a) for a in range(1, about.num_actions)], "log-odds against action 0"
        limit = max(1e-9, float(np.abs(tables).max()))
        limits, colours = (-limit, limit), DIVERGING
    else:
        chain = _chain(fit, "plot_policy_tables")
        tables = fit.params[chain.low].transpose(0, 1).detach().cpu().numpy()  # (O, S, A)
        by_dim = names if isinstance(names, Mapping) else None
        rows = [short_name(str(s)) for s in labels_of(fit, "state", chain.num_states, by_dim)]
        columns = [short_name(str(a)) for a in labels_of(fit, "action", chain.num_actions, by_dim)]
        title, limits, colours = "P(action | state)", (0.0, 1.0), "viridis"
    height, width = tables.shape[1:]
    size = (1.6 + len(tables) * (0.9 + 0.3 * width), min(9.0, 1.3 + 0.26 * height))
    figure = new_figure(min(size[0], 14.0), size[1])
    axes = figure.subplots(1, len(tables), squeeze=False, sharey=True)[0].tolist()
    for option, (ax, table) in enumerate(zip(axes, tables, strict=True)):
        image = heat_map(ax, table, (), columns, limits=limits, colours=colours, most=table.shape)
        ax.set(title=f"option {option}", xlabel="action")
    if height <= MOST_ROWS:
        axes[0].set(yticks=range(height), yticklabels=rows)
    axes[0].set_ylabel("state")
    colour_bar(axes, image, title)
    return figure


def plot_option_switches(fit: Fit, ax: Axes | None = None, names: Names | None = None) -> Axes:
    """Plot P(option is kept) in every state (rows) for every option (columns).

    Args:
        fit: a fit of a model of hidden options.
        ax: drawn on.
        names: of states, ``{"state": [...]}``.
    """
    chain = _chain(fit, "plot_option_switches")
    high = with_high(chain, fit.params)[chain.high].detach().cpu().numpy()
    kept = np.diagonal(high, axis1=1, axis2=2)  # (S, O)
    ax = axes_of(ax, 2.5 + 0.4 * kept.shape[1], 1.5 + 0.16 * kept.shape[0])
    rows = labels_of(fit, "state", len(kept), names) if len(kept) <= MOST_ROWS else ()
    heat_map(ax, kept, rows, range(kept.shape[1]), "P(option is kept)")
    ax.set(xlabel="option", ylabel="new state")
    return ax
