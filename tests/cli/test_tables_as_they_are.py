"""Tables as R, pandas and signature tools write them, through the commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from inference.cli.main import app

NAMES = [f"case{j:02}" for j in range(60)]


def run(*parts: object) -> Result:
    return CliRunner().invoke(app, [str(part) for part in parts])


def people() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    group = rng.integers(0, 2, 60)
    columns = {f"E{j}": rng.integers(1, 4, 60) + 2 * group for j in range(1, 4)}
    return pd.DataFrame(columns | {"age": rng.normal(30 + 20 * group)}, NAMES)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Groups in a table with row names, as pandas and R write it."""
    folder = tmp_path_factory.mktemp("named")
    people().rename_axis("person").to_csv(folder / "people.csv")
    options = ("--components", 2, "--drop", "E1..E2", "--restarts", 2, "--no-progress")
    said = run("fit", "mixture", folder / "people.csv", *options, "--out", folder / "out")
    return folder, said


def test_row_names_are_kept(fitted: tuple[Path, Result]) -> None:
    """Failed before: a column of names was refused as too many categories."""
    folder, said = fitted
    assert said.exit_code == 0, said.output
    rows = pd.read_csv(folder / "out" / "posterior.csv")
    assert rows.columns[0] == "person"
    assert rows["person"].tolist() == NAMES
    assert "ordered categories: E3; measurements: age" in said.stdout
    assert "In doubt: E3 (a short run of whole numbers, taken for ordered" in said.stdout
    page = (folder / "out" / "report.html").read_text()
    assert "ordered categories: E3; measurements: age" in page


def test_new_rows_keep_their_names(fitted: tuple[Path, Result]) -> None:
    folder, _ = fitted
    people().iloc[:5].rename_axis("person").to_csv(folder / "new.csv")
    said = run("predict", folder / "out", folder / "new.csv", "--out", folder / "new_rows.csv")
    assert said.exit_code == 0, said.output
    assert pd.read_csv(folder / "new_rows.csv")["person"].tolist() == NAMES[:5]


def test_a_table_on_its_side_is_refused(fitted: tuple[Path, Result]) -> None:
    folder, _ = fitted
    people().T.to_csv(folder / "side.csv")
    said = run("predict", folder / "out", folder / "side.csv", "--out", folder / "side_rows.csv")
    assert said.exit_code == 2
    assert "'E3', are the rows of this table, which lies on its side" in said.stderr


@pytest.mark.parametrize("way", [("--transpose",), ()], ids=["said", "recognised"])
def test_a_signature_matrix_is_fitted_as_it_is_written(tmp_path: Path, way: tuple) -> None:
    rng = np.random.default_rng(0)
    types = [f"{a}[C>{b}]{c}" for a in "ACGT" for b in "AGT" for c in "AC"]
    counts = rng.poisson(rng.gamma(1.0, 5.0, (24, 1)) * np.ones((24, 20)) + 1)
    table = pd.DataFrame(counts, types, [f"s{j}" for j in range(20)])
    table.rename_axis("MutationType").to_csv(tmp_path / "types.txt", sep="\t")
    options = ("--components", 1, *way, "--no-progress", "--out", tmp_path / "out")
    said = run("fit", "pmf", tmp_path / "types.txt", *options)
    assert said.exit_code == 0, said.output
    assert ("so that the table is transposed" in said.stdout) == (not way)
    assert pd.read_csv(tmp_path / "out" / "signatures.csv")["column"].tolist() == types
    assert pd.read_csv(tmp_path / "out" / "posterior.csv")["row"].tolist() == table.columns.tolist()


