"""Pictures of independent classifiers: curves with bands, densities, certainty and costs.

As in :mod:`inference.plots.fit`, every function draws on the ``ax`` it is given or on a figure of
its own and returns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inference.fitting.result import Fit
from inference.identifiability.classifier_evidence import certainty_by_share
from inference.inspection.classifier_ensemble import ClassifierEnsemble, CurveBands
from inference.inspection.classifiers import (
    ClassifierCurves,
    classifier_curves,
    classifier_structure,
    complete_classifiers,
    variate_names,
)
from inference.plots._common import axes_of, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from inference.selection.saturation import Saturation


def plot_classifiers(
    fit: Fit | ClassifierEnsemble, data: Any, variate: int | str = 0, ax: Axes | None = None
) -> Axes:
    """The chance of every component along a variate of one column.

    Args:
        fit: a fit of independent classifiers, or an ensemble around it, which brings pointwise
            bands.
        data: its rows.
        variate: number (from 0) or name.
        ax: where to draw; a new figure if None.

    Raises:
        ValueError: for another kind of model, or a variate of several columns.
    """
    curves = _curves(fit, data, variate)
    ends = ("classifiers_lower", "classifiers_upper")
    ax = _by_component(
        ax, curves, curves.places, curves.classifiers, ends, "chance of the component"
    )
    ax.set_ylim(-0.02, 1.02)
    return ax


def plot_component_densities(
    fit: Fit | ClassifierEnsemble, data: Any, variate: int | str = 0, ax: Axes | None = None
) -> Axes:
    """Plot the density of a variate in every component, as a histogram of reweighted rows.

    Args:
        fit, data, variate, ax: as of :func:`plot_classifiers`.
    """
    curves = _curves(fit, data, variate)
    ends = ("densities_lower", "densities_upper")
    return _by_component(ax, curves, curves.edges, curves.densities, ends, "density")


def plot_certainty(
    fit: Fit | ClassifierEnsemble, data: Any, variate: int | str = 0, ax: Axes | None = None
) -> Axes:
    """Plot the certainty of a variate about every component, over the share of surest rows.

    Args:
        fit: a fit of independent classifiers; or an ensemble, whose members judge each other, with
            one-sided bounds.
        data: its rows.
        variate: number (from 0) or name.
        ax: where to draw; a new figure if None.

    Raises:
        ValueError: for another kind of model, or a variate that there is not.
    """
    own = fit.fit if isinstance(fit, ClassifierEnsemble) else fit
    structure, names = classifier_structure("plot_certainty", own), variate_names(own)
    place = names.index(variate) if isinstance(variate, str) and variate in names else variate
    if not isinstance(place, int) or not 0 <= place < len(names):
        raise ValueError(
            f"plot_certainty: variate must be one of {', '.join(names)} or its number, counted from"
            f" 0, got {variate!r}"
        )
    params = own.params
    if isinstance(fit, ClassifierEnsemble):
        params = {name: value[0] for name, value in fit.members.items()}
    alphas = complete_classifiers(structure, params, data)[place]
    members = alphas if alphas.ndim == 3 else alphas[None]
    ax = axes_of(ax, 5.2, 3.4)
    for i in range(members.shape[-1]):
        found, colour = certainty_by_share(members, i), f"C{i % 10}"
        shares, _, means, lower, upper = np.array(found).T if found else [[]] * 5
        label = f"component {i}{'' if found else ': too few rows'}"
        ax.plot(shares, means, "o-", color=colour, markersize=3 if found else 6, label=label)
        ax.fill_between(shares, lower, upper, color=colour, alpha=0.15, linewidth=0)
    drawn = any(np.size(line.get_xdata()) for line in ax.lines)
    ax.axhline(1.0, color="0.6", linewidth=0.8)
    ax.set_xscale("log")
    if not drawn:  # too few rows in every component
        ax.set_xlim(1e-3, 1.0)
    ax.invert_xaxis()
    ax.set_ylim(top=1.02)
    words = f"mean chance by variate {short_name(names[place])}"
    ax.set(xlabel="share of the rows that are surest", ylabel=words)
    ax.legend(fontsize=8)
    return ax


def plot_saturation(saturation: Saturation, ax: Axes | None = None) -> Axes:
    """Plot held-out cost against the number of components, with choice and bound.

    Args:
        saturation: what :func:`inference.selection.saturation.saturation` returned.
        ax: where to draw; a new figure if None.
    """
    ax = axes_of(ax, 5.2, 3.4)
    costs, errors, chosen = saturation.costs, saturation.errors, saturation.chosen
    ax.errorbar(saturation.sizes, costs, errors, fmt="o-", capsize=3, label="held-out cost")
    ax.axvline(chosen, color="tab:orange", linestyle="--", label=f"chosen: {chosen}")
    if saturation.bound is not None:
        level, error = -saturation.bound.estimate, saturation.bound.error
        so_far = " (found so far)" if saturation.bound.is_bound else ""
        words = f"minus the total correlation{so_far}"
        ax.axhline(level, color="0.3", linestyle=":", label=words)
        ax.axhspan(level - 2 * error, level + 2 * error, color="0.3", alpha=0.12, linewidth=0)
    ax.set_xticks(list(saturation.sizes))
    ax.set(xlabel="components", ylabel="nats a row, relative to independence")
    ax.legend(fontsize=8)
    return ax


def _curves(
    fit: Fit | ClassifierEnsemble, data: Any, variate: int | str
) -> ClassifierCurves | CurveBands:
    if isinstance(fit, ClassifierEnsemble):
        return fit.curves(data, variate)
    return classifier_curves(fit, data, variate)


def _by_component(
    ax: Axes | None,
    curves: ClassifierCurves | CurveBands,
    places: Any,
    values: Any,
    ends: tuple[str, str],
    what: str,
) -> Axes:
    ax = axes_of(ax, 5.2, 3.4)
    step: Any = "post" if len(places) > len(values) else None
    for i in range(values.shape[-1]):
        style: dict[str, Any] = {"label": f"component {i}", "color": f"C{i % 10}"}
        if step:
            ax.stairs(values[:, i], places, linewidth=1.5, **style)
        else:
            ax.plot(places, values[:, i], **style)
        if isinstance(curves, CurveBands):
            bands = [np.asarray(getattr(curves, name)[:, i]) for name in ends]
            low, high = (np.append(band, band[-1:]) if step else band for band in bands)
            shade: dict[str, Any] = {"color": f"C{i % 10}", "alpha": 0.2, "linewidth": 0}
            ax.fill_between(places, low, high, step=step, **shade)
    ax.set(xlabel=f"variate {short_name(curves.variate)}", ylabel=what)
    ax.legend(fontsize=8)
    return ax
