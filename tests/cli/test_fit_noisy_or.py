"""``ppl-models fit noisy-or``."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from inference import Fit
from inference.cli.main import app
from ppl_models import NoisyOr
from ppl_models.datasets import sample_noisy_or
from ppl_models.datasets.noisy_or import random_design

pytestmark = pytest.mark.usefixtures("unpainted")


def run(*arguments: object):
    return CliRunner().invoke(
        app, ["fit", "noisy-or", *map(str, arguments)], catch_exceptions=False
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    data = sample_noisy_or(random_design(5, seed=1, num_latents=3, num_items=12), 800, seed=1)[0]
    path = tmp_path / "items.csv"
    pd.DataFrame(data.numpy().astype(int)).to_csv(path, index=False)
    return path


def test_the_number_of_latents_is_chosen(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import inference.report.fit

    monkeypatch.setattr(
        inference.report.fit, "write_report", lambda fit, data, path, **_: Path(path).touch()
    )
    done = run(table, "--out", tmp_path / "out", "--latents", 6, "--no-progress")
    assert done.exit_code == 0, done.stderr
    loaded = Fit.load(tmp_path / "out" / "fit")
    assert loaded.model == NoisyOr(12, 3)
    assert bool((loaded.params["prior"] > 0.02).all())
    assert (
        json.loads((tmp_path / "out" / "summary.json").read_text())["log_likelihood"]
        == loaded.log_likelihood
    )


def test_entries_that_are_not_binary(table: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(table)
    frame.iloc[3, 2] = 7
    frame.to_csv(table, index=False)
    done = run(table, "--out", tmp_path / "out", "--no-progress")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: data: column '2'")
    assert done.stderr.count("\n") == 1
