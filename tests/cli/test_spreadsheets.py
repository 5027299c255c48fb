"""What a command writes as csv, opened by a spreadsheet: a text stays a text, a number a number."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from support.command_line import answers, run

import inference
import ppl_models
from inference.cli.app import write_csv, write_rows
from inference.cli.reading import read_csv
from inference.fitting.fit import fit
from inference.report.results_folder import write_results
from ppl_models import Bernoulli, Mixture
from ppl_models.data.files import as_text, is_number, own_text, read_frame

FORMULAS = [
    '=HYPERLINK("http://a.b","c")',
    "@SUM(1)",
    "+1+cmd|' /C x'!A0",
    "-2+3",
    "\t=1",
    "\r=1",
    "a\r=1",
    "a\n=1",
    "=a,=b",
    "'=a",
    "-",
    "+",
]
NUMBERS = ["-2", "+3.5", "-1e5", "-inf", "7"]
pytestmark = [
    pytest.mark.usefixtures("unpainted", "few_refits"),
    pytest.mark.filterwarnings(
        "ignore::inference.ConvergenceWarning", "ignore::inference.BoundWarning"
    ),
]


def entries(path: Path) -> list[list[str]]:
    """Every entry of a file, none of which is a formula."""
    with path.open(encoding="utf-8", newline="") as stream:
        lines = list(csv.reader(stream))
    for entry in (entry for line in lines for entry in line):
        assert not entry.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) or is_number(entry), (
            entry
        )
    return lines


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.text(st.sampled_from(list("=+-@\t\r\n',\"a1 ")), max_size=6)
        | st.sampled_from(FORMULAS + NUMBERS),
        min_size=3,
        max_size=3,
        unique=True,
    )
)
def test_no_text_is_a_formula_and_every_text_comes_back(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    """Failed before: names and words went raw into the file."""
    path = tmp_path_factory.mktemp("distribution") / "table.csv"
    numbers = [-1.5, np.nan, -3e-7]
    table = pd.DataFrame(
        {texts[0]: texts, texts[1]: pd.Categorical(texts), texts[2]: numbers},
        index=pd.Index(texts, name=texts[0]),
    )
    write_csv(table, path, index_label=texts[1])
    head, *lines = entries(path)
    assert [own_text(name) for name in head] == [texts[1], *texts]
    assert [[own_text(entry) for entry in line[:3]] for line in lines] == [
        [text] * 3 for text in texts
    ]
    assert [line[3] for line in lines] == ["-1.5", "", "-3e-07"]
    for text in texts:
        assert own_text(as_text(text)) == text


def test_readers_of_tables_know_the_texts_again(tmp_path: Path) -> None:
    table = pd.DataFrame({"=a": ["=b", "-c", "'d"], "-e": ["+", "@f", "g"]})
    write_csv(table, tmp_path / "table.csv")
    assert entries(tmp_path / "table.csv")[0] == ["'=a", "'-e"]
    assert {
        name: list(own) for name, own in read_csv(tmp_path / "table.csv", ",").items()
    } == table.to_dict("list")
    again = read_frame(tmp_path / "table.csv", id="=a")
    assert again.reset_index().to_dict("list") == table.to_dict("list")


def test_what_a_fit_says_of_rows_holds_no_formula(tmp_path: Path) -> None:
    frame = answers(60).set_axis(FORMULAS[:6], axis=1)
    result = fit(Mixture(2, Bernoulli(), 6), frame, num_restarts=1)
    beside = pd.DataFrame({"=id": (FORMULAS * 5)[:60]})
    write_rows(result, frame, tmp_path / "rows.csv", beside)
    assert [own_text(name) for name in entries(tmp_path / "rows.csv")[0][:2]] == ["row", "=id"]


def test_commands_write_no_formulas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "inference.report.fit.write_report", lambda fit, data, path, **_: Path(path).touch()
    )
    rng = np.random.default_rng(0)
    counts = pd.DataFrame(rng.poisson(4.0, (30, 6)), columns=FORMULAS[:6])
    counts.to_parquet(tmp_path / "counts.parquet")
    state = rng.integers(0, 2, 60)
    words = {
        "sequence": "=s",
        "time": np.arange(60),
        "state": np.array(["=up", "-down"])[state],
        "action": np.array(["+", "@stay"])[rng.integers(0, 2, 60)],
    }
    pd.DataFrame(words).to_csv(tmp_path / "steps.csv", index=False)
    for command in (
        (
            "fit",
            "pmf",
            tmp_path / "counts.parquet",
            "--components",
            2,
            "--out",
            tmp_path / "pmf",
            "--restarts",
            1,
        ),
        (
            "fit",
            "options-hmm",
            tmp_path / "steps.csv",
            "--options",
            2,
            "--out",
            tmp_path / "options",
            "--restarts",
            1,
            "--random",
        ),
    ):
        done = run(*command, "--no-progress")
        assert done.exit_code == 0, done.stderr
    assert [
        own_text(line[0]) for line in entries(tmp_path / "pmf" / "signatures.csv")[1:]
    ] == FORMULAS[:6]
    entries(tmp_path / "pmf" / "posterior.csv")
    lines = entries(tmp_path / "options" / "options.csv")
    assert all(line[1].isdigit() for line in lines[1:])  # times as they stand in the file
    assert {entry for line in lines[1:] for entry in line[:4] if not is_number(entry)} == {
        "'=s",
        "'=up",
        "'-down",
        "'+",
        "'@stay",
    }


def test_csv_is_written_in_one_place() -> None:
    """A text that another writer let through would be a formula."""
    written = {
        f"{path.relative_to(Path(package.__file__).parent.parent).as_posix()}:{call}"
        for package in (inference, ppl_models)
        for path in Path(package.__file__).parent.rglob("*.py")
        for call in re.findall(
            r"\.to_csv\(|csv\.(?:writer|DictWriter)\(|savetxt\(|write_csv\((?=.*pyarrow)",
            path.read_text(encoding="utf-8"),
        )
    }
    assert written == {"ppl_models/data/files.py:.to_csv("}


def test_results_are_not_written_through_a_link(tmp_path: Path) -> None:
    """Failed before: with --overwrite the fit took the place of the one in the folder that out/fit
    led to.
    """
    frame = answers(60)
    result = fit(Mixture(2, Bernoulli(), 6), frame, num_restarts=1)
    other, out = tmp_path / "other", tmp_path / "out"
    result.save(other)
    before = {path.name: path.read_bytes() for path in other.iterdir()}
    frame.to_csv(tmp_path / "data.csv", index=False)
    out.mkdir()
    (out / "fit").symlink_to(other)
    command = (
        "fit",
        "mixture",
        tmp_path / "data.csv",
        "--components",
        2,
        "--out",
        out,
        "--no-progress",
        "--restarts",
        1,
        "--overwrite",
    )
    done = run(*command)
    assert done.exit_code == 2
    assert f"error: output folder {out}: {out / 'fit'} is a link" in done.stderr
    (tmp_path / "named").symlink_to(out)
    (out / "report.html").symlink_to(other / "fit.json")
    (out / "summary.json.partial").symlink_to(other / "fit.safetensors")
    write_results(result, frame, tmp_path / "named")  # as where the link was made while the fit ran
    assert {path.name: path.read_bytes() for path in other.iterdir()} == before
    assert not any((out / name).is_symlink() for name in ("fit", "report.html"))
    assert (out / "fit" / "fit.safetensors").is_file()
