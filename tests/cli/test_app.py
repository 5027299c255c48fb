"""The command line: results, exit codes, and one clear line for every error of a user."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.command_line import NAMES, answers, run
from typer.testing import CliRunner

import inference.base.progress
import inference.cli.families
import inference.cli.results
from inference import EM, SAEM, Fit, fit
from inference.cli.main import app
from inference.fitting.export import load_netcdf
from inference.report.results_folder import check_output_folder, read_results, write_results
from ppl_models import Blocks, DeepDiscreteEncoder, Normal, Poisson, ToBeChosen, TruncatedLasso

pytestmark = pytest.mark.usefixtures("unpainted", "few_refits")

PARTS = {"fit", "posterior.nc", "report.html", "summary.json"}


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "answers.csv"
    answers().to_csv(path, index=False)
    return path


@pytest.fixture
def no_report(monkeypatch):
    """Drawing takes seconds and has its own tests."""
    import inference.report.fit

    monkeypatch.setattr(
        inference.report.fit, "write_report", lambda fit, data, path, **_: Path(path).touch()
    )


def dde(table: object, out: object, *more: object, response: str = "bernoulli", latents: str = "2"):
    return run(
        "fit", "dde", table, "--response", response, "--latents", latents, "--out", out, *more
    )


# Results


def test_the_engine_is_the_one_asked_for(table, tmp_path):
    result = dde(table, tmp_path / "out", "--engine", "saem")
    assert result.exit_code == 0, result.output
    fit = Fit.load(tmp_path / "out" / "fit")
    assert fit.method == SAEM()
    assert fit.trace.name == "complete-data log-posterior"
    assert dde(table, tmp_path / "other", "--engine", "gibbs").exit_code == 2


def test_fit_writes_everything(table, tmp_path):
    out = tmp_path / "deep" / "results"
    result = dde(table, out, "--seed", 3, "--image-shape", "2,3", "--restarts", 2)
    assert result.exit_code == 0, result.output
    assert {entry.name for entry in out.iterdir()} == PARTS | {"posterior.csv"}
    assert str(out) in result.stdout
    rows = pd.read_csv(out / "posterior.csv")
    assert list(rows.columns) == [
        "row",
        "P(latents_1[0])",
        "P(latents_1[1])",
        "latents_1[0]",
        "latents_1[1]",
        "log_likelihood",
    ]
    assert len(rows) == len(answers())

    fit = Fit.load(out / "fit")
    assert fit.model.penalty is None
    assert fit.choice.penalties == TruncatedLasso.candidates(150)
    assert fit.model == DeepDiscreteEncoder(6, (2,)).restricted([fit.graphs["loadings_1"].tolist()])
    assert fit.item_names == tuple(NAMES)
    assert (fit.seed, fit.num_rows, len(fit.choice.ebic)) == (
        3,
        150,
        4,
    )  # two penalties, two starts each

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    summary = json.loads((out / "summary.json").read_text(), parse_constant=refuse)
    assert summary["log_likelihood"] == fit.log_likelihood
    assert summary["objective"] == fit.objective
    assert summary["objective_name"] == fit.objective_name
    assert summary["bic"] == fit.bic
    assert summary["converged"] is True
    assert (
        summary["num_rows"],
        summary["num_items"],
        summary["latent_sizes"],
        summary["seed"],
    ) == (150, 6, [2], 3)
    assert summary["num_iterations"] == fit.num_iterations
    assert set(summary["versions"]) == {
        "python",
        "torch",
        "pyro-ppl",
        "numpy",
        "arviz",
        "ppl-models",
    }
    assert summary["warnings"] == list(fit.warnings)
    assert summary["image_shape"] == [2, 3]
    assert summary["graphs"] == {"loadings_1": fit.graphs["loadings_1"].tolist()}
    assert summary["choice"]["ebic"] == fit.choice.ebic.tolist()

    idata = load_netcdf(out / "posterior.nc")
    np.testing.assert_allclose(
        idata["posterior"]["loadings_1"].values[0, 0], fit.params["loadings_1"].numpy()
    )
    np.testing.assert_array_equal(idata["observed_data"]["items"].values, answers().to_numpy())
    assert idata["posterior"]["item"].values.tolist() == NAMES
    (out / "report.html").unlink()
    again = run("report", out)
    assert again.exit_code == 0, again.output
    assert (out / "report.html").stat().st_size > 10_000


def test_results_are_read_back(tmp_path, no_report):
    frame = answers() + np.random.default_rng(1).normal(size=(150, 6))
    frame.iloc[3, 2] = np.nan
    result = fit(
        DeepDiscreteEncoder(6, (2,), Normal()),
        frame,
        method=EM(tolerance=1e-6, parameter_tolerance=1e-3),
    )
    write_results(result, frame, tmp_path / "results")
    loaded, data, summary = read_results(tmp_path / "results")
    pd.testing.assert_frame_equal(data, frame)
    assert loaded.log_likelihood_rows(data).sum().item() == pytest.approx(result.log_likelihood)
    assert summary["latent_sizes"] == [2]


def test_an_existing_folder_is_kept_unless_told(table, tmp_path, no_report):
    out = tmp_path / "results"
    out.mkdir()
    assert dde(table, out).exit_code == 0  # empty
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    refused = dde(table, out, "--seed", 1)
    assert refused.exit_code == 2
    assert f"{out} exists and is not empty" in refused.stderr
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    (out / "notes.txt").write_text("mine")
    assert dde(table, out, "--seed", 1, "--overwrite").exit_code == 0
    assert json.loads((out / "summary.json").read_text())["seed"] == 1
    assert (out / "notes.txt").read_text() == "mine"


def test_a_folder_with_the_checkpoint_only_counts_as_empty(tmp_path):
    (tmp_path / "running").touch()
    assert check_output_folder(tmp_path, allowed=[tmp_path / "running"]) == tmp_path
    with pytest.raises(ValueError, match=r"not empty \(running\)"):
        check_output_folder(tmp_path)
    with pytest.raises(ValueError, match="a folder was expected, got a file"):
        check_output_folder(tmp_path / "running", overwrite=True)


def test_one_seed_makes_one_answer(table, tmp_path, no_report):
    def params(out: str, seed: int) -> list[float]:
        assert dde(table, tmp_path / out, "--init", "random", "--seed", seed).exit_code == 0
        return Fit.load(tmp_path / out / "fit").params["loadings_1"].ravel().tolist()

    first, again, other = params("a", 5), params("b", 5), params("c", 6)
    assert first == again
    assert first != other


def test_options_reach_the_model(tmp_path, no_report):
    rng, yes = np.random.default_rng(0), answers().to_numpy()
    mixed = np.hstack([rng.poisson(1 + 5 * yes[:, :3]), rng.normal(3 * yes[:, 3:])])
    np.savez(tmp_path / "data.npz", mixed=mixed, other=np.ones(2))
    q_matrix = np.array([[1, 0], [1, 1], [1, 0], [0, 1], [0, 1], [0, 1]])
    pd.DataFrame(q_matrix, columns=["speed", "care"]).to_csv(tmp_path / "q.csv", index=False)
    options = ("--graph", tmp_path / "q.csv", "--restarts", 2)
    result = dde(
        f"{tmp_path / 'data.npz'}:mixed", tmp_path / "out", *options, response="poisson:3,normal:3"
    )
    assert result.exit_code == 0, result.output
    fit = Fit.load(tmp_path / "out" / "fit")
    assert fit.model == DeepDiscreteEncoder(
        6, (2,), Blocks((Poisson(), 3), (Normal(), 3)), graphs=(q_matrix,)
    )
    assert (fit.params["loadings_1"].numpy()[q_matrix == 0] == 0).all()
    assert fit.item_names == ("0", "1", "2", "3", "4", "5")


@pytest.mark.parametrize(
    ("text", "penalty"),
    [("auto", ToBeChosen()), ("none", None), ("2.5,0.3", TruncatedLasso(2.5, 0.3))],
)
def test_the_penalty_asked_for(text, penalty):
    assert inference.cli.families.penalty_of(text) == penalty


def test_progress_goes_to_standard_error_and_can_be_turned_off(table, tmp_path, no_report):
    shown = dde(table, tmp_path / "a")
    assert "iteration" in shown.stderr
    quiet = dde(table, tmp_path / "b", "--no-progress")
    assert all(line.startswith("warning: ") for line in quiet.stderr.splitlines())
    assert len(shown.stdout.splitlines()) == len(quiet.stdout.splitlines()) == 5


def test_a_constant_column_is_named_in_a_warning(table, tmp_path, no_report):
    frame = answers().assign(loud=1)
    frame.to_csv(table, index=False)
    result = dde(table, tmp_path / "out", "--no-progress")
    assert result.exit_code == 0, result.output
    assert any(
        line.startswith("warning: ") and "loud" in line for line in result.stderr.splitlines()
    )
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert "loud" in " ".join(summary["warnings"])
    assert (
        summary["objective"] is not None
    )  # finite, though an intercept may have gone to its bound


@pytest.fixture
def small_demo(monkeypatch):
    monkeypatch.setattr(inference.cli.results, "DEMO_LATENTS", (2,))


def test_demo_at_a_small_size(small_demo, tmp_path):
    result = run("demo", "--out", tmp_path / "demo", "--seed", 1, "--no-progress")
    assert result.exit_code == 0, result.output
    assert {entry.name for entry in (tmp_path / "demo").iterdir()} == PARTS | {"posterior.csv"}
    summary = json.loads((tmp_path / "demo" / "summary.json").read_text())
    assert (summary["num_rows"], summary["num_items"], summary["image_shape"]) == (1797, 64, [8, 8])
    assert run("demo", "--out", tmp_path / "demo").exit_code == 2


@pytest.mark.slow
def test_the_whole_demo_takes_less_than_a_minute(tmp_path):
    began = time.monotonic()
    result = run("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 0, result.output
    assert time.monotonic() - began < 60
    assert json.loads((tmp_path / "demo" / "summary.json").read_text())["converged"]


# Errors


def frame_with(**columns: object) -> pd.DataFrame:
    return answers().assign(**columns)


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (
            frame_with(loud="very"),
            {},
            "column 'loud', row 0 (line 2): a number was expected, got 'very'",
        ),
        (frame_with(loud=2), {}, "column 'loud': Bernoulli items take the values 0 and 1, found 2"),
        (
            frame_with(loud=-1),
            {"response": "poisson"},
            "column 'loud': Poisson items are counts, found the negative value -1",
        ),
        (
            frame_with(loud=0.5),
            {"response": "poisson"},
            "column 'loud': Poisson items are whole counts, found 0.5",
        ),
        (
            answers(),
            {"response": "lognormal"},
            "column 'calm': LogNormal items are positive, found 0",
        ),
        (frame_with(loud=np.inf), {"response": "normal"}, "got an infinity in row 0"),
        (frame_with(loud=np.nan), {}, "column 'loud' has no observed entry"),
        (
            answers(),
            {"response": "binomial"},
            (
                "bernoulli, poisson, normal, lognormal, negative-binomial, "
                "categorical, ordinal, partial-credit, or blocks of them, or in a mixture"
            ),
        ),
        (
            answers(),
            {"response": "bernoulli:6,poisson:x"},
            "--response: blocks are written NAME:NUMBER,NAME:NUMBER",
        ),
        (
            answers(),
            {"response": "bernoulli:2,poisson:2"},
            "--response: the blocks hold 4 columns, and the table has 6",
        ),
        (
            answers(),
            {"latents": "two"},
            "--latents: whole numbers separated by commas were expected, got 'two'",
        ),
        (answers(), {"latents": "1,2"}, "latent_sizes go bottom-up and must fall, got (1, 2)"),
        (answers(), {"latents": "0"}, "must be a positive integer, got 0"),
        (answers(), {"latents": "7"}, "latent_sizes[0] = 7 exceeds num_items = 6"),
        (
            answers(),
            {"--penalty": "strong"},
            "--penalty: auto, none or SLOPE,THRESHOLD was expected, got 'strong'",
        ),
        (answers(), {"--penalty": "-1,2"}, "must be a positive finite number, got -1.0"),
        (
            answers(),
            {"--image-shape": "2,2"},
            "--image-shape: 2 x 2 pixels do not make the 6 items",
        ),
        (
            answers(),
            {"--image-shape": "6"},
            "--image-shape: two positive numbers, rows and columns, were expected, got '6'",
        ),
        (answers(), {"--graph": "1,0\n0,1\n"}, "graphs[0] must have shape (6, 2), got (2, 2)"),
        (answers(), {"--graph": "1,0\n" * 5 + "1,2\n"}, "graphs[0] must hold only 0 and 1"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_two(tmp_path, frame, options, message):
    frame.to_csv(tmp_path / "data.csv", index=False)
    options = dict(options)
    if "--graph" in options:
        (tmp_path / "graph.csv").write_text(options["--graph"])
        options["--graph"] = tmp_path / "graph.csv"
    known = {name: options.pop(name) for name in ("response", "latents") if name in options}
    result = dde(
        tmp_path / "data.csv",
        tmp_path / "out",
        *[part for pair in options.items() for part in pair],
        "--no-progress",
        **known,
    )
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.csv", None, "absent.csv: no such file"),
        ("empty.csv", b"", "the file is empty"),
        ("data.parquet", b"a,b\n1,2\n", "the ending promises parquet"),
        (
            "data.dat",
            b"1 2\n",
            "a file ending in .csv, .tsv, .all, .txt, .parquet, .arrow, .feather, .npy, .npz was",
        ),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    result = dde(tmp_path / name, tmp_path / "out")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert message in line


def test_the_output_folder_is_checked_before_the_data(tmp_path):
    (tmp_path / "out").write_text("a file")
    result = dde(tmp_path / "absent.csv", tmp_path / "out")
    assert result.exit_code == 2
    assert "a folder was expected, got a file" in result.stderr


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda folder: None, "a folder with results was expected, but there is none"),
        (lambda folder: folder.mkdir(), "it holds no summary.json"),
        (
            lambda folder: (folder.mkdir(), (folder / "summary.json").write_text("[]")),
            "not a summary of a fit",
        ),
        (
            lambda folder: (folder.mkdir(), (folder / "summary.json").write_text("{")),
            "not a summary of a fit",
        ),
        (
            lambda folder: (folder.mkdir(), (folder / "summary.json").write_text("{}")),
            "a saved fit was expected",
        ),
    ],
)
def test_report_wants_a_folder_of_results(tmp_path, prepare, message):
    prepare(tmp_path / "results")
    result = run("report", tmp_path / "results")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert message in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["fit", "--help"],
        ["fit", "mixture", "--help"],
        ["demo", "--help"],
        ["predict", "--help"],
    ],
)
def test_help(arguments):
    result = run(*arguments)
    assert result.exit_code == 0
    assert "Usage" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "dde", "x.csv"],
        ["fit", "mixture"],
        ["fit", "dde", "x.csv", "--restarts", 0],
        ["demo", "--seed", -1],
    ],
)
def test_wrong_usage_is_exit_code_two(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_the_version_is_the_installed_one():
    from importlib import metadata

    assert run("--version").stdout.strip() == metadata.version("ppl-models")


# Interrupts


def interrupt_at(iteration: int, monkeypatch: pytest.MonkeyPatch) -> None:
    original = inference.base.progress.RichProgress.update

    def update(self, now: int, *arguments: Any, **named: Any) -> None:
        if now == iteration:
            raise KeyboardInterrupt
        original(self, now, *arguments, **named)

    monkeypatch.setattr(inference.base.progress.RichProgress, "update", update)


def test_an_interrupted_fit_resumes_and_loses_nothing(table, tmp_path, monkeypatch, no_report):
    (answers() * 3 + np.random.default_rng(1).normal(size=(150, 6))).to_csv(table, index=False)
    out, checkpoint = tmp_path / "out", tmp_path / "out" / "running"
    options = (
        "--response",
        "normal",
        "--init",
        "random",
        "--penalty",
        "none",
        "--restarts",
        1,
        "--checkpoint",
        checkpoint,
    )
    with monkeypatch.context() as patch:
        interrupt_at(4, patch)
        result = dde(table, out, *options)
    assert result.exit_code == 130
    assert f"the fit so far is in {checkpoint}: the same command resumes" in " ".join(
        result.stderr.split()
    )
    assert "Traceback" not in result.output
    assert {entry.name for entry in out.iterdir()} == {"running"}

    seen: list[int] = []
    monkeypatch.setattr(
        inference.base.progress.RichProgress,
        "update",
        lambda self, now, *status, **named: seen.append(now),
    )
    assert dde(table, out, *options).exit_code == 0
    assert seen[0] == 5
    whole = dde(table, tmp_path / "whole", *options[:-2])
    assert whole.exit_code == 0
    resumed, straight = Fit.load(out / "fit"), Fit.load(tmp_path / "whole" / "fit")
    assert resumed.num_iterations == straight.num_iterations
    assert resumed.params["loadings_1"].tolist() == straight.params["loadings_1"].tolist()

    other = dde(table, tmp_path / "other", *options, latents="1")
    assert other.exit_code == 2
    assert "belongs to another fit" in other.stderr


def test_an_interrupt_without_a_checkpoint_says_so(table, tmp_path, monkeypatch):
    interrupt_at(2, monkeypatch)
    result = dde(table, tmp_path / "out")
    assert result.exit_code == 130
    assert "no checkpoint was kept" in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_control_c_on_the_running_command(tmp_path):
    answers(200_000).to_csv(tmp_path / "data.csv", index=False)
    checkpoint = tmp_path / "running"
    arguments = [
        "fit",
        "dde",
        tmp_path / "data.csv",
        "--response",
        "bernoulli",
        "--latents",
        "4,2",
        "--init",
        "random",
    ]
    program = "from inference.cli import main; main()"
    command = [
        sys.executable,
        "-c",
        program,
        *arguments,
        "--out",
        tmp_path / "out",
        "--checkpoint",
        checkpoint,
    ]
    with subprocess.Popen(
        [str(part) for part in command], stderr=subprocess.PIPE, text=True
    ) as process:
        until = time.monotonic() + 60
        while not checkpoint.exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "the same command resumes from there" in " ".join(errors.split())
    assert checkpoint.exists()
    assert not (tmp_path / "out").exists()


def test_the_command_line_imports_nothing_heavy_before_it_has_to():
    heavy = ["arviz", "matplotlib", "pandas", "sklearn", "xarray", "pyarrow"]
    code = f"import sys, inference.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------------
# Choosing a size


def test_a_size_is_chosen_and_written(table, tmp_path):
    out = tmp_path / "sizes"
    arguments = [
        "select",
        "dde",
        table,
        "--response",
        "bernoulli",
        "--latents",
        "1:2",
        "--out",
        out,
        "--no-progress",
    ]
    result = CliRunner().invoke(app, [str(part) for part in arguments])
    assert result.exit_code == 0, result.output
    assert {entry.name for entry in out.iterdir()} == {
        "posterior.csv",
        "posterior.nc",
        "summary.json",
        "sizes.csv",
        "selection.png",
        "selection.json",
        "fit",
        "report.html",
    }
    record = json.loads((out / "selection.json").read_text())
    sizes = pd.read_csv(out / "sizes.csv")
    assert record["chosen"] == int(sizes["size"][sizes["ebic"].idxmin()])
    assert Fit.load(out / "fit").model.latent_sizes == (record["chosen"],)
    assert (
        CliRunner().invoke(app, [str(part) for part in arguments]).exit_code == 2
    )  # results are not replaced unasked


@pytest.mark.parametrize(
    ("latents", "message"),
    [
        ("3,2", "one range"),
        ("1:3,1:2", "one range"),
        ("3:1,2", "FIRST:LAST"),
        ("1:2,x", "whole numbers"),
    ],
)
def test_bad_ranges_of_sizes(table, tmp_path, latents, message):
    arguments = [
        "select",
        "dde",
        str(table),
        "--response",
        "bernoulli",
        "--latents",
        latents,
        "--out",
        str(tmp_path / "out"),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_records_and_tables_take_the_place_of_files_as_a_whole(tmp_path, monkeypatch):
    from inference.cli.app import write_csv, write_json

    write_json(
        {"a": [1.0, math.nan], "b": {"c": math.inf, "d": None, "e": "x"}}, tmp_path / "record.json"
    )
    assert json.loads((tmp_path / "record.json").read_text()) == {
        "a": [1.0, None],
        "b": {"c": None, "d": None, "e": "x"},
    }
    write_csv(pd.DataFrame({"a": [1]}), tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == "a\n1\n"

    def breaks(self, path, **_):
        Path(path).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", breaks)
    with pytest.raises(
        OSError, match="could not be written .*; what was there before is as it was"
    ):
        write_csv(pd.DataFrame({"a": [2]}), tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == "a\n1\n"
    assert {path.name for path in tmp_path.iterdir()} == {"record.json", "table.csv"}
