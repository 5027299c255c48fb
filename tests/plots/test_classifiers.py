"""What the pictures of independent classifiers hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from inference import ConvergenceWarning, TrainClassifiers, fit
from inference.identifiability import identifiability_of
from inference.inspection import classifier_curves, classifier_ensemble, read_classifiers
from inference.plots import plot_certainty, plot_classifiers, plot_component_densities
from inference.report import write_report
from ppl_models import InClassNet
from ppl_models.datasets import simulate_two_gaussians

DATA = pd.DataFrame(simulate_two_gaussians(400, seed=1).data, columns=["height", "weight"])


@pytest.fixture(scope="module")
def result():
    with pytest.warns(ConvergenceWarning):
        return fit(
            InClassNet((("height",), ("weight",)), 2),
            DATA,
            TrainClassifiers(max_epochs=3, batch_size=100),
            num_restarts=1,
        )


@pytest.fixture(scope="module")
def ensemble(result):
    return classifier_ensemble(result, DATA, num_halves=2, num_restarts=1)


def test_curves_and_bands(result, ensemble):
    curves = classifier_curves(result, DATA, "height")
    ax = plot_classifiers(result, DATA, "height")
    assert np.allclose(ax.lines[1].get_ydata(), curves.classifiers[:, 1])
    assert np.allclose(ax.lines[1].get_xdata(), curves.places)
    assert ax.get_xlabel() == "variate height"
    assert not ax.collections
    bands = plot_classifiers(ensemble, DATA, 0)
    assert len(bands.collections) == 2
    assert np.allclose(bands.lines[0].get_ydata(), curves.classifiers[:, 0])
    ax = plot_component_densities(ensemble, DATA, 1)
    assert np.allclose(
        ax.patches[0].get_data().values, classifier_curves(result, DATA, 1).densities[:, 0]
    )
    assert len(ax.collections) == 2
    ax.figure.canvas.draw()


def test_certainty_over_shares(result, ensemble):
    ax = plot_certainty(result, DATA, "weight")
    alpha = np.sort(read_classifiers(result, DATA).variates[1, :, 0].numpy())[::-1]
    line = next(line for line in ax.lines if len(line.get_xdata()))
    share, mean = float(line.get_xdata()[0]), float(line.get_ydata()[0])
    assert mean == pytest.approx(alpha[: round(share * 400) + 1].mean(), abs=5e-3)
    plot_certainty(ensemble, DATA, 0).figure.canvas.draw()
    with pytest.raises(ValueError, match="variate must be one of height, weight"):
        plot_certainty(result, DATA, "depth")


def test_page(result, ensemble, tmp_path):
    page = write_report(
        result, DATA, tmp_path, identifiability=identifiability_of(result, DATA)
    ).read_text(encoding="utf-8")
    assert "Can these components be believed?" in page
    assert page.index("Can these components be believed?") < page.index(
        "<h2>What each variate says"
    )
    assert page.count("<img") >= 7
    assert "never with the log-likelihood of a density" in page
    assert "Without intervals: classifier_ensemble" in page
    drawn = write_report(ensemble.fit, DATA, tmp_path / "drawn.html").read_text(encoding="utf-8")
    assert "over the members of the ensemble" in drawn
    assert "Without intervals: classifier_ensemble" not in drawn
    bare = write_report(result, None, tmp_path / "bare.html").read_text(encoding="utf-8")
    assert "Needs the data." in bare
