"""Ctrl-C at every stage of a command: one line, exit code 130, and a sentence that is true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.command_line import answers, run

from inference import Fit
from inference.report.results_folder import read_results

pytestmark = [
    pytest.mark.usefixtures("unpainted", "few_refits"),
    pytest.mark.filterwarnings(
        "ignore::inference.ConvergenceWarning", "ignore::inference.BoundWarning"
    ),
]
ROOT = Path(__file__).parents[2]
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
CHILD = """
import signal, sys, weakref
from ppl_models_command import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background

def interrupt(*_, **__):
    signal.raise_signal(signal.SIGINT)

class Importing:
    def find_spec(name, path=None, target=None):
        if name == {stage!r}:
            interrupt()

class HalfMade:
    def __init__(self):
        interrupt()
    def __del__(self):
        raise AttributeError("closed before it was open")

class Empty:
    pass

def dropped():
    thing = Empty()
    reference = weakref.ref(thing, interrupt)  # an exception in a callback is dropped
    del thing
    while True:  # the writer goes on
        pass

sys.meta_path.insert(0, Importing)
{code}
sys.argv[0] = "ppl-models"
main()
"""
AT_IMPORT = ("torch.nn", "pyro.infer")  # before the command line is there
INSIDE = ("inference.cli.families", "pandas", "arviz", "h5netcdf")
AFTER_THE_FIT = {
    "a callback in the netCDF writer": (
        "from inference.fitting import export; export.save_netcdf = lambda *_: dropped()"
    ),
    "a half-made file of the netCDF writer": (
        "from inference.fitting import export; export.save_netcdf = lambda *_: HalfMade()"
    ),
    "the page": "import inference.report.fit as page; page.write_report = interrupt",
    "the summary": "import inference.report.results_folder as folder; folder.summarise = interrupt",
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = np.random.default_rng(0).normal(size=(60, 3)) + np.repeat([0, 4], 30)[:, None]
    pd.DataFrame(rows, columns=["a", "b", "=c"]).to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


def mixture(table: Path, out: Path, *more: object) -> list[str]:
    return [
        str(part)
        for part in (
            "fit",
            "mixture",
            table,
            "--components",
            2,
            "--restarts",
            1,
            "--out",
            out,
            "--no-progress",
            *more,
        )
    ]


def ctrl_c(
    arguments: list[str], stage: str = "", code: str = ""
) -> subprocess.CompletedProcess[str]:
    """A process of its own that is interrupted by a signal: at an import, or where the code
    says.
    """
    command = [sys.executable, "-c", CHILD.format(stage=stage, code=code), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 130, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("interrupted"), done.stderr
    return done


@POSIX
@pytest.mark.parametrize(
    "stage", [*AT_IMPORT, *(pytest.param(stage, marks=pytest.mark.slow) for stage in INSIDE)]
)
def test_an_import_is_interrupted_in_one_line(table: Path, tmp_path: Path, stage: str) -> None:
    """Failed before: forty lines of importlib, and an ImportError where numpy took the interrupt
    for one of its own.
    """
    done = ctrl_c(mixture(table, tmp_path / "out"), stage)
    if stage in AT_IMPORT:
        assert done.stderr == "interrupted before anything was done\n"
        assert not (tmp_path / "out").exists()


@POSIX
@pytest.mark.parametrize(
    "stage",
    [
        stage if "callback" in stage else pytest.param(stage, marks=pytest.mark.slow)
        for stage in AFTER_THE_FIT
    ],
)
def test_after_the_fit_the_line_says_where_it_is(table: Path, tmp_path: Path, stage: str) -> None:
    """Failed before: "the same command starts anew" of a folder that it refuses; in the netCDF
    writer the interrupt was dropped below a traceback.
    """
    out = tmp_path / "out"
    done = ctrl_c(mixture(table, out), code=AFTER_THE_FIT[stage])
    where = (
        f"the fit is saved in {out / 'fit'}: ppl-models report {out / 'fit'} DATA makes its page"
    )
    if stage == "the page":
        where = f"all results but the page are in {out}: ppl-models report {out} makes it"
        assert (out / "posterior.csv").exists()
    assert done.stderr == f"interrupted; {where}\n"
    assert run(*mixture(table, out)).exit_code == 2
    assert Fit.load(out / "fit").num_rows == 60


@POSIX
@pytest.mark.slow
def test_an_interrupt_of_the_interpreter_that_ends_is_none(table: Path, tmp_path: Path) -> None:
    code = "import atexit; atexit.register(interrupt)"
    command = [
        sys.executable,
        "-c",
        CHILD.format(stage="", code=code),
        *mixture(table, tmp_path / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def interrupts(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


STAGES = {
    "inference.cli.families.run": (
        "interrupted; no checkpoint was kept (with --checkpoint FILE a fit can be resumed)"
    ),
    "inference.fitting.export.save_netcdf": (
        "interrupted; the fit is saved in OUT/fit: ppl-models report OUT/fit DATA makes its page"
    ),
    "inference.report.results_folder.summarise": (
        "interrupted; the fit is saved in OUT/fit: ppl-models report OUT/fit DATA makes its page"
    ),
    "inference.cli.app.write_rows": (
        "interrupted; the fit is saved in OUT/fit: ppl-models report OUT/fit DATA makes its page"
    ),
    "inference.report.fit.write_report": (
        "interrupted; all results but the page are in OUT: ppl-models report OUT makes it"
    ),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("older", [False, True])
def test_what_is_said_of_the_folder_is_true(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, older: bool
) -> None:
    """With --overwrite too, where the older results may stand there still."""
    monkeypatch.setattr(
        "inference.report.fit.write_report",
        lambda fit, data, path, **_: Path(path).write_text("page"),
    )
    out, more = tmp_path / "out", ("--overwrite",) if older else ()
    if older:
        assert run(*mixture(table, out, "--seed", 5)).exit_code == 0
    with monkeypatch.context() as patch:
        module, _, name = stage.rpartition(".")
        patch.setattr(sys.modules[module], name, interrupts)
        said = run(*mixture(table, out, *more))
    assert said.exit_code == 130
    kept = older and stage != "inference.report.fit.write_report"
    line = STAGES["inference.cli.families.run"] if kept else STAGES[stage]
    assert said.stderr == line.replace("OUT", str(out)) + "\n"
    if kept:
        assert Fit.load(out / "fit").seed == 5
    if "DATA makes" in line:
        assert run("report", out / "fit", table).exit_code == 0
    elif "all results" in line:
        assert run("report", out).exit_code == 0
    elif "is saved" not in line:
        assert run(*mixture(table, out, *more)).exit_code == 0
    assert Fit.load(out / "fit").seed == 0 or kept


def test_a_part_of_a_choice_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed before: "the same command starts anew", which refuses a folder with a table in it."""
    out = tmp_path / "out"
    answers(60).to_csv(tmp_path / "answers.csv", index=False)
    command = (
        "select",
        "dde",
        tmp_path / "answers.csv",
        "--response",
        "bernoulli",
        "--latents",
        "1:2",
        "--out",
        out,
        "--no-progress",
    )
    monkeypatch.setattr(
        "inference.report.answers.write_choice_report",
        lambda found, path: path.write_text("page") and path,
    )
    stages = {
        "write_picture": (
            f"interrupted; all results but the page are in {out}: ppl-models report {out} makes"
            " it\n"
        ),
        "write_json": (
            f"interrupted; the fit is saved in {out / 'fit'}, and its page is"
            f" {out / 'report.html'}\n"
        ),
    }
    for number, (stage, line) in enumerate(stages.items()):
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules["inference.cli.select"], stage, interrupts)
            said = run(*command, *("--overwrite",) * number)
        assert (said.exit_code, said.stderr.splitlines()[-1] + "\n") == (130, line)


