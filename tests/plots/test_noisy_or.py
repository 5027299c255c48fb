"""Pictures of latents show the numbers they are given."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from inference import fit
from inference.inspection import filter_latents
from inference.plots import plot_failures, plot_latents, plot_matching_stability
from inference.report import write_report
from ppl_models import NoisyOr
from ppl_models.datasets import image_design, sample_noisy_or
from ppl_models.datasets.noisy_or import random_design


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


def test_the_heat_map_is_one_minus_failure() -> None:
    params = image_design()
    params["prior"] = torch.linspace(0.1, 0.8, 8, dtype=torch.float64)
    figure = plot_failures(params, [f"pixel {j}" for j in range(64)])
    (ax,) = figure.axes
    assert np.array_equal(
        np.asarray(ax.get_images()[0].get_array()), 1 - params["failure"].numpy()[::-1]
    )
    assert [tick.get_text() for tick in ax.get_yticklabels()][0] == "7: 0.800"
    assert [tick.get_text() for tick in ax.get_xticklabels()][3] == "pixel 3"
    figure.canvas.draw()


@pytest.mark.parametrize("image_shape", [(3, 4), None])
def test_the_report_draws_the_latents(image_shape: tuple[int, int] | None, tmp_path) -> None:
    truth = random_design(5, seed=1, num_latents=3, num_items=12)
    data, _ = sample_noisy_or(
        truth | {"leak": torch.full((12,), 0.05, dtype=torch.float64)}, 400, seed=1
    )
    result = fit(NoisyOr(12, 5), data, seed=0)
    html = write_report(result, data, tmp_path / "report.html", image_shape=image_shape).read_text()
    section = html.split('<section id="loadings">')[1].split("</section>")[0]
    assert section.count("data:image/png;base64") == 1
    words = re.findall(r"<tr>(.*?)</tr>", section)[1:]
    assert len(words) == 5
    verdict = filter_latents(result.params)
    assert sum("discarded" in word for word in words) == len(verdict.discarded)
    assert sum("kept" in word for word in words) == len(verdict.kept)
    surest = str(int(result.params["failure"][0].argmin()))
    assert re.findall(r"<td[^>]*>(.*?)</td>", words[0])[3].split(", ")[0] == surest
    with pytest.raises(ValueError, match="12"):
        write_report(result, data, tmp_path / "report.html", image_shape=(3, 5))
