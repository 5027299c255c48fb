"""Pictures of attribute models: Q-matrix and profiles."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from inference.fitting.columns import Names, labels_of
from inference.inspection.attributes import attribute_model, rises
from inference.inspection.item_curves import profile_shares
from inference.plots._common import axes_of, heat_map, short_name
from ppl_models.parts.distributions import binary_configurations

if TYPE_CHECKING:
    from inference.fitting.result import Fit


MAX_LISTED = 14  # attributes whose profiles are listed
WIDTH = 44  # characters of a line of names


def plot_q_matrix(fit: Fit, ax: Axes | None = None, names: Names | None = None) -> Axes:
    """Plot the Q-matrix, its ones coloured by the mean rise of the expected response.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`.
        ax: where to draw; a new figure if None.
        names: names of the entries by dim, ``"item"`` and ``"attribute"``.

    Raises:
        ValueError: for another model, or an item with more than ten attributes.
    """
    layer = attribute_model(fit, "plot_q_matrix").layers[0]
    mean = np.full((layer.num_items, layer.num_parents), np.nan)
    for one in rises(fit, "plot_q_matrix"):
        mean[one.items, one.attribute] = one.rise.mean(0).numpy()
    size = min(14.0, 3.5 + 0.45 * layer.num_parents), min(12.0, 2.0 + 0.2 * layer.num_items)
    ax, items = axes_of(ax, *size), labels_of(fit, "item", layer.num_items, names)
    attributes = labels_of(fit, "attribute", layer.num_parents, names)
    heat_map(ax, mean, items, attributes, "rise of the expected response", None)
    ax.set(xlabel="attribute", ylabel="item", title="What items ask for, and gain by it")
    return ax


def plot_profiles(
    fit: Fit,
    ax: Axes | None = None,
    names: Names | None = None,
    max_profiles: int = 16,
    data: Any = None,
) -> Axes:
    """The most common profiles of attributes in the population, as bars.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`.
        ax: where to draw; a new figure if None.
        names: names of the entries by dim, ``"attribute"``.
        max_profiles: bars, at most.
        data: the rows that the model was fitted to; where they are given the bars have 95 %
            intervals.

    Raises:
        ValueError: for another model, or more profiles than can be listed; with ``data``, what
            :func:`inference.inspection.profile_shares` refuses.
    """
    structure = attribute_model(fit, "plot_profiles")
    size, root, params = structure.layers[0].num_parents, structure.root, fit.params
    if root.profiles is None and size > MAX_LISTED:
        raise ValueError(
            f"plot_profiles: at most {MAX_LISTED} attributes were expected, got {size}"
        )
    like, profiles = next(iter(params.values())), root.profiles
    if profiles is None:
        profiles = binary_configurations(size, like.dtype, like.device)
    chances = root.distribution(params).log_prob(profiles.to(like)).exp().detach()
    order = chances.argsort(descending=True)[:max_profiles].tolist()
    attributes = [str(name) for name in labels_of(fit, "attribute", size, names)]
    texts = []
    for c in order:
        has = [name for name, bit in zip(attributes, profiles[c].tolist(), strict=True) if bit]
        texts.append("none" if not has else "all" if len(has) == size else _wrapped(has))
    lines = sum(text.count("\n") + 1 for text in texts)
    ax = axes_of(ax, 7.0, 1.2 + 0.15 * (len(order) + lines))
    reach = None
    if data is not None:
        found = profile_shares(fit, data)
        ends = np.stack([found.shares - found.low, found.high - found.shares])
        reach = np.nan_to_num(ends)[:, order]
    places, lengths = np.arange(len(order)), chances[order].cpu().numpy()
    ax.barh(places, lengths, color="#4c72b0", xerr=reach, ecolor="#222222", capsize=2.5)
    ax.set_yticks(places, texts, fontsize=8)
    ax.invert_yaxis()
    rest = float(1 - chances[order].sum())
    others = len(chances) - len(order)
    more = f" (the other {others:,} hold {rest:.2f})" if others > 0 else ""
    ax.set(xlabel="share of the population", title=f"Attributes that a row has{more}")
    return ax


def _wrapped(names: Sequence[str]) -> str:
    """Names on one line or two, each cut short rather than one of them left out."""
    most = max(6, 2 * WIDTH // len(names) - 2)
    text = ", ".join(short_name(name, most) for name in names)
    lines = textwrap.wrap(text, WIDTH, break_long_words=False)
    return "\n".join([*lines[:1], " ".join(lines[1:])]) if len(lines) > 1 else lines[0]
