"""``ppl-models select mixture``, ``select hmm`` and ``select options-hmm``."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from inference import Fit

pytestmark = pytest.mark.usefixtures("unpainted")


def test_select_mixture_writes_the_page(tmp_path):
    from typer.testing import CliRunner

    from inference.cli.main import app

    rng = np.random.default_rng(0)
    rows = (
        rng.standard_normal((60, 2)) + np.array([[0.0, 0.0], [8.0, 0.0]])[rng.integers(2, size=60)]
    )
    table, out = tmp_path / "rows.csv", tmp_path / "out"
    pd.DataFrame(rows, columns=["height", "weight"]).to_csv(table, index=False)
    asked = [
        "select",
        "mixture",
        str(table),
        "--components",
        "1:3",
        "--restarts",
        "2",
        "--out",
        str(out),
    ]
    done = CliRunner().invoke(app, [*asked, "--no-progress"])
    assert done.exit_code == 0, done.output
    record = json.loads((out / "selection.json").read_text())
    assert record["chosen"] == 2
    assert record["verdict"] in done.output
    page = (out / "report.html").read_text()
    for words in (
        "How sure is the number?",
        "Distributions and numbers",
        "Groups and overlap",
        "Noise of each component",
        "Two components that overlap",
    ):
        assert words in page
    assert Fit.load(out / "fit").model.num_components == 2
    assert set(pd.read_csv(out / "distributions.csv")["distribution"]) == {
        "normal with independent columns",
        "normal",
        "Student t",
        "skew-normal",
    }
    assert (
        pd.read_csv(out / "posterior.csv")["assignments"].value_counts() > 20
    ).sum() == 2  # the group of every row
    wrong = CliRunner().invoke(app, [*asked, "--values", "counts", "--overwrite"])
    assert wrong.exit_code == 2
    assert "counts" in wrong.output
    both = CliRunner().invoke(
        app, [*asked, "--values", "real", "--response", "normal", "--overwrite"]
    )
    assert both.exit_code == 2
    assert "give one of them" in both.output
    bare = tmp_path / "bare"
    asked[4:] = ["1:2", "--restarts", "1", "--out", str(bare), "--no-report"]
    done = CliRunner().invoke(app, [*asked, "--no-progress"])
    assert done.exit_code == 0, done.output
    assert {path.name for path in bare.iterdir()} >= {"distributions.csv", "selection.json", "fit"}
    assert not {path.suffix for path in bare.iterdir()} & {".html", ".png"}
    assert "report.html" not in done.output


def test_the_plain_call_looks_at_the_columns(tmp_path):
    """Neither numbers to compare nor a distribution are given: answers of yes and no, and columns
    of several kinds.
    """
    from typer.testing import CliRunner

    from inference.cli.main import app

    rng = np.random.default_rng(0)
    group = rng.integers(2, size=120)
    answers = pd.DataFrame(
        (rng.random((120, 5)) < np.where(group[:, None] == 1, 0.9, 0.1)).astype(int),
        columns=list("abcde"),
    )
    mixed = answers[["a", "b", "c"]].assign(
        age=rng.normal(0, 1, 120) + 4 * group,
        town=np.where(rng.random(120) < np.where(group == 1, 0.9, 0.1), "north", "south"),
    )
    for frame, distribution in (
        (answers, "Bernoulli"),
        (mixed, "Bernoulli, normal and categorical"),
    ):
        table, out = tmp_path / "rows.csv", tmp_path / distribution
        frame.to_csv(table, index=False)
        done = CliRunner().invoke(
            app,
            [
                "select",
                "mixture",
                str(table),
                "--restarts",
                "2",
                "--out",
                str(out),
                "--no-progress",
            ],
        )
        assert done.exit_code == 0, done.output
        assert "the columns are taken as follows" in done.output
        distributions = pd.read_csv(out / "distributions.csv")
        assert set(distributions["distribution"]) == {distribution}
        counts = list(distributions["num_components"])  # from 1 on, until the criteria have risen
        assert counts == list(range(1, len(counts) + 1))
        assert 4 <= len(counts) <= 6
        assert json.loads((out / "selection.json").read_text())["chosen"] == 2
        assert Fit.load(out / "fit").model.num_components == 2


def test_select_hmm_counts_states(tmp_path):
    from typer.testing import CliRunner

    from inference.cli.main import app

    rng = np.random.default_rng(1)
    state = np.concatenate([np.full(12, i % 2) for i in range(10)])
    table, out = tmp_path / "tracks.csv", tmp_path / "out"
    pd.DataFrame(
        {"animal": ["a"] * 60 + ["b"] * 60, "calls": rng.poisson(np.array([1.0, 15.0])[state])}
    ).to_csv(table, index=False)
    asked = [
        "select",
        "hmm",
        str(table),
        "--states",
        "1:3",
        "--sequence",
        "animal",
        "--restarts",
        "2",
        "--out",
        str(out),
    ]
    done = CliRunner().invoke(app, [*asked, "--no-progress"])
    assert done.exit_code == 0, done.output
    assert "(--response says otherwise): all counts." in done.output
    assert list(pd.read_csv(out / "posterior.csv")["sequence"].unique()) == ["a", "b"]
    again = ["predict", str(out), str(table), "--out", str(tmp_path / "again.csv")]
    assert CliRunner().invoke(app, again).exit_code == 0
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "again.csv"), pd.read_csv(out / "posterior.csv")
    )
    record = json.loads((out / "selection.json").read_text())
    assert record["interval"][0] >= 2
    assert record["verdict"] in done.output
    page = (out / "report.html").read_text()
    for words in (
        "How many states?",
        "States overlap where steps of one",
        "Two states that overlap and follow each other",
        "how long visits last",
    ):
        assert words in page
    assert Fit.load(out / "fit").model.num_states >= 2
    wrong = CliRunner().invoke(app, [*asked, "--time", "when", "--overwrite"])
    assert wrong.exit_code == 2
    assert "'when' is no column" in wrong.output


def test_select_options_counts_subtasks(tmp_path):
    from typer.testing import CliRunner

    from inference.cli.main import app

    rng = np.random.default_rng(2)
    option, left = np.repeat(np.arange(12) % 2, 15), rng.random(180) < 0.9
    table, out = tmp_path / "walks.csv", tmp_path / "out"
    frame = pd.DataFrame(
        {
            "episode": np.repeat(list("abcdef"), 30),
            "step": np.tile(np.arange(30), 6),
            "state": 0,
            "action": np.where(left, option, 1 - option),
        }
    )
    frame.to_csv(table, index=False)
    asked = [
        "select",
        "options-hmm",
        str(table),
        "--options",
        "1:2",
        "--sequence",
        "episode",
        "--time",
        "step",
        "--restarts",
        "2",
        "--out",
        str(out),
    ]
    done = CliRunner().invoke(app, [*asked, "--no-progress"])
    assert done.exit_code == 0, done.output
    record = json.loads((out / "selection.json").read_text())
    assert record["word"] in ("grid too short", "misfit")  # two of two, in turn
    assert record["verdict"] in done.output
    page = (out / "report.html").read_text()
    for words in (
        "How many options?",
        "Two options that act alike",
        "Would memory do without options?",
    ):
        assert words in page
    assert Fit.load(out / "fit").model.num_options == 2
    steps = pd.read_csv(out / "options.csv")
    assert list(steps.columns) == [
        "sequence",
        "time",
        "state",
        "action",
        "option",
        "probability_0",
        "probability_1",
    ]
    assert (steps["sequence"] == frame["episode"]).all()
    again = ["predict", str(out), str(table), "--out", str(tmp_path / "again.csv")]
    assert CliRunner().invoke(app, again).exit_code == 0
    np.testing.assert_allclose(
        pd.read_csv(tmp_path / "again.csv")["P(options=1)"], steps["probability_1"], atol=1e-5
    )
    assert max(np.mean(steps["option"] == option), np.mean(steps["option"] != option)) > 0.9
    wrong = CliRunner().invoke(app, [*asked, "--state", "where", "--overwrite"])
    assert wrong.exit_code == 2
    assert "no column is named 'where'" in wrong.output
