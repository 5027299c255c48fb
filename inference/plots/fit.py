"""Pictures of a fit: convergence, restarts, posterior predictive check.

Every function draws with Matplotlib's object interface (no pyplot, no display, no global state), on
the ``ax`` it is given or on a figure of its own, and returns what it drew on:
``plot_loadings(fit).figure.savefig("picture.png")``. Colours are safe for colour-blind readers: red
(solid) for positive, blue (dashed) for negative; black for what was observed, orange for what was
simulated.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from inference.plots._common import NEGATIVE, OBSERVED, SIMULATED, axes_of, new_figure
from inference.predictive import PredictiveCheck, predictive_check
from ppl_models.parts.repr import counted
from ppl_models.parts.validation import Seed

if TYPE_CHECKING:
    from inference.fitting.result import Fit


FEW_PAIRS = 30  # of columns, whose points are drawn larger
LEAST_SPAN = 0.3  # of correlations in a picture, in which .01 is no difference
SAME_SUM = 1e-3  # range of sums, in standard deviations of an item, that says that all are one


def plot_trace(fit: Fit, ax: Axes | None = None) -> Axes:
    """Plot the objective over iterations, and the end of each start where it is one of these.

    Of a fit that kept its best iteration, by held-out rows, this is marked and not the ends.

    Args:
        fit: the fit.
        ax: where to draw; a new figure if None.
    """
    ax = axes_of(ax, 6.5, 3.8)
    objective = np.asarray(fit.trace.objective, dtype=np.float64)
    log_likelihood = np.asarray(fit.trace.log_likelihood, dtype=np.float64)
    steps = np.arange(1, len(objective) + 1)
    ax.plot(steps, objective, color=OBSERVED, linewidth=1.8, label=fit.trace.name)
    is_known = log_likelihood.shape == objective.shape and np.isfinite(log_likelihood).all()
    is_alike = not fit.trace.name.endswith("per row")  # else on another scale
    if is_known and is_alike and not np.allclose(objective, log_likelihood):
        ax.plot(steps, log_likelihood, "--", color=NEGATIVE, linewidth=1.4, label="log-likelihood")
    is_proper = np.asarray(fit.restarts.proper)
    ends = np.asarray(fit.restarts.objective, dtype=np.float64)[is_proper]
    lengths = np.asarray(fit.restarts.num_iterations)[is_proper]
    label = f"end of each of {len(ends)} starts" if len(ends) > 1 else "end"
    style: dict[str, Any] = {"color": SIMULATED, "edgecolor": "white", "linewidth": 0.5}
    if "held-out" in fit.objective_name and np.isfinite(objective).any():
        label, ends = "weights kept", np.array([fit.objective])
        lengths = steps[[np.nanargmin(np.abs(objective - fit.objective))]]
    if fit.trace.name == fit.objective_name:  # else on another scale
        ax.scatter(lengths, ends, 28, zorder=3, label=label, **style)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(fontsize=8)
    ax.grid(alpha=0.3)
    state = "converged" if fit.converged else "not converged"
    title = f"Convergence: {state} after {counted(fit.num_iterations, 'iteration')}"
    ax.set(xlabel="iteration", ylabel=textwrap.fill(fit.trace.name, 42), title=title)
    return ax


def plot_restarts(fit: Fit, ax: Axes | None = None) -> Axes:
    """Plot the gap of each start to the best one, hollow where it did not converge.

    Args:
        fit: the fit.
        ax: where to draw; a new figure if None.

    Starts that ended in no proper optimum are left out.

    Raises:
        ValueError: if no start ended with a finite objective; others are left out.
    """
    ends = np.where(fit.restarts.proper, fit.restarts.objective.double(), -np.inf)
    order = np.argsort(-ends)[: int(np.isfinite(ends).sum())]  # starts that failed sort last
    if not len(order):
        raise ValueError(f"plot_restarts: no start ended with a finite {fit.objective_name}")
    ax = axes_of(ax, 6.5, 3.2)
    gap, rank = (ends[order[0]] - ends)[order], np.arange(1, len(order) + 1)
    converged = np.asarray(fit.restarts.converged, dtype=bool)[order]
    kinds = ((converged, SIMULATED, "converged"), (~converged, "white", "not converged"))
    for kept, face, label in kinds:
        style: dict[str, Any] = {"facecolor": face, "edgecolor": SIMULATED}
        ax.scatter(rank[kept], gap[kept], 36, label=f"{label} ({kept.sum()})", **style)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    reach = max(float(gap.max()), 1.0)  # differences far below one nat are no spread
    ax.set_ylim(1.07 * reach, -0.07 * reach)
    ax.legend(fontsize=8)
    ax.grid(alpha=0.3)
    below = f"{textwrap.fill(fit.objective_name, 36)}:\nbelow the best"
    ax.set(xlabel="start, best first", ylabel=below, title="Spread over starts")
    return ax


def plot_posterior_predictive(
    fit: Fit,
    data: Any,
    axes: Sequence[Axes] | None = None,
    num_simulations: int = 20,
    seed: Seed = 0,
) -> Figure:
    """Plot simulated data beside the data: item means, sums of rows, correlations.

    The simulated data sets have the rows (at most 5,000) and the missing entries of the data. Bars
    span the simulated item means' central 95 %.

    Args:
        fit: the fit; its point estimate is simulated from.
        data: (N, J), NaN where missing.
        axes: three axes to draw on; a new figure if None.
        num_simulations: number of simulated data sets.
        seed: seed of the first.

    Raises:
        ValueError: if ``axes`` does not hold three, or as
            :func:`inference.predictive.predictive_check`.
    """
    if axes is not None and len(axes) != 3:
        raise ValueError(f"plot_posterior_predictive: axes must hold 3 axes, got {len(axes)}")
    check = predictive_check(fit, data, num_simulations, seed)
    return plot_check(check, axes)


def plot_check(
    check: PredictiveCheck, axes: Sequence[Axes] | None = None, name: str = ""
) -> Figure:
    """Plot a predictive check: means, sums of rows, correlations.

    Args:
        check: the check.
        name: what is compared, for the title.
        axes: three axes to draw on; a new figure if None.
    """
    if check.observed.shape[1] == 1 and axes is None:
        return _plot_one_column(check, name)
    num_simulations = len(check.simulated)
    figure = new_figure(10.5, 3.8)
    left, middle, right = figure.subplots(1, 3) if axes is None else axes
    observed, simulated = check.item_means()
    low, high = check.interval()
    centre = simulated.mean(0)
    bars = np.stack([np.clip(centre - low, 0, None), np.clip(high - centre, 0, None)])
    left.errorbar(observed, centre, bars, fmt="o", color=SIMULATED, markersize=4.5, linewidth=1.0)
    num_varying = int((np.nanmin(check.observed, 0) < np.nanmax(check.observed, 0)).sum())
    # observed as likely as any to be the least or the largest
    by_chance = 2 * num_varying / (num_simulations + 1)
    outside = f"{check.num_outside()} of {len(observed)} outside all simulations"
    title = f"Mean of each item\n({outside},\n{by_chance:.2g} by chance)"
    left.set(xlabel="observed", ylabel="simulated")
    left.set_title(title, y=1.0)  # a place that is given is not looked for, round by round
    _draw_sums(middle, check)
    pairs, simulated_pairs = check.correlations()
    step = max(1, len(pairs) // 3000)  # enough to see
    size = 4.5 if len(pairs) > FEW_PAIRS else 9.0
    right.plot(
        pairs[::step], simulated_pairs[::step], ".", color=SIMULATED, markersize=size, alpha=0.5
    )
    right.set(xlabel="observed", ylabel="simulated")
    right.set_title("Correlation of each pair of items", y=1.0)
    for ax, values, least in (
        (left, (observed, centre), 0.0),
        (right, (pairs, simulated_pairs), LEAST_SPAN),
    ):
        joint = np.concatenate(values)
        ends = np.array([np.nanmin(joint), np.nanmax(joint)] if joint.size else [0.0, 1.0])
        ends += max(0.0, least - np.ptp(ends)) * np.array([-0.5, 0.5])
        ax.plot(ends, ends, color=OBSERVED, linewidth=0.8, zorder=0)
        ax.grid(alpha=0.3)
    if axes is not None:
        return cast("Figure", left.figure)
    _title(figure, check, name)
    return figure


def _draw_sums(ax: Axes, check: PredictiveCheck) -> None:
    sums, simulated = check.row_sums()
    ax.set_title("Sums of rows", y=1.0)
    known = sums[np.isfinite(sums)]
    if not check.is_discrete and known.size and np.ptp(known) < SAME_SUM:
        words = "The items of every row\nadd up to the same."
        ax.text(0.5, 0.5, words, ha="center", va="center", transform=ax.transAxes)
        ax.set_axis_off()
        return
    _histograms(ax, sums, simulated, check.sum_bins())
    items = "items" if check.is_discrete else "standardised items"
    ax.set(xlabel=f"sum of {items} in a row", ylabel="density")


def _histograms(ax: Axes, observed: np.ndarray, simulated: np.ndarray, bins: Any) -> None:
    ax.hist(observed, bins, density=True, color="#bbbbbb", label="observed")
    style: dict[str, Any] = {"histtype": "step", "color": SIMULATED, "linewidth": 1.8}
    ax.hist(simulated.ravel(), bins, density=True, label="simulated", **style)
    ax.legend(fontsize=9)


def _plot_one_column(check: PredictiveCheck, name: str) -> Figure:
    figure = new_figure(8.5, 4)
    left, right = figure.subplots(1, 2)
    observed, simulated = check.observed[:, 0], check.simulated[..., 0]
    pooled = np.append(observed, simulated.ravel())
    pooled = pooled[np.isfinite(pooled)]
    few = check.is_discrete and np.ptp(pooled) < 60
    bins = (
        np.arange(pooled.min() - 0.5, pooled.max() + 1.0)
        if few
        else np.linspace(pooled.min(), pooled.max(), 31)
    )
    _histograms(left, observed, simulated, bins)
    left.set(xlabel="value", ylabel="density", title="Distribution over the rows")
    levels = np.linspace(0.02, 0.98, 49)
    own = np.nanquantile(observed, levels)
    low, middle, high = np.quantile(
        np.nanquantile(simulated, levels, axis=1), [0.025, 0.5, 0.975], axis=1
    )
    right.fill_between(own, low, high, color=SIMULATED, alpha=0.3, linewidth=0)
    right.plot(own, middle, color=SIMULATED, linewidth=1.8)
    right.plot([own[0], own[-1]], [own[0], own[-1]], color=OBSERVED, linewidth=0.8)
    right.set(xlabel="observed quantile", ylabel="simulated quantile", title="Quantiles")
    right.grid(alpha=0.3)
    _title(figure, check, name)
    return figure


def _title(figure: Figure, check: PredictiveCheck, name: str) -> None:
    rows = len(check.observed)
    of = (
        counted(rows, "row")
        if rows == check.num_rows
        else f"{rows:,} of {counted(check.num_rows, 'row')}"
    )
    words = (
        "Data simulated from the fit beside the data"
        f" ({counted(len(check.simulated), 'simulation')}, {of})"
    )
    title = f"{name[0].upper()}{name[1:]}\n{words}" if name else words
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")  # whole where the rest is scrolled
