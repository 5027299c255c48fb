"""Pictures of attribute models: what was drawn, not only that something was."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inference import EM, Fit, fit
from inference.plots import plot_profiles, plot_q_matrix
from ppl_models import DeepDiscreteEncoder, LatentAttributeModel, Normal
from ppl_models.datasets import mastery_test


@pytest.fixture(scope="module")
def fitted() -> Fit:
    design = mastery_test(12, 3, seed=1)
    model = LatentAttributeModel(design.model.q_matrix, items="dina", attribute_names=("add", "carry", "borrow"))
    return fit(model, design.draw(600, seed=2)[0], EM(tolerance=1e-5), num_restarts=1)


def test_the_matrix(fitted: Fit) -> None:
    ax = plot_q_matrix(fitted)
    shown = np.ma.filled(ax.images[0].get_array(), np.nan)
    matrix = np.array(fitted.model.q_matrix)
    assert np.array_equal(~np.isnan(shown), matrix == 1)
    guess, slip = fitted.model.guess_slip(fitted.params).unbind(-1)
    rise = (1 - slip - guess).numpy()
    for j, row in enumerate(matrix):  # of q attributes, the others are all there in one of 2^(q - 1) profiles
        assert np.allclose(shown[j, row == 1], rise[j] / 2 ** (row.sum() - 1))
    assert [text.get_text() for text in ax.get_xticklabels()] == ["add", "carry", "borrow"]


def test_profiles(fitted: Fit) -> None:
    ax = plot_profiles(fitted, max_profiles=5)
    chances = fitted.params["profiles"].sort(descending=True)
    assert np.allclose([bar.get_width() for bar in ax.patches], chances.values[:5].numpy())
    texts = [text.get_text() for text in ax.get_yticklabels()]
    expected = {0: "none", 1: "borrow", 2: "carry", 3: "carry, borrow", 4: "add", 5: "add, borrow", 6: "add, carry", 7: "all"}
    assert texts == [expected[int(c)] for c in chances.indices[:5]]
    assert "the other 3 hold" in ax.get_title()


def test_another_model() -> None:
    items = torch.randn(40, 4, dtype=torch.float64)
    other = fit(DeepDiscreteEncoder(4, (1,), Normal()), items, EM(max_iterations=200), num_restarts=1)
    for draw in (plot_q_matrix, plot_profiles):
        with pytest.raises(ValueError, match="LatentAttributeModel was expected"):
            draw(other)
