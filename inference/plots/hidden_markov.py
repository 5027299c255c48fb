"""Pictures of hidden Markov models: transitions, dwell times, decoded path.

As in :mod:`inference.plots.fit`, everything is drawn on the ``ax`` given or on a figure of its own,
and returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from inference.fitting.columns import Names, checked_as_fitted, labels_of
from inference.inspection.hidden_markov import chain_times, smooth_states, viterbi_states
from inference.plots._common import (
    axes_of,
    colour_of,
    draw_shares,
    heat_map,
    new_figure,
    short_name,
)
from ppl_models.data.sequences import inside_of

if TYPE_CHECKING:
    from inference.fitting.result import Fit


MOST_ITEMS = 4  # panels of a decoded path
MOST_NUMBERS = 12  # states whose transitions are written into the cells
MOST_DWELL = 200  # steps of a visit that are drawn


def state_names(fit: Fit, names: Names | None = None) -> list[str]:
    """States by the user's names, or "state 0", "state 1", ..."""
    labels = labels_of(fit, "state", len(fit.params["transitions"]), names)
    return [f"state {label}" if isinstance(label, int) else str(label) for label in labels]


def plot_transitions(fit: Fit, names: Names | None = None, ax: Axes | None = None) -> Axes:
    """The transition matrix: the chance of every next state (column) from every state (row).

    Where durations are given, of the state of the next visit.

    Args:
        fit: of a hidden Markov model.
        names: for example ``{"state": ["calm", "storm"]}``.
        ax: where to draw; a new figure if None.

    Raises:
        ValueError: if the model is no hidden Markov model, or ``names`` do not fit its states.
    """
    moves = chain_times(fit).transitions.numpy()
    labels, size = [short_name(label, 14) for label in state_names(fit, names)], len(moves)
    texts = [["–" if chance == 0 else f"{chance:.2f}" for chance in line] for line in moves]
    shown, most = np.array(texts) if size <= MOST_NUMBERS else None, (size, size)
    ax = axes_of(ax, 2.4 + 0.62 * size, 1.5 + 0.5 * size)
    heat_map(ax, moves, labels, labels, "chance of the move", texts=shown, most=most)
    ax.set(xlabel="next state", ylabel="state")
    return ax


def plot_dwell_times(fit: Fit, names: Names | None = None, ax: Axes | None = None) -> Axes:
    """Plot the chance that a visit to each state lasts longer than a number of steps.

    Args:
        fit, names, ax: as of :func:`plot_transitions`.
    """
    times = chain_times(fit)
    finite = times.dwell[times.dwell.isfinite()]
    most = int(min(MOST_DWELL, max(8.0, 4 * float(finite.max()) if len(finite) else 8.0)))
    steps = np.arange(most + 1)
    lasts = np.cumsum(np.pad(times.dwell_chances(most).numpy(), ((0, 0), (1, 0))), 1)
    ax = axes_of(ax, 6.0, 3.0)
    for k, label in enumerate(state_names(fit, names)):
        dwell = float(times.dwell[k])
        steps_long = f"{dwell:.3g} step{'' if round(dwell, 2) == 1 else 's'} on average"
        label = f"{short_name(label)}: {steps_long if np.isfinite(dwell) else 'never left'}"
        ax.step(steps, 1 - lasts[k], where="post", color=colour_of(k), label=label)
    ax.set(xlabel="steps", ylabel="P(the visit lasts longer)", ylim=(0, 1.02), xlim=(0, most))
    ax.legend(fontsize="small")
    return ax


def plot_decoded_path(
    fit: Fit,
    data: Any,
    sequence: int = 0,
    items: Sequence[str] | None = None,
    names: Names | None = None,
    first: int = 0,
    max_steps: int = 500,
) -> Figure:
    """Plot a sequence with its most probable path, and state probabilities below.

    Args:
        fit: of a hidden Markov model.
        data: sequences, as the fit takes them.
        sequence: which one.
        items: names of the items that are drawn; the first four if None.
        names: as for :func:`plot_transitions`.
        first: step to begin with.
        max_steps: steps drawn at most.

    Raises:
        ValueError: if the model is no hidden Markov model, ``data`` does not fit it, or
            ``sequence``, ``items`` or ``first`` are none of its.
    """
    packed = checked_as_fitted(fit, data)[0]
    if not 0 <= sequence < len(packed):
        raise ValueError(
            f"plot_decoded_path: sequence must lie in 0 to {len(packed) - 1}, got {sequence}"
        )
    known = list(fit.item_names)
    shown = known[:MOST_ITEMS] if items is None else [str(item) for item in items]
    if not shown or any(item not in known for item in shown):
        raise ValueError(
            f"plot_decoded_path: items of the fit, such as {known[0]!r}, were expected, got {shown}"
        )
    own = packed[sequence : sequence + 1, : int(inside_of(packed)[sequence].sum())]
    if not 0 <= first < own.shape[1]:
        raise ValueError(
            f"plot_decoded_path: first must lie in 0 to {own.shape[1] - 1}, got {first}"
        )
    part = slice(first, min(first + max_steps, own.shape[1]))
    given = {"items": own, "length": [own.shape[1]]}
    path = viterbi_states(fit, given).state[0, part].numpy()
    chances = smooth_states(fit, given)[0, part].numpy()
    values, time = own[0, part].double().cpu().numpy(), np.arange(part.start, part.stop)
    labels = state_names(fit, names)
    figure = new_figure(8.5, 1.6 * len(shown) + 1.9)
    panels = figure.subplots(len(shown) + 1, 1, sharex=True, squeeze=False)[:, 0]
    starts = np.flatnonzero(np.append(True, path[1:] != path[:-1]))
    bounds = np.stack([starts, np.append(starts[1:], len(path))], 1)
    for panel, item in zip(panels, shown, strict=False):
        for state in np.unique(path):  # one collection a state: a patch a visit takes a second
            own_visits = path[starts] == state
            visits = [(time[begin] - 0.5, end - begin) for begin, end in bounds[own_visits]]
            spans = PolyCollection(
                [[(x, 0), (x, 1), (x + width, 1), (x + width, 0)] for x, width in visits],
                transform=panel.get_xaxis_transform(),
                facecolors=colour_of(state),
                alpha=0.28,
                linewidths=0,
            )
            panel.add_collection(spans, autolim=False)
        column = values[:, known.index(item)]
        panel.plot(time, column, color="#333333", linewidth=0.8)
        panel.plot(time, column, ".", color="#111111", markersize=3)
        panel.set_ylabel(short_name(item, 18))
    last = panels[-1]
    edges = np.append(time, time[-1] + 1) - 0.5
    draw_shares(last, edges, chances, [short_name(name) for name in labels])
    last.set(ylim=(0, 1), xlim=(edges[0], edges[-1]), xlabel="step", ylabel="P(state)")
    figure.legend(loc="outside upper center", ncols=min(len(labels), 6), fontsize="small")
    return figure
