"""``ppl-models fit dde`` with a Q-matrix."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.measured_items import diagnosis, encoder
from typer.testing import CliRunner
from zoo.rows_measurement import LONG

from inference import Fit
from inference.cli import app
from ppl_models import ExpDINA, ExpGDM


@pytest.mark.parametrize("bottom", ["dina", "gdm"])
def test_the_command_line_fits_with_a_q_matrix(bottom: str, tmp_path: Path) -> None:
    _, _, data = diagnosis(300)
    pd.DataFrame(data.numpy().astype(int)).to_csv(tmp_path / "answers.csv", index=False)
    pd.DataFrame(np.array(LONG)).to_csv(tmp_path / "q.csv", index=False)
    common = ["fit", "dde", str(tmp_path / "answers.csv"), "--response", "bernoulli", "--latents", "3", "--no-progress"]
    common += ["--bottom", bottom, "--out", str(tmp_path / "out")]
    refused = CliRunner().invoke(app, common)
    assert refused.exit_code != 0
    assert "needs the graph" in refused.stderr
    done = CliRunner().invoke(app, [*common, "--graph", str(tmp_path / "q.csv")], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    loaded = Fit.load(tmp_path / "out" / "fit")
    assert loaded.model == encoder(LONG, ExpDINA() if bottom == "dina" else ExpGDM())
    assert "Π<sub>k∈S</sub>" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
