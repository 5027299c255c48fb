"""``ppl-models select mixture``."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from inference import Fit


def test_select_mixture_writes_the_page(tmp_path):
    from typer.testing import CliRunner

    from inference.cli import app

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 2)) + np.array([[0.0, 0.0], [8.0, 0.0]])[rng.integers(2, size=60)]
    table, out = tmp_path / "rows.csv", tmp_path / "out"
    pd.DataFrame(rows, columns=["height", "weight"]).to_csv(table, index=False)
    asked = ["select", "mixture", str(table), "--k", "1:3", "--restarts", "2", "--out", str(out)]
    done = CliRunner().invoke(app, [*asked, "--no-progress"])
    assert done.exit_code == 0, done.output
    record = json.loads((out / "selection.json").read_text())
    assert record["chosen"] == 2
    assert record["verdict"] in done.output
    page = (out / "report.html").read_text()
    for words in ("How sure is the number?", "Laws and numbers", "Groups and overlap", "Noise of each component", "Two components that overlap"):
        assert words in page
    assert Fit.load(out / "fit").model.num_components == 2
    assert set(pd.read_csv(out / "laws.csv")["law"]) == {"normal", "Student t", "skew-normal"}
    wrong = CliRunner().invoke(app, [*asked, "--values", "counts", "--overwrite"])
    assert wrong.exit_code == 2
    assert "counts" in wrong.output
