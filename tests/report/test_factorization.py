"""The verdict on a factorization, where it is known what it must say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference import Factorize, fit
from inference.report import write_report
from ppl_models import GaussianFactorization, PoissonFactorization

pytestmark = pytest.mark.usefixtures("unpainted")

RNG = np.random.default_rng(0)
SIGNATURES = np.kron(np.eye(2), np.ones(5) / 5) * 0.9 + 0.01
MEANS = RNG.gamma(1.5, 80, (60, 2)) @ SIGNATURES
COUNTS = RNG.poisson(MEANS).astype(float)


def page_of(model: Any, data: np.ndarray, path: Path, num_restarts: int = 3) -> str:
    result = fit(model, data, Factorize(), num_restarts=num_restarts)
    return write_report(result, data, path / "page.html").read_text()


def test_poisson_counts_of_signatures_that_do_not_overlap(tmp_path):
    page = page_of(PoissonFactorization(10, 2), COUNTS, tmp_path)
    assert page.index('id="verdict"') < page.index('id="fitted"')
    for words in (
        "60 rows of 10 columns, each row as a sum of 2 components",
        "agree on every signature",
        "vary 1.",
        "component 0</td>",
        "right number of components",
    ):
        assert words in page, words


def test_counts_that_vary_more_than_poisson_counts_are_named(tmp_path):
    clumps = RNG.poisson(RNG.gamma(MEANS / 4, 4)).astype(float) + (
        np.arange(10) == 0
    )  # variance five times the mean
    page = page_of(PoissonFactorization(10, 2), clumps, tmp_path)
    assert "times as much as Poisson counts would, so that small components may be noise" in page
    assert '<span class="option">--distribution</span> nb-linear' in page


def test_the_share_that_the_components_account_for(tmp_path):
    """Of exact rows of one component all; deviance by hand at a small size."""
    from inference.report.kinds.factorization import _deviance, _without_components

    alike = np.outer([1.0, 2.0, 5.0], [4.0, 2.0, 2.0])
    np.testing.assert_allclose(_without_components(alike, True), alike)
    holed = np.where(np.eye(3, dtype=bool), np.nan, alike)
    assert np.isfinite(_without_components(holed, True)).all()
    assert _deviance(np.array([[2.0, 0.0]]), np.array([[1.0, 3.0]]), True) == pytest.approx(
        2 * (2 * np.log(2) - 1 + 3)
    )
    assert _deviance(np.array([[2.0, np.nan]]), np.array([[1.0, 3.0]]), False) == 1.0


def test_a_rotation_is_said(tmp_path):
    page = page_of(GaussianFactorization(10, 2), COUNTS - COUNTS.mean(0), tmp_path, 1)
    assert "any rotation of them fits the rows as well" in page
    assert "Do the counts vary" not in page
