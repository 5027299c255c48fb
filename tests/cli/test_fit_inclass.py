"""``ppl-models fit inclass``: the folder it writes, and what it refuses in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.command_line import run

from inference import Fit

pytestmark = pytest.mark.usefixtures("unpainted")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(150, 4)) + 3 * rng.integers(0, 2, (150, 1))
    path = tmp_path_factory.mktemp("table") / "rows.csv"
    pd.DataFrame(rows, columns=["a", "b", "c", "d"]).to_csv(path, index=False)
    return path


def test_a_results_folder(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = (
        "--variates",
        "d,b;a",
        "--components",
        2,
        "--hidden",
        "4",
        "--restarts",
        1,
        "--no-progress",
        "--out",
        out,
    )
    told = run("fit", "inclass", table, *options)
    assert told.exit_code == 0, told.stderr
    assert "log-likelihood ratio to independence of the variates" in told.stdout
    summary = json.loads((out / "summary.json").read_text())
    assert summary["log_likelihood_relative_to"] == "independence of the variates"
    result = Fit.load(out / "fit")
    assert result.item_names == ("d", "b", "a")
    assert result.params["pseudo_weights"].shape == (2, 2)
    assert "log-likelihood ratio to independence" in (out / "report.html").read_text()
    assert run("check", out).exit_code in (0, 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--variates", "a,b,c,d"), "at least two variates were expected, got one"),
        (("--variates", "a,b;b,c"), "column 'b' is in variates 0 and 1"),
        (("--variates", "a;z"), "columns ['z'] are not in the table"),
        (("--components", "1"), "num_components must be at least 2, got 1"),
        (("--weights", "even"), "weights must be 'geometric', 'free'"),
        (("--variates", "a,b;c", "--shared"), "a shared network needs variates of one shape"),
        (("--hidden", "wide"), "--hidden: whole numbers separated by commas"),
    ],
)
def test_mistakes_in_one_line(
    table: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    told = run("fit", "inclass", table, *options, "--no-progress", "--out", tmp_path / "out")
    assert told.exit_code == 2
    assert words in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
