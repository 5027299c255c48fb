"""Pictures of latents show the numbers they are given."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inference.causes_check import filter_latents
from inference.plots_noisy_or import plot_latents, plot_matching_stability
from ppl_models.datasets import image_design


def test_latents_are_images_of_what_they_switch_on() -> None:
    params = image_design()
    params["prior"] = torch.tensor([0.3, 0.1, 0.2, 0.01, 0.5, 0.4, 0.35, 0.15], dtype=torch.float64)
    figure = plot_latents(params, (8, 8), filter_latents(params))
    order = [4, 5, 6, 0, 2, 7, 1, 3]
    for ax, latent in zip(figure.axes, order, strict=True):
        shown = np.asarray(ax.get_images()[0].get_array())
        assert np.array_equal(shown, 1 - params["failure"][latent].numpy().reshape(8, 8))
        assert ax.get_title().startswith(f"{latent}: {float(params['prior'][latent]):.3f}")
    assert "discarded" in figure.axes[-1].get_title()
    assert "kept" in figure.axes[0].get_title()
    figure.canvas.draw()
    assert len([ax for ax in plot_latents(params, (8, 8), order=[2]).axes if ax.get_images()]) == 1
    with pytest.raises(ValueError, match="image_shape"):
        plot_latents(params, (8, 9))
    with pytest.raises(ValueError, match="order"):
        plot_latents(params, (8, 8), order=[])


def test_stability_is_drawn() -> None:
    ax = plot_matching_stability([1, 3, 8], num_true=8)
    assert ax.get_lines()[0].get_ydata().tolist() == [1, 3, 8]
    assert ax.get_lines()[1].get_ydata()[0] == 8
