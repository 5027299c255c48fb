"""fit.plot() and fit.report(): a picture of every family, and a page, through the doors of a
fit.
"""

from __future__ import annotations

from io import BytesIO

import matplotlib.figure
import numpy as np
import pandas as pd
import pytest
from zoo.table import every_row, quick_fit

from inference import EM, fit
from inference.plots import plot_signatures
from inference.plots.components import plot_groups
from inference.plots.overview import plot_fit
from inference.report import write_report
from ppl_models import Mixture, Normal


@every_row
def test_every_family_has_a_picture(row) -> None:
    figure = quick_fit(row).plot()
    assert isinstance(figure, matplotlib.figure.Figure)
    marks = [
        artist
        for ax in figure.axes
        for artist in (*ax.images, *ax.lines, *ax.patches, *ax.collections)
    ]
    assert marks


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        rng.normal(size=(80, 2)) + 6 * rng.integers(0, 2, (80, 1)), columns=["x", "y"]
    )


def test_a_picture_with_intervals_and_names(people) -> None:
    result = fit(
        Mixture(num_components=2, component=Normal(), num_items=2),
        people,
        EM(tolerance=1e-12),
        num_restarts=2,
    )
    bare, full = plot_fit(result), result.plot(people, names={"component": ["short", "tall"]})
    intervals = [
        [len(part.get_segments()) for ax in figure.axes for part in ax.collections]
        for figure in (bare, full)
    ]
    assert sum(intervals[0]) == 0
    assert sum(intervals[1]) == sum(value.numel() for value in result.params.values())
    assert any("tall" in label.get_text() for ax in full.axes for label in ax.get_yticklabels())
    buffer = BytesIO()
    full.savefig(buffer)
    assert buffer.tell() > 1000


def test_a_report_through_the_fit(people, tmp_path) -> None:
    result = fit(
        Mixture(num_components=2, component=Normal(), num_items=2), people, EM(), num_restarts=2
    )
    page = result.report(tmp_path / "page.html", people)
    assert page.read_text() == write_report(result, people, tmp_path / "other.html").read_text()
    assert result.report(tmp_path) == tmp_path / "report.html"


def test_names_and_numbers_have_room() -> None:
    """Failed before: "alcohol", of seven letters, was read as a mutation of the kind "coh", and
    the numbers of forty columns lay on each other.
    """
    names = ["alcohol", "malic_acid", "proline"]
    figure = plot_signatures(np.eye(3), names)
    assert [tick.get_text() for tick in figure.axes[-1].get_xticklabels()] == names
    for num_items, num_texts in ((20, 40), (21, 0)):
        items = [f"E{j}" for j in range(num_items)]
        means = np.zeros((2, num_items))
        groups = plot_groups(means, means[0], means[0] + 1, items, ["0", "1"])
        assert len(groups.axes[0].texts) == num_texts
