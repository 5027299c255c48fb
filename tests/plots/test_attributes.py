"""Pictures of attribute models: what was drawn, not only that something was."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inference import EM, Fit, fit
from inference.inspection import classify_rows, item_curves, profile_shares
from inference.plots import plot_item_curves, plot_mastery, plot_profiles, plot_q_matrix
from ppl_models import DeepDiscreteEncoder, LatentAttributeModel, Normal
from ppl_models.datasets import mastery_test


@pytest.fixture(scope="module")
def fitted() -> Fit:
    design = mastery_test(12, 3, seed=1)
    model = LatentAttributeModel(
        design.model.q_matrix, items="dina", attribute_names=("add", "carry", "borrow")
    )
    return fit(model, design.draw(600, seed=2)[0], EM(tolerance=1e-5), num_restarts=1)


def test_the_matrix(fitted: Fit) -> None:
    ax = plot_q_matrix(fitted)
    shown = np.ma.filled(ax.images[0].get_array(), np.nan)
    matrix = np.array(fitted.model.q_matrix)
    assert np.array_equal(~np.isnan(shown), matrix == 1)
    guess, slip = fitted.model.guess_slip(fitted.params).unbind(-1)
    rise = (1 - slip - guess).numpy()
    for j, row in enumerate(
        matrix
    ):  # of q attributes, the others are all there in one of 2^(q - 1) profiles
        assert np.allclose(shown[j, row == 1], rise[j] / 2 ** (row.sum() - 1))
    assert [text.get_text() for text in ax.get_xticklabels()] == ["add", "carry", "borrow"]


def test_profiles(fitted: Fit) -> None:
    ax = plot_profiles(fitted, max_profiles=5)
    chances = fitted.params["profiles"].sort(descending=True)
    assert np.allclose([bar.get_width() for bar in ax.patches], chances.values[:5].numpy())
    texts = [text.get_text() for text in ax.get_yticklabels()]
    expected = {
        0: "none",
        1: "borrow",
        2: "carry",
        3: "carry + borrow",
        4: "add",
        5: "add + borrow",
        6: "add + carry",
        7: "all",
    }
    assert texts == [expected[int(c)] for c in chances.indices[:5]]
    assert "the other 3 hold" in ax.get_title()


def test_profiles_with_intervals(fitted: Fit) -> None:
    items = mastery_test(12, 3, seed=1).draw(600, seed=2)[0]
    ax, found = plot_profiles(fitted, data=items), profile_shares(fitted, items)
    order = np.argsort(-found.shares, kind="stable")
    (lines,) = (
        container for container in ax.containers if type(container).__name__ == "ErrorbarContainer"
    )
    segments = np.array([segment[:, 0] for segment in lines[2][0].get_segments()])
    assert np.allclose(segments, np.stack([found.low, found.high], 1)[order])


def test_item_curves(fitted: Fit) -> None:
    items = mastery_test(12, 3, seed=1).draw(600, seed=2)[0]
    figure, found = plot_item_curves(fitted, items, items=["0", "8"]), item_curves(fitted, items)
    assert len(figure.axes) == 2
    for ax, name in zip(figure.axes, ("0", "8"), strict=True):
        own = found.item == int(name)
        shown = (
            found.expected[own] if name == "0" else found.expected[own][[0, -1]]
        )  # a conjunctive item has two values, and two bars
        assert np.allclose([bar.get_height() for bar in ax.patches], shown)
        assert [text.get_text() for text in ax.get_xticklabels()] == (
            ["none", "add"] if name == "0" else ["not all", "all"]
        )
        assert ax.get_title() == name
    assert len([ax for ax in plot_item_curves(fitted, items).axes if ax.get_visible()]) == 12
    with pytest.raises(ValueError, match="items must be names of the fit's items"):
        plot_item_curves(fitted, items, items=["nine"])


def test_mastery(fitted: Fit) -> None:
    items = mastery_test(12, 3, seed=1).draw(600, seed=2)[0]
    ax = plot_mastery(fitted, items)
    shown = np.asarray(ax.images[0].get_array())
    assert np.allclose(np.sort(shown, 0), np.sort(classify_rows(fitted, items).probabilities, 0))
    assert (np.diff(shown.sum(1)) <= 1e-12).all()
    assert [text.get_text() for text in ax.get_xticklabels()] == ["add", "carry", "borrow"]


@pytest.mark.filterwarnings("ignore")  # of noise without attributes
def test_another_model() -> None:
    items = torch.randn(40, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    other = fit(
        DeepDiscreteEncoder(4, (1,), Normal()), items, EM(max_iterations=200), num_restarts=1
    )
    for draw in (plot_q_matrix, plot_profiles):
        with pytest.raises(ValueError, match="LatentAttributeModel was expected"):
            draw(other)
    for ask in (plot_item_curves, plot_mastery):
        with pytest.raises(ValueError, match="LatentAttributeModel was expected"):
            ask(other, items)
