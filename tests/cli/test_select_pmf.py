"""``ppl-models select pmf``."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from support.counts import counts, simulated

from inference import Fit

pytestmark = pytest.mark.usefixtures("unpainted")


def test_select_pmf_writes_the_page(tmp_path):
    from typer.testing import CliRunner

    from inference.cli.main import app

    table = tmp_path / "counts.csv"
    pd.DataFrame(counts(4), columns=[f"c{j}" for j in range(16)]).to_csv(table, index=False)
    out = tmp_path / "out"
    asked = [
        "select",
        "pmf",
        str(table),
        "--k",
        "2:4",
        "--out",
        str(out),
        "--restarts",
        "2",
        "--halves",
        "1",
    ]
    done = CliRunner().invoke(app, [*asked, "--bootstrap", "2"])
    assert done.exit_code == 0, done.output
    assert "Why K = 3?" in (out / "report.html").read_text()
    record = json.loads((out / "selection.json").read_text())
    assert record["chosen"] == 3
    assert record["word"] in done.output or record["verdict"] in done.output
    assert record["verdict"].split(".")[0] in (out / "report.html").read_text()
    assert set(record["return_error"]) == {"2", "3", "4"}
    assert record["climb"]["num_components"] == 3
    assert "What would noise alone gain?" in (out / "report.html").read_text()
    for more, said in (
        (["1"], "at least 2, got 1"),
        (["-1"], "--bootstrap"),
        (["6", "--criterion", "bic"], "belongs to --criterion rule"),
    ):
        refused = CliRunner().invoke(app, [*asked, "--overwrite", "--bootstrap", *more])
        assert refused.exit_code == 2
        assert said in refused.output


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_the_command_line_chooses_among_models_with_usage(tmp_path) -> None:
    from typer.testing import CliRunner

    from inference.cli.main import app

    table, out = tmp_path / "counts.csv", tmp_path / "out"
    pd.DataFrame(simulated(80, 1)[0].numpy(), columns=[f"c{j}" for j in range(20)]).to_csv(
        table, index=False
    )
    asked = [
        "select",
        "pmf",
        str(table),
        "--k",
        "1:2",
        "--usage",
        "--halves",
        "0",
        "--out",
        str(out),
    ]
    refused = CliRunner().invoke(app, [*asked, "--criterion", "bic"])
    assert refused.exit_code == 2
    assert "known by a bound only" in refused.output
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    chances = pd.read_csv(out / "usage.csv", index_col="row")
    assert chances.shape[1] == Fit.load(out / "fit").model.num_components
    assert chances.to_numpy().min() >= 0
    assert chances.to_numpy().max() <= 1
    assert "BIC" not in pd.read_csv(out / "criteria.csv")["criterion"].tolist()
