"""Pages and folders of fits whose rows came in blocks: estimates of all rows, a sample for what
looks at rows, and words for it.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from inference import EM, Fit, RowBlocks, fit
from inference.base.streaming import row_blocks
from inference.fitting import columns
from inference.report import write_report
from inference.report.results_folder import read_results, write_results
from inference.uncertainty import standard_errors
from ppl_models import Bernoulli, LatentAttributeModel, Mixture

pytestmark = pytest.mark.usefixtures("unpainted")

KEPT = 60


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of 60 rows, so that 200 are many."""
    monkeypatch.setattr(row_blocks, "SAMPLE_ROWS", KEPT)
    monkeypatch.setattr(columns, "SAMPLE_ROWS", KEPT)


def answers(num_rows: int = 200) -> np.ndarray:
    rng = np.random.default_rng(0)
    high = rng.integers(0, 2, num_rows)[:, None]
    return (rng.random((num_rows, 6)) < np.where(high, 0.85, 0.15)).astype(np.int8)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Fit, RowBlocks]:
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, answers())
    blocks = RowBlocks.of(path, 70)
    return fit(Mixture(2, Bernoulli(), 6), blocks, EM()), blocks


def words_of(page: Path) -> str:
    return " ".join(re.sub("<[^>]*>", " ", page.read_text(encoding="utf-8")).split())


def test_standard_errors_are_those_of_all_rows(fitted: tuple[Fit, RowBlocks]) -> None:
    own, blocks = fitted
    for kind in ("hessian", "scores", "sandwich"):
        expected = standard_errors(own, answers(), kind).covariance
        torch.testing.assert_close(
            standard_errors(own, blocks, kind).covariance, expected, rtol=1e-10, atol=0.0
        )
    pd.testing.assert_frame_equal(
        pd.DataFrame(own.summary(blocks)), pd.DataFrame(own.summary(answers())), rtol=1e-9
    )


def test_a_folder_keeps_a_sample_and_says_so(
    fitted: tuple[Fit, RowBlocks], few: None, tmp_path: Path
) -> None:
    own, blocks = fitted
    summary = write_results(own, blocks, tmp_path / "out")
    assert summary["num_rows"] == 200
    assert summary["num_rows_kept"] == KEPT
    page = words_of(tmp_path / "out" / "report.html")
    assert "The rows were read in blocks." in page
    assert "it looks at 60 of them, drawn at random" in page
    assert "intervals, by standard errors" in page
    again, frame, _ = read_results(tmp_path / "out")
    drawn = row_blocks.drawn_rows(200, KEPT, own.seed)
    np.testing.assert_array_equal(frame.to_numpy(), answers()[drawn])
    page = words_of(write_report(again, frame, tmp_path / "again.html"))
    assert "The rows were read in blocks." not in page
    assert "Without intervals: they need all rows of the fit" in page


def test_the_sample_has_the_numbers_of_its_rows(tmp_path: Path) -> None:
    frame = pd.DataFrame(answers(), columns=list("abcdef"))
    frame.to_parquet(tmp_path / "rows.parquet")
    found = RowBlocks.of(tmp_path / "rows.parquet", 70).sample(25, seed=3)
    pd.testing.assert_frame_equal(
        found, frame.iloc[found.index], check_dtype=False, check_index_type=False
    )


def test_questions_that_need_all_rows_are_left_open_on_a_page_of_a_sample(
    few: None, tmp_path: Path
) -> None:
    data = pd.DataFrame(answers(), columns=list("abcdef"))
    own = fit(
        LatentAttributeModel(np.array([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1]])),
        RowBlocks.of(data, 70),
        EM(tolerance=1e-2, parameter_tolerance=1.0),
    )
    page = words_of(write_report(own, RowBlocks.of(data, 70), tmp_path / "page.html"))
    assert "it needs all rows of the fit, and this page has some of them" in page
    page = words_of(write_report(own, data, tmp_path / "whole.html"))
    assert "needs all rows of the fit" not in page
