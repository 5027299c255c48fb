"""Every command with every kind of wrong file and option: one line, exit code 2, no traceback."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.command_line import answers, run
from support.odd_columns import LABELS, NUMBERS, REFUSED

from inference import EM, RowBlocks, fit
from inference.base.streaming.column_scan import scan_columns
from inference.cli.reading import read_frame
from inference.report.results_folder import write_results
from ppl_models import Bernoulli, Mixture, OptionsHMM
from ppl_models.data.items import counting_columns

pytestmark = pytest.mark.usefixtures("unpainted")

FILES: dict[str, bytes | None] = {
    "missing.csv": None,
    "empty.csv": b"",
    "latin.csv": b"a,b\n1,\xe9\n",
    "bytes.csv": b"\x00\x01\x02",
    "texts.csv": b"a,b\nx,y\n",
    "ragged.csv": b"a,b\n1\n",
    "header.csv": b"a,b,c\n",
    "kind.xyz": b"a\n1\n",
    "none.npz:x": None,
    "huge.csv": b"a,b\n" + b"9" * 400 + b",1\n0,1\n",
    "semicolons.csv": b"a;b\n1;2\n",
    "tabs.csv": b"a\tb\n1\t2\n",
    "slip.csv": b"a,b\n0,1\n1,oops\n",
    "sheet.xlsx": b"PK",
    "array.npy": b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f8'}",
    "folder.csv": None,
    "x" * 300 + ".csv": None,
}
COMMANDS = {
    "dde": ("fit", "dde", "FILE", "--response", "bernoulli", "--latents", "2", "--out", "OUT"),
    "noisy-or": ("fit", "noisy-or", "FILE", "--out", "OUT", "--no-progress"),
    "options": ("fit", "options-hmm", "FILE", "--options", 2, "--out", "OUT", "--no-progress"),
    "mixture": ("fit", "mixture", "FILE", "--components", 2, "--out", "OUT", "--no-progress"),
    "pmf": ("fit", "pmf", "FILE", "--components", 1, "--out", "OUT", "--no-progress"),
    "predict in": ("predict", "FILE", "GOOD", "--out", "OUT"),
    "predict": ("predict", "FITTED", "FILE", "--out", "OUT"),
    "predict keep": ("predict", "FITTED", "FILE", "--keep", "a", "--out", "OUT"),
    "select dde": (
        "select",
        "dde",
        "FILE",
        "--response",
        "bernoulli",
        "--latents",
        "1:2",
        "--out",
        "OUT",
    ),
    "hmm": ("fit", "hmm", "FILE", "--states", 2, "--out", "OUT", "--no-progress"),
    "inclass": ("fit", "inclass", "FILE", "--out", "OUT", "--no-progress"),
    "select mixture": ("select", "mixture", "FILE", "--k", "1:2", "--out", "OUT"),
    "select hmm": ("select", "hmm", "FILE", "--states", "1:2", "--out", "OUT"),
    "select options-hmm": ("select", "options-hmm", "FILE", "--options", "1:2", "--out", "OUT"),
    "select pmf": ("select", "pmf", "FILE", "--k", "1:2", "--out", "OUT"),
    "attributes": ("fit", "attributes", "FILE", "--attributes", 1, "--out", "OUT", "--no-progress"),
    "q matrix": ("fit", "attributes", "GOOD", "--q", "FILE", "--out", "OUT", "--no-progress"),
    "report": ("report", "FILE"),
    "causal": ("causal", "FILE"),
    "check": ("check", "FILE"),
    "compare": ("compare", "FILE", "FILE2", "--out", "OUT"),
    "graph": (
        "fit",
        "dde",
        "GOOD",
        "--response",
        "bernoulli",
        "--latents",
        "2",
        "--graph",
        "FILE",
        "--out",
        "OUT",
    ),
}


def refused(result: object) -> str:
    assert result.exit_code == 2, result.output  # type: ignore[attr-defined]
    lines = [
        line
        for line in result.stderr.strip().splitlines()
        if not line.startswith(("warning: ", "fit: ", "fits: ", "select: "))
    ]  # type: ignore[attr-defined]
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    return str(lines[0])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results, of two columns a and b."""
    data = answers(20)[["calm", "brave"]].set_axis(["a", "b"], axis=1)
    folder = tmp_path_factory.mktemp("results") / "fitted"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "inference.report.fit.write_report", lambda fit, data, path, **_: Path(path).touch()
        )
        write_results(fit(Mixture(1, component=Bernoulli(), num_items=2), data, EM()), data, folder)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", FILES)
