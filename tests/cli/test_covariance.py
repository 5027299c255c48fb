"""``--covariance`` of normal groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from inference import Fit, fit
from inference.cli.main import app
from ppl_models import Mixture, MultivariateNormal


@pytest.fixture
def table(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(120, 3)) + 4 * generator.integers(0, 2, (120, 1))
    path = tmp_path / "rows.csv"
    pd.DataFrame(rows, columns=["a", "b", "c"]).to_csv(path, index=False)
    return path


def test_covariance_of_a_fit(table: Path, tmp_path: Path) -> None:
    options = ["--components", "2", "--covariance", "VEV", "--out", str(tmp_path / "out")]
    quiet = ["--no-report", "--no-progress"]
    told = CliRunner().invoke(app, ["fit", "mixture", str(table), *options, *quiet])
    assert told.exit_code == 0, told.output
    (folder,) = (path.parent for path in (tmp_path / "out").rglob("fit.safetensors"))
    found = Fit.load(folder)
    own = fit(Mixture(2, MultivariateNormal(covariance="VEV")), pd.read_csv(table))
    assert found.model.component == MultivariateNormal(covariance="VEV")
    assert found.log_likelihood == pytest.approx(own.log_likelihood, abs=1e-3)
    assert found.num_parameters == own.num_parameters


def test_covariance_of_select(table: Path, tmp_path: Path) -> None:
    options = ["--components", "1..2", "--covariance", "spherical", "--restarts", "2"]
    quiet = ["--out", str(tmp_path / "out"), "--no-report", "--no-progress"]
    told = CliRunner().invoke(app, ["select", "mixture", str(table), *options, *quiet])
    assert told.exit_code == 0, told.output
    (folder,) = (path.parent for path in (tmp_path / "out").rglob("fit.safetensors"))
    assert Fit.load(folder).model.component == MultivariateNormal(covariance="spherical")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--covariance", "round"], "covariance"),
        (["--covariance", "VEV", "--response", "skew-normal"], "--covariance is that of normal"),
    ],
)
def test_bad_covariances_are_named(table: Path, options: list[str], words: str) -> None:
    call = ["fit", "mixture", str(table), "--components", "2", "--out", str(table.parent / "o")]
    told = CliRunner().invoke(app, [*call, *options])
    assert told.exit_code != 0
    assert words in told.output
    assert not (table.parent / "o").exists()
