"""What the pictures of topics and surveys hold."""

from __future__ import annotations

import numpy as np
import pytest

from inference.inspection import group_means
from inference.plots import plot_group_means, plot_skill_effects, plot_topic_words


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_topic_words_stand_in_their_column_in_order():
    ax = plot_topic_words([("star", "moon"), (), ("game",)], ["sky", "nothing", "sport"])
    assert texts(ax) == ["sky", "star", "moon", "nothing", "sport", "game"]
    places = {text.get_text(): text.get_position() for text in ax.texts}
    assert places["star"] == (0, 0)
    assert places["moon"] == (0, 1)
    assert places["game"] == (2, 0)
    ax.figure.canvas.draw()
    for bad in ([], [("a",)]):
        with pytest.raises(ValueError, match="topic|names"):
            plot_topic_words(bad, ["x", "y"])


def test_group_means_are_written_with_two_standard_errors():
    table = group_means([[1, 0], [0, 0], [1, 1]], [2, 2, 1])
    ax = plot_group_means(table, ["low", "high"], ["a", "b"])
    assert texts(ax) == ["1.00", "1.00", "0.50 ± 1.00", "0.00 ± 0.00"]
    assert np.allclose(ax.images[0].get_array(), table.means)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["low (1)", "high (2)"]
    ax.figure.canvas.draw()
    with pytest.raises(ValueError, match="names"):
        plot_group_means(table, ["low"], ["a", "b"])


def test_skill_effects_leave_cells_off_the_matrix_blank():
    q = np.array([[1, 0], [0, 1], [1, 1]])
    ax = plot_skill_effects(
        [1.0, 2.0, -3.0], [[0.5, 9.0], [9.0, -1.0], [0.2, 0.4]], q, ["s", "t"], title="log-odds"
    )
    shown = np.ma.filled(ax.images[0].get_array().astype(float), np.nan)
    assert np.allclose(shown, [[1, 0.5, np.nan], [2, np.nan, -1], [-3, 0.2, 0.4]], equal_nan=True)
    low, high = ax.images[0].get_clim()
    assert low == -high
    assert ax.get_title() == "log-odds"
    ax.figure.canvas.draw()
    with pytest.raises(ValueError, match="expected"):
        plot_skill_effects([1.0], [[1.0, 2.0]], q, ["s", "t"])
    with pytest.raises(ValueError, match="names"):
        plot_skill_effects([1.0, 2.0, 3.0], np.ones((3, 2)), q, ["s"])
