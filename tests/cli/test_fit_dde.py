"""``ppl-models fit dde`` with a Q-matrix, and with a table of texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.measured_items import diagnosis, encoder
from typer.testing import CliRunner
from zoo.rows_measurement import LONG

from inference import Fit
from inference.cli.main import app
from inference.report.results_folder import read_results
from ppl_models import Covariates, ExpDINA, ExpGDM

pytestmark = pytest.mark.usefixtures("unpainted", "few_refits")


@pytest.mark.parametrize("bottom", ["dina", "gdm"])
def test_the_command_line_fits_with_a_q_matrix(bottom: str, tmp_path: Path) -> None:
    _, _, data = diagnosis(300)
    pd.DataFrame(data.numpy().astype(int)).to_csv(tmp_path / "answers.csv", index=False)
    pd.DataFrame(np.array(LONG)).to_csv(tmp_path / "q.csv", index=False)
    common = [
        "fit",
        "dde",
        str(tmp_path / "answers.csv"),
        "--response",
        "bernoulli",
        "--latents",
        "3",
        "--no-progress",
    ]
    common += ["--bottom", bottom, "--out", str(tmp_path / "out")]
    refused = CliRunner().invoke(app, common)
    assert refused.exit_code != 0
    assert "needs the graph" in refused.stderr
    done = CliRunner().invoke(
        app, [*common, "--graph", str(tmp_path / "q.csv")], catch_exceptions=False
    )
    assert done.exit_code == 0, done.stderr
    loaded = Fit.load(tmp_path / "out" / "fit")
    assert loaded.model == encoder(LONG, ExpDINA() if bottom == "dina" else ExpGDM())
    assert "Π<sub>k∈S</sub>" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_a_table_of_texts(tmp_path: Path) -> None:
    """Likert answers in words, colours and a number: taken as they look, in the order that is
    given, and found again in new rows.
    """
    rng = np.random.default_rng(5)
    bits = rng.random((400, 2)) < 0.5
    scale = np.array(["never", "rarely", "often", "always"])
    table = {
        f"q{j}": scale[
            np.digitize(2.5 * bits[:, j % 2] - 0.4 + rng.logistic(size=400), (0.0, 1.0, 2.5))
        ]
        for j in range(5)
    }
    table["colour"] = np.where(rng.random(400) < 0.2 + 0.6 * bits[:, 0], "red", "blue")
    table["age"] = 40 + 9 * bits[:, 1] + 4 * rng.normal(size=400)
    pd.DataFrame(table).to_csv(tmp_path / "answers.csv", index=False)
    distributions = ",".join(f"q{j}=ordinal" for j in range(5))
    common = [
        "fit",
        "dde",
        str(tmp_path / "answers.csv"),
        "--latents",
        "2",
        "--no-progress",
        "--penalty",
        "none",
        "--response",
        distributions,
    ]
    refused = CliRunner().invoke(app, [*common, "--out", str(tmp_path / "no")])
    assert refused.exit_code == 2
    assert (
        "--order: column 'q0' holds always, never, often, rarely, whose order is not known"
        in refused.output
    )
    useless = CliRunner().invoke(app, [*common, "--out", str(tmp_path / "no"), "--order", "no,yes"])
    assert "--order: no column of texts holds no, yes and nothing else" in useless.output
    result = CliRunner().invoke(
        app, [*common[:-2], "--out", str(tmp_path / "yes"), "--order", "never,rarely,often,always"]
    )
    assert result.exit_code == 0, result.output
    assert "categories: colour; measurements: age." in result.output
    fitted = Fit.load(tmp_path / "yes" / "fit")
    assert fitted.category_names == {f"q{j}": tuple(scale) for j in range(5)} | {
        "colour": ("blue", "red")
    }
    pd.DataFrame(table).head(3).to_csv(tmp_path / "new.csv", index=False)
    rows = CliRunner().invoke(
        app,
        [
            "predict",
            str(tmp_path / "yes"),
            str(tmp_path / "new.csv"),
            "--out",
            str(tmp_path / "rows.csv"),
        ],
    )
    assert rows.exit_code == 0, rows.output
    assert len(pd.read_csv(tmp_path / "rows.csv")) == 3


def test_codes_of_answers_with_gaps(tmp_path: Path) -> None:
    """Codes 1 to 4 keep their names where a gap turns them into 1.0, ... in the file, in new rows
    too.
    """
    rng = np.random.default_rng(6)
    bits = rng.random(300) < 0.5
    table = pd.DataFrame(
        {
            f"q{j}": 1.0 + np.digitize(2.5 * bits + rng.logistic(size=300), (0.5, 1.5, 3.0))
            for j in range(4)
        }
    )
    table.loc[3, "q1"] = np.nan
    table.to_csv(tmp_path / "answers.csv", index=False)
    result = CliRunner().invoke(
        app,
        [
            "fit",
            "dde",
            str(tmp_path / "answers.csv"),
            "--latents",
            "1",
            "--no-progress",
            "--response",
            "partial-credit",
            "--penalty",
            "none",
            "--out",
            str(tmp_path / "out"),
        ],
    )
    assert result.exit_code == 0, result.output
    assert Fit.load(tmp_path / "out" / "fit").category_names["q1"] == ("1", "2", "3", "4")
    rows = CliRunner().invoke(
        app,
        [
            "predict",
            str(tmp_path / "out"),
            str(tmp_path / "answers.csv"),
            "--out",
            str(tmp_path / "rows.csv"),
        ],
    )
    assert rows.exit_code == 0, rows.output


def test_latents_that_depend_on_covariates_come_back_from_the_folder(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    age, town = rng.normal(40.0, 10.0, 300).round(), rng.choice(["Bonn", "Ulm"], 300)
    skill = rng.random(300) < 1 / (1 + np.exp(4.0 - 0.1 * age))
    table = pd.DataFrame(
        (rng.random((300, 4)) < np.where(skill[:, None], 0.85, 0.2)).astype(int),
        columns=list("abcd"),
    )
    table.insert(1, "town", town)
    table["age"] = age
    table.to_csv(tmp_path / "answers.csv", index=False)
    common = [
        "fit",
        "dde",
        str(tmp_path / "answers.csv"),
        "--response",
        "bernoulli",
        "--latents",
        "1",
        "--penalty",
        "none",
        "--no-progress",
    ]
    done = CliRunner().invoke(
        app,
        [
            *common,
            "--covariates",
            "age,town",
            "--image-shape",
            "2,2",
            "--out",
            str(tmp_path / "out"),
        ],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.stderr
    fit, frame, _ = read_results(tmp_path / "out")
    assert fit.model.covariates == Covariates(("age", "town"), ((), ("Bonn", "Ulm")))
    assert fit.item_names == (*"abcd", "age", "town")
    assert frame["town"].tolist() == town.tolist()
    assert 0.04 < float(fit.params["coefficients"][0, 1]) < 0.2
    assert "odds ratio" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    again = CliRunner().invoke(
        app,
        [
            "predict",
            str(tmp_path / "out"),
            str(tmp_path / "answers.csv"),
            "--out",
            str(tmp_path / "new.csv"),
        ],
        catch_exceptions=False,
    )
    assert again.exit_code == 0, again.stderr
    assert len(pd.read_csv(tmp_path / "new.csv")) == 300
    table.assign(town=table["town"].where(table.index != 1)).to_csv(
        tmp_path / "answers.csv", index=False
    )
    asked = [
        *common,
        "--covariates",
        "town",
        "--columns",
        "a,b,c,d",
        "--out",
        str(tmp_path / "gaps"),
    ]
    assert (
        "covariate 'town' is missing in row 1 (1 of 300 rows"
        in CliRunner().invoke(app, asked).stderr
    )
    done = CliRunner().invoke(app, [*asked, "--covariates-missing", "drop"], catch_exceptions=False)
    assert "1 row of 300 that lack a covariate is left out." in done.stdout
    assert Fit.load(tmp_path / "gaps" / "fit").num_rows == 299


def test_sizes_are_compared_beside_covariates(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    age = rng.normal(40.0, 10.0, 250).round()
    skill = rng.random(250) < 1 / (1 + np.exp(4.0 - 0.1 * age))
    table = pd.DataFrame(
        (rng.random((250, 5)) < np.where(skill[:, None], 0.85, 0.2)).astype(int),
        columns=list("abcde"),
    ).assign(age=age)
    table.insert(0, "town", np.where(table.index == 1, "", rng.choice(["Bonn", "Ulm"], 250)))
    table.to_csv(tmp_path / "answers.csv", index=False)
    asked = [
        "select",
        "dde",
        str(tmp_path / "answers.csv"),
        "--latents",
        "1:2",
        "--penalty",
        "none",
        "--no-progress",
        "--covariates",
        "age,town",
    ]
    assert (
        "covariate 'town' is missing in row 1 (1 of 250 rows"
        in CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "no")]).stderr
    )
    done = CliRunner().invoke(
        app,
        [*asked, "--covariates-missing", "drop", "--out", str(tmp_path / "out")],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.stderr
    assert "1 row of 250 that lack a covariate is left out." in done.stdout
    fit = Fit.load(tmp_path / "out" / "fit")
    assert fit.model.num_items == 5
    assert fit.model.covariates == Covariates(("age", "town"), ((), ("Bonn", "Ulm")))
    assert (fit.num_rows, fit.model.latent_sizes) == (249, (1,))
    assert 0.04 < float(fit.params["coefficients"][0, 1]) < 0.2
