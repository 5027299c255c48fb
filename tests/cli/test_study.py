"""``ppl-models study overparameterization``."""

from __future__ import annotations

import json

import pandas as pd
from typer.testing import CliRunner

from inference.cli.main import app


def test_the_command(tmp_path) -> None:
    arguments = [
        "study",
        "overparameterization",
        "con8",
        "--latents",
        "2,4",
        "--rows",
        "400",
        "--restarts",
        "3",
    ]
    runner = CliRunner()
    for engine in ("em", "score"):
        out = tmp_path / engine
        done = runner.invoke(
            app,
            [
                *arguments,
                "--iterations",
                "4",
                "--engine",
                engine,
                "--out",
                str(out),
                "--folder",
                str(tmp_path / "kept"),
            ],
            catch_exceptions=False,
        )
        assert done.exit_code == 0, done.stderr
        assert list(pd.read_csv(out / "study.csv")["num_latents"]) == [2, 4]
        record = json.loads((out / "study.json").read_text())
        assert record["engine"] == engine
        assert [row["num_restarts"] for row in record["sizes"]] == [3, 3]
        assert "best_recovered" in done.stdout
    assert (
        len(list((tmp_path / "kept").glob("*.safetensors"))) == 4
    )  # a batch of starts for each engine and size
    again = runner.invoke(app, [*arguments, "--out", str(tmp_path / "em")])
    assert again.exit_code == 2
    bad = runner.invoke(
        app,
        ["study", "overparameterization", "img", "--latents", "8,x", "--out", str(tmp_path / "x")],
    )
    assert bad.exit_code == 2
    assert "--latents: whole numbers" in bad.stderr
