"""Pictures: what was drawn, not only that nothing raised."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
import torch
from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from support.fitted_examples import HOSTILE, bernoulli_table, blocks_fit, encoder_fit, mixture_fit

from inference import Fit, plots
from inference.plots._common import NEGATIVE, POSITIVE, symmetric_limit
from inference.predictive import predictive_check
from ppl_models import DeepDiscreteEncoder


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def pixels(ax: Axes) -> np.ndarray:
    buffer = io.BytesIO()
    ax.figure.savefig(buffer, format="rgba", dpi=50)
    return np.frombuffer(buffer.getvalue(), dtype=np.uint8)


def with_params(fit: Fit, **changed: torch.Tensor) -> Fit:
    return dataclasses.replace(fit, params=fit.params | changed)


def test_loadings_are_drawn_as_they_are() -> None:
    fit = encoder_fit()
    ax = plots.plot_loadings(fit)
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), fit.params["loadings_1"].numpy())
    low, high = image.get_clim()
    assert low == -high < 0
    red, _, blue, _ = image.cmap(image.norm(high))
    assert red > blue  # positive is red
    np.testing.assert_allclose(image.cmap(image.norm(0.0))[:3], [0.97, 0.97, 0.97], atol=0.02)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert len(labels) == 8
    assert labels[0] == "reads"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1", "2"]
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("item", "latent_1")
    assert "loadings_1" in ax.get_title()
    assert len(ax.figure.axes) == 2  # and its colour bar
    assert len(np.unique(pixels(ax))) > 50  # dollars in a name are no formula


def test_loadings_of_another_site_on_a_given_axes_with_names() -> None:
    fit = encoder_fit()
    given = Figure().subplots()
    ax = plots.plot_loadings(fit, "loadings_2", ax=given, names={"latent_2": ["mood", "skill"]})
    assert ax is given
    assert ax.images[0].get_array().shape == (3, 2)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["mood", "skill"]


def test_zero_loadings_are_said_to_be_zero() -> None:
    fit = with_params(encoder_fit(), loadings_2=torch.zeros(3, 2, dtype=torch.float64))
    assert plots.plot_loadings(fit, "loadings_2").get_title().endswith("(all zero)")


def test_any_matrix_of_a_users_program_can_be_drawn() -> None:
    fit, _ = mixture_fit()
    ax = plots.plot_loadings(fit, "chance")
    np.testing.assert_array_equal(ax.images[0].get_array(), fit.params["chance"].numpy())
    assert ax.get_xlabel() == "chance_dim_1"


def test_a_program_that_draws_no_rows_of_its_own_is_checked_on_its_data() -> None:
    figure = plots.plot_posterior_predictive(*mixture_fit(), num_simulations=3)
    assert [ax.get_title().splitlines()[0] for ax in figure.axes] == [
        "Mean of each item",
        "Sums of rows",
        "Correlation of each pair of items",
    ]
    assert len(figure.axes[0].lines[0].get_xdata()) == 4


def test_bad_requests_are_refused() -> None:
    fit, _ = mixture_fit()
    with pytest.raises(ValueError, match="describes its layers was expected, got function"):
        plots.plot_loadings(fit)
    with pytest.raises(ValueError, match="describes its layers"):
        plots.plot_latent_graph(fit)
    with pytest.raises(
        ValueError, match=r"site must be one of \['chance', 'weights'\], got 'nothing'"
    ):
        plots.plot_loadings(fit, "nothing")
    with pytest.raises(ValueError, match="a site with two dims was expected, got 'weights'"):
        plots.plot_loadings(fit, "weights")
    with pytest.raises(
        ValueError, match=r"image_shape must be \(height, width\) of 8 items, got \(3, 3\)"
    ):
        plots.plot_loading_images(encoder_fit(), (3, 3))
    with pytest.raises(ValueError, match="rows must lie in 0..59, got"):
        plots.plot_reconstructions(encoder_fit(), bernoulli_table(), (2, 4), rows=[60])
    with pytest.raises(ValueError, match="axes must hold 3 axes, got 2"):
        plots.plot_posterior_predictive(
            encoder_fit(), bernoulli_table(), axes=list(Figure().subplots(1, 2))
        )
    with pytest.raises(ValueError, match="num_simulations must be a positive integer, got 0"):
        plots.plot_posterior_predictive(encoder_fit(), bernoulli_table(), num_simulations=0)


def test_many_names_are_thinned_and_long_ones_cut() -> None:
    point = encoder_fit()
    model = DeepDiscreteEncoder(200, (2,))
    names = tuple(f"an item with a very long name, number {j}" for j in range(200))
    params = {
        "loadings_1": torch.ones(200, 2),
        "intercepts_1": torch.zeros(200),
        "proportions": torch.ones(2) / 2,
    }
    ax = plots.plot_loadings(
        dataclasses.replace(point, model=model, params=params, item_names=names)
    )
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert len(labels) == 50
    assert labels[-1] == "an item with a …mber 196"
    assert ax.get_yticks().tolist() == list(range(0, 200, 4))


def test_loading_images_hold_intercepts_and_every_latent_in_one_range() -> None:
    fit = encoder_fit()
    ax = plots.plot_loading_images(fit, (2, 4), names={"latent_1": ["one", "two", "three"]})
    assert len(ax.images) == 4
    np.testing.assert_array_equal(
        ax.images[0].get_array().ravel(), fit.params["intercepts_1"].numpy()
    )
    for k in range(3):
        np.testing.assert_array_equal(
            ax.images[1 + k].get_array(), fit.params["loadings_1"][:, k].reshape(2, 4)
        )
    limits = {image.get_clim() for image in ax.images}
    assert len(limits) == 1
    low, high = limits.pop()
    assert low == -high
    assert texts(ax) == ["intercept", "one", "two", "three"]
    boxes = [image.get_extent() for image in ax.images]
    assert all(
        boxes[i][1] < boxes[i + 1][0] for i in range(3)
    )  # side by side, not on top of one another


def test_a_few_entries_at_their_bound_do_not_bleach_the_others() -> None:
    values = np.concatenate([np.zeros(60), np.linspace(0.5, 2.0, 38), [15.0, -15.0]])
    limit, clipped = symmetric_limit(values)
    assert clipped
    assert 1.5 < limit <= 2.0
    assert symmetric_limit(np.array([-3.0, 1.0, 2.0])) == (3.0, False)
    assert symmetric_limit(np.zeros(4)) == (1.0, False)
    sparse = np.zeros(1000)
    sparse[:3] = [2.0, -2.5, 2.2]
    assert symmetric_limit(sparse) == (2.5, False)


def test_the_graph_has_one_edge_a_loading_beyond_the_threshold() -> None:
    fit = encoder_fit()
    bottom = torch.zeros(8, 3, dtype=torch.float64)
    bottom[0, 0], bottom[1, 0], bottom[2, 1], bottom[3, 2] = (
        4.0,
        1.0,
        -2.0,
        0.25,
    )  # the last below the threshold 0.3
    top = torch.tensor([[2.0, 0.0], [0.0, -1.0], [0.1, 0.0]], dtype=torch.float64)
    ax = plots.plot_latent_graph(with_params(fit, loadings_1=bottom, loadings_2=top))
    edges = [c for c in ax.collections if isinstance(c, LineCollection)]
    by_colour = {
        colour: [
            c for c in edges if len(c.get_segments()) and colors.to_hex(c.get_color()[0]) == colour
        ]
        for colour in (POSITIVE, NEGATIVE)
    }
    positive = np.concatenate([c.get_linewidths() for c in by_colour[POSITIVE]])
    negative = np.concatenate([c.get_linewidths() for c in by_colour[NEGATIVE]])
    assert len(positive) == 3
    assert len(negative) == 2
    assert positive[0] == pytest.approx(positive[2])  # the largest of either layer is as wide
    assert positive[0] > negative[0] > positive[1]  # 4 > 2 > 1
    nodes = [c for c in ax.collections if isinstance(c, PathCollection)]
    assert sorted(len(c.get_offsets()) for c in nodes) == [2, 3, 8]
    assert {"item", "latent_1", "latent_2"} <= set(texts(ax))
    assert "<script>al…ript>" in texts(ax)
    assert "|loadings_1| > 0.3" in ax.get_title(loc="left")


def test_the_graph_counts_many_items_and_obeys_a_given_graph() -> None:
    fit = encoder_fit()
    ax = plots.plot_latent_graph(fit, max_items=5, threshold=0.0)
    weights = fit.params["loadings_1"]
    shown = texts(ax)
    assert "8 items" in shown
    for k in range(3):
        assert f"+{int((weights[:, k] > 0).sum())}" in shown
        assert f"−{int((weights[:, k] < 0).sum())}" in shown
    assert "reads" not in shown
    confirmed, _ = blocks_fit()
    full = with_params(confirmed, loadings_1=torch.ones(7, 2, dtype=torch.float64))
    ax = plots.plot_latent_graph(full)
    segments = sum(len(c.get_segments()) for c in ax.collections if isinstance(c, LineCollection))
    assert segments == 8  # edges of the graph, of 14 loadings


def test_the_trace_names_its_objective() -> None:
    fit = encoder_fit()
    ax = plots.plot_trace(fit)
    assert ax.get_ylabel() == fit.trace.name == fit.objective_name
    lines = {line.get_label(): line for line in ax.lines}
    np.testing.assert_array_equal(lines[fit.trace.name].get_ydata(), fit.trace.objective.numpy())
    np.testing.assert_array_equal(
        lines["log-likelihood"].get_ydata(), fit.trace.log_likelihood.numpy()
    )
    (ends,) = ax.collections
    np.testing.assert_array_equal(ends.get_offsets()[:, 1], fit.restarts.objective.numpy())
    np.testing.assert_array_equal(ends.get_offsets()[:, 0], fit.restarts.num_iterations.numpy())
    assert "not converged" in ax.get_title()
    same = dataclasses.replace(fit.trace, objective=fit.trace.log_likelihood, name="log-likelihood")
    ax = plots.plot_trace(dataclasses.replace(fit, trace=same))
    assert len(ax.lines) == 1  # no second line where it would be the same
    assert ax.get_ylabel() == "log-likelihood"


def test_restarts_are_sorted_and_hollow_where_not_converged() -> None:
    fit = encoder_fit()
    restarts = dataclasses.replace(
        fit.restarts,
        objective=torch.tensor([-12.0, -10.0, float("nan"), -15.0]),
        converged=torch.tensor([True, True, False, False]),
    )
    ax = plots.plot_restarts(dataclasses.replace(fit, restarts=restarts))
    done, unfinished = ax.collections
    np.testing.assert_allclose(done.get_offsets(), [[1, 0], [2, 2]])
    np.testing.assert_allclose(unfinished.get_offsets(), [[3, 5]])
    assert colors.to_hex(unfinished.get_facecolor()[0]) == "#ffffff"
    assert fit.objective_name in ax.get_ylabel()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "converged (2)",
        "not converged (1)",
    ]
    close = dataclasses.replace(
        restarts, objective=torch.tensor([0.0, 1e-9, 2e-9, 0.0], dtype=torch.float64)
    )
    low, high = plots.plot_restarts(dataclasses.replace(fit, restarts=close)).get_ylim()
    assert low > 1.0 > 0.0 > high  # rounding is not blown up to a spread
    nowhere = dataclasses.replace(restarts, objective=torch.full((4,), -torch.inf))
    with pytest.raises(ValueError, match="no start ended with a finite"):
        plots.plot_restarts(dataclasses.replace(fit, restarts=nowhere))


def test_predictive_check_compares_like_with_like() -> None:
    fit, table = encoder_fit(), bernoulli_table()
    check = predictive_check(fit, table, num_simulations=6, seed=1)
    np.testing.assert_array_equal(
        np.isnan(check.simulated), np.broadcast_to(table.isna(), (6, 60, 8))
    )
    means, simulated = check.item_means()
    np.testing.assert_allclose(means, table.mean().to_numpy())
    assert simulated.shape == (6, 8)
    sums, _ = check.row_sums()
    np.testing.assert_array_equal(sums, table.sum(axis=1).to_numpy())
    correlations, _ = check.correlations()
    expected = (
        table.drop(columns=HOSTILE).corr().to_numpy()[np.triu_indices(7, 1)]
    )  # the constant one has none
    np.testing.assert_allclose(correlations, expected, atol=1e-12)
    assert len(predictive_check(fit, table, max_rows=20).observed) == 20


def test_predictive_check_notices_a_wrong_fit() -> None:
    fit, table = encoder_fit(), bernoulli_table()
    wrong = with_params(fit, intercepts_1=fit.params["intercepts_1"] - 3.0)
    assert (
        predictive_check(wrong, table).num_outside()
        > predictive_check(fit, table).num_outside() + 3
    )


def test_predictive_pictures_show_data_and_simulations() -> None:
    fit, table = encoder_fit(), bernoulli_table()
    figure = plots.plot_posterior_predictive(fit, table, num_simulations=5)
    left, middle, right = figure.axes
    check = predictive_check(fit, table, num_simulations=5)
    observed, simulated = check.item_means()
    points = left.lines[0]
    np.testing.assert_allclose(points.get_xdata(), observed)
    np.testing.assert_allclose(points.get_ydata(), simulated.mean(0))
    (bars,) = [c for c in left.collections if isinstance(c, LineCollection)]
    assert len(bars.get_segments()) == 8
    assert f"{check.num_outside()} of 8 outside" in left.get_title()
    assert [text.get_text() for text in middle.get_legend().get_texts()] == [
        "observed",
        "simulated",
    ]
    heights = np.array([bar.get_height() for bar in middle.containers[0]])
    widths = np.array([bar.get_width() for bar in middle.containers[0]])
    assert (heights * widths).sum() == pytest.approx(1.0)
    assert len(right.lines[0].get_xdata()) == 21  # pairs of the seven items that vary
    assert "60 rows" in figure.get_suptitle()


def test_predictive_pictures_of_mixed_items_on_given_axes() -> None:
    fit, table = blocks_fit()
    axes = list(Figure().subplots(1, 3))
    figure = plots.plot_posterior_predictive(fit, table, axes=axes, num_simulations=3)
    assert figure is axes[0].figure
    assert "standardised" in axes[1].get_xlabel()
    assert all(ax.has_data() for ax in axes)


def test_reconstructions_are_below_their_rows_and_missing_entries_stand_out() -> None:
    fit, table = encoder_fit(), bernoulli_table()
    rows = [1, 3]
    ax = plots.plot_reconstructions(fit, table, (2, 4), rows=rows)
    assert len(ax.images) == 4
    rebuilt = fit.reconstruct(table).numpy()
    for column, row in enumerate(rows):
        data, below = ax.images[2 * column], ax.images[2 * column + 1]
        shown = np.ma.filled(data.get_array(), np.nan)
        np.testing.assert_array_equal(shown.ravel(), table.to_numpy()[row])
        np.testing.assert_allclose(below.get_array().ravel(), rebuilt[row])
        assert data.get_extent()[3] < below.get_extent()[3]
        assert data.get_extent()[:2] == below.get_extent()[:2]
    cmap = ax.images[0].cmap
    assert colors.to_hex(cmap.get_bad()) not in {
        colors.to_hex(cmap(x)) for x in np.linspace(0, 1, 256)
    }
    assert {"row 1", "row 3", "data"} <= set(texts(ax))


def test_nothing_is_left_in_pyplot() -> None:
    from matplotlib import pyplot

    plots.plot_loadings(encoder_fit())
    plots.plot_posterior_predictive(encoder_fit(), bernoulli_table(), num_simulations=2)
    assert pyplot.get_fignums() == []
