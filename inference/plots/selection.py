"""Pictures of a choice among sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from inference.plots.fit import _axes
from inference.selection.order_selection.detectability import noise_edge
from inference.selection.order_selection.result import STEEPER, HowManyOptions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from inference.selection.dimension import Selection
    from inference.selection.order_selection.result import HowMany, HowManyGroups


def plot_selection(selection: Selection, ax: Axes | None = None) -> Axes:
    """The deciding figure of every size, the chosen one marked.

    Args:
        selection: what :func:`inference.selection.dimension.select_dimension` returned.
        ax: where to draw; a new figure if None.
    """
    ax = _axes(ax, 6.0, 3.6)
    values, places = selection.columns[selection.score], range(len(selection.sizes))
    ax.plot(places, values, "o-", color="tab:blue")
    chosen = selection.sizes.index(selection.chosen)
    ax.axvline(chosen, color="tab:orange", linestyle="--", label=f"chosen: {selection.chosen}")
    ax.set_xticks(list(places), [str(size) for size in selection.sizes])
    ax.set_xlabel("size")
    meaning = {True: " (larger is better)", False: " (smaller is better)", None: ""}[
        selection.larger
    ]
    name = (
        selection.score.upper()
        if selection.score in ("aic", "bic", "ebic")
        else selection.score.replace("_", " ")
    )
    ax.set_ylabel(name + meaning)
    ax.legend()
    return ax


def plot_how_many(answer: HowMany) -> Figure:
    """Plot penalised likelihoods and gains of every distribution and number.

    Args:
        answer: of :func:`inference.selection.select_components`.
    """
    if isinstance(answer, HowManyOptions):
        return _of_options(answer)
    figure = Figure(figsize=(10.0, 4.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    table = answer.table
    lowest = table["strict"].min()
    for law in dict.fromkeys(name for name, _ in answer.fits):
        own = table.loc[law]
        left.plot(own.index, own["strict"] - lowest, "o-", label=law)
        right.plot(own.index, own["gain_in_edges"], "o-", label=law)
    for axes in (left, right):
        axes.axvline(answer.num_components, color="0.6", linestyle=":")
        axes.set_xlabel("number of components")
        axes.xaxis.get_major_locator().set_params(integer=True)
    left.set_yscale("symlog", linthresh=10)
    left.set_ylim(bottom=-1)
    left.set_ylabel("strict penalised deviance, above the best")
    right.axhspan(0, 1, color="0.9", label="noise alone")
    right.axhline(4 / 3, color="0.4", linestyle="--", label="counted from here")
    if answer.climb is not None:
        steep = (
            STEEPER
            * answer.climb.null_gain
            / noise_edge(answer.fit.num_rows, answer.climb.tables[0].shape[1])
        )
        right.axhline(
            steep,
            color="tab:red",
            linestyle=":",
            label="climbed from here, by tables drawn from the strict choice",
        )
    right.set_yscale("symlog", linthresh=2)
    right.set_ylabel("gain of the component, in noise edges")
    figure.legend(
        *right.get_legend_handles_labels(), fontsize="small", loc="outside lower center", ncols=3
    )  # on no point of either
    return figure


def plot_how_many_groups(answer: HowManyGroups) -> Figure:
    """Plot BIC, entropy of merged components, and chances of misclassification.

    Args:
        answer: of :func:`inference.selection.select_components` for a mixture.
    """
    figure = Figure(figsize=(10.0, 3.9), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    table, groups = answer.table, answer.groups
    for law in dict.fromkeys(name for name, _ in answer.fits):
        own = table.loc[law]
        left.plot(own.index, own["bic"] - table["bic"].min(), "o-", label=law)
    left.axvline(groups.num_fitted, color="0.6", linestyle=":")
    left.set_yscale("symlog", linthresh=10)
    left.set_ylim(bottom=-1)
    left.set_xlabel(f"number of {answer.noun}s")
    left.set_ylabel("BIC, above the best")
    numbers = sorted(groups.entropies)
    middle.plot(numbers, [groups.entropies[k] for k in numbers], "o-", color="0.3")
    middle.axvline(groups.num_separated, color="0.6", linestyle=":", label="separated groups")
    middle.set_xlabel(f"groups, as {answer.noun}s are merged")
    middle.set_ylabel("entropy of the assignments, nats")
    handles, labels = (
        one + other
        for one, other in zip(
            left.get_legend_handles_labels(), middle.get_legend_handles_labels(), strict=True
        )
    )
    figure.legend(
        handles, labels, fontsize="small", loc="outside lower center", ncols=4
    )  # on no point of any
    for axes in (left, middle):
        axes.xaxis.get_major_locator().set_params(integer=True)
    image = right.imshow(groups.misclassified.numpy(), vmin=0, vmax=1, cmap="Greys")
    right.set_xlabel(f"assigned to {answer.noun}")
    right.set_ylabel(f"{answer.unit} of {answer.noun}")
    numbered = [str(k) for k in range(groups.num_fitted)]
    right.set_xticks(range(groups.num_fitted), numbered)
    right.set_yticks(range(groups.num_fitted), numbered)
    figure.colorbar(image, ax=right, label="estimated chance")
    return figure


def _of_options(answer: HowManyOptions) -> Figure:
    figure = Figure(figsize=(10.0, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    own = answer.table.loc[answer.law]
    left.plot(own.index, own["bic"] - own["bic"].min(), "o-", label="BIC")
    left.plot(own.index, own["lenient"] - own["lenient"].min(), "o--", label="lenient penalty")
    for name, more in answer.memory.items():
        left.axhline(
            more,
            color="tab:red" if more < 0 else "0.6",
            linestyle=":" if name == "action" else "-.",
            label=f"one policy that looks at the last {name}, BIC",
        )
    left.set_yscale("symlog", linthresh=10)
    left.set_ylabel("above the best")
    right.plot(
        own.index,
        own["held_out"],
        "o-",
        color="tab:green",
        label="log-likelihood of held-out actions, a sequence",
    )
    right.set_ylabel("nats")
    if own["held_out"].isna().all():
        right.text(
            0.5, 0.5, "too few sequences to leave some out", ha="center", transform=right.transAxes
        )
    for axes in (left, right):
        axes.axvline(answer.interval[0], color="0.6", linestyle=":")
        axes.axvline(answer.interval[1], color="0.6", linestyle=":")
        axes.set_xlabel("number of options")
        axes.xaxis.get_major_locator().set_params(integer=True)
    handles, labels = (
        one + other
        for one, other in zip(
            left.get_legend_handles_labels(), right.get_legend_handles_labels(), strict=True
        )
    )
    figure.legend(
        handles, labels, fontsize="small", loc="outside lower center", ncols=2
    )  # on no point of either
    return figure