@pytest.mark.parametrize("way", [("--long", "who,item,right"), ()], ids=["said", "recognised"])
def test_a_line_an_answer_is_fitted_as_a_row_a_person(tmp_path: Path, way: tuple) -> None:
    rng = np.random.default_rng(0)
    answers = pd.DataFrame(rng.integers(0, 2, (40, 4)), NAMES[:40], [f"q{j}" for j in range(4)])
    lines = answers.rename_axis("who").reset_index().melt("who", None, "item", "right")
    lines.drop(index=[7, 50]).to_csv(tmp_path / "long.csv", index=False)
    options = ("--components", 1, *way, "--restarts", 1, "--no-progress")
    said = run("fit", "mixture", tmp_path / "long.csv", *options, "--out", tmp_path / "out")
    assert said.exit_code == 0, said.output
    assert ("Each line of the file is taken for one answer" in said.stdout) == (not way)
    rows = pd.read_csv(tmp_path / "out" / "posterior.csv")
    assert sorted(rows["who"]) == NAMES[:40]
    again = pd.concat([lines, lines.iloc[[3]]])
    again.to_csv(tmp_path / "twice.csv", index=False)
    said = run("fit", "mixture", tmp_path / "twice.csv", *options, "--out", tmp_path / "o")
    assert said.exit_code == 2
    assert "got several of 'case03' to 'q0', in lines 3 and 160" in said.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--long", "town,age"), "--long: the columns of the person, the item and the answer"),
        (("--id", "town"), "column 'town' names the rows, but 'n' is there twice"),
        (("--drop", "age..size"), "no column is named 'size'"),
        (("--id", "who"), "no column is named 'who'"),
    ],
)
def test_mistakes_are_said_in_one_line(tmp_path: Path, options: tuple, words: str) -> None:
    (tmp_path / "t.csv").write_text("town,age\nn,1\nn,2\ns,3\n")
    said = run(
        "fit", "mixture", tmp_path / "t.csv", "--components", 1, "--out", tmp_path / "o", *options
    )
    assert said.exit_code == 2
    assert words in said.stderr
    assert len(said.stderr.splitlines()) == 1


def test_new_rows_come_in_any_format(tmp_path: Path) -> None:
    """Failed before: steps were read from csv files alone, and answers a line from none."""
    rng = np.random.default_rng(0)
    state = np.repeat([0, 1, 0], 20)
    steps = pd.DataFrame({"who": "a", "step": range(60), "v": rng.normal(4 * state)})
    steps.to_csv(tmp_path / "steps.tsv", sep="\t", index=False)
    steps.to_csv(tmp_path / "steps.txt", sep=";", index=False)
    steps.to_parquet(tmp_path / "steps.parquet", index=False)
    place = ("--sequence", "who", "--time", "step", "--restarts", 1, "--no-progress")
    out = tmp_path / "out"
    said = run("fit", "hmm", tmp_path / "steps.tsv", "--states", 2, *place, "--out", out)
    assert said.exit_code == 0, said.output
    own = pd.read_csv(out / "posterior.csv")
    for ending in ("tsv", "txt", "parquet"):
        answers = tmp_path / f"{ending}.csv"
        said = run("predict", out, tmp_path / f"steps.{ending}", "--out", answers)
        assert said.exit_code == 0, said.output
        pd.testing.assert_frame_equal(pd.read_csv(answers), own)


def test_new_answers_come_a_line_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    answers = pd.DataFrame(rng.integers(0, 2, (40, 4)), NAMES[:40], [f"q{j}" for j in range(4)])
    lines = answers.rename_axis("who").reset_index().melt("who", None, "item", "right")
    lines.to_csv(tmp_path / "long.csv", index=False)
    options = ("--components", 1, "--restarts", 1, "--no-progress", "--out", tmp_path / "out")
    assert run("fit", "mixture", tmp_path / "long.csv", *options).exit_code == 0
    said = run("predict", tmp_path / "out", tmp_path / "long.csv", "--out", tmp_path / "rows.csv")
    assert said.exit_code == 0, said.output
    own = pd.read_csv(tmp_path / "out" / "posterior.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "rows.csv"), own)


def test_unlike_columns_on_their_side_are_refused_and_turned(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.normal(40, 9, 60).round(1),
            "visits": rng.poisson(3.0, 60),
            "town": rng.choice(["Ulm", "Bern"], 60),
        }
    )
    table.T.to_csv(tmp_path / "side.csv")
    options = ("--components", 1, "--no-progress", "--no-report", "--out", tmp_path / "out")
    said = run("fit", "mixture", tmp_path / "side.csv", *options)
    assert said.exit_code == 2
    assert "the table lies on its side; say --transpose" in " ".join(said.stderr.split())
    assert not (tmp_path / "out").exists()  # before any work
    said = run("fit", "mixture", tmp_path / "side.csv", "--transpose", *options)
    assert said.exit_code == 0, said.output
    assert "categories: town" in said.stdout
