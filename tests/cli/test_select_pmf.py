"""``ppl-models select pmf``."""

from __future__ import annotations

import json

import pandas as pd
from support.block_counts import counts


def test_select_pmf_writes_the_page(tmp_path):
    from typer.testing import CliRunner

    from inference.cli import app

    table = tmp_path / "counts.csv"
    pd.DataFrame(counts(4), columns=[f"c{j}" for j in range(16)]).to_csv(table, index=False)
    out = tmp_path / "out"
    done = CliRunner().invoke(
        app, ["select", "pmf", str(table), "--k", "2:3", "--out", str(out), "--restarts", "2", "--halves", "1"]
    )
    assert done.exit_code == 0, done.output
    assert "Why K = 3?" in (out / "report.html").read_text()
    record = json.loads((out / "selection.json").read_text())
    assert record["chosen"] == 3
    assert set(record["return_error"]) == {"2", "3"}
