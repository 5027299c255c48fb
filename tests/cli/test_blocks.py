"""Commands on files that are read in blocks: the answers of rows in memory, what is said of it, and
what is refused.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.command_line import run

from inference import Fit
from inference.base.streaming import column_scan, row_blocks
from inference.base.streaming.column_scan import scan_columns
from inference.cli import streaming
from inference.cli.streaming import open_source
from inference.fitting import columns
from inference.report.results_folder import read_results

pytestmark = pytest.mark.usefixtures("unpainted")

ROWS, KEPT, BLOCK = 240, 150, 100


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 100 rows are many, of which 150 are a sample; and no page is drawn, which takes
    seconds and has its own tests.
    """
    for place in (row_blocks, column_scan, columns, streaming):
        monkeypatch.setattr(place, "SAMPLE_ROWS", KEPT)
    monkeypatch.setattr(streaming, "BLOCK_ROWS", BLOCK)
    monkeypatch.setattr(
        "inference.report.fit.write_report", lambda fit, data, path, **_: Path(path).touch()
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yes-no answers of two groups in every form, and people of two groups."""
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    group = rng.integers(0, 2, ROWS)
    bits = pd.DataFrame(
        {
            f"q{j}": (rng.random(ROWS) < np.where(group == j % 2, 0.9, 0.1)).astype(np.int8)
            for j in range(6)
        }
    )
    bits.to_parquet(folder / "bits.parquet")
    bits.to_feather(folder / "bits.arrow")
    bits.to_csv(folder / "bits.csv", index=False)
    np.save(folder / "bits.npy", bits.to_numpy())
    (folder / "parts").mkdir()
    bits[:90].to_parquet(folder / "parts" / "1.parquet")
    bits[90:].to_parquet(folder / "parts" / "2.parquet")
    people = pd.DataFrame(
        {
            "town": np.where(group == 1, "Ulm", "Bonn"),
            "age": rng.normal(20 + 40 * group, 4).round(1),
            "visits": rng.poisson(1 + 8 * group),
            "smokes": (rng.random(ROWS) < 0.2 + 0.6 * group).astype(int),
            "place": np.arange(1, ROWS + 1),
        }
    )
    people.loc[5, "town"], people.loc[200, "age"], people.loc[201, "town"] = None, np.nan, "Linz"
    people.to_parquet(folder / "people.parquet")
    return folder


def command(folder: Path, name: str, out: Path, *more: object):
    return run(
        "fit", "mixture", folder / name, "--components", 2, "--out", out, "--no-progress", *more
    )


@pytest.mark.parametrize("name", ["bits.parquet", "bits.npy", "bits.arrow", "parts"])
def test_every_form_gives_the_answer_of_rows_in_memory(files, tmp_path, name):
    done, plain = (
        command(files, name, tmp_path / "blocks"),
        command(files, "bits.csv", tmp_path / "plain"),
    )
    assert (done.exit_code, plain.exit_code) == (0, 0), done.stderr + plain.stderr
    assert (
        "240 rows, read in blocks of 100; the start comes from 150 of them, drawn at random, the"
        " estimates from all." in done.stdout
    )
    assert "Of the 240 rows the folder keeps 150, drawn at random" in done.stdout
    assert "blocks" not in plain.stdout
    own, other = Fit.load(tmp_path / "blocks" / "fit"), Fit.load(tmp_path / "plain" / "fit")
    assert own.num_rows == other.num_rows == ROWS
    np.testing.assert_allclose(own.log_likelihood, other.log_likelihood, rtol=1e-6)
    found, expected = (
        pd.read_csv(tmp_path / "blocks" / "posterior.csv"),
        pd.read_csv(tmp_path / "plain" / "posterior.csv"),
    )
    assert found["row"].tolist() == list(range(ROWS))
    np.testing.assert_allclose(found["log_likelihood"], expected["log_likelihood"], atol=1e-2)
    assert json.loads((tmp_path / "blocks" / "summary.json").read_text())["num_rows_kept"] == KEPT


def test_columns_are_judged_by_all_rows(files, tmp_path):
    done = command(files, "people.parquet", tmp_path / "blocks", "--block-rows", 70)
    plain = command(files, "people.parquet", tmp_path / "plain", "--block-rows", 1000)
    assert (done.exit_code, plain.exit_code) == (0, 0), done.stderr + plain.stderr
    assert (
        "categories: town; measurements: age, place; counts: visits; yes-no: smokes." in done.stdout
    )
    assert "column 'place' counts the rows" in done.stderr
    own = Fit.load(tmp_path / "blocks" / "fit")
    assert own.category_names == {"town": ("Bonn", "Linz", "Ulm")}
    assert read_results(tmp_path / "blocks")[1]["town"].dropna().isin(["Bonn", "Linz", "Ulm"]).all()
    np.testing.assert_allclose(
        own.log_likelihood, Fit.load(tmp_path / "plain" / "fit").log_likelihood, rtol=1e-6
    )


def test_what_one_row_alone_has_is_seen(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "bit": rng.integers(0, 2, ROWS),
            "count": rng.poisson(2, ROWS).astype(float),
            "code": np.tile(["a", "b"], ROWS // 2),
        }
    )
    frame.loc[236, "bit"], frame.loc[237, "count"], frame.loc[238, "code"] = 2, 0.5, "c"
    frame.to_parquet(tmp_path / "rows.parquet")
    blocks = open_source(str(tmp_path / "rows.parquet"), None, 50)
    assert blocks is not None
    seen = scan_columns(blocks)
    assert len(seen.frame) < 170
    assert {236, 237, 238} <= set(seen.frame.index)
    pd.testing.assert_frame_equal(seen.frame, frame.loc[seen.frame.index], check_dtype=False)
    assert seen.counting == ()


def test_a_graph_is_chosen_on_a_sample_and_estimated_from_all(files, tmp_path):
    done = run(
        "fit",
        "dde",
        files / "bits.npy",
        "--latents",
        1,
        "--response",
        "bernoulli",
        "--out",
        tmp_path,
        "--no-progress",
    )
    assert done.exit_code == 0, done.stderr
    assert "its graph comes from 150 of them" in done.stdout
    own, frame, _ = read_results(tmp_path)
    assert own.choice is not None
    assert own.num_rows == ROWS
    assert len(frame) == KEPT


def test_factorizations_keep_the_amounts_of_all_rows(tmp_path):
    rng = np.random.default_rng(0)
    profiles, amounts = (
        np.array([[8, 4, 1, 0, 0, 1], [0, 1, 1, 5, 9, 1]]),
        rng.gamma(2.0, (2.0, 4.0), (ROWS, 2)),  # apart, so that every optimum has them in one order
    )
    table = pd.DataFrame(rng.poisson(amounts @ profiles) + 1, columns=[f"c{j}" for j in range(6)])
    table.to_parquet(tmp_path / "counts.parquet")
    table.to_csv(tmp_path / "counts.csv", index=False)
    done, plain = (
        run(
            "fit",
            "pmf",
            tmp_path / f"counts.{kind}",
            "--components",
            2,
            "--out",
            tmp_path / kind,
            "--no-progress",
        )
        for kind in ("parquet", "csv")
    )
    assert (done.exit_code, plain.exit_code) == (0, 0), done.stderr + plain.stderr
    assert "240 rows, read in blocks of 100; the start comes from 150 of them" in done.stdout
    own, other = Fit.load(tmp_path / "parquet" / "fit"), Fit.load(tmp_path / "csv" / "fit")
    assert own.local["activities"].shape == (ROWS, 2)
    np.testing.assert_allclose(own.log_likelihood, other.log_likelihood, rtol=1e-4)
    found, expected = (
        pd.read_csv(tmp_path / kind / "posterior.csv") for kind in ("parquet", "csv")
    )
    assert found["row"].tolist() == list(range(ROWS))
    assert [
        np.corrcoef(found.iloc[:, column], expected.iloc[:, column])[0, 1] > 0.99
        for column in (1, 2)
    ] == [True, True]
    table.assign(name="x").to_parquet(tmp_path / "texts.parquet")
    done = run(
        "fit", "pmf", tmp_path / "texts.parquet", "--components", 2, "--out", tmp_path / "texts"
    )
    assert (done.exit_code, "column 'name' holds texts" in done.stderr) == (2, True)
    done = run(
        "fit",
        "pmf",
        tmp_path / "counts.parquet",
        "--components",
        2,
        "--usage",
        "--block-rows",
        50,
        "--out",
        tmp_path / "usage",
    )
    assert (done.exit_code, done.stderr) == (
        2,
        "error: --block-rows: --usage wants its rows in memory\n",
    )


def test_attributes_and_noisy_or(files, tmp_path):
    (tmp_path / "q.csv").write_text("A,B\n" + "1,0\n0,1\n" * 3)
    done = run(
        "fit",
        "attributes",
        files / "bits.parquet",
        "--q",
        tmp_path / "q.csv",
        "--out",
        tmp_path / "skills",
        "--no-progress",
    )
    assert done.exit_code == 0, done.stderr
    assert "read in blocks of 100" in done.stdout
    done = run(
        "fit",
        "noisy-or",
        files / "bits.parquet",
        "--latents",
        2,
        "--out",
        tmp_path / "causes",
        "--no-progress",
    )
    assert done.exit_code == 0, done.stderr
    assert "the number of latents comes from 150 of them" in done.stdout
    assert Fit.load(tmp_path / "causes" / "fit").num_rows == ROWS
    for words in (
        ("compare", tmp_path / "skills", tmp_path / "causes", "--out", tmp_path / "c"),
        ("causal", tmp_path / "skills"),
    ):
        done = run(*words)
        assert done.exit_code == 2
        assert (
            "needs all 240 rows of the fit; they were read in blocks, and the folder keeps 150 of"
            " them" in done.stderr
        )


@pytest.mark.parametrize("name", ["bits.parquet", "bits.npy", "parts", "bits.csv"])
def test_predictions_are_written_block_by_block(files, tmp_path, name, monkeypatch):
    assert command(files, "bits.csv", tmp_path / "fit").exit_code == 0
    lengths = []
    asked = Fit.posterior_frame
    monkeypatch.setattr(
        Fit,
        "posterior_frame",
        lambda self, data, *rest: lengths.append(len(data)) or asked(self, data, *rest),
    )
    done = run("predict", tmp_path / "fit", files / name, "--out", tmp_path / "answers.csv")
    assert done.exit_code == 0, done.stderr
    assert lengths == ([240] if name == "bits.csv" else [100, 100, 40])
    found, expected = (
        pd.read_csv(tmp_path / "answers.csv"),
        pd.read_csv(tmp_path / "fit" / "posterior.csv"),
    )
    pd.testing.assert_frame_equal(found, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("mixture", "bits.csv", "--components", 2),
            (
                "blocks are read from .npy, .parquet, .arrow, .feather files and folders of parquet"
                " files, got"
            ),
        ),
        (
            ("mixture", "bits.parquet", "--components", 2, "--response", "negative-binomial"),
            "NegativeBinomial items wants all rows in memory",
        ),
        (
            ("mixture", "bits.parquet", "--components", 2, "--covariates", "q1"),
            "--covariates reads rows in memory",
        ),
        (
            ("mixture", "bits.parquet", "--choose", "1..2"),
            "--choose compares fits of rows in memory",
        ),
        (("mixture", "bits.parquet", "--components", 2, "--columns", "q1,none"), "'none'"),
        (
            ("mixture", "people.parquet", "--components", 2, "--response", "normal"),
            "column 'town' holds texts, such as '",
        ),
        (("mixture", "bits.parquet", "--components", 2, "--response", "lognormal"), "q"),
        (
            ("dde", "bits.npy", "--latents", "1", "--engine", "saem"),
            "--engine saem wants its rows in memory",
        ),
        (("dde", "bits.npy", "--latents", "1", "--columns", "1,9"), "'9'"),
        (("attributes", "people.parquet", "--attributes", 1), "column 'town' holds texts"),
        (("noisy-or", "people.parquet"), "column 'town' holds texts"),
    ],
)
def test_what_is_not_possible_is_refused_by_name(files, tmp_path, words, said):
    kind, name, *more = words
    done = run(
        "fit",
        kind,
        files / name,
        *more,
        "--block-rows",
        80,
        "--out",
        tmp_path / "out",
        "--no-progress",
    )
    assert done.exit_code == 2, done.output
    lines = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert said in lines[0]
    assert not (tmp_path / "out" / "summary.json").exists()


def test_what_wants_rows_in_memory_says_so_where_nobody_asked_for_blocks(files, tmp_path):
    done = command(
        files,
        "bits.parquet",
        tmp_path / "one",
        "--response",
        "negative-binomial",
        "--columns",
        "q0,q1",
    )
    assert done.exit_code == 0, done.stderr
    assert "All rows are read into memory: Mixture of NegativeBinomial" in done.stdout
    done = run(
        "fit",
        "mixture",
        files / "bits.parquet",
        "--choose",
        "1..2",
        "--out",
        tmp_path / "two",
        "--no-progress",
    )
    assert done.exit_code == 0, done.stderr
    assert (
        "All 240 rows are read into memory: --choose compares fits of rows in memory" in done.stdout
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.parquet", b""),
        ("wrong.parquet", b"a,b\n1,2\n"),
        ("wrong.npy", b"a,b\n"),
        ("short.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f8'}"),
        ("wrong.arrow", b"1"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--block-rows", 10)])
def test_wrong_files(files, tmp_path, name, content, more):
    (tmp_path / name).write_bytes(content)
    done = command(tmp_path, name, tmp_path / "out", *more)
    assert done.exit_code == 2, done.output
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / name) in done.stderr
    assert not (tmp_path / "out").exists()


def test_arrays_that_are_no_tables(tmp_path):
    for name, array in (
        ("texts", np.array([["a"]] * 200)),
        ("three", np.zeros((200, 2, 2))),
        ("objects", np.array([[{}]] * 200)),
    ):
        np.save(tmp_path / f"{name}.npy", array, allow_pickle=name == "objects")
        done = command(tmp_path, f"{name}.npy", tmp_path / "out")
        assert done.exit_code == 2
        assert done.stderr.count("\n") == 1
        assert f"{name}.npy" in done.stderr
