"""``ppl-models fit hmm``: the folder it writes, and what it refuses in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.command_line import run

from inference import Fit
from ppl_models.data.sequences import counts_steps

pytestmark = pytest.mark.usefixtures("unpainted", "few_refits")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two animals, still and then moving, in lines that stand in any order; a gap in time, an empty
    entry.
    """
    rng = np.random.default_rng(0)
    level = np.repeat([0.0, 6.0, 0.0], 20)
    parts = [
        pd.DataFrame(
            {
                "animal": name,
                "step": np.arange(60),
                "speed": (level + rng.normal(size=60)).round(3),
                "dives": rng.poisson(1 + level),
            }
        )
        for name in ("fox", "owl")
    ]
    frame = pd.concat(parts, ignore_index=True).drop(index=[5]).sample(frac=1.0, random_state=1)
    frame.loc[frame.index[3], "speed"] = np.nan
    path = tmp_path_factory.mktemp("table") / "tracks.csv"
    frame.to_csv(path, index=False)
    return path


def test_a_results_folder(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    told = run(
        "fit",
        "hmm",
        table,
        "--states",
        2,
        "--sequence",
        "animal",
        "--time",
        "step",
        "--restarts",
        2,
        "--no-progress",
        "--out",
        out,
    )
    assert told.exit_code == 0, told.stderr
    result = Fit.load(out / "fit")
    assert result.item_names == ("speed", "dives")
    assert result.num_observations == 119
    states = pd.read_csv(out / "posterior.csv")
    given = pd.read_csv(table)
    assert states["sequence"].tolist() == given["animal"].tolist()
    assert states["time"].tolist() == given["step"].tolist()
    moving = int(result.params["predictors"][:, 0].argmax())
    assert ((states["states"] == moving) == given["step"].between(20, 39)).mean() > 0.95
    said = run(
        "predict", out, table, "--out", tmp_path / "again.csv"
    )  # failed before: all rows were taken for one sequence
    assert said.exit_code == 0, said.stderr
    assert pd.read_csv(tmp_path / "again.csv")["states"].tolist() == states["states"].tolist()
    given.drop(columns="animal").to_csv(tmp_path / "lost.csv", index=False)
    assert (
        "no column is named 'animal', which said the sequence of each row"
        in run("predict", out, tmp_path / "lost.csv", "--out", tmp_path / "no.csv").stderr
    )
    assert "States and moves" in (out / "report.html").read_text(encoding="utf-8")


def test_one_sequence_in_the_order_of_its_lines(table: Path, tmp_path: Path) -> None:
    told = run(
        "fit",
        "hmm",
        table,
        "--states",
        2,
        "--columns",
        "speed",
        "--restarts",
        1,
        "--initial",
        "stationary",
        "--no-progress",
        "--out",
        tmp_path / "out",
    )
    assert told.exit_code == 0, told.stderr
    assert len(pd.read_csv(tmp_path / "out" / "posterior.csv")) == 119


@pytest.mark.parametrize(
    ("column", "counts"),
    [
        (pd.Series([3, 1, 2, 5, 4, 6]), True),
        (pd.Series([0, 1, 2, 3, 5, 6], dtype="Int64"), True),
        (pd.Series([0.0, 1.5, 2.0, 3.0, 4.0, 5.0]), False),
        (pd.Series([10, 40, 20, 90, 70, 30]), False),
        (pd.Series([0, 1, 1, 2, 3, 4]), False),
        (pd.Series([True, False] * 3), False),  # failed before: an error of pandas
        (pd.Series([], dtype=float), False),
        (pd.Series(list("abcdef")), False),
        (pd.Series([0, 1, 2, 3]), False),
    ],
    ids=[
        "in any order",
        "one left out",
        "fraction",
        "spread",
        "twice",
        "yes or no",
        "empty",
        "texts",
        "few",
    ],
)
def test_which_columns_count_steps(column: pd.Series, counts: bool) -> None:
    assert counts_steps(column, None) is counts


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--sequence", "pack"), "--sequence: 'pack' is no column of the table"),
        (
            ("--sequence", "step", "--time", "step"),
            "two columns were expected, got 'step' for both",
        ),
        (("--sequence", "animal", "--time", "speed"), "column 'time' must not be empty"),
        (("--time", "step", "--columns", "speed"), "every time once in a sequence was expected"),
        (
            ("--sequence", "animal"),
            "column 'step' counts rows, and would be an item: call it 'time' (--time step)",
        ),
        (
            ("--initial", "any", "--columns", "speed"),
            "initial must be one of 'free', 'stationary', 'uniform'",
        ),
        (("--response", "speed=gamma"), "column 'speed': one of"),
    ],
    ids=["sequence", "both", "times", "twice", "counted", "initial", "response"],
)
def test_what_is_refused(table: Path, tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    told = run(
        "fit", "hmm", table, "--states", 2, *options, "--no-progress", "--out", tmp_path / "out"
    )
    assert told.exit_code != 0
    assert words in told.stderr
    assert not (tmp_path / "out").exists()


def test_sequences_and_steps_are_read_off_a_table(tmp_path: Path) -> None:
    """Failed before: the animal was asked for, and was a category of each row where it was not."""
    rng = np.random.default_rng(0)
    level = np.tile(np.repeat([0.0, 6.0, 0.0], 20), 2)
    columns = {"animal": ["fox"] * 60 + ["owl"] * 60, "step": [*range(1, 61)] * 2}
    frame = pd.DataFrame(columns | {"speed": level + rng.normal(size=120)})
    frame.to_csv(tmp_path / "tracks.csv")  # numbers of the rows under no name, too
    shared = ("--states", 2, "--restarts", 2, "--no-progress", "--no-report", "--out")
    told = run("fit", "hmm", tmp_path / "tracks.csv", *shared, tmp_path / "out")
    assert told.exit_code == 0, told.stderr
    assert "read off the table: sequence by 'animal', time by 'step'" in told.stdout
    options = ("--sequence", "animal", "--time", "step")
    asked = run("fit", "hmm", tmp_path / "tracks.csv", *options, *shared, tmp_path / "asked")
    assert asked.exit_code == 0
    assert "read off" not in asked.stdout
    rows = [pd.read_csv(tmp_path / folder / "posterior.csv") for folder in ("out", "asked")]
    pd.testing.assert_frame_equal(*rows)
    new = run("predict", tmp_path / "out", tmp_path / "tracks.csv", "--out", tmp_path / "new.csv")
    assert new.exit_code == 0, new.stderr
    assert pd.read_csv(tmp_path / "new.csv")["states"].tolist() == rows[0]["states"].tolist()