def test_the_disk_is_full_after_the_fit(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("inference.fitting.export.save_netcdf", full)
    said = run(*mixture(table, tmp_path / "out"))
    assert said.exit_code == 2
    assert said.stderr.endswith(
        f"the fit is saved in {tmp_path / 'out' / 'fit'}: ppl-models report"
        f" {tmp_path / 'out' / 'fit'} DATA makes its page\n"
    )


def test_report_takes_the_rows_of_the_fit_alone_and_goes_on_where_it_was_interrupted(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "inference.report.fit.write_report",
        lambda fit, data, path, **_: Path(path).write_text("page"),
    )
    with monkeypatch.context() as patch:
        patch.setattr("inference.fitting.export.save_netcdf", interrupts)
        assert run(*mixture(table, tmp_path / "out")).exit_code == 130
    rows = pd.read_csv(table)
    rows.head(50).to_csv(tmp_path / "fewer.csv", index=False)
    (1 - rows).to_csv(tmp_path / "other.csv", index=False)
    saved = tmp_path / "out" / "fit"
    words = {
        ("report", saved): "holds a saved fit without its data: name the table",
        ("report", tmp_path / "out"): "holds a saved fit without its data: name the table",
        (
            "report",
            saved,
            tmp_path / "fewer.csv",
        ): "the fit was made of 60 rows, and the table has 50",
        (
            "report",
            saved,
            tmp_path / "other.csv",
        ): "they are other rows, or were read in another way",
        ("report", tmp_path / "none", table): "a saved fit was expected",
    }
    for command, text in words.items():
        said = run(*command)
        assert said.exit_code == 2
        assert text in said.stderr
        assert {path.name for path in (tmp_path / "out").iterdir()} == {"fit"}
    assert run("report", tmp_path / "out", table).exit_code == 0
    said = run("report", saved, table)
    assert said.exit_code == 2
    assert "already: ppl-models report" in said.stderr
    assert run("report", tmp_path / "out").exit_code == 0
    assert run(*mixture(table, tmp_path / "whole")).exit_code == 0
    found, expected = (read_results(tmp_path / name) for name in ("out", "whole"))
    assert found[1].equals(expected[1])
    assert found[2] | {"seconds": 0} == expected[2] | {"seconds": 0}
    assert (tmp_path / "out" / "posterior.csv").read_text() == (
        tmp_path / "whole" / "posterior.csv"
    ).read_text()