def test_wrong_files_are_said_in_one_line(
    tmp_path: Path, fitted: Path, command: str, name: str
) -> None:
    content = FILES[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.csv").mkdir(exist_ok=True)
    answers(20).to_csv(tmp_path / "good.csv", index=False)
    words = {
        "FILE": tmp_path / name,
        "FILE2": tmp_path / f"{name}2",
        "GOOD": tmp_path / "good.csv",
        "OUT": tmp_path / "out",
        "FITTED": fitted,
    }
    refused(run(*(words.get(str(word), word) for word in COMMANDS[command])))
    assert not (tmp_path / "out").exists()


WORDS = {
    "semicolons.csv": "save it with commas, and points in decimal numbers",
    "tabs.csv": "name the file tabs.tsv",
    "sheet.xlsx": "save the sheet as csv",
    "slip.csv": (
        "column 'b' holds numbers, and 'oops' in row 1: leave such an "
        "entry empty if it is missing, or the column out, or say "
        "--response b=categorical"
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_what_to_do_is_said(tmp_path: Path, name: str) -> None:
    """Failed before: one slip made categories of a column of numbers."""
    (tmp_path / name).write_bytes(FILES[name] or b"")
    for family in (("mixture", "--components", 2), ("hmm", "--states", 2)):
        assert WORDS[name] in refused(
            run("fit", *family[:1], tmp_path / name, *family[1:], "--out", tmp_path / "out")
        )


def test_a_select_command_that_is_interrupted_names_no_option_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["inference.cli.select"], "read_items", interrupted)
    said = run("select", "mixture", "any.csv", "--k", "1:2", "--out", tmp_path / "out")
    assert (said.exit_code, said.stderr) == (130, "interrupted; the same command starts anew\n")


STEPS = {
    "no action": "sequence,time,state\n0,0,1\n",
    "a text": "sequence,time,state,action\n0,0,x,1\n0,1,1,0\n",
    "a fraction": "sequence,time,state,action\n0,0,1.5,1\n0,1,1,0\n",
    "below zero": "sequence,time,state,action\n0,0,-5,1\n0,1,1,0\n",
    "huge": "sequence,time,state,action\n0,0,1e300,1\n0,1,1,0\n",
    "too many states": "sequence,time,state,action\n0,0,100000,1\n0,1,1,0\n0,2,1,0\n",
    "nothing": "sequence,time,state,action\n,,,\n",
    "other columns": "a,b\n1,2\n",
}


@pytest.mark.parametrize("name", STEPS)
def test_wrong_sequences_are_said_in_one_line(tmp_path: Path, name: str) -> None:
    """Failed before: a hundred thousand states asked torch for 160 GB."""
    (tmp_path / "steps.csv").write_text(STEPS[name])
    refused(
        run(
            "fit",
            "options-hmm",
            tmp_path / "steps.csv",
            "--options",
            2,
            "--out",
            tmp_path / "out",
            "--no-progress",
            "--restarts",
            1,
        )
    )


def test_a_table_of_transitions_beyond_all_memory_is_refused_when_the_model_is_made() -> None:
    with pytest.raises(
        ValueError,
        match=r"make a table of 20,000,400,002 transitions \(149 GiB\).*code fewer states",
    ):
        OptionsHMM(100_001, 2, 2)


def test_memory_that_is_too_small_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(20).to_csv(tmp_path / "good.csv", index=False)
    for error in (
        MemoryError("Unable to allocate 14.6 TiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried\nto"),
    ):

        def fails(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(sys.modules["inference.cli.families"], "read_counts", fails)
        said = refused(run("fit", "noisy-or", tmp_path / "good.csv", "--out", tmp_path / "out"))
        assert "the memory of this machine is too small" in said


OPTIONS = {
    "--response": (
        "bernoulli:x",
        "nope",
        "poisson:9",
        "bernoulli:99999999999999999999,normal:1",
        ":",
        "",
        ",",
        "bernoulli:0",
    ),
    "--latents": ("", "x", "0", "-1", "2,2", "2,3", "99", "1.5", "2,,1", "99999999999999999999"),
    "--penalty": ("x", "1", "1,2,3", "nan,1", "inf,1", "-1,1", "0,0", "1,1e400", ""),
    "--image-shape": ("x", "3", "2,2", "0,6", "-2,-3", "2,3,1", "99999999999,99999999999"),
    "--checkpoint": ("FOLDER", "GOOD", "GOOD/inside"),
    "--out": ("GOOD", "GOOD/inside"),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_wrong_options_are_said_in_one_line(tmp_path: Path, option: str) -> None:
    answers(20).to_csv(tmp_path / "good.csv", index=False)
    (tmp_path / "folder").mkdir()
    for value in OPTIONS[option]:
        given = value.replace("GOOD", str(tmp_path / "good.csv")).replace(
            "FOLDER", str(tmp_path / "folder")
        )
        words = {
            "--response": "bernoulli",
            "--latents": "2",
            "--penalty": "none",
            "--out": tmp_path / "out",
        } | {option: given}
        refused(
            run(
                "fit",
                "dde",
                tmp_path / "good.csv",
                *(part for pair in words.items() for part in pair),
                "--no-progress",
            )
        )


def test_wrong_ranges_are_said_in_one_line(tmp_path: Path) -> None:
    pd.DataFrame(np.random.default_rng(0).poisson(3, (12, 4)), columns=list("abcd")).to_csv(
        tmp_path / "counts.csv", index=False
    )
    for value in ("", "x", "1", "1:", "3:1", "0:2", "1:2,3:4", "a:b", ":"):
        refused(
            run("select", "pmf", tmp_path / "counts.csv", "--k", value, "--out", tmp_path / "out")
        )
        refused(
            run(
                "select",
                "dde",
                tmp_path / "counts.csv",
                "--response",
                "poisson",
                "--latents",
                value,
                "--out",
                tmp_path / "out",
            )
        )


@pytest.mark.parametrize("ending", ["csv", "parquet", "parquet in blocks"])
@pytest.mark.parametrize("kind", [*NUMBERS, *LABELS, *REFUSED])
def test_a_column_that_would_be_misread_is_named(kind: str, ending: str, tmp_path: Path) -> None:
    """Codes by a warning, in the terminal and on the page; what is no number by one error."""
    rng = np.random.default_rng(1)
    column, words = (NUMBERS | LABELS | REFUSED)[kind](rng, 30)
    frame = pd.DataFrame({"a": rng.normal(size=30), "x": column})
    table = tmp_path / f"table.{ending.split()[0]}"
    frame.to_csv(table, index=False) if ending == "csv" else frame.to_parquet(table, index=False)
    asked = ("fit", "mixture", table, "--components", 1, "--out", tmp_path / "out", "--no-progress")
    said_of_x = ("--response", "x=normal") if kind == "two codes" else ()
    done = run(*asked, *said_of_x, *(("--block-rows", 10) if ending.endswith("blocks") else ()))
    if kind in REFUSED:
        said = refused(done)
        assert not (tmp_path / "out").exists()
    else:
        assert done.exit_code == 0, done.output
        said = next(line for line in done.stderr.splitlines() if "column 'x'" in line)
        assert said.startswith("warning: ")
        page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
        assert words[0].replace("'", "&#39;") in page
    assert "column 'x'" in said
    assert all(word in said for word in words)


@pytest.mark.parametrize("command", ["mixture", "select mixture", "hmm", "dde"])
@pytest.mark.parametrize("kind", REFUSED)
def test_every_command_that_looks_at_columns_names_what_is_no_number(
    kind: str, command: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    column, words = REFUSED[kind](rng, 30)
    table = tmp_path / "table.csv"
    pd.DataFrame({"a": rng.normal(size=30), "b": rng.normal(size=30), "x": column}).to_csv(
        table, index=False
    )
    own = [
        {"FILE": table, "OUT": tmp_path / "out"}.get(str(part), part) for part in COMMANDS[command]
    ]
    own = [part for part in own if part not in ("--response", "bernoulli")]
    said = refused(run(*own))
    assert "column 'x'" in said
    assert all(word in said for word in words), said


def test_large_measurements_do_not_count_the_rows() -> None:
    """Failed before: of numbers that adding 1 leaves alone, "counts the rows" was said."""
    frame = pd.DataFrame(
        {
            "a": 1.5e17 + 64.0 * (np.arange(30) % 2),
            "same": np.full(30, 1.5e17),
            "n": np.arange(5, 35),
        }
    )
    assert counting_columns(frame) == ["n"]
    assert scan_columns(RowBlocks.of(frame, 7)).counting == ("n",)


def test_a_column_of_large_whole_numbers_may_be_left_out(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    pd.DataFrame(
        {"a": np.random.default_rng(0).normal(size=30), "x": 2**60 + np.arange(30)}
    ).to_csv(table, index=False)
    assert read_frame(str(table), "a").columns.tolist() == ["a"]
    with pytest.raises(ValueError, match="column 'x', row 0: whole numbers of at most"):
        read_frame(str(table))
